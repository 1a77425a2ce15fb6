"""One backend: its verdict, breaker, load and drain, put together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any

from gtm.core.balance.backends import Condition, Scraped
from gtm.core.balance.health.breaker import Breaker, Circuit
from gtm.core.balance.health.limit import LearnedLimit
from gtm.core.balance.health.settings import HealthSettings, back_off
from gtm.core.balance.health.values import BackendLoad, BackendStanding, BackendState, Check
from gtm.core.health.verdicts import ProbeResult, Track, advance, endpoint_factor
from gtm.core.model.regions import Probe
from gtm.core.model.state import EndpointHealth, HealthStatus

_REFUSES = "it says that it is full, though nothing is known to be there: others are asked first, and it now and then"


class Monitor:
    """All that is known of the health of one backend: its checks, its breaker, its limit and its loads."""

    __slots__ = ("_settings", "breaker", "drained_since", "limit", "loads", "verdict")

    def __init__(self, settings: HealthSettings, periods: Iterator[int]) -> None:
        self._settings = settings
        self.verdict = CheckVerdict(settings)
        self.breaker = Breaker(settings, periods)
        self.loads = BackendLoads(settings)
        self.limit = LearnedLimit()
        self.drained_since: float | None = None
        """Since when it takes nothing new; None: it does not drain."""

    def change(self, settings: HealthSettings) -> None:
        """Go on with other settings."""
        self._settings = settings
        self.verdict.change(settings)
        self.breaker.settings = settings
        self.loads.settings = settings

    def condition(self, now: float) -> Condition:
        """The condition of the backend, as choosing goes by it."""
        loads = self.loads
        healthy = self.verdict.good_since is not None
        return Condition(
            healthy=healthy,
            held=self.verdict.held(now),
            ejected=not self.breaker.lets_through,
            draining=self.drained_since is not None,
            models=loads.models(now, last=not healthy),
            adapters=loads.adapters(now, last=not healthy),
            memory=loads.memory(now),
            warmth=self._warmth(now),
            scraped=loads.requests(now),
            slots=self.limit.limit,
            refuses=now < self.limit.refuses_until,
        )

    def standing(self, name: str, now: float) -> BackendStanding:
        """The condition of the backend in words, for people."""
        state, why, since, until = self._state(now)
        return BackendStanding(
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

    def _state(self, now: float) -> tuple[BackendState, str, float, float | None]:
        """State, why, since, until."""
        if self.drained_since is not None:
            return BackendState.DRAINING, "it is being drained", self.drained_since, None
        return self._unhealthy(now) or self._broken() or self._usable(now)

    def _unhealthy(self, now: float) -> tuple[BackendState, str, float, float | None] | None:
        verdict = self.verdict
        if not verdict.known:
            return BackendState.UNKNOWN, "it has not been checked yet", -inf, None
        if verdict.good_since is None:
            failing = [
                (check, health)
                for check, health in verdict.checks().items()
                if health.status is not HealthStatus.UP
            ]
            why = "; ".join(f"{check}: {health.detail}" for check, health in failing)
            return BackendState.DOWN, why, min(health.since for _, health in failing), None
        if not verdict.healthy(now):
            why = "its checks pass, but it fell too often"
            return BackendState.HELD, why, verdict.good_since, verdict.held_until
        return None

    def _broken(self) -> tuple[BackendState, str, float, float | None] | None:
        breaker = self.breaker
        if breaker.state is Circuit.OPEN:
            return BackendState.EJECTED, breaker.why, breaker.since, breaker.until
        if breaker.state is Circuit.HALF_OPEN:
            return BackendState.TRIAL, f"on trial, after: {breaker.why}", breaker.since, None
        return None

    def _usable(self, now: float) -> tuple[BackendState, str, float, float | None]:
        back, until = self._warms_since, self.limit.refuses_until
        if back is not None and self._warmth(now) < 1:
            return BackendState.WARMING, "slow start", back, back + self._settings.slow_start
        since = self.verdict.good_since
        why = _REFUSES if now < until else ""
        return (
            BackendState.UP,
            why,
            max(-inf if since is None else since, -inf if back is None else back),
            None,
        )


# --- Whether a backend is healthy: the verdicts of its checks, and damping of those that flap.
#
# Theory. Each check has the state machine of `gtm.core.health.verdicts`. All verdicts together are good or not; a backend that is healthy
# falls when they turn bad. Falls are damped as routes are (RFC 2439), by a delay that doubles:
#
#     falls       1        2        3                 4
#     delay       0        b        2b                4b                       healthy again no earlier than fall + delay
#
# Two falls that are less than `forget` apart have numbers n and n + 1, and at least the n-th delay between them. So the falls in any
# `forget` seconds have delays that add up to less than that: there are at most log2(forget / b) and a few.


@dataclass(slots=True, eq=False)
class CheckVerdict:
    """The checks of one backend. Times may not decrease."""

    _settings: HealthSettings
    held_until: float = -inf
    """No earlier than this it is healthy."""
    falls: int = 0
    """So far."""
    good_since: float | None = None
    """Since when all its verdicts are good; None: they are not."""
    _tracks: dict[Check, Track] = field(default_factory=dict)
    _late: set[Check] = field(default_factory=set)
    """Checks to which nothing was said when they were made last."""
    _seen_down: bool = False
    _fell: float = -inf
    _number: int = 0

    def __post_init__(self) -> None:
        self.change(self._settings)

    def change(self, settings: HealthSettings) -> None:
        """Go on with other settings: verdicts of checks that stay are kept, new checks are unknown. That is no fall."""
        self._settings = settings
        self._tracks = {check: self._tracks.get(check, Track()) for check in settings.checks}
        if not self._good():
            self.good_since = None
        elif self.good_since is None:
            self.good_since = max((track.health.since for track in self._tracks.values()), default=-inf)

    def checked(self, check: Check, result: ProbeResult, now: float, *, late: bool = False) -> bool:
        """Take a result in; whether the verdicts together changed. A check that is not on says nothing. `late`: nothing at all was said in time."""
        track = self._tracks.get(check)
        if track is None:
            return False
        thresholds = self._settings.checks[check]
        probe = Probe(up_threshold=thresholds.up, down_threshold=thresholds.down)
        was_healthy = self.healthy(now)
        (self._late.add if late else self._late.discard)(check)
        self._tracks[check] = after = advance(track, result, probe)
        self._seen_down |= after.health.status is HealthStatus.DOWN
        good = self._good()
        if good is (self.good_since is not None):
            return False
        self.good_since = now if good else None
        if was_healthy and not good:
            self._fall(now)
        return True

    def healthy(self, now: float) -> bool:
        """Whether all checks pass, and nothing holds it back."""
        return self.good_since is not None and now >= self.held_until

    def held(self, now: float) -> bool:
        """Whether all checks pass, and it fell too often to count as healthy yet."""
        return self.good_since is not None and now < self.held_until

    @property
    def known(self) -> bool:
        """Whether every check was made."""
        return all(track.health.status is not HealthStatus.UNKNOWN for track in self._tracks.values())

    @property
    def failing_since(self) -> float | None:
        """Since when a check fails; None: none does. A check that has not been made does not fail, and held back is not failing."""
        down = [one.health.since for one in self._tracks.values() if one.health.status is HealthStatus.DOWN]
        return min(down, default=None)

    @property
    def silent(self) -> bool:
        """Whether a check fails to which nothing at all is said: then nothing comes of what it has, either.

        Who says that it is not well, as a server does that drains, may end what it has. So may one that refuses connections: of a process that has
        died the kernel ends those that were there.
        """
        return any(
            one.health.status is HealthStatus.DOWN and check in self._late
            for check, one in self._tracks.items()
        )

    @property
    def recovered(self) -> float | None:
        """Since when it is healthy after it was seen down; None: it was not, or is not healthy but for time."""
        if self.good_since is None or not self._seen_down:
            return None
        return max(self.good_since, self.held_until)

    def checks(self) -> Mapping[Check, EndpointHealth]:
        """The verdict of each check."""
        return {check: track.health for check, track in self._tracks.items()}

    def _good(self) -> bool:
        return all(track.health.status is HealthStatus.UP for track in self._tracks.values())

    def _fall(self, now: float) -> None:
        if now - self._fell >= self._settings.forget:
            self._number = 0
        self._number += 1
        self.falls += 1
        self._fell = now
        delay = back_off(self._settings, self._number - 1) if self._number > 1 else 0.0
        self.held_until = now + delay


# --- Slow start: how much of its weight a backend gets that has come back.
#
# The curve of regions (`gtm.core.health.verdicts`): 10% at once, then linear, in steps of 5%, at moments that follow from when it came back
# alone. (Envoy's slow start with an aggression of 1.)


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


# --- What one server says of its load, and for how long it is believed. ---


@dataclass(slots=True, eq=False)
class BackendLoads:
    """The newest of everything that a server said. What is stale or was never said is None: unknown, never idle."""

    settings: HealthSettings
    _said: dict[str, tuple[Any, float]] = field(
        default_factory=dict
    )  # a field of `BackendLoad` → its value, and when it was said
    _listed: tuple[frozenset[str], frozenset[str]] = (frozenset(), frozenset())
    _listed_at: float = -inf

    def scraped(self, load: BackendLoad, now: float) -> None:
        """All that its metrics say; what they do not say is unknown from now on."""
        self._said = _stamped(load, ("running", "waiting", "memory", "models", "adapters"), now)

    def reported(self, load: BackendLoad, now: float) -> None:
        """Some of it, as a response's header does; the rest is as it was."""
        self._said |= _stamped(load, ("running", "waiting", "memory"), now)

    def listed(self, models: frozenset[str], adapters: frozenset[str], now: float) -> None:
        """The list of what it has loaded."""
        self._listed, self._listed_at = (models, adapters), now

    def requests(self, now: float) -> Scraped | None:
        """Requests that run and wait in it, as old as the older of both."""
        running, waiting = self._said.get("running"), self._said.get("waiting")
        if running is None or waiting is None:
            return None
        at = min(running[1], waiting[1])
        return Scraped(running[0], waiting[0], at) if now - at <= self.settings.lasts else None

    def memory(self, now: float) -> float | None:
        """The used part of its memory."""
        known: float | None = self._known("memory", now)
        return known

    def models(self, now: float, *, last: bool = False) -> frozenset[str] | None:
        """The models that it has loaded: those of its list, else those of its metrics. `last`: those that it said last, however long ago."""
        known: frozenset[str] | None = (
            self._listed[0] if self._lists(now, last=last) else self._known("models", now, last=last)
        )
        return known

    def adapters(self, now: float, *, last: bool = False) -> frozenset[str] | None:
        """The LoRA adapters that it has loaded: those of its list and those of its metrics. `last`: of its list likewise."""
        said: frozenset[str] | None = self._known("adapters", now)
        if not self._lists(now, last=last):
            return said
        return self._listed[1] | said if said else self._listed[1]

    def _known(self, name: str, now: float, *, last: bool = False) -> Any:
        value, at = self._said.get(name, (None, -inf))
        return value if last or now - at <= self.settings.lasts else None

    def _lists(self, now: float, *, last: bool) -> bool:
        listed = self._listed_at > -inf
        return listed and (last or now - self._listed_at <= self.settings.lists_last)


def _stamped(load: BackendLoad, names: Iterable[str], now: float) -> dict[str, tuple[Any, float]]:
    return {name: (value, now) for name in names if (value := getattr(load, name)) is not None}
