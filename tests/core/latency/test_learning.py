"""How samples become a table: caps and plausibility at the edge, forgetting and robustness in control."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gtm.core.latency.aggregates import Aggregates, AggregateSettings, Sum
from gtm.core.latency.estimator import Estimator
from gtm.core.latency.geographic import model_ms, point_at, terminal_at
from gtm.core.latency.samples import (
    Delta,
    Level,
    RoundTripSample,
    SampleAggregator,
    SampleMethod,
    SampleVerdict,
    source_bit,
)
from gtm.core.latency.squares import Source
from gtm.core.latency.table import EMPTY_TABLE, LatencyTable
from gtm.core.model.requests import Location
from tests import worlds
from tests.core.strategies import quick

FRANKFURT, VIRGINIA = worlds.regions("eu-central us-east")
REGIONS = (FRANKFURT, VIRGINIA)
NAMES = {region.name for region in REGIONS}
BERLIN = Location("DE", None, "EU", 52.52, 13.4, 3320, "192.0.2.0/24", 24, "geoip")
BASE = model_ms(point_at(52.52, 13.4), terminal_at(FRANKFURT.lat, FRANKFURT.lon))
DAY = 86_400.0
THREE = source_bit("a") | source_bit("b") | source_bit("c")

BALANCER, BEACON, PROBE = SampleMethod


def sample(
    residual: float = 0.0,
    source: str = "a",
    method: SampleMethod = BALANCER,
    at: float = 0.0,
    location: Location = BERLIN,
) -> RoundTripSample:
    """A round trip to Frankfurt, so much above the model."""
    return RoundTripSample(location, FRANKFURT.name, BASE + residual, at, source, method)


def delta(
    centre: float = 0.0,
    samples: int = 10,
    at: float = 0.0,
    *,
    level: Level = Level.COUNTRY,
    key: str = "DE",
    trusted: bool = True,
    spread: float = 5.0,
    sources: int = THREE,
    region: str = FRANKFURT.name,
) -> Delta:
    """What an interval said."""
    return Delta(level, key, region, trusted, samples, sources, centre, spread, at)


def total(aggregates: Aggregates, now: float = 0.0) -> Sum:
    """The only sum."""
    (kept,) = aggregates.sums(now)
    return kept


def learned(*deltas: Delta, settings: AggregateSettings | None = None, now: float = 0.0) -> Aggregates:
    """Aggregates of these deltas."""
    aggregates = Aggregates(settings=settings)
    aggregates.merge(deltas, now)
    return aggregates


def test_a_sample_counts_at_every_level() -> None:
    """One client's round trip is a statistic of its network, operator, country and place, and names no client."""
    aggregator = SampleAggregator(REGIONS)
    assert aggregator.add(sample(7.0, at=5.0)) is SampleVerdict.ACCEPTED
    deltas = aggregator.take().deltas
    assert {(each.level, each.key) for each in deltas} == {
        (Level.NETWORK, "192.0.2.0/24"),
        (Level.ASN, "3320|DE"),
        (Level.COUNTRY, "DE"),
        (Level.PLACE, "52,13"),
    }
    for each in deltas:
        assert each[2:] == (FRANKFURT.name, True, 1, source_bit("a"), 7.0, 0.0, 5.0)
    assert aggregator.take() == ([], [])


def test_what_is_unknown_of_a_client_has_no_level() -> None:
    """A client of which only coordinates are known counts for its place."""
    aggregator = SampleAggregator(REGIONS)
    aggregator.add(sample(location=Location(lat=52.52, lon=13.4)))
    assert [each.level for each in aggregator.take().deltas] == [Level.PLACE]


@pytest.mark.parametrize(
    ("change", "levels"),
    [
        ({"anonymous": True}, {Level.NETWORK}),
        ({"anonymous": True, "network": None}, set()),
        ({"accuracy_km": 1000.0}, {Level.NETWORK, Level.ASN, Level.COUNTRY}),
        ({"accuracy_km": 50.0}, {Level.NETWORK, Level.ASN, Level.COUNTRY, Level.PLACE}),
    ],
)
def test_a_client_that_may_be_elsewhere_does_not_speak_for_a_place(
    change: dict[str, object], levels: set[Level]
) -> None:
    """A VPN's clients count for its network only; those that are roughly known, for no place."""
    aggregator = SampleAggregator(REGIONS)
    assert aggregator.add(sample(location=BERLIN._replace(**change))) is SampleVerdict.ACCEPTED
    assert {each.level for each in aggregator.take().deltas} == levels


@pytest.mark.parametrize(
    ("change", "verdict"),
    [
        ({"region": "gone"}, SampleVerdict.UNKNOWN_REGION),
        ({"location": Location("DE")}, SampleVerdict.UNKNOWN_LOCATION),
        ({"location": Location("DE", lat=52.5)}, SampleVerdict.UNKNOWN_LOCATION),
        ({"method": PROBE}, SampleVerdict.UNKNOWN_LOCATION),
        ({"method": PROBE, "source": FRANKFURT.name}, SampleVerdict.UNKNOWN_LOCATION),
        ({"rtt_ms": 4.0, "method": BEACON}, SampleVerdict.IMPLAUSIBLE),
        ({"rtt_ms": 4.0, "location": BERLIN._replace(network=None)}, SampleVerdict.IMPLAUSIBLE),
        ({"rtt_ms": -1.0}, SampleVerdict.IMPLAUSIBLE),
        ({"rtt_ms": 3000.1}, SampleVerdict.IMPLAUSIBLE),
        ({"rtt_ms": float("nan")}, SampleVerdict.IMPLAUSIBLE),
        ({"at": float("inf")}, SampleVerdict.IMPLAUSIBLE),
        ({"rtt_ms": 4.3}, SampleVerdict.ACCEPTED),
    ],
)
def test_what_cannot_be_is_not_taken(change: dict[str, object], verdict: SampleVerdict) -> None:
    """Samples quicker than light (4.2 ms from Berlin to Frankfurt), too slow or from nowhere are refused, and leave nothing."""
    aggregator = SampleAggregator(REGIONS)
    assert aggregator.add(replace(sample(), **change)) is verdict
    assert bool(aggregator.take().deltas) is (verdict is SampleVerdict.ACCEPTED)


def test_regions_measure_each_other() -> None:
    """A probe's round trip arrives in the table as it was, between the names of both regions."""
    aggregator = SampleAggregator(REGIONS)
    assert (
        aggregator.add(RoundTripSample(Location(), VIRGINIA.name, 91.0, 1.0, FRANKFURT.name, PROBE))
        is SampleVerdict.ACCEPTED
    )
    table = learned(*aggregator.take().deltas, now=1.0).table(EMPTY_TABLE, 1.0, NAMES)
    assert table == LatencyTable(version=1, mutual={FRANKFURT.name: {VIRGINIA.name: 91.0}})


def test_a_source_has_few_samples_of_a_region() -> None:
    """Past the cap a source is not heard until the interval ends; others are."""
    aggregator = SampleAggregator(REGIONS, per_source=3)
    assert [aggregator.add(sample()) for _ in range(5)] == [SampleVerdict.ACCEPTED] * 3 + [
        SampleVerdict.CAPPED
    ] * 2
    assert aggregator.add(sample(source="b")) is SampleVerdict.ACCEPTED
    assert {each.samples for each in aggregator.take().deltas} == {4}
    assert aggregator.add(sample()) is SampleVerdict.ACCEPTED


def test_browsers_cannot_fill_the_memory() -> None:
    """Beacons have half of the room; what balancers measure still finds the other half."""
    aggregator = SampleAggregator(REGIONS, limit=10)
    beacons = [aggregator.add(sample(source=str(number), method=BEACON)) for number in range(8)]
    assert beacons == [SampleVerdict.ACCEPTED] * 5 + [SampleVerdict.FULL] * 3
    balancers = [aggregator.add(sample(source=str(number))) for number in range(8)]
    assert balancers == [SampleVerdict.ACCEPTED] * 5 + [SampleVerdict.FULL] * 3
    aggregator.take()
    assert aggregator.add(sample(method=BEACON)) is SampleVerdict.ACCEPTED


def test_a_reporter_takes_no_more_room_than_it_leaves() -> None:
    """However many clients it makes up: half of the room is there for another, and half of that for a third."""
    aggregator = SampleAggregator(REGIONS, limit=100)
    for _ in range(2):
        taken = Counter(
            reporter
            for reporter in ("a-liar", "honest", "third")
            for number in range(1000)
            if aggregator.add(replace(sample(source=str(number)), reporter=reporter))
            is SampleVerdict.ACCEPTED
        )
        assert taken == {"a-liar": 50, "honest": 25, "third": 13}
        aggregator.take()


@quick(200)
@given(
    st.lists(st.floats(0, 50), min_size=2, max_size=9), st.lists(st.floats(0, 2900), min_size=1, max_size=30)
)
def test_one_liar_among_honest_sources(honest: list[float], lies: list[float]) -> None:
    """Whatever one source says beside two honest ones, the interval's value is one that an honest source could have given."""
    aggregator = SampleAggregator(REGIONS)
    for number, residual in enumerate(honest):
        aggregator.add(sample(residual, f"honest-{number}", BEACON))
    for lie in lies:
        aggregator.add(sample(lie, "liar", BEACON))
    for each in aggregator.take().deltas:
        assert min(honest) - 0.01 <= each.centre <= max(honest) + 0.01


def test_deltas_survive_the_wire() -> None:
    """What an edge sends, control reads; a delta is a short array."""
    aggregator = SampleAggregator(REGIONS)
    for number in range(9):
        aggregator.add(sample(float(number), str(number), BEACON))
    deltas = aggregator.take().deltas
    encoded = msgspec.json.encode(deltas)
    assert msgspec.json.decode(encoded, type=list[Delta]) == deltas
    assert len(encoded) < 100 * len(deltas)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (delta(float("nan")), "impossible numbers"),
        (delta(at=float("inf")), "impossible numbers"),
        (delta(samples=0), "impossible numbers"),
        (delta(sources=0), "impossible numbers"),
        (delta(sources=2**63), "impossible numbers"),
        (delta(3001.0), "beyond 3000 ms"),
        (delta(spread=-1.0), "beyond 3000 ms"),
        (delta(level=Level.PLACE, key="Berlin"), "no square"),
    ],
)
def test_an_impossible_delta_changes_nothing(wrong: Delta, says: str) -> None:
    """Of a message with one wrong delta, none is added, and the error names what is wrong."""
    aggregates = Aggregates()
    with pytest.raises(ValueError, match=says):
        aggregates.merge([delta(), wrong], 0.0)
    assert aggregates.sums(0.0) == []


@quick(200)
@given(
    st.lists(
        st.builds(
            Delta,
            st.sampled_from(Level),
            st.sampled_from(("52,13", "DE", "", "eu-central")),
            st.sampled_from((*NAMES, "gone")),
            st.booleans(),
            st.integers(-2, 10**30),
            st.integers(-2, 2**64),
            st.floats(),
            st.floats(),
            st.floats(),
        ),
        max_size=6,
    ),
    st.floats(0, 1e10),
)
def test_whatever_is_sent_the_table_can_be_sent(deltas: list[Delta], now: float) -> None:
    """Any deltas are refused as a whole, or make a table that edges can read and estimate from."""
    aggregates = Aggregates()
    for each in deltas:
        try:
            aggregates.merge([each], now)
        except ValueError:
            continue
    table = aggregates.table(EMPTY_TABLE, now, NAMES)
    assert msgspec.json.decode(msgspec.json.encode(table), type=LatencyTable) == table
    for path in Estimator(REGIONS, table).paths(BERLIN, [0, 1]).values():
        assert 0 < path.estimate_ms < 10_000


@quick(100)
@given(st.floats(1, 1e7), st.floats(0, 5), st.integers(1, 500))
def test_the_half_life_is_exact(half_life: float, halvings: float, samples: int) -> None:
    """After n half-lives a sum weighs 2^-n of what it did, however it is asked."""
    settings = AggregateSettings(half_life=half_life)
    aggregates = learned(delta(samples=samples), settings=settings)
    later = halvings * half_life
    expected = samples * 0.5**halvings
    aggregates.merge([delta(samples=1, at=later)], later)
    assert total(aggregates, later).weight == pytest.approx(min(expected + 1, settings.most_weight))


def test_what_is_forgotten_is_gone() -> None:
    """A sum that weighs next to nothing is no longer stored, nor in the table."""
    aggregates = learned(delta(samples=16))
    table = aggregates.table(EMPTY_TABLE, 0.0, NAMES)
    assert table.countries == {"DE": {FRANKFURT.name: (0.0, 16.0)}}
    assert aggregates.table(table, 3.5 * DAY, NAMES).countries == {}
    assert aggregates.sums(3.5 * DAY) != []
    assert aggregates.sums(8 * DAY) == []


@quick(100)
@given(
    st.lists(
        st.tuples(st.floats(-10, 10), st.integers(1, 20), st.floats(0, DAY), st.booleans()),
        min_size=2,
        max_size=8,
    ),
    st.randoms(use_true_random=False),
)
def test_the_order_of_deltas_does_not_matter(
    said: list[tuple[float, int, float, bool]], rng: random.Random
) -> None:
    """Edges' reports may arrive in any order: weight and mean come out the same."""
    deltas = [delta(centre, samples, at, trusted=trusted) for centre, samples, at, trusted in said]
    one = total(learned(*deltas, now=DAY), DAY)
    rng.shuffle(deltas)
    other = total(learned(*deltas, now=DAY), DAY)
    assert other.weight == pytest.approx(one.weight)
    assert other.mean == pytest.approx(one.mean, abs=1e-6)
    assert (other.updated, other.sources) == (one.updated, one.sources)


def test_a_wrong_clock_does_not_last() -> None:
    """A delta from the future counts as of now, so that what comes later still counts."""
    aggregates = learned(delta(15.0, at=1e12), now=100.0)
    assert total(aggregates, 100.0).updated == 100.0
    aggregates.merge([delta(0.0, 90, 101.0)], 101.0)
    assert total(aggregates, 101.0).mean == pytest.approx(1.5, abs=0.01)


def test_beacons_count_less() -> None:
    """Browsers' samples weigh a quarter of balancers'."""
    aggregates = learned(delta(10.0, 40), delta(0.0, 40, trusted=False))
    kept = total(aggregates)
    assert kept.weight == 50
    assert kept.mean == pytest.approx(8.0)


@quick(200)
@given(
    st.floats(-100, 100),
    st.integers(8, 500),
    st.floats(0, 200),
    st.builds(
        delta,
        st.floats(-3000, 3000),
        st.integers(1, 8),
        trusted=st.just(value=False),
        spread=st.floats(0, 6000),
    ),
)
def test_a_lone_source_moves_a_value_by_its_share_of_the_largest_step(
    mean: float, samples: int, spread: float, lie: Delta
) -> None:
    """One beacon (at most 8 samples that weigh 2) moves a sum of weight W by 100 ms × 2 / (W + 2) at most."""
    aggregates = learned(delta(mean, samples, spread=spread))
    before = total(aggregates)
    aggregates.merge([lie], 0.0)
    weight = lie.samples * 0.25
    assert abs(total(aggregates).mean - before.mean) <= 100 * weight / (before.weight + weight) + 1e-9


def test_a_lone_browser_counts_once() -> None:
    """While everybody else sleeps, one source cannot talk a value round; new sources and balancers still count."""
    aggregates = learned(delta(0.0, 40))
    hours = [hour * 3600.0 for hour in range(12)]
    for at in hours:
        aggregates.merge([delta(2900.0, 8, at, trusted=False, sources=source_bit("liar"))], at)
    once = total(aggregates, hours[-1])
    assert once.mean <= 100 * 2 / 42
    assert once.updated == 0.0
    aggregates.merge([delta(50.0, 8, hours[-1], trusted=False, sources=source_bit("other"))], hours[-1])
    aggregates.merge([delta(50.0, 8, hours[-1], sources=source_bit("liar"))], hours[-1])
    assert total(aggregates, hours[-1]).weight == pytest.approx(once.weight * 0.5 ** (11 / 24) + 10)


def test_the_heavier_side_is_believed() -> None:
    """A first lie does not outlast the truth: many samples meet it as an outlier, not the other way round."""
    aggregates = learned(delta(2900.0, 8, trusted=False), delta(5.0, 50))
    assert total(aggregates).mean == pytest.approx(5 + 20 * 2 / 52)


@pytest.mark.parametrize("lie", [2900.0, -2.5])
def test_a_hostile_browser_hardly_moves_an_estimate(lie: float) -> None:
    """For a day one source says as much as it may, every minute, beside four honest ones: the estimate stays within 5 ms."""
    estimates = []
    for hostile in (False, True):
        rng = random.Random(1)
        aggregator, aggregates, table = SampleAggregator(REGIONS), Aggregates(), EMPTY_TABLE
        for minute in range(0, 1440, 10):
            for source in range(4):
                for _ in range(2):
                    aggregator.add(sample(20 + rng.gauss(0, 4), f"honest-{source}", BEACON, minute * 60.0))
            for _ in range(100 if hostile else 0):
                aggregator.add(sample(lie, "hostile", BEACON, minute * 60.0))
            aggregates.merge(aggregator.take().deltas, minute * 60.0)
            table = aggregates.table(table, minute * 60.0, NAMES)
        path = Estimator(REGIONS, table).paths(BERLIN, [0])[0]
        assert path.source == Source.NETWORK
        estimates.append(path.estimate_ms)
    assert estimates[0] == pytest.approx(BASE + 20, abs=3)
    assert estimates[1] == pytest.approx(estimates[0], abs=5)


def test_a_lone_source_is_not_published() -> None:
    """However much one source says, and for however long, no level shows it."""
    aggregator, aggregates = SampleAggregator(REGIONS), Aggregates()
    for minute in range(500):
        for _ in range(20):
            aggregator.add(sample(2000.0, "hostile", BEACON, minute * 60.0))
        aggregates.merge(aggregator.take().deltas, minute * 60.0)
    assert aggregates.table(EMPTY_TABLE, 30_000.0, NAMES) == EMPTY_TABLE


def test_a_change_of_route_is_followed() -> None:
    """When the round trip really changes by 200 ms, the estimate is two thirds there after twenty intervals of 50."""
    aggregates = learned(delta(0.0, 500))
    for minute in range(20):
        aggregates.merge([delta(200.0, 50, minute * 60.0)], minute * 60.0)
    assert total(aggregates, 1200.0).mean > 133


@pytest.mark.parametrize("level", [Level.NETWORK, Level.ASN, Level.COUNTRY, Level.PLACE])
def test_a_row_needs_samples_and_sources(level: Level) -> None:
    """Too few samples or sources, and a row is not published; a network needs most."""
    enough = 20 if level is Level.NETWORK else 4
    key = "52,13" if level is Level.PLACE else "key"

    def rows(samples: int, sources: int) -> LatencyTable:
        return learned(delta(9.0, samples, level=level, key=key, sources=sources)).table(
            EMPTY_TABLE, 0.0, NAMES
        )

    assert rows(enough - 1, THREE) is EMPTY_TABLE
    assert rows(500, source_bit("a") | source_bit("b")) is EMPTY_TABLE
    published = rows(enough, THREE)
    assert published.version == 1
    assert published != EMPTY_TABLE


def test_a_table_changes_only_where_it_matters() -> None:
    """Small moves leave the very same table; a larger one makes a new version with that one value."""
    aggregates = learned(delta(10.0, 40), delta(10.0, 40, region=VIRGINIA.name))
    first = aggregates.table(EMPTY_TABLE, 0.0, NAMES)
    assert first.version == 1
    aggregates.merge([delta(12.0, 20, 60.0)], 60.0)
    assert aggregates.table(first, 60.0, NAMES) is first
    aggregates.merge([delta(30.0, 40, 120.0)], 120.0)
    second = aggregates.table(first, 120.0, NAMES)
    assert second.version == 2
    assert second.countries["DE"][FRANKFURT.name][0] > 13
    assert second.countries["DE"][VIRGINIA.name] == first.countries["DE"][VIRGINIA.name]


def test_weights_are_published_by_powers_of_two() -> None:
    """A weight that grows or decays a little is published as it was; one that grows fourfold is not."""
    aggregates = learned(delta(samples=40))
    table = aggregates.table(EMPTY_TABLE, 0.0, NAMES)
    assert table.countries["DE"][FRANKFURT.name] == (0.0, 32.0)
    assert aggregates.table(table, DAY, NAMES) is table
    aggregates.merge([delta(samples=200)], 0.0)
    assert aggregates.table(table, 0.0, NAMES).countries["DE"][FRANKFURT.name] == (0.0, 128.0)


def test_a_row_that_was_published_stays_down_to_half_the_weight() -> None:
    """A row on the threshold does not come and go."""
    aggregates = learned(delta(samples=4))
    table = aggregates.table(EMPTY_TABLE, 0.0, NAMES)
    assert aggregates.table(EMPTY_TABLE, 0.5 * DAY, NAMES) is EMPTY_TABLE
    assert aggregates.table(table, 0.5 * DAY, NAMES) is table
    assert aggregates.table(table, 1.5 * DAY, NAMES).countries == {}


def test_a_table_has_bounded_rows() -> None:
    """The heaviest rows are published; one that is published gives way only to one of twice its weight."""
    deltas = [delta(samples=number, key=f"C{number:02}") for number in range(10, 50)]
    aggregates = learned(*deltas, settings=AggregateSettings(max_rows=5))
    table = aggregates.table(EMPTY_TABLE, 0.0, NAMES)
    assert set(table.countries) == {"C45", "C46", "C47", "C48", "C49"}
    aggregates.merge([delta(samples=30, key="C40")], 0.0)
    assert aggregates.table(table, 0.0, NAMES) is table
    aggregates.merge([delta(samples=60, key="C40")], 0.0)
    assert set(aggregates.table(table, 0.0, NAMES).countries) == {"C40", "C46", "C47", "C48", "C49"}


def test_memory_keeps_the_heaviest() -> None:
    """Past its bound, the memory drops the lightest sums."""
    deltas = [delta(samples=number, key=f"C{number:02}") for number in range(10, 21)]
    aggregates = learned(*deltas, settings=AggregateSettings(max_sums=10))
    assert {kept.key for kept in aggregates.sums(0.0)} == {"C14", "C15", "C16", "C17", "C18", "C19", "C20"}


def test_regions_that_are_gone_leave_the_table() -> None:
    """Sums of regions that the policy no longer has are kept for a while, and not published."""
    mutual = delta(91.0, level=Level.REGION, key=FRANKFURT.name, region=VIRGINIA.name)
    aggregates = learned(delta(), delta(region=VIRGINIA.name), mutual)
    table = aggregates.table(EMPTY_TABLE, 0.0, NAMES)
    assert set(table.countries["DE"]) == NAMES
    less = aggregates.table(table, 0.0, {VIRGINIA.name})
    assert set(less.countries["DE"]) == {VIRGINIA.name}
    assert less.mutual == {}


@quick(50)
@given(
    st.lists(
        st.tuples(st.sampled_from(list(Level)), st.floats(-200, 200), st.integers(1, 99), st.floats(0, 100)),
        max_size=9,
    )
)
def test_sums_survive_storage(said: list[tuple[Level, float, int, float]]) -> None:
    """What is stored and loaded gives the same sums and the same table."""
    deltas = [delta(centre, samples, at, level=level, key="52,13") for level, centre, samples, at in said]
    aggregates = learned(*deltas, now=100.0)
    stored = aggregates.sums(100.0)
    loaded = Aggregates(msgspec.json.decode(msgspec.json.encode(stored), type=list[Sum]))
    assert loaded.sums(100.0) == stored
    assert loaded.table(EMPTY_TABLE, 100.0, NAMES) == aggregates.table(EMPTY_TABLE, 100.0, NAMES)
    assert all(kept.sources < 2**63 for kept in stored)


def test_processing_times_change_rarely() -> None:
    """A region's own time is published anew when it is a quarter off, and kept where nobody says anything."""
    aggregates = Aggregates()
    first = aggregates.table(EMPTY_TABLE, 0.0, NAMES, {"eu-central": {"": 100.0, "chat": 0.21}})
    assert first.processing_ms == {"eu-central": {"": 100.0, "chat": 0.2}}
    assert aggregates.table(first, 0.0, NAMES, {"eu-central": {"": 120.0, "chat": 1.1}}) is first
    assert aggregates.table(first, 0.0, NAMES) is first
    second = aggregates.table(first, 0.0, NAMES, {"eu-central": {"": 126.0}})
    assert second.processing_ms == {"eu-central": {"": 126.0}}
    assert second.version == 2
