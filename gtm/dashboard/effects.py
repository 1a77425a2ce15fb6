"""What a simulation says, as pages and report files show it: on a map, in sentences and in tables. Rates in requests per second."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from math import ceil, log10
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from gtm.client.objects import JsonObject
from gtm.dashboard.rendering import rate, share

if TYPE_CHECKING:
    from gtm.client import types

MOST_COUNTRIES = 12
MOST_MOVES = 60
MOST_PLACES = 500
_MOST_NAMED = 30
"""Regions up to which all have their names on the map; of more only those that gain or lose."""
SEEN = 0.005
"""Requests per second below which nothing is told of a change."""


def told(made: types.SimulationView, countries: int = MOST_COUNTRIES) -> dict[str, Any]:
    """What templates need of a simulation (`gtm.core.simulate.report`), for `effect.html`.

    Args:
        made: the simulation.
        countries: most countries that are listed.
    """
    sides = [made[when][side] for when in ("average", "peak") for side in ("before", "after")]
    regions = _regions(made, sides)
    changed = [one for one in made.countries if one.before != one.after]
    moves = made.average.moves
    before, after = sides[0], sides[1]
    return {
        "made": made,
        "sides": sides,
        "regions": regions,
        "gains": _gains(moves),
        "refused": after.refused.rate - before["refused"].rate,
        "moves": moves[:MOST_MOVES],
        "more_moves": max(0, len(moves) - MOST_MOVES),
        "countries": changed[:countries],
        "more": max(0, len(changed) - countries),
        "refusals": _refusals(sides, "reasons"),
        "rules": _refusals(sides, "rules"),
        "spill": _spill(sides),
        "full": [one.region for one in regions if one.sides[3] and one.sides[3].exhausted],
        "quotas": sorted({name for side in (sides[1], sides[3]) for name in side.exhausted}),
        "scene": scene(made, regions),
    }


def _regions(made: types.SimulationView, sides: list[types.ProjectionSchema]) -> list[JsonObject]:
    """Each region with its part of the four projections, None where a policy does not have it, and what it gains on average."""
    parts = [{one.region: one for one in side.regions} for side in sides]
    return [
        JsonObject(
            region=one.region,
            lat=one.lat,
            lon=one.lon,
            sides=[part.get(one.region) for part in parts],
            change=_rate(parts[1], one.region) - _rate(parts[0], one.region),
        )
        for one in made.regions
    ]


def _rate(side: Mapping[str, types.RegionTraffic], region: str) -> float:
    return float(side[region].rate) if region in side else 0.0


def _gains(moves: Iterable[types.MoveSchema]) -> list[tuple[str, float]]:
    """What regions gain of what moves, less what they lose; the largest first. What demand grows by is no gain."""
    sums: dict[str, float] = defaultdict(float)
    for one in moves:
        for end, sign in (("from", -1.0), ("to", 1.0)):
            if one[end] is not None:
                sums[one[end]] += sign * one.rate
    return sorted(((name, gain) for name, gain in sums.items() if gain > SEEN), key=lambda one: -one[1])


def _refusals(sides: list[types.ProjectionSchema], kind: str) -> list[tuple[str, list[float]]]:
    """Each reason, or rule, with its requests per second in the four projections."""
    found = [side.refused[kind] for side in sides]
    names = sorted({key for side in found for key in side})
    return [(one, [side.get(one, 0.0) for side in found]) for one in names]


def _spill(sides: list[types.ProjectionSchema]) -> list[tuple[tuple[str, str], list[float]]]:
    """What leaves its home for want of room, from where to where, in the four projections; the largest first."""
    found = [{(one.from_, one.to): one.rate for one in side.spill} for side in sides]
    ways = {way for side in found for way in side}
    rows = [(way, [side.get(way, 0.0) for side in found]) for way in ways]
    return sorted(rows, key=lambda row: (-max(row[1]), row[0]))[:MOST_MOVES]


def scene(made: types.SimulationView, regions: Iterable[JsonObject]) -> dict[str, Any]:
    """What `effect.js` draws: regions with what they gain or lose, what moves, and the places of clients concerned."""
    all_regions = list(regions)
    named = len(all_regions) <= _MOST_NAMED
    total = made.average.after.rate
    places = [
        [one.lat, one.lon, one.share * total, _kind_of_place(one)]
        for one in made.places
        if one.lat is not None and one.before != one.after
    ]
    return {
        "regions": [_drawn(one, named=named) for one in all_regions],
        "moves": [
            {**one, "label": rate(one.rate)} for one in made.average.moves[:MOST_MOVES] if one.rate > SEEN
        ],
        "places": places[:MOST_PLACES],
    }


def _kind_of_place(one: types.PlaceChangeSchema) -> str:
    return "refused" if one.after is None else "served" if one.before is None else "moved"


def _drawn(one: JsonObject, *, named: bool) -> dict[str, Any]:
    """A region on the map: its sign and its words say what its colour does."""
    name, change, after = one.region, one.change, one.sides[1]
    kind, sign = ("gains", "+") if change > SEEN else ("loses", "−") if change < -SEEN else ("same", "")
    amount = f"{sign}{rate(abs(change))}" if sign else ""
    use = None if after is None else after.room.utilization
    was = rate(one.sides[0].rate) if one.sides[0] else "not in the policy"
    becomes = rate(after.rate) if after else "not in the policy"
    return {
        "name": name,
        "lat": one.lat,
        "lon": one.lon,
        "kind": kind,
        "sign": sign,
        "use": use,
        "label": f"{name} {amount}".strip() if named or sign else "",
        "said": f"{name}: {was} before, {becomes} after{f', {share(use)} used' if use is not None else ''}",
    }


# The share of requests within each latency, before and after, as a picture: pure SVG without script or style.

_WIDTH, _LEFT, _TOP, _HEIGHT = 720, 48, 8, 220
_MARKS = 8


def latency_curves(before: types.LatencySchema | None, after: types.LatencySchema | None) -> Markup | None:
    """Curves of 0 to 100 % within each latency in ms; None where no client's place is known.

    Args:
        before: latencies of a projection (`gtm.core.simulate.report`), drawn dashed.
        after: likewise, drawn solid.
    """
    curves = [
        (style, one.quantiles) for style, one in (("before", before), ("after", after)) if one is not None
    ]
    if not curves:
        return None
    step = step_of(max(values[-1] for _, values in curves))
    end = step * max(1, ceil(max(values[-1] for _, values in curves) / step))
    width = _WIDTH - _LEFT - 24
    said = "Share of requests within a latency, before (dashed) and after; the table has the numbers"
    box = f"0 0 {_WIDTH} {_TOP + _HEIGHT + 28}"
    parts = [f'<svg class="curves" viewBox="{box}" role="img" aria-label="{said}">']
    for percent in (0, 25, 50, 75, 100):
        y = _TOP + _HEIGHT * (1 - percent / 100)
        parts.append(
            f'<path class="grid" d="M{_LEFT} {y:.1f}h{width}"/>'
            f'<text text-anchor="end" x="{_LEFT - 6}" y="{y + 4:.1f}">{percent}%</text>'
        )
    for number in range(round(end / step) + 1):
        x = _LEFT + width * number * step / end
        parts.append(
            f'<path class="grid" d="M{x:.1f} {_TOP}v{_HEIGHT}"/>'
            f'<text text-anchor="middle" x="{x:.1f}" y="{_TOP + _HEIGHT + 18}">{number * step:g} ms</text>'
        )
    for style, values in curves:
        points = " ".join(
            f"{_LEFT + width * value / end:.1f},{_TOP + _HEIGHT * (1 - percent / 100):.1f}"
            for percent, value in enumerate(values)
        )
        parts.append(f'<polyline class="curve {style}" points="{points}"/>')
    return Markup("".join([*parts, "</svg>"]))  # noqa: S704 - numbers alone


def step_of(most: float) -> float:
    """A round distance between marks, of which there are eight at most.

    >>> [step_of(most) for most in (0.0, 7.0, 90.0, 412.0)]
    [1.0, 1.0, 20.0, 100.0]
    """
    power = 10 ** ceil(log10(most / _MARKS)) if most > 0 else 1.0
    return next((power * part for part in (0.1, 0.2, 0.5) if most / (power * part) <= _MARKS), power)
