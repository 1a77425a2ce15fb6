"""Slow start: how much of its weight a backend gets that has come back.

The curve of regions (`gtm.core.health.ramps`): 10% at once, then linear, in steps of 5%, at moments that follow from when it came back
alone. (Envoy's slow start with an aggression of 1.)
"""

from __future__ import annotations

from gtm.core.health.ramps import endpoint_factor
from gtm.core.model.state import EndpointHealth, HealthStatus


def warmth(since: float | None, slow_start: float, now: float) -> float:
    """The part of its weight, in (0, 1].

    Args:
        since: when it came back; None: it was never away.
        slow_start: seconds until full weight.
        now: seconds.
    """
    if since is None:
        return 1.0
    return endpoint_factor(EndpointHealth(HealthStatus.UP, since, recovered=True), slow_start, now)


def ends(since: float, slow_start: float) -> float:
    """When the weight is full."""
    return since + slow_start
