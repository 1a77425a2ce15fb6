"""Slow start and drain."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gtm.core.health.verdicts import drain_factor, endpoint_factor, next_change, slow_start_factor
from gtm.core.model.regions import AdminState, Endpoint
from gtm.core.model.state import EndpointHealth, HealthStatus
from tests import worlds
from tests.core.strategies import quick

T0 = 1_790_000_000.0
A, B = "https://a.test", "https://b.test"
REGION = worlds.region("r", Endpoint(A), Endpoint(B), at="de", slow_start=30.0, drain_deadline=300.0)
DRAINING = replace(
    REGION, admin_state=AdminState.DRAINING, draining_since=datetime.fromtimestamp(T0, UTC), slow_start=0.0
)
UP, DOWN = EndpointHealth(HealthStatus.UP, T0), EndpointHealth(HealthStatus.DOWN, T0)
BACK = EndpointHealth(HealthStatus.UP, T0, recovered=True)


@pytest.mark.parametrize(
    ("after", "factor"), [(-5, 0.1), (0, 0.1), (1.6, 0.1), (1.7, 0.15), (15, 0.55), (29, 0.95), (30, 1.0)]
)
def test_a_region_ramps_up_after_a_failure(after: float, factor: float) -> None:
    """From 10 % at once to 100 % after `slow_start` seconds, in steps of 5 %."""
    assert slow_start_factor(REGION, {A: BACK, B: DOWN}, T0 + after) == factor
    assert endpoint_factor(BACK, 30.0, T0 + after) == factor


def test_nothing_ramps_without_a_failure() -> None:
    """A first verdict is no recovery, and an endpoint that stayed up carries the region while another comes back."""
    for health in ({A: UP}, {A: UP, B: BACK}, {A: DOWN}, {}, {"https://gone.test": BACK}):
        assert slow_start_factor(REGION, health, T0) == 1.0
        assert next_change([REGION], {"r": health}, T0) == inf
    assert slow_start_factor(replace(REGION, slow_start=0.0), {A: BACK}, T0) == 1.0
    assert endpoint_factor(UP, 30.0, T0) == 1.0
    assert endpoint_factor(DOWN, 30.0, T0) == 0.0


def test_a_second_recovery_takes_nothing_from_the_first() -> None:
    """The region's ramp counts from its first endpoint that is up again."""
    later = replace(BACK, since=T0 + 20)
    assert slow_start_factor(REGION, {A: BACK, B: later}, T0 + 20) == 0.7


@pytest.mark.parametrize(
    ("after", "factor"), [(-1, 1.0), (0, 1.0), (15, 0.95), (150, 0.5), (300, 0), (900, 0)]
)
def test_clients_leave_a_draining_region_step_by_step(after: float, factor: float) -> None:
    """From all at the start to none at the deadline, in steps of 5 %."""
    assert drain_factor(DRAINING, T0 + after) == factor


def test_other_admin_states_do_not_ramp() -> None:
    """Active regions keep all, disabled ones none; a drain without a beginning or with no time is over."""
    assert drain_factor(REGION, T0) == 1.0
    assert drain_factor(replace(REGION, admin_state=AdminState.DISABLED), T0) == 0.0
    assert drain_factor(replace(DRAINING, draining_since=None), T0) == 0.0
    assert drain_factor(replace(DRAINING, drain_deadline=0.0), T0) == 0.0
    for state in (AdminState.DISABLED, AdminState.DRAINING):
        idle = replace(REGION, admin_state=state)
        assert next_change([idle], {"r": {A: BACK}}, T0) == inf


@quick(200)
@given(
    since=st.floats(1.7e9, 1.9e9),
    duration=st.floats(0, 3600),
    started=st.floats(-10, 3700),
    draining=st.booleans(),
)
def test_factors_change_at_the_moments_foretold_and_at_no_other(
    since: float, duration: float, started: float, draining: bool
) -> None:
    """Going from one change to the next visits every step of a monotonic ramp, and ends."""
    health = {A: replace(BACK, since=since)}
    region = replace(REGION, slow_start=duration)
    if draining:
        beginning = datetime.fromtimestamp(since, UTC)
        region = replace(DRAINING, drain_deadline=duration, draining_since=beginning)

    def factor(now: float) -> float:
        return drain_factor(region, now) if draining else 1 - slow_start_factor(region, health, now)

    now = since + started
    before, changes = factor(now), 0
    while (change := next_change([region], {"r": health}, now)) != inf:
        assert change > now
        assert factor((now + change) / 2) == before or (now + change) / 2 >= change
        now = change
        assert factor(now) < before
        before = factor(now)
        changes += 1
    assert changes <= 20
    assert before == 0.0


def test_the_next_change_is_the_earliest_of_all_regions() -> None:
    """Regions ramp and drain side by side."""
    other = replace(DRAINING, name="s")
    health = {"r": {A: BACK}, "s": {A: UP}}
    assert next_change([REGION, other], health, T0) == pytest.approx(T0 + 30 / 18)
    assert next_change([REGION, other], health, T0 + 30) == T0 + 45
    assert next_change([], {}, T0) == inf
