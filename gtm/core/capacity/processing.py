"""How long requests take inside a region: service times and waits, smoothed, and how they change rankings.

Laws:
  1. Reports are smoothed over 30 s: one slow request moves nothing.
  2. What ranks regions changes only when it is off by 10 ms and by a fifth, so that rankings do not flap.
  3. Service times depend on what is asked as much as on who serves it: a region counts as slower by what exceeds the
     time of the others by more than a fifth. Else a few long requests would outweigh any way. That of the others is their median (of two
     middle ones the longer): one region that says that it is quick makes no other look slow, or whoever lied so would become
     everybody's home.
  4. A region that reports nothing counts as the middle one of those that do, by the longer of two: not knowing makes none attractive, and one
     that says much or little moves no other.
  5. What is measured corrects what is declared: where no report says it, a service time follows from how many requests
     are in the region and how many were sent there (`Occupancy`). It bounds capacity; it ranks nothing, because
     others' requests may be in it.
  6. Where a capacity is known, waiting does not rank: the planner keeps the region from filling up. If it did, a region
     short of slots would stop being its clients' home, and its spillover rules would bind nobody.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from math import exp
from operator import mul
from statistics import median_high, median_low

from gtm.core.capacity.load import STALE, Freshness, Key, Load, freshness
from gtm.core.model.policy import Policy
from gtm.core.model.regions import Capacity
from gtm.core.model.services import Service

SMOOTHING = 30.0
"""Time constant, in seconds, of the smoothed times."""
STEP_MS = 10.0
"""Processing times are multiples of this."""
DEADBAND = 0.2
"""Share by which a processing time must be off before it changes."""
INFERRED_DEADBAND = 0.05
"""Share by which an inferred service time must be off before it changes: else each second would bring another plan."""

ALIKE = 0.2
"""Share of the others' service time by which a region may be slower without counting as slower."""


class TimeSource(StrEnum):
    """What says how long a request is served."""

    REPORTED = "reported"
    INFERRED = "inferred"
    """Requests in the region, per request sent there (`Occupancy`)."""
    DECLARED = "declared"
    OTHER_REGIONS = "other_regions"
    """The middle one of what is reported or inferred of the service in other regions."""
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class ProcessingTimes:
    """All that is remembered from one assessment to the next. Times in ms by region and service.

    `service_ms` and `wait_ms` are smoothed reports, `processing_ms` what rankings use; `typical_ms` holds the middle
    service time of a service among the regions where it is reported or inferred, by service. `at` is POSIX seconds.
    `occupancy` is what `inferred_ms` follows from; its keys are those of the loads (service empty: the whole region).
    """

    at: float = 0.0
    service_ms: Mapping[Key, float] = field(default_factory=dict)
    wait_ms: Mapping[Key, float] = field(default_factory=dict)
    processing_ms: Mapping[Key, float] = field(default_factory=dict)
    typical_ms: Mapping[str, float] = field(default_factory=dict)
    inferred_ms: Mapping[Key, float] = field(default_factory=dict)
    occupancy: Mapping[Key, Occupancy] = field(default_factory=dict)


NO_TIMES = ProcessingTimes()


@dataclass(frozen=True, slots=True)
class SentRates:
    """What edges count to send to regions: requests per second by region and service, smoothed over `time_constant` s."""

    rates: Mapping[Key, float]
    time_constant: float


def advance(
    before: ProcessingTimes,
    policy: Policy,
    loads: Mapping[Key, Load],
    now: float,
    sent: SentRates | None = None,
) -> ProcessingTimes:
    """Take the loads of the moment into account.

    Args:
        before: what was remembered.
        policy: the policy in force.
        loads: what was reported, also of old.
        now: POSIX seconds.
        sent: what edges count; None where nobody counted, and what was inferred before stays.
    """
    lone = _lone_services(policy)
    bounded = _bounded(policy, loads)
    service_ms: dict[Key, float] = {}
    wait_ms: dict[Key, float] = {}
    keep = exp(-max(0.0, now - before.at) / SMOOTHING)
    for service in policy.services if loads else ():
        for member in service.members:
            key = (member.region, service.name)
            load = _usable(loads, key, lone, now)
            if load is None:
                continue
            if load.service_time_ms is not None:
                service_ms[key] = _smooth(before.service_ms.get(key), load.service_time_ms, keep)
            wait = load.queue_wait_ms if load.queue_wait_ms is not None else _wait(load)
            if wait is not None and key not in bounded:
                wait_ms[key] = _smooth(before.wait_ms.get(key), wait, keep)
    processing: dict[Key, float] = {}
    typical: dict[str, float] = {}
    occupancy, inferred = _occupied(before, policy, loads, now, sent)
    waits = {**wait_ms, **dict.fromkeys(bounded, 0.0)}
    for service in policy.services:
        keys = [(member.region, service.name) for member in service.members]
        known = _middle(service_ms.get(key, inferred.get(key)) for key in keys)
        if known is not None:
            typical[service.name] = known
        processing.update(_processing(service, service_ms, waits, before.processing_ms))
    return ProcessingTimes(now, service_ms, wait_ms, processing, typical, inferred, occupancy)


def service_time(times: ProcessingTimes, region: str, service: Service) -> tuple[float | None, TimeSource]:
    """How long a region serves a request of a service, in ms, and what says so.

    The region's reports; else what follows from how many are in it; else what the service declares; else the middle one of
    other regions; else unknown.
    """
    reported = times.service_ms.get((region, service.name))
    if reported is not None:
        return reported, TimeSource.REPORTED
    inferred = times.inferred_ms.get((region, service.name))
    if inferred is not None:
        return inferred, TimeSource.INFERRED
    if service.service_time_ms is not None:
        return service.service_time_ms, TimeSource.DECLARED
    others = times.typical_ms.get(service.name)
    return others, TimeSource.OTHER_REGIONS if others is not None else TimeSource.UNKNOWN


def _occupied(
    before: ProcessingTimes, policy: Policy, loads: Mapping[Key, Load], now: float, sent: SentRates | None
) -> tuple[Mapping[Key, Occupancy], Mapping[Key, float]]:
    """What was observed by region and service as they report, and the service times that follow from it."""
    if sent is None:
        return before.occupancy, before.inferred_ms
    occupancy: dict[Key, Occupancy] = {}
    inferred: dict[Key, float] = {}
    for key, load, services in _reporting(policy, loads):
        rates = [sent.rates.get((key[0], service.name), 0.0) for service in services]
        found = before.occupancy.get(key)
        if freshness(load, now) is Freshness.FRESH:
            found = observe(found, load, sum(rates), sent.time_constant)
        elif freshness(load, now) is not Freshness.STALE:
            found = None
        if found is None:
            continue
        occupancy[key] = found
        if (time := found.service_time_ms) is not None:
            for service, of_it in _shared_out(time, services, rates):
                inferred[key[0], service] = _kept(before.inferred_ms.get((key[0], service)), of_it)
    return occupancy, inferred


def _reporting(policy: Policy, loads: Mapping[Key, Load]) -> Iterable[tuple[Key, Load, list[Service]]]:
    """What regions report, with the services that it is about. A whole says nothing beside its parts."""
    served: dict[str, list[Service]] = {}
    for service in policy.services:
        for member in service.members:
            served.setdefault(member.region, []).append(service)
    for region, services in served.items():
        apart = [service for service in services if (region, service.name) in loads]
        for service in apart:
            yield (region, service.name), loads[region, service.name], [service]
        if not apart and (region, "") in loads:
            yield (region, ""), loads[region, ""], services


def _shared_out(time: float, services: list[Service], rates: list[float]) -> Iterable[tuple[str, float]]:
    """Each service's time, from the mean of all: in the proportions declared, or alike unless all are."""
    shape = [service.service_time_ms or 0.0 for service in services]
    if not all(shape):
        shape = [1.0] * len(services)
    total = sum(rates)
    mean = sum(map(mul, shape, rates)) / total if total > 0 else sum(shape) / len(shape)
    return ((service.name, time * part / mean) for service, part in zip(services, shape, strict=True))


def _kept(before: float | None, value: float) -> float:
    return before if before is not None and abs(value - before) <= INFERRED_DEADBAND * before else value


def _processing(
    service: Service,
    service_ms: Mapping[Key, float],
    wait_ms: Mapping[Key, float],
    before: Mapping[Key, float],
) -> dict[Key, float]:
    """By region, for one service: the wait where it ranks, and the service time beyond that of the others."""
    keys = [(member.region, service.name) for member in service.members]
    times = sorted(service_ms[key] for key in keys if key in service_ms)
    typical_wait = _middle(wait_ms.get(key) for key in keys) or 0.0
    found = {}
    for key in keys:
        own = service_ms.get(key)
        excess = 0.0
        if own is not None and len(times) > 1:
            excess = own - (1 + ALIKE) * _middle_without(times, own)
        elif own is None and times:
            excess = median_high(times) - (1 + ALIKE) * median_low(times)
        found[key] = _settled(before.get(key), max(0.0, excess) + wait_ms.get(key, typical_wait))
    return found


def _middle_without(times: list[float], own: float) -> float:
    """The median, of two the longer, of sorted times without one of them."""
    middle = (len(times) - 1) // 2
    return times[middle + 1] if own <= times[middle] else times[middle]


def _settled(before: float | None, value: float) -> float:
    """The value in steps; the one before as long as it is about right."""
    if before is not None and abs(value - before) <= max(STEP_MS, DEADBAND * before):
        return before
    return round(value / STEP_MS) * STEP_MS


def _bounded(policy: Policy, loads: Mapping[Key, Load]) -> set[Key]:
    """The regions and services that some known capacity bounds, declared or reported."""
    unbounded = Capacity()
    declared = {region.name for region in policy.regions if region.capacity != unbounded}
    reported = {key for key, load in loads.items() if load.limit is not None}
    return {
        (member.region, service.name)
        for service in policy.services
        for member in service.members
        if member.region in declared
        or member.capacity != unbounded
        or (member.region, "") in reported
        or (member.region, service.name) in reported
    }


def _lone_services(policy: Policy) -> Mapping[str, str]:
    """Region → its service, of regions that serve one only: what they report as a whole is that service's."""
    found: dict[str, set[str]] = {}
    for service in policy.services:
        for member in service.members:
            found.setdefault(member.region, set()).add(service.name)
    return {region: next(iter(names)) for region, names in found.items() if len(names) == 1}


def _usable(loads: Mapping[Key, Load], key: Key, lone: Mapping[str, str], now: float) -> Load | None:
    """What is known now of a region and service."""
    load = loads.get(key)
    if load is None and lone.get(key[0]) == key[1]:
        load = loads.get((key[0], ""))
    return load if freshness(load, now) in (Freshness.FRESH, Freshness.STALE) else None


def _wait(load: Load) -> float | None:
    """The wait by Little's law, where a region reports its queue and its throughput rather than the wait itself."""
    if load.queue == 0:
        return 0.0
    if load.queue is None or not load.requests_per_second:
        return None
    return load.queue / load.requests_per_second * 1000


def _smooth(before: float | None, value: float, keep: float) -> float:
    return value if before is None else value + (before - value) * keep


def _middle(values: Iterable[float | None]) -> float | None:
    stated = [value for value in values if value is not None]
    return median_high(stated) if stated else None


# --- How long requests take in a region that does not say: by Little's law, from how many are in it and how many come.
#
# Theory. In the long run L = λ · W (J. D. C. Little, "A proof for the queuing formula L = λW", Operations Research 9, 1961):
# requests being served (L, `outstanding`) are those that leave a second (λ) times how long each is served (W, the service
# time). Load reports tell L, and edges count what they send to the region. What leaves is what was sent less what piled up:
#
#     served = sent − growth of (outstanding + queue)          service time = outstanding ÷ served
#
# All three are means over the same seconds with the same weights, or their quotient would be of different times: counts of
# demand arrive smoothed over `demand_constant`, so outstanding and growth are smoothed alike first. The means forget with a
# time constant of 20 s, and count from the first report on as if nothing had been before.
#
# The result is in the planner's own unit, slots per counted request, also where that is not a request of the region's: where a
# DNS answer stands for many requests, or where others use the region too, the region counts as being as full as it says it is.
# Where clearly more piles up than was sent, it is such another unit, and what piles up cannot be taken off what was sent.
#
# A queue that stands although the means say that it should not (requests beyond a full queue were turned away, so that less
# was served than came) is answered too: each second that it stands, requests count 5% longer, at most twice as long.
#
# Example. limit 64, outstanding 64, queue growing by 10 a second, 30 requests a second sent: 20 a second leave, each was served
# for 64 ÷ 20 = 3.2 s, and what the slots take is 20 a second, whatever was declared.
#
# Laws:
#   1. Silence is no observation: only a new report adds to the means, and too little of it says nothing.
#   2. What a region reports of its service time itself is never overruled.


TIME_CONSTANT = 20.0
"""Seconds in which the means forget."""
_ENOUGH_SECONDS = 2.5
"""Seconds observed before the means say anything: three reports of one each second."""
_ENOUGH_REQUESTS = 2.0
_ENOUGH_OCCUPIED = 5.0
"""Request-seconds seen before the means say anything: fewer are a few short ones, or none, that happened to be there when
reports were made. Over the full time constant that is a mean of a quarter of a request: a region that is left nearly empty
because a far too long time was declared must be seen to be quick, or it would stay empty."""
_LEAST_SERVED = 0.05
"""Share of what was sent that counts as served at least: a region that nothing leaves at all is full, not infinitely slow."""
_OTHER_UNIT = 1.5
"""What piles up, per request sent, from which on the two cannot be the same requests."""
_STANDING = 0.05
"""Queue, as a share of the slots, that counts as standing (one request, if that is more)."""
_GROWTH = 0.05
"""By which share requests count longer for each second that a queue stands."""
_MOST = 20.0
_LONGEST_MS = 3.6e6


@dataclass(frozen=True, slots=True)
class Occupancy:
    """What was observed of a region (or one of its services) so far. `at` is the newest report's POSIX time in seconds.

    `inside` and `queue` are of that report; `outstanding` and `growth` (requests a second) are smoothed as demand is.
    `weight` is how many seconds the sums are of (those of long ago count less), `occupied` sums outstanding requests over
    them, `sent` and `piled` requests sent and piled up. `standing` is how long a queue has been standing, in seconds.
    """

    at: float
    inside: float
    queue: float
    outstanding: float
    growth: float = 0.0
    weight: float = 0.0
    occupied: float = 0.0
    sent: float = 0.0
    piled: float = 0.0
    standing: float = 0.0

    @property
    def service_time_ms(self) -> float | None:
        """How long a request is served, in ms per request sent; None while too little was observed."""
        if self.weight < _ENOUGH_SECONDS or self.sent < _ENOUGH_REQUESTS:
            return None
        if self.occupied < _ENOUGH_OCCUPIED:
            return None
        piled = self.piled if self.piled <= _OTHER_UNIT * self.sent else 0.0
        served = max(self.sent - piled, _LEAST_SERVED * self.sent)
        longer = 1 + _GROWTH * self.standing
        return min(1000 * self.occupied / served * longer, _LONGEST_MS)


def observe(before: Occupancy | None, load: Load, sent: float, demand_constant: float) -> Occupancy | None:
    """Take a report into account.

    Args:
        before: what was observed so far.
        load: the newest of the region or service. One without `outstanding` is no observation.
        sent: what edges count to send there now, in requests per second.
        demand_constant: the time constant, in seconds, over which `sent` is smoothed.

    Returns:
        `before` itself if the load is not newer. A new beginning after a silence of `STALE` seconds.
    """
    if load.outstanding is None:
        return None
    queue = load.queue or 0.0
    inside = load.outstanding + queue
    if before is None or load.at - before.at > STALE or load.at < before.at:
        return Occupancy(load.at, inside, queue, load.outstanding)
    seconds = load.at - before.at
    if seconds == 0:
        return before
    alike = exp(-seconds / demand_constant)
    keep = exp(-seconds / TIME_CONSTANT)
    outstanding = load.outstanding + (before.outstanding - load.outstanding) * alike
    change = (inside - before.inside) / seconds
    growth = change + (before.growth - change) * alike
    return Occupancy(
        at=load.at,
        inside=inside,
        queue=queue,
        outstanding=outstanding,
        growth=growth,
        weight=before.weight * keep + seconds,
        occupied=before.occupied * keep + outstanding * seconds,
        sent=before.sent * keep + sent * seconds,
        piled=before.piled * keep + growth * seconds,
        standing=_standing(before, load, queue, seconds),
    )


def _standing(before: Occupancy, load: Load, queue: float, seconds: float) -> float:
    """How long a queue has been standing; half as fast back again once it falls or is gone."""
    slots = load.limit if load.limit is not None else load.outstanding or 0.0
    least = max(1.0, _STANDING * slots)
    stands = min(queue, before.queue) >= least and queue >= before.queue * (1 - _GROWTH * seconds)
    return min(max(before.standing + (seconds if stands else -seconds / 2), 0.0), _MOST)
