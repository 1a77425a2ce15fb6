"""`gtm fence`: consent to other people's changes that open a fence."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from gtm.cli.common import output
from gtm.cli.common.commands import Command, asks
from gtm.cli.common.options import duration_seconds
from gtm.cli.common.output import moment

app = typer.Typer(no_args_is_help=True)


@asks(app)
def approve(
    ask: Command,
    sha256: Annotated[str, typer.Argument(metavar="SHA256", help="The change's fingerprint.")],
    *,
    reason: Annotated[str, typer.Option(help="Why it may be made; kept with the revision.")],
    expires: Annotated[
        str, typer.Option(help="After which time the approval ends: a number and s, m, h or d.")
    ] = "1h",
) -> None:
    """Approve of somebody else's change. Its refusal, and `gtm plan` of it, name its fingerprint."""
    until = datetime.now(UTC) + timedelta(seconds=duration_seconds("--expires", expires))
    made = ask.api.approve_fence(
        {"sha256": sha256.strip().lower(), "reason": reason, "expires_at": until.isoformat()}
    )
    if not ask.printed_json(made):
        until_text = output.when(made.expires_at)
        output.say(f"approved by {made.approver} until {until_text} UTC: {made.sha256}")


@asks(app)
def approvals(ask: Command) -> None:
    """List approvals, the latest first."""
    now = datetime.now(UTC)
    columns: dict[str, output.Column] = {
        "change": "sha256",
        "approved by": "approver",
        "owner": lambda one: one.owner or "unknown",
        "until (UTC)": moment("expires_at"),
        "state": lambda one: "ended" if datetime.fromisoformat(one.expires_at) <= now else "stands",
        "reason": "reason",
        "for changes of yours": lambda one: one.objection or "counts",
    }
    ask.table(ask.api.list_fence_approvals().items_, columns, empty="nobody has approved of anything")
