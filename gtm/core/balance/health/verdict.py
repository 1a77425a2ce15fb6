"""Whether a backend is healthy: the verdicts of its checks, and damping of those that flap.

Theory. Each check has the state machine of `gtm.core.health.verdicts`. All verdicts together are good or not; a backend that is healthy
falls when they turn bad. Falls are damped as routes are (RFC 2439), by a delay that doubles:

    falls       1        2        3                 4
    delay       0        b        2b                4b                       healthy again no earlier than fall + delay

Two falls that are less than `forget` apart have numbers n and n + 1, and at least the n-th delay between them. So the falls in any
`forget` seconds have delays that add up to less than that: there are at most log2(forget / b) and a few.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

from gtm.core.balance.health.settings import Settings, back_off
from gtm.core.balance.health.values import Check
from gtm.core.health.verdicts import ProbeResult, Track, advance
from gtm.core.model.regions import Probe
from gtm.core.model.state import EndpointHealth, HealthStatus


class Verdict:
    """The checks of one backend. Times may not decrease."""

    __slots__ = (
        "_fell",
        "_good_since",
        "_number",
        "_seen_down",
        "_settings",
        "_tracks",
        "falls",
        "held_until",
    )

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._tracks = dict.fromkeys(settings.checks, Track())
        self._good_since: float | None = -inf if not settings.checks else None
        self._seen_down = False
        self._fell = -inf
        self._number = 0
        self.held_until = -inf
        """No earlier than this it is healthy."""
        self.falls = 0
        """So far."""

    def change(self, settings: Settings) -> None:
        """Go on with other settings: verdicts of checks that stay are kept, new checks are unknown. That is no fall."""
        self._settings = settings
        self._tracks = {check: self._tracks.get(check, Track()) for check in settings.checks}
        if not self._good():
            self._good_since = None
        elif self._good_since is None:
            self._good_since = max((track.health.since for track in self._tracks.values()), default=-inf)

    def checked(self, check: Check, result: ProbeResult, now: float) -> bool:
        """Take a result in; whether the verdicts together changed. A check that is not on says nothing."""
        track = self._tracks.get(check)
        if track is None:
            return False
        thresholds = self._settings.checks[check]
        probe = Probe(up_threshold=thresholds.up, down_threshold=thresholds.down)
        was_healthy = self.healthy(now)
        self._tracks[check] = after = advance(track, result, probe)
        self._seen_down |= after.health.status is HealthStatus.DOWN
        good = self._good()
        if good is (self._good_since is not None):
            return False
        self._good_since = now if good else None
        if was_healthy and not good:
            self._fall(now)
        return True

    def healthy(self, now: float) -> bool:
        """Whether all checks pass, and nothing holds it back."""
        return self._good_since is not None and now >= self.held_until

    def held(self, now: float) -> bool:
        """Whether all checks pass, and it fell too often to count as healthy yet."""
        return self._good_since is not None and now < self.held_until

    @property
    def known(self) -> bool:
        """Whether every check was made."""
        return all(track.health.status is not HealthStatus.UNKNOWN for track in self._tracks.values())

    @property
    def good_since(self) -> float | None:
        """Since when all checks pass; None: they do not."""
        return self._good_since

    @property
    def failing_since(self) -> float | None:
        """Since when a check fails; None: none does. A check that has not been made does not fail, and held back is not failing."""
        down = [one.health.since for one in self._tracks.values() if one.health.status is HealthStatus.DOWN]
        return min(down, default=None)

    @property
    def recovered(self) -> float | None:
        """Since when it is healthy after it was seen down; None: it was not, or is not healthy but for time."""
        if self._good_since is None or not self._seen_down:
            return None
        return max(self._good_since, self.held_until)

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
