"""Name servers that see what a residency rule keeps to edges inside."""

from __future__ import annotations

from collections.abc import Iterator

from gtm.core.model.problems import Problem
from gtm.core.model.references import some
from gtm.core.model.services import NameServer
from gtm.core.policy.edges import binding_edges, inside, place_of
from gtm.core.policy.snapshot import CompiledRule, Snapshot


def edge_findings(snapshot: Snapshot, now: float) -> Iterator[Problem]:
    """What keeps rules that bind edges from being kept in DNS.

    Args:
        snapshot: the policy.
        now: POSIX seconds.

    Yields:
        `name_server_outside`: a zone with host names that such a rule concerns, and those of its name servers that stand
        outside of it or in an unknown country.
    """
    if not binding_edges(snapshot.policy):
        return
    for zone in snapshot.policy.zones:
        rules = _binding(snapshot, zone.name, now)
        servers = zone.name_servers or (NameServer(zone.primary_ns),)
        outside = [server for server in servers if not all(inside(rule, place_of(server)) for rule in rules)]
        if not outside:
            continue
        names = [f"`{name}`" for name in dict.fromkeys(rule.rule.name for rule in rules)]
        listed = [f"{server.name} ({server.country or 'country not stated'})" for server in outside]
        text = (
            f"residency rule{'s' * (len(names) > 1)} {some(names, 'rules')} {'bind' if len(names) > 1 else 'binds'} edges, and name servers of this zone stand "
            f"outside: {some(listed, 'servers')}; they see who asks, and refuse; give the host names a zone of their own "
            "whose name servers stand inside, and say so by their `country`"
        )
        yield Problem(f"zones.{zone.name}.name_servers", "name_server_outside", text)


def _binding(snapshot: Snapshot, zone: str, now: float) -> list[CompiledRule]:
    """The rules in force that bind edges and concern services with host names in a zone."""
    rules = {
        id(rule): rule
        for service in snapshot.services.values()
        if service.service.zone == zone and service.service.hostnames
        for rule in service.rules
        if rule.enforced and rule.edge_countries is not None and rule.starts <= now < rule.ends
    }
    return list(rules.values())
