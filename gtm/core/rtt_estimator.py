"""The round trip from a client to each region, from the geographic model and everything measured.

Each level of knowledge corrects what the coarser ones say, by as much as its samples are worth:

  model → regions' mutual round trips → country → places near the client → its own place → its operator → its network

Laws:
  1. No estimate is below the time of light in fibre over the great circle.
  2. Equal keys have equal paths: nothing but the location, the regions and the table is read.
  3. What a level knows of some regions only tells of the client's own access too: an offset common to those regions
     is believed of the others, or else the regions that were measured would look worse for it.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from heapq import nlargest
from math import acos, cos, exp, pi
from operator import mul

from gtm.core.geometry import (
    EARTH_RADIUS_KM,
    FIBRE_MS_PER_KM,
    Cell,
    Vector,
    arc_km,
    cell_of,
    cell_vector,
    parse_cell,
    unit_vector,
)
from gtm.core.model import Location, Region
from gtm.core.rtt_model import SHIPPED, NetworkPath, Parameters, point_at, route_km, terminal_at
from gtm.core.rtt_mutual import MutualFit, fit_mutual
from gtm.core.rtt_table import EMPTY_TABLE, LatencyTable, Row, asn_key


class Source(StrEnum):
    """The finest level of knowledge in an estimate."""

    MODEL = "model"
    REGIONS = "regions"
    """The regions' mutual round trips."""
    COUNTRY = "country"
    NEARBY = "nearby"
    """Measured in places near the client's."""
    PLACE = "place"
    """Measured in the client's own cell."""
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

REGIONS_KM = 3000.0
"""By how much farther a region may be from the client until what it measured counts 1/e as much."""
NEARBY = 8
"""How many measured places around the client's are read."""
NEARBY_KM = 1500.0
"""As `REGIONS_KM`, for places."""
NEARBY_PRIOR = 0.1
"""The weight of the coarser estimate beside them: that of a place some 3,500 km away."""
AGREED_MS = 30.0
"""A place that differs from those around it by more counts for less (Huber's weights)."""

_AREA_DEGREES = 5
_AREA_KM = 800.0
"""From the middle of an area of 5° by 5° to its corners, twice."""
_CELLS = 8192
"""How many cells of clients are remembered."""


def offset(gains: Collection[tuple[float, float]]) -> float:
    """The offset common to several regions, from (gain, residual) of each; shrunk as by one region without any."""
    return sum(gain * residual for gain, residual in gains) / (1 + sum(gain for gain, _ in gains))


@dataclass(frozen=True, slots=True)
class _Correction:
    """What a cell's knowledge adds to the model for a region: `ms`, and `coarse` of what the country's row adds."""

    mutual: float
    ms: float
    coarse: float
    source: Source


class _CellView:
    """What is known at a cell, worked out once for each region that is asked for."""

    __slots__ = ("cell", "corrections", "mutuals", "neighbours", "own", "own_offset", "weights")

    def __init__(self, cell: Cell, weights: list[float]) -> None:
        self.cell = cell
        self.weights = weights
        self.mutuals: dict[int, float] = {}
        self.corrections: dict[int, _Correction] = {}
        self.neighbours: list[tuple[float, _Place]] | None = None
        self.own: Row = {}
        self.own_offset: float | None = None


@dataclass(frozen=True, slots=True)
class _Place:
    """A measured place as its neighbours use it: its access offset, and each region's remainder with its gain."""

    offset: float
    remainders: dict[int, tuple[float, float]]


class Estimator:
    """Estimates for the regions of one policy from one table.

    Any number of threads may ask; what is remembered is a pure function's values.

    Args:
        regions: in the order of their numbers.
        table: what was measured.
        parameters: of the geographic model. A table's residuals hold for one set of them.
    """

    def __init__(
        self,
        regions: Sequence[Region],
        table: LatencyTable = EMPTY_TABLE,
        parameters: Parameters = SHIPPED,
    ) -> None:
        self.table = table
        self._parameters = parameters
        self._names = [region.name for region in regions]
        self._numbers = {name: number for number, name in enumerate(self._names)}
        self._terminals = [terminal_at(region.lat, region.lon) for region in regions]
        self._mutual: MutualFit | None = fit_mutual(self._names, self._terminals, table.mutual, parameters)
        self._places: dict[Cell, Row] = {parse_cell(key): row for key, row in table.places.items()}
        self._vectors = [(cell_vector(cell), cell) for cell in self._places]
        self._areas: dict[Cell, list[tuple[Vector, Cell]]] = {}
        self._measured: dict[Cell, _Place] = {}
        self._cells: dict[Cell, _CellView] = {}

    def key(self, location: Location) -> Hashable:
        """All that `paths` depends on. The country, operator and network are in it only if the table has them."""
        table = self.table
        country = location.country if location.country in table.countries else None
        network = location.network if location.network in table.networks else None
        operator = asn_key(location) if table.asns else None
        if operator not in table.asns:
            operator = None
        return location.lat, location.lon, country, operator, network

    def paths(self, location: Location, members: Sequence[int]) -> dict[int, NetworkPath]:
        """The way from a client to each of the regions of these numbers; none if the client is nowhere known."""
        lat, lon = location.lat, location.lon
        if lat is None or lon is None:
            return {}
        client = point_at(lat, lon)
        view = self._view(cell_of(lat, lon))
        country, finer = self._rows(location)
        corrections = (
            self._with_rows(view, members, country, finer)
            if country is not None or finer
            else self._plain(view, members)
        )
        base_ms, ms_per_km = self._parameters.base_ms, self._parameters.ms_per_km
        paths = {}
        for number in members:
            terminal = self._terminals[number]
            direct = arc_km(client.vector, terminal.point.vector)
            correction, source = corrections[number]
            estimate = base_ms + ms_per_km * route_km(client, terminal, direct) + correction
            floor = FIBRE_MS_PER_KM * direct
            paths[number] = NetworkPath(direct, max(floor, estimate), source)
        return paths

    def _rows(self, location: Location) -> tuple[Row | None, list[tuple[Row, Trust, Source]]]:
        """The row of the client's country, and those finer than its place, coarse to fine."""
        table = self.table
        finer = []
        if table.asns:
            operator = asn_key(location)
            row = None if operator is None else table.asns.get(operator)
            if row is not None:
                finer.append((row, ASN_TRUST, Source.ASN))
        row = None if location.network is None else table.networks.get(location.network)
        if row is not None:
            finer.append((row, NETWORK_TRUST, Source.NETWORK))
        return None if location.country is None else table.countries.get(location.country), finer

    def _plain(self, view: _CellView, members: Sequence[int]) -> dict[int, tuple[float, Source]]:
        """The corrections where neither country nor operator nor network was measured."""
        found = {}
        for number in members:
            correction = view.corrections.get(number) or self._correct(view, number)
            found[number] = (correction.ms, correction.source)
        return found

    def _with_rows(
        self,
        view: _CellView,
        members: Sequence[int],
        country: Row | None,
        finer: list[tuple[Row, Trust, Source]],
    ) -> dict[int, tuple[float, Source]]:
        """The corrections from the cell's knowledge and the rows that know this client.

        Where a row lacks a member, what it knows of all its regions is needed for the offset (law 3).
        """
        numbers = self._numbers
        wanted: Collection[int] = members
        rows = [row for row, _, _ in finer] if country is None else [country, *(row for row, _, _ in finer)]
        if any(self._names[number] not in row for row in rows for number in members):
            wanted = {*members, *(numbers[name] for row in rows for name in row if name in numbers)}
        found = {number: view.corrections.get(number) or self._correct(view, number) for number in wanted}
        totals = {number: (correction.ms, correction.source) for number, correction in found.items()}
        if country is not None:
            mutual = {number: (correction.mutual, Source.REGIONS) for number, correction in found.items()}
            moved = self._absorb(mutual, country, COUNTRY_TRUST, Source.COUNTRY)
            for number, correction in found.items():
                added = moved[number][0] - correction.mutual
                coarser = correction.source in {Source.MODEL, Source.REGIONS}
                source = (
                    moved[number][1] if coarser and moved[number][1] is Source.COUNTRY else correction.source
                )
                totals[number] = (correction.ms + correction.coarse * added, source)
        for row, trust, source in finer:
            totals = self._absorb(totals, row, trust, source)
        return totals

    def _absorb(
        self, totals: dict[int, tuple[float, Source]], row: Row, trust: Trust, source: Source
    ) -> dict[int, tuple[float, Source]]:
        """Corrections with one more row: first its offset for all regions, then each region's own remainder."""
        gains: dict[int, tuple[float, float]] = {}
        for number, (ms, _) in totals.items():
            measured = row.get(self._names[number])
            if measured is not None:
                gains[number] = (trust.gain(measured[1]), measured[0] - ms)
        common = offset(gains.values())
        absorbed = {}
        for number, (ms, before) in totals.items():
            gain = gains.get(number)
            if gain is None:
                absorbed[number] = (ms + common, before)
            else:
                absorbed[number] = (ms + common + gain[0] * (gain[1] - common), source)
        return absorbed

    def _view(self, cell: Cell) -> _CellView:
        view = self._cells.get(cell)
        if view is None:
            weights = []
            if self._mutual is not None:
                middle = cell_vector(cell)
                weights = [
                    exp(-arc_km(middle, terminal.point.vector) / REGIONS_KM) for terminal in self._terminals
                ]
            view = _CellView(cell, weights)
            view.own = self._places.get(cell, {})
            if len(self._cells) >= _CELLS:
                self._cells = {}
            self._cells[cell] = view
        return view

    def _mutual_at(self, view: _CellView, number: int) -> float:
        """What the regions' mutual round trips add for a region: its own offset, and what those nearby saw."""
        if self._mutual is None:
            return 0.0
        known = view.mutuals.get(number)
        if known is None:
            seen = sum(map(mul, view.weights, self._mutual.seen[number]))
            rest = sum(map(mul, view.weights, self._mutual.remainders[number]))
            known = view.mutuals[number] = self._mutual.offsets[number] + rest / (1 + seen)
        return known

    def _correct(self, view: _CellView, number: int) -> _Correction:
        """What is known at a cell of a region, remembered."""
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
        correction = view.corrections[number] = _Correction(self._mutual_at(view, number), ms, coarse, source)
        return correction

    def _around(self, view: _CellView, number: int) -> tuple[float, float, Source]:
        """What is known of a region around a cell, its own row aside; the share left to the country's row; whence."""
        mutual = self._mutual_at(view, number)
        source = Source.MODEL if self._mutual is None else Source.REGIONS
        if not self._places:
            return mutual, 1.0, source
        if view.neighbours is None:
            view.neighbours = self._neighbours(view.cell)
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
        total = sum(weight for weight, _ in seen)
        centre = sum(weight * rest for weight, rest in seen) / (NEARBY_PRIOR + total)
        for _ in range(2):
            agreed = [
                (weight * min(1.0, AGREED_MS / (abs(rest - centre) or 1.0)), rest) for weight, rest in seen
            ]
            centre = sum(weight * rest for weight, rest in agreed) / (
                NEARBY_PRIOR + sum(weight for weight, _ in agreed)
            )
        return mutual + access + centre, NEARBY_PRIOR / (NEARBY_PRIOR + total), Source.NEARBY

    def _neighbours(self, cell: Cell) -> list[tuple[float, _Place]]:
        """The measured places nearest to a cell, itself aside, with their weights."""
        area = (cell[0] // _AREA_DEGREES, cell[1] // _AREA_DEGREES)
        candidates = self._areas.get(area)
        if candidates is None:
            candidates = self._areas[area] = self._candidates(area)
        x, y, z = cell_vector(cell)
        near = nlargest(
            NEARBY, [(x * u + y * v + z * w, other) for (u, v, w), other in candidates if other != cell]
        )
        return [
            (exp(-EARTH_RADIUS_KM * acos(min(1.0, cosine)) / NEARBY_KM), self._place(other))
            for cosine, other in near
        ]

    def _candidates(self, area: Cell) -> list[tuple[Vector, Cell]]:
        """The measured places that may be among the nearest of some cell of an area."""
        if len(self._vectors) <= 2 * NEARBY:
            return self._vectors
        x, y, z = unit_vector((area[0] + 0.5) * _AREA_DEGREES, (area[1] + 0.5) * _AREA_DEGREES)
        cosines = [x * u + y * v + z * w for (u, v, w), _ in self._vectors]
        angle = acos(max(-1.0, min(1.0, nlargest(NEARBY + 1, cosines)[-1]))) + _AREA_KM / EARTH_RADIUS_KM
        reach = cos(min(pi, angle))
        return [place for cosine, place in zip(cosines, self._vectors, strict=True) if cosine >= reach]

    def _place(self, cell: Cell) -> _Place:
        """A measured place, its offset apart from what is particular to each region."""
        place = self._measured.get(cell)
        if place is None:
            view = self._view(cell)
            gains = {}
            for name, (residual, samples) in self._places[cell].items():
                number = self._numbers.get(name)
                if number is not None:
                    gains[number] = (PLACE_TRUST.gain(samples), residual - self._mutual_at(view, number))
            common = offset(gains.values())
            place = self._measured[cell] = _Place(
                common, {number: (gain, residual - common) for number, (gain, residual) in gains.items()}
            )
        return place
