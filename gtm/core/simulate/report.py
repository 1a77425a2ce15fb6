"""A simulation as the plain data that JSON answers, tables and pages are made of.

Rates are in requests per second, shares 0–1, latencies in ms, times in POSIX seconds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from math import isfinite
from typing import Any

from gtm.core.demand.cells import Cell
from gtm.core.model.regions import Region
from gtm.core.simulate.compare import Comparison, MainPlace, MainRegion, Simulation
from gtm.core.simulate.project import Latency, Projection, RegionRoom
from gtm.core.simulate.scenario import SimulatedWorld

_DIGITS = 6


def as_data(found: Simulation, before: SimulatedWorld, after: SimulatedWorld) -> dict[str, Any]:
    """The whole simulation.

    Args:
        found: the result.
        before: what it was made with.
        after: likewise.

    Returns:
        `traffic` (requests, seconds, rate, peak), `moved` and `newly_served` (on average), `regions`, `average` and
        `peak` (each with moved, newly_served, moves, before, after), `countries` (service, country, share, before, after; a
        region of null is a refusal), `places` (the same by demand cell) and `warnings`.
    """
    regions = {
        **{region.name: region for region in before.view.snapshot.regions},
        **{region.name: region for region in after.view.snapshot.regions},
    }
    average, peak = found.average.sample, found.peak.sample
    return {
        "traffic": {
            "requests": _number(average.requests),
            "seconds": average.seconds,
            "rate": _number(average.requests / average.seconds),
            "start": average.start,
            "peak": {
                "start": peak.start,
                "seconds": peak.seconds,
                "rate": _number(peak.requests / peak.seconds),
            },
        },
        "moved": _number(found.average.moved),
        "newly_served": _number(found.average.newly_served),
        "regions": [_place_of(region) for _, region in sorted(regions.items())],
        "average": _comparison(found.average),
        "peak": _comparison(found.peak),
        "countries": [
            {"service": one.service, "country": one.country, **_ends(one)} for one in found.countries
        ],
        "places": [{"lat": one.lat, "lon": one.lon, **_ends(one)} for one in found.places],
        "warnings": _unknown(found),
    }


def _comparison(made: Comparison) -> dict[str, Any]:
    return {
        "moved": _number(made.moved),
        "newly_served": _number(made.newly_served),
        "moves": [
            {"from": start or None, "to": end or None, "rate": _number(rate)}
            for (start, end), rate in sorted(made.moves.items(), key=lambda one: (-one[1], one[0]))
        ],
        "before": _projection(made.before),
        "after": _projection(made.after),
    }


def _projection(made: Projection) -> dict[str, Any]:
    rate = made.rate or 1.0
    return {
        "rate": _number(made.rate),
        "regions": [
            {
                "region": name,
                "rate": _number(served),
                "share": _number(served / rate),
                "queued": _number(made.queued.get(name, 0.0)),
                "room": _room(made.room[name]),
                "price_ms": _number(made.plan.prices.get(name, 0.0)),
                "exhausted": name in made.binding,
            }
            for name, served in made.served.items()
        ],
        "latency_ms": None if made.latency is None else _latency(made.latency),
        "spill": [
            {"from": home, "to": to, "rate": _number(spilt)}
            for (home, to), spilt in sorted(made.spill.items(), key=lambda one: -one[1])
            if spilt > 0
        ],
        "refused": {
            "rate": _number(made.refused_rate),
            "share": _number(made.refused_rate / rate),
            "reasons": _rounded(made.refused),
            "rules": _rounded(made.refused_by_rule),
        },
        "queued": _number(sum(made.queued.values())),
        "exhausted": [name for name in made.binding if name not in made.served],
    }


def _latency(latency: Latency) -> dict[str, Any]:
    return {
        "mean": round(latency.mean, 2),
        "p50": round(latency.quantile(50), 2),
        "p90": round(latency.quantile(90), 2),
        "p99": round(latency.quantile(99), 2),
        "quantiles": [round(value, 2) for value in latency.quantiles],
    }


def _room(room: RegionRoom) -> dict[str, Any]:
    utilization = room.utilization
    return {
        "used_slots": _optional(room.used_slots),
        "usable_slots": _optional(room.usable_slots),
        "used_rate": _number(room.used_rate),
        "usable_rate": _optional(room.usable_rate),
        # JSON has no infinity: nothing is usable, but used.
        "utilization": _optional(utilization) if utilization is None or isfinite(utilization) else None,
    }


def _place_of(region: Region) -> dict[str, Any]:
    return {
        "region": region.name,
        "display_name": region.display_name,
        "country": region.country,
        "lat": region.lat,
        "lon": region.lon,
    }


def _ends(one: MainRegion | MainPlace) -> dict[str, Any]:
    return {"share": _number(one.share), "before": one.before or None, "after": one.after or None}


def _unknown(found: Simulation) -> list[str]:
    """What was left out, by the service it names."""
    sums: dict[str, float] = defaultdict(float)
    for text, count in found.unknown.items():
        try:
            sums[Cell.parse(text).service] += count
        except ValueError:
            sums[text[:63]] += count
    return [
        f"{count:g} requests for `{service}` are left out: neither policy knows the service, or the tenant, data "
        "class or model that they name"
        for service, count in sorted(sums.items())
    ]


def _rounded(rates: Mapping[str, float]) -> dict[str, float]:
    return {name: _number(rate) for name, rate in sorted(rates.items(), key=lambda one: -one[1]) if rate > 0}


def _number(value: float) -> float:
    return round(value, _DIGITS)


def _optional(value: float | None) -> float | None:
    return None if value is None else _number(value)
