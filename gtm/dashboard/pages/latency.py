"""Latency: estimates for a place, where they rest on samples, and networks that are not where a database says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from gtm.dashboard.inside import ApiProblem
from gtm.dashboard.visits import Visit, page

if TYPE_CHECKING:
    from gtm.client import types

FIELDS = ("client", "country", "lat", "lon")
MOST_DISPUTED = 50


@page("/latency")
async def _latency(visit: Visit) -> Response:
    """What is estimated for the place asked about, if one is; what cannot be asked is told above the form."""
    chosen = {field: visit.query(field) for field in FIELDS}
    problem, status = None, 200
    try:
        seen = await visit.api.get_latency(**_asked(chosen))
    except ApiProblem as found:
        if found.status >= 500:
            raise
        problem, status = found.document, found.status
        seen = await visit.api.get_latency()
    estimates = seen.estimates
    disputed = seen.doubts.disputed
    return visit.render(
        "latency.html",
        status,
        seen=seen,
        chosen=chosen,
        problem=problem,
        regions=_regions(estimates.regions) if estimates else [],
        sources=Counter(one.source for one in estimates.regions) if estimates else {},
        disputed=disputed[:MOST_DISPUTED],
        left_out=max(0, len(disputed) - MOST_DISPUTED),
        arguments="".join(
            f" --{field} '{value}'" for field, value in chosen.items() if value and _plain(value)
        ),
        question="&".join(f"{field}={value}" for field, value in chosen.items() if value and _plain(value)),
    )


def _asked(chosen: Mapping[str, str | None]) -> dict[str, Any]:
    """The form's fields as the API takes them: countries in capitals."""
    asked = {field: value for field, value in chosen.items() if value}
    if "country" in asked:
        asked["country"] = asked["country"].upper()
    return asked


def _plain(value: str) -> bool:
    """Whether a value may stand in a command as it is: addresses, codes and numbers may."""
    return all(char.isascii() and (char.isalnum() or char in ".:-+/") for char in value)


def _regions(regions: Sequence[types.EstimateSchema]) -> list[dict[str, Any]]:
    """Regions as they are ranked by distance in time, each beside the farthest; of samples those that edges estimate with come first."""
    most = max((one.rtt_ms for one in regions if one.rtt_ms is not None), default=0.0)
    return [
        {
            **one,
            "part": None if one.rtt_ms is None or not most else one.rtt_ms / most,
            "learned": None if one.rtt_ms is None or one.model_ms is None else one.rtt_ms - one.model_ms,
            "measured": sorted(one.measured, key=lambda each: not each.published),
        }
        for one in regions
    ]
