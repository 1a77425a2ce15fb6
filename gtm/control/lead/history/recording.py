"""How the active control writes a history down: every few seconds what waits, now and then forgetting what is old.

Laws:
  1. Losing the database loses no minute for an hour; what is older is dropped, and the log says so.
  2. What was seen is written once more when control ends, so that the next one can go on with it; whoever stops control waits no longer for it than `LONGEST`.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import ClassVar, Generic, TypeVar

from gtm.storage.errors import StorageUnavailable
from gtm.storage.session import Database, Transaction

logger = logging.getLogger(__name__)

LONGEST = 2.0
"""Seconds that the last writing may take."""
MAX_WAITING = 60
"""Minutes that wait for the database at most."""
_SWEEP = 3600.0
"""Seconds between looks for what is old."""

_M = TypeVar("_M")


class HistoryWriter(ABC):
    """Writes one history for one control process.

    Args:
        database: where.
        retention: how long it is kept.
    """

    what: ClassVar[str]
    """The name of the history in the log."""

    def __init__(self, database: Database, retention: timedelta) -> None:
        self._database = database
        self._retention = retention
        self._swept = 0.0

    async def run_every(
        self,
        seconds: float,
        clock: Callable[[], float],
        look: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        """Look and write until cancelled; what cannot be written waits for the next time. At the end, what was seen of what is not over.

        Args:
            seconds: between looks.
            clock: POSIX seconds.
            look: takes in what there is.
        """
        try:
            while True:
                if look is not None:
                    await look()
                try:
                    await self.write(clock())
                except StorageUnavailable as error:
                    logger.debug("%s waits for the database: %s", self.what, error)
                await asyncio.sleep(seconds)
        finally:
            self.end(clock())
            try:
                async with asyncio.timeout(LONGEST):
                    await self._write(clock())
            except (StorageUnavailable, TimeoutError) as error:
                why = str(error) or "the database is too slow"
                logger.warning("the end of %s is lost: %s", self.what, why)

    async def write(self, now: float) -> None:
        """Write what waits, and now and then forget what is old.

        Raises:
            StorageUnavailable: it waits for the next time.
        """
        await self._write(now)
        if now - self._swept >= _SWEEP:
            async with self._database.transaction() as transaction:
                await self._forget(transaction, datetime.fromtimestamp(now, UTC) - self._retention)
            self._swept = now

    @abstractmethod
    def end(self, now: float) -> None:
        """Take what is not over for what it is: nobody watches any more."""

    @abstractmethod
    async def _write(self, now: float) -> None: ...

    @abstractmethod
    async def _forget(self, transaction: Transaction, before: datetime) -> object: ...


class MinuteWriter(HistoryWriter, Generic[_M]):
    """Writes a history of minutes, each when it is over."""

    def __init__(self, database: Database, retention: timedelta) -> None:
        super().__init__(database, retention)
        self._waiting: list[_M] = []

    def _add(self, minutes: Iterable[_M]) -> None:
        self._waiting += minutes
        lost = len(self._waiting) - MAX_WAITING
        if lost > 0:
            logger.error("%s of %d minutes is lost: no database", self.what, lost)
            del self._waiting[:lost]

    async def _write(self, now: float) -> None:  # noqa: ARG002 - minutes are written as soon as they are over
        while self._waiting:
            minute = self._waiting[0]
            async with self._database.transaction() as transaction:
                await self._record(transaction, minute)
            self._waiting.remove(minute)

    @abstractmethod
    async def _record(self, transaction: Transaction, minute: _M) -> None: ...


class AuditRetention(HistoryWriter):
    """Forgets entries of the audit log that are too old; they are written where what they tell of is done."""

    what = "what is to be forgotten of the audit log"

    def end(self, now: float) -> None:
        """Nothing of it is under way."""

    async def _write(self, now: float) -> None:
        """Nothing waits."""

    async def _forget(self, transaction: Transaction, before: datetime) -> None:
        await transaction.audit.forget(before)
