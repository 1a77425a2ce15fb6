"""Look-ups, redirects, carried requests, NGINX, Envoy and DNS agree, whatever happens (`tests/drills/one_world.py`)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.drills.one_world import EVENTS, WAYS, run
from tests.tools import tool

pytestmark = [pytest.mark.system, pytest.mark.drill]


@pytest.mark.timeout(900)
def test_one_world_all_ways(tmp_path: Path) -> None:
    """Nothing arrives outside of the fence, ways end alike, and nothing gets through without an edge."""
    for program in ("nginx", "envoy"):
        tool(program)
    batch = 100
    result = run(tmp_path, batch * len(EVENTS), 46, batch)
    assert result.held, str(result)
    assert result.agreed > 0, result
    assert result.dark > 0, result
    assert set(result.events) >= set(EVENTS), result
    assert set(result.asked) == set(WAYS), result
