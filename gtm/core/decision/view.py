"""All that a decision reads: one compiled policy and one state of the world, joined at swap time.

Law: neither a Basis nor a View ever changes. An edge replaces them whole, by one reference swap, so that the answer
path needs no lock.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil, inf
from typing import NamedTuple

from gtm.core.health.addresses import FAMILIES, answered, lost_families
from gtm.core.health.verdicts import drain_factor, next_change, slow_start_factor
from gtm.core.latency.estimator import Estimator
from gtm.core.latency.table import EMPTY_TABLE, LatencyTable
from gtm.core.model.regions import AddressFamily, AdminState, Endpoint
from gtm.core.model.state import HealthStatus, State
from gtm.core.policy.edges import EdgePlace, rules_against, settled, zones_elsewhere
from gtm.core.policy.snapshot import CompiledRule, CompiledService, Snapshot, Timed
from gtm.core.quota.names import QuotaName, QuotaText

_LONGEST = 1 << 31
"""Seconds beyond which a boundary is as good as none: no TTL is longer (RFC 2181 §8)."""
_JITTER = 1.0
"""Seconds by which a clock may step back before ramps and bounds are computed anew; rules are at any step."""


class Window(NamedTuple):  # made for each question of a proxy: a frozen dataclass takes three times as long
    """The time a View stands for, in POSIX seconds: from the earliest that it may be to the latest.

    They differ while clocks do (`gtm.core.decision.timekeeping`). A rule binds if it is in force anywhere in between, so that a
    wrong clock can add restrictions but not lift one that was in force.

    `age` is how long the policy may have been another one, at the most: since control was heard last or, if that is longer, since
    this machine can no longer keep it, so that an older one is followed after a restart. `reading` is what the machine's own clock
    shows, by which ramps go (None: `now`), `silence` how long control was not heard.
    """

    now: float
    latest: float
    age: float = 0.0
    reading: float | None = None
    silence: float = 0.0

    @property
    def clock(self) -> float:
        """What the machine's own clock shows."""
        return self.now if self.reading is None else self.reading

    def covers(self, rule: CompiledRule) -> bool:
        """Whether the rule is in force at some moment of the window."""
        return rule.starts <= self.latest and rule.ends > self.now

    def outdates(self, rule: CompiledRule) -> bool:
        """Whether the policy may be older than the rule accepts."""
        most = rule.rule.max_policy_age
        return most is not None and self.age >= most


class Era(NamedTuple):
    """Windows alike: at each of them the same boundaries have passed, and the same ages of policies are exceeded.

    How many of a snapshot's `beginnings`, `endings` and `policy_ages` that is.
    """

    begun: int
    ended: int
    outdated: int

    @classmethod
    def of(cls, snapshot: Snapshot, window: Window) -> Era:
        """The era of a window."""
        return cls(
            bisect_right(snapshot.beginnings, window.latest),
            bisect_right(snapshot.endings, window.now),
            bisect_right(snapshot.policy_ages, window.age),
        )


@dataclass(frozen=True, slots=True)
class Spill:
    """A spillover rule with its references resolved: the mask of regions that it leads to.

    `quotas` are those that a request counts against that takes it: of its rate, and of its share. `share` is that share; None:
    it bounds none.
    """

    name: str
    to: int
    max_added_latency_ms: float | None
    quotas: tuple[QuotaText, ...]
    share: float | None


@dataclass(frozen=True, slots=True, eq=False)
class Basis:
    """What rankings are made from: a policy, the rules in force, and the latency table. Lasts through many States.

    `rules` maps a service to its rules in force, `processing` to the time regions themselves take (ms, by number);
    `spillover` maps a region to the rules about its demand, `near` to those of them that bound the added latency; `bounded` is the mask
    of regions that limit what they take of others' demand.

    `edge` is where the edge stands that answers from this, with what its region says of it; None: no edge answers
    (control, simulations). `outside` names the enforced rules in force that bind edges and that it stands outside of,
    `uncarried` those that it stands outside of whatever they say of edges: what they concern it does not carry.
    """

    snapshot: Snapshot
    estimator: Estimator
    rules: Mapping[str, tuple[CompiledRule, ...]]
    processing: Mapping[str, Mapping[int, float]]
    spillover: Mapping[int, tuple[Spill, ...]]
    near: Mapping[int, tuple[Spill, ...]]
    bounded: int
    edge: EdgePlace | None = None
    outside: frozenset[str] = frozenset()
    uncarried: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """What an edge answers from. Masks are of `snapshot.regions`.

    `endpoints` holds each region's usable endpoints: those that are up. `up` are the regions with at least one, `families` those with an
    address of each family that answers; `whole` those of `up` that are preferred to the rest: all, but for DNS (`in_dns`). `unknown` are those of which nothing is known at all. `ramps` holds the regions in slow start with the share of their
    requests that they may take, `drains` the draining ones with the share of clients with affinity that still stay.
    `bounds` holds the services near a boundary with the longest time that answers about them may be kept, in seconds.
    """

    basis: Basis
    state: State
    window: Window
    era: Era
    endpoints: tuple[tuple[Endpoint, ...], ...]
    up: int
    families: Mapping[AddressFamily, int]
    unknown: int
    ramps: Mapping[int, float]
    drains: Mapping[int, float]
    bounds: Mapping[str, int]
    answered: tuple[tuple[Endpoint, ...], ...]
    """What DNS gives out of each region: the addresses that are up, of the endpoints that have something left (`gtm.core.health.addresses`)."""
    lost: Mapping[str, int]
    """Family (`ipv4`, `ipv6`) → mask of the regions that have lost it: one of its addresses there is down, and none is left in DNS."""
    whole: int
    until: Window
    """The window at which a rule, a bound or a ramp changes: the View is over once any side of it is reached; of `age`
    nothing is said. Infinite where nothing will change."""

    def up_for(self, family: AddressFamily | None) -> int:
        """Mask of the regions that can serve those who ask for addresses of a family; None: who ask for none."""
        return self.up if family is None else self.up & self.families[family]

    @property
    def in_dns(self) -> View:
        """As DNS sees it: with the addresses that answer, and of regions first those that are down for no family.

        Itself, where it says the same.
        """
        lost = self.lost["ipv4"] | self.lost["ipv6"]
        if not lost and self.answered is self.endpoints:
            return self
        up = sum(1 << number for number, endpoints in enumerate(self.answered) if endpoints)
        return replace(self, endpoints=self.answered, up=up, whole=up & ~lost)

    def left(self, window: Window) -> float:
        """Seconds until time alone makes the View another; 0 or less: it is over."""
        until = self.until
        return min(until.now - window.now, until.latest - window.latest, until.clock - window.clock)

    def lasts(self, window: Window) -> bool:
        """Whether a View made in another window would say the same, as far as time goes."""
        return (
            self.left(window) > 0
            and window.now > self.window.now - _JITTER
            and window.clock > self.window.clock - _JITTER
            and Era.of(self.snapshot, window) == self.era
        )

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

        Less while its traffic is being moved, by the plan or off a draining region, so that resolvers follow; and never
        beyond the next moment at which what the law says of the service changes.
        """
        found = service.service
        moving = found.name in self.state.plan.moving or any(
            service.mask >> number & 1 for number in self.drains
        )
        ttl = min(found.ttl, found.min_ttl) if moving else found.ttl
        return min(ttl, self.bounds.get(found.name, ttl)) if self.bounds else ttl


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
    rules = _in_force(snapshot, window)
    if previous is not None and previous.snapshot is snapshot and previous.estimator is estimator:
        if rules == previous.rules:
            return previous
        outside, uncarried = _outside(rules, previous.edge)
        return replace(previous, rules=rules, outside=outside, uncarried=uncarried)
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
        bounds = ((rule.max_requests_per_second, False), (rule.max_share, True))
        quotas = tuple(QuotaName(rule.name, share=share).text for bound, share in bounds if bound is not None)
        spill = Spill(rule.name, mask, rule.max_added_latency_ms, quotas, rule.max_share)
        spillover[home] = (*spillover.get(home, ()), spill)
    near = {
        home: bounding
        for home, rules_of in spillover.items()
        if (bounding := tuple(rule for rule in rules_of if rule.max_added_latency_ms is not None))
    }
    bounded = sum(
        1 << number
        for number, region in enumerate(snapshot.regions)
        if region.spill_in.max_share is not None or region.spill_in.max_requests_per_second is not None
    )
    place = None if edge is None else settled(edge, snapshot.regions)
    outside, uncarried = _outside(rules, place)
    return Basis(snapshot, estimator, rules, processing, spillover, near, bounded, place, outside, uncarried)


def _outside(
    rules: Mapping[str, tuple[CompiledRule, ...]], edge: EdgePlace | None
) -> tuple[frozenset[str], frozenset[str]]:
    """The rules that an edge stands outside of: those that bind edges, and all, which it may not carry for."""
    if edge is None:
        return frozenset(), frozenset()
    every = {id(rule): rule for several in rules.values() for rule in several}.values()
    return rules_against(every, edge), rules_against(every, edge, carrying=True)


def elsewhere(basis: Basis) -> frozenset[str]:
    """The zones that the edge refers to instead of answering for them (`gtm.core.policy.edges.zones_elsewhere`)."""
    rules = {id(rule): rule for every in basis.rules.values() for rule in every} if basis.outside else {}
    return zones_elsewhere(basis.snapshot, rules.values(), basis.outside)


def build_view(basis: Basis, state: State, window: Window) -> View:
    """Join a basis and a state. Cost: linear in regions and endpoints; no request is involved."""
    snapshot = basis.snapshot
    up = unknown = ipv4 = ipv6 = 0
    endpoints: list[tuple[Endpoint, ...]] = []
    judged = frozenset[str]().union(*state.addresses.values())
    given: list[tuple[Endpoint, ...]] = []
    lost: dict[str, int] = dict.fromkeys(FAMILIES, 0)
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
        left = healthy
        if region.name in judged:
            left = answered(region, known, state.addresses)
            for family in lost_families(region, left, state.addresses) if left != region.endpoints else ():
                lost[family] |= 1 << number
        given.append(left)
        up |= bool(healthy) << number
        for endpoint in left:
            ipv4 |= bool(endpoint.ipv4) << number
            ipv6 |= bool(endpoint.ipv6) << number
        unknown |= all(status is HealthStatus.UNKNOWN for status in statuses) << number
        ramp = slow_start_factor(region, known, window.clock)
        if ramp < 1:
            ramps[number] = ramp
        if region.admin_state is AdminState.DRAINING:
            stays = drain_factor(region, window.clock)
            if stays > 0:
                drains[number] = stays
    bounds, until = _bounds(snapshot, window)
    until = until._replace(reading=next_change(snapshot.regions, state.health, window.clock))
    era = Era.of(snapshot, window)
    usable = tuple(endpoints)
    return View(
        basis,
        state,
        window,
        era,
        usable,
        up,
        {AddressFamily.IPV4: ipv4, AddressFamily.IPV6: ipv6},
        unknown,
        ramps,
        drains,
        bounds,
        usable if given == endpoints else tuple(given),
        lost,
        up,
        until,
    )


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


def _in_force(snapshot: Snapshot, window: Window) -> dict[str, tuple[CompiledRule, ...]]:
    """Each service's rules in force, as they bind: one that accepts no policy as old as this one allows nothing."""
    rules = {name: service.rules for name, service in snapshot.services.items()}
    if snapshot.beginnings or snapshot.endings:  # else every rule is always in force
        rules = {name: tuple(filter(window.covers, every)) for name, every in rules.items()}
    if bisect_right(snapshot.policy_ages, window.age):
        binding: dict[int, CompiledRule] = {}  # one for all services: what rankings share is told by identity

        def as_it_binds(rule: CompiledRule) -> CompiledRule:
            if not window.outdates(rule):
                return rule
            return binding.setdefault(id(rule), replace(rule, allowed=0, outdated=True))

        rules = {name: tuple(map(as_it_binds, every)) for name, every in rules.items()}
    return rules


def _bounds(snapshot: Snapshot, window: Window) -> tuple[dict[str, int], Window]:
    """How long answers about services near a boundary may be kept at the most, and until when that and the rules hold.

    A bound is a power of two, and holds until what is left falls to it: from a day before its end on, a rule costs 17
    Views, however many services it concerns and whatever their TTLs.
    """
    bounds: dict[str, int] = {}
    now = _next(snapshot.endings, window.now)
    latest = _next(snapshot.beginnings, window.latest)
    latest = min(latest, window.latest + _until_older(snapshot.policy_ages, window))
    for timed in snapshot.timed:
        ends, begins, expires = _changes(timed, window)
        left = min(ends - window.now, begins - window.latest, expires - window.latest)
        if left == inf:
            continue
        bound = bound_within(left)
        if bound < timed.enough:
            bounds |= {name: bound for name, ttl in timed.services if bound < ttl}
        step = min(bound, timed.enough)
        now, latest = min(now, ends - step), min(latest, begins - step, expires - step)
    return bounds, Window(now, latest)


def _changes(timed: Timed, window: Window) -> tuple[float, float, float]:
    """When the next rule of some services ends, begins, and is one that the policy is too old for."""
    return (
        _next(timed.endings, window.now),
        _next(timed.beginnings, window.latest),
        window.latest + _until_older(timed.policy_ages, window),
    )


def law_lasts(snapshot: Snapshot, service: str, window: Window, *, endings: bool = True) -> float:
    """Seconds until what the law says of a service may change by time alone; infinite where it never does.

    `endings`: that a rule ends counts as a change, too; else only what may forbid more.
    """
    left = inf
    for timed in snapshot.timed:
        if any(name == service for name, _ in timed.services):
            ends, begins, expires = _changes(timed, window)
            left = min(left, begins - window.latest, expires - window.latest)
            if endings:
                left = min(left, ends - window.now)
    return left


def bound_within(left: float) -> int:
    """The longest time, in whole seconds, that an answer may be kept while `left` seconds are left until a boundary.

    The largest power of two that is less; 0 for a second or less.
    """
    whole = ceil(min(left, _LONGEST)) - 1
    return 1 << whole.bit_length() - 1 if whole > 0 else 0


def _until_older(ages: tuple[float, ...], window: Window) -> float:
    """Seconds until the policy is older than the next of these ages; infinite if it is older than all."""
    age = _next(ages, window.age)
    return inf if age == inf else age - window.age


def _next(moments: tuple[float, ...], after: float) -> float:
    """The first of ascending moments that is later; infinite if none is."""
    place = bisect_right(moments, after)
    return moments[place] if place < len(moments) else inf
