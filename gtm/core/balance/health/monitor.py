"""One backend: its verdict, breaker, load and drain, put together."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

from gtm.core.balance.backends import Condition
from gtm.core.balance.health.breaker import Breaker, Circuit
from gtm.core.balance.health.limit import LearnedLimit
from gtm.core.balance.health.loads import Loads
from gtm.core.balance.health.settings import Settings
from gtm.core.balance.health.values import Standing, State
from gtm.core.balance.health.verdict import Verdict
from gtm.core.balance.health.warmth import ends, warmth
from gtm.core.model.state import HealthStatus


class Monitor:
    """See above."""

    __slots__ = ("_drained_since", "_settings", "breaker", "drained_by", "limit", "loads", "verdict")

    def __init__(self, settings: Settings, periods: Iterator[int]) -> None:
        self._settings = settings
        self.verdict = Verdict(settings)
        self.breaker = Breaker(settings, periods)
        self.loads = Loads(settings)
        self.limit = LearnedLimit()
        self.drained_by: float | None = None
        """When what it has is ended; None: it does not drain."""
        self._drained_since = -inf

    def change(self, settings: Settings) -> None:
        """Go on with other settings."""
        self._settings = settings
        self.verdict.change(settings)
        self.breaker.settings = settings
        self.loads.change(settings)

    def drain(self, now: float, deadline: float) -> None:
        """Take nothing new, and end what is left after so many seconds."""
        if self.drained_by is None:
            self._drained_since = now
        self.drained_by = now + deadline

    def condition(self, now: float) -> Condition:
        """What choosing is told."""
        loads = self.loads
        return Condition(
            healthy=self.verdict.good_since is not None,
            held=self.verdict.held(now),
            ejected=not self.breaker.lets_through,
            draining=self.drained_by is not None,
            models=loads.models(now),
            adapters=loads.adapters(now),
            memory=loads.memory(now),
            warmth=self._warmth(now),
            scraped=loads.requests(now),
            slots=self.limit.limit,
        )

    def standing(self, name: str, now: float) -> Standing:
        """What people are told."""
        state, why, since, until = self._state(now)
        return Standing(
            name=name,
            state=state,
            why=why,
            since=since,
            until=until,
            warmth=self._warmth(now),
            ejections=self.breaker.ejections,
            falls=self.verdict.falls,
            ended=dict(self.breaker.ended),
            checks=self.verdict.checks(),
        )

    @property
    def _warms_since(self) -> float | None:
        """Since when it is usable after it was not; None: it never was unusable."""
        moments = [self.verdict.recovered, self.breaker.since if self.breaker.ejections else None]
        return max((moment for moment in moments if moment is not None), default=None)

    def _warmth(self, now: float) -> float:
        # On trial, at a tenth of its weight, it would lose against every other, and get no request until these are ten times as full.
        # Who is out is asked by panic alone, in which everybody has its full weight.
        if self.breaker.state is not Circuit.CLOSED or not self.verdict.healthy(now):
            return 1.0
        return warmth(self._warms_since, self._settings.slow_start, now)

    def _state(self, now: float) -> tuple[State, str, float, float | None]:
        """State, why, since, until."""
        if self.drained_by is not None:
            return State.DRAINING, "it is being drained", self._drained_since, self.drained_by
        return self._unhealthy(now) or self._broken() or self._usable(now)

    def _unhealthy(self, now: float) -> tuple[State, str, float, float | None] | None:
        verdict = self.verdict
        if not verdict.known:
            return State.UNKNOWN, "it has not been checked yet", -inf, None
        if verdict.good_since is None:
            failing = [
                (check, health)
                for check, health in verdict.checks().items()
                if health.status is not HealthStatus.UP
            ]
            why = "; ".join(f"{check}: {health.detail}" for check, health in failing)
            return State.DOWN, why, min(health.since for _, health in failing), None
        if not verdict.healthy(now):
            why = "its checks pass, but it fell too often"
            return State.HELD, why, verdict.good_since, verdict.held_until
        return None

    def _broken(self) -> tuple[State, str, float, float | None] | None:
        breaker = self.breaker
        if breaker.state is Circuit.OPEN:
            return State.EJECTED, breaker.why, breaker.since, breaker.until
        if breaker.state is Circuit.HALF_OPEN:
            return State.TRIAL, f"on trial, after: {breaker.why}", breaker.since, None
        return None

    def _usable(self, now: float) -> tuple[State, str, float, float | None]:
        back = self._warms_since
        if back is not None and self._warmth(now) < 1:
            return State.WARMING, "slow start", back, ends(back, self._settings.slow_start)
        since = self.verdict.good_since
        return State.UP, "", max(-inf if since is None else since, -inf if back is None else back), None
