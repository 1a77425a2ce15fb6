"""One control process: what each does that follows the database, and from when it is the active one, what that does."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial

from gtm.control.dnssec.keys import KeyBook
from gtm.control.errors import Unavailable
from gtm.control.handoff_keys import HandoffKeys
from gtm.control.lead.active import Active
from gtm.control.lead.balancers import ToldKeys
from gtm.control.lead.election import Election, Standing
from gtm.control.lead.vantages import LiveEdge
from gtm.control.live.present import Current, Present
from gtm.control.live.subscribers import Subscribers
from gtm.control.live.watch import DatabaseWatch
from gtm.core.model.state import State
from gtm.core.signing.keys import Keys
from gtm.settings import ControlSettings
from gtm.storage.session import Database


class Replica:
    """One of the control processes on a database.

    Args:
        database: where policy and tokens are.
        settings: what the process was told.
        election: this process's part among several.
        clock: POSIX seconds.
        monotonic: seconds that never step back.
    """

    def __init__(
        self,
        database: Database,
        settings: ControlSettings,
        election: Election,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.election = election
        self.current = Current(Present(State(epoch=int(clock() * 1000))))
        self.subscribers = Subscribers(self.current, clock, monotonic)
        self.dnssec = KeyBook(database, clock, settings.dnssec, self._publish_keys)
        self.watch = DatabaseWatch(database, self.current, self.dnssec)
        self.active: Active | None = None
        """What only the active control has; None: this process stands by."""
        self._parts = partial(Active, database, settings, self.current, election, clock, monotonic=monotonic)
        self.handoff_keys = HandoffKeys(database, self.current, self.edges, clock, self.balancers)
        """Those of the active control; no other publishes any."""

    @property
    def now(self) -> Present:
        """What this process holds to be true."""
        return self.current.now

    def lead(self) -> Active:
        """Be the active one from now on."""
        self.active = self._parts(senders=lambda: self.subscribers.senders)
        return self.active

    def leading(self) -> Active:
        """What only the active control has; requests that need it stop here at the others.

        Raises:
            Unavailable: this process stands by.
        """
        if self.active is not None and self.election.standing is not Standing.STANDBY:
            return self.active
        other = self.election.active
        where = f"the one at `{other}` is active" if other else "none is active yet"
        raise Unavailable(
            f"this control stands by, {where}: ask that one, or try again", headers={"Retry-After": "1"}
        )

    def edges(self) -> list[LiveEdge]:
        """The edges that this process heard of within a day: none if it stands by."""
        return [] if self.active is None else self.active.reports.vantages.all()

    def balancers(self) -> Iterable[ToldKeys]:
        """The keys of the balancers that this process heard of lately: none if it stands by."""
        return () if self.active is None else self.active.balancers.told()

    async def run(self) -> None:
        """Follow the database, and lead when it is this process's turn, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.watch.run())
            group.create_task(self.dnssec.run())
            group.create_task(self.election.run())
            await self.election.taken.wait()
            group.create_task(self.lead().run())
            group.create_task(self.handoff_keys.run())

    def _publish_keys(self, keys: Keys) -> None:
        self.current.become(replace(self.now, keys=keys))
