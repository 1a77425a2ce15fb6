"""What checks find of a balancer's backends before it is started: `gtm balancer --check-backends`."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import typer

from gtm.balancer import config
from gtm.balancer.wire.tls import TlsError
from gtm.cli.common.exits import CommandError
from gtm.core.model.problems import PolicyError
from gtm.runtime.balancer.trying import tried

_MOST_MODELS = 5


def check_backends(file: Path | None, backends: tuple[str, ...]) -> None:
    """Make each check once, and print a line for each backend, with what is wrong below it.

    Args:
        file: the balancer's file; None: there is none.
        backends: URLs of backends, where there is no file.

    Raises:
        CommandError: the file is wrong, or a backend would get no requests.
    """
    logger = logging.getLogger("gtm")
    level = logger.level
    logger.setLevel(logging.CRITICAL)  # what the log would say is printed
    try:
        document = config.load(file) if file is not None else config.of_urls(backends)
        found = asyncio.run(tried(document))
    except (PolicyError, TlsError) as error:
        raise CommandError(str(error)) from error
    finally:
        logger.setLevel(level)
    for one in found:
        listed = ", ".join(one.models[:_MOST_MODELS]) + (" …" if len(one.models) > _MOST_MODELS else "")
        typer.echo(f"{'up  ' if one.healthy else 'down'}  {one.url}{f'  ({listed})' if listed else ''}")
        for check, words in one.problems.items():
            typer.echo(f"      {check}: {words}")
    down = sum(not one.healthy for one in found)
    if down:
        raise CommandError(f"{down} of {len(found)} backends would get no requests")
