"""Sign-ins at the dashboard that failed: counted, and bounded in the audit log.

Law: whatever strangers try writes one entry at first and then one a minute and control process at most, and of bounded length.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter

from gtm.storage.errors import StorageUnavailable
from gtm.storage.history.audit import Actor, Via
from gtm.storage.session import Database

logger = logging.getLogger(__name__)

EVERY = 60.0
"""Seconds between entries."""
MOST = 10
"""Addresses, and reasons, that an entry names."""
_MOST_KEPT = 1000
_OTHERS = "others"
NOBODY = Actor("", None, Via.DASHBOARD)
"""Who it was is not known."""


class FailedSignIns:
    """Counts those of one control process.

    Args:
        database: where the audit log is.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._addresses: Counter[str] = Counter()
        self._reasons: Counter[str] = Counter()
        self._noted = asyncio.Event()

    def note(self, address: str, reason: str) -> None:
        """One more, from an address."""
        for counter, one in ((self._addresses, address or "an unknown address"), (self._reasons, reason)):
            counter[one if one in counter or len(counter) < _MOST_KEPT else _OTHERS] += 1
        self._noted.set()

    async def run(self) -> None:
        """Write them down until cancelled, and then what is left."""
        try:
            while True:
                await self._noted.wait()
                await self._try_to_write()
                await asyncio.sleep(EVERY)
        finally:
            await self._try_to_write()

    async def _try_to_write(self) -> None:
        try:
            await self.write()
        except StorageUnavailable as error:
            logger.debug("failed sign-ins wait for the database: %s", error)

    async def write(self) -> None:
        """Write those that were counted as one entry.

        Raises:
            StorageUnavailable: they wait for the next time.
        """
        addresses, reasons = self._addresses.copy(), self._reasons.copy()
        if not addresses:
            return
        async with self._database.transaction() as transaction:
            await transaction.audit.add(
                NOBODY,
                "sign-in.failed",
                f"from {_words(addresses)}",
                detail=_words(reasons),
                count=addresses.total(),
            )
        self._addresses -= addresses
        self._reasons -= reasons
        if not self._addresses:
            self._noted.clear()


def _words(counted: Counter[str]) -> str:
    """The most frequent with their numbers.

    >>> _words(Counter({"192.0.2.1": 3, "192.0.2.2": 1}))
    '192.0.2.1 (3 times), 192.0.2.2'
    """
    named = [f"{one} ({number} times)" if number > 1 else one for one, number in counted.most_common(MOST)]
    more = len(counted) - len(named)
    return ", ".join(named) + (f" and {more} more" if more > 0 else "")
