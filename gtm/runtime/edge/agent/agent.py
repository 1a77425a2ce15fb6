"""The edge's agent: follows control, probes, keeps the last good View, and runs the workers that answer.

Laws:
  1. Losing control costs freshness, never answers: the last View stays, with this edge's own probes for health.
  2. What control says is checked (checksum, compilation) before it is saved, and saved before it is used.
  3. Nothing listens before a View is loaded and the first round of probes is over.
  4. The sockets are the agent's. They outlive its workers, and pass to a successor without a gap.
  5. Who stops an edge means to: its workers end with it. An agent that dies leaves them to answer alone until the next
     (`gtm.runtime.edge.worker.alone`), and one that fails dies at once, for whatever it did to end well would end them.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import random
import secrets
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from math import inf
from pathlib import Path
from typing import Any, NoReturn, ParamSpec, TypeVar, assert_never

from gtm import __version__
from gtm.core.model.problems import PolicyError
from gtm.core.model.state import PLAN_KEPT, State, kept_plan
from gtm.core.quota.leases import LeaseHolder
from gtm.feed import lastgood
from gtm.feed.client import ControlUnreachable, FeedClient, NameRefused, TokenRefused
from gtm.feed.holder import ViewHolder
from gtm.feed.sealing import SealingKey
from gtm.feed.wire import (
    AccessMessage,
    EdgeReport,
    FeedError,
    HeartbeatMessage,
    KeysMessage,
    LatencyMessage,
    Message,
    SealedKeysMessage,
    SnapshotMessage,
    StateMessage,
)
from gtm.geoip.reader import Locator
from gtm.prober import Prober
from gtm.runtime.edge.agent.claim import Claim
from gtm.runtime.edge.agent.clock_keeper import ClockKeeper
from gtm.runtime.edge.agent.cookie_secrets import cookie_secrets
from gtm.runtime.edge.agent.crew import Crew
from gtm.runtime.edge.agent.edge_name import remember, remembered
from gtm.runtime.edge.agent.gauges import EdgeFacts, edge_gauges
from gtm.runtime.edge.agent.round_trips import RoundTrips
from gtm.runtime.edge.agent.veto import Veto
from gtm.runtime.edge.handover.handover import HandoverError
from gtm.runtime.edge.line.messages import Lasting, MetricsMessage, PulseMessage, TimesMessage, ToWorker
from gtm.runtime.process import lifeline
from gtm.runtime.process.clocks import boot_id, boot_time
from gtm.runtime.process.privileges import conceal
from gtm.settings import EdgeSettings
from gtm.telemetry import EdgeMetrics

logger = logging.getLogger(__name__)

_Args = ParamSpec("_Args")
_Result = TypeVar("_Result")

LEARN_EVERY = 10
"""Seconds in an interval of probes' round trips."""
REPORT_EVERY = 1.0
"""Seconds between reports to control when nothing changes."""
FIRST_ROUND = 10.0
"""Longest wait for the first round of probes, in seconds; what has not answered by then is unknown."""
TAKE_OVER = 60.0
"""Seconds within which an edge that is to replace another must answer; it gives up after."""
_BACKOFF = (0.2, 0.5, 1.0, 2.0)
_PATIENT_TRIES = 5
"""Tries to reach control before an edge that starts says so: the two may just have been started together."""


class Agent:
    """One edge. `run` returns when it has been told to stop."""

    def __init__(self, settings: EdgeSettings) -> None:
        self.settings = settings = remembered(settings)
        self.metrics = EdgeMetrics(lambda: edge_gauges(self._facts()))
        self._veto = Veto(self.metrics)
        self._holder = ViewHolder(time.time, edge=settings.place, boot=boot_time)
        self._told = TimesMessage(self._holder.times)
        self._clock = ClockKeeper(settings.data_dir, self._holder, boot_id())
        self._round_trips = RoundTrips(settings.region, time.time)
        self._prober = Prober(
            self._verdict_changed,
            time.time,
            self._round_trips.probed,
            allowed=settings.probe_allow,
            ca_file=settings.ca_file,
        )
        self._snapshot: SnapshotMessage | None = None
        self._agreed = State()
        self._connected = False
        self._keeps_plan = False
        self._wants_plan = False
        self._notice = ""
        self._lost_at = -inf
        self._geoip_built = 0.0
        self._reported_at = time.monotonic()
        self._loaded = asyncio.Event()
        self._report_due = asyncio.Event()
        self._stopping = asyncio.Event()
        self._parent_gone = asyncio.Event()
        self._claim = Claim(settings)
        self._cookie_secrets = cookie_secrets(settings.dns_cookie_secret_file)  # while still root, if ever
        self._saving = asyncio.Lock()
        # A thread of its own: those that all share may be busy with names that do not resolve, for half a minute each.
        self._disk = ThreadPoolExecutor(1, "disk")
        self._unsaved = False
        self._crew: Crew | None = None
        self._leases = LeaseHolder(secrets.token_hex(8), settings.workers)
        self._tasks: list[asyncio.Task[None]] = []
        self._reporting: asyncio.Task[None] | None = None
        self._failure: BaseException | None = None
        self._settled = False

    async def run(self) -> None:
        """Serve until SIGTERM, SIGINT or SIGHUP. A `gtm serve` that dies leaves its edge to answer alone.

        Raises:
            OSError: another edge runs on the data directory, an address cannot be listened on, or `user` or
                `replace` is not possible.
            GeoIPError: the GeoIP database or the overrides cannot be read.
        """
        conceal()
        try:
            self._claim.take()
            conceal()  # again: becoming another user may have undone it
            await self._run()
        finally:
            self._disk.shutdown(wait=False)
            self._claim.release()

    async def _run(self) -> None:
        settings = self.settings
        locator = Locator(settings.geoip_db, settings.geoip_overrides, anonymous=settings.geoip_anonymous_db)
        self._geoip_built = float(locator.build_epoch)
        locator.close()
        loop = asyncio.get_running_loop()
        for number in lifeline.ending_signals():
            loop.add_signal_handler(number, self.stop)
        lifeline.watch(self._lost_parent)
        self._crew = Crew(
            settings,
            self._claim.listeners,
            self.metrics,
            everything=self._everything,
            moved=self._report_due.set,
            leases=self._leases,
            learned=self._round_trips.learned,
            cookie_secrets=self._cookie_secrets,
            covered=lambda: self._claim.covered,
            pulse=self._pulse,
        )
        self._prober.start()
        try:
            self._start(self._settle())
            await self._load_last_good()
            self._start(self._follow())
            if await self._until_loaded():
                await self._answer()
        finally:
            if self._failure is not None and self._settled:
                _die(self._failure)
            if self._failure is None:
                self._claim.abandon()
            if self._claim.covered:
                await self._crew.finish()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await self._crew.stop()
            await self._prober.stop()
            await self._keep_times()
        if self._failure is not None:
            raise self._failure  # with its traceback, and an exit code that makes a supervisor start the edge again

    def stop(self) -> None:
        """Ask the edge to stop."""
        self._stopping.set()

    async def _answer(self) -> None:
        """From the first View on: probe, start workers, report, until told to stop."""
        assert self._crew is not None  # noqa: S101 - set by run()
        await self._prober.first_round(FIRST_ROUND)
        self._publish()
        self._crew.start()
        if not self._claim.inherited:
            self._reporting = self._start(self._report())
        self._start(self._tick())
        await self._stopping.wait()

    async def _settle(self) -> None:
        """Take the place of the predecessor once every worker answers, and leave it to a successor some day."""
        assert self._crew is not None  # noqa: S101 - set by run()
        try:
            await asyncio.wait_for(self._crew.ready.wait(), TAKE_OVER if self._claim.inherited else None)
        except TimeoutError:
            raise HandoverError(
                errno.ETIMEDOUT, f"not ready to answer after {TAKE_OVER:.0f} s; the edge that runs goes on"
            ) from None
        self._claim.settle()
        self._settled = True  # and workers know before a slow disk is waited for
        self._crew.beat()
        await self._on_disk(self._clock.load)  # what the predecessor saw last
        if self._claim.inherited:  # until now the predecessor reported
            self._reporting = self._start(self._report())
        self._start(self._claim.relieved())
        await self._claim.leave_to_successor(self._give_way, self._parent_gone)

    def _give_way(self) -> None:
        """A successor answers now, reports, and keeps the last-good file."""
        self._settled = False
        if self._reporting is not None:
            self._reporting.cancel()
        self.stop()

    def _lost_parent(self) -> None:
        """The `gtm serve` that started this edge has died. Edges answer when everything else is down."""
        self._parent_gone.set()
        if not self._settled:
            self.stop()
            return
        logger.error(
            "`gtm serve` is gone; answering alone until the next one on this data directory, or `gtm edge --stop`"
        )

    def _pulse(self) -> PulseMessage:
        """What workers are told, should they be left alone: the plan's time, which runs already without control."""
        left = PLAN_KEPT
        if not self._connected or self._keeps_plan:
            left -= min(time.monotonic() - self._lost_at, PLAN_KEPT)
        return PulseMessage(self._settled and not self._stopping.is_set(), left, self.settings.name)

    async def _on_disk(
        self, work: Callable[_Args, _Result], *args: _Args.args, **kwargs: _Args.kwargs
    ) -> _Result:
        """Do what may wait for a disk, beside the event loop."""
        return await asyncio.get_running_loop().run_in_executor(self._disk, partial(work, *args, **kwargs))

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        task.add_done_callback(self._task_ended)
        self._tasks.append(task)
        return task

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        """None of the agent's tasks fails; if one does, it is better to restart than to go on half."""
        if not task.cancelled() and task.exception() is not None:
            self._failure = task.exception()
            self.stop()

    async def _until_loaded(self) -> bool:
        """Wait for a View; False if told to stop before."""
        waits = [asyncio.ensure_future(event.wait()) for event in (self._loaded, self._stopping)]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
        return not self._stopping.is_set()

    # What arrives

    async def _load_last_good(self) -> None:
        path = self._last_good
        await self._on_disk(self._clock.load)  # before the first View
        await self._tell_times()
        try:
            for message in await self._on_disk(lastgood.load, path):
                self._take(message)
            if self._snapshot is not None:
                logger.info("loaded revision %d from %s", self._snapshot.revision, path)
        except FileNotFoundError:
            logger.info("no last-good file yet; waiting for control at %s", self.settings.control_url)
        except (FeedError, PolicyError, OSError) as error:
            logger.error("cannot use the last-good file, waiting for control instead: %s", error)

    async def _follow(self) -> None:
        """Follow control's feed for ever, reconnecting with growing pauses."""
        failures = 0
        refused = False
        key = await self._on_disk(SealingKey.kept, self.settings.data_dir)
        async with self._client(key) as client:
            while True:
                client.edge = self.settings.name
                try:
                    async for message in client.messages(self._snapshot):
                        # Not before its first state: what it last said of health may be from long ago.
                        if not self._connected and isinstance(message, StateMessage):
                            logger.info("following control at %s", client.url)
                            self._connected, failures, refused = True, 0, False
                            self._report_due.set()
                        await self._receive(message)
                except ControlUnreachable as error:
                    if isinstance(error, NameRefused) and self._renamed(error.name):
                        continue
                    if self._connected:
                        logger.warning("lost control, going on with what is known: %s", error)
                    elif not refused and (isinstance(error, TokenRefused) or failures == _PATIENT_TRIES):
                        logger.warning("cannot follow control, still trying: %s", error)
                    refused = refused or isinstance(error, TokenRefused)
                    if self._connected:
                        self._lost()
                pause = _BACKOFF[min(failures, len(_BACKOFF) - 1)]
                failures += 1
                await asyncio.sleep(pause * random.uniform(0.5, 1.5))

    def _client(self, key: SealingKey | None = None) -> FeedClient:
        settings = self.settings
        return FeedClient(
            settings.control_url,
            settings.token,
            settings.name,
            settings.ca_file,
            key=key,
            skipped=self._skipped,
        )

    def _skipped(self, why: str) -> None:
        logger.error("skipped a message of control's feed: %s", why)
        self.metrics.skipped()

    def _renamed(self, name: str) -> bool:
        """Take the name that the token is for, where nobody gave the edge another."""
        if self.settings.named or not name or name == self.settings.name:
            return False
        self.settings = remember(self.settings, name)
        if self._crew is not None:
            self._crew.rename(name)
        return True

    def _lost(self) -> None:
        """Go on without control."""
        self._connected = False
        if not self._keeps_plan:  # else the plan's time runs already
            self._lost_at = time.monotonic()
        self._publish()

    async def _receive(self, message: Message) -> None:
        before = self._holder.times
        self._holder.hear(message)
        if self._holder.times.stepped(before):
            await self._tell_times()
        try:
            lasting = self._take(message)
        except (FeedError, PolicyError) as error:
            logger.error("ignored a snapshot from control: %s", error)
            return
        if lasting is not None:
            await self._save()
            self._send(lasting)
        if isinstance(message, SnapshotMessage | StateMessage):
            self._publish()

    def _take(self, message: Message) -> Lasting | None:
        """Use a message here; it is returned if the workers and the last-good file need it too."""
        match message:
            case StateMessage():
                self._agreed = message.after(self._agreed)
                self._keeps_plan = message.keep_plan
                return None
            case SnapshotMessage():
                self._holder.apply(message)
                assert self._holder.snapshot is not None  # noqa: S101 - apply() compiled it
                self._snapshot = message
                self._prober.update(self._holder.snapshot)
                self._round_trips.update(self._holder.snapshot)
                self._loaded.set()
                self._report_due.set()
                return message
            case AccessMessage() | KeysMessage() | LatencyMessage():
                self._holder.apply(message)
                return message
            case HeartbeatMessage() | SealedKeysMessage():  # heard, and opened by the client, already
                return None
            case _:
                assert_never(message)

    @property
    def _last_good(self) -> Path:
        return self.settings.data_dir / "edge-last-good"

    async def _save(self) -> None:
        """Write the last-good file; while the disk refuses, `_tick` tries again."""
        if self._claim.replaced:
            return
        async with self._saving:
            messages = self._lasting()
            try:
                await self._on_disk(lastgood.save, self._last_good, messages)
            except OSError as error:
                if not self._unsaved:
                    logger.error("cannot save the last-good file, still trying: %s", error)
                self._unsaved = True
            else:
                if self._unsaved:
                    logger.info("saved the last-good file after all")
                self._unsaved = False

    # What goes out

    def _publish(self) -> None:
        """Tell the workers the state of the world as it is known now."""
        own = self._prober.health()
        # Epoch 0 is the state before any: a worker that has only that must not listen.
        epoch = max(self._agreed.epoch, 1)
        plan = self._agreed.plan
        if not self._connected or self._keeps_plan:
            plan = kept_plan(plan, time.monotonic() - self._lost_at)
        if self._connected:
            state = State(epoch, "", self._veto.health(self._agreed.health, own), plan)
        else:
            self._veto.alone()
            state = State(epoch, self.settings.name, own, plan)
        if state == self._holder.state:
            return
        self._holder.apply(StateMessage(state))
        self._send(StateMessage(state))

    def _send(self, message: ToWorker) -> None:
        if self._crew is not None:
            self._crew.put([message])

    async def _tell_times(self) -> None:
        """Say what time it is. What was a step is on disk before anything is answered by it."""
        await self._keep_times()
        self._told = TimesMessage(self._holder.times)
        self._send(self._told)

    async def _keep_times(self) -> None:
        """Keep the times on disk, if it is time to."""
        if not self._claim.replaced:
            await self._on_disk(self._clock.keep)

    def _everything(self) -> list[ToWorker]:
        """What a new worker needs to begin: the time first, as its siblings know it, for its first View to stand for it."""
        return [self._told, *self._lasting(), StateMessage(self._holder.state)]

    def _lasting(self) -> list[Lasting]:
        """What stays true without control: tokens, keys, policy, measured latency."""
        messages: list[Lasting] = [AccessMessage(self._holder.access)]
        if self._holder.keys.version:
            messages.append(KeysMessage(self._holder.keys))
        if self._snapshot is not None:
            messages.append(self._snapshot)
        if self._holder.table.version:
            messages.append(LatencyMessage(self._holder.table))
        return messages

    def _verdict_changed(self) -> None:
        self._report_due.set()
        self._publish()

    async def _report(self) -> None:
        assert self._crew is not None  # noqa: S101 - set by run()
        async with self._client() as client:
            while True:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._report_due.wait(), REPORT_EVERY)
                self._report_due.clear()
                client.edge = self.settings.name
                with suppress(ControlUnreachable):  # the feed's own loop says so
                    reply = await client.report(self._next_report())
                    self._wants_plan = reply.wants_plan
                    if reply.notice and not self._notice:
                        logger.error("control says: %s", reply.notice[:1000])
                    self._notice = reply.notice
                    if reply.leases is not None and self._leases.take(reply.leases):
                        self._crew.put_parts()

    def _facts(self) -> EdgeFacts:
        """How the edge stands now, for its metrics."""
        return EdgeFacts(
            connected=self._connected,
            heard=self._holder.times.heard or 0.0,
            clock_spread=self._holder.times.spread,
            snapshot=self._snapshot,
            plan_made=self._holder.state.plan.made,
            health=self._prober.health(),
            probed=self._prober.latest,
            answering=self._crew.answering if self._crew is not None else {},
            geoip_built=self._geoip_built,
        )

    def _next_report(self) -> EdgeReport:
        """What control is told now. Demand that a lost report held stays in the metrics alone."""
        assert self._crew is not None  # noqa: S101 - set by run()
        now = time.monotonic()
        seconds, self._reported_at = now - self._reported_at, now
        deltas, witnesses = self._round_trips.take() if self._connected else ((), ())
        return EdgeReport(
            version=__version__,
            place=self._holder.place,
            revision=self._crew.revision,
            epoch=self._holder.state.epoch,
            health=self._prober.health(),
            demand=self.metrics.take_demand(),
            seconds=seconds,
            leases=self._leases.use(boot_time()),
            latency=deltas,
            witnesses=witnesses,
            plan=self._holder.state.plan if self._wants_plan else None,
            overruled=tuple(sorted(self._veto.regions)),
        )

    async def _tick(self) -> None:
        assert self._crew is not None  # noqa: S101 - set by run()
        beats = 0
        while True:
            await asyncio.sleep(1.0)
            beats += 1
            self._holder.tick()
            self._veto.tick()
            await self._tell_times()
            if beats % LEARN_EVERY == 0:
                self._round_trips.end_interval()
            if not self._connected or self._keeps_plan:
                self._publish()  # the last plan ends some time
            if self._unsaved:
                await self._save()
            self._crew.put([MetricsMessage(self.metrics.text())])
            self._crew.beat()


def _die(failure: BaseException) -> NoReturn:
    """Leave the workers alone: an orderly end of this process would end them too."""
    logger.critical("the agent failed; its workers go on alone until the next", exc_info=failure)
    logging.shutdown()
    os._exit(1)
