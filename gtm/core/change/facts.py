"""The kinds of location that rules tell apart, and which of them a rule concerns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from math import inf

from gtm.core.change.ground import CODES
from gtm.core.decision.fence import matches_place, settings_of
from gtm.core.model.countries import COUNTRIES
from gtm.core.model.policy import ResidencyRule
from gtm.core.model.requests import ANYWHERE, Location, LocationFacts, location_facts
from gtm.core.policy.snapshot import CompiledRule

MOST_FACTS = 100_000
"""Most kinds of location that are told apart."""


class TooManyFacts(Exception):  # noqa: N818 - it names what is so
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
    firsts: Mapping[str, int]
    """The first country of each group → the group's bit in a block."""

    @classmethod
    def of(cls, rules: Iterable[CompiledRule]) -> Facts:
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
