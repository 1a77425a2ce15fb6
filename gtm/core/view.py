"""All that a decision reads: one compiled policy and one state of the world, joined at swap time.

Law: a View never changes. An edge replaces it whole, by one reference swap, so that the answer path needs no lock.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from math import inf

from gtm.core.model import Endpoint, HealthStatus
from gtm.core.snapshot import CompiledRule, Snapshot
from gtm.core.state import State


@dataclass(frozen=True, slots=True)
class Window:
    """The time a View stands for, in POSIX seconds: from the clock's reading now to the highest ever read.

    They differ only while the clock has stepped back. A rule binds if it is in force anywhere in between, so that a
    wrong clock can add restrictions but not lift one that was in force.
    """

    now: float
    latest: float

    def advanced(self, now: float) -> Window:
        """The window at another reading of the clock."""
        return Window(now, max(now, self.latest))

    def covers(self, rule: CompiledRule) -> bool:
        """Whether the rule is in force at some moment of the window."""
        return rule.starts <= self.latest and rule.ends > self.now


@dataclass(frozen=True, slots=True)
class View:
    """What an edge answers from. Masks are of `snapshot.regions`.

    `endpoints` holds each region's usable endpoints: those that are up. `up` are the regions with at least one,
    `unknown` those of which nothing is known at all.
    """

    snapshot: Snapshot
    state: State
    window: Window
    rules: Mapping[str, tuple[CompiledRule, ...]]
    """Service → the rules in force during the window."""
    endpoints: tuple[tuple[Endpoint, ...], ...]
    up: int
    unknown: int

    @property
    def changes_at(self) -> float:
        """The next POSIX time at which a rule comes into or out of force; infinite if none does."""
        return next_boundary(self.snapshot, self.window.now)


def build_view(snapshot: Snapshot, state: State, window: Window) -> View:
    """Join a policy and a state. Cost: linear in regions, endpoints and rules; no request is involved."""
    up = unknown = 0
    endpoints: list[tuple[Endpoint, ...]] = []
    for number, region in enumerate(snapshot.regions):
        known = state.health.get(region.name, {})
        statuses = [
            known[endpoint.url].status if endpoint.url in known else HealthStatus.UNKNOWN
            for endpoint in region.endpoints
        ]
        healthy = tuple(
            endpoint
            for endpoint, status in zip(region.endpoints, statuses, strict=True)
            if status is HealthStatus.UP
        )
        endpoints.append(healthy)
        up |= bool(healthy) << number
        unknown |= all(status is HealthStatus.UNKNOWN for status in statuses) << number
    rules = {name: service.rules for name, service in snapshot.services.items()}
    if snapshot.boundaries:  # else every rule is always in force
        rules = {name: tuple(filter(window.covers, every)) for name, every in rules.items()}
    return View(snapshot, state, window, rules, tuple(endpoints), up, unknown)


def next_boundary(snapshot: Snapshot, now: float) -> float:
    """The first moment after `now` (POSIX seconds) at which some rule's validity begins or ends."""
    after = bisect_right(snapshot.boundaries, now)
    return snapshot.boundaries[after] if after < len(snapshot.boundaries) else inf
