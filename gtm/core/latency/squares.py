"""What is known of round trips at a place: from the regions' mutual ones, from measured places around, from its own.

A square's knowledge is worked out at its middle, once for each region that is asked for, and remembered.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from heapq import nlargest
from math import acos, cos, exp, pi
from operator import mul
from typing import NamedTuple

from gtm.core.latency.geographic import Parameters, Terminal, model_ms
from gtm.core.latency.table import Row
from gtm.core.model.geometry import EARTH_RADIUS_KM, Square, Vector, arc_km, square_vector, unit_vector

REGIONS_KM = 3000.0
"""By how much farther a region may be from the client until what it measured counts 1/e as much."""
NEARBY = 8
"""How many measured places around the client's are read."""
NEARBY_KM = 3000.0
"""By how much farther a measured place may be from the client until what it measured counts 1/e as much."""
NEARBY_PRIOR = 0.1
"""The weight of the coarser estimate beside them: that of a place some 7,000 km away."""
AGREED_MS = 30.0
"""A place that differs from those around it by more counts for less (Huber's weights)."""

_AREA_DEGREES = 5
_AREA_KM = 800.0
"""From the middle of an area of 5° by 5° to its corners, twice."""
MOST_SQUARES = 8192
"""How many squares of clients are remembered."""


class SquareCorrection(NamedTuple):
    """What a square's knowledge adds to the model for a region: `ms`, and `coarse` of what the country's row adds."""

    mutual: float
    ms: float
    coarse: float
    source: Source


@dataclass(slots=True, eq=False)
class _SquareView:
    """What is known at a square, worked out once for each region that is asked for."""

    square: Square
    weights: list[float]
    own: Row
    mutuals: dict[int, float] = field(default_factory=dict)
    corrections: dict[int, SquareCorrection] = field(default_factory=dict)
    neighbours: list[tuple[float, _Place]] | None = None
    own_offset: float | None = None


@dataclass(frozen=True, slots=True)
class _Place:
    """A measured place as its neighbours use it: its access offset, and each region's remainder with its gain."""

    offset: float
    remainders: dict[int, tuple[float, float]]


def _agreed(seen: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """What (weight, remainder) pairs agree on in ms, shrunk by `NEARBY_PRIOR`; and the sum of their weights.

    A weighted mean, and two steps from it towards Huber's M-estimate.
    """
    above = total = 0.0
    for weight, rest in seen:
        above += weight * rest
        total += weight
    centre = above / (NEARBY_PRIOR + total)
    for _ in range(2):
        above, below = 0.0, NEARBY_PRIOR
        for weight, rest in seen:
            away = abs(rest - centre)
            believed = weight if away <= AGREED_MS else weight * AGREED_MS / away
            above += believed * rest
            below += believed
        centre = above / below
    return centre, total


class Squares:
    """Corrections to the geographic model, by square and region.

    Args:
        names: of the regions, in the order of their numbers.
        terminals: of the regions.
        mutual: what the regions' mutual round trips say, if there are any.
        places: the measured squares.
    """

    def __init__(
        self,
        names: Sequence[str],
        terminals: Sequence[Terminal],
        mutual: MutualFit | None,
        places: Mapping[Square, Row],
    ) -> None:
        self._names = names
        self._numbers = {name: number for number, name in enumerate(names)}
        self._terminals = terminals
        self._mutual = mutual
        self._places = places
        self._vectors = [(square_vector(square), square) for square in places]
        self._areas: dict[Square, list[tuple[Vector, Square]]] = {}
        self._measured: dict[Square, _Place] = {}
        self._squares: dict[Square, _SquareView] = {}
        self.empty = mutual is None and not places
        """Whether nothing was measured: no correction is other than 0."""

    def corrections(self, square: Square, numbers: Iterable[int]) -> dict[int, SquareCorrection]:
        """What is known at a square of each of some regions."""
        view = self._view(square)
        return {number: view.corrections.get(number) or self._correct(view, number) for number in numbers}

    def _view(self, square: Square) -> _SquareView:
        view = self._squares.get(square)
        if view is None:
            weights = []
            if self._mutual is not None:
                middle = square_vector(square)
                weights = [
                    exp(-arc_km(middle, terminal.point.vector) / REGIONS_KM) for terminal in self._terminals
                ]
            view = _SquareView(square, weights, self._places.get(square, {}))
            if len(self._squares) >= MOST_SQUARES:
                self._squares = {}
            self._squares[square] = view
        return view

    def _mutual_at(self, view: _SquareView, number: int) -> float:
        """What the regions' mutual round trips add for a region: its own offset, and what those nearby saw."""
        if self._mutual is None:
            return 0.0
        known = view.mutuals.get(number)
        if known is None:
            seen = sum(map(mul, view.weights, self._mutual.seen[number]))
            rest = sum(map(mul, view.weights, self._mutual.remainders[number]))
            known = view.mutuals[number] = self._mutual.offsets[number] + rest / (1 + seen)
        return known

    def _correct(self, view: _SquareView, number: int) -> SquareCorrection:
        """What is known at a square of a region, remembered."""
        ms, coarse, source = self._around(view, number)
        row = view.own
        if row:
            if view.own_offset is None:
                gains = []
                for name, (residual, samples) in row.items():
                    other = self._numbers.get(name)
                    if other is not None:
                        gains.append((PLACE_TRUST.gain(samples), residual - self._around(view, other)[0]))
                view.own_offset = offset(gains)
            ms += view.own_offset
            measured = row.get(self._names[number])
            if measured is not None:
                gain = PLACE_TRUST.gain(measured[1])
                ms += gain * (measured[0] - ms)
                coarse *= 1 - gain
                source = Source.PLACE
        correction = view.corrections[number] = SquareCorrection(
            self._mutual_at(view, number), ms, coarse, source
        )
        return correction

    def _around(self, view: _SquareView, number: int) -> tuple[float, float, Source]:
        """What is known of a region around a square, its own row aside; the share left to the country's row; whence."""
        mutual = self._mutual_at(view, number)
        source = Source.MODEL if self._mutual is None else Source.REGIONS
        if not self._places:
            return mutual, 1.0, source
        if view.neighbours is None:
            view.neighbours = self.neighbours(view.square)
        access = access_weight = 0.0
        seen: list[tuple[float, float]] = []
        for weight, place in view.neighbours:
            access += weight * place.offset
            access_weight += weight
            known = place.remainders.get(number)
            if known is not None:
                seen.append((weight * known[0], known[1]))
        access /= NEARBY_PRIOR + access_weight
        if not seen:
            return mutual + access, 1.0, source
        centre, total = _agreed(seen)
        return mutual + access + centre, NEARBY_PRIOR / (NEARBY_PRIOR + total), Source.NEARBY

    def neighbours(self, square: Square) -> list[tuple[float, _Place]]:
        """The measured places nearest to a square, itself aside, with their weights."""
        area = (square[0] // _AREA_DEGREES, square[1] // _AREA_DEGREES)
        candidates = self._areas.get(area)
        if candidates is None:
            candidates = self._areas[area] = self._candidates(area)
        x, y, z = square_vector(square)
        near = nlargest(
            NEARBY, [(x * u + y * v + z * w, other) for (u, v, w), other in candidates if other != square]
        )
        return [
            (exp(-EARTH_RADIUS_KM * acos(min(1.0, cosine)) / NEARBY_KM), self._place(other))
            for cosine, other in near
        ]

    def _candidates(self, area: Square) -> list[tuple[Vector, Square]]:
        """The measured places that may be among the nearest of some square of an area."""
        if len(self._vectors) <= 2 * NEARBY:
            return self._vectors
        x, y, z = unit_vector((area[0] + 0.5) * _AREA_DEGREES, (area[1] + 0.5) * _AREA_DEGREES)
        cosines = [x * u + y * v + z * w for (u, v, w), _ in self._vectors]
        angle = acos(max(-1.0, min(1.0, nlargest(NEARBY + 1, cosines)[-1]))) + _AREA_KM / EARTH_RADIUS_KM
        reach = cos(min(pi, angle))
        return [place for cosine, place in zip(cosines, self._vectors, strict=True) if cosine >= reach]

    def _place(self, square: Square) -> _Place:
        """A measured place, its offset apart from what is particular to each region."""
        place = self._measured.get(square)
        if place is None:
            view = self._view(square)
            gains = {}
            for name, (residual, samples) in self._places[square].items():
                number = self._numbers.get(name)
                if number is not None:
                    gains[number] = (PLACE_TRUST.gain(samples), residual - self._mutual_at(view, number))
            common = offset(gains.values())
            place = self._measured[square] = _Place(
                common, {number: (gain, residual - common) for number, (gain, residual) in gains.items()}
            )
        return place


# --- The levels of knowledge in an estimate, and how far each is believed. ---


class Source(StrEnum):
    """The finest level of knowledge in an estimate."""

    MODEL = "model"
    REGIONS = "regions"
    """The regions' mutual round trips."""
    COUNTRY = "country"
    NEARBY = "nearby"
    """Measured in places near the client's."""
    PLACE = "place"
    """Measured in the client's own square."""
    ASN = "asn"
    """Measured with clients of the same operator in the same country."""
    NETWORK = "network"


@dataclass(frozen=True, slots=True)
class Trust:
    """How far a level's samples count: n of them correct a coarser estimate by the share reach × n / (n + pseudo)."""

    pseudo: float
    reach: float

    def gain(self, samples: float) -> float:
        """The share (0–1) of the way from the coarser estimate to what so many samples say."""
        return self.reach * samples / (samples + self.pseudo)


# A country and an operator span places that differ, so that no number of samples is believed of all their clients.
COUNTRY_TRUST = Trust(pseudo=10.0, reach=0.5)
ASN_TRUST = Trust(pseudo=5.0, reach=0.5)
PLACE_TRUST = Trust(pseudo=1.0, reach=1.0)
NETWORK_TRUST = Trust(pseudo=1.0, reach=1.0)


def offset(gains: Collection[tuple[float, float]]) -> float:
    """The offset common to several regions, from (gain, residual) of each; shrunk as by one region without any."""
    return sum(gain * residual for gain, residual in gains) / (1 + sum(gain for gain, _ in gains))


# --- What the regions' round trips to each other say about each region, beyond the geographic model. ---


_ROUNDS = 3


@dataclass(frozen=True, slots=True)
class MutualFit:
    """By the regions' numbers: each one's `offsets` in ms; and for pairs, what both offsets leave unexplained.

    `remainders[a][b]` in ms, and `seen[a][b]` 1.0; both 0.0 where the pair was not measured.
    """

    offsets: list[float]
    remainders: list[list[float]]
    seen: list[list[float]]


def fit_mutual(
    names: Sequence[str],
    terminals: Sequence[Terminal],
    mutual: Mapping[str, Mapping[str, float]],
    parameters: Parameters,
) -> MutualFit | None:
    """Split the round trips between regions into an offset of each region and a remainder of each pair.

    A round trip is the same both ways, so the lower of two measurements has the fewer queues in it. A region's offset
    is the median over the others (a median polish: Tukey, "Exploratory Data Analysis", 1977), shrunk toward 0 as by
    one more region that says 0.

    Returns:
        None if no two of the regions were measured.
    """
    measured = _residuals(names, terminals, mutual, parameters)
    if not any(measured):
        return None
    offsets = [0.0] * len(names)
    for _ in range(_ROUNDS):
        offsets = [
            _median([residual - offsets[other] for other, residual in row.items()])
            * len(row)
            / (len(row) + 1)
            if row
            else 0.0
            for row in measured
        ]
    remainders = [[0.0] * len(names) for _ in names]
    seen = [[0.0] * len(names) for _ in names]
    for number, row in enumerate(measured):
        for other, residual in row.items():
            remainders[number][other] = residual - offsets[number] - offsets[other]
            seen[number][other] = 1.0
    return MutualFit(offsets, remainders, seen)


def _residuals(
    names: Sequence[str],
    terminals: Sequence[Terminal],
    mutual: Mapping[str, Mapping[str, float]],
    parameters: Parameters,
) -> list[dict[int, float]]:
    """For each region, the others it shares a measurement with, and how far that is above the model, in ms."""
    numbers = {name: number for number, name in enumerate(names)}
    lowest: dict[tuple[int, int], float] = {}
    for name, others in mutual.items():
        one = numbers.get(name)
        if one is None:
            continue
        for other_name, ms in others.items():
            other = numbers.get(other_name)
            if other is not None and other != one:
                pair = (one, other) if one < other else (other, one)
                lowest[pair] = min(ms, lowest.get(pair, ms))
    residuals: list[dict[int, float]] = [{} for _ in names]
    for (one, other), ms in lowest.items():
        residuals[one][other] = residuals[other][one] = ms - model_ms(
            terminals[one].point, terminals[other], parameters
        )
    return residuals


def _median(values: list[float]) -> float:
    values.sort()
    middle = len(values) // 2
    return values[middle] if len(values) % 2 else (values[middle - 1] + values[middle]) / 2
