"""What people should know of a control process, and what to do, in sentences.

Of the addresses that DNS gives out, they should know which are left out of answers, and which no edge probes.
"""

from __future__ import annotations

from collections.abc import Iterable

from gtm.control.lead import edges
from gtm.control.lead.active import Active
from gtm.control.lead.vantages import Judgement, LiveEdge
from gtm.control.live.present import Present
from gtm.control.replica import Replica
from gtm.core.health.addresses import FAMILIES, address_key, families_of, judged_addresses
from gtm.core.model.policy import Policy
from gtm.core.model.references import meant, some
from gtm.core.model.regions import AdminState, Region
from gtm.core.model.state import UNKNOWN_HEALTH, EndpointHealth, HealthStatus

BALANCER_SILENT = 60.0
"""Seconds after its last report for which a balancer is taken to stand where it said."""
MOST_LOST = 10
"""Regions that there are not, and that a warning each is of."""


def warnings(replica: Replica, now: float, approvals: int = 0) -> list[str]:
    """Of the policy in force, and what is wrong with health, feeds, tokens, edges, locations and keys at a POSIX time.

    `approvals` is how many others have to approve of what opens a fence.
    """
    present, active = replica.now, replica.active
    found = [*(present.compiled.warnings if present.compiled is not None else ())]
    if active is not None:
        vantages = active.reports.vantages
        found += [words for words in (vantages.alarm_words(), vantages.tie_words()) if words]
    found += [
        f"edges or balancers hold revisions up to {fork.up_to}, and this database had none after {fork.after}: it was restored from a "
        "backup. They keep what they have, and are sent no policy of this database, until somebody says that going back is meant: "
        "gtm revisions accept-older (docs/operations.md#a-database-that-was-restored)"
        for fork in present.forks
    ]
    found += replica.subscribers.warnings()
    found += [
        f"token `{name}` speaks for edges of any name (it is from before tokens named their edge): make each edge a token "
        f"of its own (gtm token create EDGE --role edge), then: gtm token revoke {name}"
        for name in present.unbound_tokens()
    ]
    found += [
        f"token `{name}` is for balancers of any region, so whoever has it can lie about the load of all: make each region a "
        f"token of its own (gtm token create NAME --role balancer --regions REGION), then: gtm token revoke {name}"
        for name in present.unbound_balancers()
    ]
    found += [
        f"token `{name}` is for `{regions}`, and no region has such a name: what it reports is dropped"
        for name, regions in present.lost_tokens()
    ]
    if approvals and (names := present.unowned_tokens()):
        listed = ", ".join(f"`{name}`" for name in names)
        found.append(
            f"nobody wrote down in whose hands these tokens are: {listed}. What they approve of, or change, counts as one with "
            "everybody: gtm token rotate NAME --owner OWNER --direct"
        )
    if active is not None:
        found += _of_active(present, active, now)
    return [*found, f"dnssec: {replica.dnssec.problem}"] if replica.dnssec.problem else found


def _of_balancers(present: Present, active: Active) -> list[str]:
    """Of balancers that report now and whose region is not in the policy: by region, so that names cost a line each."""
    known = {region.name for region in present.policy.regions}
    lost: dict[str, list[str]] = {}
    for one in active.balancers.heard():
        if one.region and one.region not in known and one.age < BALANCER_SILENT:
            lost.setdefault(one.region, []).append(f"`{one.name}`")
    found = [
        f"there is no region `{region}`, and balancers say that they stand there, which serve nothing: {some(names, 'balancers')}; "
        f"make the region, or start them with the name of another (--region){meant(region, known)}"
        for region, names in sorted(lost.items())[:MOST_LOST]
    ]
    if len(lost) > MOST_LOST:
        found.append(
            f"balancers stand in {len(lost) - MOST_LOST} more regions that there are not: see GET /v1/balancers"
        )
    return found


def _of_active(present: Present, active: Active, now: float) -> list[str]:
    """Of where edges stand and of where clients are, which the active control alone hears of."""
    live = active.reports.vantages.live()
    found = [*edges.outside_rules(present.compiled, live, now), *edges.ending_certificates(live, now)]
    found += address_warnings(present.policy, active.reports.vantages.judgement, live)
    named = {token.id: token.name for token in present.tokens.values()}
    found += [
        f"edges of token `{named.get(token, token)}` say that {claim:,.0f} requests a second are asked of them, and only {counts:,.0f} "
        "count: that is far more than in the last day, and nobody else sees it (docs/planning.md#how-far-edges-are-believed). If "
        "it is true, have the regions report their load; if not, revoke the token"
        for token, (claim, counts) in sorted(active.planning.excess.items())
    ]
    found += _of_balancers(present, active)
    doubtful = sum(one.doubt.doubtful for one in active.latency.disputed)
    if doubtful:
        found.append(f"locations: round trips contradict those of {doubtful} networks; see `gtm latency`")
    if active.latency.set_aside:
        names = ", ".join(f"{reporter}…" for reporter in sorted(active.latency.set_aside))
        found.append(
            f"locations: these tokens are said to dispute too many to have a vote: {names}; see `gtm latency`"
        )
    return found


MOST_REGIONS = 20
"""Regions of whose addresses warnings tell; of more, how many."""
_WORDS = {"ipv4": "IPv4", "ipv6": "IPv6"}


def address_warnings(policy: Policy, judged: Judgement, live: Iterable[LiveEdge]) -> list[str]:
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
