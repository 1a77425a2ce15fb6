"""What each region can take now, and how that comes about.

    usable = (min(declared, reported limit) × health × slow start − what the backlog needs) × (1 − reserve)

Laws:
  1. The least of what is declared and reported bounds a region; nothing known bounds nothing, unless it is down.
  2. Demand is planned ahead; what regions report back only corrects their capacity. A backlog takes away what it needs
     to be gone in 10 s, and half the capacity at most: a region that works is never cut off for being busy.
  3. A region whose reports are stale gains nothing; one that fell silent counts half (`gtm.core.capacity.load`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import inf

from gtm.core.capacity.load import Freshness, Key, Load, freshness, mean, whole
from gtm.core.capacity.processing import (
    NO_TIMES,
    ProcessingTimes,
    SentRates,
    TimeSource,
    advance,
    service_time,
)
from gtm.core.health.verdicts import HealthTable, endpoint_factor
from gtm.core.model.policy import Policy
from gtm.core.model.regions import AdminState, Capacity, Region
from gtm.core.model.services import Service
from gtm.core.model.state import UNKNOWN_HEALTH, EndpointHealth, HealthStatus


@dataclass(frozen=True, slots=True)
class Supply:
    """What one region can take now: after health, reserve, slow start and drain. None: no bound is known.

    `slots` bounds the requests outstanding at once, `rate` the requests per second, both for all services together;
    `service_slots` and `service_rate` bound single services. By Little's law a service holds its rate times its
    `service_time_s` slots; a service without one is bound by rates only. `cost_ms` is what serving here costs, in ms
    of latency that one would accept to avoid it. `spill_in_rate` bounds what it takes of other homes' demand.
    """

    slots: float | None = None
    rate: float | None = None
    service_slots: dict[str, float] = field(default_factory=dict)
    service_rate: dict[str, float] = field(default_factory=dict)
    service_time_s: dict[str, float] = field(default_factory=dict)
    cost_ms: float = 0.0
    spill_in_rate: float | None = None
    spill_in_share: float | None = None
    """Of what the region serves at most (its usable capacity)."""


DRAIN_BACKLOG = 10.0
"""Seconds in which a backlog should be gone."""
MAX_CORRECTION = 0.5
"""Share of the capacity that a backlog takes away at most."""
LOST_SHARE = 0.5
"""Of the capacity of a region that has fallen silent."""
COST_MS = 10.0
"""What a cost weight of 1 more counts as, in ms of latency."""


@dataclass(frozen=True, slots=True)
class Bound:
    """A limit, as declared in the policy and as reported, and what is usable of it. None: no bound is known."""

    declared: float | None = None
    reported: float | None = None
    usable: float | None = None


@dataclass(frozen=True, slots=True)
class CapacityPart:
    """What a region can take of one service, or (`service` empty) as a whole.

    `slots` are requests outstanding at once, `rate` requests per second. `backlog` requests wait for a slot.
    """

    service: str
    load: Load | None
    freshness: Freshness
    slots: Bound
    rate: Bound
    backlog: float
    service_time_ms: float | None = None
    service_time_source: TimeSource = TimeSource.UNKNOWN
    processing_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class RegionCapacity:
    """What a region can take, and the factors (0–1) in it. The first of `parts` is the region as a whole.

    `health` is the share of its endpoints that are up, `slow_start` how far those that came back have ramped up.
    """

    region: str
    admin_state: AdminState
    health: float
    slow_start: float
    reserve: float
    parts: tuple[CapacityPart, ...] = ()
    supply: Supply = field(default_factory=Supply)

    @property
    def factor(self) -> float:
        """The share of its limits that it has for new clients, before reserve."""
        return self.health * self.slow_start if self.admin_state is AdminState.ACTIVE else 0.0


@dataclass(frozen=True, slots=True)
class Assessment:
    """The capacity of all regions at a POSIX time. It is also what the next assessment remembers."""

    regions: Mapping[str, RegionCapacity] = field(default_factory=dict)
    times: ProcessingTimes = NO_TIMES

    @property
    def supply(self) -> dict[str, Supply]:
        """What the planner reads, by region."""
        return {name: region.supply for name, region in self.regions.items()}

    def processing_ms(self, region: str, service: str) -> float:
        """What a request takes in a region beyond the fastest: wait and slower service, in ms, for rankings."""
        return self.times.processing_ms.get((region, service), 0.0)


NO_ASSESSMENT = Assessment()


def arrivals(loads: Mapping[Key, Load], now: float) -> float:
    """The requests per second that regions report to arrive now: of each region as a whole, or of its services."""
    found: dict[str, dict[str, float]] = {}
    for (region, service), load in loads.items():
        if load.requests_per_second is not None and freshness(load, now) is Freshness.FRESH:
            found.setdefault(region, {})[service] = load.requests_per_second
    return sum(rates.get("", sum(rates.values())) for rates in found.values())


def turnover(supply: Supply) -> float:
    """The requests per second that a region can serve, of its quickest service; infinite where no bound is known."""
    quickest = min(supply.service_time_s.values(), default=0.0)
    by_slots = supply.slots / quickest if supply.slots is not None and quickest > 0 else inf
    return min(by_slots, inf if supply.rate is None else supply.rate)


def assess(
    policy: Policy,
    health: HealthTable,
    loads: Mapping[Key, Load],
    now: float,
    before: Assessment = NO_ASSESSMENT,
    *,
    sent: SentRates | None = None,
) -> Assessment:
    """What every region of a policy can take now.

    Args:
        policy: the policy in force.
        health: region name → endpoint URL → health. What is missing is not up.
        loads: what was reported, also of old (`LoadBook.loads`).
        now: POSIX seconds.
        before: the last assessment, however long ago.
        sent: what edges count to send to the regions; None where nobody counted.
    """
    moment = _Moment(loads, advance(before.times, policy, loads, now, sent), now)
    served: dict[str, list[tuple[Service, Capacity]]] = {}
    for service in policy.services:
        for member in service.members:
            served.setdefault(member.region, []).append((service, member.capacity))
    cheapest = min((region.cost_weight for region in policy.regions), default=0.0)
    found = {}
    for region in policy.regions:
        one = _region(region, served.get(region.name, ()), health.get(region.name, {}), moment, before)
        cost = COST_MS * (region.cost_weight - cheapest)
        found[region.name] = replace(one, supply=_supply(region, one.parts, cost))
    return Assessment(found, moment.times)


def assess_region(
    policy: Policy,
    name: str,
    health: HealthTable,
    loads: Mapping[Key, Load],
    now: float,
    *,
    before: Assessment = NO_ASSESSMENT,
) -> RegionCapacity | None:
    """What one region can take now, for those who read; None: the policy has no such region.

    See `assess`. Service times, which compare all regions, are those of the last assessment, and the planner's supply is left out:
    so it costs a thousandth of it.
    """
    region = next((region for region in policy.regions if region.name == name), None)
    if region is None:
        return None
    served = [
        (service, member.capacity)
        for service in policy.services
        for member in service.members
        if member.region == name
    ]
    return _region(region, served, health.get(name, {}), _Moment(loads, before.times, now), before)


@dataclass(frozen=True, slots=True)
class _Moment:
    loads: Mapping[Key, Load]
    times: ProcessingTimes
    now: float


def _region(
    region: Region,
    served: Iterable[tuple[Service, Capacity]],
    health: Mapping[str, EndpointHealth],
    moment: _Moment,
    last: Assessment,
) -> RegionCapacity:
    known = last.regions.get(region.name)
    before = {part.service: part for part in known.parts} if known else {}
    up, slow_start = _health(region, health, moment.now)
    found = RegionCapacity(region.name, region.admin_state, up, slow_start, region.reserve)
    own = {service.name: moment.loads.get((region.name, service.name)) for service, _ in served}
    load = moment.loads.get((region.name, "")) or whole(region.name, filter(None, own.values()))
    seen = freshness(load, moment.now)
    still = known is not None and (known.factor, known.reserve) == (found.factor, found.reserve)
    single = []
    for service, declared in served:
        of_it = own[service.name]
        # A region that fell silent did so for the services that it never told apart, too.
        fresh = freshness(of_it, moment.now) if of_it is not None else seen
        time, source = service_time(moment.times, region.name, service)
        processing = moment.times.processing_ms.get((region.name, service.name), 0.0)
        part = before.get(service.name)
        # Most parts of a large policy are as they were, and take most of the time: they follow from these alone.
        if not (
            still
            and part is not None
            and part.load is of_it
            and part.freshness is fresh
            and part.service_time_ms == time
            and part.service_time_source is source
            and part.processing_ms == processing
            and part.slots.declared == declared.outstanding
            and part.rate.declared == declared.requests_per_second
        ):
            limits = _Limits(of_it, fresh, declared, time, source, processing)
            part = _part(service.name, limits, found, part)
        single.append(part)
    time = mean(
        [(part.service_time_ms, part.load.requests_per_second if part.load else None) for part in single]
    )
    first = _part("", _Limits(load, seen, region.capacity, time), found, before.get(""))
    return replace(found, parts=(first, *single))


def _health(region: Region, health: Mapping[str, EndpointHealth], now: float) -> tuple[float, float]:
    """The share of a region's endpoints that are up, and how far those have ramped up."""
    known = [health.get(endpoint.url, UNKNOWN_HEALTH) for endpoint in region.endpoints]
    up = [item for item in known if item.status is HealthStatus.UP]
    if not up:
        return 0.0, 1.0
    ramped = sum(endpoint_factor(item, region.slow_start, now) for item in up)
    return len(up) / len(known), ramped / len(up)


@dataclass(frozen=True, slots=True)
class _Limits:
    """What bounds a region or one of its services, and how long it takes for a request."""

    load: Load | None
    freshness: Freshness
    declared: Capacity
    service_time_ms: float | None
    service_time_source: TimeSource = TimeSource.UNKNOWN
    processing_ms: float = 0.0


def _part(service: str, limits: _Limits, region: RegionCapacity, before: CapacityPart | None) -> CapacityPart:
    load, declared = limits.load, limits.declared
    reported = load.limit if load is not None and limits.freshness is not Freshness.NEVER else None
    slots = _least(declared.outstanding, reported)
    live = load if limits.freshness in (Freshness.FRESH, Freshness.STALE) else None
    backlog = _backlog(live, slots) if live is not None else 0.0
    needed = backlog / DRAIN_BACKLOG
    # By Little's law so many slots serve the backlog meanwhile. How long that takes may be unknown: then all of it counts.
    busy = backlog if limits.service_time_ms is None else needed * limits.service_time_ms / 1000
    factor = region.factor * (LOST_SHARE if limits.freshness is Freshness.LOST else 1.0)
    usable_slots = _usable(slots, factor, busy, region.reserve)
    usable_rate = _usable(declared.requests_per_second, factor, needed, region.reserve)
    if limits.freshness is Freshness.STALE and before is not None:
        usable_slots = _least(usable_slots, before.slots.usable)
        usable_rate = _least(usable_rate, before.rate.usable)
    return CapacityPart(
        service=service,
        load=load,
        freshness=limits.freshness,
        slots=Bound(declared.outstanding, reported, usable_slots),
        rate=Bound(declared.requests_per_second, None, usable_rate),
        backlog=backlog,
        service_time_ms=limits.service_time_ms,
        service_time_source=limits.service_time_source,
        processing_ms=limits.processing_ms,
    )


def _backlog(load: Load, slots: float | None) -> float:
    """Requests that wait: those queued, and those in flight beyond the slots there are."""
    beyond = max(0.0, load.outstanding - slots) if load.outstanding is not None and slots is not None else 0.0
    return (load.queue or 0.0) + beyond


def _usable(limit: float | None, factor: float, correction: float, reserve: float) -> float | None:
    if factor == 0:
        return 0.0
    if limit is None:
        return None
    gross = limit * factor
    return (gross - min(correction, MAX_CORRECTION * gross)) * (1 - reserve)


def _least(*limits: float | None) -> float | None:
    return min((limit for limit in limits if limit is not None), default=None)


def _supply(region: Region, parts: tuple[CapacityPart, ...], cost_ms: float) -> Supply:
    first, *single = parts
    return Supply(
        slots=first.slots.usable,
        rate=first.rate.usable,
        service_slots={part.service: part.slots.usable for part in single if part.slots.usable is not None},
        service_rate={part.service: part.rate.usable for part in single if part.rate.usable is not None},
        service_time_s={
            part.service: part.service_time_ms / 1000 for part in single if part.service_time_ms is not None
        },
        cost_ms=cost_ms,
        spill_in_rate=region.spill_in.max_requests_per_second,
        spill_in_share=region.spill_in.max_share,
    )
