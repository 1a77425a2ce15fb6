"""`gtm fence`: consent to other people's changes that open a fence."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from gtm.cli.common import options

app = typer.Typer(no_args_is_help=True)


@app.command()
def approve(
    sha256: Annotated[str, typer.Argument(metavar="SHA256", help="The change's fingerprint.")],
    *,
    reason: Annotated[str, typer.Option(help="Why it may be made; kept with the revision.")],
    expires: Annotated[
        str, typer.Option(help="After which time the approval ends: a number and s, m, h or d.")
    ] = "1h",
    control_url: options.ControlUrl = options.CONTROL,
    token: options.Token = None,
    as_json: options.AsJson = False,
) -> None:
    """Approve of somebody else's change. Its refusal, and `gtm plan` of it, name its fingerprint."""
    from gtm.cli.common import client, output
    from gtm.cli.common.durations import duration_seconds

    until = datetime.now(UTC) + timedelta(seconds=duration_seconds("--expires", expires))
    body = {"sha256": sha256.strip().lower(), "reason": reason, "expires_at": until.isoformat()}
    made = client.control(control_url, token).call("POST", "/v1/fence-approvals", body=body).value
    if as_json:
        output.print_json(made)
    else:
        until_text = output.when(made["expires_at"])
        output.say(f"approved by {made['approver']} until {until_text} UTC: {made['sha256']}")


@app.command()
def approvals(
    *,
    control_url: options.ControlUrl = options.CONTROL,
    token: options.Token = None,
    as_json: options.AsJson = False,
) -> None:
    """List approvals, the latest first."""
    from gtm.cli.common import client, output

    found = client.control(control_url, token).get("/v1/fence-approvals")["items"]
    if as_json:
        output.print_json(found)
        return
    now = datetime.now(UTC)
    output.table(
        ("change", "approved by", "owner", "until (UTC)", "state", "reason", "for changes of yours"),
        (
            (
                item["sha256"],
                item["approver"],
                item["owner"] or "unknown",
                output.when(item["expires_at"]),
                "ended" if datetime.fromisoformat(item["expires_at"]) <= now else "stands",
                item["reason"],
                item["objection"] or "counts",
            )
            for item in found
        ),
        empty="nobody has approved of anything",
    )
