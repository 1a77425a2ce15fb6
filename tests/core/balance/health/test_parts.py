"""Parts of backends' health by themselves: retry budgets, settings, what people are told."""

from __future__ import annotations

from itertools import pairwise
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gtm.core.balance.backends import Backend
from gtm.core.balance.choosing.chooser import pool_of
from gtm.core.balance.choosing.values import WantedBackend
from gtm.core.balance.flights import Flights
from gtm.core.balance.health.health import BackendHealth, median_without
from gtm.core.balance.health.monitor import warmth
from gtm.core.balance.health.retries import RetryBudget
from gtm.core.balance.health.settings import HealthSettings, Thresholds
from gtm.core.balance.health.values import BackendLoad, BackendState, Check, Failure
from gtm.core.health.verdicts import ProbeResult
from tests.core.balance.choosing.worlds import choose
from tests.core.strategies import quick

GOOD, BAD = ProbeResult(True, 0.0), ProbeResult(False, 0.0, "status 503, expected 200")


def _health(names: str, settings: HealthSettings | None = None) -> BackendHealth:
    """Backends that are up."""
    settings = settings or HealthSettings()
    health = BackendHealth(settings, [Backend(name) for name in names], 0.0)
    for name in names:
        for check in settings.checks:
            health.checked(name, check, GOOD, 0.0)
    return health


def _fail(health: BackendHealth, name: str, now: float, times: int = 5) -> None:
    for _ in range(times):
        health.failed(health.begun(name, now), Failure.RESET, now)


@quick(200)
@given(
    st.lists(st.tuples(st.floats(0, 2), st.booleans()), max_size=60),
    st.floats(0, 1),
    st.floats(0, 5),
    st.floats(1, 12),
)
def test_retries_keep_within_their_budget(
    events: list[tuple[float, bool]], share: float, floor: float, most: float
) -> None:
    """In any span of time: no more than what was kept, a share of the requests, and the floor; and no fewer, where asked."""
    budget, now = RetryBudget(0.0, share=share, floor=floor, most=most), 0.0
    log: list[tuple[float, str]] = []
    for gap, retry in events:
        now += gap
        if retry:
            left = budget.left(now)
            taken = budget.take(now)
            assert taken is (left >= 1 - 1e-9)
            log.append((now, "retry" if taken else "refused"))
        else:
            budget.requested()
            log.append((now, "request"))
    for first in range(len(log)):
        for last in range(first, len(log)):
            span = [what for _, what in log[first : last + 1]]
            seconds = log[last][0] - log[first][0]
            assert span.count("retry") <= most + share * span.count("request") + floor * seconds + 1e-6
    assert budget.taken == sum(what == "retry" for _, what in log)
    assert budget.refused == sum(what == "refused" for _, what in log)


def test_a_budget_is_a_share_of_requests_and_a_floor() -> None:
    """Worked: one at the start, a fifth of the requests, one a second, ten at most."""
    budget = RetryBudget(0.0)
    assert [budget.take(0.0) for _ in range(2)] == [True, False]
    for _ in range(5):
        budget.requested()
    assert [budget.take(0.0) for _ in range(2)] == [True, False]
    assert [budget.take(2.0) for _ in range(3)] == [True, True, False]
    assert [budget.take(1e6) for _ in range(11)] == [True] * 10 + [False]
    for _ in range(100):
        budget.requested()
    assert [budget.take(1e6) for _ in range(11)] == [True] * 10 + [False]


@given(st.floats(0, 1e6), st.floats(0, 120), st.floats(0, 200))
def test_warmth_rises_from_a_tenth_to_all(since: float, slow_start: float, later: float) -> None:
    """A tenth at once, all after `slow_start`, never less than before, in steps of 5%, at most one step off the line."""
    assert warmth(None, slow_start, since) == 1.0
    moments = [since + slow_start * part / 40 for part in range(41)]
    found = [warmth(since, slow_start, moment) for moment in moments]
    assert all(0.1 <= one <= two <= 1 for one, two in pairwise(found))
    assert warmth(since, slow_start, since + slow_start + later + 1e-3) == 1.0
    if slow_start > 0.01:
        assert found[0] == 0.1
        assert all(abs(one - (0.1 + 0.9 * part / 40)) <= 0.05 + 1e-9 for part, one in enumerate(found))


@pytest.mark.parametrize(("count", "most"), [(1, 0), (2, 1), (3, 1), (4, 2), (5, 2), (8, 4)])
def test_never_all_are_ejected(count: int, most: int) -> None:
    """Half of them, at least one, never all, though all fail; and some server can be chosen without panic."""
    names = "abcdefgh"[:count]
    health = _health(names)
    for _ in range(3):
        for name in names:
            _fail(health, name, 1.0)
    conditions = health.tick(1.0)
    assert sum(one.ejected for one in conditions.values()) == most
    pool = pool_of([Backend(name) for name in names], conditions, Flights(), None)
    chosen = choose(pool, WantedBackend(), 0.5)
    assert not isinstance(chosen, str)
    assert not chosen.condition.ejected


def test_requests_of_before_do_not_fail_trials() -> None:
    """A hundred streams of a server that died end long after it was restarted: that says nothing of the new one."""
    health = _health("abc")
    old = [health.begun("a", 0.5) for _ in range(100)]
    _fail(health, "a", 1.0)
    health.tick(11.0)
    trials = [health.begun("a", 11.0) for _ in range(3)]
    assert health.condition("a", 11.0).ejected  # as many trials as may be
    for sending in old[:50]:
        health.stalled(sending, 12.0)
    assert health.snapshot(12.0)[0].state is BackendState.TRIAL
    for sending in trials:
        health.answered(sending, 200, 0.2, 13.0)
    assert health.condition("a", 13.0).warmth == 0.1
    for sending in old[50:]:
        health.stalled(sending, 14.0)
    standing = health.snapshot(14.0)[0]
    assert (standing.state, standing.since, standing.until) == (BackendState.WARMING, 13.0, 43.0)
    assert standing.ended == {"reset": 5, "stall": 100, "good": 3}
    health.tick(43.0)
    assert health.snapshot(43.0)[0].state is BackendState.UP


def test_a_client_that_leaves_gives_its_trial_back() -> None:
    """Else a server whose trials are all cancelled would never be tried again."""
    health = _health("abc", HealthSettings(trials=1))
    _fail(health, "a", 1.0)
    health.tick(11.0)
    for _ in range(3):
        sending = health.begun("a", 11.0)
        assert health.changes(11.0)["a"].ejected
        health.cancelled(sending)
        assert not health.changes(11.0)["a"].ejected


def test_people_are_told_why() -> None:
    """Why it is out, since when and until when."""
    health = _health("abcd", HealthSettings(forget=100.0))
    health.checked("b", Check.HEALTH, BAD, 2.0)
    health.checked("b", Check.HEALTH, BAD, 3.0)
    for _ in range(5):
        health.answered(health.begun("a", 4.0), 503, 0.1, 4.0)
    health.drain("c", 5.0)
    a, b, c, d = health.snapshot(6.0)
    assert (a.state, a.since, a.until) == (BackendState.EJECTED, 4.0, 14.0)
    assert a.why == "5 requests failed in a row, the last by status, 503"
    assert (b.state, b.why, b.since, b.until) == (
        BackendState.DOWN,
        "health: status 503, expected 200",
        3.0,
        None,
    )
    assert (c.state, c.since, c.until) == (BackendState.DRAINING, 5.0, None)
    assert (d.state, d.why, d.until) == (BackendState.UP, "", None)
    health.undrain("c")
    for at, result in ((7.0, GOOD), (8.0, GOOD), (9.0, BAD), (10.0, BAD), (11.0, GOOD), (12.0, GOOD)):
        health.checked("b", Check.HEALTH, result, at)
    held = health.snapshot(12.0)[1]
    assert (held.state, held.since, held.until, held.falls) == (BackendState.HELD, 12.0, 20.0, 2)


def test_what_was_never_checked_is_unknown() -> None:
    """And not healthy, and nobody's requests say otherwise."""
    health = BackendHealth(HealthSettings(), [Backend("a")], 0.0)
    health.answered(health.begun("a", 0.0), 200, 0.1, 0.0)
    assert not health.tick(0.0)["a"].healthy
    assert health.snapshot(0.0)[0].state is BackendState.UNKNOWN


def test_who_comes_back_is_another() -> None:
    """A backend that left the configuration and came back is unknown; ends of requests of before say nothing of it."""
    health = _health("abc", HealthSettings(consecutive=1))
    old = health.begun("a", 1.0)
    health.failed(health.begun("a", 1.0), Failure.RESET, 1.0)
    health.update(HealthSettings(consecutive=1), [Backend(name) for name in "bc"])
    assert "a" not in health.changes(1.0)
    gone = health.begun("a", 1.0)
    health.update(HealthSettings(consecutive=1), [Backend(name) for name in "abc"])
    for sending in (old, gone):
        health.failed(sending, Failure.RESET, 2.0)
    condition = health.condition("a", 2.0)
    assert not condition.ejected
    assert not condition.healthy
    assert health.condition("b", 2.0).healthy


def test_events_of_nobody_say_nothing() -> None:
    """A check that ends after its backend left."""
    health = _health("a")
    health.tick(0.0)
    health.checked("x", Check.HEALTH, GOOD, 1.0)
    health.scraped("x", BackendLoad(running=1.0), 1.0)
    health.reported("x", BackendLoad(running=1.0), 1.0)
    health.listed("x", frozenset(), frozenset(), 1.0)
    health.cancelled(health.begun("x", 1.0))
    health.answered(health.begun("x", 1.0), 200, 0.1, 1.0)
    health.stalled(health.begun("x", 1.0), 1.0)
    health.drain("x", 1.0)
    health.undrain("x")
    assert not health.pending
    assert not health.tick(1.0)


def test_a_check_that_comes_to_be_on_is_unknown_first() -> None:
    """And one that is off no longer keeps nobody down; neither is a fall."""
    health = _health("ab")
    both = HealthSettings(checks={Check.HEALTH: Thresholds(), Check.COMPLETION: Thresholds()})
    health.update(both, [Backend("a"), Backend("b")])
    assert health.snapshot(1.0)[0].state is BackendState.UNKNOWN
    health.checked("a", Check.COMPLETION, BAD, 1.0)
    health.update(HealthSettings(), [Backend("a"), Backend("b")])
    assert health.tick(2.0)["a"].healthy
    assert health.snapshot(2.0)[0].falls == 0
    for at in (3.0, 4.0, 5.0):  # one that was in flight meanwhile
        health.checked("a", Check.COMPLETION, BAD, at)
    assert health.tick(5.0)["a"].healthy


@given(st.lists(st.floats(0, 100), min_size=2, max_size=9), st.data())
def test_the_median_of_the_others(values: list[float], data: st.DataObject) -> None:
    """As if the one had not been there."""
    index = data.draw(st.integers(0, len(values) - 1))
    others = values[:index] + values[index + 1 :]
    assert median_without(sorted(values), values[index]) == median(others)
