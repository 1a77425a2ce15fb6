"""The way to the database: one engine, short transactions, notifications."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from math import inf
from typing import Any, Generic, TypeVar

import psycopg
from psycopg import sql
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine

from gtm.core.model.kinds import KINDS
from gtm.core.model.policy import Jurisdiction
from gtm.core.model.regions import Region
from gtm.storage import documents, tables
from gtm.storage.approvals import ApprovalRepository
from gtm.storage.connecting import (
    DRIVER,
    IS_READ_ONLY,
    connect_arguments,
    read_only,
    session_statement,
    settle,
)
from gtm.storage.deletions import DeferredRepository, GoneRepository
from gtm.storage.dnssec import DnssecRepository
from gtm.storage.edges import EdgeRepository
from gtm.storage.errors import (
    LOCKED,
    RIGHTS,
    TABLES,
    DatabaseUnfit,
    StorageBusy,
    StorageReadOnly,
    unavailable,
)
from gtm.storage.history.audit import AuditRepository
from gtm.storage.history.demand import DemandRepository, PeakRepository
from gtm.storage.history.health import HealthRepository
from gtm.storage.history.plans import PlanRepository
from gtm.storage.history.requests import RequestRepository
from gtm.storage.latency import LatencyRepository
from gtm.storage.locks import Seat
from gtm.storage.resources import PolicyRepository, ResourceRepository
from gtm.storage.revisions import ForkRepository, RevisionRepository
from gtm.storage.secrets import SecretRepository
from gtm.storage.sessions import AccountRepository, SessionRepository
from gtm.storage.tables import metadata
from gtm.storage.tokens import TokenRepository
from gtm.storage.turns import CALLER, TurnLimits, Turns, own_work

_R = TypeVar("_R")
POOL_TIMEOUT = 5.0
LOOK_EVERY = 5.0
"""Seconds between looks whether a connection that only listens leads to a server that takes writes, and whether tables stay locked."""
RENEW_EVERY = 5.0
"""Seconds for which connections to a server that takes no writes are kept, should it still be the only one there is."""
_OWN = 3
"""Connections of the pool that are for gtm's own work and for who changes the policy, whatever callers ask."""
_SERVER_LIVENESS = {
    "tcp_keepalives_idle": "2",
    "tcp_keepalives_interval": "1",
    "tcp_keepalives_count": "4",
    "tcp_user_timeout": "6000",
}


_HOLDERS = """SELECT l.pid, c.relname FROM pg_catalog.pg_locks l JOIN pg_catalog.pg_class c ON c.oid = l.relation
WHERE l.granted AND l.locktype = 'relation' AND l.pid <> pg_backend_pid()
AND l.database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database())
AND l.mode IN ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
AND c.relname = ANY (:tables) AND c.relnamespace = to_regnamespace(quote_ident(current_schema()))"""
"""Who holds a lock on a table of gtm's in whose presence nobody can write it."""
_MISSING = """SELECT wanted.name, wanted.need, c.oid IS NULL
FROM unnest(CAST(:names AS text[]), CAST(:needs AS text[])) AS wanted (name, need)
LEFT JOIN pg_catalog.pg_class c ON c.relname = wanted.name AND c.relnamespace = to_regnamespace(quote_ident(current_schema()))
WHERE c.oid IS NULL OR NOT CASE WHEN c.relkind = 'S' THEN has_sequence_privilege(c.oid, wanted.need)
ELSE has_table_privilege(c.oid, wanted.need) END ORDER BY 1, 2 LIMIT 1"""
"""A table or sequence that is gone, or that this role has no right to which changes need."""
_NEEDS = (
    *((table, need) for table in sorted(metadata.tables) for need in ("SELECT", "INSERT")),
    *((kind, need) for kind in sorted(KINDS) for need in ("UPDATE", "DELETE")),
    (tables.resource_versions.name, "USAGE"),
)
"""What a change needs. The audit log and the revisions may be kept from being changed later."""


class _Working(Generic[_R]):
    """A repository that works inside the transaction that has it."""

    def __init__(self, kind: Callable[[AsyncConnection], _R]) -> None:
        self._kind = kind

    def __get__(self, transaction: Transaction, _owner: object) -> _R:
        return self._kind(transaction.connection)


@dataclass(frozen=True, slots=True)
class Transaction:
    """One transaction, with every repository working inside it."""

    connection: AsyncConnection

    policy = _Working(PolicyRepository)
    """The policy as a whole, and its lock."""
    regions = _Working(lambda connection: ResourceRepository(connection, Region))
    """Regions."""
    jurisdictions = _Working(lambda connection: ResourceRepository(connection, Jurisdiction))
    """The operator's own jurisdictions."""
    revisions = _Working(RevisionRepository)
    """Revisions of the policy."""
    tokens = _Working(TokenRepository)
    """Bearer tokens."""
    accounts = _Working(AccountRepository)
    """Accounts at identity providers."""
    approvals = _Working(ApprovalRepository)
    """Approvals of changes that open a fence."""
    forks = _Working(ForkRepository)
    """Revisions that the database has lost."""
    gone = _Working(GoneRepository)
    """What the policy had and has no more."""
    deferred = _Working(DeferredRepository)
    """Deletions that wait."""
    sessions = _Working(SessionRepository)
    """People who are signed in."""
    audit = _Working(AuditRepository)
    """The audit log."""
    edges = _Working(EdgeRepository)
    """Edges as last heard of."""
    plans = _Working(PlanRepository)
    requests = _Working(RequestRepository)
    """The plan's history."""
    peaks = _Working(PeakRepository)
    """This keeps how much edges asked for."""
    demand = _Working(DemandRepository)
    """Recorded demand."""
    latency = _Working(LatencyRepository)
    """Measured round trips."""
    health = _Working(HealthRepository)
    """The history of health."""
    secrets = _Working(SecretRepository)
    """Control's own keys."""
    dnssec = _Working(DnssecRepository)
    """DNSSEC keys."""

    def resources(self, kind: str) -> ResourceRepository[Any]:
        """The repository of a kind named as in `gtm.core.model.kinds.KINDS`.

        Raises:
            KeyError: there is no such kind.
        """
        return ResourceRepository(self.connection, KINDS[kind])


class Database:
    """A pool of connections to one Postgres server. Nothing connects before the first use."""

    def __init__(self, url: str, *, pool_size: int = 5, max_overflow: int = 5) -> None:
        """Take a Postgres URL; see `gtm.storage.connecting.parameters` for its errors."""
        self._arguments = connect_arguments(url)
        self._engine = create_async_engine(
            DRIVER,
            pool_size=pool_size,
            max_overflow=max_overflow,
            pool_timeout=POOL_TIMEOUT,
            pool_pre_ping=True,
            connect_args=self._arguments,
            json_serializer=documents.dumps,
            json_deserializer=documents.loads,
        )
        settle(self._engine.sync_engine)
        self._renewed = -inf
        self._refused = False
        self._looked = -inf
        self._held: set[tuple[int, str]] = set()
        self._lasting: set[tuple[int, str]] = set()
        self._unfit: DatabaseUnfit | None = None
        places = max(1, pool_size + max_overflow - _OWN)
        self.callers = Turns(
            TurnLimits(places, max(1, places // 2)), "requests that need the database wait for their turn"
        )
        """Callers wait here for a connection."""
        self.changes = Turns(
            TurnLimits(1, 1), "changes are made one after the other, and wait for their turn"
        )
        """Those who change the policy wait here for its lock."""

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Transaction]:
        """One transaction: committed at the end of the block, rolled back when the block raises.

        A caller's (`CALLER`) waits for its turn, and what it does within it needs no other.

        Raises:
            StorageUnavailable: the server can't be reached or can't take the work now.
            Busy: no turn came.
        """
        async with AsyncExitStack() as stack:
            caller = CALLER.get()
            if caller:
                await stack.enter_async_context(self.callers.turn(caller))
                stack.enter_context(own_work())
            await stack.enter_async_context(self._renewing())
            stack.enter_context(unavailable())
            yield Transaction(await stack.enter_async_context(self._engine.begin()))

    @asynccontextmanager
    async def change(self) -> AsyncIterator[Transaction]:
        """One transaction that holds the lock of the policy. Who waits for it takes no connection from others meanwhile.

        Raises:
            StorageUnavailable: as `transaction`; or another process held the lock for too long.
            Busy: no turn came.
        """
        async with self.changes.turn(CALLER.get()):
            with own_work():
                async with self.transaction() as transaction:
                    await transaction.policy.lock()
                    yield transaction

    async def ping(self) -> None:
        """Ask the server whether it would take a change now, without making one.

        Raises:
            StorageReadOnly: it answers, and takes none.
            StorageBusy: likewise, since somebody has locked a table for some seconds.
        DatabaseUnfit: likewise, since a table is gone or a right is missing.
            StorageUnavailable: there is no answer.
        """
        async with self._renewing():
            with unavailable():
                async with self._engine.connect() as connection:
                    if (await connection.execute(text(IS_READ_ONLY))).scalar():
                        raise read_only()
                    now = time.monotonic()
                    if now - self._looked >= LOOK_EVERY:
                        self._looked = now
                        rows = await connection.execute(text(_HOLDERS), {"tables": list(metadata.tables)})
                        held = {(int(pid), str(table)) for pid, table in rows}
                        self._held, self._lasting = held, held & self._held
                        self._unfit = await _unfit(connection)
        if self._refused:  # other connections of that time are there still
            self._refused = False
            await self._engine.dispose()
        if self._lasting:
            pid, table = min(self._lasting)
            raise StorageBusy(f"database: server process {pid} keeps `{table}` locked", LOCKED)
        if self._unfit:
            raise self._unfit

    @asynccontextmanager
    async def _renewing(self) -> AsyncIterator[None]:
        """Drop the pool's connections when a server takes no writes, so that the next lead to its successor.

        They are dropped once in `RENEW_EVERY`, so that who only reads goes on with what is there, and all of them once a
        `ping` finds a server that takes writes.
        """
        try:
            yield
        except StorageReadOnly:
            self._refused = True
            now = time.monotonic()
            if now - self._renewed >= RENEW_EVERY:
                self._renewed = now
                await self._engine.dispose()
            raise

    async def listen(self, channel: str) -> AsyncIterator[str]:
        """The payloads of a channel's notifications, over a connection of its own; it never ends by itself.

        The first item is an empty string as soon as notifications can no longer be missed: look then at what
        they are about. After `StorageUnavailable` listen anew, likewise.

        Raises:
            StorageUnavailable: the server can't be reached, or the connection was lost.
        """
        with unavailable():
            async with await self._connection_apart() as connection:
                await connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))
                yield ""
                while True:
                    async for notification in connection.notifies(timeout=LOOK_EVERY):
                        yield notification.payload
                    found = await (await connection.execute(IS_READ_ONLY)).fetchone()
                    if found is None or found[0]:
                        raise read_only()

    @asynccontextmanager
    async def seat(self, name: str) -> AsyncIterator[Seat]:
        """A connection with which to be the active control; `name` is what others are told of who that is.

        Raises:
            StorageUnavailable: the server can't be reached, or the connection was lost, and with it the seat.
        """
        with unavailable():
            async with await self._connection_apart() as connection:
                await connection.execute("SELECT set_config('application_name', %s, false)", (name[:63],))
                # Through which the server, too, soon notices that this process is gone without a word.
                for setting, value in _SERVER_LIVENESS.items():
                    await connection.execute("SELECT set_config(%s, %s, false)", (setting, value))
                yield Seat(connection)

    async def _connection_apart(self) -> psycopg.AsyncConnection[tuple[Any, ...]]:
        """A connection beside the pool, in autocommit mode, that its user keeps."""
        connection = await psycopg.AsyncConnection.connect(autocommit=True, **self._arguments)
        try:
            await connection.execute(session_statement())
        except BaseException:
            await connection.close()
            raise
        return connection

    async def dispose(self) -> None:
        """Close the pool's connections, at the end of the process."""
        await self._engine.dispose()


async def _unfit(connection: AsyncConnection) -> DatabaseUnfit | None:
    """What tables or rights a change would miss; None: it would miss none."""
    asked = {"names": [name for name, _ in _NEEDS], "needs": [need for _, need in _NEEDS]}
    missing = (await connection.execute(text(_MISSING), asked)).first()
    if missing is None:
        return None
    name, need, gone = missing
    if gone:
        return DatabaseUnfit(f"database: `{name}` is gone", TABLES)
    return DatabaseUnfit(f"database: the role has no right to {need} of `{name}`", RIGHTS)
