"""A region in simulated time: clients' requests, what admission lets begin, which server takes each, and what is made of its end.

Admission, choice, counts and health are those of the balancer; only connections are made up. What a server says comes as bytes, and is read
as the balancer reads it.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from heapq import heappop, heappush
from typing import Any, cast
from unittest.mock import patch

from gtm.adapters.exposition import MetricsError
from gtm.adapters.scrape import Scrape
from gtm.adapters.servers import ServerType, read_server
from gtm.balancer.health.checks import Scraper, load_in_header
from gtm.balancer.wire.usage import Meter, bounds_of
from gtm.core.balance.admission.admission import Admission
from gtm.core.balance.admission.settings import AdmissionSettings, TenantLimits
from gtm.core.balance.admission.values import AdmissionRefusal, Arrival, Ticket, Used
from gtm.core.balance.backends import Backend, Scraped
from gtm.core.balance.choosing.chooser import begin, choice, pool_of
from gtm.core.balance.choosing.values import By, WantedBackend, Why
from gtm.core.balance.flights import Flights
from gtm.core.balance.health.health import BackendHealth
from gtm.core.balance.health.settings import HealthSettings
from gtm.core.balance.health.values import Check
from gtm.core.handoff.verdict import PriorityGrant, priority_of
from gtm.core.health.verdicts import ProbeResult
from gtm.core.model.services import Priority

SLOTS = 6
"""Requests that each server serves at once."""
LASTS = 40.0
"""Seconds that requests come for."""
HONEST = ("acme", "bank", None)
"""Tenants with a key, and those without any."""
LIAR = "mallory"
LIMITS = TenantLimits(concurrency=8, output_tokens_per_minute=12_000.0)
"""What an operator sets for every tenant: a third of the slots of four servers, and twice the tokens that honest ones use."""
_EVERY = 0.1
_AFTER = HealthSettings().window + 1
"""Seconds after the last answer in which a server may still be ejected for what it answered."""


@lru_cache(256)
def _page(server_type: ServerType, text: str) -> Scrape:
    """What a page of metrics says, for servers say the same again and again."""
    return read_server(server_type, text, 0.0)


def _read(server_type: ServerType, text: str, at: float) -> Scrape:
    return replace(_page(server_type, text), at=at)


@dataclass(frozen=True)
class Call:
    """A request: when, whose, and how long a server takes for it. `crashes`: every server answers it by 500."""

    at: float
    tenant: str | None
    seconds: float = 0.5
    tokens: int = 40
    most: int | None = None
    """Its `max_tokens`."""
    stated: Priority | None = None
    wait: float | None = None
    """The longest wait that it states, in seconds."""
    session: str | None = None
    model: str | None = "m"
    size: int = 200
    crashes: bool = False


@dataclass(frozen=True)
class ServerLie:
    """All that a server can say. None: the truth."""

    status: int | None = None
    seconds: float | None = None
    inputs: float | None = None
    outputs: float | None = None
    metrics: str | None = None
    header: str | None = None
    models: frozenset[str] | None = None


@dataclass(frozen=True)
class Setting:
    """A region before anybody lies: how many servers, honest clients' requests, a seed for what is drawn."""

    servers: int
    calls: tuple[Call, ...]
    seed: int

    @classmethod
    def drawn(cls, rng: random.Random) -> Setting:
        """A region at a third of what it can serve, or a half."""
        servers = rng.randint(3, 5)
        calls = []
        for tenant in HONEST:
            rate, now = rng.uniform(0.8, 1.3) * servers, 0.0
            most = rng.choice((None, 80))
            while (now := now + rng.expovariate(rate)) < LASTS:
                session = f"s{rng.randint(0, 40)}" if rng.random() < 0.5 else None
                calls.append(
                    Call(now, tenant, rng.uniform(0.2, 0.8), rng.randint(20, 60), most, session=session)
                )
        return cls(servers, tuple(calls), rng.randint(0, 2**32))


@dataclass
class Outcome:
    """How honest requests ended, by their place in the setting: `ok`, `failed` (at a server), or the code of a refusal.

    `ejected`: honest servers that were taken out, times that they were.
    """

    ends: dict[int, str] = field(default_factory=dict)
    ejected: int = 0
    apart: str | None = ""
    """The tenant whose requests do not count: the liar's own."""


class Region:
    """One run of a setting.

    Args:
        setting: the region.
        lie: what the first server says; None: the truth.
        limits: of each tenant.
    """

    def __init__(self, setting: Setting, lie: ServerLie | None = None, limits: TenantLimits = LIMITS) -> None:
        self.rng = random.Random(setting.seed)
        self.lie = lie or ServerLie()
        self.backends = [
            Backend(f"http://10.0.0.{number}:8000", slots=SLOTS) for number in range(setting.servers)
        ]
        self.liar = self.backends[0].name
        self.flights = Flights(self.backends)
        self.health = BackendHealth(HealthSettings(), self.backends, 0.0)
        self.scrapers = {one.name: Scraper() for one in self.backends}
        for one in self.backends:
            for _ in range(2):
                self.health.checked(one.name, Check.HEALTH, ProbeResult(True, 0.0), 0.0)
        self.pool = pool_of(self.backends, self.health.tick(0.0), self.flights)
        settings = AdmissionSettings(default_tenant=limits, without_tenant=limits, queue_length=500)
        self.admission = Admission(settings, SLOTS * setting.servers)
        self.outcome = Outcome()
        self._events: list[tuple[float, int, Any]] = []
        self._number = 0
        self._open = 0
        """Requests that have no end yet."""

    def play(self, calls: Sequence[tuple[int, Call]]) -> Outcome:
        """Let these requests come; those with a number of 0 or more are honest."""
        with patch("gtm.balancer.health.checks.read_server", _read):
            return self._play(calls)

    def _play(self, calls: Sequence[tuple[int, Call]]) -> Outcome:
        for number, call in calls:
            self._later(call.at, (number, call))
        for tick in range(int((LASTS + 60) / _EVERY)):
            self._later(tick * _EVERY, None)
        self._open = len(calls)
        ended = 0.0
        while self._events:
            now, _, what = heappop(self._events)
            if self._open:
                ended = now
            elif now > ended + _AFTER:
                break  # everybody is answered, and servers were compared for the last time
            if what is None:
                self._tick(now)
            elif callable(what):
                what(now)
            else:
                self._arrive(what[0], what[1], now)
            for ticket in self.admission.due(now):
                if ticket.refusal is None:
                    self._send(ticket, now)
                else:
                    self._ended(ticket.context, ticket.refusal.code)
        self.outcome.ejected = sum(
            one.ejections
            for one in self.health.snapshot(LASTS)
            if one.name != self.liar or self.lie == ServerLie()
        )
        return self.outcome

    def _later(self, at: float, what: Any) -> None:
        self._number += 1
        heappush(self._events, (at, self._number, what))

    def _tick(self, now: float) -> None:
        for one in self.backends:
            if round(now / _EVERY) % 10 == 0:
                self.flights.asking(one.name)
                self._say(one.name, now)
        self.flights.settle(now)
        self.pool = self.pool.updated(self.health.tick(now))
        usable = [one for one in self.pool.candidates if one.condition.healthy and not one.condition.ejected]
        self.admission.resize(SLOTS * len(usable), now)

    def _say(self, name: str, now: float) -> None:
        """A server's metrics page, its list of models, and what it says in an answer's head."""
        running = self.flights.of(name).requests
        text = f"vllm:num_requests_running {running}\nvllm:num_requests_waiting 0\n"
        lie = self.lie if name == self.liar else ServerLie()
        try:
            load = self.scrapers[name].read((lie.metrics or text).encode(), now)
        except MetricsError:
            load = None
        if load is not None:
            self.health.scraped(name, load, now)
        if lie.header is not None:
            said = load_in_header(lie.header.encode())
            load = said or load
            if said is not None:
                self.health.reported(name, said, now)
        if load is not None and load.running is not None and load.waiting is not None:
            self.flights.scraped(name, Scraped(load.running, load.waiting, now))
        if lie.models is not None:
            self.health.listed(name, lie.models, frozenset(), now)

    def _arrive(self, number: int, call: Call, now: float) -> None:
        grant = PriorityGrant(Priority.NEAR_REAL_TIME, proven=call.tenant is not None)
        priority = priority_of(Priority.NEAR_REAL_TIME, call.stated, grant, None)
        longest = max(self.admission.settings.waits.values())
        deadline = None if call.wait is None else now + min(max(call.wait, 0.0), longest)
        arrival = Arrival(
            priority,
            call.tenant,
            0.5,
            deadline,
            call.size,
            call.size / 4,
            min(call.most or 60, 10**9),
            call.model,
        )
        found = self.admission.offer(arrival, now)
        if isinstance(found, AdmissionRefusal):
            self._ended((number, call), found.code)
            return
        found.context = number, call
        if not found.waiting:
            self._send(found, now)

    def _send(self, ticket: Ticket, now: float) -> None:
        number, call = cast("tuple[int, Call]", ticket.context)
        wanted = WantedBackend(call.model, call.session, (), 0.5, frozenset())
        self.pool = self.pool.updated(self.health.changes(now))
        found = choice(self.pool, wanted, self.rng.random())
        if isinstance(found, Why):
            self.admission.release(ticket, now, Used(0.0, 0.0))
            self._ended((number, call), found.value)
            return
        name = found.candidate.backend.name
        lie = self.lie if name == self.liar else ServerLie()
        mark = None if found.by is By.LOAD else hash((call.tenant, call.session))
        sending = self.health.begun(name, now, self.health.asker(call.model, mark))
        flying = begin(self.pool, found.candidate, wanted)
        crashes = call.crashes or lie.status is not None
        seconds = call.seconds if lie.seconds is None else lie.seconds
        seconds = 0.001 if crashes and lie.seconds is None else seconds
        status = 500 if call.crashes else lie.status or 200
        inputs = call.size // 4 if lie.inputs is None else lie.inputs
        outputs = call.tokens if lie.outputs is None else lie.outputs
        said = json.dumps({"usage": {"prompt_tokens": inputs, "completion_tokens": outputs}})

        def end(now: float) -> None:
            flying.end()
            self.health.answered(sending, status, min(seconds, 0.2), now)
            used = Used(0.0, 0.0) if status >= 400 else _used(call.tokens, call.size, call.most, said)
            self.admission.release(ticket, now, used)
            self._ended((number, call), "ok" if status < 400 else "failed")

        self._later(now + seconds, end)

    def _ended(self, context: Any, how: str) -> None:
        number, _ = context
        self._open -= 1
        if number >= 0:
            self.outcome.ends[number] = how


@lru_cache(4096)
def _used(tokens: int, size: int, most: int | None, said: str) -> Used:
    """What is charged for a request of so many bytes, whose answer has so many tokens and says this of them."""
    meter = Meter(bounds_of(b"/v1/chat/completions", b'{"messages": []}'.ljust(min(size, 1000)), most))
    answer = (b"x" * 4 * tokens) + said.encode()
    meter.piece(answer)
    used = meter.used(len(answer), events=False)
    return Used(used.inputs, used.outputs)


def shares(setting: Setting, honest: Outcome, lied: Outcome) -> tuple[float, float]:
    """Shares of honest requests that were well without the lie: those refused with it, and those that failed at a server.

    Those of the liar's own tenant do not count.
    """
    counted = [number for number, call in enumerate(setting.calls) if call.tenant != lied.apart]
    refused = failed = 0
    for number in counted:
        how = lied.ends[number]
        if honest.ends[number] == "ok" and how != "ok":
            failed += how == "failed"
            refused += how != "failed"
    return refused / len(counted), failed / len(counted)
