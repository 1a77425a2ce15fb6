"""Estimates of round trips: the geographic model, and what is measured on top of it."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gtm.core.latency import squares as rtt_squares
from gtm.core.latency.estimator import Estimator, location_of
from gtm.core.latency.geographic import (
    HUB_VECTORS,
    NEAREST,
    SHIPPED,
    NetworkPath,
    hub_distances,
    model_ms,
    point_at,
    terminal_at,
)
from gtm.core.latency.squares import Source
from gtm.core.latency.table import EMPTY_TABLE, LatencyTable
from gtm.core.model.geometry import (
    FIBRE_MS_PER_KM,
    arc_km,
    great_circle_km,
    parse_square,
    square_key,
    square_of,
    square_vector,
    unit_vector,
)
from gtm.core.model.regions import Region
from gtm.core.model.requests import Location, location_facts
from tests import worlds
from tests.core.strategies import quick
from tests.memory import held

FRANKFURT, VIRGINIA = worlds.regions("eu-central us-east")
SINGAPORE = Region("ap-southeast", 1.35, 103.82, "SG", ())
SYDNEY = Region("ap-south", -33.87, 151.21, "AU", ())
REGIONS = (FRANKFURT, VIRGINIA, SINGAPORE, SYDNEY)
NAMES = tuple(region.name for region in REGIONS)
ALL = range(len(REGIONS))
BERLIN = Location("DE", None, "EU", 52.52, 13.4, 3320, "192.0.2.0/24", 24, "geoip")

latitudes = st.floats(-90, 90, allow_nan=False)
longitudes = st.floats(-180, 180, allow_nan=False)
round_trips = st.floats(1, 800)
residuals = st.floats(-300, 800)
rows = st.dictionaries(
    st.sampled_from([*NAMES, "gone"]), st.tuples(residuals, st.floats(0.5, 500)), max_size=4
)
PLACES = ("52,13", "50,8", "48,2", "-34,151", "1,103", "40,-74", "-90,179", "89,-180", "0,0", "35,139")
NETWORKS = ("192.0.2.0/24", "198.51.100.0/24")


@st.composite
def tables(draw: st.DrawFn) -> LatencyTable:
    """Tables of a few rows at every level, of regions the policy has and of one it does not."""
    names = st.sampled_from([*NAMES, "gone"])
    return LatencyTable(
        version=draw(st.integers(0, 9)),
        mutual=draw(st.dictionaries(names, st.dictionaries(names, round_trips, max_size=4), max_size=4)),
        networks=draw(st.dictionaries(st.sampled_from(NETWORKS), rows, max_size=2)),
        asns=draw(st.dictionaries(st.sampled_from(("3320|DE", "16509|US")), rows, max_size=2)),
        countries=draw(st.dictionaries(st.sampled_from(("DE", "US")), rows, max_size=2)),
        places=draw(st.dictionaries(st.sampled_from(PLACES), rows, max_size=8)),
    )


@st.composite
def locations(draw: st.DrawFn) -> Location:
    """Clients that rows of `tables` may know."""
    lat, lon = draw(
        st.sampled_from(((52.5, 13.4), (52.9, 13.1), (50.1, 8.6), (-33.8, 151.2)))
        | st.tuples(latitudes, longitudes)
    )
    return Location(
        draw(st.sampled_from((None, "DE", "US", "FR"))),
        None,
        None,
        lat,
        lon,
        draw(st.sampled_from((None, 3320, 16509, 1))),
        draw(st.sampled_from((None, *NETWORKS, "203.0.113.0/24"))),
    )


def estimates(table: LatencyTable, location: Location = BERLIN) -> dict[str, float]:
    """Every region's estimate."""
    found = Estimator(REGIONS, table).paths(location, ALL)
    return {NAMES[number]: path.estimate_ms for number, path in found.items()}


def everywhere(ms: float, samples: float) -> dict[str, tuple[float, float]]:
    """A row of equal residuals."""
    return dict.fromkeys(NAMES, (ms, samples))


@quick(100)
@given(latitudes, longitudes, latitudes, longitudes)
def test_vectors_measure_as_the_haversine_formula(lat1: float, lon1: float, lat2: float, lon2: float) -> None:
    """Unit vectors give the same distances as coordinates do."""
    km = arc_km(unit_vector(lat1, lon1), unit_vector(lat2, lon2))
    assert km == pytest.approx(great_circle_km(lat1, lon1, lat2, lon2), abs=0.01)


@quick(200)
@given(latitudes, longitudes)
def test_a_cell_is_around_its_points(lat: float, lon: float) -> None:
    """A square's key reads back, and its middle is within 80 km of all its points."""
    square = square_of(lat, lon)
    assert parse_square(square_key(square)) == square
    assert arc_km(square_vector(square), unit_vector(lat, lon)) <= 80


@pytest.mark.parametrize("key", ["", "52", "52,", "52,x", "90,0", "0,180", "-91,0", "52,13,1", "5.2,1"])
def test_what_is_no_cell_is_refused(key: str) -> None:
    """A table with a place that is nowhere cannot be made."""
    with pytest.raises(ValueError, match="no square"):
        LatencyTable(places={key: {}})


def test_all_hubs_are_joined() -> None:
    """From each hub there is a way to every other, no shorter than the great circle, and as long both ways."""
    distances = [hub_distances(hub) for hub in range(len(HUB_VECTORS))]
    for one, row in enumerate(distances):
        for other, km in enumerate(row):
            assert km < 40_000, (HUB_VECTORS[one], HUB_VECTORS[other])
            assert km == pytest.approx(distances[other][one])


@quick(200)
@given(latitudes, longitudes)
@example(90.0, 0.0)
@example(-90.0, 180.0)
@example(0.0, -180.0)
def test_no_hub_is_nearer_than_those_that_a_place_uses(lat: float, lon: float) -> None:
    """As by a look at all of them."""
    here = unit_vector(lat, lon)
    every = sorted((arc_km(here, vector), hub) for hub, vector in enumerate(HUB_VECTORS))
    assert point_at(lat, lon).hubs == tuple(every[:NEAREST])


def test_the_way_goes_where_cables_are() -> None:
    """From Karaganda, Delhi is farther than Frankfurt: there is no way over the mountains."""
    karaganda = point_at(49.8, 73.1)
    assert great_circle_km(49.8, 73.1, 28.6, 77.2) < great_circle_km(49.8, 73.1, 50.11, 8.68)
    assert model_ms(karaganda, terminal_at(28.6, 77.2)) > model_ms(karaganda, terminal_at(50.11, 8.68))


@quick(200)
@given(latitudes, longitudes, latitudes, longitudes)
def test_the_model_is_the_same_both_ways(lat1: float, lon1: float, lat2: float, lon2: float) -> None:
    """Client and region may be exchanged, and no way is quicker than light."""
    there = model_ms(point_at(lat1, lon1), terminal_at(lat2, lon2))
    assert there == pytest.approx(model_ms(point_at(lat2, lon2), terminal_at(lat1, lon1)))
    assert there >= FIBRE_MS_PER_KM * great_circle_km(lat1, lon1, lat2, lon2) - 1e-6


def test_the_model_alone() -> None:
    """Without measurements, a client beside a region is the base away from it, and the source says so."""
    beside = Location("DE", lat=FRANKFURT.lat, lon=FRANKFURT.lon)
    assert Estimator(REGIONS).paths(beside, [0]) == {0: NetworkPath(0.0, SHIPPED.base_ms, "model")}


@quick(50)
@given(tables(), st.sampled_from(("lat", "lon", "both")))
def test_a_client_that_is_nowhere_has_no_paths(table: LatencyTable, missing: str) -> None:
    """Without coordinates there is no estimate, whatever else is known."""
    lost = BERLIN._replace(**({"lat": None, "lon": None} if missing == "both" else {missing: None}))
    estimator = Estimator(REGIONS, table)
    assert estimator.paths(lost, ALL) == {}
    assert isinstance(hash(estimator.seen(lost)), int)


@quick(120)
@given(
    tables(),
    locations(),
    st.permutations(list(ALL)).flatmap(lambda order: st.integers(1, 4).map(lambda n: order[:n])),
)
def test_estimates_are_possible(table: LatencyTable, location: Location, members: list[int]) -> None:
    """Every member has an estimate, never below light in fibre unless the same network's clients measured it."""
    paths = Estimator(REGIONS, table).paths(location, members)
    assert list(paths) == members
    for number, path in paths.items():
        region = REGIONS[number]
        assert location.lat is not None
        assert location.lon is not None
        km = great_circle_km(location.lat, location.lon, region.lat, region.lon)
        assert path.distance_km == pytest.approx(km, abs=0.01)
        light = FIBRE_MS_PER_KM * path.distance_km
        own = table.networks.get(location.network or "", {}).get(region.name)
        if own is not None:
            here, there = point_at(location.lat, location.lon), terminal_at(region.lat, region.lon)
            light = min(light, model_ms(here, there) + own[0] - 1e-6)
        assert path.estimate_ms >= max(0.1, light)
        assert path.source in set(Source)


@quick(120)
@given(tables(), locations(), locations())
def test_what_is_not_seen_does_not_matter(table: LatencyTable, one: Location, other: Location) -> None:
    """Nor does what was asked before. What is seen of what is seen is the same."""
    near = other._replace(lat=one.lat, lon=one.lon)
    estimator = Estimator(REGIONS, table)
    first = estimator.paths(one, ALL)
    for location in (one, near):
        seen = location_of(estimator.seen(location))
        assert estimator.paths(seen, ALL) == estimator.paths(location, ALL)
        assert location_facts(estimator.placed(seen)) == location_facts(estimator.placed(location))
        assert location_of(estimator.seen(seen)) == seen
    estimator.paths(other, ALL)
    assert estimator.paths(one, ALL) == Estimator(REGIONS, table).paths(one, ALL) == first


@quick(120)
@given(tables(), locations(), st.lists(st.sampled_from(ALL), unique=True, min_size=1))
def test_a_path_does_not_depend_on_the_others(
    table: LatencyTable, location: Location, members: list[int]
) -> None:
    """A region's path is the same in every service, whoever the other members are and in whatever order."""
    every = Estimator(REGIONS, table).paths(location, ALL)
    some = Estimator(REGIONS, table).paths(location, members)
    assert some == {number: every[number] for number in members}


def test_what_is_seen_of_a_location_is_coarse() -> None:
    """Networks, operators and all that ranks nobody are part of it only where the table has them."""
    elsewhere = BERLIN._replace(
        asn=1, network="203.0.113.0/24", subdivision="DE-BE", continent="EU", central=True
    )
    assert Estimator(REGIONS).seen(BERLIN) == Estimator(REGIONS).seen(elsewhere)
    unrelated = LatencyTable(networks={"198.51.100.0/24": {}}, asns={"1|FR": {}}, countries={"FR": {}})
    assert Estimator(REGIONS, unrelated).seen(BERLIN) == Estimator(REGIONS, unrelated).seen(elsewhere)
    for table in (LatencyTable(networks={"192.0.2.0/24": {}}), LatencyTable(asns={"3320|DE": {}})):
        assert Estimator(REGIONS, table).seen(BERLIN) != Estimator(REGIONS, table).seen(elsewhere)


LEVELS = {
    Source.NETWORK: ("networks", "192.0.2.0/24"),
    Source.ASN: ("asns", "3320|DE"),
    Source.PLACE: ("places", "52,13"),
    Source.NEARBY: ("places", "50,12"),
    Source.COUNTRY: ("countries", "DE"),
}


@pytest.mark.parametrize("source", LEVELS)
def test_more_samples_count_more(source: Source) -> None:
    """At every level the estimate comes the closer to what was measured, the more samples there are."""
    field, key = LEVELS[source]
    plain = estimates(EMPTY_TABLE)[FRANKFURT.name]
    added = []
    for samples in (1.0, 4.0, 16.0, 64.0, 1024.0):
        table = LatencyTable(**{field: {key: {FRANKFURT.name: (40.0, samples)}}})
        path = Estimator(REGIONS, table).paths(BERLIN, [0])[0]
        assert path.source == source
        added.append(path.estimate_ms - plain)
    assert added == sorted(added)
    assert 0 < added[0] < added[-1] < 40
    if source in {Source.NETWORK, Source.PLACE}:
        assert added[-1] == pytest.approx(40, abs=0.1)


def test_the_finest_level_wins() -> None:
    """With many samples everywhere, the estimate is the network's, and the source names it."""
    fields = {
        field: {key: everywhere(20.0 * n, 500)} for n, (field, key) in enumerate(LEVELS.values(), start=2)
    }
    fields["networks"] = {"192.0.2.0/24": everywhere(-5.0, 500)}
    table = LatencyTable(**fields)
    path = Estimator(REGIONS, table).paths(BERLIN, [0])[0]
    assert path.source == Source.NETWORK
    assert path.estimate_ms == pytest.approx(estimates(EMPTY_TABLE)[FRANKFURT.name] - 5, abs=1)


def test_a_slow_client_does_not_flee_the_region_that_was_measured() -> None:
    """What is common to the measured regions is believed of the others: one of them must not look better for it."""
    plain = estimates(EMPTY_TABLE)
    measured = {name: (60.0, 100.0) for name in NAMES if name != SYDNEY.name}
    for field, key in LEVELS.values():
        found = estimates(LatencyTable(**{field: {key: measured}}))
        assert found[SYDNEY.name] - plain[SYDNEY.name] > 0.4 * (found[FRANKFURT.name] - plain[FRANKFURT.name])


def test_regions_tell_of_each_other() -> None:
    """A region that is slow to all others is slow to clients, too; pairs that were not measured change nothing."""
    far = {
        NAMES[number]: model_ms(point_at(r.lat, r.lon), terminal_at(FRANKFURT.lat, FRANKFURT.lon))
        for number, r in enumerate(REGIONS)
    }
    mutual = {
        FRANKFURT.name: {name: ms + 80 for name, ms in far.items()},
        VIRGINIA.name: {FRANKFURT.name: 900.0},
    }
    plain, found = estimates(EMPTY_TABLE), estimates(LatencyTable(mutual=mutual))
    assert found[FRANKFURT.name] - plain[FRANKFURT.name] > 30
    assert found[FRANKFURT.name] - plain[FRANKFURT.name] > found[SYDNEY.name] - plain[SYDNEY.name]
    unrelated = LatencyTable(mutual={"gone": {FRANKFURT.name: 5.0}, FRANKFURT.name: {FRANKFURT.name: 1.0}})
    assert estimates(unrelated) == plain
    assert Estimator(REGIONS, LatencyTable(mutual=mutual)).paths(BERLIN, [0])[0].source == Source.REGIONS


def test_one_odd_place_does_not_speak_for_its_surroundings() -> None:
    """Where several places agree, one that differs counts for less than its share."""
    around = ["50,12", "51,12", "52,12", "53,12", "51,13", "51,14"]
    agreed = LatencyTable(
        places={key: {FRANKFURT.name: (10.0, 100.0), VIRGINIA.name: (10.0, 100.0)} for key in around}
    )
    odd = {FRANKFURT.name: (310.0, 100.0), VIRGINIA.name: (10.0, 100.0)}
    with_odd = replace(agreed, places={**agreed.places, "52,14": odd})
    moved = estimates(with_odd)[FRANKFURT.name] - estimates(agreed)[FRANKFURT.name]
    assert 0 < moved < 300 / 7


def test_the_nearest_places_are_read() -> None:
    """However many places there are, those nearest to the client's decide, found as by measuring every distance."""
    places = [(lat, lon) for lat in range(-80, 80, 8) for lon in range(-176, 176, 8)]
    terminals = [terminal_at(region.lat, region.lon) for region in REGIONS]
    squares = rtt_squares.Squares(
        NAMES, terminals, None, {place: {NAMES[0]: (1.0, 100.0)} for place in places}
    )
    for lat, lon in ((52.5, 13.4), (-89.9, 0.0), (0.0, 179.9), (66.0, -170.0), (79.0, 100.0)):
        square = square_of(lat, lon)
        middle = square_vector(square)
        exact = sorted(arc_km(middle, square_vector(place)) for place in places if place != square)
        weights = [weight for weight, _ in squares.neighbours(square)]
        expected = [2.718281828 ** (-km / rtt_squares.NEARBY_KM) for km in exact[: rtt_squares.NEARBY]]
        assert weights == pytest.approx(expected, rel=1e-3)


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients from everywhere cannot grow an estimator without end, and its answers stay."""
    monkeypatch.setattr(rtt_squares, "MOST_SQUARES", 4)
    one, estimator = (
        Estimator(REGIONS, LatencyTable(places={"50,8": {NAMES[0]: (10.0, 100.0)}})) for _ in range(2)
    )
    first = estimator.paths(BERLIN, ALL)

    def ask(asked: Estimator) -> None:
        for lon in range(-180, 180):
            for lat in (10.0, 50.0):
                asked.paths(BERLIN._replace(lat=lat, lon=float(lon)), ALL)

    ask(one)  # what all estimators remember together is bounded elsewhere
    assert held(lambda: ask(estimator)) < 100_000
    assert estimator.paths(BERLIN, ALL) == first


@quick(50)
@given(tables())
def test_a_table_survives_the_wire(table: LatencyTable) -> None:
    """What is sent arrives."""
    assert msgspec.json.decode(msgspec.json.encode(table), type=LatencyTable) == table
