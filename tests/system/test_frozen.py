"""A model server, or its engine, is stopped under load: `tests/bench/frozen_bench.py`, played short."""

from __future__ import annotations

import pytest

from tests.bench import frozen_bench

pytestmark = [pytest.mark.system, pytest.mark.drill]


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("fault", "workers"), [("server stopped", "1"), ("engine stopped", "1"), ("server stopped", "2")]
)
def test_nobody_without_a_byte_is_left(fault: str, workers: str) -> None:
    """Whoever waited there is answered by the other server once the first is judged down, by each process of the balancer; only streams that had begun break off."""
    found = frozen_bench.tried(
        frozen_bench.gtm(frozen_bench.peers.HERE, "--workers", workers), fault, before=2.0, after=4.0
    )
    assert found["unanswered"] == 0, found
    assert found["verdict"] is None or found["longest"] < frozen_bench.PATIENCE, found
    assert found["requests"], found
