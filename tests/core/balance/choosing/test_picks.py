"""The picks: shares by weight, the better of two, free slots first, turns, hot and cold."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gtm.core.balance.choosing import least_requests, least_work, p2c, prequal, round_robin, scan
from gtm.core.balance.choosing.chooser import scoring
from gtm.core.balance.choosing.filters import Kind
from gtm.core.balance.choosing.values import (
    Candidate,
    ChoosingSettings,
    Eligible,
    Pick,
    Score,
    WantedBackend,
)
from tests.core.balance.choosing.worlds import choose, loaded_pool
from tests.core.strategies import quick

ANY = Kind(None, None)
STEPS = 300
GRID = [
    (int((high + 0.5) / STEPS * 2**26) + (low + 0.5) / STEPS) / 2**26
    for high in range(STEPS)
    for low in range(STEPS)
]
"""Draws that cover both of their halves evenly."""
weights = st.lists(st.sampled_from((1.0, 0.3, 2.5, 7.0)), min_size=1, max_size=6)


def _eligible(
    weights: Sequence[float], requests: Sequence[int] = (), slots: Sequence[int | None] = ()
) -> Eligible:
    return loaded_pool(weights, requests, slots=slots).eligible(ANY)


def _alike(candidate: Candidate, cost: float) -> float:
    return 1.0


def odds(weights: Sequence[float], scores: Sequence[float]) -> list[float]:
    """The model: two draws by weight without replacement; the better wins, the first if they are equal."""
    if len(weights) == 1:
        return [1.0]
    total = sum(weights)
    won = [0.0] * len(weights)
    for first, one in enumerate(weights):
        for second, other in enumerate(weights):
            if first != second:
                both = one / total * other / (total - one)
                won[second if scores[second] < scores[first] else first] += both
    return won


@pytest.mark.parametrize(
    ("weights", "requests"),
    [
        ((1.0, 1.0, 1.0), (0, 0, 0)),
        ((1.0, 5.0), (0, 0)),
        ((0.3, 2.5, 7.0, 1.0), (1, 1, 9, 0)),
        ((1.0, 9.0, 1.0), (4, 3, 2)),
        ((4.0,), (3,)),
    ],
)
def test_two_choices_win_by_their_odds(weights: tuple[float, ...], requests: tuple[int, ...]) -> None:
    """Exact in all draws: as often as the model says."""
    eligible = _eligible(weights, requests)
    scores = [least_requests.score(one, 1.0) for one in eligible.candidates]
    won = Counter(p2c.pick(eligible, least_requests.score, 1.0, draw).number for draw in GRID)
    for number, expected in enumerate(odds(weights, scores)):
        assert won[number] / len(GRID) == pytest.approx(expected, abs=2 / STEPS)


@quick(60)
@given(weights)
def test_equal_scores_give_shares_by_weight(weights: list[float]) -> None:
    """No whole numbers between: 0.3 is 0.3."""
    eligible = _eligible(weights)
    draws = [(number + 0.5) / 4000 for number in range(4000)]
    two = Counter(p2c.pick(eligible, _alike, 1.0, draw).number for draw in draws)
    one = Counter(p2c.one(eligible, draw).number for draw in draws)
    for number, weight in enumerate(weights):
        for won in (one, two):
            assert won[number] / 4000 == pytest.approx(weight / sum(weights), abs=2 / 4000)


@quick(200)
@given(
    st.data(),
    weights,
    st.floats(0, 1, exclude_max=True),
    st.sampled_from((Pick.P2C, Pick.SCAN)),
    st.integers(0, 1),
)
def test_nobody_waits_while_a_slot_is_known_to_be_free(
    data: st.DataObject, weights: list[float], draw: float, pick: Pick, scans: int
) -> None:
    """Where one is free, or may be, whoever is picked is not full; of unknown slots nobody knows that they are."""
    requests = [data.draw(st.integers(0, 3)) for _ in weights]
    slots = [data.draw(st.none() | st.integers(1, 3)) for _ in weights]
    pool = loaded_pool(weights, requests, ChoosingSettings(pick=pick, scans=16 * scans), slots)
    found = choose(pool, WantedBackend(), draw)
    assert isinstance(found, Candidate)
    room = [number for number, slot in enumerate(slots) if slot is None or requests[number] < slot]
    slot = slots[found.number]
    if room:
        assert found.number in room
    assert found.full is (slot is not None and requests[found.number] >= slot)


@quick(200)
@given(st.data(), weights, st.sampled_from(tuple(Score)), st.floats(0.01, 20), st.booleans())
def test_the_scan_finds_the_best(
    data: st.DataObject, weights: list[float], score: Score, cost: float, latency: bool
) -> None:
    """Requests or seconds of work with this one, per weight, times how slow the server is."""
    pool = loaded_pool(weights, settings=ChoosingSettings(pick=Pick.SCAN, score=score, latency=latency))
    expected = []
    for one in pool.candidates:
        costs = data.draw(st.lists(st.sampled_from((0.25, 12.0)), max_size=3))
        for begun in costs:
            one.flight.begin(begun)
        others, slowness = data.draw(st.integers(0, 2)), data.draw(st.sampled_from((1.0, 3.0)))
        one.flight.settle(others, others * 1_000_000, slowness)
        load = len(costs) + others + 1 if score is Score.REQUESTS else sum(costs) + others + cost
        expected.append(load / one.weight * (slowness if latency else 1.0))
    assert [scoring(pool.settings)(one, cost) for one in pool.candidates] == pytest.approx(expected)
    for draw in (0.0, 0.5, 0.999):
        found = choose(pool, WantedBackend(cost=cost), draw)
        assert isinstance(found, Candidate)
        assert expected[found.number] == pytest.approx(min(expected))


def test_the_draw_decides_between_equals() -> None:
    """A region that is idle does not send all to its first server."""
    candidates = _eligible((1.0,) * 4).candidates
    drawn = [scan.pick(candidates, least_work.score, 1.0, draw).number for draw in (0.1, 0.3, 0.6, 0.9)]
    assert drawn == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "settings",
    [ChoosingSettings(scans=0), ChoosingSettings(pick=Pick.SCAN), ChoosingSettings(score=Score.REQUESTS)],
)
def test_the_one_free_slot_is_found_whatever_scores_say(settings: ChoosingSettings) -> None:
    """Nineteen servers with 3 of 3 slots taken, and one, the worst by any score, with 9 of 10."""
    pool = loaded_pool((1.0,) * 20, [3] * 7 + [9] + [3] * 12, settings, [3] * 7 + [10] + [3] * 12)
    for number in range(50):
        found = choose(pool, WantedBackend(), number / 50)
        assert isinstance(found, Candidate)
        assert found.number == 7


def test_free_slots_are_those_that_are_known() -> None:
    """Others' requests take slots too, a part of one takes it whole, and a server that has too many owes nobody."""
    pool = loaded_pool((1.0, 1.0, 1.0), (1, 5, 0), slots=(4, 4, None))
    assert pool.free_slots() == 3
    pool.candidates[0].flight.settle(0.5, 0, 1.0)
    assert pool.free_slots() == 2
    assert loaded_pool((1.0,)).free_slots() is None


def test_few_servers_are_all_looked_at() -> None:
    """Up to `scans`: the best of 16 whatever the draw; of 17 the best of two."""
    for count, always in ((16, True), (17, False)):
        pool = loaded_pool((1.0,) * count, [1] * (count - 1) + [0], ChoosingSettings())
        found = {choose(pool, WantedBackend(), number / 50).number for number in range(50)}  # type: ignore[union-attr]
        assert (found == {count - 1}) is always


def test_slow_start_takes_part_of_the_weight() -> None:
    """A server at a quarter of its warmth gets a quarter of its draws, and counts as full four times as soon."""
    pool = loaded_pool((1.0, 1.0), settings=ChoosingSettings(pick=Pick.RANDOM), warmth={0: 0.25})
    won = Counter(choose(pool, WantedBackend(), (n + 0.5) / 1000).number for n in range(1000))  # type: ignore[union-attr]
    assert won[0] == 200
    assert least_requests.score(pool.candidates[0], 1.0) == 4.0


@quick(60)
@given(st.lists(st.integers(1, 5), min_size=1, max_size=6))
def test_round_robin_serves_each_its_weight_evenly(weights: list[int]) -> None:
    """In as many turns as the weights add up to, exactly; and nobody waits two rounds' worth of turns for its own."""
    candidates = _eligible([float(weight) for weight in weights]).candidates
    total = sum(weights)
    turns = [round_robin.pick(candidates).number for _ in range(3 * total)]
    for start in (0, total, 2 * total):
        assert Counter(turns[start : start + total]) == dict(enumerate(weights))
    for number, weight in enumerate(weights):
        for end in range(1, total + 1):
            assert abs(turns[:end].count(number) - end * weight / total) < len(weights)


def test_smooth_means_smooth() -> None:
    """The example of nginx: weights 5, 1, 1 give a a b a c a a."""
    candidates = _eligible((5.0, 1.0, 1.0)).candidates
    assert [round_robin.pick(candidates).number for _ in range(7)] == [0, 0, 1, 0, 2, 0, 0]


@quick(200)
@given(st.data(), weights, st.floats(0, 1, exclude_max=True), st.none() | st.floats(0.1, 5))
def test_prequal_takes_the_fastest_cold_one(
    data: st.DataObject, weights: list[float], draw: float, typical: float | None
) -> None:
    """The model: of five that are drawn, cold before hot, cold by latency then load, hot by load."""
    requests = [data.draw(st.integers(0, 6)) for _ in weights]
    hot = data.draw(st.sampled_from((0.5, 2.0, 100.0)))
    eligible = _eligible(weights, requests)
    latencies: list[float] = []
    for one in eligible.candidates:
        latency = data.draw(st.none() | st.sampled_from((0.5, 1.0, 2.0)))
        if latency is not None:
            one.flight.latency_by_load.observe(latency, one.flight.outstanding)
        latencies.append((typical or 0.0) if latency is None else latency)
    drawn = set()
    for step in range(5):
        place = (draw + step * 0.6180339887498949) % 1.0 * sum(weights)
        drawn.add(min(bisect_right(list(accumulate(weights)), place), len(weights) - 1))
    load = [count / weight for count, weight in zip(requests, weights, strict=True)]
    cold = [number for number in drawn if load[number] <= hot]
    found = prequal.pick(eligible, hot, typical, draw).number
    assert found in drawn
    if cold:
        assert (latencies[found], load[found]) == min((latencies[number], load[number]) for number in cold)
        assert found in cold
    else:
        assert load[found] == min(load[number] for number in drawn)


def _measured(requests: Sequence[int], latencies: Sequence[float]) -> Eligible:
    eligible = _eligible((1.0,) * len(requests), requests)
    for one, latency in zip(eligible.candidates, latencies, strict=True):
        one.flight.latency_by_load.observe(latency, one.flight.outstanding)
    return eligible


def test_prequal_draws_five_and_puts_latency_before_load() -> None:
    """As many in flight as the bound is cold; of eight servers the fifth drawn counts, one that is not drawn does not."""
    assert prequal.pick(_measured((2, 1), (0.5, 1.0)), 2.0, None, 0.0).number == 0
    assert prequal.pick(_measured((2, 1), (0.5, 1.0)), 1.9, None, 0.0).number == 1
    assert prequal.pick(_measured((5, 4), (0.5, 1.0)), 1.9, None, 0.0).number == 1
    fifth = [1.0, 1.0, 1.0, 0.5, 1.0, 0.1, 1.0, 1.0]
    assert prequal.pick(_measured((0,) * 8, fifth), 2.0, None, 0.0).number == 3
