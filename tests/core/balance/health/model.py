"""docs/backend-health.md told slowly: logs of all that happened, read anew for every question.

It shares no code with `gtm.core.balance.health` but the values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from statistics import fmean, median, pstdev

from gtm.core.balance.backends import Condition, Scraped
from gtm.core.balance.health.settings import HealthSettings
from gtm.core.balance.health.values import ANY_CALL, BackendLoad, CallKind, Check, Failure

NEVER = float("-inf")


@dataclass(eq=False)
class Sent:
    """A request: the backend's life and period in which it began."""

    backend: Server | None
    period: int
    at: float


@dataclass(eq=False)
class Server:
    """One backend's logs."""

    results: dict[Check, list[bool]] = field(default_factory=dict)
    seen_down: bool = False
    good_since: float | None = None
    falls: list[float] = field(default_factory=list)
    ejections: list[tuple[float, float]] = field(default_factory=list)
    """When each began, and when its time is over."""
    closings: list[float] = field(default_factory=list)
    state: str = "closed"
    period: int = 0
    trials: list[Sent] = field(default_factory=list)
    """In flight, and not out of time."""
    good_trials: int = 0
    row: list[Failure] = field(default_factory=list)
    """Failures since something ended well."""
    ends: list[tuple[bool, tuple[CallKind, int | None, float] | None]] = field(default_factory=list)
    """In this window: good or not; what it was, its tokens, and its latency, where that is known."""
    drained_by: float | None = None
    load: dict[str, tuple[object, float]] = field(default_factory=dict)


class Page:
    """The page for some backends."""

    def __init__(
        self,
        settings: HealthSettings,
        names: list[str],
        now: float,
        weights: Mapping[str, float] | None = None,
    ) -> None:
        self.settings = settings
        self.weights = weights or dict.fromkeys(names, 1.0)
        self.servers = {name: Server() for name in names}
        self.window_began = now

    def update(self, settings: HealthSettings, names: list[str]) -> None:
        """Who stays keeps its state. The checks stay the same."""
        self.settings = settings
        self.servers = {name: self.servers.get(name, Server()) for name in names}

    # --- checks ---

    def verdict(self, server: Server, check: Check) -> bool | None:
        """The first result decides; then so many in a row change it."""
        thresholds, verdict, row = self.settings.checks[check], None, 0
        for ok in server.results.get(check, []):
            if verdict is None:
                verdict = ok
            row = 0 if ok is verdict else row + 1
            if row >= (thresholds.up if ok else thresholds.down):
                verdict, row = ok, 0
        return verdict

    def held_until(self, server: Server) -> float:
        """The end of what the last fall holds it back for."""
        number, before = 0, NEVER
        for at in server.falls:
            number = 1 if at - before >= self.settings.forget else number + 1
            before = at
        delays = [0.0] + [min(self.settings.base * 2**n, self.settings.longest) for n in range(60)]
        return before + delays[number - 1] if number else NEVER

    def healthy(self, server: Server, now: float) -> bool:
        """All verdicts are up, and damping does not hold it back."""
        return server.good_since is not None and now >= self.held_until(server)

    def checked(self, name: str, check: Check, ok: bool, now: float) -> None:
        """A result."""
        server = self.servers[name]
        was = self.healthy(server, now)
        server.results.setdefault(check, []).append(ok)
        verdicts = [self.verdict(server, one) for one in self.settings.checks]
        server.seen_down |= False in verdicts
        if not all(verdicts):
            server.good_since = None
            if was:
                server.falls.append(now)
        elif server.good_since is None:
            server.good_since = now

    # --- live requests ---

    def begun(self, name: str, now: float) -> Sent:
        """A request is sent."""
        server = self.servers.get(name)
        if server is None:
            return Sent(None, 0, now)
        sent = Sent(server, server.period, now)
        if server.state == "half_open":
            server.trials.append(sent)
        return sent

    def ended(
        self,
        sent: Sent,
        how: str,
        latency: float | None,
        now: float,
        *,
        call: CallKind = ANY_CALL,
        tokens: int | None = None,
    ) -> None:
        """`good`, `gone`, or a failure."""
        server = sent.backend
        if server not in self.servers.values() or server is None:
            return
        if sent.period != server.period or server.state == "open":
            return
        if server.state == "half_open":
            server.trials = [one for one in server.trials if one is not sent]
            if how == "good":
                server.good_trials += 1
                if server.good_trials >= self.settings.trials:
                    self.close(server, now)
            elif how != "gone":
                self.eject(server, now)
        elif how == "good":
            server.row = []
            server.ends.append((True, None if latency is None else (call, tokens, latency)))
        elif how != "gone":
            server.row.append(Failure(how))
            server.ends.append((False, None))
            enough = len(server.row) >= self.settings.consecutive
            if enough or server.row.count(Failure.STALL) >= self.settings.stalls:
                self.eject(server, now)

    def eject(self, server: Server, now: float) -> None:
        """Eject it, unless that were one too many."""
        if server.state == "closed":
            staying = [one for one in self.servers.values() if one.drained_by is None]
            out = [one for one in staying if one.state != "closed"]
            most = min(max(1, int(len(staying) * self.settings.most_ejected)), len(staying) - 1)
            if server.drained_by is not None or len(out) + 1 > most:
                return
        number, closed = 1, NEVER
        if server.closings:
            closed = server.closings[-1]
        if server.ejections and not (server.state == "closed" and now - closed >= self.settings.forget):
            # Back to the last time that it was not ejected for long.
            starts = [start for start, _ in server.ejections] + [now]
            for index in range(len(starts) - 1, 0, -1):
                ends = [at for at in server.closings if starts[index - 1] < at <= starts[index]]
                if ends and starts[index] - ends[-1] >= self.settings.forget:
                    break
                number += 1
        for_ = min(self.settings.base * 2 ** (number - 1), self.settings.longest)
        server.ejections.append((now, now + for_))
        self.turn(server, "open")

    def close(self, server: Server, now: float) -> None:
        """It is ejected no more."""
        server.state = "closed"
        server.closings.append(now)
        server.row, server.ends = [], []

    def turn(self, server: Server, state: str) -> None:
        """Another period begins."""
        server.state = state
        server.period += 1
        server.trials, server.good_trials, server.row, server.ends = [], 0, [], []

    # --- time ---

    def tick(self, now: float) -> None:
        """Time has passed."""
        if now - self.window_began >= self.settings.window:
            self.window_began = now
            for name in self.outliers():
                if self.servers[name].state == "closed":
                    self.eject(self.servers[name], now)
            for server in self.servers.values():
                server.ends = []
        for server in self.servers.values():
            if server.state == "open" and now >= server.ejections[-1][1]:
                self.turn(server, "half_open")
            if server.state == "half_open" and server.good_trials >= self.settings.trials:
                self.close(server, now)  # fewer are wanted than were
            server.trials = [one for one in server.trials if now - one.at < self.settings.trial_timeout]

    def outliers(self) -> list[str]:
        """Who is unlike the others, in order."""
        settings, found = self.settings, []
        closed = {name: one for name, one in self.servers.items() if one.state == "closed"}
        many = {name: one for name, one in closed.items() if len(one.ends) >= settings.requests}
        bad = {name: sum(not good for good, _ in one.ends) / len(one.ends) for name, one in many.items()}
        found += [
            name
            for _, name in sorted((-part, name) for name, part in bad.items())
            if bad[name] >= settings.failure_share
        ]
        if len(bad) >= settings.peers:
            parts = {name: 1 - part for name, part in bad.items()}
            mean, deviation = fmean(parts.values()), pstdev(parts.values())
            found += [
                name
                for _, name in sorted((part, name) for name, part in parts.items())
                if parts[name] < mean - settings.deviations * deviation
                and parts[name] < mean - settings.success_margin
            ]
        return found + self.slow(closed) if settings.latency_factor is not None else found

    def slow(self, closed: dict[str, Server]) -> list[str]:
        """Who takes much longer than others for calls of one kind, the worst first."""
        settings, found = self.settings, []
        took = {
            name: [how for good, how in one.ends if good and how is not None] for name, one in closed.items()
        }
        kinds = {(call, tokens is None) for some in took.values() for call, tokens, _ in some}
        for kind in kinds:
            same = {
                name: [
                    (seconds, tokens or 1) for call, tokens, seconds in some if (call, tokens is None) == kind
                ]
                for name, some in took.items()
            }
            enough = {name: some[-64:] for name, some in same.items() if len(some) >= settings.requests}
            if len(enough) < settings.latency_peers:
                continue
            usual = median(tokens for some in enough.values() for _, tokens in some)
            medians = {
                name: usual * median(seconds / tokens for seconds, tokens in some)
                for name, some in enough.items()
            }
            for name, value in medians.items():
                others = median(medians[other] for other in medians if other != name)
                weight = median(self.weights[other] for other in medians if other != name)
                times = (settings.latency_factor or 0.0) * max(1.0, weight / self.weights[name])
                allowed = max(times * others, others + settings.latency_margin)
                if value > allowed:
                    found.append((allowed / value, name))
        return [name for _, name in sorted(found)]

    # --- loads ---

    def said(self, name: str, load: BackendLoad, now: float, *, whole: bool) -> None:
        """A scrape, or a header."""
        known = self.servers[name].load
        for what in ("running", "waiting", "memory", *(("models", "adapters") if whole else ())):
            value = getattr(load, what)
            if value is not None:
                known[what] = (value, now)
            elif whole:
                known.pop(what, None)

    def listed(self, name: str, models: frozenset[str], adapters: frozenset[str], now: float) -> None:
        """A list."""
        self.servers[name].load["list"] = ((models, adapters), now)

    # --- what comes of it ---

    def condition(self, name: str, now: float) -> Condition:
        """What is known."""
        server = self.servers[name]
        held = server.state == "open" or (
            server.state == "half_open" and len(server.trials) + server.good_trials >= self.settings.trials
        )
        fresh = {
            what: value
            for what, (value, at) in server.load.items()
            if what != "list"
            and (now - at <= self.settings.lasts or (what == "models" and server.good_since is None))
        }
        models, adapters = fresh.get("models"), fresh.get("adapters")
        lasts = (
            inf if server.good_since is None else self.settings.lists_last
        )  # the last list of one that is down
        if "list" in server.load and now - server.load["list"][1] <= lasts:
            models, listed = server.load["list"][0]  # type: ignore[misc]
            adapters = listed | (adapters or frozenset())  # type: ignore[has-type]
        scraped = None
        if "running" in fresh and "waiting" in fresh:
            at = min(server.load["running"][1], server.load["waiting"][1])
            scraped = Scraped(fresh["running"], fresh["waiting"], at)  # type: ignore[arg-type]
        return Condition(
            healthy=server.good_since is not None,
            held=server.good_since is not None and now < self.held_until(server),
            ejected=held,
            draining=server.drained_by is not None,
            models=models,  # type: ignore[arg-type]
            adapters=adapters,  # type: ignore[arg-type]
            memory=fresh.get("memory"),  # type: ignore[arg-type]
            warmth=self.warmth(server, now),
            scraped=scraped,
        )

    def warmth(self, server: Server, now: float) -> float:
        """10% at once, then linear in steps of 5%."""
        if server.state != "closed" or not self.healthy(server, now):
            return 1.0
        back = NEVER
        if server.seen_down and server.good_since is not None:
            back = max(server.good_since, self.held_until(server))
        if server.closings:
            back = max(back, server.closings[-1])
        if back == NEVER:
            return 1.0
        steps = [back + self.settings.slow_start * step / 18 for step in range(1, 19)]
        return (2 + sum(step <= now for step in steps)) / 20


def most_terms(settings: HealthSettings) -> int:
    """The page's k: the least number of back-offs that take longer than `forget`."""
    total, terms = 0.0, 0
    while total <= settings.forget:
        total += min(settings.base * 2**terms, settings.longest)
        terms += 1
    return terms
