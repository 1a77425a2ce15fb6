"""What an edge's agent keeps of round trips until control is told."""

from __future__ import annotations

import logging

import pytest

from gtm.core.latency.samples import Level
from gtm.core.policy.compile import compile_policy
from gtm.core.policy.snapshot import Snapshot
from gtm.runtime.edge.agent import agent
from gtm.runtime.edge.agent.agent import EdgeRoundTrips
from tests import worlds


def snapshot() -> Snapshot:
    """Two regions, 6,500 km apart."""
    return compile_policy(worlds.policy(*worlds.regions("eu-central us-east")), ())


def test_probes_become_round_trips_between_regions() -> None:
    """An edge that knows its region hands on the median way to each other; what cannot be is left out."""
    found = EdgeRoundTrips("eu-central", lambda: 5.0)
    found.update(snapshot())
    for ms in (90.0, 400.0, 88.0, 0.2):
        found.probed("us-east", ms)
    found.probed("eu-central", 0.3)
    found.probed("atlantis", 30.0)
    found.end_interval()
    ((delta,), _) = found.take()
    assert (delta.level, delta.key, delta.region) == (Level.REGION, "eu-central", "us-east")
    assert (delta.centre, delta.samples, delta.at) == (90.0, 3, 5.0)
    assert found.take() == ((), ())


def test_an_edge_elsewhere_says_nothing_of_regions() -> None:
    """Without a region, probes measure the way from nowhere in particular."""
    found = EdgeRoundTrips(None, lambda: 5.0)
    found.update(snapshot())
    found.probed("us-east", 90.0)
    found.end_interval()
    assert found.take() == ((), ())


def test_a_region_that_is_not_there_is_told_of(caplog: pytest.LogCaptureFixture) -> None:
    """A misspelt region is named in the log."""
    with caplog.at_level(logging.WARNING):
        EdgeRoundTrips("eu-centrl", lambda: 5.0).update(snapshot())
    assert "eu-centrl" in caplog.text


def test_what_waits_is_bounded_and_the_newest_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """While control is away memory does not grow; a report holds only so much, the rest goes with the next."""
    monkeypatch.setattr(agent, "MAX_WAITING", 5)
    monkeypatch.setattr(agent, "MAX_SENT", 3)
    found = EdgeRoundTrips("eu-central", lambda: 5.0)
    found.update(snapshot())
    for ms in range(80, 90):
        found.probed("us-east", float(ms))
        found.end_interval()
    assert [delta.centre for delta in found.take()[0]] == [85.0, 86.0, 87.0]
    assert [delta.centre for delta in found.take()[0]] == [88.0, 89.0]
