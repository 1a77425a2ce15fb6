"""One answering process of an edge: `python -m gtm.runtime.edge.worker NAME`, started by the agent only.

Laws:
  1. Nothing is taken from the sockets until a View is loaded.
  2. The answer path shares nothing with the threads beside it but single references, swapped whole.
  3. A worker lives no longer than the threads that keep it up to date, and longer than its agent only if that died
     (`gtm.runtime.edge.worker.worker`).
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import random
import signal
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import assert_never

from gtm.core.decision.router import Router
from gtm.core.health.addresses import NO_ADDRESSES, Addresses, ever_up, fill_addresses
from gtm.core.health.verdicts import HealthTable, fill
from gtm.core.latency.samples import SampleMethod
from gtm.core.model.problems import PolicyError
from gtm.core.model.state import NO_PLAN, State
from gtm.core.policy.snapshot import Snapshot
from gtm.core.quota.earned import Worth
from gtm.core.quota.leases import LeaseParts
from gtm.core.quota.names import QuotaText
from gtm.dns.answer.answerer import Answerer
from gtm.dns.io.limiter import Limiter, RateLimits
from gtm.dns.io.tcp import TcpLimits
from gtm.dns.protocol.cookies import ServerCookies
from gtm.dns.protocol.options import ServerOptions
from gtm.dns.zone.dnssec import ZoneSigner
from gtm.feed.current import CurrentView
from gtm.feed.wire import (
    AccessMessage,
    FeedError,
    HandoffKeysMessage,
    KeysMessage,
    LatencyMessage,
    RoomMessage,
    SnapshotMessage,
    StateMessage,
)
from gtm.geoip.reader import Locator
from gtm.http.answers.quotas import QuotaGate
from gtm.http.answers.routes import EdgeHandoffs
from gtm.http.samples.intake import Intake
from gtm.runtime.edge.line import (
    CountsMessage,
    EdgeReadyMessage,
    EdgeWorkerEnd,
    EdgeWorkerSettings,
    MetricsMessage,
    PulseMessage,
    SamplesMessage,
    SigningMessage,
    SilentMessage,
    ToAgent,
    ToWorker,
    WorkerKind,
)
from gtm.runtime.edge.orphans import Door
from gtm.runtime.following.told import PartsMessage, TimesMessage
from gtm.runtime.process import pauses
from gtm.runtime.process.clocks import boot_time
from gtm.runtime.process.http import ListenerTls, listener_tls
from gtm.runtime.process.listeners import Listener
from gtm.runtime.process.places import reload_places
from gtm.settings import Network
from gtm.telemetry import Counts, EdgeMetrics, GaugeValue, top_client_key
from gtm.transport import tls_context

# --- A worker without its agent: how it knows, what it goes by, and for how long. ---
#
# Laws:
#   1. An agent that is gone, or has said nothing for a while, costs freshness, never answers: the last View stays.
#   2. A worker goes on alone only if its agent said so while it lived: it then answered by itself, and meant to. Whoever
#      stops an edge says the opposite first.
#   3. Health stays as it was for `FROZEN` seconds, in which a supervisor starts another agent; then each worker probes for
#      itself, as an edge without control does. What no probe has told yet stays as it was.
#   4. The last plan is followed no longer than the agent would have followed it without control.


SILENCE = 10.0
"""Seconds without a pulse after which an agent that is there counts as gone: it hangs."""
FROZEN = 30.0
"""Seconds for which health is taken as it was last known; after that, this worker's own probes tell."""

_NOTHING: HealthTable = {}


class Tenure:
    """What a worker knows of its agent.

    Args:
        clock: seconds that only grow.
        able: whether this worker may go on alone at all: only if a next agent can find it.
    """

    def __init__(self, clock: Callable[[], float], *, able: bool) -> None:
        self._clock = clock
        self._able = able
        self._heard = clock()
        self._gone_at: float | None = None
        self._pulse = PulseMessage(alone=False)
        self.gone = threading.Event()
        """Set once the agent's end of the line is closed."""
        self.told = State()
        """The last state of the world that the agent sent."""

    def heard(self, message: ToWorker) -> None:
        """The agent sent something."""
        self._heard = self._clock()
        if isinstance(message, PulseMessage):
            self._pulse = message

    def ended(self) -> bool:
        """The agent is gone; whether this worker goes on. One that hung before was gone since it was last heard."""
        self._gone_at = self._heard
        self.gone.set()
        return self._able and self._pulse.alone

    @property
    def alone_for(self) -> float:
        """Seconds without an agent; 0 with one."""
        now = self._clock()
        if self._gone_at is not None:
            return max(now - self._gone_at, 1e-3)
        silent = now - self._heard
        return silent if self._pulse.alone and silent > SILENCE else 0.0

    def state(self, own: HealthTable = _NOTHING, addresses: Addresses = NO_ADDRESSES) -> State:
        """The state of the world to go by now.

        Args:
            own: what this worker's own probes say.
            addresses: likewise, of addresses.
        """
        alone_for = self.alone_for
        if not alone_for:
            return self.told
        plan = self.told.plan if alone_for <= self._pulse.plan_left else NO_PLAN
        if alone_for <= FROZEN:
            return replace(self.told, plan=plan)
        return replace(
            self.told,
            vantage=self._pulse.edge,
            health=fill(own, self.told.health),
            plan=plan,
            addresses=fill_addresses(addresses, self.told.addresses),
        )


class OwnProbes:
    """Probes in a thread of their own, for as long as nobody else makes them.

    Args:
        allowed: networks that are probed whatever they are (`gtm.destinations`).
        ca_file: certificates that count besides the public ones, None for no others.
    """

    def __init__(self, allowed: tuple[Network, ...] = (), ca_file: Path | None = None) -> None:
        self._allowed = allowed
        self._ca_file = ca_file
        self.health: HealthTable = {}
        """The verdicts; what is not known is missing or unknown."""
        self.addresses: Addresses = NO_ADDRESSES
        """The verdicts on addresses (`gtm.core.health.addresses`)."""
        self._stopping: threading.Event | None = None

    def start(self, snapshot: Snapshot, told: Addresses = NO_ADDRESSES) -> None:
        """Begin; once begun, nothing changes.

        Args:
            snapshot: the policy.
            told: what was known of addresses last: those that were up once can be found down.
        """
        if self._stopping is None:
            self._stopping, self.health, self.addresses = threading.Event(), {}, NO_ADDRESSES
            args = (snapshot, ever_up(told), self._stopping)
            threading.Thread(target=self._run, args=args, daemon=True).start()

    def stop(self) -> None:
        """End, and forget. The thread is not waited for: a name that does not resolve may hold it up for half a minute."""
        if self._stopping is not None:
            self._stopping.set()
            self._stopping, self.health, self.addresses = None, {}, NO_ADDRESSES

    def _run(self, snapshot: Snapshot, known: frozenset[str], stopping: threading.Event) -> None:
        try:
            asyncio.run(self._probe(snapshot, known, stopping))
        except Exception:
            logger.exception("this worker's own probes failed; health stays as it was last known")

    async def _probe(self, snapshot: Snapshot, known: frozenset[str], stopping: threading.Event) -> None:
        from gtm.prober import Prober  # few workers ever need it

        # What cannot be read now could be read at the start: every https endpoint would look down, and is not.
        tls_context(self._ca_file)
        prober = Prober(lambda: None, time.time, allowed=self._allowed, ca_file=self._ca_file, ever_up=known)
        prober.start()
        try:
            prober.update(snapshot)
            while not await asyncio.to_thread(stopping.wait, 0.5):
                health, addresses = prober.health(), prober.addresses()
                if stopping is self._stopping:  # what was stopped says nothing any more
                    self.health, self.addresses = health, addresses
        finally:
            await prober.stop()


# --- One answering process of an edge: `python -m gtm.runtime.edge.worker NAME`, started by the agent only. ---


logger = logging.getLogger(__name__)

_TICK = 1.0
_RELOAD_EVERY = 5
_INTERVALS = {SampleMethod.BALANCER: 10, SampleMethod.BEACON: 60}
"""Beats of an interval of samples. Among browsers each source has one vote in it, and three must have spoken."""


class EdgeWorker:
    """What DNS and HTTP workers have in common: the View, the locator, the counters, the link to the agent.

    Args:
        settings: this worker's.
        clock: Unix time.
    """

    def __init__(self, settings: EdgeWorkerSettings, clock: Callable[[], float] = time.time) -> None:
        self.settings = settings
        self._clock = clock
        edge = settings.edge
        self.counts = Counts()
        self.metrics = ""
        self.silent: tuple[str, ...] = (WorkerKind.DNS,)
        self.locator = Locator(edge.geoip_db, edge.geoip_overrides, anonymous=edge.geoip_anonymous_db)
        self.current = CurrentView(clock, self._swapped, edge.place, boot=boot_time)
        self.answerer: Answerer | None = None
        self._signer = ZoneSigner(self.current.keys, clock)
        self._period = self._signer.period()
        self._cookies = ServerCookies(*settings.cookie_secrets) if settings.cookie_secrets else None
        self._options = ServerOptions(
            (edge.name if edge.dns.nsid is None else edge.dns.nsid).encode(),
            edge.dns.version.encode(),
            TcpLimits().idle,
            self._cookies,
        )
        self.limiter = _limiter(settings, self._cookies, self.counts)
        self._turn()
        self._link = EdgeWorkerEnd(socket.socket(fileno=settings.descriptor))
        self._tenure = Tenure(time.monotonic, able=settings.door is not None)
        self._probes = OwnProbes(edge.probe_allow, edge.ca_file)
        self._own_metrics = EdgeMetrics(self._own_gauges)
        self._was_alone = False
        self._finishing = False
        self.tls: ListenerTls | None = None
        """What the edge's HTTP shows; None: it speaks no TLS."""
        if (
            settings.id.kind is WorkerKind.HTTP
            and edge.tls_certificate is not None
            and edge.tls_key is not None
        ):
            self.tls = listener_tls(edge.tls_certificate, edge.tls_key)
        self.ending = threading.Event()
        """Set once this worker is to end: its threads then do."""
        self._gate: QuotaGate | None = None
        self.intake: Intake | None = None
        self.handoffs = EdgeHandoffs(self.current)
        self._parts = 0
        self._answered_from = 0
        self._listening = False

    def wait_for_view(self) -> Router | None:
        """Read from the agent until there is a View with a state; None if the agent is gone before."""
        while self.current.router is None or self.current.state.epoch == 0:
            if not self._take():
                return None
        return self.current.router

    def ready(self, router: Router) -> None:
        """Tell the agent that this worker listens, and what it answers from."""
        self._listening = True
        view = router.view
        with suppress(OSError):
            self._link.put(EdgeReadyMessage(view.snapshot.revision))

    def follow(self) -> None:
        """Take in messages for as long as the agent lives, and longer if it died and meant this worker to go on."""
        while self._take():
            pass
        if self._tenure.ended() and not self._finishing:
            self.ending.wait()

    def start(
        self,
        stop: Callable[[], None],
        finish: Callable[[], None] = lambda: None,
        listeners: Sequence[Listener] = (),
    ) -> None:
        """Follow the agent and the clock on threads of their own, and wait for a next agent.

        Args:
            stop: called when either thread ends, for whatever reason.
            finish: makes this worker answer what has arrived, and end; called on SIGTERM and by a next agent.
            listeners: the sockets that a next agent gets.
        """

        def run(work: Callable[[], None]) -> None:
            try:
                work()
            except Exception:
                logger.exception("this worker can be kept up to date no more, and ends")
            finally:
                self.ending.set()
                stop()

        def end() -> None:
            self._finishing = True
            finish()

        for work in (self.follow, self.tick):
            threading.Thread(target=run, args=(work,), daemon=True).start()
        if self.settings.door is not None:
            Door(socket.socket(fileno=self.settings.door), listeners, self._tenure.gone, end).start()
        if listeners:
            signal.signal(signal.SIGTERM, lambda *_: end())

    def tick(self) -> None:
        """Until the agent is gone: rules at their moment, and once a second counters up, a changed GeoIP file in."""
        beats, beat = 0, time.monotonic() + _TICK
        while not self.ending.wait(min(max(0.0, beat - time.monotonic()), self.current.pause())):
            self.current.tick()
            if time.monotonic() < beat:
                continue
            beats, beat = beats + 1, time.monotonic() + _TICK
            self.beat(beats)
        self._probes.stop()

    def beat(self, number: int) -> None:
        """What is done once a second.

        Args:
            number: of the second, from 1 on: some is done in each, some in every tenth.
        """
        self._mind_agent()
        self._sign_anew()
        self._turn()
        if number % _RELOAD_EVERY == 0:
            if reload_places(self.locator):
                self.current.rebuild()
            wrong = None if self.tls is None else self.tls.look()
            if wrong is not None:
                logger.error("%s", wrong)
        for kind, length in _INTERVALS.items():
            if number % length == 0:
                self._tell_samples(kind)
        self._tell_counts()
        pauses.spare_collector(number)

    def _turn(self) -> None:
        """Begin the next second of what answering takes a clock for."""
        if self._cookies is not None:
            self._cookies.tick(int(self._clock()))
        if self.limiter is not None:
            for prefix, replies in self.limiter.turn():
                self.counts.add(top_client_key(prefix), replies)

    @property
    def alone(self) -> dict[str, object]:
        """What `/readyz` says of a worker that answers without its agent; empty with it."""
        seconds = self._tenure.alone_for
        if not seconds:
            return {}
        return {"alone_seconds": round(seconds, 1), "health": "own" if seconds > FROZEN else "frozen"}

    def _mind_agent(self) -> None:
        """Go by what is known without the agent while it is gone or hangs, and by what it says when it is back."""
        seconds = self._tenure.alone_for
        if not seconds and not self._was_alone:
            return
        if bool(seconds) is not self._was_alone:
            self._say_alone()
        if seconds > FROZEN and self.current.snapshot is not None:
            self._probes.start(self.current.snapshot, self._tenure.told.addresses)
        elif not seconds:
            self._probes.stop()
        self._was_alone = bool(seconds)
        state = self._tenure.state(self._probes.health, self._probes.addresses)
        if state != self.current.state:
            self.current.apply(StateMessage(state))

    def _say_alone(self) -> None:
        if self._was_alone:
            logger.info("the agent is back")
        elif self._tenure.gone.is_set():
            logger.error("the agent is gone; answering alone until the next, or `gtm edge --stop`")
        else:
            logger.error("the agent has said nothing for %.0f s; answering alone until it does", SILENCE)

    def _own_gauges(self) -> list[GaugeValue]:
        return [
            ("gtm_edge_alone_seconds", (), self._tenure.alone_for),
            ("gtm_edge_control_connected", (), 0.0),
        ]

    def metrics_text(self) -> str:
        """The whole edge's metrics; without an agent, this process's alone since then."""
        return self._own_metrics.text() if self._was_alone else self.metrics

    def _tell_counts(self) -> None:
        counts = self.counts.take()
        used, denied = self._gate.take_counts() if self._gate is not None else ({}, {})
        if self._was_alone:
            self._own_metrics.add(counts)
            self._own_metrics.take_demand()  # nobody plans by it
            return
        if not counts and not used and not denied:
            return
        self._tell(CountsMessage(counts, self._parts, used, denied))

    def _tell_samples(self, kind: SampleMethod) -> None:
        if self.intake is None:
            return
        deltas, witnesses = self.intake.end_interval(kind)
        if deltas or witnesses:
            self._tell(SamplesMessage(tuple(deltas), tuple(witnesses)))

    def _tell(self, message: ToAgent) -> None:
        with suppress(OSError):  # whoever reads from the agent finds out that it is gone
            self._link.put(message)

    def afford(self, quotas: tuple[QuotaText, ...]) -> bool:
        """Whether one more request may spill under these quotas; not before the agent has said what may be spent."""
        return self._gate is not None and self._gate.afford(quotas)

    def earn(self, worth: Worth) -> Worth:
        """A request was seen, worth so much of quotas that are shares. Returns what could not be saved."""
        return worth if self._gate is None else self._gate.earn(worth)

    def _spend(self, parts: LeaseParts) -> None:
        """Spend by these parts of the leases, and say so."""
        if self._gate is None:
            self._gate = QuotaGate(parts, boot_time)
        else:
            self._gate.update(parts)
        self._parts = parts.sequence
        self._tell(CountsMessage({}, self._parts, *self._gate.take_counts()))

    def _take(self) -> bool:
        """Take in the agent's next message; False when it is gone."""
        try:
            message = self._link.get()
            if message is None:
                return False
            self._tenure.heard(message)
            self._heed(message)
        except (FeedError, PolicyError) as error:
            logger.error("ignored a message from the agent: %s", error)
        return True

    def _heed(self, message: ToWorker) -> None:
        match message:
            case MetricsMessage():
                self.metrics = message.text
            case SilentMessage():
                self.silent = message.kinds
            case PartsMessage():
                self._spend(message.parts)
            case SigningMessage():
                self.handoffs.use(message.issuer, message.key, message.public)
            case PulseMessage():
                with suppress(OSError):
                    self._link.flush()
            case TimesMessage():
                self.current.follow(message.times)
            case StateMessage():
                self._tenure.told = message.state
                self.current.apply(message)
            case SnapshotMessage():
                self.current.apply(message)
                if self._listening and self.current.router is not None:
                    self.ready(self.current.router)
            case HandoffKeysMessage():
                self.current.apply(message)
                self.handoffs.hear()
            case AccessMessage() | KeysMessage() | LatencyMessage() | RoomMessage():
                self.current.apply(message)
            case _:
                assert_never(message)

    def _swapped(self, router: Router) -> None:
        if self.settings.id.kind is WorkerKind.HTTP:
            if router.view.snapshot.carried:
                importlib.import_module("gtm.runtime.edge.worker.carry")  # beside the answer path
        else:
            # What an answerer remembers of clients goes on to the next one, unless the clients moved: data that is
            # loaded while this runs is counted after, and the rebuild that follows it makes a new memory.
            data = self.locator.loads
            predecessor = self.answerer if data == self._answered_from else None
            self._answered_from = data
            if self._signer.keys is not self.current.keys:
                self._signer = ZoneSigner(self.current.keys, self._clock, self._signer)
            self._period = self._signer.period()
            self.answerer = Answerer(
                router,
                self.locator.locate,
                self.counts,
                predecessor,
                self._signer,
                options=self._options,
                draw=random.random,
            )

    def _sign_anew(self) -> None:
        """Let go of the answers that were made ready with the signatures of another period."""
        if self._signer.zones and self._signer.period() != self._period:
            self.current.rebuild()


def _limiter(settings: EdgeWorkerSettings, cookies: ServerCookies | None, counts: Counts) -> Limiter | None:
    """What limits replies over UDP; None: nothing does."""
    given = settings.edge.dns
    if settings.id.kind is not WorkerKind.DNS or given.rate_limit == 0:
        return None
    limits = RateLimits(
        given.rate_limit, given.rate_limit_excess, given.rate_limit_slip, given.rate_limit_exempt
    )
    return Limiter(limits, cookies, counts)
