"""A stolen edge token against a whole control process, in random worlds (`tests/drills/liars.py`): what others' clients notice."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gtm.core.latency import Estimator, Settings
from gtm.core.model.requests import Request
from tests.core.strategies import quick
from tests.drills.liars import CLIENTS, DRAWS, Damage, Setting, World, climb, draw_lie, run

MOST_REFUSED = 0.05
"""Of others' requests: regions are drawn up to seven tenths full, and a burst of the liar's own may fill one."""


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Alarms that lies raise are not for the log of tests."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@quick(100)
@given(st.integers(0, 2**32))
def test_no_lie_leaves_the_fence_or_refuses_the_world(seed: int) -> None:
    """In every field at once: no answer beyond the fence, and hardly anybody refused."""
    rng = random.Random(seed)
    worst, lie = climb(rng, Setting.drawn(rng), "dhlp", 2)
    assert worst.outside == 0, lie
    assert worst.refused <= MOST_REFUSED, lie


@quick(100)
@given(st.integers(0, 2**32), st.sampled_from("hp"))
def test_lies_about_health_and_plans_change_nothing(seed: int, kind: str) -> None:
    """One vote of two or more decides nothing against honest edges that agree, and a made-up plan is nobody's."""
    rng = random.Random(seed)
    worst, lie = climb(rng, Setting.drawn(rng), kind, 2)
    assert worst == Damage(), lie


@quick(100)
@given(st.integers(0, 2**32))
def test_lies_about_round_trips_lead_nowhere_far(seed: int) -> None:
    """Clients without a plan's help go to a region that is at most twice `alone_ms` farther than geography's nearest."""
    rng = random.Random(seed)
    setting = Setting.drawn(rng)
    idle = Setting(dict.fromkeys(setting.rates, setting.rates["liar"]), setting.down)
    lied = run(idle, draw_lie(rng, "l"))
    world = World(idle)
    estimator = Estimator(world.snapshot.regions)
    usable = [number for number, region in enumerate(world.snapshot.regions) if region.name not in idle.down]
    for (_, client), found in lied.items():
        paths = estimator.paths(CLIENTS[client], usable)
        fenced = [
            number
            for number in usable
            if CLIENTS[client].country not in ("DE", "FR")
            or world.snapshot.regions[number].country in ("DE", "IE", "FR")
        ]
        nearest = min(paths[number].estimate_ms for number in fenced)
        for region in found:
            number = world.snapshot.region_numbers[region]
            assert paths[number].estimate_ms <= nearest + 2 * Settings().alone_ms + 3.0


def test_a_world_answers() -> None:
    """The yardstick itself: without a lie everybody is served near, where there is room."""
    setting = Setting({"edge-0": dict.fromkeys(CLIENTS, 10.0), "liar": {"boston": 1.0}}, frozenset())
    router = World(setting).router()
    for (_, client), found in run(setting, None).items():
        nearest = router.decide(Request("chat", CLIENTS[client]), 0.5).region
        assert found == {nearest: len(DRAWS)}
