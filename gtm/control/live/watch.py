"""Following the database: the policy in force, tokens and keys are taken in as soon as they change.

Laws:
  1. Losing the database costs changes, never what is known: what is in memory goes on being served, tokens included.
  2. A policy that does not compile here is not published; the one before it stays.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import replace

from gtm.control.dnssec.keys import KeyBook
from gtm.control.live.compiled import compiled_message
from gtm.control.live.present import Current
from gtm.core.model.policy import Policy
from gtm.core.model.problems import PolicyError
from gtm.documents.jurisdictions import shipped_jurisdictions
from gtm.feed.wire import SnapshotMessage
from gtm.storage.connecting import CONNECT_TIMEOUT
from gtm.storage.errors import UP, StorageUnavailable
from gtm.storage.revisions import REVISION_CHANNEL, Revision
from gtm.storage.session import Database
from gtm.storage.turns import own_work

logger = logging.getLogger(__name__)

POLL = 2.0
"""Seconds between looks at the database, should a notification have been missed."""
MOST_LOST = 1_000_000
"""Revisions that a backup may be behind; who says more is not believed."""
_FIRST_POLL = 0.2
"""The same before the first policy is known."""


class DatabaseWatch:
    """What one control process knows of its database.

    Args:
        database: where policy and tokens are.
        current: what is replaced as they change.
        keys: of signed zones, which change beside them.
    """

    def __init__(self, database: Database, current: Current, keys: KeyBook) -> None:
        self._database = database
        self._current = current
        self._keys = keys
        self._notified = asyncio.Event()
        self._refreshing = asyncio.Lock()
        self._pinging: asyncio.Task[StorageUnavailable | None] | None = None
        self._pinged = 0.0

    async def run(self) -> None:
        """Follow the database until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._poll())
            group.create_task(self._listen())

    async def refresh(self) -> None:
        """Take in what the database holds now.

        Raises:
            StorageUnavailable: the database cannot be reached; everything stays.
        """
        async with self._refreshing:
            with own_work():  # others wait for its end, whoever asked for it
                await self._refresh()

    async def heard_of(self, revision: int) -> None:
        """Take note of a revision that a follower holds: if it is later than the latest in the database, that has lost it.

        Nothing happens while the database cannot be reached.
        """
        if revision <= self._current.now.revision or self._current.now.lost(revision):
            return
        with contextlib.suppress(StorageUnavailable):
            await self._note(revision)

    async def _note(self, revision: int) -> None:
        async with self._database.transaction() as transaction:
            latest = await transaction.revisions.latest()
            after = latest.number if latest is not None else 0
            if not 0 < after < revision <= after + MOST_LOST:
                return
            await transaction.forks.note(after, revision)
        logger.error(
            "revision %d is held by those who follow, and the latest in the database is %d: was it restored from a backup? They keep "
            "what they have until somebody says `gtm revisions accept-older`",
            revision,
            after,
        )
        await self.refresh()

    async def _refresh(self) -> None:
        held = self._current.now.message
        try:
            async with self._database.transaction() as transaction:
                tokens = await transaction.tokens.live()
                sessions = await transaction.sessions.live()
                managed = await transaction.policy.managed()
                latest = await transaction.revisions.latest()
                if (
                    held is not None
                    and latest is not None
                    and latest.number < held.revision <= latest.number + MOST_LOST
                ):
                    await transaction.forks.note(latest.number, held.revision)
                forks = tuple(await transaction.forks.open())
                policy = None
                if latest is not None and not _same(held, latest):
                    policy = await transaction.revisions.policy(latest.number)
                await self._keys.refresh(transaction)
        except StorageUnavailable as error:
            self._found(error)
            raise
        if (
            self._current.now.database == StorageUnavailable.state
        ):  # what else may be wrong, reading does not tell
            self._found(None)
        if forks != self._current.now.forks:  # before the policy: who holds what is lost keeps it
            self._current.become(replace(self._current.now, forks=forks))
        if latest is not None and policy is not None and not _emptied(held, latest.number, policy):
            await self._publish(latest, policy)
        now = replace(self._current.now, managed=managed)
        self._current.become(now.with_tokens(tokens).with_sessions(sessions))

    async def _publish(self, latest: Revision, policy: Policy) -> None:
        """Make a revision the policy in force, if it compiles."""
        # A large policy takes seconds to compile: the feeds' heartbeats must not wait for it.
        message = await asyncio.to_thread(
            SnapshotMessage.of,
            latest.number,
            latest.created_at.timestamp(),
            policy,
            shipped_jurisdictions(),
        )
        try:
            snapshot = await asyncio.to_thread(compiled_message, message)
        except PolicyError as error:
            logger.error("revision %d does not compile here and is not published: %s", latest.number, error)
            return
        await self._prepare_keys(policy)
        self._current.become(replace(self._current.now, message=message, compiled=snapshot))

    async def _prepare_keys(self, policy: Policy) -> None:
        """Have the keys of just those zones that a policy has signed, before anybody is told of it."""
        signed = {zone.name for zone in policy.zones if zone.dnssec}
        if signed != {keys.zone for keys in self._keys.keys.zones}:
            with contextlib.suppress(StorageUnavailable):  # made as soon as the database answers
                await self._keys.settle()

    async def ping(self) -> StorageUnavailable | None:
        """Why the database would take no change right now; None: it would. It is asked once for all who want to know at a time.

        Who is asked and does not answer within `CONNECT_TIMEOUT` is away: a server that hangs lets nobody wait who looks at control.
        """
        now = asyncio.get_running_loop().time()
        if self._pinging is None or self._pinging.done():
            self._pinging, self._pinged = asyncio.create_task(self._ping()), now
        pinging = self._pinging  # whoever comes after its end, and before this goes on, makes another
        done, _ = await asyncio.wait((pinging,), timeout=max(0.0, self._pinged + CONNECT_TIMEOUT - now))
        if done:
            return pinging.result()
        found = StorageUnavailable(
            f"database: no answer within {CONNECT_TIMEOUT} s", "see whether the server or the way to it hangs"
        )
        self._found(found)
        return found

    async def _ping(self) -> StorageUnavailable | None:
        found = None
        try:
            await self._database.ping()
        except StorageUnavailable as error:
            found = error
        self._found(found)
        return found

    def _found(self, trouble: StorageUnavailable | None) -> None:
        before, state = self._current.now.database, UP if trouble is None else trouble.state
        if before != state:
            self._current.become(replace(self._current.now, database=state))
            if trouble is not None and before == UP:
                logger.warning("the database %s, going on from memory: %s", trouble.why, trouble)

    async def _poll(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                known = self._current.now.message is not None
                await asyncio.wait_for(self._notified.wait(), POLL if known else _FIRST_POLL)
            self._notified.clear()
            with contextlib.suppress(StorageUnavailable):  # which the log says once
                await self.refresh()
                await self.ping()

    async def _listen(self) -> None:
        while True:
            try:
                async for _ in self._database.listen(REVISION_CHANNEL):
                    self._notified.set()
            except StorageUnavailable:
                await asyncio.sleep(POLL)


def _same(held: SnapshotMessage | None, latest: Revision) -> bool:
    """Whether a revision is the one that is held. Numbers repeat once a database was restored from a backup."""
    return held is not None and (held.revision, held.created) == (
        latest.number,
        latest.created_at.timestamp(),
    )


def _emptied(held: SnapshotMessage | None, number: int, policy: Policy) -> bool:
    """Whether the database lost the policy that is in force here: that must not take the world down."""
    revision = held.revision if held is not None else 0
    lost = number < revision and not policy.services and not policy.regions
    if lost:
        logger.error(
            "the database has an empty policy of revision %d while revision %d is in force: not published",
            number,
            revision,
        )
    return lost
