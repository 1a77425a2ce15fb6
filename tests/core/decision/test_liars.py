"""A location database that lies about every client: where answers go by what is said (`tests/drills/liars/location.py`)."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from tests.core.strategies import quick
from tests.drills.liars.arena import climb
from tests.drills.liars.location import LocationArena

DEFAULTS, ANY = LocationArena(defaults=True), LocationArena()


@quick(100)
@given(st.integers(0, 2**32), st.sampled_from("wd"))
def test_what_is_said_of_a_place_is_what_rules_go_by(seed: int, kinds: str) -> None:
    """Whatever is said, and however far a rule believes it: no answer leaves the fence that the rule asks for by that."""
    rng = random.Random(seed)
    worst, lie = climb(ANY, rng, ANY.setting(rng), kinds, 4)
    assert worst.outside == 0, lie


@quick(100)
@given(st.integers(0, 2**32))
def test_a_lie_in_doubt_leads_nobody_out(seed: int) -> None:
    """Of a network that two balancers' round trips contradict, no client leaves the fence in which it is in truth."""
    rng = random.Random(seed)
    worst, lie = climb(DEFAULTS, rng, DEFAULTS.setting(rng), "d", 4)
    assert (worst.outside, worst.taken) == (0, 0.0), lie


def test_a_lie_that_nobody_doubts_is_believed() -> None:
    """The yardstick: without a doubt, clients of the EEA are answered from elsewhere."""
    found = []
    for seed in range(8):
        rng = random.Random(seed)
        found.append(climb(DEFAULTS, rng, DEFAULTS.setting(rng), "w", 4)[0])
    assert max(one.taken for one in found) == 1.0
    assert all(one.outside == 0 for one in found)
