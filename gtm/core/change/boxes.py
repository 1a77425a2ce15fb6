"""Sets of requests as boxes, and what of a box no other covers.

A box is a product: some services, some location facts, some tenants, some data classes (a bit mask each) and a span of
time. A *wall* is a box and a mask of what is closed to all requests in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple


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
