"""Little's law at work: service times that nobody reports."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gtm.core.capacity.load import STALE, Load
from gtm.core.capacity.processing import Occupancy, observe

SMOOTHING = 3.0


def _reports(
    outstanding: float, sent: float, grows: float = 0.0, *, seconds: int = 60, limit: float | None = None
) -> Occupancy:
    found: Occupancy | None = None
    for second in range(seconds):
        load = Load(
            "r", "", float(second), 1, outstanding=outstanding, queue=max(grows * second, 0.0), limit=limit
        )
        found = observe(found, load, sent, SMOOTHING)
    assert found is not None
    return found


@given(st.floats(1.0, 1e4), st.floats(0.5, 1e4))
def test_steady_requests_take_what_littles_law_says(outstanding: float, sent: float) -> None:
    """L = λ · W, whatever the two are."""
    found = _reports(outstanding, sent).service_time_ms
    assert found == pytest.approx(min(1000 * outstanding / sent, 3.6e6), rel=1e-6)


@given(st.floats(2.0, 1e3), st.floats(1.0, 1e3), st.floats(0.0, 0.9))
def test_what_piles_up_was_not_served(outstanding: float, served: float, share: float) -> None:
    """A queue that grows by what is sent too much leaves the same service time, once the standing queue is discounted."""
    sent = served / (1 - share)
    found = _reports(outstanding, sent, sent - served, seconds=200)
    assert found.service_time_ms is not None
    standing = 1 + 0.05 * found.standing
    assert found.service_time_ms / standing == pytest.approx(1000 * outstanding / served, rel=0.03)


def test_a_standing_queue_counts_twice_in_the_end_and_is_forgotten_half_as_fast() -> None:
    """Each second that a queue stands adds 5%; once it is gone, each takes 2.5% off."""
    found: Occupancy | None = None
    for second in range(40):
        found = observe(
            found, Load("r", "", float(second), 1, outstanding=10.0, queue=5.0, limit=10.0), 10.0, SMOOTHING
        )
    assert found is not None
    assert found.service_time_ms == pytest.approx(2000.0)
    for second in range(40, 61):
        found = observe(
            found, Load("r", "", float(second), 1, outstanding=10.0, queue=0.0, limit=10.0), 10.0, SMOOTHING
        )
    assert found is not None
    assert found.standing == pytest.approx(20 - 21 / 2)
    falling = observe(found, Load("r", "", 61.0, 1, outstanding=10.0, queue=5.0, limit=10.0), 10.0, SMOOTHING)
    assert falling is not None
    assert falling.standing < found.standing


@pytest.mark.parametrize(
    ("outstanding", "sent", "seconds"),
    [(64.0, 30.0, 3), (0.2, 30.0, 60), (64.0, 0.05, 60), (64.0, 0.0, 60)],
    ids=["two seconds", "hardly anything inside", "hardly anything sent", "nothing sent"],
)
def test_too_little_says_nothing(outstanding: float, sent: float, seconds: int) -> None:
    """Few reports, or few requests, are no observation."""
    assert _reports(outstanding, sent, seconds=seconds).service_time_ms is None


def test_a_nearly_empty_region_is_measured_in_time() -> None:
    """A mean of half a request is too little for some seconds, and enough after twenty."""
    assert _reports(0.5, 2.0, seconds=9).service_time_ms is None
    assert _reports(0.5, 2.0, seconds=21).service_time_ms == pytest.approx(250.0)


def test_nothing_leaves_a_stuck_region() -> None:
    """Where all that is sent piles up, a twentieth counts as served: a number, and a large one."""
    found = _reports(64.0, 10.0, 10.0).service_time_ms
    assert found is not None
    assert 1000 * 64 / 10 < found <= 2.001 * 20 * 1000 * 64 / 10


def test_only_new_reports_are_observations() -> None:
    """The same report again adds nothing; one without outstanding requests, or after a silence, begins anew."""
    found = _reports(64.0, 30.0, seconds=10)
    load = Load("r", "", found.at, 1, outstanding=1.0, queue=0.0)
    assert observe(found, load, 30.0, SMOOTHING) is found
    assert observe(found, replace(load, outstanding=None), 30.0, SMOOTHING) is None
    for at in (found.at + STALE + 1, found.at - 1):
        fresh = observe(found, replace(load, at=at), 30.0, SMOOTHING)
        assert fresh is not None
        assert (fresh.weight, fresh.outstanding) == (0.0, 1.0)
