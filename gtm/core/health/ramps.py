"""Slow start and drain: how a region's share of the traffic moves with time.

Laws:
  1. A factor moves in steps of 5 %, at moments that follow from policy and health alone: whoever computes it at the
     same time gets the same one, and what hangs on it is rebuilt at those moments only.
  2. A region ramps up after a failure, not after a start of its observer: only endpoints that `recovered` ramp.
  3. What began to drain at an unknown time has no time left.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import inf

from gtm.core.health.verdicts import HealthTable
from gtm.core.model.regions import AdminState, Region
from gtm.core.model.state import UNKNOWN_HEALTH, EndpointHealth, HealthStatus

STEPS = 20
"""Steps in a whole: one is 5 %."""
SLOW_START_FLOOR = 2
"""Steps at the start of a ramp: 10 %, so that a first trickle shows whether the region holds."""


def slow_start_factor(region: Region, health: Mapping[str, EndpointHealth], now: float) -> float:
    """The share (0.1–1) of its usual traffic that a region gets after a failure.

    It counts from when the first endpoint was up again: others that follow take nothing from those that serve.

    Args:
        region: the region; it ramps over `slow_start` seconds.
        health: endpoint URL → health. Where no endpoint is up nothing ramps, and usability is decided elsewhere.
        now: POSIX seconds.
    """
    since = _up_again(region, health)
    return 1.0 if since is None else _ramp(since, region.slow_start, now)


def endpoint_factor(health: EndpointHealth, slow_start: float, now: float) -> float:
    """The share (0–1) of its capacity that one endpoint has: 0 unless it is up, rising after a failure."""
    if health.status is not HealthStatus.UP:
        return 0.0
    return _ramp(health.since, slow_start, now) if health.recovered else 1.0


def drain_factor(region: Region, now: float) -> float:
    """The share (0–1) of its clients with affinity that a region keeps.

    1 while it is active, 0 while it is disabled; draining, it falls from 1 to 0 over `drain_deadline` seconds.

    Args:
        region: the region.
        now: POSIX seconds.
    """
    if region.admin_state is AdminState.ACTIVE:
        return 1.0
    if region.admin_state is AdminState.DISABLED or region.draining_since is None:
        return 0.0
    moments = _moments(region.draining_since.timestamp(), region.drain_deadline, STEPS)
    return (STEPS - _passed(moments, now)) / STEPS


def next_change(regions: Iterable[Region], health: HealthTable, now: float) -> float:
    """The first POSIX time after `now` at which a factor of some region changes; infinite if none will.

    Args:
        regions: the policy's regions.
        health: region name → endpoint URL → health.
        now: POSIX seconds.
    """
    coming = (
        moment
        for region in regions
        for moment in _region_moments(region, health.get(region.name, {}))
        if moment > now
    )
    return min(coming, default=inf)


def _region_moments(region: Region, health: Mapping[str, EndpointHealth]) -> tuple[float, ...]:
    """When the factors of a region step: slow start while it is active, drain while it drains."""
    if region.admin_state is AdminState.ACTIVE:
        since = _up_again(region, health)
        return () if since is None else _moments(since, region.slow_start, STEPS - SLOW_START_FLOOR)
    if region.admin_state is AdminState.DRAINING and region.draining_since is not None:
        return _moments(region.draining_since.timestamp(), region.drain_deadline, STEPS)
    return ()


def _up_again(region: Region, health: Mapping[str, EndpointHealth]) -> float | None:
    """When the region came back: its first endpoint's recovery; None if one never failed, or none is up."""
    known = (health.get(endpoint.url, UNKNOWN_HEALTH) for endpoint in region.endpoints)
    up = [item for item in known if item.status is HealthStatus.UP]
    return min(item.since for item in up) if up and all(item.recovered for item in up) else None


def _ramp(since: float, slow_start: float, now: float) -> float:
    steps = STEPS - SLOW_START_FLOOR
    return (SLOW_START_FLOOR + _passed(_moments(since, slow_start, steps), now)) / STEPS


def _moments(since: float, duration: float, steps: int) -> tuple[float, ...]:
    """The POSIX times of the steps. Factor and next change both come from these, so that no rounding parts them."""
    return tuple(since + duration * step / steps for step in range(1, steps + 1))


def _passed(moments: tuple[float, ...], now: float) -> int:
    return sum(moment <= now for moment in moments)
