"""Sets of requests as boxes, and what of a box no other covers.

A box is a product: some services, some location facts, some tenants, some data classes (a bit mask each) and a span of
time. A *wall* is a box and a mask of what is closed to all requests in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from math import inf
from typing import NamedTuple, TypeVar

from gtm.core.change.ground import CODES, OPERATORS, Ground, LocationKinds
from gtm.core.decision.fence import matches_statement
from gtm.core.model.policy import Places, Policy, ResidencyRule
from gtm.core.model.references import PolicyChecks
from gtm.core.model.regions import Region
from gtm.core.policy.compile import RuleCompiler
from gtm.core.policy.jurisdictions import Membership
from gtm.core.policy.snapshot import CompiledRule


class Box(NamedTuple):
    """Requests: `services` to `classes` are bit masks, never 0; `starts` ≤ time < `ends`, POSIX seconds."""

    services: int
    facts: int
    tenants: int
    classes: int
    starts: float
    ends: float


Wall = tuple[Box, int]


class OutOfBudget(Exception):  # noqa: N818 - it names what happened
    """A search took more steps than it was given."""


class Budget:
    """How many steps a search may take yet."""

    def __init__(self, steps: int) -> None:
        self._left = steps

    def spend(self, steps: int = 1) -> None:
        """Take steps.

        Raises:
            OutOfBudget: there are no more.
        """
        self._left -= steps
        if self._left < 0:
            raise OutOfBudget


def overlap(one: Box, other: Box) -> bool:
    """Whether a request is in both."""
    return bool(
        one.services & other.services
        and one.facts & other.facts
        and one.tenants & other.tenants
        and one.classes & other.classes
        and one.starts < other.ends
        and other.starts < one.ends
    )


def covers(wide: Box, narrow: Box) -> bool:
    """Whether every request of one is in the other."""
    return (
        not narrow.services & ~wide.services
        and not narrow.facts & ~wide.facts
        and not narrow.tenants & ~wide.tenants
        and not narrow.classes & ~wide.classes
        and wide.starts <= narrow.starts
        and narrow.ends <= wide.ends
    )


def around(one: Wall, other: Wall) -> Wall:
    """The least wall that has two within it."""
    box, also = one[0], other[0]
    wide = Box(
        box.services | also.services,
        box.facts | also.facts,
        box.tenants | also.tenants,
        box.classes | also.classes,
        min(box.starts, also.starts),
        max(box.ends, also.ends),
    )
    return wide, one[1] | other[1]


def within(narrow: Wall, wide: Wall) -> bool:
    """Whether every request of a wall, and every place that it closes, is of another, too."""
    return covers(wide[0], narrow[0]) and not narrow[1] & ~wide[1]


def uncovered(box: Box, target: int, walls: Iterable[Wall], budget: Budget) -> Iterator[Wall]:
    """The parts of a box in which not all of `target` is closed, each with what is open there; they do not overlap.

    Args:
        box: the requests looked at.
        target: the mask of what should be closed to them.
        walls: what is.
        budget: for each wall that is compared with a part.

    Raises:
        OutOfBudget: the boxes cut each other into too many parts.
    """
    ordered: Sequence[Wall] = sorted(walls, key=lambda wall: not covers(wall[0], box))
    parts = [(box, target, 0)]
    while parts:
        part, wanted, at = parts.pop()
        while at < len(ordered):
            budget.spend()
            wall, closed = ordered[at]
            at += 1
            if closed & wanted and overlap(part, wall):
                outside, inside = _split(part, wall)
                parts += [(piece, wanted, at) for piece in outside]
                if wanted & ~closed:
                    parts.append((inside, wanted & ~closed, at))
                break
        else:
            yield part, wanted


def _split(box: Box, wall: Box) -> tuple[list[Box], Box]:
    """A box cut along a wall that it overlaps: the pieces outside, and the one inside."""
    outside = []
    for dimension in ("services", "facts", "tenants", "classes"):
        own, other = getattr(box, dimension), getattr(wall, dimension)
        if own & ~other:
            outside.append(box._replace(**{dimension: own & ~other}))
            box = box._replace(**{dimension: own & other})
    if box.starts < wall.starts:
        outside.append(box._replace(ends=wall.starts))
        box = box._replace(starts=wall.starts)
    if box.ends > wall.ends:
        outside.append(box._replace(starts=wall.ends))
        box = box._replace(ends=wall.ends)
    return outside, box


# --- Residency rules as walls: boxes of requests, each with the places that are closed to them.
#
# What two policies say can be compared once both are told in the same terms (a `Ground`): the services (and the host names
# by which they are asked for), clients, tenants and data classes that their rules tell apart, and the places that they may be served in. Places are the regions of the
# policy that is to be; and regions to come, by where they might stand and by who might run them, each looked at alone. So are
# the edges that may handle a request: by where they stand, by who runs them, by the region they run in, and by the age of the
# policy they follow.
#
# Whom a rule concerns is asked of the functions that decide it (`gtm.core.decision.fence`), for a client of every kind and for
# everything that may be stated.


_NOBODY = "\0"
"""No rule names it, nor can a policy: what concerns its requests concerns everybody's."""

_Name = TypeVar("_Name")


class Bounded:
    """One policy's enforced rules on a ground: compiled, and then as walls.

    Args:
        ground: what the walls are told in.
        policy: whose rules; with its own tenants, and those of the other policy that it has not.
        regions: the ground's, as this policy sees them (where they stand, who runs them).
        membership: what its jurisdictions cover.
        side: 0 for the old policy, 1 for the new one. No rule of the new one is asked about those whom a way leads somewhere.
    """

    def __init__(
        self, ground: Ground, policy: Policy, regions: Sequence[Region], membership: Membership, side: int
    ) -> None:
        self.ground = ground
        every = (*regions, *map(_standing, CODES), *map(_run, OPERATORS), *ground.others)
        checks = PolicyChecks()  # what is wrong with it has been said where the policy was compiled
        compiler = RuleCompiler(replace(policy, regions=every), membership, checks)
        self._services = _numbered(way.service[side] for way in ground.ways)
        self._tenants = _Stated(ground.tenants, [way.tenant for way in ground.ways], side)
        self._classes = _Stated(ground.classes, [way.data_class for way in ground.ways], side)
        self._compiled = [
            (period, closed if side else closed | _closed_shared(ground, rule, closed))
            for rule in policy.residency_rules
            for period, closed in _parts(ground, compiler, rule, regions)
        ]
        self._ways = ground.deciding if side else (1 << len(ground.ways)) - 1

    @property
    def rules(self) -> Iterator[CompiledRule]:
        """The periods of rules that bind somebody now or later."""
        return (period for period, _ in self._compiled)

    def walls(self, facts: LocationKinds) -> Iterator[tuple[str, Wall]]:
        """The rules that they come from, and the walls."""
        known: dict[object, tuple[tuple[bool, bool, bool], ...]] = {}
        for period, closed in self._compiled:
            names = period.rule.match.services
            services = self._ways
            if names:
                services &= sum(self._services.get(name, 0) for name in dict.fromkeys(names))
            where = facts.mask(period, known)
            span = max(period.starts, self.ground.now), period.ends
            if not (closed and where):
                continue
            for by_tenant, tenants in self._tenants.concerned(period.tenants):
                for by_class, classes in self._classes.concerned(period.data_classes):
                    if services & by_tenant & by_class:
                        box = Box(services & by_tenant & by_class, where, tenants, classes, *span)
                        yield period.rule.name, (box, closed)

    def refused(self, facts: LocationKinds) -> Iterator[tuple[str, Wall]]:
        """Walls around requests that contradict their host name, before or after: nothing is opened to those."""
        ground = self.ground
        every = Box(ground.deciding, facts.every, self._tenants.every, self._classes.every, ground.now, inf)
        for ways, tenants in self._tenants.contradicting():
            yield "", (every._replace(services=ways, tenants=tenants), self.ground.places)
        for ways, classes in self._classes.contradicting():
            yield "", (every._replace(services=ways, classes=classes), self.ground.places)


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
    run = ((1 << len(OPERATORS)) - 1) << ground.run
    standing = ((1 << ground.run) - 1) & ~regions
    allow, deny = rule.allow, rule.deny
    versions = [(rule, regions | standing)]
    if allow.operator_jurisdictions or deny.operator_jurisdictions:
        places = [replace(side, operator_jurisdictions=()) for side in (allow, deny)]
        operators = [
            replace(Places(), operator_jurisdictions=side.operator_jurisdictions) for side in (allow, deny)
        ]
        versions = [
            (rule, regions),
            (replace(rule, allow=places[0], deny=places[1]), standing),
            (replace(rule, allow=operators[0], deny=operators[1]), run),
        ]
    for version, looked_at in versions:
        for period in compiler.compile(version):
            if period.enforced and period.ends > ground.now:
                closed = looked_at & ~period.allowed
                if version is rule:
                    closed |= ground.closed_edges(period, seen) | _closed_others(ground, period)
                yield period, closed


def _closed_shared(ground: Ground, rule: ResidencyRule, closed: int) -> int:
    """The mask of regions whose endpoints lead to places that a rule closes."""
    shared = ground.shared.get(rule.name, {})
    return ground.led_to(name for name, led in shared.items() if closed & ground.led_to(led))


def _closed_others(ground: Ground, period: CompiledRule) -> int:
    """The mask of other regions that a period closes, and of what is outside: nobody knows that it is none of the places closed."""
    first = ground.run + len(OPERATORS)
    others = ~period.allowed >> first & (1 << len(ground.others)) - 1
    anything = ~period.allowed & (1 << first + len(ground.others)) - 1
    return others << ground.other | bool(anything) << ground.outside


def _standing(code: str) -> Region:
    return Region(f"*{code}", 0.0, 0.0, code, ())


def _run(code: str | None) -> Region:
    return Region(f"*{code}*", 0.0, 0.0, "", (), operator_country=code)
