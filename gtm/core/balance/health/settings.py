"""What an operator sets of backends' health (docs/backend-health.md has what each number does)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from math import inf, isfinite
from types import MappingProxyType

from gtm.core.balance.health.values import Check


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Results in a row that change a check's verdict: to up, and to down."""

    up: int = 2
    down: int = 2

    def __post_init__(self) -> None:
        """Refuse what cannot be.

        Raises:
            ValueError: a threshold is below 1.
        """
        for name in ("up", "down"):
            if getattr(self, name) < 1:
                raise ValueError(
                    f"a check's `{name}` is {getattr(self, name)}; it takes 1 result in a row at least"
                )


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

    def __post_init__(self) -> None:
        """Refuse what cannot be.

        Raises:
            ValueError: a number is impossible; says which, and what is possible.
        """
        for one in fields(self):
            value = getattr(self, one.name)
            if isinstance(value, float | int):
                least, above, most = _BOUNDS.get(one.name, (0.0, False, inf))
                if not least <= value <= most or (above and value == least) or not isfinite(value):
                    allowed = f"{'above' if above else 'at least'} {least:g}"
                    if most < inf:
                        allowed += f", at most {most:g}"
                    raise ValueError(f"health: `{one.name}` is {value}; give a number {allowed}")
        if self.longest < self.base:
            raise ValueError(f"health: `longest` ({self.longest:g}) is less than `base` ({self.base:g})")


_BOUNDS: Mapping[str, tuple[float, bool, float]] = {
    **dict.fromkeys(("consecutive", "stalls", "requests", "trials", "latency_factor"), (1.0, False, inf)),
    **dict.fromkeys(("peers", "latency_peers"), (2.0, False, inf)),  # an outlier needs others
    **dict.fromkeys(("window", "base", "trial_timeout", "lasts", "lists_last"), (0.0, True, inf)),
    **dict.fromkeys(("success_margin", "most_ejected"), (0.0, False, 1.0)),
    "failure_share": (0.0, True, 1.0),
}
"""The least value, whether it must be above that, and the most."""


def back_off(settings: HealthSettings, number: int) -> float:
    """Seconds that the n-th ejection in a row lasts (from 1): doubling, up to the longest."""
    doublings = min(number - 1, 60)
    return min(settings.base * 2.0**doublings, settings.longest)
