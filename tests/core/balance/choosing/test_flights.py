"""What others have in flight: scraped figures and peers' words correct own counts, and what is unknown is not idle."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gtm.core.balance.backends import MOST_REQUESTS, Backend, Scraped
from gtm.core.balance.flights import (
    DECAY_S,
    MOST_RUNNING,
    PEERS_LAST_S,
    SCRAPED_LASTS_S,
    Flights,
    InFlight,
    LatencyByLoad,
    PeakEwma,
    PeerLoad,
)
from tests.core.strategies import quick

WEIGHTS = {"a": 1.0, "b": 2.0, "c": 0.5}


def _flights() -> Flights:
    return Flights([Backend(name, weight) for name, weight in WEIGHTS.items()])


@quick(200)
@given(st.lists(st.booleans(), max_size=30), st.data())
def test_a_lone_balancer_never_takes_its_requests_for_others(steps: list[bool], data: st.DataObject) -> None:
    """Whenever between question and answer the server counted."""
    flight = InFlight()
    tickets = [flight.begin(1.0) for _ in range(data.draw(st.integers(0, 5)))]
    flight.asking()
    counts = [flight.requests]
    for begins in steps:
        if begins:
            tickets.append(flight.begin(1.0))
        elif tickets:
            tickets.pop().end()
        counts.append(flight.requests)
    flight.scraped(Scraped(data.draw(st.sampled_from(counts)), 0, 0.0))
    assert flight.beyond(0.0) == 0


def test_what_is_beyond_ours_stays_when_ours_end() -> None:
    """6 of ours and 6 of others: when ours have ended, 6 are left."""
    flights = Flights([Backend("a")])
    tickets = [flights.of("a").begin(2.0) for _ in range(6)]
    flights.asking("a")
    flights.scraped("a", Scraped(8, 4, 0.0))
    flights.settle(0.0)
    assert (flights.of("a").outstanding, flights.of("a").backlog_us) == (12, 24_000_000)
    for ticket in tickets:
        ticket.end()
    assert flights.of("a").outstanding == 6


def test_what_ours_were_before_the_question_does_not_matter() -> None:
    """Six of ours have come and gone: the three that the server has now are others'."""
    flight = InFlight()
    for ticket in [flight.begin(1.0) for _ in range(6)]:
        ticket.end()
    flight.asking()
    flight.scraped(Scraped(1, 2, 0.0))
    assert flight.beyond(0.0) == 3


def test_a_figure_lasts_its_time_and_no_longer() -> None:
    """Stale is unknown."""
    flight = InFlight()
    flight.asking()
    flight.scraped(Scraped(3, 0, 10.0))
    assert flight.beyond(10.0 + SCRAPED_LASTS_S) == 3
    assert flight.beyond(10.01 + SCRAPED_LASTS_S) is None


@quick(200)
@given(
    st.fixed_dictionaries({name: st.none() | st.integers(0, 20) for name in WEIGHTS}),
    st.lists(
        st.tuples(
            st.booleans(),
            st.dictionaries(
                st.sampled_from([*WEIGHTS, "gone"]),
                st.builds(PeerLoad, st.integers(0, 9), st.integers(0, 10**7)),
            ),
        ),
        max_size=3,
    ),
)
def test_others_are_what_the_laws_say(
    scraped: dict[str, int | None], peers: list[tuple[bool, dict[str, PeerLoad]]]
) -> None:
    """The larger of peers' words and scraped figures; the middle one by weight where no figure is; silent peers spread by weight."""
    flights, now = _flights(), 100.0
    for name, said in scraped.items():
        if said is not None:
            flights.asking(name)
            flights.scraped(name, Scraped(said, 0, now))
    for number, (speaks, loads) in enumerate(peers):
        flights.told(f"{number}", loads, now if speaks else now - PEERS_LAST_S - 0.1)
    flights.settle(now)
    said_by = {name: said for name, said in scraped.items() if said is not None}
    figures = sorted(said / WEIGHTS[name] for name, said in said_by.items())
    middle = figures[(len(figures) - 1) // 2] if figures else 0
    here = [load for speaks, loads in peers if not speaks for name, load in loads.items() if name in WEIGHTS]
    silent, silent_us = sum(load.requests for load in here), sum(load.work_us for load in here)
    for name, weight in WEIGHTS.items():
        part = weight / sum(WEIGHTS.values())
        told = (
            sum(loads[name].requests for speaks, loads in peers if speaks and name in loads) + silent * part
        )
        told_us = (
            sum(loads[name].work_us for speaks, loads in peers if speaks and name in loads) + silent_us * part
        )
        others = max(told, said_by.get(name, middle * weight))
        flight = flights.of(name)
        assert flight.others == pytest.approx(others)
        assert flight.known == pytest.approx(others if name in said_by else told)
        assert flight.others_work_us == pytest.approx(told_us + (others - told) * 1e6, abs=2)


def test_what_servers_say_stays_finite() -> None:
    """The most that one can say, of both, by all, counts as what one can have; more than that is refused."""
    flights = Flights(Backend(name) for name in "abc")
    for name in "ab":
        flights.scraped(name, Scraped(MOST_REQUESTS, MOST_REQUESTS, 1.0))
    flights.settle(1.0)
    assert [flights.of(name).outstanding for name in "abc"] == [2 * MOST_RUNNING] * 3
    with pytest.raises(ValueError, match="no counts"):
        Scraped(1e308, 1e308, 1.0)


@quick(200)
@given(
    st.dictionaries(
        st.sampled_from("abcd"),
        st.tuples(st.floats(0, MOST_REQUESTS), st.floats(0, MOST_REQUESTS)),
        min_size=1,
    ),
    st.floats(0, MOST_REQUESTS),
    st.integers(1, 100),
)
def test_one_server_that_says_much_fills_no_other(
    said: dict[str, tuple[float, float]], much: float, slots: int
) -> None:
    """It is full, up to its slots twice. Those who say something, and all who say nothing, are as full as without it."""

    def settled(**more: Scraped) -> Flights:
        flights = Flights(Backend(name, 1.0, slots) for name in "abcdex")
        for name, (running, waiting) in said.items():
            flights.scraped(name, Scraped(running, waiting, 1.0))
        for name, one in more.items():
            flights.scraped(name, one)
        flights.settle(1.0)
        return flights

    honest, lied = settled(x=Scraped(0, 0, 1.0)), settled(x=Scraped(much, much, 1.0))
    assert lied.of("x").outstanding <= 2 * slots
    assert [lied.of(name).known for name in "abcde"] == [honest.of(name).known for name in "abcde"]
    assert all(not lied.of(name).known for name in "abcde" if name not in said)
    most = max(lied.of(name).outstanding for name in said)
    assert all(lied.of(name).outstanding <= most for name in "abcde")


@pytest.mark.parametrize("bad", [-1, float("nan"), float("inf")])
def test_impossible_counts_are_refused(bad: float) -> None:
    """Whoever says them; and what the peer told before still counts."""
    flights = _flights()
    flights.told("x", {"a": PeerLoad(5, 100)}, 0.0)
    with pytest.raises(ValueError, match=r"peer x says of b: .* no counts"):
        flights.told("x", {"a": PeerLoad(0, 0), "b": PeerLoad(bad, 0)}, 0.0)
    with pytest.raises(ValueError, match="no counts"):
        Scraped(1, bad, 0.0)
    flights.settle(0.0)
    assert flights.of("a").others == 5


def test_a_peer_that_is_forgotten_counts_no_more() -> None:
    """Its connections are closed."""
    flights = _flights()
    flights.told("x", {"a": PeerLoad(5, 100)}, 0.0)
    flights.settle(0.0)
    assert flights.of("a").others == 5
    flights.forget("x")
    flights.settle(0.0)
    assert flights.of("a").others == 0


def test_peers_are_told_own_requests_only() -> None:
    """Else two would tell each other the same request for ever."""
    flights = _flights()
    flights.told("x", {"a": PeerLoad(5, 100)}, 0.0)
    flights.of("a").begin(2.0)
    flights.settle(0.0)
    assert flights.tell() == {"a": (1, 2_000_000)}


def test_peak_ewma_rises_at_once_and_falls_slowly() -> None:
    """A slow request counts whole; a quick one by the time that has passed."""
    measure = PeakEwma()
    for latency, now in ((1.0, 0.0), (5.0, 0.1)):
        measure.observe(latency, now)
        assert measure.value == latency
    measure.observe(1.0, 0.1)
    assert measure.value == 5.0
    measure.observe(1.0, 0.1 + DECAY_S)
    assert measure.value == pytest.approx(1 + 4 * 2.718281828459045**-1)


def test_slowness_is_relative_bounded_and_forgotten() -> None:
    """Twice the mean is 2 at first; nothing known, or long ago, is 1; and nobody is slower than 32 times."""
    flights = _flights()
    for name, latency in (("a", 3.0), ("b", 1.0)):
        flights.of(name).begin(1.0).end(latency, 0.0)
    flights.settle(0.0)
    assert [flights.of(name).slowness for name in WEIGHTS] == pytest.approx([1.5, 0.5, 1.0])
    flights.settle(100 * DECAY_S)
    assert [flights.of(name).slowness for name in WEIGHTS] == pytest.approx([1.0, 1.0, 1.0])
    many = Flights([Backend(f"{number}") for number in range(100)])
    for number in range(100):
        many.of(f"{number}").begin(1.0).end(1e6 if number == 0 else 1.0, 0.0)
    many.settle(0.0)
    assert many.of("0").slowness == 32.0


def test_latency_is_per_cost() -> None:
    """A long answer from a server that was expected to take long is not slow."""
    flights = _flights()
    flights.of("a").begin(10.0).end(10.0, 0.0)
    flights.of("b").begin(0.1).end(0.1, 0.0)
    flights.settle(0.0)
    assert [flights.of(name).slowness for name in WEIGHTS] == pytest.approx([1.0, 1.0, 1.0])
    assert flights.typical == pytest.approx(1.0)


def test_latency_by_load_answers_from_the_nearest_bucket() -> None:
    """Buckets are 0, 1–2, 3–6, 7–14, and so on."""
    known = LatencyByLoad()
    assert known.expected(3) is None
    known.observe(1.0, 0)
    known.observe(8.0, 7)
    assert [known.expected(load) for load in (0, 1, 2, 3, 7, 14, 500)] == [1, 1, 1, 8, 8, 8, 8]
    known.observe(5.0, 2)
    assert known.expected(4) == 5
    known.observe(13.0, 14)
    assert known.expected(7) == pytest.approx(9.0)


def test_a_server_is_hot_above_the_quantile() -> None:
    """With eleven servers of 0 to 10 requests, the ninth's is the bound."""
    flights = Flights([Backend(f"{number}") for number in range(11)])
    for number in range(11):
        for _ in range(number):
            flights.of(f"{number}").begin(1.0)
    flights.settle(0.0)
    assert flights.hot == 8
    assert Flights().hot == float("inf")
