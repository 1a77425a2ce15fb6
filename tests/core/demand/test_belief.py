"""How far edges are believed: what a liar can do, and what honest edges must not suffer (docs/planning.md#how-far-edges-are-believed)."""

from __future__ import annotations

import random
from math import exp, inf, pi, sin

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gtm.core.demand.belief import (
    BURST,
    GROWTH,
    HOUR,
    HOURS,
    MINUTE,
    PART,
    UNKNOWN,
    Evidence,
    PeakBook,
    limits,
)
from tests.core.strategies import quick

RATES = st.floats(0, 1e6)
NOW = 1_700_000_000.0


def believed(claims: dict[str, float], evidence: Evidence) -> dict[str, float]:
    """What of the claims counts."""
    most = limits(claims, evidence)
    return {token: min(claim, most[token]) for token, claim in claims.items()}


@quick(300)
@given(
    st.dictionaries(st.sampled_from("abcd"), st.tuples(RATES, st.floats(0, BURST)), min_size=1),
    st.floats(0, 1e18),
    RATES,
    RATES,
    RATES,
)
@example({"a": (1.0, 0.5)}, 2.0**52, 0.0, 0.0, 0.0)  # so much that a sum of it and the half is rounded
def test_the_largest_lie_is_a_burst(
    honest: dict[str, tuple[float, float]], lie: float, peak: float, arrivals: float, part: float
) -> None:
    """What a liar adds is at most a burst of its own, a part of all capacity, an edge like the others, or what the world is known to ask.

    Honest edges within a burst of their history count in full, whatever the liar says.
    """
    peaks = {token: rate for token, (rate, _) in honest.items()}
    claims = {token: rate * times for token, (rate, times) in honest.items()}
    world = sum(peaks.values()) + peak
    found = believed({**claims, "liar": lie}, Evidence({**peaks, "liar": peak}, world, arrivals, part))
    for token, claim in claims.items():
        assert found[token] == pytest.approx(claim)
    known = max(world, arrivals) - sum(claims.values())
    assert (
        found["liar"]
        <= max(BURST * peak, part, sorted(claims.values())[(len(claims) - 1) // 2], known) * 1.0001
    )


def test_a_lone_edge_is_believed_wholly() -> None:
    """There is nobody whom it could move."""
    assert limits({"a": 1e12}, Evidence({"a": 1.0}, 1.0, 0.0, 0.0)) == {"a": inf}
    assert limits({}, UNKNOWN) == {}


@pytest.mark.parametrize(
    ("claims", "evidence", "counts"),
    [
        # A new edge beside two others counts as one like them.
        ({"a": 100.0, "b": 60.0, "new": 1e9}, Evidence({"a": 90.0, "b": 70.0}, 160.0), 60.0),
        # The clients of an edge that has ended come to another.
        ({"a": 0.0, "new": 150.0}, Evidence({"a": 100.0, "new": 10.0}, 160.0), 150.0),
        # Regions see more arrive than ever before.
        ({"a": 100.0, "new": 5_000.0}, Evidence({"a": 90.0, "new": 1.0}, 91.0, arrivals=6_000.0), 5_000.0),
        ({"a": 100.0, "new": 5_000.0}, Evidence({"a": 90.0, "new": 1.0}, 91.0, arrivals=300.0), 200.0),
        # A part of what all regions can serve is anybody's.
        ({"a": 5.0, "new": 1e9}, Evidence({}, part=30.0), 30.0),
        ({"a": 5.0, "new": 1e9}, UNKNOWN, 1e9),
    ],
)
def test_what_others_make_likely_counts(claims: dict[str, float], evidence: Evidence, counts: float) -> None:
    """The unbounded part of a world without known capacity is that nobody can be refused there."""
    part = evidence.part if evidence.part < inf or evidence is UNKNOWN else 0.0
    found = believed(claims, Evidence(evidence.peaks, evidence.world, evidence.arrivals, part))
    assert found["new"] == pytest.approx(counts)


class World:
    """Edges' minutes, in a history."""

    def __init__(self, part: float = 0.0) -> None:
        self.history = PeakBook()
        self.now = NOW - NOW % HOUR
        self.part = part
        self.history.evidence(self.now, 0.0, part)

    def minute(self, **rates: float) -> Evidence:
        """A minute in which edges were asked so much a second."""
        for token, rate in rates.items():
            self.history.count(token, rate * MINUTE)
        self.now += MINUTE
        return self.history.evidence(self.now, 0.0, self.part)


def test_a_day_of_traffic_counts_in_full() -> None:
    """Two edges with their days and nights, noise, and bursts of up to eight times: nothing of it is left out."""
    world, rng = World(part=100.0), random.Random(7)
    evidence = world.minute(a=50.0, b=20.0)
    for minute in range(2 * 24 * 60):
        day = 1 + 0.9 * sin(2 * pi * minute / 1440)
        burst = BURST if minute > 1440 and rng.random() < 0.01 else 1.0
        claims = {
            "a": 50 * day * exp(rng.gauss(0, 0.2)) * burst,
            "b": 20 * (2 - day) * exp(rng.gauss(0, 0.2)),
        }
        assert believed(claims, evidence) == claims
        evidence = world.minute(**claims)


def test_a_patient_liar_doubles_each_hour() -> None:
    """However it goes about it, its history grows by no more than that, and takes what others leave of it; a day later it is forgotten."""
    world = World()
    hour = int(world.now // HOUR) - 1
    world.history.add({("honest", hour): 100.0, ("liar", hour): 10.0, ("", hour): 110.0})
    evidence = world.minute(honest=100.0, liar=10.0)
    for minute in range(5 * 60):
        claims = {"honest": 100.0 if minute % 2 else 1.0, "liar": 1e9}
        hours = int(world.now // HOUR) - hour
        assert believed(claims, evidence)["liar"] <= (BURST * 10.0 * GROWTH**hours + 100.0) * 1.001
        evidence = world.minute(**claims)
    assert evidence.peaks["honest"] == pytest.approx(100.0)
    for _ in range((HOURS + 2) * 60):
        evidence = world.minute(honest=100.0, liar=1.0)
    assert believed({"honest": 100.0, "liar": 1e9}, evidence)["liar"] <= 101.0


def test_a_first_minute_teaches_no_lie() -> None:
    """In a world that has just begun, an edge that nobody knows gets a part of all capacity, and no more by repeating itself."""
    world = World(part=30.0)
    evidence = world.minute(honest=5.0, liar=1e9)
    for _ in range(59):
        assert believed({"honest": 5.0, "liar": 1e9}, evidence)["liar"] == pytest.approx(30.0)
        evidence = world.minute(honest=5.0, liar=1e9)
    assert 0 < PART < 1


def test_a_rotated_token_keeps_its_history_and_a_revoked_one_loses_it() -> None:
    """By their ids; the world's history stays."""
    world = World(part=400.0)
    world.minute(old=40.0, bad=4.0)
    world.history.retain({"old": "new", "new": "new"})
    evidence = world.history.evidence(world.now, 0.0, 0.0)
    assert evidence.peaks == {"new": pytest.approx(40.0)}
    assert evidence.world == pytest.approx(44.0)


def test_what_was_kept_goes_on() -> None:
    """A control that starts knows the last day, takes the higher of two, and counts no part of a minute as a whole."""
    world = World(part=400.0)
    world.minute(a=40.0, b=10.0)
    later = PeakBook()
    later.count("a", 1e9)
    later.evidence(world.now, 0.0, 0.0)
    later.add(world.history.peaks())
    assert later.evidence(world.now, 0.0, 0.0).peaks == {"a": pytest.approx(40.0), "b": pytest.approx(10.0)}
    later.add({("a", int(world.now // HOUR)): 3.0})
    assert later.evidence(world.now - MINUTE, 0.0, 0.0).world == pytest.approx(50.0), "the clock stepped back"
