"""The circuit breaker of one backend: what live requests say of it.

Theory (M. Nygard, "Release It!"; Envoy's outlier detection for the causes). Three states:

                 cause, if it may be ejected                      its time is over
      CLOSED ─────────────────────────────────▶ OPEN ─────────────────────────────▶ HALF_OPEN
        ▲                                         ▲          a trial failed             │
        │                                         └─────────────────────────────────────┤
        └───────────────────────────────────────────────────────────────────────────────┘
                                        `trials` were good

Requests last for a minute, so many that began before an ejection end long after it. A **period** tells them apart: it is a number, another
with each ejection and each beginning of trials; a request carries the one in which it began, and its end counts only in that.
What began on trial goes on to count when the breaker closes.

Laws:
  1. While it is not closed, at most `trials` requests are let through before the next verdict, those beside that fell out of
     time, or were let through by panic.
  2. The n-th ejection without `forget` closed seconds before it lasts base · 2ⁿ⁻¹, `longest` at most.
  3. Whether it may be ejected (never all are) is asked elsewhere: `good` and `bad` only say that it should.
  4. A failure that the request itself can have caused is a reason to look at the peers (`gtm.core.balance.health.values`), and no more.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from enum import Enum
from math import inf
from typing import NamedTuple

from gtm.core.balance.health.settings import HealthSettings, back_off
from gtm.core.balance.health.values import ANY_CALL, Asker, CallKind, Failure, Kind, Run, Sending

_MOST_MARKS = 4096
SAMPLES = 64
"""Latencies of a window that are kept of one kind of call, the last ones."""
MOST_CALLS = 64
"""Kinds of calls whose latencies are kept of one window: clients make names up."""
MOST_KINDS = 1024
"""Kinds of requests whose ends are remembered of each backend: servers may list other models each time that they are asked."""


class Circuit(Enum):
    """A breaker's state."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


CLOSED, OPEN, HALF_OPEN = Circuit
"""By names of their own: what is looked up in an Enum takes ten times as long."""


class Latencies:
    """How long calls of one kind took: how many there were, and of the last ones seconds and tokens (1 where these are unknown)."""

    __slots__ = ("count", "last")

    def __init__(self) -> None:
        self.count = 0
        self.last: deque[tuple[float, int]] = deque(maxlen=SAMPLES)


class BreakerWindow:
    """How requests ended since the window began: all of them, and by kind those that can have caused their failure."""

    __slots__ = ("_marks", "bad", "good", "kinds", "latencies")

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Begin anew."""
        self.good = 0
        self.bad = 0
        self.kinds: dict[Kind, list[int]] = {}
        """How many ended well, and how many did not."""
        self.latencies: dict[CallKind, Latencies] = {}
        self._marks: set[int] = set()

    def failed(self, asker: Asker | None) -> None:
        """Count one that failed."""
        self.bad += 1
        if asker is not None:
            self.kinds.setdefault(asker.kind, [0, 0])[1] += 1

    def took(self, call: CallKind, latency: float, tokens: int | None) -> None:
        """Count how long one took that ended well."""
        if tokens is not None:
            call = call._replace(counted=True)
        known = self.latencies.get(call)
        if known is None:
            if len(self.latencies) >= MOST_CALLS:
                return
            known = self.latencies[call] = Latencies()
        known.count += 1
        known.last.append((latency, tokens or 1))

    def testifies(self, asker: Asker | None) -> bool:
        """Whether who asks counts, for better or worse: one that chose the backend does once in a window."""
        if asker is None or asker.mark is None:
            return True
        if asker.mark in self._marks or len(self._marks) >= _MOST_MARKS:
            return False
        self._marks.add(asker.mark)
        return True

    @property
    def ended(self) -> int:
        """All."""
        return self.good + self.bad


class Suspicion(NamedTuple):
    """Why a backend should be ejected, in words.

    `row` failures came in a row, since `began`, of requests of this kind, and `least` are enough if its peers have none. No kind: nobody's
    request can have caused it.
    """

    why: str
    least: int = 0
    row: int = 0
    kind: Kind | None = None
    began: float | None = None


class Breaker:
    """See above. Times may not decrease.

    Args:
        settings: of all backends.
        periods: numbers that no other breaker of the same names gets: a backend may leave the configuration, and come back.
    """

    __slots__ = (
        "_closed_since", "_failures", "_good_trials", "_number", "_period", "_periods", "_rows", "_stalls", "_trials", "ejections", "ended",
        "runs", "settings", "since", "state", "until", "why", "window",
    )  # fmt: skip

    def __init__(self, settings: HealthSettings, periods: Iterator[int]) -> None:
        self.settings = settings
        self.state: Circuit = CLOSED
        self.since = -inf
        """When this state began; -inf: always so."""
        self.until = -inf
        """The time at which the ejection is over."""
        self.why = ""
        """Why it was ejected last."""
        self.window = BreakerWindow()
        self.ended: Counter[str] = Counter()
        """Requests so far, by `good`, `full` or failure, whatever they counted."""
        self.ejections = 0
        self._number = 0
        self._closed_since = -inf
        self._periods = periods
        self._period = next(periods)
        self._failures = 0
        self._stalls = 0
        self._trials: list[float] = []
        self._good_trials = 0
        self.runs: dict[Kind, Run] = {}
        """How requests ended that can have caused it, by kind, in this period."""
        self._rows = False
        """Something failed in one of these since the last good end."""

    @property
    def lets_through(self) -> bool:
        """Whether requests may be sent."""
        if self.state is HALF_OPEN:
            return len(self._trials) + self._good_trials < self.settings.trials
        return self.state is CLOSED

    def begun(self, name: str, now: float, asker: Asker | None = None) -> Sending:
        """A request is sent."""
        if self.state is HALF_OPEN:
            self._trials.append(now)
        # As `Sending(…)`, in half of the time.
        return tuple.__new__(Sending, (name, self._period, now, asker))

    def full(self, sending: Sending) -> None:
        """It had no room: that says nothing of whether it works."""
        self.ended["full"] += 1
        self.cancelled(sending)

    def cancelled(self, sending: Sending) -> None:
        """It ended without saying anything of the backend."""
        if self.state is HALF_OPEN and sending.period == self._period:
            self._give_back(sending)

    def good(
        self,
        sending: Sending,
        latency: float | None,
        now: float,
        call: CallKind = ANY_CALL,
        tokens: int | None = None,
    ) -> None:
        """It ended well; `latency` seconds to the first byte of the body, None if that says nothing, of an answer of so many tokens."""
        self.ended["good"] += 1
        if sending.period != self._period:
            return
        if self.state is HALF_OPEN:
            self._give_back(sending)
            self._good_trials += 1
            if self._good_trials >= self.settings.trials:
                self._close(now)
        elif self.state is CLOSED:
            self._failures = self._stalls = 0
            window, asker = self.window, sending.asker
            window.good += 1
            if asker is not None:
                kind = asker.kind
                ends, run = window.kinds.get(kind), self.runs.get(kind)
                if ends is None:
                    ends = window.kinds[kind] = [0, 0]
                ends[0] += 1
                if run is None:
                    run = self._run(kind)
                run.last.append((now, False))
                if self._rows:
                    self._rows = False
                    for run in self.runs.values():
                        run.end_row()
            if latency is not None and (asker is None or asker.mark is None or window.testifies(asker)):
                window.took(call, latency, tokens)

    def bad(self, sending: Sending, failure: Failure, now: float) -> Suspicion | None:
        """It failed.

        Returns:
            Why the backend should be ejected now; None if it should not.
        """
        self.ended[failure] += 1
        if sending.period != self._period or self.state is OPEN:
            return None
        asker = None if failure is Failure.CONNECT else sending.asker
        if asker is not None:
            return self._doubtful(sending, asker, failure, now)
        if self.state is HALF_OPEN:
            return Suspicion(f"a trial failed ({failure})")
        self.window.failed(None)
        self._failures += 1
        if failure is Failure.STALL:
            self._stalls += 1
        return self._enough(self._failures, self._stalls, failure)

    def _doubtful(self, sending: Sending, asker: Asker, failure: Failure, now: float) -> Suspicion | None:
        """One failed that can have caused it."""
        trial = self.state is HALF_OPEN
        if trial:
            self._give_back(sending)
        if not self.window.testifies(asker):
            return None
        run = self._run(asker.kind)
        run.bad(now, stalled=failure is Failure.STALL)
        self._rows = True
        if trial:
            return Suspicion(f"a trial failed ({failure})", 1, run.row, asker.kind)
        self.window.failed(asker)
        cause = self._enough(run.row, run.stalls, failure)
        return None if cause is None else cause._replace(kind=asker.kind, began=run.began)

    def _enough(self, row: int, stalls: int, failure: Failure) -> Suspicion | None:
        """Whether so many failures in a row, and stalls among them, are a cause."""
        settings = self.settings
        if stalls >= settings.stalls:
            why = f"{stalls} streams stalled, and nothing ended well between"
            return Suspicion(why, settings.stalls, stalls)
        if row >= settings.consecutive:
            return Suspicion(
                f"{row} requests failed in a row, the last by {failure}", settings.consecutive, row
            )
        return None

    def _run(self, kind: Kind) -> Run:
        run = self.runs.get(kind)
        if run is None:
            if len(self.runs) >= MOST_KINDS:
                self.runs.clear()
            run = self.runs[kind] = Run()
        return run

    def eject(self, why: str, now: float) -> None:
        """Open it."""
        if self.state is CLOSED and now - self._closed_since >= self.settings.forget:
            self._number = 0
        self._number += 1
        self.ejections += 1
        self._turn(OPEN, now)
        self.until = now + back_off(self.settings, self._number)
        self.why = why

    def tick(self, now: float) -> None:
        """Let time do what it does."""
        if self.state is OPEN and now >= self.until:
            self._turn(HALF_OPEN, now)
        if self.state is HALF_OPEN:
            if self._good_trials >= self.settings.trials:  # fewer are wanted than were
                self._close(now)
            elif self._trials:
                self._trials = [at for at in self._trials if now - at < self.settings.trial_timeout]

    def _close(self, now: float) -> None:
        self.state = CLOSED
        self.since = self._closed_since = now

    def _turn(self, state: Circuit, now: float) -> None:
        self.state = state
        self.since = now
        self._period = next(self._periods)
        self._trials = []
        self._good_trials = 0
        self._failures = self._stalls = 0
        self.runs = {}
        self.window.clear()

    def _give_back(self, sending: Sending) -> None:
        if sending.at in self._trials:
            self._trials.remove(sending.at)
