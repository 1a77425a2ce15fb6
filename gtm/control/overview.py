"""What goes on this second, as plain data and from memory alone: the last plan, and all that `gtm top` shows.

DNS answers count as the requests that they stand for (`gtm.control.lead.demand`). A class's home is that of the last plan's
problem; of classes that it does not have, nothing counts as spilled.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import inf
from types import MappingProxyType
from typing import Any

from gtm.control.lead.active import Active
from gtm.control.lead.demand import requests_of
from gtm.control.lead.history.plans import utilisation
from gtm.control.lead.planner import Planned
from gtm.control.lead.reports import PushedWay
from gtm.control.lead.vantages import LiveEdge
from gtm.control.live.present import Present
from gtm.core.balance.spill.room import CAME, OpenSlots
from gtm.core.capacity import durations
from gtm.core.capacity.durations import Took
from gtm.core.capacity.load import Freshness
from gtm.core.capacity.supply import RegionCapacity
from gtm.core.demand.rows import TIERS, ClassKey, Row
from gtm.core.health.verdicts import HealthTable
from gtm.core.model.outcomes import Outcome
from gtm.core.model.regions import Region
from gtm.core.model.state import UNKNOWN_HEALTH, HealthStatus
from gtm.core.plan.problem import ClassDemand, plan_flow
from gtm.core.quota.names import QuotaName
from gtm.storage.resources import Key, Managed

P99 = 0.99


@dataclass(frozen=True, slots=True)
class Moment:
    """What the documents are made from. `now` in POSIX seconds; `rates` in requests, or DNS answers, per second.

    `corrections` are requests per second by the region that the plan chose (empty: it refused them) and the one that edges sent them
    to by free slots; `pushed` those that found no slot at a balancer; `slots` is what regions' balancers say of these, the present at 0 seconds; `took` by
    region what requests took that ended in the last one to two minutes.
    """

    now: float
    revision: int
    epoch: int
    regions: tuple[Region, ...]
    health: HealthTable
    planned: Planned
    rates: Mapping[Row, float]
    corrections: Mapping[tuple[str, str], float] = field(default_factory=dict)
    pushed: Mapping[PushedWay, float] = field(default_factory=dict)
    slots: Mapping[str, OpenSlots] = field(default_factory=dict)
    took: Mapping[str, Took] = field(default_factory=dict)


async def moment_of(present: Present, active: Active | None, now: float) -> Moment:
    """What a control process knows at a POSIX time; one that stands by knows the policy alone.

    Demand is added up beside the event loop.
    """
    found = Moment(
        now=now,
        revision=present.revision,
        epoch=present.state.epoch,
        regions=present.policy.regions,
        health=active.health if active is not None else {},
        planned=active.planning.latest if active is not None else Planned(),
        rates={},
    )
    if active is None:
        return found
    found = replace(
        found,
        corrections=active.reports.corrected,
        pushed=active.reports.pushed,
        slots=active.rooms.standings,
        took=active.requests.lately(),
    )
    return replace(found, rates=await asyncio.to_thread(active.reports.reported.rates))


def plan_document(moment: Moment) -> dict[str, Any]:
    """The last plan: what it was asked, and what it answers."""
    planned = moment.planned
    asked = {one.key: one for one in planned.problem.classes}
    solution, flow = planned.solution, _planned_flow(moment)
    return {
        **_plan_facts(moment),
        "classes": [
            {
                "class": key,
                "service": asked[key].service if key in asked else _service_of(key),
                "priority": asked[key].priority if key in asked else None,
                "requests_per_second": asked[key].rate if key in asked else 0.0,
                "home": asked[key].regions[0] if key in asked and asked[key].regions else None,
                "weights": one.weights,
                "planned": flow.get(key, {}),
                "shed": one.shed,
                "tenants": one.tenants,
                "idle_since": planned.plan.idle.get(key),
            }
            for key, one in sorted(planned.plan.classes.items())
        ],
        "prices": planned.plan.prices,
        "moving": sorted(planned.plan.moving),
        "quotas": _quotas(moment, flow),
        "binding": [] if solution is None else list(solution.binding),
        "queued": {} if solution is None else solution.queued,
    }


def top_document(
    moment: Moment,
    edges: Iterable[LiveEdge],
    *,
    database: str,
    managed: Mapping[Key, Managed] = MappingProxyType({}),
) -> dict[str, Any]:
    """Everything at a glance. `managed`: which tools manage what."""
    flow = _planned_flow(moment)
    demand = moment.planned.problem.classes
    return {
        "at": moment.now,
        "revision": moment.revision,
        "database": database,
        "plan": _plan_facts(moment),
        "edges": [
            {
                "name": edge.name,
                "age": max(0.0, moment.now - edge.seen_at.timestamp()),
                "revision": edge.report.revision,
                "epoch": edge.report.epoch,
            }
            for edge in edges
        ],
        "requests_per_second": sum(one.rate for one in demand),
        "latency_p99_ms": quantile(_latencies(demand, flow)),
        "decisions": _by_tier(moment.rates),
        "regions": [
            {**one, "managed_by": managed.get(("regions", one["region"]))} for one in _regions(moment, flow)
        ],
        "spill": _spill(moment, flow),
        "corrections": [
            {"from": drawn or None, "to": taken, "requests_per_second": rate}
            for (drawn, taken), rate in sorted(moment.corrections.items(), key=lambda one: (-one[1], one[0]))
        ],
        "pushes": _pushes(moment),
        "quotas": _quotas(moment, flow),
        "refusals": _refusals(moment),
    }


def _plan_facts(moment: Moment) -> dict[str, Any]:
    planned = moment.planned
    made = planned.plan.made
    return {
        "epoch": moment.epoch,
        "made": made or None,
        "age": max(0.0, moment.now - made) if made else None,
        "tick_ms": planned.seconds * 1000,
        "error": planned.error or None,
    }


def _planned_flow(moment: Moment) -> dict[str, dict[str, float]]:
    return plan_flow(moment.planned.problem, moment.planned.plan)


def _by_tier(rates: Mapping[Row, float]) -> dict[str, float]:
    """Decisions per second by the tier that made them: DNS answers as such."""
    found: dict[str, float] = dict.fromkeys(TIERS, 0.0)
    for row, rate in rates.items():
        found[row.via] = found.get(row.via, 0.0) + rate
    return found


def _requests(moment: Moment) -> Iterable[tuple[Row, float]]:
    """Every row with the requests per second that it stands for."""
    per_answer = moment.planned.per_answer
    for row, rate in moment.rates.items():
        yield row, requests_of(row, rate, per_answer)


def _homes(moment: Moment) -> dict[str, str]:
    return {one.key: one.regions[0] for one in moment.planned.problem.classes if one.regions}


def _planned_spill(moment: Moment, flow: Mapping[str, Mapping[str, float]]) -> dict[tuple[str, str], float]:
    """Home and region → requests per second of the home that the plan has for the region."""
    homes = _homes(moment)
    found: dict[tuple[str, str], float] = defaultdict(float)
    for key, served in flow.items():
        home = homes.get(key)
        for region, rate in served.items():
            if home is not None and region != home and rate > 0:
                found[home, region] += rate
    return found


def _decided_spill(moment: Moment) -> dict[tuple[str, str], float]:
    """Home and region → requests per second of the home that the edges send to the region."""
    homes = _homes(moment)
    found: dict[tuple[str, str], float] = defaultdict(float)
    for row, rate in _requests(moment):
        home = homes.get(row.ranking_class)
        if row.region and home is not None and row.region != home:
            found[home, row.region] += rate
    return found


def _spill(moment: Moment, flow: Mapping[str, Mapping[str, float]]) -> list[dict[str, Any]]:
    """What goes elsewhere than home: as decided by the edges, and as planned. The largest first."""
    decided, planned = _decided_spill(moment), _planned_spill(moment, flow)
    ways = sorted(
        {*decided, *planned}, key=lambda way: (-max(decided.get(way, 0.0), planned.get(way, 0.0)), way)
    )
    return [
        {
            "from": home,
            "to": region,
            "requests_per_second": decided.get((home, region), 0.0),
            "planned": planned.get((home, region), 0.0),
            "quotas": _ruled(moment, home, region),
        }
        for home, region in ways
    ]


def _pushes(moment: Moment) -> list[dict[str, Any]]:
    """What found no slot at regions' balancers: who took it, and why, all services together. The largest first."""
    rates: dict[tuple[str, str, str], float] = defaultdict(float)
    for one, rate in moment.pushed.items():
        if one.why == CAME:
            continue  # it is there already, at the region that had it first
        rates[one.home, one.region, one.why] += rate
    return [
        {
            "from": home,
            "to": region or None,
            "why": why,
            "requests_per_second": rate,
            "quotas": _ruled(moment, home, region),
        }
        for (home, region, why), rate in sorted(rates.items(), key=lambda one: (-one[1], one[0]))
    ]


def _ruled(moment: Moment, home: str, region: str) -> list[str]:
    """The rules that what goes from one region to another counts against, if the first is its home."""
    return [
        quota.name
        for quota in moment.planned.problem.quotas
        if quota.from_region == home and region in quota.to_regions
    ]


def _service_of(key: str) -> str:
    """The service of a class that nobody asks for any more; empty, if an edge made it up."""
    try:
        return ClassKey.parse(key).service
    except ValueError:
        return ""


def _quotas(moment: Moment, flow: Mapping[str, Mapping[str, float]]) -> list[dict[str, Any]]:
    """What each spillover rule allows this second, and how much of that the plan uses."""
    solution = moment.planned.solution
    if solution is None:
        return []
    planned = _planned_spill(moment, flow)
    rules = {quota.name: quota for quota in moment.planned.problem.quotas}
    found = []
    for name, allowed in sorted(solution.quota_rates.items()):
        quota = QuotaName.parse(name)
        rule, into = None if quota.into else rules.get(quota.name), quota.name
        used = sum(
            rate
            for (home, region), rate in planned.items()
            if (rule is not None and home == rule.from_region and region in rule.to_regions)
            or (rule is None and region == into)
        )
        found.append(
            {
                "name": name,
                "from": None if rule is None else rule.from_region,
                "to": [into] if rule is None else list(rule.to_regions),
                "allowed": allowed if allowed < inf else None,
                "planned": used,
                "binding": name in solution.binding,
            }
        )
    return found


def _refusals(moment: Moment) -> list[dict[str, Any]]:
    """Requests per second refused, by service and outcome."""
    found: dict[tuple[str, str], float] = defaultdict(float)
    for row, rate in _requests(moment):
        if row.outcome != Outcome.SERVED.value:
            found[row.service, row.outcome] += rate
    return [
        {"service": service, "outcome": outcome, "requests_per_second": rate}
        for (service, outcome), rate in sorted(found.items())
    ]


def _regions(moment: Moment, flow: Mapping[str, Mapping[str, float]]) -> list[dict[str, Any]]:
    planned = moment.planned
    demand = planned.problem.classes
    binding = () if planned.solution is None else planned.solution.binding
    homed: dict[str, float] = defaultdict(float)
    for one in demand:
        if one.regions:
            homed[one.regions[0]] += one.rate
    decided: dict[str, float] = defaultdict(float)
    for row, rate in _requests(moment):
        decided[row.region] += rate
    intended: dict[str, float] = defaultdict(float)
    for served in flow.values():
        for region, rate in served.items():
            intended[region] += rate
    return [
        {
            "region": region.name,
            "country": region.country,
            "lat": region.lat,
            "lon": region.lon,
            "admin_state": region.admin_state,
            "health": _health(region, moment.health),
            **_load(planned.capacity.regions.get(region.name), moment.now),
            "free_slots": _free_slots(moment.slots.get(region.name), region.capacity.outstanding),
            "demand": homed[region.name],
            "decided": decided[region.name],
            "planned": intended[region.name],
            "price_ms": planned.plan.prices.get(region.name, 0.0),
            "exhausted": region.name in binding,
            "latency_p99_ms": quantile(_latencies(demand, flow, region.name)),
            "measured": took_facts(moment.took.get(region.name)),
        }
        for region in moment.regions
    ]


def took_facts(took: Took | None) -> dict[str, float | None] | None:
    """What requests took, as their number and percentiles in milliseconds; None: there were none."""
    if took is None:
        return None
    found: dict[str, float | None] = {"requests": sum(took.ends.values())}
    for name, counts in (("first_byte_", took.first_bytes), ("", took.ends)):
        for percent in (50, 99):
            seconds = durations.quantile(counts, percent / 100)
            found[f"{name}p{percent}_ms"] = None if seconds is None else 1000 * seconds
    return found


def _health(region: Region, health: HealthTable) -> HealthStatus:
    """Up if any endpoint is; down if one is known to be; else unknown."""
    known = health.get(region.name, {})
    statuses = {known.get(endpoint.url, UNKNOWN_HEALTH).status for endpoint in region.endpoints}
    best = (status for status in (HealthStatus.UP, HealthStatus.DOWN) if status in statuses)
    return next(best, HealthStatus.UNKNOWN)


def _load(found: RegionCapacity | None, now: float) -> dict[str, Any]:
    """What a region reported last, and what it can take."""
    part = found.parts[0] if found is not None and found.parts else None
    load = part.load if part is not None and part.freshness is not Freshness.NEVER else None
    limits = () if part is None else (part.slots.declared, part.slots.reported)
    limit = min((one for one in limits if one is not None), default=None)
    outstanding = load.outstanding if load is not None else None
    usable = part.slots.usable if part is not None else None
    return {
        "freshness": part.freshness if part is not None else Freshness.NEVER,
        "report_age": load.age(now) if load is not None else None,
        "outstanding": outstanding,
        "queue": load.queue if load is not None else None,
        "limit": limit,
        "usable": usable,
        "utilisation": utilisation(found),
        "requests_per_second": load.requests_per_second if load is not None else None,
        "service_time_ms": part.service_time_ms if part is not None else None,
    }


def _free_slots(found: OpenSlots | None, most: float | None) -> dict[str, float] | None:
    """What a region's balancers say of their slots, and what of the open ones counts; None: nothing is known."""
    if found is None:
        return None
    counted = found.within(most).open
    return {
        "open": found.open,
        "counted": counted,
        "limit": found.limit,
        "waiting": found.waiting,
        "age": -found.at,
    }


def _latencies(
    demand: Iterable[ClassDemand], flow: Mapping[str, Mapping[str, float]], only: str | None = None
) -> list[tuple[float, float]]:
    """Estimated latency in ms (network and processing) and requests per second of every planned flow."""
    return [
        (latency, flow[one.key].get(region, 0.0))
        for one in demand
        if one.key in flow
        for region, latency in zip(one.regions, one.latency_ms, strict=True)
        if only in (None, region)
    ]


def quantile(weighted: Iterable[tuple[float, float]], share: float = P99) -> float | None:
    """The value that so large a share of the weight does not exceed; None without weight."""
    held = sorted((value, weight) for value, weight in weighted if weight > 0)
    wanted, seen = share * sum(weight for _, weight in held), 0.0
    for value, weight in held:
        seen += weight
        if seen >= wanted * (1 - 1e-9):
            return value
    return None
