"""Round trips from geography alone: how far a client is from a region along the long-haul network.

Laws:
  1. No estimate is below the time of light in fibre over the great circle.
  2. The model depends on coordinates and constants only, so that every process has the same residuals.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from gtm.core.latency.cables import hub_distances, nearest_hubs
from gtm.core.model.geometry import FIBRE_MS_PER_KM, Vector, arc_km, square_of, unit_vector


class NetworkPath(NamedTuple):  # made for each region and place: a frozen dataclass takes three times as long
    """The way from a client to a region: great circle in km, estimated round-trip time in ms.

    `source` names the finest level of knowledge in the estimate: see `gtm.core.latency.levels.Source`.
    """

    distance_km: float
    estimate_ms: float
    source: str = "model"


@dataclass(frozen=True, slots=True)
class Parameters:
    """The straight line through routed distance: ms at distance 0, ms per km of way."""

    base_ms: float
    ms_per_km: float


# Least absolute deviations over the pairs of the 59 cities that may be tuned on (WonderNetwork city pings, November 2018),
# made by tests/bench/latency_fit.py. Light in fibre alone would need 0.01 ms/km; the rest is detours and queues.
SHIPPED = Parameters(base_ms=20.1, ms_per_km=0.01498)


class Point(NamedTuple):
    """Where a client or a region is, and the hubs through which it reaches the network, each with the way to it."""

    vector: Vector
    hubs: tuple[tuple[float, int], ...]


@dataclass(frozen=True, slots=True)
class Terminal:
    """A region's end of all ways to it: how far it is from each hub, in km."""

    point: Point
    hubs: frozenset[int]
    km_from: tuple[float, ...]


def point_at(lat: float, lon: float) -> Point:
    """The point at coordinates in degrees."""
    vector = unit_vector(lat, lon)
    return Point(vector, nearest_hubs(square_of(lat, lon), vector))


@lru_cache(maxsize=1024)
def terminal_at(lat: float, lon: float) -> Terminal:
    """The terminal at coordinates in degrees."""
    point = point_at(lat, lon)
    ways = [[km + length for length in hub_distances(hub)] for km, hub in point.hubs]
    return Terminal(
        point,
        frozenset(hub for _, hub in point.hubs),
        tuple(min(lengths) for lengths in zip(*ways, strict=True)),
    )


def route_km(client: Point, terminal: Terminal, direct_km: float) -> float:
    """How far the way along the network is; the great circle where both ends share a hub."""
    route = None
    for km, hub in client.hubs:
        if hub in terminal.hubs:
            return direct_km
        length = km + terminal.km_from[hub]
        if route is None or length < route:
            route = length
    return direct_km if route is None or route < direct_km else route


def model_ms(client: Point, terminal: Terminal, parameters: Parameters = SHIPPED) -> float:
    """The round trip between a client and a region, in ms, from geography alone."""
    direct = arc_km(client.vector, terminal.point.vector)
    estimate = parameters.base_ms + parameters.ms_per_km * route_km(client, terminal, direct)
    return max(FIBRE_MS_PER_KM * direct, estimate)
