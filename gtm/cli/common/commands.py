"""Commands that ask control. What they have in common is declared here once: a command is its arguments, its call and its columns.

For example:

    @asks(app, "list")
    def list_(ask: Command) -> None:
        edges = ask.api.list_edges()["items"]
        ask.table(edges, {"edge": "name", "last seen (UTC)": moment("last_seen")}, empty="no edge has been heard of")
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gtm.cli.common import options, output

if TYPE_CHECKING:
    from gtm.cli.common.client import Client

_OPTIONS: Mapping[str, tuple[Any, Any]] = {
    "control_url": (options.ControlUrl, options.CONTROL),
    "token": (options.Token, None),
    "wait": (options.Wait, True),
    "timeout": (options.Timeout, options.WAIT_SECONDS),
    "data_dir": (options.DataDir, options.DATA_DIR),
    "database_url": (options.DatabaseUrl, None),
}
"""Options that such commands have besides their own, in the order of their help, with their defaults."""
CHANGES = ("wait", "timeout")
"""Options of those that change the policy."""
DIRECT = ("data_dir", "database_url")
"""Options of those that also work past control."""


@dataclass
class Command:
    """What a command was given besides its own arguments: whom it asks, and how the answer is printed."""

    control_url: str = options.CONTROL
    token: str | None = None
    wait: bool = True
    timeout: float = options.WAIT_SECONDS
    data_dir: Path = options.DATA_DIR
    database_url: str | None = None
    as_json: bool = False

    @cached_property
    def api(self) -> Client:
        """The control API.

        Raises:
            CommandError: there is no token, or the URL or the token cannot be one.
        """
        from gtm.cli.common import client

        return client.control(self.control_url, self.token)

    def printed_json(self, found: Any) -> bool:
        """Print an answer as JSON, if that is wanted; whether it was."""
        if self.as_json:
            output.print_json(found)
        return self.as_json

    def table(self, found: Iterable[Any], columns: Mapping[str, output.Column], *, empty: str) -> None:
        """Print records, as JSON or in columns (`output.records`)."""
        found = list(found)
        if not self.printed_json(found):
            output.records(found, columns, empty=empty)


_Decorator = Callable[[Callable[..., None]], Callable[..., None]]


def asks(
    app: typer.Typer, name: str | None = None, *, also: tuple[str, ...] = (), json: str | None = options.JSON
) -> _Decorator:
    """Make a function that takes a `Command` a command that asks control; `also`: which further options it has (`offers`)."""
    return offers(app, name, having=("control_url", "token", *also), json=json)


def offers(
    app: typer.Typer, name: str | None = None, *, having: tuple[str, ...], json: str | None = options.JSON
) -> _Decorator:
    """Make a function that takes a `Command` a command.

    Args:
        app: what it is a command of.
        name: of the command; None: the function's.
        having: which of the options that commands share it has.
        json: what `--json` does; None: it has no such option.
    """
    shared = {one: option for one, option in _OPTIONS.items() if one in having}
    if json is not None:
        shared["as_json"] = (Annotated[bool, typer.Option("--json", help=json)], False)

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        def command(*given: Any, **told: Any) -> None:
            asking = Command(**{one: told.pop(one) for one in shared if one in told})
            function(asking, *given, **told)

        options.take(command, function, shared)
        app.command(name)(command)
        return command

    return decorate
