"""The round trip from a client to each region, from the geographic model and everything measured.

Each level of knowledge corrects what the coarser ones say, by as much as its samples are worth:

  model → regions' mutual round trips → country → places near the client → its own place → its operator → its network

Theory. The model is a straight line through the way along the long-haul network, base + slope × km
(`gtm.core.latency.geographic`). What was measured is kept as residuals above it, so that a client of a network can speak for
others elsewhere. A level with n samples moves the estimate by its gain, reach × n / (n + pseudo), of the way to what they say:
the posterior mean of a normal prior (the coarser estimate, worth `pseudo` samples) with n observations, which shrinks what is
little known towards what is better known. `reach` below 1 says that the level's clients differ, however many were measured.

A row holds some regions only, and its client's own access (a slow last mile) is in all of them. Were only these corrected, the
regions that were measured would look worse than those that were not. So each row is split: an offset common to its regions,
itself shrunk as by one more region without any, is added to *every* region; what a region's residual has beside that is added
to it alone. In `_absorb`, with gains g and residuals e above the coarser estimate:

  offset = Σ g·e / (1 + Σ g);   of a region in the row + offset + g · (e - offset);   of any other + offset

A square's knowledge (`gtm.core.latency.squares`) does the same with the places around it, by distance and with Huber's weights, and is
remembered; the country's row counts by as much as places say little (`SquareCorrection.coarse`).

Laws:
  1. No estimate is below the time of light in fibre over the great circle, unless it was measured with clients of the
     same network: then the location is wrong, not the clock.
  2. A location and what is `seen` of it have equal paths: nothing but that, the regions and the table is read. A region's path does
     not depend on which others are asked for.
  3. What a level knows of some regions only tells of the client's own access too: an offset common to those regions
     is believed of the others, or else the regions that were measured would look worse for it.
  4. A network whose location is doubtful counts as standing at the region that it is nearest to by its round trips
     (Katz-Bassett et al., "Towards IP geolocation using delay and topology measurements", 2006). Nothing is believed of
     it that was learned of the country, the operator or the place which the database claims.
  5. All that is said `alone`, at all levels together, moves an estimate by `ALONE_MS` at most from what geography and what several
     say make it.

Example. A client in Berlin, 422 km from Frankfurt and 6,732 km from Ashburn, and then what nine samples of its network add:
20 ms more than the model says to Frankfurt. Gain 9 / (9 + 1), offset 18 / 1.9 = 9.5 ms, which Ashburn gets too;
Frankfurt gets 9.5 + 0.9 × (20 - 9.5) = 18.9.

>>> fra, iad = Region("fra", 50.1, 8.7, "DE", ()), Region("iad", 39.0, -77.5, "US", ())
>>> berlin = Location("DE", lat=52.5, lon=13.4, network="192.0.2.0/24")
>>> def estimates(*residuals):
...     row = {name: (ms, samples) for name, ms, samples in residuals}
...     estimator = Estimator((fra, iad), LatencyTable(networks={"192.0.2.0/24": row} if row else {}))
...     return [(round(path.estimate_ms, 1), str(path.source)) for path in estimator.paths(berlin, (0, 1)).values()]
>>> estimates()
[(26.4, 'model'), (124.7, 'model')]
>>> estimates(("fra", 20.0, 9.0))
[(45.4, 'network'), (134.2, 'model')]

Measured with clients of its own network to be 25 ms quicker than the model, Frankfurt counts as that near, although light in
fibre would need 4.2 ms from Berlin: it is the place that is wrong.

>>> estimates(("fra", -25.0, 99.0))
[(1.5, 'network'), (112.3, 'model')]

Sources: Efron and Morris, "Stein's estimation rule and its competitors" (JASA 1973), shrinkage; Huber, "Robust estimation of a
location parameter" (1964); Tukey, "Exploratory Data Analysis" (1977), the median polish of mutual round trips; docs/latency.md
and docs/decisions/0005-latency-model.md, what was measured.
"""

from __future__ import annotations

from collections.abc import Sequence

from gtm.core.latency.doubt import Doubt
from gtm.core.latency.geographic import (
    SHIPPED,
    NetworkPath,
    Parameters,
    Point,
    model_ms,
    point_at,
    route_km,
    terminal_at,
)
from gtm.core.latency.squares import (
    ASN_TRUST,
    COUNTRY_TRUST,
    NETWORK_TRUST,
    Source,
    SquareCorrection,
    Squares,
    Trust,
    fit_mutual,
    offset,
)
from gtm.core.latency.table import ALONE_MS, EMPTY_TABLE, LatencyTable, Row, asn_key, network_key
from gtm.core.memory import Memory
from gtm.core.model.geometry import FIBRE_MS_PER_KM, Square, arc_km, parse_square, square_of
from gtm.core.model.regions import Region
from gtm.core.model.requests import Location

_Totals = dict[int, tuple[float, Source]]
"""By a region's number: what is added to the model in ms, and the finest level in it."""
_NOTHING: Row = {}
_MODEL_ALONE = (0.0, Source.MODEL)
MOST_BETWEEN = 100_000
"""Round trips between regions that are remembered."""
_LEAST_MS = 0.1
"""Estimates are no lower, whatever was measured."""


Seen = tuple[
    str | None,
    float | None,
    float | None,
    int | None,
    str | None,
    tuple[bool, float | None, tuple[str, ...], bool, str | None] | None,
]
"""What a ranking may read of a location: country, latitude, longitude, operator, network; then whether it is anonymous, its accuracy, spans,
whether it is in doubt, and whether it is a subnet. The last are None where an operator vouches for the place."""
ANY_SUBNET = "*"
"""A subnet of whose parts it is known whether one is in doubt."""


def location_of(seen: Seen) -> Location:
    """The location of which this is seen, and nothing else is known."""
    country, lat, lon, asn, network, facts = seen
    where = country, None, None, lat, lon, asn, network, 0
    # As `Location(…)`, in half of the time.
    if facts is None:
        return tuple.__new__(Location, (*where, "override", False, None, None, (), False, (), False))
    anonymous, accuracy_km, spans, doubtful, subnet = facts
    return tuple.__new__(Location, (*where, "", anonymous, accuracy_km, subnet, spans, False, (), doubtful))


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
        self._agreed = Estimator(regions, table.agreed(), parameters) if table.alone else None
        self._by_place = not (table.countries or table.asns or table.networks or table.doubts)
        self._parameters = parameters
        self._names = [region.name for region in regions]
        self._numbers = {name: number for number, name in enumerate(self._names)}
        self._places = [(region.lat, region.lon) for region in regions]
        self._terminals = [terminal_at(*place) for place in self._places]
        mutual = fit_mutual(self._names, self._terminals, table.mutual, parameters)
        measured = {parse_square(key): row for key, row in table.places.items()}
        self._squares = Squares(self._names, self._terminals, mutual, measured)

        self.between = Memory(self._from_region, MOST_BETWEEN, lambda _, row: len(row))
        """By a region's number: the round trip in ms from there to each region, by number."""

    def seen(self, location: Location) -> Seen:
        """All of a location that a ranking may read: what the fence looks at, and what the table tells clients apart by.

        Rankings are remembered by it, and made from the location that has it and nothing else (`location_of`). Whether a location is in
        doubt is found out here; the operator and the network are in it only if the table has them.
        """
        vouched = location.source == "override" and not location.spans
        if self._by_place:
            if vouched:
                return location.country, location.lat, location.lon, None, None, None
            plain = location.anonymous, location.accuracy_km, location.spans, location.doubtful, None
            return location.country, location.lat, location.lon, None, None, plain
        table = self.table
        asn = location.asn if table.asns and asn_key(location) in table.asns else None
        network = None
        if location.network is not None:
            key = network_key(location.network)
            if key in table.networks or table.doubt(location) is not None:
                network = key
        if vouched:
            return location.country, location.lat, location.lon, asn, network, None
        doubtful = location.doubtful or table.dubious(location)
        # Of a subnet it is known now whether a part is in doubt.
        subnet = ANY_SUBNET if location.subnet and table.doubts else None
        facts = location.anonymous, location.accuracy_km, location.spans, doubtful, subnet
        return location.country, location.lat, location.lon, asn, network, facts

    def placed(self, location: Location) -> Location:
        """A location, with what measurements say against it."""
        return location._replace(doubtful=True) if self.table.dubious(location) else location

    def paths(self, location: Location, members: Sequence[int]) -> dict[int, NetworkPath]:
        """The way from a client to each of the regions of these numbers; none if the client is nowhere known."""
        paths = self._by_all(location, members)
        if self._agreed is not None:
            for number, agreed in self._agreed.paths(location, members).items():
                least, most = agreed.estimate_ms - ALONE_MS, agreed.estimate_ms + ALONE_MS
                path = paths[number]
                if not least <= path.estimate_ms <= most:
                    paths[number] = path._replace(estimate_ms=max(least, min(most, path.estimate_ms)))
        return paths

    def _by_all(self, location: Location, members: Sequence[int]) -> dict[int, NetworkPath]:
        """`paths`, whoever said what."""
        lat, lon = location.lat, location.lon
        if lat is None or lon is None:
            return {}
        network = _network(self.table, location) if self.table.networks else None
        own = _NOTHING if network is None else self.table.networks[network]
        doubt = self.table.doubt(location)
        if doubt is None:
            return self._paths(location, (lat, lon), own, members, bound=FIBRE_MS_PER_KM)
        anchor = self._anchor(doubt)
        if anchor is None:
            return {}
        here = location._replace(country=None, asn=None)
        moved = self._rebased(own, point_at(lat, lon), self._terminals[anchor].point)
        return self._paths(here, self._places[anchor], moved, members, bound=0.0)

    def _paths(
        self,
        location: Location,
        place: tuple[float, float],
        own: Row,
        members: Sequence[int],
        *,
        bound: float,
    ) -> dict[int, NetworkPath]:
        """The ways from coordinates in degrees; `own` is the row of the client's network, `bound` in ms per km."""
        client = point_at(*place)
        corrections = self._corrections(location, square_of(*place), own, members)
        base_ms, ms_per_km = self._parameters.base_ms, self._parameters.ms_per_km
        terminals, paths = self._terminals, {}
        for number in members:
            terminal = terminals[number]
            direct = arc_km(client.vector, terminal.point.vector)
            correction, source = corrections[number]
            model = base_ms + ms_per_km * route_km(client, terminal, direct)
            floor = bound * direct
            if own and (measured := own.get(self._names[number])) is not None:
                floor = min(floor, model + measured[0])
            estimate = max(_LEAST_MS, floor, model + correction)
            # As `NetworkPath(…)`, in half of the time.
            paths[number] = tuple.__new__(NetworkPath, (direct, estimate, source))
        return paths

    def _from_region(self, number: int) -> dict[int, float]:
        lat, lon = self._places[number]
        paths = self.paths(Location(lat=lat, lon=lon), range(len(self._places)))
        return {to: path.estimate_ms for to, path in paths.items()}

    def _anchor(self, doubt: Doubt) -> int | None:
        """The number of the region that a network is nearest to by its round trips."""
        known = [(ms, name) for name, ms in doubt.fastest.items() if name in self._numbers]
        return self._numbers[min(known)[1]] if known else None

    def _rebased(self, row: Row, claimed: Point, there: Point) -> Row:
        """A row of residuals above the model from one point, as residuals from another."""
        moved: Row = {}
        for name, (residual, samples) in row.items():
            number = self._numbers.get(name)
            if number is not None:
                terminal = self._terminals[number]
                before = model_ms(claimed, terminal, self._parameters)
                after = model_ms(there, terminal, self._parameters)
                moved[name] = (residual + before - after, samples)
        return moved

    def _corrections(self, location: Location, square: Square, own: Row, members: Sequence[int]) -> _Totals:
        """What is added to the model for each member: the square's knowledge, and the rows that know this client.

        All regions of those rows are worked out: their offsets must not depend on which members are asked for.
        """
        country, finer = self._rows(location, own)
        if self._squares.empty and country is None and not finer:
            return dict.fromkeys(members, _MODEL_ALONE)
        wanted = members
        if country is not None or finer:
            rows = (
                [row for row, _, _ in finer] if country is None else [country, *(row for row, _, _ in finer)]
            )
            numbers = self._numbers
            wanted = sorted({*members, *(numbers[name] for row in rows for name in row if name in numbers)})
        found = self._squares.corrections(square, wanted)
        if country is None:
            totals = {number: (correction.ms, correction.source) for number, correction in found.items()}
        else:
            totals = self._with_country(found, country)
        for row, trust, source in finer:
            totals = self._absorb(totals, row, trust, source)
        return totals

    def _rows(self, location: Location, own: Row) -> tuple[Row | None, list[tuple[Row, Trust, Source]]]:
        """The row of the client's country, and those finer than its place, coarse to fine."""
        table = self.table
        finer = []
        if table.asns:
            operator = asn_key(location)
            row = None if operator is None else table.asns.get(operator)
            if row is not None:
                finer.append((row, ASN_TRUST, Source.ASN))
        if own:
            finer.append((own, NETWORK_TRUST, Source.NETWORK))
        return None if location.country is None else table.countries.get(location.country), finer

    def _with_country(self, found: dict[int, SquareCorrection], country: Row) -> _Totals:
        """The square's knowledge with the country's row, which counts where places say little."""
        before = {number: (correction.mutual, correction.source) for number, correction in found.items()}
        after = self._absorb(before, country, COUNTRY_TRUST, Source.COUNTRY)
        totals = {}
        for number, (ms, source) in after.items():
            correction = found[number]
            finer = correction.source in {Source.NEARBY, Source.PLACE}
            added = correction.coarse * (ms - correction.mutual)
            totals[number] = (correction.ms + added, correction.source if finer else source)
        return totals

    def _absorb(self, totals: _Totals, row: Row, trust: Trust, source: Source) -> _Totals:
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


def _network(table: LatencyTable, location: Location) -> str | None:
    """The key of the client's network, if the table has it."""
    if location.network is None:
        return None
    key = network_key(location.network)
    return key if key in table.networks else None
