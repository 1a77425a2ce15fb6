"""`gtm status`: what is in force, and which edges have it."""

from __future__ import annotations

from typing import Any

import typer

from gtm.cli.common import options


def register(app: typer.Typer) -> None:
    """Add the command to an application."""
    app.command()(status)


def status(
    *,
    control_url: options.ControlUrl = options.CONTROL,
    token: options.Token = None,
    as_json: options.AsJson = False,
) -> None:
    """Show the revision in force, the edges that have it, and the policy's warnings."""
    from gtm.cli.common import changes, client, output
    from gtm.cli.live.edges import HEADERS, rows

    api = client.control(control_url, token)
    found = api.get("/v1/status")
    edges = api.get("/v1/edges")["items"]
    if as_json:
        output.print_json({**found, "edges": edges})
        return
    output.facts(
        (
            (
                "control",
                f"gtm {found['version']}{_standing(found)}, database {found['database'].replace('_', '-')}",
            ),
            ("revision", found["sync"]["revision"]),
            ("edges", changes.sync_words(found["sync"])),
        )
    )
    output.say("")
    output.table(HEADERS, rows(edges), empty="no edge has been heard of")
    output.warn(found["warnings"])


def _standing(found: dict[str, Any]) -> str:
    """What the control asked is among several, where there are any."""
    if found["control"] == "active":
        return f", active with {found['standbys']} standing by" if found["standbys"] else ""
    return f", {found['control']}" + (f" for {found['active']}" if found["active"] else "")
