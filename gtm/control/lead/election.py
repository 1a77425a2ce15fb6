"""Which control process plans, leases and speaks for the edges, where several work on one database.

Laws:
  1. One at a time is active: the one that holds a lock in Postgres, over a connection of its own. The others stand by, and
     the first to get the lock when that connection ends is active within a second.
  2. A control that loses the lock while another stands by stops planning and leasing at once: before the server lets go of a
     connection that is cut, it has noticed. Who takes over leases nothing new for `FENCE` seconds on top of what quotas ask.
  3. Losing the database alone takes nothing away: a control that nobody stood by for goes on from memory.
  4. One that finds another active in its place ends: its process starts anew, as a standby.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf

from gtm.storage.errors import StorageUnavailable
from gtm.storage.locks import Seat
from gtm.storage.session import Database

logger = logging.getLogger(__name__)

EVERY = 0.5
"""Seconds between looks at the lock."""
PATIENCE = 2.0
"""Longest time, in seconds, that a look may take before the connection counts as lost."""
FENCE = 3.0
"""Seconds within which a control that lost the lock has noticed: a look's interval and its patience."""
_PREFIX = "gtm control "


class Standing(StrEnum):
    """The part that a control process plays: active, standing by or adrift."""

    ACTIVE = "active"
    STANDBY = "standby"
    """Another is active, or nobody yet."""
    ADRIFT = "adrift"
    """Was active, and lost the database while another stood by, which may be active now: feeds go on, nothing else."""


@dataclass(slots=True, eq=False)
class Election:
    """One process's part in it.

    Args:
        database: which all share.
        name: what others are told of this process: a host and a port.
        deposed: called when another is active in its place.
        monotonic: seconds that never step back.
    """

    database: Database
    name: str
    deposed: Callable[[], None]
    monotonic: Callable[[], float] = time.monotonic
    standing: Standing = field(init=False, default=Standing.STANDBY)
    active: str = field(init=False, default="")
    """Who is active, as far as is known: empty if nobody, or this process."""
    standbys: int = field(init=False, default=0)
    terms: int = field(init=False, default=0)
    """How many times this process got the lock."""
    taken: asyncio.Event = field(init=False, default_factory=asyncio.Event)
    """Set once this process is active for the first time."""
    _looked: asyncio.Event = field(init=False, default_factory=asyncio.Event)
    held_at: float = field(init=False, default=-inf)
    """When the last look began that found the lock held here."""

    def sure(self, now: float) -> float:
        """Until when nobody else can have been active, in monotonic seconds: `now` where nobody stands by."""
        return min(now, self.held_at) if self.standbys else now

    async def first(self) -> None:
        """Wait for the first look, or for the database to be found away, and a moment for a predecessor to be gone."""
        await self._looked.wait()
        with suppress(TimeoutError):
            await asyncio.wait_for(self.taken.wait(), 2 * EVERY)

    async def run(self) -> None:
        """Stand by for the lock, and hold it, until cancelled."""
        while True:
            try:
                async with self.database.seat(f"{_PREFIX}{self.name}") as seat:
                    while True:
                        await self._look_in_time(seat)
                        self._looked.set()
                        await asyncio.sleep(EVERY)
            except (StorageUnavailable, TimeoutError) as error:
                self._cut_off(error)
            self._looked.set()
            await asyncio.sleep(EVERY)

    async def _look_in_time(self, seat: Seat) -> None:
        """Look at the lock.

        Raises:
            TimeoutError: there was no answer in time. By then this process counts as cut off already: to give up a query
                whose connection is silent takes the driver some 10 s more, in which another may be active.
        """
        error = TimeoutError(f"no answer within {PATIENCE:g} s")
        late = asyncio.get_running_loop().call_later(PATIENCE, self._cut_off, error)
        try:
            async with asyncio.timeout(PATIENCE):
                await self._look(seat)
        finally:
            late.cancel()

    async def _look(self, seat: Seat) -> None:
        began, new = self.monotonic(), not seat.held
        if new and not await seat.take():
            self.active = (await seat.holder()).removeprefix(_PREFIX)
            if self.standing is not Standing.STANDBY:
                self.standing = Standing.STANDBY
                logger.error("control at %s is active in place of this one, which ends", self.active)
                self.deposed()
            return
        self.terms += new
        self.standbys = await seat.waiting()
        self.held_at = began
        if self.standing is not Standing.ACTIVE:
            logger.info("this control is active")
            self.standing, self.active = Standing.ACTIVE, ""
            self.taken.set()

    def _cut_off(self, error: Exception) -> None:
        """The lock may be another's from now on, if anybody stood by for it."""
        if self.standing is Standing.ACTIVE and self.standbys:
            self.standing = Standing.ADRIFT
            logger.error(
                "lost the lock that makes this control the active one while %d stand by: no plans and leases until it is "
                "back; feeds go on (%s)",
                self.standbys,
                str(error) or "no answer in time",
            )
