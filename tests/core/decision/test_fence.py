"""The fence of real parts against its readable model, in random worlds (`tests/drills/fence.py`)."""

from __future__ import annotations

import pytest

from tests.drills.fence import run
from tests.effort import examples

ENOUGH = 5_000
"""Cases among which edges end requests over HTTP in each way."""


@pytest.mark.endurance
def test_nobody_is_let_out_of_the_fence_nor_held_back() -> None:
    """50,000 cases of mixed subnets, dates, and clocks that step, or the first quarter of them."""
    cases = examples(50_000)
    result = run(cases, seed=1)
    assert result.cases >= cases
    assert not result.first, str(result)
    if cases >= ENOUGH:
        assert {
            "carried",
            "redirected",
            "421",
            "451",
            "503",
            "still carried",
            "carried no more",
        } <= result.met.keys()
