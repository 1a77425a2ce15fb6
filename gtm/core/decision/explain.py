"""A decision in words, and as the plain data that JSON answers are made of.

The edge's look-ups, the command line and the control API all say it with these sentences.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from gtm.core.decision.decide import Decision, Exclusion, RegionCandidate, RuleTrace
from gtm.core.decision.view import View
from gtm.core.model.outcomes import Outcome, Reason
from gtm.core.model.regions import AddressFamily, Endpoint
from gtm.core.model.requests import Location, Request
from gtm.core.model.state import EndpointHealth, HealthStatus
from gtm.core.policy.edges import NOWHERE, servers_inside

MAX_REASONS = 20
"""Sentences in a short answer; a full explanation has one for each member."""

_REFUSALS = {
    Reason.FENCE_EMPTY: "refused: the residency rules leave none of the service's regions",
    Reason.FENCE_UNUSABLE: "refused: no region inside the fence is usable, and the residency rules forbid the others",
    Reason.EDGE_OUTSIDE: "refused here: residency rules that bind edges concern the request, and this edge stands outside of them",
    Reason.NONE_USABLE: "refused: no region of the service is usable",
    Reason.SHED: "refused: the plan has no capacity left for requests of this priority",
    Reason.OVER_FAIR_SHARE: "refused: capacity is short, and the tenant is beyond its fair share of it",
}
_CHOSEN = {
    Reason.LOWEST_LATENCY: "lowest estimated round trip of the {where}{measure}",
    Reason.NEAREST: "nearest of the {where}{measure}",
    Reason.WEIGHTED: "by weight, takes {share}",
    Reason.AFFINITY: "this client stays on it (by weight {share})",
    Reason.SPILLOVER: "spillover by plan: it takes {share}, as regions that rank before it have no room for them",
    Reason.SLOW_START: "it takes {share} while a region that ranks before it is in slow start",
    Reason.DRAINING_SESSION: "it drains, and this client's affinity keeps it there for now",
    Reason.CANARY: "canary: this client is among the {share} of clients that it serves",
    Reason.EXPLORATION: "exploring: one of the few requests spread over all eligible regions to measure the way there",
    Reason.QUOTA_EXHAUSTED: "home region: the plan would have spilled this request, but the quota is used up",
    Reason.FREE_SLOTS: "it has free slots now, and what the plan chose for this request has none",
    Reason.FAILOVER_ORDER: "first of the {where} in failover order",
    Reason.LOCATION_UNKNOWN: "first of the {where} in the order written, the client's location is unknown",
    Reason.HEALTH_IGNORED: "although it is not healthy: nothing usable is left, and the service then ignores health",
}
_STATES = {
    Exclusion.DISABLED: "disabled by its operator",
    Exclusion.DRAINING: "draining, takes no new clients",
    Exclusion.HEALTH_UNKNOWN: "health unknown, no probe has answered yet",
    Exclusion.UNHEALTHY: "no endpoint is up",
    Exclusion.ADDRESSES_DOWN: "its addresses of a family that DNS gives out are all down",
}


_PLACE = (
    *("country", "subdivision", "continent", "lat", "lon", "asn", "network", "source"),
    *("anonymous", "doubtful", "accuracy_km", "subnet"),
)
"""What an answer says of where the client is, beside `spans`."""


def answer(
    view: View,
    request: Request,
    decision: Decision,
    *,
    client: str | None,
    endpoint: Endpoint | None,
    full: bool = False,
) -> dict[str, Any]:
    """A decision as plain data, ready for JSON.

    Args:
        view: the View the decision was made from.
        request: what was asked.
        decision: what was decided.
        client: the client's address as text, None if it is unknown.
        endpoint: the ingress handed out, None for a refusal.
        full: with the request as understood, every candidate, and each rule's legal basis and why it matched.

    Returns:
        `service`, `outcome`, `region`, `endpoint`, `ttl` (seconds), `reason` (code), `reasons` (sentences), `client`,
        `rules`, `revision` and `epoch`; A refusal because of where the edge stands has `edge`:
        its place, the rules, and name servers that stand inside. `full` adds `request`, `ranking_class`, `shed` (the share of such requests that is refused for want of capacity) and
        `candidates`.
    """
    result: dict[str, Any] = {
        "service": decision.service,
        "outcome": decision.outcome.value,
        "region": decision.region,
        "endpoint": None if endpoint is None else _endpoint(endpoint),
        "ttl": decision.ttl,
        "reason": decision.reason.value,
        "reasons": reasons(view, request, decision),
        "client": client_document(request.location, client),
        "rules": [_rule(rule, full=full) for rule in decision.rules],
        "revision": decision.revision,
        "epoch": decision.epoch,
    }
    if decision.outcome is Outcome.REFUSED_EDGE:
        result["edge"] = _edge(view, request.service, decision)
    if full:
        result["request"] = _request(request)
        result["ranking_class"] = decision.ranking_class
        result["shed"] = round(decision.shed, 6)
        by_operator = _rules_by_operator(view, request.service)
        result["candidates"] = [
            _candidate(view, request, decision, item, by_operator) for item in decision.candidates
        ]
    return result


def client_document(location: Location, client: str | None) -> dict[str, Any]:
    """What an answer says of its client: all of a short one that clients who are ranked alike do not share.

    Args:
        location: where the client is.
        client: its address as text, None if it is unknown.
    """
    found: dict[str, Any] = {
        "ip": client,
        "country": location.country,
        "network": location.network,
        "source": location.source,
    }
    if location.subnet is not None:  # a client that is a subnet, perhaps in several networks
        found |= {"subnet": location.subnet, "spans": list(location.spans)}
    return found


def reasons(view: View, request: Request, decision: Decision) -> list[str]:
    """The sentences that explain a decision briefly.

    They say why the region was chosen and why each region that ranks before it was not; for a refusal, what excludes
    each region. At most `MAX_REASONS`, of which the last says how many are left out.
    """
    chosen = next((item for item in decision.candidates if item.region == decision.region), None)
    if chosen is None:
        sentences = [_REFUSALS[decision.reason]]
        others: Sequence[RegionCandidate] = decision.candidates
    else:
        sentences = [sentence(view, request, decision, chosen)]
        others = decision.candidates[: chosen.rank - 1]
    room = MAX_REASONS - 1
    if len(others) > room:
        left = len(others) - room + 1
        sentences += [sentence(view, request, decision, item) for item in others[: room - 1]]
        sentences.append(f"{left} more regions are not listed; a full explanation has them all")
    else:
        sentences += [sentence(view, request, decision, item) for item in others]
    return sentences


def lines(view: View, request: Request, decision: Decision) -> list[str]:
    """The whole decision in words: the refusal if it is one, then a sentence per member region in rank order."""
    head = [_REFUSALS[decision.reason]] if decision.outcome is not Outcome.SERVED else []
    return head + [sentence(view, request, decision, item) for item in decision.candidates]


def sentence(view: View, request: Request, decision: Decision, candidate: RegionCandidate) -> str:
    """What became of one candidate, and why (`us-east: excluded by residency rule gdpr (client country DE)`)."""
    if candidate.region == decision.region:
        text = _chosen(decision, candidate)
    elif candidate.excluded is Exclusion.RESIDENCY:
        text = f"excluded by residency {_rules(decision, candidate.rules)}"
    elif candidate.excluded is Exclusion.MODEL_UNAVAILABLE:
        text = f"does not serve the {_missing_models(view, request, candidate)}"
    elif candidate.excluded is not None:
        pools = view.snapshot.services[request.service].pools
        text = _state(candidate.excluded, request.family if request.family in pools else None)
    elif candidate.share > 0:
        text = f"usable, takes {candidate.share:.0%} of such clients"
    else:
        text = f"usable, ranked {candidate.rank}{_measure(decision, candidate)}"
    if candidate.monitored:
        text += f"; would be excluded by residency {_rules(decision, candidate.monitored)} if enforced"
    return f"{candidate.region}: {text}"


def _state(excluded: Exclusion, family: AddressFamily | None) -> str:
    """What keeps a region from being a candidate, where neither law nor models do."""
    if family is None:
        return _STATES[excluded]
    if excluded is Exclusion.NO_ADDRESS:
        return f"has no {family.label} address, and the service has a pool for each family"
    if excluded is Exclusion.UNHEALTHY:
        return f"no endpoint with an {family.label} address is up"
    return _STATES[excluded]


def _edge(view: View, service: str, decision: Decision) -> dict[str, Any]:
    """Where the edge stands that refuses, the rules it stands outside of, and which it could be asked instead."""
    matched = {rule.name for rule in decision.rules} & view.basis.outside
    rules = [rule for rule in view.rules[service] if rule.rule.name in matched]
    place = view.basis.edge or NOWHERE
    servers = servers_inside(view.snapshot.policy.zones, rules)
    return {
        "country": place.country,
        "operator_country": place.operator_country,
        "rules": sorted(matched),
        "inside": [
            {
                "name": server.name,
                "country": server.country,
                "ipv4": list(server.ipv4),
                "ipv6": list(server.ipv6),
            }
            for server in servers[:MAX_REASONS]
        ],
    }


def _last_failure(health: Iterable[EndpointHealth]) -> str:
    """In brackets, what the endpoint that went down last met; only for those who are shown the endpoints' health."""
    down = [item for item in health if item.status is HealthStatus.DOWN and item.detail]
    return f" ({max(down, key=lambda item: item.since).detail})" if down else ""


def _chosen(decision: Decision, candidate: RegionCandidate) -> str:
    fenced = any(rule.mode == "enforce" for rule in decision.rules)
    text = _CHOSEN[decision.reason].format(
        where="usable regions inside the fence" if fenced else "usable regions",
        share=f"{candidate.share:.0%} of such clients",
        measure=_measure(decision, candidate),
    )
    return f"chosen, {text}"


def _measure(decision: Decision, candidate: RegionCandidate) -> str:
    """In brackets, what the ranking looked at."""
    if decision.reason is Reason.NEAREST and candidate.distance_km is not None:
        return f" ({candidate.distance_km:.0f} km)"
    return "" if candidate.estimate_ms is None else f" ({candidate.estimate_ms:.0f} ms)"


def _rules(decision: Decision, names: Sequence[str]) -> str:
    because = {rule.name: ", ".join(rule.because) for rule in decision.rules}
    listed = " and ".join(f"{name} ({because[name]})" for name in names)
    return f"{'rule' if len(names) == 1 else 'rules'} {listed}"


def _missing_models(view: View, request: Request, candidate: RegionCandidate) -> str:
    snapshot = view.snapshot
    served = snapshot.regions[snapshot.region_numbers[candidate.region]].models
    wanted = (snapshot.services[request.service].service.model, request.model)
    missing = sorted({name for name in wanted if name is not None and name not in served})
    return ("model " if len(missing) == 1 else "models ") + " and ".join(f"`{name}`" for name in missing)


def _rule(rule: RuleTrace, *, full: bool) -> dict[str, Any]:
    result: dict[str, Any] = {"name": rule.name, "mode": rule.mode}
    if full:
        result |= {"legal_basis": rule.legal_basis, "because": list(rule.because)}
    return result


def _endpoint(endpoint: Endpoint) -> dict[str, Any]:
    return {
        "url": endpoint.url,
        "ipv4": list(endpoint.ipv4),
        "ipv6": list(endpoint.ipv6),
        "cname": endpoint.cname,
    }


def _request(request: Request) -> dict[str, Any]:
    location: Location = request.location
    return {
        "service": request.service,
        "tenant": request.tenant,
        "data_class": request.data_class,
        "model": request.model,
        "affinity": request.affinity,
        "priority": None if request.priority is None else request.priority.value,
        "location": {name: getattr(location, name) for name in _PLACE} | {"spans": list(location.spans)},
    }


def _rules_by_operator(view: View, service: str) -> frozenset[str]:
    """The rules in force that look at who runs a region."""
    rules = [compiled.rule for compiled in view.rules[service]]
    return frozenset(
        rule.name for rule in rules if rule.allow.operator_jurisdictions or rule.deny.operator_jurisdictions
    )


def _candidate(
    view: View, request: Request, decision: Decision, item: RegionCandidate, by_operator: frozenset[str]
) -> dict[str, Any]:
    region = view.snapshot.regions[view.snapshot.region_numbers[item.region]]
    health = view.state.health.get(item.region, {})
    why = sentence(view, request, decision, item)
    if item.excluded is Exclusion.UNHEALTHY:
        why += _last_failure(health.values())
    elif item.excluded is Exclusion.ADDRESSES_DOWN:
        why += _last_failure(
            one for table in view.state.addresses.values() for one in table.get(item.region, {}).values()
        )
    if not by_operator.isdisjoint((*item.rules, *item.monitored)):
        operator = region.operator_country
        why += f"; it is run from {operator}" if operator else "; who runs it is unknown"
    return {
        "region": item.region,
        "display_name": region.display_name,
        "country": region.country,
        "operator_country": region.operator_country,
        "rank": item.rank,
        "share": round(item.share, 6),
        "estimate_ms": item.estimate_ms,
        "estimate_source": item.source,
        "processing_ms": item.processing_ms,
        "distance_km": item.distance_km,
        "excluded": None if item.excluded is None else item.excluded.value,
        "rules": list(item.rules),
        "monitored": list(item.monitored),
        "why": why,
        "endpoints": [
            {
                "url": endpoint.url,
                "health": health[endpoint.url].status.value if endpoint.url in health else "unknown",
                "detail": health[endpoint.url].detail if endpoint.url in health else "",
            }
            for endpoint in region.endpoints
        ],
    }
