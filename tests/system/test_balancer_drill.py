"""What may not happen to a region's streams: `tests/bench/balancer_drill.py`, of which `make test` plays short scenes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import uvloops
from tests.bench import balancer_drill
from tests.effort import ALL

pytestmark = [pytest.mark.system, pytest.mark.drill]


@pytest.mark.endurance
@pytest.mark.timeout(600)
def test_the_promises_hold(tmp_path: Path) -> None:
    """Drained, changed, killed, left by clients, flooded with batch work: no stream is lost or looks whole that is not."""
    drill = uvloops.run(balancer_drill.run(tmp_path, small=not ALL))
    assert not drill.broken, (drill.broken, drill.figures)
    assert drill.figures.keys() == balancer_drill.SCENES.keys()
