"""`gtm edges`: which edges there are, what one does, and an end for those that are gone."""

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
def show(
    name: str,
    *,
    control_url: options.ControlUrl = options.CONTROL,
    token: options.Token = None,
    as_json: options.AsJson = False,
) -> None:
    """Show one edge: what its DNS does and grants, and the certificates that its probes met."""
    from gtm.cli.common import client, output

    found = client.control(control_url, token).get(f"/v1/edges/{client.segment(name)}")
    if as_json:
        output.print_json(found)
        return
    output.table(HEADERS, rows([found]), empty="")
    if not found["live"]:
        output.say("it is not live, so nothing is known of its DNS and its probes")
        return
    if found["dns"] is None:
        output.say(f"version {found['version']} does not tell what its DNS does, nor of certificates")
        return
    output.table(
        ("dns", "response", "transport", "per second"),
        dns_rows(found["dns"]),
        empty="dns: no question lately",
    )
    output.table(
        ("region", "certificate of", "for", "issuer", "ends (UTC)", "days left", "sha-256"),
        certificate_rows(found["certificates"] or []),
        empty="no endpoint has shown a certificate to its probes",
    )


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


def dns_rows(dns: dict[str, Any]) -> list[tuple[Any, ...]]:
    """What DNS does, a kind of answer a line."""
    return [
        *(
            (one["type"], one["rcode"], one["transport"], f"{one['per_second']:.2f}")
            for one in dns["answered"]
        ),
        *(("limited", what, "udp", f"{rate:.2f}") for what, rate in sorted(dns["limited"].items())),
        *(("dropped", why, "", f"{rate:.2f}") for why, rate in sorted(dns["dropped"].items())),
    ]


def certificate_rows(certificates: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Certificates as a table shows them, those that end soon marked."""
    from gtm.cli.common import output

    return [
        (
            one["region"],
            one["endpoint"],
            ", ".join(one["names"]) or one["subject"] or "not verified",
            one["issuer"] or "not verified",
            output.when(one["not_after"]),
            f"{one['days_left']:.0f}{' !' if one['ends_soon'] else ''}",
            one["sha256"][:16],
        )
        for one in certificates
    ]


def _live(edge: dict[str, Any]) -> str:
    if not edge["live"]:
        return "no"
    return "yes" if edge["instances"] == 1 else f"{edge['instances']} of this name"
