"""One answering process of an edge: `python -m gtm.runtime.edge.worker NAME`, started by the agent only.

Laws:
  1. Nothing is taken from the sockets until a View is loaded.
  2. The answer path shares nothing with the threads beside it but single references, swapped whole.
  3. A worker lives no longer than the threads that keep it up to date, and longer than its agent only if that died
     (`gtm.runtime.edge.worker.alone`).
"""

from __future__ import annotations

import logging
import random
import signal
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import assert_never

from gtm.core.decision.router import Router
from gtm.core.handoff.claims import Issuer
from gtm.core.latency.samples import SampleMethod
from gtm.core.model.problems import PolicyError
from gtm.core.quota.earned import Worth
from gtm.core.quota.leases import LeaseParts
from gtm.core.quota.names import QuotaText
from gtm.dns.answer.answerer import Answerer
from gtm.dns.io.limiter import Limiter, RateLimits
from gtm.dns.io.tcp import TcpLimits
from gtm.dns.protocol.cookies import ServerCookies
from gtm.dns.protocol.options import ServerOptions
from gtm.dns.zone.dnssec import Signer
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
from gtm.http.answers.handoffs import Handoffs
from gtm.http.answers.quotas import QuotaGate
from gtm.http.samples.intake import Intake
from gtm.runtime.edge.line import (
    CountsMessage,
    MetricsMessage,
    PulseMessage,
    ReadyMessage,
    SamplesMessage,
    SigningMessage,
    SilentMessage,
    ToAgent,
    ToWorker,
    WorkerEnd,
    WorkerKind,
    WorkerSettings,
)
from gtm.runtime.edge.orphans import Door
from gtm.runtime.edge.worker.alone import FROZEN, SILENCE, OwnProbes, Tenure
from gtm.runtime.following.told import PartsMessage, TimesMessage
from gtm.runtime.process import pauses
from gtm.runtime.process.clocks import boot_time
from gtm.runtime.process.listeners import Listener
from gtm.runtime.process.places import reload_places
from gtm.telemetry import Counts, EdgeMetrics, GaugeValue, top_client_key

logger = logging.getLogger(__name__)

_TICK = 1.0
_RELOAD_EVERY = 5
_INTERVALS = {SampleMethod.BALANCER: 10, SampleMethod.BEACON: 60}
"""Beats of an interval of samples. Among browsers each source has one vote in it, and three must have spoken."""


class Worker:
    """What DNS and HTTP workers have in common: the View, the locator, the counters, the link to the agent.

    Args:
        settings: this worker's.
        clock: Unix time.
    """

    def __init__(self, settings: WorkerSettings, clock: Callable[[], float] = time.time) -> None:
        self.settings = settings
        self._clock = clock
        edge = settings.edge
        self.counts = Counts()
        self.metrics = ""
        self.silent: tuple[str, ...] = (WorkerKind.DNS,)
        self.locator = Locator(edge.geoip_db, edge.geoip_overrides, anonymous=edge.geoip_anonymous_db)
        self.current = CurrentView(clock, self._swapped, edge.place, boot=boot_time)
        self.answerer: Answerer | None = None
        self._signer = Signer(self.current.keys, clock)
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
        self._link = WorkerEnd(socket.socket(fileno=settings.descriptor))
        self._tenure = Tenure(time.monotonic, able=settings.door is not None)
        self._probes = OwnProbes(edge.probe_allow, edge.ca_file)
        self._own_metrics = EdgeMetrics(self._own_gauges)
        self._was_alone = False
        self._finishing = False
        self.ending = threading.Event()
        """Set once this worker is to end: its threads then do."""
        self._gate: QuotaGate | None = None
        self.intake: Intake | None = None
        self.handoffs = Handoffs(
            lambda: self.current.window,
            lambda: (key.x for key in self.current.handoff_keys.keys if key.kind is Issuer.EDGE),
        )
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
            self._link.put(ReadyMessage(view.snapshot.revision, view.state.epoch))

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
            self._reload_geoip()
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
            case AccessMessage() | KeysMessage() | HandoffKeysMessage() | LatencyMessage() | RoomMessage():
                self.current.apply(message)
            case _:
                assert_never(message)

    def _swapped(self, router: Router) -> None:
        if self.settings.id.kind is WorkerKind.DNS:
            # What an answerer remembers of clients goes on to the next one, unless the clients moved: data that is
            # loaded while this runs is counted after, and the rebuild that follows it makes a new memory.
            data = self.locator.loads
            predecessor = self.answerer if data == self._answered_from else None
            self._answered_from = data
            if self._signer.keys is not self.current.keys:
                self._signer = Signer(self.current.keys, self._clock, self._signer)
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

    def _reload_geoip(self) -> None:
        if reload_places(self.locator):
            self.current.rebuild()


def _limiter(settings: WorkerSettings, cookies: ServerCookies | None, counts: Counts) -> Limiter | None:
    """What limits replies over UDP; None: nothing does."""
    given = settings.edge.dns
    if settings.id.kind is not WorkerKind.DNS or given.rate_limit == 0:
        return None
    limits = RateLimits(
        given.rate_limit, given.rate_limit_excess, given.rate_limit_slip, given.rate_limit_exempt
    )
    return Limiter(limits, cookies, counts)
