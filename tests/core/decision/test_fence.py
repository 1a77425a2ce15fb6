"""The fence of real parts against its readable model, in random worlds (`tests/drills/fence.py`)."""

from __future__ import annotations

from tests.drills.fence import run


def test_nobody_is_let_out_of_the_fence_nor_held_back() -> None:
    """50,000 cases of mixed subnets, dates, and clocks that step."""
    result = run(50_000, seed=1)
    assert result.cases >= 50_000
    assert not result.first, str(result)
