"""Which requests are late, and how many may be hedged, against quantiles and shares worked out exactly."""

from __future__ import annotations

from math import inf, nan

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gtm.core.balance.hedging import (
    LEAST,
    MOST_KINDS,
    QUANTILE,
    WINDOW_S,
    FirstBytes,
    HedgeShare,
    kind_of,
)
from gtm.core.balance.work import AskedWork, Durations
from tests.effort import examples

_LEAST_S = 0.001
_KIND = kind_of("chat", b"/v1/chat/completions", AskedWork("llama", 500, 256), streams=True)


def _exact(seconds: list[float], part: float) -> float:
    """The least of them within which so large a part of them were done, where older ones weigh less: as the histogram fades, by half each 512."""
    weights: list[float] = []
    since = 0
    for _ in seconds:
        weights.append(1.0)
        since += 1
        if since == 64:
            since, weights = 0, [weight * 0.5 ** (64 / 512) for weight in weights]
    whole, done = sum(weights), 0.0
    for value, weight in sorted(zip(seconds, weights, strict=True)):
        done += weight
        if done >= part * whole - 1e-6:
            return value
    raise AssertionError


@settings(max_examples=examples(200))
@given(
    st.lists(st.floats(0.0, 5000.0), min_size=1, max_size=400)
    | st.lists(st.sampled_from([0.1, 0.2, 9.0]), min_size=1),
    st.sampled_from([0.5, 0.9, QUANTILE]),
)
def test_a_quantile_is_where_the_step_of_the_exact_one_ends(seconds: list[float], part: float) -> None:
    """Never below it, and √2 times it at the most."""
    known = Durations()
    for one in seconds:
        known.learn(one)
    found, exact = known.quantile(part), _exact(seconds, part)
    assert exact <= found * (1 + 1e-9)
    assert found <= max(exact, _LEAST_S) * 2**0.5 * (1 + 1e-9)


def test_of_nothing_there_is_no_quantile() -> None:
    """Nor is anything learned of what is no duration; what takes for ever counts as two hours."""
    known = Durations()
    for odd in (-1.0, nan, inf):
        known.learn(odd)
    assert known.quantile(QUANTILE) == 0.0
    known.learn(1e9)
    assert known.quantile(QUANTILE) == 7200.0


def test_nothing_is_late_before_enough_are_known() -> None:
    """106; then it is worked out anew with each sixteenth. Each kind by itself, and a stream whatever it is bounded by."""
    known = FirstBytes()
    said = []
    for number in range(123):
        said.append(known.of(_KIND).late)
        known.of(_KIND).learn(0.2 if number < 107 else 9.0)
    assert said[: LEAST + 16] == [None] * LEAST + [0.256] * 16
    assert said[-1] == pytest.approx(11.585, abs=0.001)
    others = [
        kind_of("batch", b"/v1/chat/completions", AskedWork("llama", 500, 256), streams=True),
        kind_of("chat", b"/v1/completions", AskedWork("llama", 500, 256), streams=True),
        kind_of("chat", b"/v1/chat/completions", AskedWork("other", 500, 256), streams=True),
        kind_of("chat", b"/v1/chat/completions", AskedWork("llama", 5000, 256), streams=True),
        kind_of("chat", b"/v1/chat/completions", AskedWork("llama", 500, 256), streams=False),
    ]
    assert [known.of(one).late for one in others] == [None] * len(others)
    assert kind_of("chat", b"/v1/chat/completions", AskedWork("llama", 500, None), streams=True) == _KIND
    assert kind_of("chat", b"/", AskedWork("a", 1, 9), streams=False) != kind_of(
        "chat", b"/", AskedWork("a", 1, 99), streams=False
    )


def _learned(slow: int, seconds: float, *, hedged: int) -> float:
    """After how long a request is late, after 3,000 of which each `slow`th takes so long, where each `hedged`th of these is hedged."""
    known = FirstBytes().of(_KIND)
    for number in range(3000):
        took = seconds if number % slow == 0 else 0.2
        is_hedged = known.late is not None and took > known.late and number // slow % hedged == 0
        known.learn(known.late if is_hedged and known.late is not None else took)
    return known.late or 0.0


def test_what_is_hedged_has_nobody_wait_for_longer() -> None:
    """Nor anybody be hedged sooner. Of a service that has become slower, or of which more stand still than may be hedged, that is learned."""
    assert _learned(100, 10.0, hedged=1) == 0.256
    assert _learned(30, 10.0, hedged=10**9) > 10.0
    assert _learned(30, 10.0, hedged=2) > 10.0
    known = FirstBytes().of(_KIND)
    for _ in range(300):
        known.learn(0.2)
    late = known.late
    for number in range(300):  # 3 of 100 stand still, and are hedged
        known.learn(late or 0.0 if number % 30 == 0 else 0.2)
    assert known.late == late == 0.256
    for number in range(600):  # all take as long as none did before, and 5 of 100 are hedged
        known.learn(known.late or 0.0 if number % 20 == 0 else 1.0)
    assert 1.0 <= (known.late or 0.0) <= 1.5


def test_kinds_are_bounded() -> None:
    """Whatever names clients make up: who was asked for last stays."""
    known = FirstBytes()
    for number in range(MOST_KINDS + 10):
        known.of(kind_of("chat", b"/", AskedWork(f"made-up-{number}"), streams=False))
        known.of(_KIND).learn(1.0)
    assert len(known) == MOST_KINDS
    assert known.of(_KIND).late


_Told = st.lists(
    st.tuples(st.sampled_from(["request", "request", "request", "late"]), st.floats(0.0, 20.0)), max_size=300
)


@settings(max_examples=examples(200))
@given(_Told, st.sampled_from([0.05, 0.2, 0.5]))
def test_hedges_are_a_share_of_a_minutes_requests(told: list[tuple[str, float]], share: float) -> None:
    """Whenever one is allowed: of the requests of the last minute, but for what of its first five seconds is forgotten, as those are together."""
    counted, now = HedgeShare(), 0.0
    requests: list[float] = []
    hedges: list[float] = []

    def of_late(times: list[float], seconds: float) -> int:
        return sum(now - at <= seconds for at in times)

    for what, more in told:
        now += more
        if what == "request":
            counted.requested(now)
            requests.append(now)
        elif counted.allows(now, share):
            counted.hedged(now)
            hedges.append(now)
            slice_s = WINDOW_S / 12
            begins = (now // slice_s - 11) * slice_s
            assert sum(at >= begins for at in hedges) <= share * sum(at >= begins for at in requests) + 1e-9
            assert of_late(hedges, WINDOW_S - slice_s) <= share * of_late(requests, WINDOW_S) + 1e-9
        else:
            assert of_late(hedges, WINDOW_S) + 1 > share * of_late(requests, WINDOW_S - WINDOW_S / 12)
    counted.look(now + 2 * WINDOW_S)
    assert (counted.requests, counted.hedges) == (0, 0)


def test_a_minute_is_forgotten_as_it_passes() -> None:
    """Requests and hedges alike, by slices of five seconds; so more may be hedged again."""
    counted = HedgeShare()
    for _ in range(100):
        counted.requested(4.0)
    for _ in range(5):
        counted.hedged(4.9)
    counted.look(WINDOW_S - 0.1)
    assert (counted.requests, counted.hedges) == (100, 5)
    assert not counted.allows(WINDOW_S - 0.1, 0.05)
    counted.look(WINDOW_S)
    assert (counted.requests, counted.hedges) == (0, 0)
    for _ in range(20):
        counted.requested(WINDOW_S + 1)
    assert counted.allows(WINDOW_S + 1, 0.05)


def test_a_share_of_few_is_none() -> None:
    """Five of a hundred: none of nineteen, the first of twenty."""
    counted = HedgeShare()
    for _ in range(19):
        counted.requested(1.0)
    assert not counted.allows(1.0, 0.05)
    counted.requested(1.0)
    assert counted.allows(1.0, 0.05)
    counted.hedged(1.0)
    assert not counted.allows(1.0, 0.05)
