"""The share of requests within each latency, before and after, as a picture: pure SVG without script or style."""

from __future__ import annotations

from math import ceil, log10
from typing import TYPE_CHECKING

from markupsafe import Markup

if TYPE_CHECKING:
    from gtm.client import types

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
