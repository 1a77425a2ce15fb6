"""Points on the Earth: distances, and the squares that stand for places."""

from __future__ import annotations

from functools import lru_cache
from math import asin, cos, dist, floor, radians, sin, sqrt

EARTH_RADIUS_KM = 6371.0088
"""Mean radius of the IUGG."""

_DIAMETER_KM = 2 * EARTH_RADIUS_KM

FIBRE_MS_PER_KM = 0.01
"""The round trip of light in fibre, at two thirds of its speed in vacuum: no path can be quicker."""

Vector = tuple[float, float, float]
"""A point as a unit vector from the centre of the Earth."""

Square = tuple[int, int]
"""A place of one degree by one degree: the whole degrees of its south-western corner."""


def great_circle_km(lat1: float, lon1: float, lat2: float, lon2: float) -> float:
    """Distance over the sphere between two points in degrees (haversine formula), in km."""
    phi1, phi2 = radians(lat1), radians(lat2)
    half_dphi, half_dlambda = (phi2 - phi1) / 2, radians(lon2 - lon1) / 2
    chord = sin(half_dphi) ** 2 + cos(phi1) * cos(phi2) * sin(half_dlambda) ** 2
    return 2 * EARTH_RADIUS_KM * asin(sqrt(min(1.0, chord)))


def unit_vector(lat: float, lon: float) -> Vector:
    """The unit vector of a point in degrees."""
    phi, lam = radians(lat), radians(lon)
    across = cos(phi)
    return across * cos(lam), across * sin(lam), sin(phi)


def arc_km(one: Vector, other: Vector) -> float:
    """Distance over the sphere between two unit vectors, in km: `great_circle_km` without most of its sines."""
    return _DIAMETER_KM * asin(min(1.0, dist(one, other) / 2))


def square_of(lat: float, lon: float) -> Square:
    """The square around a point in degrees; the poles and the date line belong to the squares beside them."""
    return min(89, floor(lat)), (floor(lon) + 180) % 360 - 180


@lru_cache(maxsize=16_384)
def square_vector(square: Square) -> Vector:
    """The middle of a square, as a unit vector."""
    return unit_vector(square[0] + 0.5, square[1] + 0.5)


def square_key(square: Square) -> str:
    """A square as text: `52,13`."""
    return f"{square[0]},{square[1]}"


def parse_square(key: str) -> Square:
    """A square from its text.

    Raises:
        ValueError: it is no square of whole degrees.
    """
    lat, comma, lon = key.partition(",")
    try:
        square = int(lat), int(lon)
    except ValueError:
        square = (90, 180)
    if not comma or not (-90 <= square[0] <= 89 and -180 <= square[1] <= 179):
        raise ValueError(
            f"`{key}` is no square: expected whole degrees of latitude and longitude, such as `52,13`"
        )
    return square
