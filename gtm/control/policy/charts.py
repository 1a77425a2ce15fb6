"""Charts of simulations as SVG: pure text, no script, nothing loaded from elsewhere.

Colours are CSS variables of the page, so that they follow its light or dark scheme. Every text from outside is escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from math import ceil, log10, sqrt
from typing import Any

from gtm.geoip.inhabited import TILE_DEGREES, inhabited

_WIDTH, _HEIGHT = 720, 330
_TOP, _BOTTOM = 80.0, -60.0
"""Degrees of latitude that maps show."""
_HUES = (212, 28, 152, 340, 50, 275, 185, 10, 95, 315, 240, 70)
"""Neighbours in this order are far apart; after twelve they repeat, lighter."""


def colours(names: Iterable[str]) -> dict[str, str]:
    """A CSS colour for each region."""
    return {
        name: f"hsl({_HUES[number % len(_HUES)]} 65% {52 if number < len(_HUES) else 68}%)"
        for number, name in enumerate(names)
    }


def world_map(data: Mapping[str, Any], side: str, colour: Mapping[str, str], title: str) -> str:
    """A map (equirectangular) of where requests come from, by size, in the colour of the region that most go to.

    Args:
        data: a simulation (`gtm.core.simulate.report`).
        side: `before` or `after`; the latter draws a line to the new region from every place whose region changes.
        colour: by region.
        title: for those who cannot see it.
    """
    places = [place for place in data["places"] if place["lat"] is not None]
    regions = {region["region"]: region for region in data["regions"]}
    changed = [place for place in places if place["before"] != place["after"]] if side == "after" else []
    parts = [
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(title)}"><title>{escape(title)}</title>',
        f'<path class="land" d="{_land()}"/>',
        f'<path class="grid" d="{_graticule()}"/>',
    ]
    for place in changed:
        to = regions.get(place["after"] or "")
        if to is not None:
            (x1, y1), (x2, y2) = _at(place["lat"], place["lon"]), _at(to["lat"], to["lon"])
            stroke = colour[place["after"]]
            parts.append(
                f'<path class="move" stroke="{stroke}" d="M{x1:.1f} {y1:.1f}{_bend(x1, y1, x2, y2)}"/>'
            )
    largest = max((place["share"] for place in places), default=1.0) or 1.0
    parts += [_dot(place, side, colour, largest) for place in sorted(places, key=lambda one: -one["share"])]
    parts += _labels({name: _at(region["lat"], region["lon"]) for name, region in regions.items()}, colour)
    return "".join([*parts, "</svg>"])


def _dot(place: Mapping[str, Any], side: str, colour: Mapping[str, str], largest: float) -> str:
    x, y = _at(place["lat"], place["lon"])
    region = place[side]
    fill = "var(--refused)" if region is None else colour[region]
    size = 2 + 9 * sqrt(place["share"] / largest)
    where = escape(region or "refused")
    ring = ' class="changed"' if place["before"] != place["after"] else ' class="dot"'
    return (
        f'<circle{ring} cx="{x:.1f}" cy="{y:.1f}" r="{size:.1f}" fill="{fill}"><title>{place["share"]:.2%} of requests, '
        f"{where}</title></circle>"
    )


def _labels(points: Mapping[str, tuple[float, float]], colour: Mapping[str, str]) -> list[str]:
    """A diamond and a name for each region; a name that would lie on another stands to the left instead."""
    parts: list[str] = []
    to_the_right: list[tuple[float, float]] = []
    for name, (x, y) in sorted(points.items(), key=lambda one: one[1]):
        crowded = any(abs(y - other) < 12 and x - before < 7 * 12 for before, other in to_the_right)
        right = x < _WIDTH - 80 and not crowded
        if right:
            to_the_right.append((x, y))
        place = f'x="{x + 8:.1f}"' if right else f'text-anchor="end" x="{x - 8:.1f}"'
        parts.append(
            f'<path class="region" fill="{colour[name]}" d="M{x:.1f} {y - 6:.1f}l6 6-6 6-6-6z"/>'
            f'<text class="label" {place} y="{y + 3.5:.1f}">{escape(name)}</text>'
        )
    return parts


def bars(
    rows: Sequence[tuple[str, float | None, float | None]], colour: Mapping[str, str], title: str
) -> str:
    """Two bars a row, before (pale) and after, as shares from 0 to 100 %; None: not known, no bar.

    Rows that exceed 100 % are cut there and say so.
    """
    height = 34 * len(rows) + 22
    parts = [
        f'<svg viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="{escape(title)}"><title>{escape(title)}</title>'
    ]
    left, width = 150, _WIDTH - 150 - 64
    for percent in (0, 25, 50, 75, 100):
        x = left + width * percent / 100
        parts.append(
            f'<path class="grid" d="M{x:.1f} 0V{height - 18}"/>'
            f'<text class="tick" text-anchor="middle" x="{x:.1f}" y="{height - 5}">{percent} %</text>'
        )
    for number, (name, before, after) in enumerate(rows):
        y = 34 * number + 4
        parts.append(
            f'<text class="name" text-anchor="end" x="{left - 8}" y="{y + 16}">{escape(name)}</text>'
        )
        for place, (value, style) in enumerate(((before, "before"), (after, "after"))):
            if value is None:
                continue
            length = width * min(max(value, 0.0), 1.0)
            top = y + 12 * place
            parts.append(
                f'<rect class="{style}" x="{left}" y="{top}" width="{length:.1f}" height="11" fill="{colour[name]}"/>'
                f'<text class="tick" x="{left + length + 4:.1f}" y="{top + 9}">{value:.1%}</text>'
            )
    return "".join([*parts, "</svg>"])


def latency_curves(before: Mapping[str, Any] | None, after: Mapping[str, Any] | None, title: str) -> str:
    """The share of requests (0–100 %) within each latency, before (dashed) and after."""
    curves = [
        (style, found["quantiles"])
        for style, found in (("before", before), ("after", after))
        if found is not None
    ]
    most = max((values[-1] for _, values in curves), default=1.0) or 1.0
    step = _step(most)
    end = step * ceil(most / step)
    left, top, width, height = 44, 8, _WIDTH - 64, 220
    parts = [
        f'<svg viewBox="0 0 {_WIDTH} {top + height + 40}" role="img" aria-label="{escape(title)}">',
        f"<title>{escape(title)}</title>",
    ]
    for percent in (0, 25, 50, 75, 100):
        y = top + height * (1 - percent / 100)
        parts.append(
            f'<path class="grid" d="M{left} {y:.1f}h{width}"/>'
            f'<text class="tick" text-anchor="end" x="{left - 6}" y="{y + 3:.1f}">{percent} %</text>'
        )
    for number in range(round(end / step) + 1):
        x = left + width * number * step / end
        parts.append(
            f'<path class="grid" d="M{x:.1f} {top}v{height}"/>'
            f'<text class="tick" text-anchor="middle" x="{x:.1f}" y="{top + height + 16}">{number * step:g} ms</text>'
        )
    for style, values in curves:
        points = " ".join(
            f"{left + width * value / end:.1f},{top + height * (1 - percent / 100):.1f}"
            for percent, value in enumerate(values)
        )
        parts.append(f'<polyline class="curve {style}" points="{points}"/>')
    return "".join([*parts, "</svg>"])


def _step(most: float) -> float:
    """A round distance between at most eight marks."""
    power = 10 ** ceil(log10(most / 8)) if most > 0 else 1.0
    return next((power * part for part in (0.1, 0.2, 0.5) if most / (power * part) <= 8), power)


def _at(lat: float, lon: float) -> tuple[float, float]:
    """The point on the map."""
    y = (_TOP - min(max(lat, _BOTTOM), _TOP)) / (_TOP - _BOTTOM) * _HEIGHT
    return (min(max(lon, -180.0), 180.0) + 180) / 360 * _WIDTH, y


def _land() -> str:
    """A square for each inhabited tile."""
    width, height = TILE_DEGREES / 360 * _WIDTH, TILE_DEGREES / (_TOP - _BOTTOM) * _HEIGHT
    side = f"h{width - 0.8:.1f}v{height - 0.8:.1f}h-{width - 0.8:.1f}z"
    corners = (
        _at(lat + TILE_DEGREES / 2, lon - TILE_DEGREES / 2)
        for lat, lon in inhabited()
        if _BOTTOM < lat < _TOP
    )
    return "".join(f"M{x:.1f} {y:.1f}{side}" for x, y in corners)


def _graticule() -> str:
    """Meridians and parallels, 30° apart."""
    meridians = (f"M{_at(0, lon)[0]:.1f} 0V{_HEIGHT}" for lon in range(-150, 180, 30))
    parallels = (f"M0 {_at(lat, 0)[1]:.1f}H{_WIDTH}" for lat in range(-30, 61, 30))
    return "".join((*meridians, *parallels))


def _bend(x1: float, y1: float, x2: float, y2: float) -> str:
    """A curve to a point, bent upwards by its length."""
    lift = 0.18 * sqrt((x2 - x1) ** 2 + (y2 - y1) ** 2)
    return f"Q{(x1 + x2) / 2:.1f} {(y1 + y2) / 2 - lift:.1f} {x2:.1f} {y2:.1f}"
