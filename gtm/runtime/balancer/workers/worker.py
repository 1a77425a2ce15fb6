"""One worker of a balancer: carries requests, by the View and the words that the balancer's first process tells it.

Laws:
  1. Nothing is carried before there is a View, and every backend was looked at once.
  2. Whoever started it is gone, or tells it to end: it takes nothing new, lets streams finish within the drain time, and ends.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import time
from collections import Counter
from contextlib import closing

from gtm.core.balance.sharing import LOOK_EVERY, Use, due
from gtm.core.model.problems import PolicyError
from gtm.core.quota.names import QuotaText
from gtm.feed.current import CurrentView
from gtm.feed.wire import FeedError
from gtm.geoip.reader import Locator
from gtm.runtime.balancer.backends_file import BackendsFile
from gtm.runtime.balancer.carrier import Carrier
from gtm.runtime.balancer.workers.messages import (
    AskMessage,
    KeyMessage,
    LoadMessage,
    LookMessage,
    ReadyMessage,
    ShownMessage,
    ToWorker,
    WordMessage,
    WordsMessage,
    WorkerEnd,
    WorkerSettings,
)
from gtm.runtime.following.tasks import Tasks, first_of
from gtm.runtime.following.told import PartsMessage, TimesMessage
from gtm.runtime.process import lifeline
from gtm.runtime.process.clocks import boot_time
from gtm.runtime.process.listeners import Listener
from gtm.runtime.process.listeners import Use as SocketUse

logger = logging.getLogger(__name__)

_EVERY = 1.0
"""Seconds between two loads, and looks at the clock."""


class BalancerWorker:
    """See above."""

    def __init__(self, told: WorkerSettings) -> None:
        self._told = told
        self._settings = told.balancer
        self._current = CurrentView(time.time, boot=boot_time)
        self._begin = asyncio.Event()
        self._stopping = asyncio.Event()
        self._tasks = Tasks(self.stop)
        self._early: dict[type[ToWorker], ToWorker] = {}
        """The last message of each kind for what carries, from before that was made."""
        self._carrier: Carrier | None = None
        self._used: Counter[QuotaText] = Counter()
        self._denied: Counter[QuotaText] = Counter()

    def stop(self) -> None:
        """Ask it to end."""
        self._stopping.set()

    async def run(self) -> None:
        """Carry until told to end.

        Raises:
            GeoIPError: the GeoIP database or the overrides cannot be read.
            PolicyError: the file of backends is wrong.
        """
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self.stop)
        lifeline.watch(self.stop)
        self._line = await WorkerEnd.over(socket.socket(fileno=self._told.descriptor))
        self._tasks.start(self._listen())
        try:
            await first_of(self._begin, self._stopping)
            if not self._stopping.is_set():
                with closing(Locator(self._settings.geoip_db, self._settings.geoip_overrides)) as locator:
                    await self._carry(locator)
        finally:
            await self._tasks.cancel()
            await self._line.close()
        if self._tasks.failure is not None:
            raise self._tasks.failure

    async def _carry(self, locator: Locator) -> None:
        parts = self._early.pop(PartsMessage)
        assert isinstance(parts, PartsMessage)  # noqa: S101 - it was waited for
        carrier = Carrier(
            self._settings,
            self._told.member,
            current=self._current,
            file=BackendsFile(self._settings),
            locator=locator,
            parts=parts.parts,
        )
        try:
            for message in self._early.values():
                await self._pass(carrier, message)
            self._carrier = carrier
            await carrier.start()
            if self._stopping.is_set():
                return
            await carrier.open(
                [
                    Listener(SocketUse.REQUESTS, one.host, one.port, socket.socket(fileno=one.descriptor))
                    for one in self._told.lent
                ]
            )
            self._tasks.start(self._tell(carrier))
            self._tasks.start(self._tick(carrier))
            snapshot = self._current.snapshot
            # Its load first: the balancer reports as soon as all are ready, and silence is not zero.
            self._line.put([self._load(carrier), ReadyMessage(0 if snapshot is None else snapshot.revision)])
            await self._stopping.wait()
            await carrier.finish()
            self._line.put([self._load(carrier)])
        finally:
            await carrier.close()

    # What it says

    async def _tell(self, carrier: Carrier) -> None:
        """Say what it has, as often as is due."""
        loop = asyncio.get_running_loop()
        told: Use | None = None
        told_at = 0.0
        while True:
            now = loop.time()
            if due(told, carrier.use(), now - told_at):
                (word,) = carrier.words().values()
                told, told_at = word.uses[carrier.member], now
                (since,) = carrier.spent()
                self._used.update(since.used)
                self._denied.update(since.denied)
                room = carrier.free_slots()
                spent = since.sequence, dict(self._used), dict(self._denied)
                self._line.put([WordMessage(word, room, *spent, dict(carrier.pushes()))])
            await asyncio.sleep(LOOK_EVERY)

    async def _tick(self, carrier: Carrier) -> None:
        while True:
            await asyncio.sleep(_EVERY)
            self._current.tick()
            self._line.put([self._load(carrier)])

    @staticmethod
    def _load(carrier: Carrier) -> LoadMessage:
        learned = carrier.round_trips()
        return LoadMessage(
            carrier.report(),
            carrier.families(),
            carrier.tiers(),
            tuple(learned.deltas),
            tuple(learned.witnesses),
        )

    # What it hears

    async def _listen(self) -> None:
        while True:
            try:
                message = await self._line.get()
                if message is None:
                    return  # `lifeline` says what follows
                await self._take(message)
            except (FeedError, PolicyError, ValueError) as error:  # ValueError: a line that is too long
                logger.error("ignored a message: %s", error)

    async def _take(self, message: ToWorker) -> None:
        match message:
            case TimesMessage():
                self._current.follow(message.times)
            case PartsMessage() | KeyMessage() | WordsMessage() if self._carrier is None:
                self._early[type(message)] = message
            case PartsMessage() | KeyMessage() | WordsMessage() | AskMessage() | LookMessage():
                if self._carrier is not None:
                    await self._pass(self._carrier, message)
            case _:
                self._current.apply(message)
        if self._current.router is not None and PartsMessage in self._early:
            self._begin.set()

    async def _pass(self, carrier: Carrier, message: ToWorker) -> None:
        """Tell what carries what it has a use for."""
        match message:
            case PartsMessage():
                carrier.spend(message.parts)
            case KeyMessage():
                carrier.sign(message.key)
            case WordsMessage():
                carrier.heard(message.words)
            case LookMessage():
                carrier.look_again()
            case AskMessage():
                shown = await carrier.unready(), carrier.families(), await carrier.state()
                self._line.put([ShownMessage(message.number, *shown)])
            case _:
                pass
