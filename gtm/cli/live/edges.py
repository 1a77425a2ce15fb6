"""`gtm edges`: which edges there are, and an end for those that are gone."""

from __future__ import annotations

from typing import Any

import typer

from gtm.cli.common import options

app = typer.Typer(no_args_is_help=True)

HEADERS = ("edge", "address", "country", "version", "revision", "epoch", "last seen (UTC)", "token", "live")


@app.command("list")
def list_(
    *,
    control_url: options.ControlUrl = options.CONTROL,
    token: options.Token = None,
    as_json: options.AsJson = False,
) -> None:
    """List every edge that was ever heard of."""
    from gtm.cli.common import client, output

    found = client.control(control_url, token).get("/v1/edges")["items"]
    if as_json:
        output.print_json(found)
    else:
        output.table(HEADERS, rows(found), empty="no edge has been heard of")


@app.command()
def forget(
    name: str,
    *,
    control_url: options.ControlUrl = options.CONTROL,
    token: options.Token = None,
) -> None:
    """Strike an edge off that is gone for good: it no longer counts as silent. One that is live is not forgotten."""
    from gtm.cli.common import client, output

    client.control(control_url, token).send("DELETE", f"/v1/edges/{client.segment(name)}")
    output.say(f"edge {name} is forgotten")


def rows(edges: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Edges as a table shows them."""
    from gtm.cli.common import output

    return [
        (
            edge["name"],
            edge["address"],
            edge["country"] or "unknown",
            edge["version"],
            edge["revision"],
            edge["epoch"],
            output.when(edge["last_seen"]),
            edge["token"] or "",
            _live(edge),
        )
        for edge in edges
    ]


def _live(edge: dict[str, Any]) -> str:
    if not edge["live"]:
        return "no"
    return "yes" if edge["instances"] == 1 else f"{edge['instances']} of this name"
