from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable

import psycopg
import pytest
from sqlalchemy import text
from sqlalchemy.exc import ProgrammingError

from gtm.core.model.policy import Tenant
from gtm.storage.connecting import parameters as parse
from gtm.storage.embedded import EmbeddedPostgres
from gtm.storage.errors import StorageUnavailable
from gtm.storage.session import Database

pytestmark = pytest.mark.anyio


@pytest.fixture
async def connect() -> AsyncIterator[Callable[[str], Database]]:
    """Makes databases that are disposed of after the test."""
    made: list[Database] = []

    def make(url: str) -> Database:
        made.append(Database(url, pool_size=1, max_overflow=0))
        return made[-1]

    yield make
    for database in made:
        await database.dispose()


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+psycopg"])
def test_postgres_urls(scheme: str) -> None:
    """Every spelling of a Postgres URL means the same, its options included."""
    url = parse(f"{scheme}://u%40x:p%2Fw@db.example:5433/gtm?sslmode=require")
    assert url == {
        "user": "u@x",
        "password": "p/w",
        "host": "db.example",
        "port": "5433",
        "dbname": "gtm",
        "sslmode": "require",
    }


@pytest.mark.parametrize(
    "url",
    ["", "secret", "mysql://u:secret@h/d", "postgresql+asyncpg://u:secret@h/d", "postgresql://h:secret/d"],
)
def test_other_urls_are_refused_without_repeating_them(url: str) -> None:
    """What is not a Postgres URL is refused, and its password shows up nowhere."""
    with pytest.raises(ValueError, match="not a Postgres URL") as caught:
        parse(url)
    assert "secret" not in str(caught.value)


async def test_ping(connect: Callable[[str], Database], database_url: str) -> None:
    """A server that is there answers."""
    await connect(database_url).ping()


async def test_unreachable_server(connect: Callable[[str], Database]) -> None:
    """A port where nobody listens makes every way in unavailable, in words and without the password."""
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        database = connect(f"postgresql://gtm:secret@127.0.0.1:{nobody.getsockname()[1]}/gtm")
        for attempt in (database.ping(), _put(database), _first(database)):
            with pytest.raises(StorageUnavailable, match=r"^database: .*(refused|failed)") as caught:
                await attempt
            assert "secret" not in str(caught.value)


async def test_refused_log_in(connect: Callable[[str], Database], postgres: EmbeddedPostgres) -> None:
    """A wrong password and an unknown database make it unavailable."""
    for url in (postgres.url.replace("/gtm?", "/nowhere?"), postgres.url.replace("gtm:", "gtm:wrong")):
        with pytest.raises(StorageUnavailable):
            await connect(url).ping()


async def test_connections_that_died_are_replaced(
    connect: Callable[[str], Database], database_url: str
) -> None:
    """A connection that is cut in use fails its transaction; the next one gets a new connection."""
    database = connect(database_url)

    async def die() -> None:
        async with database.transaction() as tx:
            await tx.resources("tenants").put(Tenant("lost"))
            await tx.connection.execute(text("SELECT pg_terminate_backend(pg_backend_pid())"))

    with pytest.raises(StorageUnavailable, match="terminating connection"):
        await die()
    async with database.transaction() as tx:
        assert await tx.resources("tenants").all() == []
        (pid,) = (await tx.connection.execute(text("SELECT pg_backend_pid()"))).one()
    with psycopg.connect(database_url) as other:  # cut while it rests in the pool: nobody notices
        other.execute("SELECT pg_terminate_backend(%s)", [pid])
    await database.ping()


async def test_listener_learns_of_a_lost_connection(
    connect: Callable[[str], Database], database_url: str
) -> None:
    """A listener whose connection is cut is told, instead of waiting for ever."""
    database = connect(database_url)
    notifications = database.listen("gtm_test")
    assert await anext(notifications) == ""
    with psycopg.connect(database_url, autocommit=True) as other:
        other.execute("NOTIFY gtm_test, 'hello'")
        assert await anext(notifications) == "hello"
        other.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'"
            " AND datname = current_database()"
        )
    with pytest.raises(StorageUnavailable):
        await anext(notifications)


async def test_busy_policy_lock(
    connect: Callable[[str], Database], database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer that can't get the policy lock in time is told to come back, and nothing is written."""
    monkeypatch.setattr("gtm.storage.locks.TIMEOUT", "50ms")
    one, two = connect(database_url), connect(database_url)
    async with one.transaction() as tx:
        await tx.policy.lock()
        with pytest.raises(StorageUnavailable, match="lock timeout"):
            await _put(two)
    await _put(two)


async def test_full_pool(
    connect: Callable[[str], Database], database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When all connections are busy for too long, that is said."""
    monkeypatch.setattr("gtm.storage.session.POOL_TIMEOUT", 0.05)
    database = connect(database_url)
    async with database.transaction():
        with pytest.raises(StorageUnavailable, match="all connections to the database are busy"):
            await database.ping()


async def test_mistakes_are_not_outages(connect: Callable[[str], Database], empty_database_url: str) -> None:
    """A statement that is wrong stays an error of ours, and so does what the caller raises."""

    async def mistake() -> None:
        async with connect(empty_database_url).transaction() as tx:
            await tx.connection.execute(text("SELEC 1"))

    with pytest.raises(ProgrammingError):
        await mistake()

    async def fail() -> None:
        async with connect(empty_database_url).transaction():
            await asyncio.sleep(0)
            raise FileNotFoundError

    with pytest.raises(FileNotFoundError):
        await fail()


async def _put(database: Database) -> None:
    async with database.transaction() as tx:
        await tx.policy.lock()
        await tx.resources("tenants").put(Tenant("clinic"))


async def _first(database: Database) -> str:
    return await anext(database.listen("gtm_test"))
