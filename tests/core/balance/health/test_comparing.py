"""What clients can cause ejects nobody, and what is a backend's own doing does, however clients behave (docs/backend-health.md, "Whose fault")."""

from __future__ import annotations

from itertools import cycle
from math import inf, sqrt
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gtm.core.balance.backends import Backend
from gtm.core.balance.health.health import BackendHealth
from gtm.core.balance.health.settings import HealthSettings
from gtm.core.balance.health.values import BackendState, Check, Failure, Run, needed
from gtm.core.health.verdicts import ProbeResult
from tests.effort import examples

NAMES = "abcd"


def _health(backends: str | list[Backend] = NAMES, **more: float) -> BackendHealth:
    """Backends that are up."""
    listed = [Backend(one) if isinstance(one, str) else one for one in backends]
    health = BackendHealth(HealthSettings(**more), listed, 0.0)  # type: ignore[arg-type]
    for one in listed:
        for _ in range(2):
            health.checked(one.name, Check.HEALTH, ProbeResult(True, 0.0), 0.0)
    return health


def _end(
    health: BackendHealth,
    name: str,
    now: float,
    failure: Failure | None = None,
    *,
    model: str | None = None,
    mark: int | None = None,
) -> None:
    """A client's request ends."""
    sending = health.begun(name, now, health.asker(model, mark))
    if failure is None:
        health.answered(sending, 200, 0.1, now)
    elif failure in {Failure.STATUS, Failure.REFUSED}:
        health.answered(sending, 500 if failure is Failure.STATUS else 404, 0.1, now)
    else:
        health.failed(sending, failure, now)


def _states(health: BackendHealth, now: float) -> dict[str, BackendState]:
    return {one.name: one.state for one in health.snapshot(now)}


def _ejections(health: BackendHealth) -> int:
    return sum(one.ejections for one in health.snapshot(0.0))


_ATTACKS = 200

CAUSED = [Failure.STATUS, Failure.RESET, Failure.MALFORMED, Failure.TIMEOUT, Failure.REFUSED]


@pytest.mark.parametrize("count", [2, 4, 8])
@pytest.mark.parametrize("part", [0.2, 0.5, 0.8, 0.97])
def test_requests_that_crash_every_server_eject_none(part: float, count: int) -> None:
    """Whatever part of all requests they are, from the first one on, at any rate, through many windows."""
    draw = Random(f"{part}/{count}")
    names = "abcdefgh"[:count]
    health, now = _health(names), 0.0
    for _ in range(100):
        _end(health, draw.choice(names), now)
    for number in range(5000):
        now += 0.01
        _end(health, draw.choice(names), now, draw.choice(CAUSED) if draw.random() < part else None)
        if not number % 50:
            health.tick(now)
    assert _ejections(health) == 0


def test_an_attack_that_begins_anew_and_anew_ejects_none() -> None:
    """All was well before, and of the first crashing requests some server has had more than others."""
    draw, health, now = Random(3), _health(), 0.0
    for _ in range(_ATTACKS):
        now += 20.0
        health.tick(now)
        for name in NAMES * 20:
            _end(health, name, now)
        for _ in range(40):
            now += 0.001
            _end(health, draw.choice(NAMES), now, Failure.RESET)
    assert _ejections(health) == 0


def test_chance_makes_no_outlier() -> None:
    """Among eight servers that few requests come to, one always has more of those that crash: two hundred windows long."""
    draw, names, health, now = Random(4), "abcdefgh", _health("abcdefgh"), 0.0
    for _ in range(_ATTACKS):
        for name in names:
            for number in range(25):
                _end(health, name, now, None if draw.random() < 0.5 or number % 10 == 9 else Failure.RESET)
        now += 10.1
        health.tick(now)
    assert _ejections(health) == 0


@pytest.mark.parametrize("failure", [*CAUSED, Failure.CONNECT])
def test_a_server_that_fails_while_its_peers_answer_is_ejected_at_once(failure: Failure) -> None:
    """The fifth failure in a row, as ever."""
    health, failed, now = _health(), 0, 0.0
    names = cycle(NAMES)
    while _states(health, now)["a"] is BackendState.UP:
        now += 0.01
        name = next(names)
        failed += name == "a"
        _end(health, name, now, failure if name == "a" else None)
    assert failed == 5


def test_a_server_that_fails_is_ejected_though_peers_said_nothing_yet() -> None:
    """Later, for nobody knows whether it is the requests; refused connections are nobody's request's doing."""
    health = _health()
    for number in range(10):
        assert _states(health, 1.0)["a"] is BackendState.UP, number
        _end(health, "a", 1.0, Failure.RESET)
    assert _states(health, 1.0)["a"] is BackendState.EJECTED
    for _ in range(5):
        _end(health, "b", 1.0, Failure.CONNECT)
    assert _states(health, 1.0)["b"] is BackendState.EJECTED


@pytest.mark.parametrize("part", [0.3, 0.5, 0.8])
def test_an_attack_hides_no_server_that_fails_by_itself(part: float) -> None:
    """It is found later: as many failures in a row as chance does not bring, whatever part of requests fails everywhere."""
    draw = Random(f"{part}")
    health, now, failed = _health(), 0.0, 0
    while _states(health, now)["a"] is BackendState.UP:
        now += 0.01
        name = draw.choice(NAMES)
        failed += name == "a"
        _end(health, name, now, Failure.STATUS if name == "a" or draw.random() < part else None)
        assert failed < 300
    assert _ejections(health) == 1


def test_who_chooses_its_server_is_one_witness() -> None:
    """A session's requests go to one server: however often they fail there, they count once in a window."""
    health, now = _health(), 0.0
    for number in range(2000):
        now += 0.02
        for name in NAMES:
            _end(health, name, now)
        for _ in range(10):
            _end(health, "a", now, Failure.STATUS, mark=number % 4)
        if not number % 50:
            health.tick(now)
    assert _ejections(health) == 0
    for number in range(5):
        assert not _ejections(health)
        _end(health, "a", now, Failure.STATUS, mark=100 + number)
    assert _states(health, now)["a"] is BackendState.EJECTED


def test_slow_answers_of_one_session_eject_nobody() -> None:
    """Long prompts are slow wherever they go: each asker has one latency in a window."""
    health = _health()
    for number in range(100):
        for name in NAMES:
            sending = health.begun(name, 1.0, health.asker(None, 7 if name == "a" else number))
            health.answered(sending, 200, 30.0 if name == "a" and number else 0.1, 1.0)
    health.tick(20.0)
    assert _ejections(health) == 0


def test_peers_are_those_who_serve_the_same_model() -> None:
    """Requests that crash all servers of one model eject none of these, though others answer; a model's only server has no peer."""
    backends = [
        Backend("a", models=frozenset({"x"})),
        Backend("b", models=frozenset({"x", "y"})),
        Backend("c", models=frozenset({"y"})),
        Backend("d", models=frozenset({"z"})),
    ]
    health, now = _health(backends), 0.0
    for _ in range(1500):
        now += 0.01
        for name, model in (("a", "x"), ("b", "x"), ("d", "z")):
            _end(health, name, now, Failure.STATUS, model=model)
        for name, model in (("b", "y"), ("c", "y")):
            _end(health, name, now, None, model=model)
    health.tick(now)
    assert _ejections(health) == 0
    for number in range(5):
        assert not _ejections(health), number
        _end(health, "c", now, Failure.STATUS, model="y")
        _end(health, "b", now, None, model="y")
    assert _states(health, now)["c"] is BackendState.EJECTED


def test_a_trial_is_failed_by_the_server_alone() -> None:
    """A crashing request fails a trial only where peers do not fail likewise; else it gives the trial back."""
    for attacked in (False, True):
        health = _health()
        for _ in range(5):
            _end(health, "a", 1.0, Failure.CONNECT)
        for _ in range(20):
            for name in "bcd":
                _end(health, name, 10.0, Failure.STATUS if attacked else None)
        health.tick(11.0)
        for _ in range(3):
            assert _states(health, 11.0)["a"] is BackendState.TRIAL
            _end(health, "a", 11.0, Failure.STATUS)
            if not attacked:
                break
        assert _states(health, 11.0)["a"] is (BackendState.TRIAL if attacked else BackendState.EJECTED)
        assert health.condition("a", 11.0).ejected is not attacked


@pytest.mark.parametrize(("broken", "ejected"), [(True, 1), (False, 0)])
def test_a_window_is_compared_with_the_peers(broken: bool, ejected: int) -> None:
    """Six of ten requests fail at one server, and a good one is always between; or six of ten fail everywhere."""
    health = _health()
    for number in range(50):
        for name in NAMES:
            fails = number % 5 < 3 and (name == "a" or not broken)
            _end(health, name, 1.0, Failure.STATUS if fails else None)
    health.tick(20.0)
    assert _ejections(health) == ejected


def test_a_file_with_other_models_compares_anew() -> None:
    """What peers did with other requests is no measure of these."""
    health = _health()
    for _ in range(20):
        for name in NAMES:
            _end(health, name, 1.0)
    health.update(HealthSettings(), [Backend(name, models=frozenset({"x"})) for name in NAMES])
    for _ in range(9):
        _end(health, "a", 2.0, Failure.STATUS, model="x")
    assert _ejections(health) == 0
    _end(health, "a", 2.0, Failure.STATUS, model="x")
    assert _ejections(health) == 1


@settings(max_examples=examples(1000, 300), deadline=None)
@given(st.integers(1, 10), st.lists(st.lists(st.booleans(), max_size=16), max_size=4), st.booleans())
def test_the_more_peers_fail_the_longer_the_row_must_be(
    least: int, peers: list[list[bool]], since: bool
) -> None:
    """Never shorter than where they have no failure, and as unlikely as that."""
    runs = []
    for ends in peers:
        run = Run()
        run.last.extend((1.0, failed) for failed in ends)
        runs.append(run)
    found = needed(least, runs, 0.0 if since else None)
    failed, ended = sum(map(sum, peers)), sum(map(len, peers))
    share = (failed + sqrt(failed) + 0.2) / (ended + 1)
    assert found >= least
    if share <= 0.05 or share >= 1:
        assert found == (least if share < 1 else inf)
    else:
        assert share**found <= 0.05**least * (1 + 1e-6)
        assert found <= least or share ** (found - 1) > 0.05**least * (1 - 1e-6)


def test_what_witnesses_take_is_bounded() -> None:
    """Models and sessions that clients make up."""
    health = _health()
    for number in range(10_000):
        _end(health, "a", 1.0, Failure.STATUS if number % 2 else None, model=f"m{number}", mark=number)
    monitor = health._monitors["a"]  # noqa: SLF001 - what is kept
    assert len(health._askers) <= 1024  # noqa: SLF001
    assert len(monitor.breaker.runs) == 1
    assert len(monitor.breaker.window._marks) <= 4096  # noqa: SLF001
