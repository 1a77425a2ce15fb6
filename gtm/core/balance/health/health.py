"""The health of all backends of a region: events in, conditions out."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Iterable, Iterator, Mapping
from itertools import count
from math import fsum, sqrt
from statistics import median
from typing import NamedTuple

from gtm.core.balance.backends import UNKNOWN, Backend, Condition
from gtm.core.balance.health.breaker import CLOSED, HALF_OPEN, BreakerWindow, Latencies, Suspicion
from gtm.core.balance.health.monitor import Monitor
from gtm.core.balance.health.settings import HealthSettings
from gtm.core.balance.health.values import (
    ANY_CALL,
    SERVER_FAILURES,
    Asker,
    BackendLoad,
    BackendStanding,
    CallKind,
    Check,
    Failure,
    Sending,
    explained,
    needed,
)
from gtm.core.balance.serving import sent_to
from gtm.core.health.verdicts import ProbeResult

_MOST_MODELS = 1024
"""Models whose backends are remembered: clients make names up."""


class BackendHealth:
    """See the package. One for each process of a balancer.

    Events may change the condition of their backend: where `pending` says so, ask `changes` before the next choice. All else is told by
    `tick`, some times a second. Events of backends that are not known say nothing.

    Args:
        settings: for all backends.
        backends: each name once.
        now: seconds of a clock that never steps back, as everywhere here.
    """

    def __init__(self, settings: HealthSettings, backends: Iterable[Backend], now: float) -> None:
        self._periods = count()
        self._backends: dict[str, Backend] = {}
        self._monitors: dict[str, Monitor] = {}
        self._told: dict[str, Condition] = {}
        self._touched: set[str] = set()
        self._window_began = now
        self._askers: dict[str | None, Asker] = {}
        self.update(settings, backends)

    def update(self, settings: HealthSettings, backends: Iterable[Backend]) -> None:
        """Go on with another configuration: who stays keeps its state, who is new is unknown, who is gone is forgotten."""
        self._settings = settings
        before, self._backends = self._backends, {backend.name: backend for backend in backends}
        monitors = {}
        for name in self._backends:
            found = self._monitors.get(name)
            if found is None:
                found = Monitor(settings, self._periods)
            else:
                found.change(settings)
            monitors[name] = found
        self._monitors = monitors
        if _served(before) != _served(self._backends):  # other requests are comparable now
            self._askers = {}
            for monitor in monitors.values():
                monitor.breaker.runs = {}
                monitor.breaker.window.kinds = {}
        self._told = {name: told for name, told in self._told.items() if name in monitors}
        self._touched &= monitors.keys()

    # --- checks, and what servers say ---

    def checked(
        self, name: str, check: Check, result: ProbeResult, now: float, *, late: bool = False
    ) -> None:
        """A check was made. Of `result` only `ok`, `detail` and `latency_ms` count; the time is `now`. `late`: nothing at all was said in time."""
        monitor = self._monitors.get(name)
        if monitor is None:
            return
        stamped = ProbeResult(result.ok, now, result.detail, result.latency_ms)
        self._touch(name, monitor.verdict.checked(check, stamped, now, late=late))

    def scraped(self, name: str, load: BackendLoad, now: float) -> None:
        """Its metrics were read: all that is known of its load. If they could not be, say nothing: what is known becomes stale."""
        monitor = self._monitors.get(name)
        if monitor is not None:
            monitor.loads.scraped(load, now)

    def reported(self, name: str, load: BackendLoad, now: float) -> None:
        """A response's header said some of its load."""
        monitor = self._monitors.get(name)
        if monitor is not None:
            monitor.loads.reported(load, now)

    def listed(self, name: str, models: frozenset[str], adapters: frozenset[str], now: float) -> None:
        """It listed what it has loaded."""
        monitor = self._monitors.get(name)
        if monitor is not None:
            monitor.loads.listed(models, adapters, now)

    def failing_since(self, name: str) -> float | None:
        """Since when a check of it fails; None: none does, or it is not known."""
        monitor = self._monitors.get(name)
        return None if monitor is None else monitor.verdict.failing_since

    def is_silent(self, name: str) -> bool:
        """Whether a check of it fails to which nothing at all is said."""
        monitor = self._monitors.get(name)
        return monitor is not None and monitor.verdict.silent

    # --- live requests: each begins once and ends once ---

    def asker(self, model: str | None, mark: int | None = None) -> Asker:
        """A client's request, which can make a backend fail: of this model, and sent where it is by what it says (`mark`), or by load (None)."""
        asker = self._askers.get(model)
        if asker is None:
            if len(self._askers) >= _MOST_MODELS:
                self._askers.clear()
            known = [_Known(one, self._told.get(name, UNKNOWN)) for name, one in self._backends.items()]
            sent = [one.backend.name for one in sent_to(known, model)]
            asker = self._askers[model] = Asker(frozenset(sent or self._backends))
        return asker if mark is None else Asker(asker.kind, mark)

    def begun(self, name: str, now: float, asker: Asker | None = None) -> Sending:
        """A request is being sent to it. What is returned goes to `answered`, `failed`, `stalled` or `cancelled`.

        Args:
            name: the backend's.
            now: seconds.
            asker: whose request it is; None: nobody's who could make it fail.
        """
        monitor = self._monitors.get(name)
        if monitor is None:
            return Sending(name, -1, now)
        breaker = monitor.breaker
        if breaker.state is HALF_OPEN:
            self._touched.add(name)
        return breaker.begun(name, now, asker)

    def answered(
        self,
        sending: Sending,
        status: int,
        latency: float | None,
        now: float,
        call: CallKind = ANY_CALL,
        *,
        tokens: int | None = None,
        beside: float | None = None,
        who: Hashable = None,
    ) -> None:
        """It has answered in full.

        Args:
            sending: what `begun` returned.
            status: of the answer.
            latency: seconds from sending to the first byte of the answer's body, a stream's first token; None if it says nothing (a
                tunnel).
            now: seconds.
            call: what it was: its latency is compared with those of the same.
            tokens: that its answer has, and on which its latency depends; None: unknown.
            beside: the least of the requests that were there with it when it was sent, and when it ended; None: its slots are not learned.
            who: whose it is.
        """
        if status in SERVER_FAILURES:
            self._failed(sending, Failure.STATUS, str(status), now)
            return
        monitor = self._monitors.get(sending.name)
        if monitor is None:
            return
        breaker = monitor.breaker
        if 400 <= status < 500 and sending.asker is not None and breaker.state is CLOSED:
            self._failed(sending, Failure.REFUSED, str(status), now)
            return
        if breaker.state is HALF_OPEN:
            self._touched.add(sending.name)
        breaker.good(sending, latency, now, call, tokens)
        if beside is not None and monitor.limit.taken(beside, now, who):
            self._touched.add(sending.name)

    def full(self, sending: Sending, met: float, now: float, who: Hashable = None) -> None:
        """It had no room for the request beside `met` others; `who`: whose it is.

        That is a failure only where its own metrics say that it is idle, and nothing else is known to be there.
        """
        monitor = self._monitors.get(sending.name)
        if monitor is None:
            return
        said = monitor.loads.requests(now)
        if said is not None and said.running + said.waiting < 1 and met < 1:
            self._failed(sending, Failure.STATUS, "it says that it is full, its metrics that it is idle", now)
            return
        monitor.breaker.full(sending)
        monitor.limit.full(met, now, who)
        self._touched.add(sending.name)

    def failed(self, sending: Sending, failure: Failure, now: float) -> None:
        """It did not answer, or its answer broke off."""
        self._failed(sending, failure, "", now)

    def stalled(self, sending: Sending, now: float, since: float | None = None) -> None:
        """Nothing came of its answer for too long, since then (None: nobody says). It may go on, and end later."""
        self._failed(sending, Failure.STALL, "", now, since)

    def cancelled(self, sending: Sending) -> None:
        """The request ended for no fault of the backend's: its client went away."""
        monitor = self._monitors.get(sending.name)
        if monitor is None:
            return
        monitor.breaker.cancelled(sending)
        self._touch(sending.name, monitor.breaker.state is HALF_OPEN)

    # --- draining ---

    def drain(self, name: str, now: float) -> None:
        """Send it nothing more; what it has may go on."""
        monitor = self._monitors.get(name)
        if monitor is None:
            return
        if monitor.drained_since is None:
            monitor.drained_since = now
        self._touched.add(name)

    def undrain(self, name: str) -> None:
        """Send it requests again."""
        monitor = self._monitors.get(name)
        if monitor is None:
            return
        monitor.drained_since = None
        self._touched.add(name)

    # --- what comes of it ---

    @property
    def pending(self) -> bool:
        """Whether `changes` may have something to tell."""
        return bool(self._touched)

    def tick(self, now: float) -> Mapping[str, Condition]:
        """Time has passed: the conditions that are others than those told last, by name; at first all."""
        if now - self._window_began >= self._settings.window:
            self._window_began = now
            self._look(now)
        for monitor in self._monitors.values():
            monitor.breaker.tick(now)
            monitor.limit.tick(now)
        self._touched.clear()
        return self._tell(self._monitors, now)

    def changes(self, now: float) -> Mapping[str, Condition]:
        """The conditions of those backends alone that events have touched since they were told last."""
        touched, self._touched = self._touched, set()
        return self._tell(touched, now)

    def condition(self, name: str, now: float) -> Condition:
        """What is known of a backend.

        Raises:
            KeyError: it is not one of them.
        """
        return self._monitors[name].condition(now)

    def snapshot(self, now: float) -> tuple[BackendStanding, ...]:
        """How all stand, for people and metrics."""
        return tuple(monitor.standing(name, now) for name, monitor in self._monitors.items())

    # --- inside ---

    def _failed(
        self, sending: Sending, failure: Failure, detail: str, now: float, since: float | None = None
    ) -> None:
        monitor = self._monitors.get(sending.name)
        if monitor is None:
            return
        cause = monitor.breaker.bad(sending, failure, now)
        if monitor.breaker.state is HALF_OPEN:
            self._touched.add(sending.name)
        if cause is not None and cause.began is not None and since is not None:
            cause = cause._replace(began=min(cause.began, since))  # peers' ends of that time compare
        if cause is not None and self._may_eject(monitor) and self._by_itself(sending.name, cause, now):
            monitor.breaker.eject(f"{cause.why}, {detail}" if detail else cause.why, now)
            self._touched.add(sending.name)

    def _by_itself(self, name: str, cause: Suspicion, now: float) -> bool:
        """Whether a backend fails by itself, and not by what it is asked."""
        kind = cause.kind
        if kind is None:
            return True
        peers = [
            monitor.breaker
            for peer, monitor in self._monitors.items()
            if peer != name
            and peer in kind
            and monitor.breaker.state is CLOSED
            and monitor.drained_since is None
            and monitor.verdict.healthy(now)
        ]
        runs = (peer.runs.get(kind) for peer in peers)
        return bool(peers) and cause.row >= needed(cause.least, runs, cause.began)

    def _look(self, now: float) -> None:
        """Eject who was unlike the others in the window that ends."""
        closed = {
            name: monitor for name, monitor in self._monitors.items() if monitor.breaker.state is CLOSED
        }
        windows = {name: monitor.breaker.window for name, monitor in closed.items()}
        weights = {name: self._backends[name].weight for name in closed}
        for name, why in tuple(outliers(windows, self._settings, weights)):
            monitor = closed[name]
            if monitor.breaker.state is CLOSED and self._may_eject(monitor):
                monitor.breaker.eject(why, now)
        for monitor in closed.values():
            monitor.breaker.window.clear()

    def _may_eject(self, monitor: Monitor) -> bool:
        """Whether one more may be ejected: a part of them, one at least, never all. Who is out already may stay out."""
        if monitor.breaker.state is not CLOSED:
            return True
        staying = [one for one in self._monitors.values() if one.drained_since is None]
        out = sum(one.breaker.state is not CLOSED for one in staying)
        if monitor.drained_since is not None:
            return False
        return out < min(max(int(self._settings.most_ejected * len(staying)), 1), len(staying) - 1)

    def _touch(self, name: str, changed: bool) -> None:
        if changed:
            self._touched.add(name)

    def _tell(self, names: Iterable[str], now: float) -> Mapping[str, Condition]:
        found = {}
        for name in names:
            condition, before = self._monitors[name].condition(now), self._told.get(name, UNKNOWN)
            if before != condition or name not in self._told:
                self._told[name] = found[name] = condition
                if (before.models, before.adapters) != (condition.models, condition.adapters):
                    self._askers = {}  # other requests are comparable now
        return found


class _Known(NamedTuple):
    """A backend, and what was told of it last: what choosing goes by."""

    backend: Backend
    condition: Condition


def _served(backends: Mapping[str, Backend]) -> dict[str, frozenset[str]]:
    """The models that each serves; none: any."""
    return {name: one.models for name, one in backends.items()}


# --- Backends that are unlike the others, over one window: which should be ejected, the worst first.
#
# Source: Envoy, "Outlier detection" (failure percentage, success rate: below the mean by `success_rate_stdev_factor` standard deviations
# of the population). Among n backends none can be more than √(n − 1) deviations from the mean, so that fewer than five have no outlier
# of 1.9; and where all but one are perfect, one error in a thousand is an outlier: hence the margin. Latencies are compared by medians,
# for requests differ a hundredfold, and by factor and margin both; only those of one model and one kind of call with each other, since an embedding takes
# milliseconds where a chat takes seconds; where answers have known tokens, by the seconds that each of these takes. Of failures that requests can have caused, only those count that peers'
# do not explain (`gtm.core.balance.health.values`).


def outliers(
    windows: Mapping[str, BreakerWindow], settings: HealthSettings, weights: Mapping[str, float]
) -> Iterator[tuple[str, str]]:
    """Names and why, in the order in which they should be ejected; a name may come again for another cause.

    Args:
        windows: of the backends that are not ejected, by name.
        settings: of the causes.
        weights: of the backends: who is said to get less done in a second may take as much longer.
    """
    counted = {name: one for name, one in windows.items() if one.ended >= settings.requests}
    kinds = {name: one.kinds for name, one in windows.items()}
    failed = {
        name: one.bad - (explained(name, kinds) if one.bad and one.kinds else 0.0)
        for name, one in counted.items()
    }
    shares = {name: bad / counted[name].ended for name, bad in failed.items()}
    yield from _failing(counted, shares, settings)
    yield from _less_successful({name: 1 - share for name, share in shares.items()}, settings)
    yield from _slow(windows, settings, weights)


def _failing(
    counted: Mapping[str, BreakerWindow], failed: Mapping[str, float], settings: HealthSettings
) -> Iterator[tuple[str, str]]:
    for name in sorted(failed, key=lambda name: (-failed[name], name)):
        one = counted[name]
        if failed[name] >= settings.failure_share:
            yield name, f"{one.bad} of {one.ended} requests failed"


def _less_successful(shares: Mapping[str, float], settings: HealthSettings) -> Iterator[tuple[str, str]]:
    if len(shares) < settings.peers:
        return
    mean = fsum(shares.values()) / len(shares)
    deviation = sqrt(fsum((share - mean) ** 2 for share in shares.values()) / len(shares))
    least = mean - max(settings.deviations * deviation, settings.success_margin)
    for name in sorted(shares, key=lambda name: (shares[name], name)):
        if shares[name] < least:
            yield name, f"{shares[name]:.0%} of its requests ended well, {mean:.0%} among all"


def _slow(
    windows: Mapping[str, BreakerWindow], settings: HealthSettings, weights: Mapping[str, float]
) -> Iterator[tuple[str, str]]:
    if settings.latency_factor is None:
        return
    calls: dict[CallKind, dict[str, Latencies]] = {}
    for name, one in windows.items():
        for call, known in one.latencies.items():
            if known.count >= settings.requests:
                calls.setdefault(call, {})[name] = known
    found = [
        slow
        for call, known in calls.items()
        if len(known) >= settings.latency_peers
        for slow in _slower(call, known, settings, settings.latency_factor, weights)
    ]
    for _, name, why in sorted(found):
        yield name, why


def _slower(
    call: CallKind,
    known: Mapping[str, Latencies],
    settings: HealthSettings,
    factor: float,
    weights: Mapping[str, float],
) -> Iterator[tuple[float, str, str]]:
    """Of those who had calls of a kind, who took too long: how far beyond what is allowed (less is worse), who, and why."""
    typical = median([tokens for one in known.values() for _, tokens in one.last])
    medians = {
        name: typical * median([latency / tokens for latency, tokens in one.last])
        for name, one in known.items()
    }
    ordered, weighed = sorted(medians.values()), sorted(weights[name] for name in known)
    for name, value in medians.items():
        others = median_without(ordered, value)
        slower = max(1.0, median_without(weighed, weights[name]) / weights[name])
        allowed = max(factor * others * slower, others + settings.latency_margin)
        if value > allowed:
            what = f" ({call.model[:80]!r}, {call.path.decode('latin-1')[:80]!r})" if call.path else ""
            yield (
                allowed / value,
                name,
                f"its median latency is {value:.3g} s, that of others {others:.3g} s{what}",
            )


def median_without(ordered: list[float], value: float) -> float:
    """The median of ordered numbers, at least two, without one of them."""
    place, middle = bisect_left(ordered, value), (len(ordered) - 1) // 2

    def rest(index: int) -> float:
        return ordered[index if index < place else index + 1]

    return rest(middle) if len(ordered) % 2 == 0 else (rest(middle - 1) + rest(middle)) / 2
