"""Flows between two columns of places, as bands whose widths are rates: where each is drawn (Sankey 1898).

Widths that depend on data are attributes of SVG, which need no style. Few flows are drawn, so that each can be told from the others: the
smaller places of a column are one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

WIDTH, HEIGHT = 760.0, 380.0
LEFT, RIGHT = 170.0, 590.0
"""Where the bars of the two columns begin."""
BAR = 10.0
GAP = 10.0
"""Between two places of a column."""
MOST = 12
"""Places of a column."""
OTHERS = "other regions"
LEAST = 0.5
"""Height below which nothing would be seen."""

Flows = Mapping[tuple[str, str], float]


@dataclass(frozen=True, slots=True)
class Bar:
    """A place of a column. `y` is its upper end."""

    name: str
    label: str
    x: float
    y: float
    height: float
    rate: float

    @property
    def middle(self) -> float:
        """The height at which the bar's label stands."""
        return round(self.y + self.height / 2, 1)


@dataclass(frozen=True, slots=True)
class Band:
    """A flow; `path` is its outline."""

    start: str
    end: str
    rate: float
    path: str
    kind: str


@dataclass(frozen=True, slots=True)
class Picture:
    """All that is drawn."""

    left: tuple[Bar, ...]
    right: tuple[Bar, ...]
    bands: tuple[Band, ...]


def picture(flows: Flows, kinds: Mapping[str, str]) -> Picture:
    """Where everything stands.

    Args:
        flows: from a place of the left column to one of the right: the rate.
        kinds: of ends of the right column that are no regions, which stand last: the kind of their bands.
    """
    largest = _joined({pair: rate for pair, rate in flows.items() if rate > 0}, frozenset(kinds))
    sums = _sums(largest, 0), _sums(largest, 1)
    total = sum(largest.values())
    if not total:
        return Picture((), (), ())
    rows = max(map(len, sums))
    scale = (HEIGHT - GAP * (rows - 1)) / total
    left = _column(sums[0], LEFT, scale, frozenset(kinds))
    right = _column(sums[1], RIGHT, scale, frozenset(kinds))
    return Picture(
        tuple(left.values()), tuple(right.values()), tuple(_bands(largest, left, right, scale, kinds))
    )


def _joined(flows: Flows, kept: frozenset[str]) -> dict[tuple[str, str], float]:
    """The same with the smaller places of each column as one."""
    large = []
    for side in (0, 1):
        order = sorted(
            (name for name in _sums(flows, side).items() if name[0] not in kept), key=lambda one: -one[1]
        )
        names = [name for name, _ in order]
        large.append(kept.union(names if len(names) <= MOST else names[: MOST - 1]))
    found: dict[tuple[str, str], float] = {}
    for (start, end), rate in flows.items():
        pair = start if start in large[0] else OTHERS, end if end in large[1] else OTHERS
        found[pair] = found.get(pair, 0.0) + rate
    return found


def _sums(flows: Flows, side: int) -> dict[str, float]:
    found: dict[str, float] = {}
    for pair, rate in flows.items():
        found[pair[side]] = found.get(pair[side], 0.0) + rate
    return found


def _column(sums: Mapping[str, float], x: float, scale: float, last: frozenset[str]) -> dict[str, Bar]:
    """Its bars from above, by name, so that they stay where they are while rates move."""
    found, y = {}, 0.0
    for name in sorted(sums, key=lambda one: (one in last, one == OTHERS, one)):
        height = max(LEAST, sums[name] * scale)
        found[name] = Bar(name, _label(name), x, round(y, 1), round(height, 1), sums[name])
        y += height + GAP
    return found


def _bands(
    flows: Flows,
    left: Mapping[str, Bar],
    right: Mapping[str, Bar],
    scale: float,
    kinds: Mapping[str, str],
) -> Iterable[Band]:
    places = {name: number for number, name in enumerate([*left, *right])}
    ends = {name: number for number, name in enumerate(right)}
    starts, stops = dict.fromkeys(left, 0.0), dict.fromkeys(right, 0.0)
    for start, end in sorted(flows, key=lambda pair: (places[pair[0]], ends[pair[1]])):
        rate = flows[start, end]
        height = max(LEAST, rate * scale)
        path = _path(left[start].y + starts[start], right[end].y + stops[end], height)
        starts[start] += height
        stops[end] += height
        kind = kinds.get(end, "home" if start == end != OTHERS else "away")
        yield Band(start, end, rate, path, kind)


def _path(y0: float, y1: float, height: float) -> str:
    """The outline of a band.

    >>> _path(0, 100, 10)
    'M180 0C380 0 380 100 590 100V110C380 110 380 10 180 10Z'
    """
    x0, x1 = LEFT + BAR, RIGHT
    middle = (LEFT + RIGHT) / 2
    return (
        f"M{x0:g} {y0:.4g}C{middle:g} {y0:.4g} {middle:g} {y1:.4g} {x1:g} {y1:.4g}V{y1 + height:.4g}"
        f"C{middle:g} {y1 + height:.4g} {middle:g} {y0 + height:.4g} {x0:g} {y0 + height:.4g}Z"
    )


def _label(name: str, most: int = 20) -> str:
    return name if len(name) <= most else f"{name[: most - 1]}…"
