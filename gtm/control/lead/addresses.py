"""What people should know of the addresses that DNS gives out: which are left out of answers, and which no edge probes."""

from __future__ import annotations

from collections.abc import Iterable

from gtm.control.lead.vantages import Judgement, LiveEdge
from gtm.core.health.addresses import FAMILIES, address_key, families_of, judged_addresses
from gtm.core.model.policy import Policy
from gtm.core.model.references import some
from gtm.core.model.regions import AdminState, Region
from gtm.core.model.state import UNKNOWN_HEALTH, EndpointHealth, HealthStatus

MOST_REGIONS = 20
"""Regions of whose addresses warnings tell; of more, how many."""
_WORDS = {"ipv4": "IPv4", "ipv6": "IPv6"}


def warnings(policy: Policy, judged: Judgement, live: Iterable[LiveEdge]) -> list[str]:
    """Of regions that are down for a family, of addresses left out of answers and of those that are not probed, in sentences.

    Args:
        policy: in force.
        judged: what the edges say together.
        live: the edges that report.
    """
    told = [edge.report.addresses for edge in live if edge.report.addresses is not None]
    found: list[list[str]] = []
    for region in policy.regions if told else ():
        if region.admin_state is not AdminState.DISABLED:
            said = [*_left_out(region, judged), *_unprobed(region, judged, told)]
            found += [said] if said else []
    lines = [line for said in found[:MOST_REGIONS] for line in said]
    for family, alarm in judged.address_alarms.items():
        if alarm.disputed:
            regions = some([f"`{name}`" for name in sorted(alarm.disputed)], "regions")
            lines.append(
                f"alarm: the {_WORDS[family]} addresses of {regions} went down at once by the votes of edges alone; their verdicts are "
                "withdrawn, and each edge goes by its own probes (docs/concepts.md#addresses)"
            )
    if len(found) > MOST_REGIONS:
        lines.append(f"addresses of {len(found) - MOST_REGIONS} more regions: see GET /v1/health")
    return lines


def _left_out(region: Region, judged: Judgement) -> Iterable[str]:
    """Of a region of which DNS has nothing left, one sentence; else one for each family that lacks addresses."""
    status = families_of(region, judged.votes.get(region.name, {}), judged.address_votes)
    lost, out = [], dict[str, list[str]]()
    for family in FAMILIES:
        known = judged.address_votes.get(family, {}).get(region.name, {})
        down = [
            f"{address} ({_bare(one.detail) or 'down'})"
            for found, endpoint, address in judged_addresses(region)
            if found == family
            and (one := known.get(address_key(endpoint.url, address), UNKNOWN_HEALTH)).status
            is HealthStatus.DOWN
        ]
        if down:
            out[family] = down
            lost += [family] if status[family] is HealthStatus.DOWN else []
    if lost and HealthStatus.UP not in status.values():
        listed = some([one for family in lost for one in out[family]], "addresses")
        yield f"region `{region.name}` is down: no address of it is left in DNS ({listed})"
        return
    for family, down in out.items():
        if family in lost:
            yield (
                f"region `{region.name}` is down for {_WORDS[family]}: no address is left ({some(down, 'addresses')}); DNS sends clients to "
                "other regions, if any is whole"
            )
        else:
            yield f"region `{region.name}`: DNS leaves out {some(down, 'addresses')}, which the probes find down"


def _unprobed(
    region: Region, judged: Judgement, told: list[dict[str, dict[str, dict[str, EndpointHealth]]]]
) -> Iterable[str]:
    """Of an endpoint that is up: its addresses that no edge has ever found up, with what one of them met."""
    health = judged.votes.get(region.name, {})
    missed = []
    for family, endpoint, address in judged_addresses(region):
        if health.get(endpoint.url, UNKNOWN_HEALTH).status is not HealthStatus.UP:
            continue
        key = address_key(endpoint.url, address)
        seen = [table.get(family, {}).get(region.name, {}).get(key, UNKNOWN_HEALTH) for table in told]
        why = next((one.detail for one in seen if one.detail), "")
        if why and all(one.status is HealthStatus.UNKNOWN for one in seen):
            missed.append(f"{address} ({_bare(why)})")
    if missed:
        yield (
            f"region `{region.name}`: no edge can tell whether {some(missed, 'addresses')} answers, so DNS gives it out by its endpoint's "
            "url alone; mend what is wrong or let edges reach it, or set `probe: {addresses: false}` of the region"
        )


def _bare(detail: str) -> str:
    return detail[:120]
