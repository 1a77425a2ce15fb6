"""`gtm audit`: who did what, when, by what, and why."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import typer

from gtm.cli.common import options
from gtm.cli.common.exits import CommandError


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(audit)


def audit(
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
    control_url: options.ControlUrl = options.CONTROL,
    token: options.Token = None,
    as_json: options.AsJson = False,
) -> None:
    """Search the audit log: every change and every forced action, the newest first."""
    from gtm.cli.common import client, output

    now = datetime.now(UTC)
    asked: dict[str, Any] = {
        "who": who,
        "action": action,
        "target": target,
        "since": _moment("--since", since, now),
        "until": _moment("--until", until, now),
        "forced": "true" if forced else None,
    }
    control = client.control(control_url, token)
    if lines:
        _print_lines(control, asked)
        return
    page = control.get("/v1/audit", limit=limit, **asked)
    if as_json:
        output.print_json(page["items"])
        return
    output.table(
        ("when (UTC)", "who", "via", "action", "target", "revision", "why"),
        (
            (
                output.when(one["at"]),
                one["who"] or "?",
                one["via"],
                f"{one['action']}{' (forced)' if one['forced'] else ''}",
                one["target"] if one["count"] == 1 else f"{one['count']} times {one['target']}",
                one["revision"] or "",
                one["reason"] or one["detail"],
            )
            for one in page["items"]
        ),
        empty="nothing was done that fits",
    )
    if page["next_cursor"]:
        output.note(f"there is more: the newest {limit} are shown (--limit, --until, --lines)")


def _print_lines(control: Any, asked: dict[str, Any]) -> None:
    from gtm.cli.common import output

    cursor = None
    while True:
        page = control.get("/v1/audit", limit=1000, oldest_first="true", cursor=cursor, **asked)
        for one in page["items"]:
            output.print_json_line(one)
        cursor = page["next_cursor"]
        if cursor is None:
            return


def _moment(option: str, text: str | None, now: datetime) -> str | None:
    """A moment as the API takes it.

    Raises:
        CommandError: it is neither a duration nor a moment with its time zone.
    """
    from gtm.cli.common.durations import duration_seconds

    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        moment = now - timedelta(seconds=duration_seconds(option, text))
    if moment.tzinfo is None:
        raise CommandError(f"{option}: `{text}` has no time zone, such as 2030-01-31T12:00:00Z")
    return moment.isoformat()
