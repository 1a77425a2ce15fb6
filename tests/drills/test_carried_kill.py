"""What a client notices of a region that dies under its carried requests (`tests/drills/carried_kill.py`)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.drills.carried_kill import REQUESTS, killed

pytestmark = [pytest.mark.system, pytest.mark.drill]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("balancer", [True, False], ids=["balancer and servers", "servers alone"])
def test_only_what_had_begun_is_lost(balancer: bool, tmp_path: Path) -> None:
    """Each request without a byte of an answer is answered by another region inside the fence."""
    found, outside = killed(tmp_path / "world", balancer=balancer)
    assert outside == 0
    begun = found.pop("begun before, and broken off")
    assert found == {"answered elsewhere": REQUESTS - begun}, begun
