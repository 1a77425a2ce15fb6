"""How late a message came, by clocks that show different times."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gtm.core.balance.spill.room import Transit
from tests.effort import examples


@settings(max_examples=examples(300))
@given(
    st.floats(-1e9, 1e9),
    st.lists(st.tuples(st.floats(0.0, 2.0), st.floats(0.0, 0.5)), min_size=1, max_size=30),
)
def test_lateness_is_beyond_the_quickest(apart: float, sent: list[tuple[float, float]]) -> None:
    """Whatever the clocks show: what a message took less what the quickest so far took, within the last minute or two."""
    transit, at, took = Transit(), 0.0, []
    for pause, way in sent:
        at += pause
        took.append(way)
        found = transit.late("control", at + apart, at + way)
        assert found == pytest.approx(way - min(took), abs=1e-5)


def test_another_sender_begins_anew() -> None:
    """Its clock is another."""
    transit = Transit()
    assert transit.late("one", 5.0, 100.0) == 0.0
    assert transit.late("one", 6.0, 101.5) == 0.5
    assert transit.late("two", 900.0, 102.0) == 0.0


def test_clocks_that_drift_are_followed() -> None:
    """One that runs slower makes everything seem later and later: after two minutes only what is usual now counts."""
    transit = Transit()
    for second in range(600):
        found = transit.late("control", second * 0.999, float(second))
        assert found <= 0.13
