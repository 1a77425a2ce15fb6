"""`gtm top`: regions, spillover and refusals as they are this second."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Protocol

import typer

from gtm.cli.common import output
from gtm.cli.common.commands import Command, asks
from gtm.cli.common.exits import CommandError, Exit

if TYPE_CHECKING:
    from gtm.cli.common.client import Client
    from gtm.client import types

EVERY = 1.0
"""Seconds between two looks."""
_TIMEOUT = 5.0


app = typer.Typer()


@asks(app, json="Print a JSON document a line, one a second.")
def top(
    ask: Command,
    *,
    once: Annotated[bool, typer.Option("--once", help="Look once, and end.")] = False,
) -> None:
    """Show regions, spillover, refusals and the plan, every second until Ctrl-C."""
    from gtm.cli.common import client

    api = client.control(ask.control_url, ask.token, timeout=_TIMEOUT)
    try:
        with _shown(once=once, as_json=ask.as_json) as show:
            _follow(api, show, once=once)
    except KeyboardInterrupt:
        return


class _Show(Protocol):
    """Puts a document where it is seen; `lost` says why there is no newer one."""

    def __call__(self, found: types.TopView, lost: str = "") -> None: ...


def _follow(api: Client, show: _Show, *, once: bool) -> None:
    """Look every second. Control may go and come back; only at the first look it must be there.

    Raises:
        CommandError: it is not, or the token is not allowed to look (any more).
    """
    last = None
    while True:
        began = time.monotonic()
        try:
            last = api.get_top()
            show(last)
        except CommandError as error:
            if last is None or error.code is not Exit.UNREACHABLE:
                raise
            show(last, str(error))
        if once:
            return
        time.sleep(max(0.0, EVERY - (time.monotonic() - began)))


@contextmanager
def _shown(*, once: bool, as_json: bool) -> Iterator[_Show]:
    """How documents are shown: as lines of JSON, in place on a terminal, one below the other elsewhere."""
    from rich.live import Live

    from gtm.cli.live.top_view import screen

    console = output.out()
    told = False

    def as_lines(found: types.TopView, lost: str = "") -> None:
        nonlocal told
        if not lost:
            output.print_json_line(found)
        elif not told:
            output.note(lost)
        told = bool(lost)

    def below(found: types.TopView, lost: str = "") -> None:
        with console.capture() as captured:
            console.print(screen(found, lost))
        lines = [line.rstrip() for line in captured.get().splitlines()]
        typer.echo("\n".join(lines if once else [*lines, ""]))
        sys.stdout.flush()

    if as_json or once or not console.is_terminal:
        yield as_lines if as_json else below
        return
    with Live(console=console, auto_refresh=False) as live:
        yield lambda found, lost="": live.update(screen(found, lost), refresh=True)
