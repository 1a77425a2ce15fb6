"""All that a decision reads: one compiled policy and one state of the world, joined at swap time.

Law: neither a Basis nor a View ever changes. An edge replaces them whole, by one reference swap, so that the answer
path needs no lock.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf

from gtm.core.edges import EdgePlace, rules_against, settled, zones_elsewhere
from gtm.core.latency import EMPTY_TABLE, Estimator, LatencyTable
from gtm.core.model import AdminState, Endpoint, HealthStatus
from gtm.core.ramps import drain_factor, next_change, slow_start_factor
from gtm.core.snapshot import CompiledRule, CompiledService, Snapshot
from gtm.core.state import State


@dataclass(frozen=True, slots=True)
class Window:
    """The time a View stands for, in POSIX seconds: from the clock's reading now to the highest ever read.

    They differ only while the clock has stepped back. A rule binds if it is in force anywhere in between, so that a
    wrong clock can add restrictions but not lift one that was in force.
    """

    now: float
    latest: float

    def advanced(self, now: float) -> Window:
        """The window at another reading of the clock."""
        return Window(now, max(now, self.latest))

    def covers(self, rule: CompiledRule) -> bool:
        """Whether the rule is in force at some moment of the window."""
        return rule.starts <= self.latest and rule.ends > self.now


@dataclass(frozen=True, slots=True)
class Spill:
    """A spillover rule with its references resolved: the mask of regions that it leads to.

    `quota`: it bounds how much goes there, beside how far.
    """

    name: str
    to: int
    max_added_latency_ms: float | None
    quota: bool


@dataclass(frozen=True, slots=True, eq=False)
class Basis:
    """What rankings are made from: a policy, the rules in force, and the latency table. Lasts through many States.

    `rules` maps a service to its rules in force, `processing` to the time regions themselves take (ms, by number);
    `spillover` maps a region to the rules about its demand, `bounded` is the mask of regions that limit what they take
    of others' demand.

    `edge` is where the edge stands that answers from this, with what its region says of it; None: no edge answers
    (control, simulations). `outside` names the enforced rules in force that bind edges and that it stands outside of.
    """

    snapshot: Snapshot
    estimator: Estimator
    rules: Mapping[str, tuple[CompiledRule, ...]]
    processing: Mapping[str, Mapping[int, float]]
    spillover: Mapping[int, tuple[Spill, ...]]
    bounded: int
    edge: EdgePlace | None = None
    outside: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """What an edge answers from. Masks are of `snapshot.regions`.

    `endpoints` holds each region's usable endpoints: those that are up. `up` are the regions with at least one,
    `unknown` those of which nothing is known at all. `ramps` holds the regions in slow start with the share of their
    requests that they may take, `drains` the draining ones with the share of clients with affinity that still stay.
    """

    basis: Basis
    state: State
    window: Window
    endpoints: tuple[tuple[Endpoint, ...], ...]
    up: int
    unknown: int
    ramps: Mapping[int, float]
    drains: Mapping[int, float]
    changes_at: float
    """The next POSIX time at which a rule or a ramp changes; infinite if none does."""

    @property
    def snapshot(self) -> Snapshot:
        """The compiled policy."""
        return self.basis.snapshot

    @property
    def rules(self) -> Mapping[str, tuple[CompiledRule, ...]]:
        """Service → the rules in force during the window."""
        return self.basis.rules

    def ttl_of(self, service: CompiledService) -> int:
        """How long answers about a service may be kept, in seconds.

        Less while its traffic is being moved, by the plan or off a draining region, so that resolvers follow.
        """
        found = service.service
        moving = found.name in self.state.plan.moving or any(
            service.mask >> number & 1 for number in self.drains
        )
        return min(found.ttl, found.min_ttl) if moving else found.ttl


def build_basis(
    snapshot: Snapshot,
    estimator: Estimator,
    window: Window,
    previous: Basis | None = None,
    edge: EdgePlace | None = None,
) -> Basis:
    """Join a policy and a latency table at a time.

    Args:
        snapshot: the policy.
        estimator: of the same policy's regions.
        window: decides which rules are in force.
        previous: returned itself if nothing differs from it, so that what was derived from it stays valid.
        edge: where the edge stands that answers from this, the same as of `previous`; None: no edge answers.
    """
    rules = {name: service.rules for name, service in snapshot.services.items()}
    if snapshot.boundaries:  # else every rule is always in force
        rules = {name: tuple(filter(window.covers, every)) for name, every in rules.items()}
    if previous is not None and previous.snapshot is snapshot and previous.estimator is estimator:
        if rules == previous.rules:
            return previous
        return replace(previous, rules=rules, outside=_outside(rules, previous.edge))
    numbers = snapshot.region_numbers
    processing: dict[str, dict[int, float]] = {}
    for name, service in snapshot.services.items():
        known = {
            numbers[region]: times
            for region, times in estimator.table.processing_ms.items()
            if region in numbers
        }
        found = {
            number: known[number].get(name, known[number].get("", 0.0))
            for number in service.members
            if number in known
        }
        if found:
            processing[name] = found
    spillover: dict[int, tuple[Spill, ...]] = {}
    for rule in snapshot.policy.spillover_rules:
        home = numbers[rule.from_region]
        mask = sum(1 << numbers[name] for name in rule.to_regions)
        quota = rule.max_share is not None or rule.max_requests_per_second is not None
        spill = Spill(rule.name, mask, rule.max_added_latency_ms, quota)
        spillover[home] = (*spillover.get(home, ()), spill)
    bounded = sum(
        1 << number
        for number, region in enumerate(snapshot.regions)
        if region.spill_in.max_share is not None or region.spill_in.max_requests_per_second is not None
    )
    place = None if edge is None else settled(edge, snapshot.regions)
    outside = _outside(rules, place)
    return Basis(snapshot, estimator, rules, processing, spillover, bounded, place, outside)


def _outside(rules: Mapping[str, tuple[CompiledRule, ...]], edge: EdgePlace | None) -> frozenset[str]:
    """The rules that bind edges and that an edge stands outside of."""
    if edge is None:
        return frozenset()
    return rules_against({id(rule): rule for every in rules.values() for rule in every}.values(), edge)


def elsewhere(basis: Basis) -> frozenset[str]:
    """The zones that the edge refers to instead of answering for them (`gtm.core.edges.zones_elsewhere`)."""
    rules = {id(rule): rule for every in basis.rules.values() for rule in every} if basis.outside else {}
    return zones_elsewhere(basis.snapshot, rules.values(), basis.outside)


def build_view(basis: Basis, state: State, window: Window) -> View:
    """Join a basis and a state. Cost: linear in regions and endpoints; no request is involved."""
    snapshot = basis.snapshot
    up = unknown = 0
    endpoints: list[tuple[Endpoint, ...]] = []
    ramps: dict[int, float] = {}
    drains: dict[int, float] = {}
    for number, region in enumerate(snapshot.regions):
        known = state.health.get(region.name, {})
        statuses = [
            known[endpoint.url].status if endpoint.url in known else HealthStatus.UNKNOWN
            for endpoint in region.endpoints
        ]
        healthy = tuple(
            endpoint
            for endpoint, status in zip(region.endpoints, statuses, strict=True)
            if status is HealthStatus.UP
        )
        endpoints.append(healthy)
        up |= bool(healthy) << number
        unknown |= all(status is HealthStatus.UNKNOWN for status in statuses) << number
        ramp = slow_start_factor(region, known, window.now)
        if ramp < 1:
            ramps[number] = ramp
        if region.admin_state is AdminState.DRAINING:
            stays = drain_factor(region, window.now)
            if stays > 0:
                drains[number] = stays
    changes_at = min(
        next_boundary(snapshot, window.now), next_change(snapshot.regions, state.health, window.now)
    )
    return View(basis, state, window, tuple(endpoints), up, unknown, ramps, drains, changes_at)


def view_of(
    snapshot: Snapshot,
    state: State,
    window: Window,
    table: LatencyTable = EMPTY_TABLE,
    edge: EdgePlace | None = None,
) -> View:
    """A View from scratch, for those who need one only."""
    basis = build_basis(snapshot, Estimator(snapshot.regions, table), window, edge=edge)
    return build_view(basis, state, window)


def next_boundary(snapshot: Snapshot, now: float) -> float:
    """The first moment after `now` (POSIX seconds) at which some rule's validity begins or ends."""
    after = bisect_right(snapshot.boundaries, now)
    return snapshot.boundaries[after] if after < len(snapshot.boundaries) else inf
