"""What backends' health goes by (docs/backend-health.md has what each number does). What a file may say is checked where it is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from gtm.core.balance.health.values import Check


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Results in a row that change a check's verdict: to up, and to down."""

    up: int = 2
    down: int = 2


@dataclass(frozen=True, slots=True)
class HealthSettings:
    """All of it. Times in seconds, shares 0 to 1.

    `checks`: those that are made, all of which must pass. `consecutive`, `stalls`: in a row, and a backend is ejected. `window`,
    `requests`, `failure_share`: so long, at least so many ends, so many failures among them. `peers`, `deviations`,
    `success_margin`: outliers among so many backends. `latency_peers`, `latency_factor` (None: latency ejects nobody),
    `latency_margin`: likewise of latencies of one kind of call. `most_ejected`: of the backends. `base`, `longest`, `forget`: how long ejections and
    falls last, and when they are forgotten. `trials`, `trial_timeout`: after an ejection. `slow_start`: until full weight.
    `lasts`, `lists_last`: how long what servers say of their load, and lists of their
    models, is believed.
    """

    checks: Mapping[Check, Thresholds] = field(
        default_factory=lambda: MappingProxyType({Check.HEALTH: Thresholds()})
    )
    consecutive: int = 5
    stalls: int = 2
    window: float = 10.0
    requests: int = 20
    failure_share: float = 0.5
    peers: int = 5
    deviations: float = 1.9
    success_margin: float = 0.1
    latency_peers: int = 3
    latency_factor: float | None = 5.0
    latency_margin: float = 1.0
    most_ejected: float = 0.5
    base: float = 10.0
    longest: float = 300.0
    forget: float = 300.0
    trials: int = 3
    trial_timeout: float = 60.0
    slow_start: float = 30.0
    lasts: float = 5.0
    lists_last: float = 30.0


def back_off(settings: HealthSettings, number: int) -> float:
    """Seconds that the n-th ejection in a row lasts (from 1): doubling, up to the longest."""
    doublings = min(number - 1, 60)
    return min(settings.base * 2.0**doublings, settings.longest)
