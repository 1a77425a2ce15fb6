"""`gtm edges`: which edges there are, what one does, and an end for those that are gone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from gtm.cli.common import changes, output
from gtm.cli.common.commands import Command, asks
from gtm.cli.common.output import moment

if TYPE_CHECKING:
    from gtm.client import types

app = typer.Typer(no_args_is_help=True)
top_level = typer.Typer()


def _live(edge: types.EdgeSchema) -> str:
    if not edge.live:
        return "no"
    return "yes" if edge.instances == 1 else f"{edge.instances} of this name"


EDGES: dict[str, output.Column] = {
    "edge": "name",
    "address": "address",
    "country": lambda one: one.country or "unknown",
    "version": "version",
    "revision": "revision",
    "epoch": "epoch",
    "last seen (UTC)": moment("last_seen"),
    "token": lambda one: one.token or "",
    "live": _live,
}
NONE = "no edge has been heard of"


@asks(top_level)
def status(ask: Command) -> None:
    """Show the revision in force, the edges that have it, and the policy's warnings."""
    found = ask.api.get_status()
    edges = ask.api.list_edges().items_
    if ask.printed_json({**found, "edges": edges}):
        return
    control = f"gtm {found.version}{_standing(found)}, database {found.database.replace('_', '-')}"
    output.facts(
        (
            ("control", control),
            ("revision", found.sync.revision),
            ("edges", changes.sync_words(found.sync)),
        )
    )
    output.say("")
    output.records(edges, EDGES, empty=NONE)
    output.warn(found.warnings)


def _standing(found: types.StatusView) -> str:
    """What the control asked is among several, where there are any."""
    if found.control == "active":
        return f", active with {found.standbys} standing by" if found.standbys else ""
    return f", {found.control}" + (f" for {found.active}" if found.active else "")


@asks(app, "list")
def list_(ask: Command) -> None:
    """List every edge that was ever heard of."""
    ask.table(ask.api.list_edges().items_, EDGES, empty=NONE)


@asks(app)
def show(ask: Command, name: str) -> None:
    """Show one edge: what its DNS does and grants, and the certificates that its probes met."""
    found = ask.api.get_edge(name)
    if ask.printed_json(found):
        return
    output.records([found], EDGES, empty="")
    if not found.live:
        output.say("it is not live, so nothing is known of its DNS and its probes")
        return
    if found.dns is None:
        output.say(f"version {found.version} does not tell what its DNS does, nor of certificates")
        return
    output.table(
        ("dns", "response", "transport", "per second"),
        dns_rows(found.dns),
        empty="dns: no question lately",
    )
    output.records(
        found.certificates or (), CERTIFICATES, empty="no endpoint has shown a certificate to its probes"
    )


@asks(app, json=None)
def forget(ask: Command, name: str) -> None:
    """Strike an edge off that is gone for good: it no longer counts as silent. One that is live is not forgotten."""
    ask.api.forget_edge(name)
    output.say(f"edge {name} is forgotten")


def dns_rows(dns: types.DnsRates) -> list[tuple[Any, ...]]:
    """What DNS does, a kind of answer a line."""
    return [
        *((one.type, one.rcode, one.transport, f"{one.per_second:.2f}") for one in dns.answered),
        *(("limited", what, "udp", f"{rate:.2f}") for what, rate in sorted(dns.limited.items())),
        *(("dropped", why, "", f"{rate:.2f}") for why, rate in sorted(dns.dropped.items())),
    ]


CERTIFICATES: dict[str, output.Column] = {
    "region": "region",
    "certificate of": "endpoint",
    "for": lambda one: ", ".join(one.names) or one.subject or "not verified",
    "issuer": lambda one: one.issuer or "not verified",
    "ends (UTC)": moment("not_after"),
    "days left": lambda one: f"{one.days_left:.0f}{' !' if one.ends_soon else ''}",
    "sha-256": lambda one: one.sha256[:16],
}
"""Certificates, those that end soon marked."""
