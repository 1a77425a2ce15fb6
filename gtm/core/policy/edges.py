"""Where an edge stands, and whether a residency rule that binds edges lets it handle what the rule concerns.

Laws:
  1. An edge is inside a rule as a region would be: it stands in the rule's allowed places, not in its denied ones, and
     so does whoever runs it, where the rule looks at operators.
  2. What nobody said of an edge is outside: one of unknown country is inside no rule, one of unknown operator inside
     none that looks at operators.
  3. `stands_inside` is the one place where this is decided, for edges and for the name servers that stand for them in DNS.
  4. An edge that carries a request reads it, so each enforced rule that concerns the request is asked, also one that
     does not bind edges.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gtm.core.model.names import closest
from gtm.core.model.policy import EdgeScope, Policy, RuleMode
from gtm.core.model.regions import Region
from gtm.core.model.services import NameServer, Zone
from gtm.core.policy.snapshot import CompiledRule, Snapshot


@dataclass(frozen=True, slots=True)
class EdgePlace:
    """Where an edge stands and who runs it: ISO 3166-1 alpha-2 codes. None: unknown. `region`: the one it runs in."""

    country: str | None = None
    operator_country: str | None = None
    region: str | None = None


NOWHERE = EdgePlace()
"""The place of an edge of which nothing was said."""


def settled(edge: EdgePlace, regions: Iterable[Region]) -> EdgePlace:
    """An edge's place, with what was not said of it taken from the region that it runs in, if it runs in one of these."""
    home = next((region for region in regions if region.name == edge.region), None)
    if home is None:
        return edge
    return EdgePlace(edge.country or home.country, edge.operator_country or home.operator_country, home.name)


def inside(rule: CompiledRule, edge: EdgePlace) -> bool:
    """Whether an edge may handle a request that a rule concerns; always, if the rule does not bind edges."""
    return not rule.binds_edges or stands_inside(rule, edge)


def stands_inside(rule: CompiledRule, edge: EdgePlace) -> bool:
    """Whether an edge may carry a request that a rule concerns, whatever the rule says of edges; always, where nobody asks (`CompiledRule`)."""
    if rule.edge_countries is None:
        return True
    if edge.country not in rule.edge_countries:
        return False
    if rule.edge_operators is not None and edge.operator_country not in rule.edge_operators:
        return False
    return edge.region is None or edge.region not in rule.rule.deny.regions


def binding_edges(policy: Policy) -> bool:
    """Whether any enforced rule of a policy binds edges."""
    return any(
        rule.edges is EdgeScope.IN_FENCE and rule.mode is RuleMode.ENFORCE for rule in policy.residency_rules
    )


def rules_against(
    rules: Iterable[CompiledRule], edge: EdgePlace, *, carrying: bool = False
) -> frozenset[str]:
    """The names of those enforced rules that an edge stands outside of; of a rule's periods given, any is enough. `carrying`: as one that carries."""
    stands = stands_inside if carrying else inside
    return frozenset(rule.rule.name for rule in rules if rule.enforced and not stands(rule, edge))


def place_of(server: NameServer) -> EdgePlace:
    """Where a name server stands, as the policy says."""
    return EdgePlace(server.country, server.operator_country)


def servers_inside(zones: Iterable[Zone], rules: Sequence[CompiledRule]) -> tuple[NameServer, ...]:
    """The name servers that stand inside all of some rules, each once: edges to ask instead."""
    servers = {server.name: server for zone in zones for server in zone.name_servers}
    return tuple(
        server for server in servers.values() if all(inside(rule, place_of(server)) for rule in rules)
    )


def zones_elsewhere(
    snapshot: Snapshot, rules: Iterable[CompiledRule], outside: frozenset[str]
) -> frozenset[str]:
    """The zones that an edge refers to instead of answering for them.

    Those are zones inside another one of the policy with host names that a rule concerns which the edge stands outside
    of, where the policy says of every name server that it stands inside. Others it answers for, but for what the rule
    concerns.

    Args:
        snapshot: the policy.
        rules: those in force.
        outside: the names of those that the edge stands outside of.
    """
    if not outside:
        return frozenset()
    against = [rule for rule in rules if rule.rule.name in outside]
    found: set[str] = set()
    for zone in snapshot.policy.zones:
        above = closest(snapshot.zones, zone.name.partition(".")[2])
        services = {
            item.name for item in snapshot.policy.services if item.zone == zone.name and item.hostnames
        }
        concerning = [rule for rule in against if services & frozenset(rule.rule.match.services or services)]
        if above is None or not concerning or not zone.name_servers:
            continue
        if len(servers_inside((zone,), concerning)) == len(zone.name_servers):
            found.add(zone.name)
    return frozenset(found)
