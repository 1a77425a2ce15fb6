"""What a balancer's workers tell of round trips and tiers reaches the process that reports."""

from __future__ import annotations

from gtm.balancer.metrics import Family
from gtm.core.latency.doubt import Witness
from gtm.core.latency.samples import Delta, Level
from gtm.runtime.balancer.workers.pool import FROM_WORKER, LoadMessage


def test_what_was_learned_goes_over_the_line() -> None:
    """As it was; and of a worker that says nothing of it, nothing."""
    delta = Delta(Level.NETWORK, "95.90.1.0/24", "fra", True, 3, 5, -2.5, 1.0, 1000.0)
    witness = Witness("95.90.1.0/24", "DE|52,13", "fra", "r", 4, 0, 2.5, 1000.0)
    metric = Family("gtm_balancer_retries_total", "counter", "Requests sent again.", [("", 2.0)])
    said = LoadMessage({"outstanding": 1}, [metric], {"batch": (1, 2)}, (delta,), (witness,))
    assert FROM_WORKER.decode(FROM_WORKER.encode(said)) == said
    plain = LoadMessage({}, [])
    assert FROM_WORKER.decode(FROM_WORKER.encode(plain)) == plain
