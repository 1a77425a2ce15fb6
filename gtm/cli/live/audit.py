"""`gtm audit`: who did what, when, by what, and why."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import typer

from gtm.cli.common import output
from gtm.cli.common.commands import Command, asks
from gtm.cli.common.exits import CommandError
from gtm.cli.common.options import duration_seconds
from gtm.cli.common.output import moment

app = typer.Typer()


@asks(app)
def audit(
    ask: Command,
    *,
    who: Annotated[str | None, typer.Option(help="Part of the name of who did it.")] = None,
    action: Annotated[
        str | None, typer.Option(help="An action (region.drain), or a family of them (region).")
    ] = None,
    target: Annotated[str | None, typer.Option(help="Part of what it was done to.")] = None,
    since: Annotated[
        str | None, typer.Option(help="From then on: how long ago (24h, 7d), or a moment (RFC 3339).")
    ] = None,
    until: Annotated[str | None, typer.Option(help="Until before then, likewise.")] = None,
    forced: Annotated[bool, typer.Option("--forced", help="Only what overruled safety rules.")] = False,
    limit: Annotated[int, typer.Option(help="Most entries to show.", min=1, max=1000)] = 100,
    lines: Annotated[
        bool, typer.Option("--lines", help="All that is found, oldest first, each as a line of JSON.")
    ] = False,
) -> None:
    """Search the audit log: every change and every forced action, the newest first."""
    from gtm.client import calls

    now = datetime.now(UTC)
    asked: dict[str, Any] = {
        "who": who,
        "action": action,
        "target": target,
        "since": _moment("--since", since, now),
        "until": _moment("--until", until, now),
        "forced": forced or None,
    }
    if lines:
        for one in ask.api.list_audit(oldest_first=True, **asked):
            output.print_json_line(one)
        return
    page = ask.api.send(calls.list_audit(limit=limit, **asked)).value
    columns: dict[str, output.Column] = {
        "when (UTC)": moment("at"),
        "who": lambda one: one.who or "?",
        "via": "via",
        "action": lambda one: f"{one.action}{' (forced)' if one.forced else ''}",
        "target": lambda one: one.target if one.count == 1 else f"{one.count} times {one.target}",
        "revision": lambda one: one.revision or "",
        "why": lambda one: one.reason or one.detail,
    }
    ask.table(page.items_, columns, empty="nothing was done that fits")
    if page.next_cursor and not ask.as_json:
        output.note(f"there is more: the newest {limit} are shown (--limit, --until, --lines)")


def _moment(option: str, text: str | None, now: datetime) -> str | None:
    """A moment as the API takes it.

    Raises:
        CommandError: it is neither a duration nor a moment with its time zone.
    """
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        moment = now - timedelta(seconds=duration_seconds(option, text))
    if moment.tzinfo is None:
        raise CommandError(f"{option}: `{text}` has no time zone, such as 2030-01-31T12:00:00Z")
    return moment.isoformat()
