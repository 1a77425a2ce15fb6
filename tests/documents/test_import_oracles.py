"""`gtm import` beside the systems that it reads from, small: `python -m tests.drills.imports` does the same at length."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.drills.imports import Tally, run_gdnsd, run_octodns, run_zone_files

RUNS: dict[str, Callable[[Tally], None]] = {
    "named-compilezone": lambda tally: run_zone_files(20, tally, []),
    "octoDNS": lambda tally: run_octodns(20, tally, []),
    "gdnsd": lambda tally: run_gdnsd(15, tally, []),
}


@pytest.mark.drill
@pytest.mark.parametrize("oracle", RUNS)
def test_same_questions_have_the_same_answers(oracle: str) -> None:
    """Of generated files: whatever differs from what the other system answers is in the report."""
    tally = Tally()
    RUNS[oracle](tally)
    print(f"{oracle}: {tally}")
    assert tally.silent == []
    assert tally.counts["questions"] > 100
