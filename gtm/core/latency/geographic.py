"""Round trips from geography alone: how far a client is from a region along the long-haul network.

Laws:
  1. No estimate is below the time of light in fibre over the great circle.
  2. The model depends on coordinates and constants only, so that every process has the same residuals.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from heapq import heappop, heappush
from itertools import combinations
from math import acos, cos, inf, pi
from typing import NamedTuple

from gtm.core.model.geometry import (
    EARTH_RADIUS_KM,
    FIBRE_MS_PER_KM,
    Square,
    Vector,
    arc_km,
    square_of,
    unit_vector,
)


class NetworkPath(NamedTuple):  # made for each region and place: a frozen dataclass takes three times as long
    """The way from a client to a region: great circle in km, estimated round-trip time in ms.

    `source` names the finest level of knowledge in the estimate: see `gtm.core.latency.squares.Source`.
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


# --- The long-haul network of the Internet, coarsely: where it meets, and which places cables and land routes join.
#
# Drawn by hand after what is publicly known of submarine and terrestrial cables, for the routes that most traffic took in
# 2018, the year of the measurements its constants come from; not after the measurements themselves. What matters is which
# ways do not exist: from Central Asia to India, or straight across Africa, traffic goes round by a hub far away. A place
# reaches the network through its nearest hubs.


_HUBS = """
seattle 47.6 -122.3, san-jose 37.4 -121.9, los-angeles 34.05 -118.25, denver 39.7 -105.0
dallas 32.8 -96.8, chicago 41.9 -87.6, atlanta 33.7 -84.4, ashburn 39.0 -77.5, new-york 40.7 -74.0
toronto 43.7 -79.4, montreal 45.5 -73.6, calgary 51.0 -114.1, winnipeg 49.9 -97.1, miami 25.8 -80.2
honolulu 21.3 -157.9, anchorage 61.2 -149.9, mexico 19.4 -99.1, guatemala 14.6 -90.5
panama 9.0 -79.5, san-juan 18.4 -66.1, bogota 4.7 -74.1, caracas 10.5 -66.9, quito -0.2 -78.5
lima -12.0 -77.0, santiago -33.4 -70.6, buenos-aires -34.6 -58.4, sao-paulo -23.5 -46.6
fortaleza -3.7 -38.5, brasilia -15.8 -47.9, london 51.5 -0.1, frankfurt 50.1 8.7, marseille 43.3 5.4
madrid 40.4 -3.7, lisbon 38.7 -9.1, milan 45.5 9.2, vienna 48.2 16.4, warsaw 52.2 21.0
stockholm 59.3 18.1, moscow 55.8 37.6, kyiv 50.5 30.5, sofia 42.7 23.3, istanbul 41.0 29.0
athens 38.0 23.7, reykjavik 64.1 -21.9, catania 37.5 15.1, tel-aviv 32.1 34.8, cairo 30.0 31.2
jeddah 21.5 39.2, riyadh 24.7 46.7, baghdad 33.3 44.4, tehran 35.7 51.4, baku 40.4 49.9
dubai 25.2 55.3, djibouti 11.6 43.1, addis-ababa 9.0 38.7, khartoum 15.5 32.5, nairobi -1.3 36.8
mombasa -4.0 39.7, dar-es-salaam -6.8 39.3, maputo -25.9 32.6, johannesburg -26.2 28.0
cape-town -33.9 18.4, luanda -8.8 13.2, kinshasa -4.3 15.3, lagos 6.5 3.4, accra 5.6 -0.2
dakar 14.7 -17.4, casablanca 33.6 -7.6, algiers 36.7 3.1, tunis 36.8 10.2, mauritius -20.2 57.5
almaty 43.2 76.9, astana 51.2 71.4, tashkent 41.3 69.2, yekaterinburg 56.8 60.6
novosibirsk 55.0 82.9, khabarovsk 48.5 135.1, karachi 24.9 67.0, mumbai 19.1 72.9, delhi 28.6 77.2
chennai 13.1 80.3, colombo 6.9 79.9, dhaka 23.8 90.4, yangon 16.8 96.2, bangkok 13.8 100.5
singapore 1.3 103.8, jakarta -6.2 106.8, saigon 10.8 106.7, hanoi 21.0 105.9, manila 14.6 121.0
hong-kong 22.3 114.2, taipei 25.0 121.5, shanghai 31.2 121.5, beijing 39.9 116.4, seoul 37.6 127.0
tokyo 35.7 139.7, ulaanbaatar 47.9 106.9, guam 13.4 144.8, perth -32.0 115.9, sydney -33.9 151.2
auckland -36.8 174.8, suva -18.1 178.4
"""
"""Names with degrees of latitude and longitude."""

_MESHES = (
    "seattle san-jose los-angeles denver dallas chicago atlanta ashburn new-york toronto montreal",
    "london frankfurt marseille madrid milan vienna warsaw stockholm sofia",
)
"""Hubs that are all joined to each other: North America, Europe."""

_LINKS = """
calgary: seattle winnipeg, winnipeg: chicago toronto, miami: atlanta ashburn dallas new-york
honolulu: los-angeles san-jose, anchorage: seattle, mexico: dallas los-angeles, guatemala: miami
panama: miami bogota quito, san-juan: miami new-york, bogota: miami caracas, caracas: miami
quito: lima bogota, lima: panama santiago, santiago: buenos-aires, buenos-aires: sao-paulo
sao-paulo: brasilia fortaleza, fortaleza: miami brasilia, london: new-york ashburn lisbon
madrid: lisbon, lisbon: dakar, catania: milan, moscow: warsaw stockholm frankfurt
kyiv: warsaw frankfurt moscow, istanbul: sofia, athens: sofia milan catania, reykjavik: london
tel-aviv: athens marseille, cairo: marseille jeddah catania, jeddah: djibouti riyadh, riyadh: dubai
baghdad: istanbul dubai, tehran: baku dubai, baku: sofia moscow, dubai: mumbai karachi
djibouti: mumbai mombasa addis-ababa dubai, khartoum: jeddah, nairobi: mombasa
mombasa: dar-es-salaam, dar-es-salaam: maputo, maputo: johannesburg, johannesburg: cape-town
cape-town: luanda, luanda: lagos kinshasa, lagos: accra, accra: dakar, dakar: casablanca
casablanca: madrid lisbon, algiers: marseille, tunis: marseille catania, mauritius: johannesburg
almaty: astana, astana: yekaterinburg, tashkent: astana, yekaterinburg: moscow novosibirsk
novosibirsk: khabarovsk, khabarovsk: tokyo, mumbai: delhi chennai, delhi: chennai
chennai: singapore, colombo: singapore mumbai, dhaka: chennai singapore, yangon: singapore
bangkok: singapore hong-kong, singapore: jakarta saigon hong-kong manila perth colombo tokyo
saigon: hong-kong, hanoi: hong-kong, manila: hong-kong guam
hong-kong: taipei shanghai beijing tokyo seoul, taipei: tokyo los-angeles, shanghai: beijing tokyo
seoul: tokyo, tokyo: seattle san-jose los-angeles guam, ulaanbaatar: beijing novosibirsk
guam: honolulu sydney, perth: sydney, sydney: auckland honolulu los-angeles suva, auckland: honolulu
suva: honolulu, madrid: ashburn
"""
"""Hubs, each with the hubs it is joined to."""

NEAREST = 2
"""Through how many of the hubs nearest to it a place reaches the network."""

_AREA_DEGREES = 5
# From the middle of an area of 5° by 5° to its corners, twice: what is nearest to a point of the area is at most this
# much farther from the middle than what is nearest to the middle.
_AREA_KM = 800.0


def _items(text: str) -> list[str]:
    return [item.strip() for line in text.strip().splitlines() for item in line.split(",") if item.strip()]


def _vectors() -> dict[str, Vector]:
    hubs = (item.split() for item in _items(_HUBS))
    return {name: unit_vector(float(lat), float(lon)) for name, lat, lon in hubs}


def _neighbours(vectors: dict[str, Vector]) -> tuple[tuple[tuple[int, float], ...], ...]:
    """For each hub, the hubs it is joined to and how far they are, in km."""
    pairs = [pair for mesh in _MESHES for pair in combinations(mesh.split(), 2)]
    for item in _items(_LINKS):
        hub, _, others = item.partition(":")
        pairs += [(hub, other) for other in others.split()]
    numbers = {name: number for number, name in enumerate(vectors)}
    joined: list[dict[int, float]] = [{} for _ in vectors]
    for one, other in pairs:
        km = arc_km(vectors[one], vectors[other])
        joined[numbers[one]][numbers[other]] = joined[numbers[other]][numbers[one]] = km
    return tuple(tuple(links.items()) for links in joined)


_BY_NAME = _vectors()
HUB_VECTORS = tuple(_BY_NAME.values())
_JOINED = _neighbours(_BY_NAME)


@lru_cache(maxsize=len(HUB_VECTORS))
def hub_distances(hub: int) -> tuple[float, ...]:
    """How far each hub is from one of them along the links, in km (Dijkstra's shortest paths)."""
    distances = [inf] * len(HUB_VECTORS)
    distances[hub] = 0.0
    queue = [(0.0, hub)]
    while queue:
        km, at = heappop(queue)
        if km > distances[at]:
            continue
        for other, length in _JOINED[at]:
            if km + length < distances[other]:
                distances[other] = km + length
                heappush(queue, (km + length, other))
    return tuple(distances)


@lru_cache(maxsize=4096)
def _hubs_near(area: tuple[int, int]) -> tuple[tuple[Vector, int], ...]:
    """The hubs that may be among the nearest of some point of an area of 5° by 5°: all others are too far from it."""
    x, y, z = unit_vector((area[0] + 0.5) * _AREA_DEGREES, (area[1] + 0.5) * _AREA_DEGREES)
    cosines = [x * u + y * v + z * w for u, v, w in HUB_VECTORS]
    angle = acos(min(1.0, sorted(cosines)[-NEAREST])) + _AREA_KM / EARTH_RADIUS_KM
    reach = cos(min(pi, angle))
    return tuple((HUB_VECTORS[hub], hub) for hub, cosine in enumerate(cosines) if cosine >= reach)


def nearest_hubs(square: Square, point: Vector) -> tuple[tuple[float, int], ...]:
    """The hubs nearest to a point of a square, with their distances in km."""
    near = _hubs_near((square[0] // _AREA_DEGREES, square[1] // _AREA_DEGREES))
    return tuple(sorted([(arc_km(point, vector), hub) for vector, hub in near])[:NEAREST])
