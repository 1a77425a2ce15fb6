"""What walls of two policies have in common: how requests come, what they state, and the places to be closed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from math import inf
from typing import NamedTuple

from gtm.core.change.leads import OUTSIDE, Shared
from gtm.core.decision.fence import matches_place, settings_of
from gtm.core.model.countries import COUNTRIES
from gtm.core.model.policy import ResidencyRule
from gtm.core.model.references import some
from gtm.core.model.regions import Region
from gtm.core.model.requests import ANYWHERE, Location, LocationFacts, location_facts
from gtm.core.policy.edges import EdgePlace, inside, settled
from gtm.core.policy.snapshot import CompiledRule

CODES = tuple(sorted(COUNTRIES))
"""Where regions to come may stand."""
OPERATORS = (None, *CODES)
"""From where they, and edges, may be run; None: nobody knows."""


class ChangedWay(NamedTuple):
    """How requests come, to the old policy and to the new one: to which `service`, and what their host name states.

    A request that states another tenant or data class than its host name does is refused, whatever rules say.

    `led`: the places (regions by name, or `OUTSIDE`) that the new policy leads them to without a decision, whatever its rules
    say; None: it decides.
    """

    service: tuple[str, str]
    tenant: tuple[str | None, str | None] = (None, None)
    data_class: tuple[str | None, str | None] = (None, None)
    led: frozenset[str] | None = None


@dataclass(frozen=True)
class Ground:
    """What walls of two policies have in common: names by the number of their bit, first that of who states nothing.

    `ways` stand where walls have services. `tenants` and `classes` are what requests state themselves. Places are the new policy's regions, then
    each country for regions that stand there, then each (first: unknown) for regions that are run from there; likewise for
    edges, where unknown comes first both times; then the regions of either policy by name (`edge_regions`), for edges that
    run in them wherever they say they stand, and the new policy's, for edges that say nothing else and stand where the region
    does; then the `ages` of policies (at most so many seconds, the last infinite); then the `others`, regions that the new
    policy has not, and what is outside of both: requests get there only by a way that leads there.

    `shared` are, by old rule, regions of the new policy → other places that their endpoints lead to and did not before.
    """

    ways: tuple[ChangedWay, ...]
    tenants: tuple[str | None, ...]
    classes: tuple[str | None, ...]
    regions: tuple[Region, ...]
    edge_regions: tuple[str, ...]
    ages: tuple[float, ...]
    now: float
    others: tuple[Region, ...] = ()
    shared: Shared = field(default_factory=dict)

    @property
    def standing(self) -> int:
        """The number of the first bit for where regions to come stand."""
        return len(self.regions)

    @property
    def run(self) -> int:
        """The number of the first bit for who runs regions to come."""
        return len(self.regions) + len(CODES)

    @property
    def edges_from(self) -> int:
        """The number of the first bit for edges."""
        return self.run + len(OPERATORS)

    @property
    def edges_in(self) -> int:
        """The number of the first bit for the regions that edges run in."""
        return self.edges_from + 2 * len(OPERATORS)

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
        return (2 << self.outside) - 1

    @property
    def other(self) -> int:
        """The number of the first bit for the others."""
        return self.aged + len(self.ages)

    @property
    def outside(self) -> int:
        """The number of the bit for what is outside of both policies."""
        return self.other + len(self.others)

    @property
    def decided(self) -> int:
        """The mask of places that decisions may lead to."""
        return (1 << self.other) - 1

    @cached_property
    def deciding(self) -> int:
        """The mask of ways on which the new policy decides."""
        return sum(1 << number for number, way in enumerate(self.ways) if way.led is None)

    @cached_property
    def leading(self) -> Mapping[int, int]:
        """For masks of places the mask of ways that lead there, whatever rules say."""
        found: dict[int, int] = {}
        for number, way in enumerate(self.ways):
            if way.led is not None:
                places = self.led_to(way.led)
                found[places] = found.get(places, 0) | 1 << number
        return found

    def led_to(self, names: Iterable[str]) -> int:
        """The mask of some regions, by name, and of `OUTSIDE`."""
        found = 0
        for name in names:
            found |= 1 << self.outside if name == OUTSIDE else self._numbers[name]
        return found

    @cached_property
    def _numbers(self) -> Mapping[str, int]:
        found = {region.name: 1 << number for number, region in enumerate(self.regions)}
        return found | {region.name: 1 << self.other + number for number, region in enumerate(self.others)}

    def closed_edges(self, period: CompiledRule, regions: Sequence[Region]) -> int:
        """The mask of edges that a period of a rule closes. `regions`: the ground's, as the rule's policy sees them."""
        closed = 0
        if period.binds_edges:
            for block, countries in enumerate((period.edge_countries, period.edge_operators)):
                first = self.edges_from + block * len(OPERATORS)
                if countries is not None:
                    closed |= sum(
                        1 << first + number for number, code in enumerate(OPERATORS) if code not in countries
                    )
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
            first = self.edges_from + block * len(OPERATORS)
            codes = [
                code or "an unknown country"
                for number, code in enumerate(OPERATORS)
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
        regions += [item.name for number, item in enumerate(self.others) if mask >> self.other + number & 1]
        standing = [code for number, code in enumerate(CODES) if mask >> self.standing + number & 1]
        run = [
            code or "an unknown country"
            for number, code in enumerate(OPERATORS)
            if mask >> self.run + number & 1
        ]
        return regions, standing, run


# --- The kinds of location that rules tell apart, and which of them a rule concerns. ---


MOST_FACTS = 100_000
"""Most kinds of location that are told apart."""


class TooManyFacts(Exception):  # noqa: N818 - it names what is so
    """The rules tell more kinds of location apart than can be looked at."""


@dataclass(frozen=True, slots=True)
class LocationKinds:
    """The kinds of location that some rules tell apart, as bits of a mask.

    For each of the `certainties` (behind an anonymising network or not, in doubt or not, a radius in km) there is a block of bits: one
    for each of the `groups` of countries that all rules treat alike, and one for an unknown country. The last bit of all
    is for subnets of too many parts to look at. Others need none: a rule concerns them if it concerns some part.
    """

    groups: tuple[tuple[str, ...], ...]
    certainties: tuple[tuple[bool, bool, float], ...]
    firsts: Mapping[str, int]
    """The first country of each group → the group's bit in a block."""

    @classmethod
    def of(cls, rules: Iterable[CompiledRule]) -> LocationKinds:
        """What rules tell apart.

        Raises:
            TooManyFacts: it is too much.
        """
        scoped = [rule for rule in rules if rule.countries is not None]
        signatures: dict[str, list[int]] = {code: [] for code in CODES}
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
            raise TooManyFacts
        firsts = {group[0]: 1 << number for number, group in enumerate(groups.values())}
        return cls(tuple(map(tuple, groups.values())), certainties, firsts)

    @property
    def width(self) -> int:
        """How many bits a block has: one for each group of countries, and one for an unknown country."""
        return len(self.groups) + 1

    @property
    def every(self) -> int:
        """The mask of a rule that concerns clients wherever they are."""
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
        inside = sum(self.firsts[code] for code in countries if code in self.firsts)
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
