"""Residency rules as walls: boxes of requests, each with the places that are closed to them.

What two policies say can be compared once both are told in the same terms (a `Ground`): the services (and the host names
by which they are asked for), clients, tenants and data classes that their rules tell apart, and the places that they may be served in. Places are the regions of the
policy that is to be; and regions to come, by where they might stand and by who might run them, each looked at alone. So are
the edges that may handle a request: by where they stand, by who runs them, by the region they run in, and by the age of the
policy they follow.

Whom a rule concerns is asked of the functions that decide it (`gtm.core.decision.fence`), for a client of every kind and for
everything that may be stated.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import inf
from typing import NamedTuple, TypeVar

from gtm.core.change.boxes import Box, Wall
from gtm.core.decision.fence import matches_place, matches_statement, settings_of
from gtm.core.model.countries import COUNTRIES
from gtm.core.model.location import LocationFacts, location_facts
from gtm.core.model.references import Checks, some
from gtm.core.model.values import ANYWHERE, Location, Places, Policy, Region, ResidencyRule
from gtm.core.policy.edges import EdgePlace, inside, settled
from gtm.core.policy.jurisdictions import Membership
from gtm.core.policy.rules import RuleCompiler
from gtm.core.policy.snapshot import CompiledRule

_CODES = tuple(sorted(COUNTRIES))
_OPERATORS = (None, *_CODES)
MOST_FACTS = 100_000
"""Most kinds of location that are told apart."""


_NOBODY = "\0"
"""No rule names it, nor can a policy: what concerns its requests concerns everybody's."""

_Name = TypeVar("_Name")


class TooManyKinds(Exception):  # noqa: N818 - it names what is so
    """The rules tell more kinds of location apart than can be looked at."""


@dataclass(frozen=True, slots=True)
class Facts:
    """The kinds of location that some rules tell apart, as bits of a mask.

    For each of the `certainties` (behind an anonymising network or not, in doubt or not, a radius in km) there is a block of bits: one
    for each of the `groups` of countries that all rules treat alike, and one for an unknown country. The last bit of all
    is for subnets of too many parts to look at. Others need none: a rule concerns them if it concerns some part.
    """

    groups: tuple[tuple[str, ...], ...]
    certainties: tuple[tuple[bool, bool, float], ...]

    @classmethod
    def of(cls, rules: Iterable[CompiledRule]) -> Facts:
        """What rules tell apart.

        Raises:
            TooManyKinds: it is too much.
        """
        scoped = [rule for rule in rules if rule.countries is not None]
        signatures: dict[str, list[int]] = {code: [] for code in _CODES}
        for number, countries in enumerate(dict.fromkeys(rule.countries or frozenset() for rule in scoped)):
            for code in countries:
                signatures[code].append(number)
        groups: dict[tuple[int, ...], list[str]] = {}
        for code, signature in signatures.items():
            groups.setdefault(tuple(signature), []).append(code)
        bounds = {rule.rule.max_accuracy_km for rule in scoped} - {None}
        radii = (*sorted(bound for bound in bounds if bound is not None), inf)
        certainties = tuple(product((False, True), (False, True), radii))
        if (len(groups) + 1) * len(certainties) > MOST_FACTS:
            raise TooManyKinds
        return cls(tuple(map(tuple, groups.values())), certainties)

    @property
    def width(self) -> int:
        """Bits of a block."""
        return len(self.groups) + 1

    @property
    def every(self) -> int:
        """The mask of all."""
        return (1 << self._last + 1) - 1

    @property
    def _last(self) -> int:
        return self.width * len(self.certainties)

    def mask(self, rule: CompiledRule, known: dict[object, tuple[tuple[bool, bool, bool], ...]]) -> int:
        """The kinds of location that a rule concerns. `known` remembers what rules of the same settings do."""
        countries = rule.countries
        if countries is None:
            return self.every
        settings = settings_of(rule.rule)
        key = settings, not countries, countries >= COUNTRIES
        if key not in known:
            known[key] = tuple(self._concerned(settings, countries))
        inside = sum(1 << number for number, group in enumerate(self.groups) if group[0] in countries)
        unknown = 1 << len(self.groups)
        outside = unknown - 1 & ~inside
        found = (matches_place(settings, countries, _ANYWHERE) is not None) << self._last
        for block, (those_in, those_out, those_unknown) in enumerate(known[key]):
            bits = those_in * inside | those_out * outside | those_unknown * unknown
            found |= bits << block * self.width
        return found

    def _concerned(
        self, settings: ResidencyRule, countries: frozenset[str]
    ) -> Iterator[tuple[bool, bool, bool]]:
        """For each certainty, whether a rule concerns clients in its countries, in others, and in an unknown one."""
        kinds = (min(countries, default=None), min(COUNTRIES - countries, default=None), None)
        for certainty in self.certainties:
            inside, outside, unknown = (
                matches_place(settings, countries, _client(code, *certainty)) is not None for code in kinds
            )
            yield inside, outside, unknown

    def countries(self, mask: int) -> tuple[tuple[str | None, ...], bool]:
        """The countries in a mask (None: unknown), and whether of clients, too, who are known to be there."""
        within = (1 << self.width) - 1
        sure = mask & within
        some = 0
        for block in range(len(self.certainties)):
            some |= mask >> block * self.width & within  # the last bit is in none of them
        shown = sure or some
        groups = (group for number, group in enumerate(self.groups) if shown >> number & 1)
        return (
            *sorted(code for group in groups for code in group),
            *((None,) if shown >> len(self.groups) & 1 else ()),
        ), bool(sure)


_ANYWHERE = location_facts(Location(spans=ANYWHERE))


def _client(country: str | None, anonymous: bool, doubtful: bool, radius: float) -> LocationFacts:
    return location_facts(
        Location(country, source="cell", anonymous=anonymous, doubtful=doubtful, accuracy_km=radius)
    )


class Way(NamedTuple):
    """How requests come, to the old policy and to the new one: to which `service`, and what their host name states.

    A request that states another tenant or data class than its host name does is refused, whatever rules say.
    """

    service: tuple[str, str]
    tenant: tuple[str | None, str | None] = (None, None)
    data_class: tuple[str | None, str | None] = (None, None)


@dataclass(frozen=True, slots=True)
class Ground:
    """What walls of two policies have in common: names by the number of their bit, first that of who states nothing.

    `ways` stand where walls have services. `tenants` and `classes` are what requests state themselves. Places are the new policy's regions, then
    each country for regions that stand there, then each (first: unknown) for regions that are run from there; likewise for
    edges, where unknown comes first both times; then the regions of either policy by name (`edge_regions`), for edges that
    run in them wherever they say they stand, and the new policy's, for edges that say nothing else and stand where the region
    does; then the `ages` of policies (at most so many seconds, the last infinite).
    """

    ways: tuple[Way, ...]
    tenants: tuple[str | None, ...]
    classes: tuple[str | None, ...]
    regions: tuple[Region, ...]
    edge_regions: tuple[str, ...]
    ages: tuple[float, ...]
    now: float

    @property
    def standing(self) -> int:
        """The number of the first bit for where regions to come stand."""
        return len(self.regions)

    @property
    def run(self) -> int:
        """The number of the first bit for who runs regions to come."""
        return len(self.regions) + len(_CODES)

    @property
    def edges_from(self) -> int:
        """The number of the first bit for edges."""
        return self.run + len(_OPERATORS)

    @property
    def edges_in(self) -> int:
        """The number of the first bit for the regions that edges run in."""
        return self.edges_from + 2 * len(_OPERATORS)

    @property
    def edges_of(self) -> int:
        """The number of the first bit for the regions whose place is that of edges."""
        return self.edges_in + len(self.edge_regions)

    @property
    def aged(self) -> int:
        """The number of the first bit for the ages of policies that edges follow."""
        return self.edges_of + len(self.regions)

    @property
    def places(self) -> int:
        """The mask of all places."""
        return (1 << self.aged + len(self.ages)) - 1

    def closed_edges(self, period: CompiledRule, regions: Sequence[Region]) -> int:
        """The mask of edges that a period of a rule closes. `regions`: the ground's, as the rule's policy sees them."""
        closed = 0
        for block, countries in enumerate((period.edge_countries, period.edge_operators)):
            first = self.edges_from + block * len(_OPERATORS)
            if countries is not None:
                closed |= sum(
                    1 << first + number for number, code in enumerate(_OPERATORS) if code not in countries
                )
        if period.edge_countries is not None:
            denied = period.rule.deny.regions
            closed |= sum(
                1 << self.edges_in + number for number, name in enumerate(self.edge_regions) if name in denied
            )
            closed |= sum(
                1 << self.edges_of + number
                for number, region in enumerate(regions)
                if not inside(period, settled(EdgePlace(region=region.name), (region,)))
            )
        most = period.rule.max_policy_age
        if most is not None:
            closed |= sum(1 << self.aged + number for number, age in enumerate(self.ages) if age > most)
        return closed

    def edges(self, mask: int) -> Iterator[str]:
        """The edges in a mask of places, in words."""
        for block, text in enumerate(("edges in", "edges that are run from")):
            first = self.edges_from + block * len(_OPERATORS)
            codes = [
                code or "an unknown country"
                for number, code in enumerate(_OPERATORS)
                if mask >> first + number & 1
            ]
            if codes:
                yield f"{text} {some(codes, 'countries')}"
        names = (*self.edge_regions, *(region.name for region in self.regions))
        run = {name: None for number, name in enumerate(names) if mask >> self.edges_in + number & 1}
        if run:
            yield f"edges that run in {some([f'`{name}`' for name in run], 'regions')}"
        ages = [number for number in range(len(self.ages)) if mask >> self.aged + number & 1]
        if ages:
            # A bit stands for what is older than the age before it.
            yield f"edges that follow a policy older than {self.ages[ages[0] - 1]:g} s"

    def named(self, mask: int) -> tuple[list[str], list[str], list[str]]:
        """The regions in a mask of places, the countries to stand in, and those to be run from (`unknown` last)."""
        regions = [item.name for number, item in enumerate(self.regions) if mask >> number & 1]
        standing = [code for number, code in enumerate(_CODES) if mask >> self.standing + number & 1]
        run = [
            code or "an unknown country"
            for number, code in enumerate(_OPERATORS)
            if mask >> self.run + number & 1
        ]
        return regions, standing, run


class Bounded:
    """One policy's enforced rules on a ground: compiled, and then as walls.

    Args:
        ground: what the walls are told in.
        policy: whose rules; with its own tenants, and those of the other policy that it has not.
        regions: the ground's, as this policy sees them (where they stand, who runs them).
        membership: what its jurisdictions cover.
        side: 0 for the old policy, 1 for the new one.
    """

    def __init__(
        self, ground: Ground, policy: Policy, regions: Sequence[Region], membership: Membership, side: int
    ) -> None:
        self.ground = ground
        every = (*regions, *(_standing(code) for code in _CODES), *(_run(code) for code in _OPERATORS))
        checks = Checks()  # what is wrong with it has been said where the policy was compiled
        compiler = RuleCompiler(replace(policy, regions=every), membership, checks)
        self._services = _numbered(way.service[side] for way in ground.ways)
        self._tenants = _Stated(ground.tenants, [way.tenant for way in ground.ways], side)
        self._classes = _Stated(ground.classes, [way.data_class for way in ground.ways], side)
        self._compiled = [
            part for rule in policy.residency_rules for part in _parts(ground, compiler, rule, regions)
        ]

    @property
    def rules(self) -> Iterator[CompiledRule]:
        """The periods of rules that bind somebody now or later."""
        return (period for period, _ in self._compiled)

    def walls(self, facts: Facts) -> Iterator[tuple[str, Wall]]:
        """The rules that they come from, and the walls."""
        known: dict[object, tuple[tuple[bool, bool, bool], ...]] = {}
        for period, closed in self._compiled:
            names = period.rule.match.services
            services = (
                sum(self._services.get(name, 0) for name in dict.fromkeys(names))
                if names
                else self._everybody
            )
            where = facts.mask(period, known)
            span = max(period.starts, self.ground.now), period.ends
            if not (closed and where):
                continue
            for by_tenant, tenants in self._tenants.concerned(period.tenants):
                for by_class, classes in self._classes.concerned(period.data_classes):
                    if services & by_tenant & by_class:
                        box = Box(services & by_tenant & by_class, where, tenants, classes, *span)
                        yield period.rule.name, (box, closed)

    def refused(self, facts: Facts) -> Iterator[tuple[str, Wall]]:
        """Walls around requests that contradict their host name, before or after: nothing is opened to those."""
        every = Box(
            self._everybody, facts.every, self._tenants.every, self._classes.every, self.ground.now, inf
        )
        for ways, tenants in self._tenants.contradicting():
            yield "", (every._replace(services=ways, tenants=tenants), self.ground.places)
        for ways, classes in self._classes.contradicting():
            yield "", (every._replace(services=ways, classes=classes), self.ground.places)

    @property
    def _everybody(self) -> int:
        return (1 << len(self.ground.ways)) - 1


class _Stated:
    """Who states what of one kind (a tenant, a data class): ways by their host name, requests themselves.

    Args:
        names: what may be stated, None first.
        ways: what the host name of each way states, to the old policy and to the new one.
        side: which of the two decides whom rules concern.
    """

    def __init__(
        self, names: Sequence[str | None], ways: Sequence[tuple[str | None, str | None]], side: int
    ) -> None:
        self._numbers = {name: 1 << number for number, name in enumerate(names)}
        self._ways = _numbered(way[side] for way in ways)
        self._all = (1 << len(ways)) - 1
        self._either = _numbered(way[0] for way in ways), _numbered(way[1] for way in ways)
        self.every = (1 << len(names)) - 1

    def concerned(self, names: frozenset[str] | None) -> Iterator[tuple[int, int]]:
        """Whom a rule about some names concerns (None: about all): masks of ways, and of what requests by them state."""
        if matches_statement(names, _NOBODY):
            yield self._all, self.every
            return
        stated = [name for name in (None, *(names or ())) if matches_statement(names, name)]
        # What a host name states decides; requests by one that states nothing are judged by what they state themselves.
        yield self._ways.get(None, 0), sum(self._numbers.get(name, 0) for name in stated)
        yield sum(self._ways.get(name, 0) for name in stated if name is not None), self.every

    def contradicting(self) -> Iterator[tuple[int, int]]:
        """Masks of ways whose host name states something, and of the requests that state something else."""
        for ways in self._either:
            for name, mask in ways.items():
                if name is not None and self.every & ~(self._numbers[name] | 1):
                    yield mask, self.every & ~(self._numbers[name] | 1)


def _numbered(names: Iterable[_Name]) -> dict[_Name, int]:
    """For each name the mask of where it stands."""
    found: dict[_Name, int] = {}
    for number, name in enumerate(names):
        found[name] = found.get(name, 0) | 1 << number
    return found


def _parts(
    ground: Ground, compiler: RuleCompiler, rule: ResidencyRule, seen: Sequence[Region]
) -> Iterator[tuple[CompiledRule, int]]:
    """A rule's periods, and what each closes of the places. `seen`: the ground's regions, as its policy sees them.

    Where regions to come stand and who runs them is looked at apart, so a rule about both is read twice more.
    """
    regions = (1 << ground.standing) - 1
    run = ((1 << len(_OPERATORS)) - 1) << ground.run
    standing = ((1 << ground.run) - 1) & ~regions
    allow, deny = rule.allow, rule.deny
    readings = [(rule, regions | standing)]
    if allow.operator_jurisdictions or deny.operator_jurisdictions:
        places = [replace(side, operator_jurisdictions=()) for side in (allow, deny)]
        operators = [
            replace(Places(), operator_jurisdictions=side.operator_jurisdictions) for side in (allow, deny)
        ]
        readings = [
            (rule, regions),
            (replace(rule, allow=places[0], deny=places[1]), standing),
            (replace(rule, allow=operators[0], deny=operators[1]), run),
        ]
    for reading, looked_at in readings:
        for period in compiler.compile(reading):
            if period.enforced and period.ends > ground.now:
                edges = ground.closed_edges(period, seen) if reading is rule else 0
                yield period, looked_at & ~period.allowed | edges


def _standing(code: str) -> Region:
    return Region(f"*{code}", 0.0, 0.0, code, ())


def _run(code: str | None) -> Region:
    return Region(f"*{code}*", 0.0, 0.0, "", (), operator_country=code)
