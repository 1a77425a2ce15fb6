"""`gtm top`: regions, model servers and tenants as they are this second."""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Protocol

import typer

from gtm.cli.common import output
from gtm.cli.common.commands import Command, asks
from gtm.cli.common.exits import CommandError, Exit

if TYPE_CHECKING:
    from gtm.client import types

    Found = types.TopView | types.InsideList
    Look = Callable[[], Found]


class Tab(StrEnum):
    """One of the lists that `gtm top` shows."""

    REGIONS = "regions"
    SERVERS = "servers"
    TENANTS = "tenants"


KEYS = {str(number): tab for number, tab in enumerate(Tab, 1)}
"""The keys that show the lists."""

EVERY = 1.0
"""Seconds between two looks."""
_TIMEOUT = 5.0


app = typer.Typer()


@asks(app, json="Print a JSON document a line, one a second.")
def top(
    ask: Command,
    *,
    tab: Annotated[
        Tab, typer.Option("--tab", help="What to show first; the keys 1, 2 and 3 change it.")
    ] = Tab.REGIONS,
    region: Annotated[
        str | None, typer.Option("--region", help="Servers and tenants of this region only.")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Look once, and end.")] = False,
) -> None:
    """Show regions, spillover, refusals and the plan, or regions' model servers or tenants, every second until Ctrl-C."""
    from gtm.cli.common import client

    api = client.control(ask.control_url, ask.token, timeout=_TIMEOUT)
    looks: dict[Tab, Look] = {
        Tab.REGIONS: api.get_top,
        Tab.SERVERS: lambda: api.get_inside(region=region),
        Tab.TENANTS: lambda: api.get_inside(region=region),
    }
    try:
        with _shown(once=once, as_json=ask.as_json) as show, _keys() as pressed:
            _follow(looks, tab, show, pressed, once=once)
    except KeyboardInterrupt:
        return


class _Show(Protocol):
    """Puts a document where it is seen; `lost` says why there is no newer one."""

    def __call__(self, tab: Tab, found: Found, lost: str = "") -> None: ...


def _follow(
    looks: dict[Tab, Look], tab: Tab, show: _Show, pressed: Callable[[float], str], *, once: bool
) -> None:
    """Look every second, or at once where somebody changes the tab. Control may go and come back; only at the first look it must be there.

    Raises:
        CommandError: it is not, or the token is not allowed to look (any more).
    """
    last = None
    while True:
        began = time.monotonic()
        try:
            last = tab, looks[tab]()
            show(*last)
        except CommandError as error:
            if last is None or error.code is not Exit.UNREACHABLE:
                raise
            show(*last, str(error))
        if once:
            return
        key = pressed(max(0.0, EVERY - (time.monotonic() - began)))
        if key == "q":
            return
        if key in KEYS:
            tab = KEYS[key]


@contextmanager
def _keys() -> Iterator[Callable[[float], str]]:
    """Which of the keys is pressed within so many seconds, where somebody sits at a terminal; empty: none."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):

        def asleep(seconds: float) -> str:
            time.sleep(seconds)
            return ""

        yield asleep
        return
    import termios
    import tty

    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)

    def pressed(seconds: float) -> str:
        until = time.monotonic() + seconds
        while select.select([terminal], [], [], max(0.0, until - time.monotonic()))[0]:
            key = os.read(terminal, 1).decode(errors="replace")
            if key == "q" or key in KEYS:
                return key
            if not key:  # the terminal is gone
                break
        return ""

    try:
        tty.setcbreak(terminal)
        yield pressed
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


@contextmanager
def _shown(*, once: bool, as_json: bool) -> Iterator[_Show]:
    """How documents are shown: as lines of JSON, in place on a terminal, one below the other elsewhere."""
    from rich.live import Live

    from gtm.cli.live.top_view import screen, tabs

    console = output.out()
    told = False

    def as_lines(tab: Tab, found: Found, lost: str = "") -> None:  # noqa: ARG001 - the contract
        nonlocal told
        if not lost:
            output.print_json_line(found)
        elif not told:
            output.note(lost)
        told = bool(lost)

    def below(tab: Tab, found: Found, lost: str = "") -> None:
        with console.capture() as captured:
            console.print(screen(tab, found, lost))
        lines = [line.rstrip() for line in captured.get().splitlines()]
        typer.echo("\n".join(lines if once else [*lines, ""]))
        sys.stdout.flush()

    if as_json or once or not console.is_terminal:
        yield as_lines if as_json else below
        return

    def in_place(tab: Tab, found: Found, lost: str = "") -> None:
        live.update(tabs(tab, screen(tab, found, lost)), refresh=True)

    with Live(console=console, auto_refresh=False) as live:
        yield in_place
