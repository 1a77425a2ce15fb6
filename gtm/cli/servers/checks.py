"""What `gtm balancer` says before it is started: requests of an access log that its `paths` would refuse, backends that its checks find down."""

from __future__ import annotations

import asyncio
import logging
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import msgspec
import typer

from gtm.balancer import config
from gtm.balancer.wire.endpoints import BodyKind, Paths, body_kind
from gtm.balancer.wire.tls import TlsError
from gtm.cli.common.exits import CommandError, Exit
from gtm.core.model.problems import PolicyError
from gtm.nesting import shallow
from gtm.runtime.balancer.carrier import tried

_COMMON = re.compile(rb'"([A-Z]+) (\S+) HTTP/[0-9.]+" [0-9]{3} ')
"""The request in a line of the Common and the Combined Log Format, which NGINX, Apache, HAProxy and Envoy can write."""
_MOST = 20
_MOST_MODELS = 5
_LONGEST = 1 << 16
"""Bytes of a line that are read at once, whatever file it is."""


class _Line(msgspec.Struct):
    """What is needed of a line of gtm's own access log."""

    path: str
    method: str
    model: str | None = None


class Counted(NamedTuple):
    """Requests that would be refused, by method, path and status; those that would be carried; lines that are no requests.

    `unnamed`: carried ones by method and path to endpoints whose body names a model, of which gtm's own log knows none.
    """

    refused: Counter[tuple[str, str, int]]
    carried: int
    others: int
    unnamed: Counter[tuple[str, str]]


def check_paths(log: Path, file: Path | None) -> None:
    """Print what would be refused, the most frequent first.

    Args:
        log: an access log: gtm's own, or in the Common or the Combined Log Format.
        file: the balancer's file; None: there is none.

    Raises:
        CommandError: a file cannot be read, or something would be refused.
    """
    try:
        document = config.load(file) if file is not None else config.of_urls(("http://127.0.0.1",))
        with log.open("rb") as lines:
            bounded = iter(lambda: lines.readline(_LONGEST), b"")
            found = count(bounded, document.carried())
    except PolicyError as error:
        raise CommandError(str(error)) from error
    except OSError as error:
        raise CommandError(f"cannot read `{log}`: {error.strerror}", Exit.CANNOT_RUN) from error
    refused = found.refused
    typer.echo(
        f"{found.carried:,} requests are carried, {refused.total():,} refused; lines that are no requests: {found.others:,}"
    )
    for (method, path, status), number in refused.most_common(_MOST):
        typer.echo(f"{number:>9,}  {status}  {method} {path}")
    if len(refused) > _MOST:
        typer.echo(f"           and {len(refused) - _MOST:,} others")
    rules = document.body_rules()
    if rules is not None and found.unnamed:
        will = "will be" if rules.limits_models else "may be"
        typer.echo(
            f"{found.unnamed.total():,} of those carried had no model that was read: they {will} refused "
            "(docs/balancer.md#limits-that-go-by-the-body)"
        )
        for (method, path), number in found.unnamed.most_common(_MOST):
            typer.echo(f"{number:>9,}  400  {method} {path}")
    if refused:
        raise CommandError(
            "to carry them, list them in `paths`, or write `paths: any` (docs/balancer.md#paths)"
        )


def count(lines: Iterable[bytes], paths: Paths | None) -> Counted:
    """Requests in lines of a log, by what becomes of them."""
    refused: Counter[tuple[str, str, int]] = Counter()
    unnamed: Counter[tuple[str, str]] = Counter()
    carried = others = 0
    for line in lines:
        asked = _asked(line)
        if asked is None:
            others += 1
            continue
        method, target, named = asked
        refusal = None if paths is None else paths.refusal(method, target)
        plain = target.partition(b"?")[0]
        said = (method.decode("latin-1"), plain.decode("latin-1")[:200])
        if refusal is None:
            carried += 1
            if not named and body_kind(method, plain) in (BodyKind.JSON, BodyKind.FORM):
                unnamed[said] += 1
        else:
            refused[(*said, refusal.status)] += 1
    return Counted(refused, carried, others, unnamed)


def _asked(line: bytes) -> tuple[bytes, bytes, bool] | None:
    """Method, target, and whether a model was named or nobody could know."""
    if line.startswith(b"{"):
        try:
            found = msgspec.json.decode(shallow(line), type=_Line)
        except ValueError:
            return None
        return found.method.encode(), found.path.encode(), found.model is not None
    written = _COMMON.search(line)
    return None if written is None else (written[1], written[2], True)


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
