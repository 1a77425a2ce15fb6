"""What a session states, whatever the server, the role and the URL say; what a server must be; what each error of it means."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from psycopg import conninfo, sql
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from gtm.core.model.policy import Tenant
from gtm.storage import connecting, migrate
from gtm.storage.embedded import EmbeddedPostgres
from gtm.storage.errors import (
    DatabaseUnfit,
    StorageBusy,
    StorageReadOnly,
    StorageUnavailable,
    unavailable,
)
from gtm.storage.locks import Lock, Seat, take
from gtm.storage.session import Database
from tests import tools
from tests.ports import free_port

pytestmark = pytest.mark.anyio

HOSTILE = {
    "DateStyle": ("German, DMY", "ISO, MDY"),
    "IntervalStyle": ("sql_standard", "postgres"),
    "TimeZone": ("Asia/Kathmandu", "UTC"),
    "extra_float_digits": ("-10", "1"),
    "default_transaction_isolation": ("serializable", "read committed"),
    "default_transaction_deferrable": ("on", "off"),
    "lock_timeout": ("1h", "5s"),
    "statement_timeout": ("24d", "1min"),
    "idle_in_transaction_session_timeout": ("1h", "0"),
    "idle_session_timeout": ("1h", "0"),
    "transaction_timeout": ("1h", "0"),
    "client_encoding": ("LATIN1", "UTF8"),
}
"""What a database, a role or a server may set, and what holds all the same (docs/operations.md, "The database")."""


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


def _run(url: str, *statements: str) -> None:
    with psycopg.connect(url, autocommit=True) as session:
        session.execute("SET default_transaction_read_only = off")
        for statement in statements:
            session.execute(sql.SQL(statement).format(sql.Identifier(session.info.dbname)))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("url", "host", "more"),
    [
        ("postgresql://one:1,two:2/gtm?target_session_attrs=read-write", "one,two", {"port": "1,2"}),
        ("postgresql:///gtm?host=/var/run/postgresql", "/var/run/postgresql", {}),
        ("postgres://%2Fvar%2Frun%2Fpostgresql/gtm", "/var/run/postgresql", {}),
        ("postgresql+psycopg://[2001:db8::1]:5433/gtm", "2001:db8::1", {"port": "5433"}),
        ("postgresql://?service=gtm", None, {"service": "gtm"}),
    ],
)
def test_urls_are_libpqs(url: str, host: str | None, more: dict[str, str]) -> None:
    """Several hosts, sockets and services are read as `psql` reads them."""
    found = connecting.parameters(url)
    assert found.get("host") == host
    assert more.items() <= found.items()


@pytest.mark.parametrize("name", ["schema", "pgbouncer", "connection_limit", "sslmod"])
def test_unknown_parameters_are_named(name: str) -> None:
    """A parameter that libpq does not have is refused by its name, and nothing else of the URL is repeated."""
    with pytest.raises(ValueError, match=f"`{name}`") as caught:
        connecting.parameters(f"postgresql://u:secret@h/d?{name}=hidden")
    assert "secret" not in str(caught.value)
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize("password", ["sec@ret", "sec/ret", "1/secret", "@secret", "/secret"])
def test_passwords_are_not_taken_for_hosts(password: str) -> None:
    """What is not written with percent signs is refused before it stands in a message about a host or a database."""
    with pytest.raises(ValueError, match="%40") as caught:
        connecting.parameters(f"postgresql://gtm:{password}@db.example.com/gtm")
    assert "ret" not in str(caught.value).replace("write", "")


@pytest.mark.parametrize(
    ("name", "value"),
    [("connect_timeout", "abc"), ("connect_timeout", "inf"), ("connect_timeout", ""), ("connect_timeout", "1e9999"),
     ("keepalives", "on"), ("keepalives_idle", "10s"), ("tcp_user_timeout", "x")],
)  # fmt: skip
def test_numbers_that_are_none(name: str, value: str) -> None:
    """Of some the driver made a traceback, of others a server that is to be waited for (psycopg/psycopg#1346)."""
    with pytest.raises(ValueError, match=f"`{name}` is no whole number"):
        connecting.connect_arguments(f"postgresql://u:secret@h/d?{name}={value}")
    assert connecting.connect_arguments(f"postgresql://h/d?{name}=7")[name] == "7"


async def test_a_session_states_what_it_needs(connect: Callable[[str], Database], database_url: str) -> None:
    """Whatever the database says, and so whatever a role or a server says, each way to connect has the same session."""
    with psycopg.connect(database_url) as session:
        there = {row[0] for row in session.execute("SELECT lower(name) FROM pg_settings")}
    known = {name: values for name, values in HOSTILE.items() if name.lower() in there}
    _run(database_url, *(f"ALTER DATABASE {{}} SET {name} = '{value}'" for name, (value, _) in known.items()))
    asked = "SELECT " + ", ".join(f"current_setting('{name}')" for name in known)
    wanted = tuple(stated for _, stated in known.values())
    database = connect(database_url)
    async with database.transaction() as tx:
        assert tuple((await tx.connection.execute(text(asked))).one()) == wanted
    async with database.seat("gtm control test") as seat:  # as notifications are heard by
        assert tuple((await (await seat._connection.execute(asked)).fetchone()) or ()) == wanted  # type: ignore[arg-type]  # noqa: SLF001
    engine = migrate.engine(database_url)
    with engine.connect() as session:
        found = dict(zip(known, session.execute(text(asked)).one(), strict=True))
    assert found == {name: stated for name, (_, stated) in known.items()} | {
        "lock_timeout": "1min",
        "statement_timeout": "0",
    }


async def test_tables_are_where_they_were(connect: Callable[[str], Database], database_url: str) -> None:
    """A schema that comes in front of gtm's, with tables of the same names, hides nothing."""
    database = connect(database_url)
    async with database.transaction() as tx:
        await tx.resources("tenants").put(Tenant("clinic"))
    _run(
        database_url,
        'CREATE SCHEMA "Ahead"',
        'CREATE TABLE "Ahead".resources (x int)',
        'CREATE TABLE "Ahead".policy (x int)',
        'ALTER DATABASE {} SET search_path = "Ahead", public',
    )
    other = connect(database_url)
    async with other.transaction() as tx:
        assert await tx.resources("tenants").get("clinic") is not None
    assert migrate.current(database_url) == migrate.head()


async def test_a_schema_of_its_own(empty_database_url: str) -> None:
    """A role's search path says where tables are made; a name that must be quoted is one."""
    _run(empty_database_url, 'CREATE SCHEMA "Of Gtm"', 'ALTER DATABASE {} SET search_path = "Of Gtm"')
    migrate.upgrade(empty_database_url)
    migrate.check(empty_database_url)
    with psycopg.connect(empty_database_url) as session:
        assert session.execute(
            "SELECT to_regclass('\"Of Gtm\".tokens'), to_regclass('public.tokens')"
        ).fetchone() == (
            "tokens",
            None,
        )


async def test_a_read_only_database(connect: Callable[[str], Database], database_url: str) -> None:
    """It is read from, not ready, and written to again on new connections once it takes writes: nobody has to start anew.

    Sources: windmill-labs/windmill pull request 9722 (health stays well on a standby while each write fails);
    fleetdm/fleet pull request 39841 (connections lead to the old primary until somebody restarts it).
    """
    _run(database_url, "ALTER DATABASE {} SET default_transaction_read_only = on")
    database, other = connect(database_url), connect(database_url)
    for one in (database, other):
        async with one.transaction() as tx:
            assert await tx.resources("tenants").all() == []
    with pytest.raises(StorageReadOnly):
        async with database.seat("gtm control test") as seat:
            await seat.take()
    _run(database_url, "ALTER DATABASE {} RESET default_transaction_read_only")
    with pytest.raises(StorageReadOnly, match=r"read-only transaction; .*target_session_attrs"):
        await _put(database)  # by the connection of before, which is dropped for it
    await _put(database)
    with pytest.raises(StorageReadOnly, match=r"takes no writes; .*target_session_attrs"):
        await other.ping()  # likewise
    await other.ping()


async def test_no_connection_of_a_read_only_time_stays(database_url: str) -> None:
    """Once somebody asks and finds that the server takes writes, each connection of the pool is one that does."""
    _run(database_url, "ALTER DATABASE {} SET default_transaction_read_only = on")
    database = Database(database_url, pool_size=3)
    try:
        with pytest.raises(StorageReadOnly):
            await _put(database)
        async with (
            database.transaction() as one,
            database.transaction() as two,
            database.transaction() as three,
        ):
            for tx in (one, two, three):
                assert await tx.resources("tenants").all() == []
            _run(database_url, "ALTER DATABASE {} RESET default_transaction_read_only")
            await database.ping()  # by a fourth
        for name in ("one", "two", "three"):
            await _put(database, name)
    finally:
        await database.dispose()


async def test_connections_to_a_read_only_database_are_kept_for_a_while(
    connect: Callable[[str], Database], database_url: str
) -> None:
    """Should it be the only one there is, who reads does not connect anew for each write that fails."""
    _run(database_url, "ALTER DATABASE {} SET default_transaction_read_only = on")
    database = connect(database_url)
    seen = set()
    for _ in range(4):
        with pytest.raises(StorageReadOnly):
            await _put(database)
        async with database.transaction() as tx:
            seen.add(await tx.connection.scalar(text("SELECT pg_backend_pid()")))
    assert len(seen) == 1


async def test_a_seat_ends_with_writes(database_url: str) -> None:
    """Who holds the seat at a server that takes no writes any more has it no more: another may hold it at the new primary."""
    async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as connection:
        seat = Seat(connection)
        assert await seat.take()
        assert await seat.waiting() == 0
        await connection.execute("SET default_transaction_read_only = on")  # as a server that is demoted does
        with pytest.raises(StorageReadOnly):
            await seat.waiting()


async def test_a_locked_table(
    connect: Callable[[str], Database], database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who keeps a table locked from one look to the next is named; one look alone says nothing, nor does who only reads."""
    monkeypatch.setattr("gtm.storage.session.LOOK_EVERY", 0.0)
    database = connect(database_url)
    with psycopg.connect(database_url) as other:
        other.execute("LOCK TABLE audit IN SHARE UPDATE EXCLUSIVE MODE")  # VACUUM
        await database.ping()
        await database.ping()
        other.execute("LOCK TABLE audit IN SHARE MODE")  # CREATE INDEX
        await database.ping()
        with pytest.raises(StorageBusy, match=f"process {other.info.backend_pid} keeps `audit` locked"):
            await database.ping()
        other.rollback()
        await database.ping()


def _as(url: str, role: str) -> str:
    """The URL of a database for another role, whose password is its name."""
    given = {**conninfo.conninfo_to_dict(url), "user": role, "password": role}
    return "postgresql://?" + "&".join(f"{name}={value}" for name, value in given.items())


async def test_missing_rights(
    connect: Callable[[str], Database], database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server is not ready whose changes would fail for a right or a table (PostHog/posthog#81389, hrk/tt-rss-mysql2pgsql#4).

    What changes do without, a log that nobody may rewrite, is not asked for.
    """
    monkeypatch.setattr("gtm.storage.session.LOOK_EVERY", 0.0)
    all_rights = "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO clerk"
    with psycopg.connect(database_url, autocommit=True) as session:
        session.execute("CREATE ROLE clerk LOGIN PASSWORD 'clerk'")
        try:
            database = connect(_as(database_url, "clerk"))
            session.execute(all_rights)
            with pytest.raises(DatabaseUnfit, match="no right to USAGE of `resource_versions`"):
                await database.ping()
            session.execute("GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO clerk")
            session.execute("REVOKE UPDATE, DELETE ON audit, revisions FROM clerk")
            await database.ping()
            for missing, table in (
                ("INSERT", "audit"),
                ("SELECT", "revisions"),
                ("UPDATE", "regions"),
                ("DELETE", "zones"),
            ):
                session.execute(f"REVOKE {missing} ON {table} FROM clerk")  # type: ignore[arg-type]
                with pytest.raises(DatabaseUnfit, match=f"no right to {missing} of `{table}`; .*grant"):
                    await database.ping()
                session.execute(all_rights)
            session.execute("ALTER TABLE gone RENAME TO away")
            with pytest.raises(DatabaseUnfit, match=r"`gone` is gone; .*gtm db check"):
                await database.ping()
            session.execute("ALTER TABLE away RENAME TO gone")
            await database.ping()
            await database.dispose()
        finally:
            session.execute("DROP OWNED BY clerk")
            session.execute("DROP ROLE clerk")


async def test_who_waits_for_a_lock_gives_up(connect: Callable[[str], Database], database_url: str) -> None:
    """A read behind somebody's LOCK TABLE ends; and after the wait for gtm's own lock the session's bound holds again."""
    _run(database_url, "ALTER DATABASE {} SET lock_timeout = '1h'")
    database = connect(database_url)
    async with database.transaction() as tx:
        await take(tx.connection, Lock.POLICY)
        assert await tx.connection.scalar(text("SHOW lock_timeout")) == "5s"
    with psycopg.connect(database_url) as other:
        other.execute("LOCK TABLE tokens")
        with pytest.raises(StorageBusy, match=r"lock timeout; .*pg_blocking_pids"):
            await _tokens(database)


MEANT: dict[str, type[StorageUnavailable] | None] = {
    "25006": StorageReadOnly,  # a write at a standby
    "55P03": StorageBusy,  # the lock timeout is over
    "57014": StorageBusy,  # the statement timeout is over
    "40001": StorageBusy,
    "40P01": StorageBusy,  # a deadlock
    "53300": StorageBusy,  # too many connections
    "53100": StorageUnavailable,  # the disk is full
    "53200": StorageUnavailable,  # no memory
    "57P01": StorageUnavailable,  # pg_terminate_backend
    "58030": StorageUnavailable,  # a disk that fails
    "XX001": StorageUnavailable,  # corrupted data
    "08006": StorageUnavailable,
    "42501": DatabaseUnfit,  # a missing right
    "42P01": DatabaseUnfit,  # a missing table
    "42703": DatabaseUnfit,
    "42P07": DatabaseUnfit,  # somebody's table of the same name
    "3F000": DatabaseUnfit,  # no schema
    "42P05": DatabaseUnfit,  # a pooler in transaction mode
    "26000": DatabaseUnfit,
    "0A000": StorageUnavailable,  # a cached plan of tables that have changed
    "42601": None,  # a syntax error: gtm's own
    "23505": None,
    "22012": None,
}
"""SQLSTATE → what it means to callers; None: a mistake of gtm's."""


@pytest.mark.parametrize(("state", "kind"), MEANT.items())
async def test_errors_of_the_server(
    connect: Callable[[str], Database], postgres: EmbeddedPostgres, state: str, kind: type[Exception] | None
) -> None:
    """Each is one line with its cause; who made the statement is blamed for nothing that the server or its keeper did."""
    raised = f"DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = '{state}', MESSAGE = E'why\\nmore'; END $$"

    async def by_pool() -> None:
        async with connect(postgres.url).transaction() as tx:
            await tx.connection.execute(text(raised.replace(":", "\\:")))

    def alone() -> None:
        with unavailable(), psycopg.connect(postgres.url) as session:
            session.execute(raised)  # type: ignore[arg-type]

    with pytest.raises(kind or DBAPIError) as caught:
        await by_pool()
    with pytest.raises(kind or psycopg.Error):
        alone()
    if kind is not None:
        assert type(caught.value) is kind
        assert str(caught.value).startswith("database: why")
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "kind", "remedy"),
    [
        ({"dbname": "nowhere"}, StorageUnavailable, "CREATE DATABASE"),
        ({"password": "wrong"}, StorageUnavailable, "user and password"),
        ({"user": "nobody-here"}, StorageUnavailable, "user and password"),
        ({"sslmode": "require"}, StorageUnavailable, "sslmode"),
        ({"host": "127.0.0.1", "port": "1"}, StorageUnavailable, "runs where"),
        ({"host": "/nowhere"}, StorageUnavailable, "runs where"),
        ({"sslmode": "no-verify"}, DatabaseUnfit, "correct that parameter"),  # brianc/node-postgres#2299
        ({"target_session_attrs": "master"}, DatabaseUnfit, "correct that parameter"),
        ({"port": "99999"}, DatabaseUnfit, "correct that parameter"),
        ({"options": "-cschema%3Dgtm"}, DatabaseUnfit, "correct that parameter"),
        ({"service": "nowhere"}, DatabaseUnfit, "correct that parameter"),
    ],
)
async def test_refused_connections_say_what_to_do(
    connect: Callable[[str], Database],
    postgres: EmbeddedPostgres,
    change: dict[str, str],
    kind: type[Exception],
    remedy: str,
) -> None:
    """Of a refused connection the driver tells words alone; the remedy follows from them, in one line."""
    given = {**conninfo.conninfo_to_dict(postgres.url), **change}
    query = "&".join(f"{name}={value}" for name, value in given.items())
    with pytest.raises(kind, match=re.escape(remedy)) as caught:
        await connect(f"postgresql://?{query}").ping()
    assert "\n" not in str(caught.value)


async def test_a_primary_among_several_hosts(connect: Callable[[str], Database], database_url: str) -> None:
    """Of several hosts the one is taken that takes writes: where another is first, or away."""
    given = conninfo.conninfo_to_dict(database_url)
    host, port = given["host"], given["port"]
    url = f"{database_url}&host=127.0.0.1,{host}&port=1,{port}&target_session_attrs=read-write"
    await connect(url).ping()
    _run(database_url, "ALTER DATABASE {} SET default_transaction_read_only = on")
    with pytest.raises(StorageReadOnly):
        await connect(url).ping()


def test_a_database_that_is_not_in_utf8(postgres: EmbeddedPostgres) -> None:
    """It is refused with the way to one that is: some names could not be kept, and a policy would come back as other bytes."""
    with psycopg.connect(postgres.url, autocommit=True) as session:
        session.execute("CREATE DATABASE ascii ENCODING 'SQL_ASCII' LOCALE 'C' TEMPLATE template0")
        try:
            with pytest.raises(DatabaseUnfit, match=r"`ascii` keeps texts in SQL_ASCII; .*ENCODING 'UTF8'"):
                migrate.upgrade(postgres.url.replace("/gtm?", "/ascii?"))
        finally:
            session.execute("DROP DATABASE ascii WITH (FORCE)")


def test_an_old_server(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that is older than what gtm works with is refused, with both versions."""
    with psycopg.connect(database_url) as session:
        there = session.info.server_version // 10_000
    monkeypatch.setattr(connecting, "OLDEST", there)
    migrate.require(database_url)
    monkeypatch.setattr(connecting, "OLDEST", there + 1)
    with pytest.raises(DatabaseUnfit, match=f"Postgres {there} is too old; gtm needs Postgres {there + 1}"):
        migrate.require(database_url)


def test_a_role_that_may_not_create(postgres: EmbeddedPostgres, empty_database_url: str) -> None:
    """It is one line: which right is missing, and what to do (Postgres 15 and later: schema public is its owner's)."""
    with psycopg.connect(empty_database_url, autocommit=True) as session:
        session.execute("CREATE ROLE app LOGIN PASSWORD 'app'")
        try:
            with pytest.raises(DatabaseUnfit, match=r"permission denied for schema public; .*own") as caught:
                migrate.upgrade(_as(empty_database_url, "app"))
            assert "\n" not in str(caught.value)
        finally:
            session.execute("DROP ROLE app")


@pytest.mark.parametrize(
    ("shut", "open_", "said"),
    [
        ("ALTER ROLE shut NOLOGIN", "ALTER ROLE shut LOGIN", "ALTER ROLE … LOGIN"),
        ("ALTER DATABASE {} ALLOW_CONNECTIONS false", "ALTER DATABASE {} ALLOW_CONNECTIONS true", "ALLOW_CONNECTIONS true"),
    ],
)  # fmt: skip
def test_doors_that_are_shut(
    postgres: EmbeddedPostgres, empty_database_url: str, shut: str, open_: str, said: str
) -> None:
    """What was done to keep people out during maintenance is named, with what undoes it."""
    name = sql.Identifier(str(conninfo.conninfo_to_dict(empty_database_url)["dbname"]))
    with psycopg.connect(postgres.url, autocommit=True) as session:
        session.execute("CREATE ROLE shut LOGIN PASSWORD 'shut'")
        try:
            session.execute(sql.SQL(shut).format(name))  # type: ignore[arg-type]
            with pytest.raises(StorageUnavailable, match=said):
                migrate.current(_as(empty_database_url, "shut"))
        finally:
            session.execute(sql.SQL(open_).format(name))  # type: ignore[arg-type]
            session.execute("DROP ROLE shut")


def test_a_role_without_room(postgres: EmbeddedPostgres) -> None:
    """Too many connections are a state of the server that passes."""
    with psycopg.connect(postgres.url, autocommit=True) as session:
        session.execute("CREATE ROLE crowded LOGIN PASSWORD 'x' CONNECTION LIMIT 0")
        try:
            given = {**conninfo.conninfo_to_dict(postgres.url), "user": "crowded", "password": "x"}
            url = "postgresql://?" + "&".join(f"{name}={value}" for name, value in given.items())
            with pytest.raises(StorageBusy, match=r"too many connections for role.*CONNECTION LIMIT"):
                migrate.current(url)
        finally:
            session.execute("DROP ROLE crowded")


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("tokens (x int)", '"tokens" already exists.*a database of its own'),
        (
            "alembic_version (version_num text); INSERT INTO alembic_version VALUES ('1234abcd')",
            "another program's",
        ),
        ("alembic_version (other int)", "version_num"),
    ],
)
def test_somebody_elses_tables(empty_database_url: str, table: str, said: str) -> None:
    """A database in which others have tables of the same names is left as it is, and one line says so."""
    with psycopg.connect(empty_database_url) as session:
        session.execute(f"CREATE TABLE {table}")  # type: ignore[arg-type]
    with pytest.raises(Exception, match=said) as caught:
        migrate.upgrade(empty_database_url)
    assert "\n" not in str(caught.value)


@contextmanager
def pgbouncer(url: str, place: Path, mode: str) -> Iterator[str]:
    """The URL of a pooler before a database."""
    given = conninfo.conninfo_to_dict(url)
    port = free_port()
    place.chmod(0o755)
    place.joinpath("b.ini").write_text(
        f"[databases]\n{given['dbname']} = host={given['host']} port={given['port']} user={given['user']} "
        f"password={given['password']}\n[pgbouncer]\nlisten_addr=127.0.0.1\nlisten_port={port}\nauth_type=any\n"
        f"pool_mode={mode}\ndefault_pool_size=20\nunix_socket_dir=\n"
    )
    program = tools.tool("pgbouncer")
    running = subprocess.Popen([program, "-q", "-u", "nobody", place / "b.ini"], stderr=subprocess.DEVNULL)
    pooled = f"postgresql://any@127.0.0.1:{port}/{given['dbname']}"
    try:
        end = time.monotonic() + 20
        while True:
            try:
                psycopg.connect(pooled).close()
                break
            except psycopg.OperationalError:
                assert time.monotonic() < end, "pgbouncer does not answer"
                time.sleep(0.05)
        yield pooled
    finally:
        running.kill()
        running.wait()


@pytest.mark.drill
@pytest.mark.parametrize("mode", ["session", "transaction", "statement"])
async def test_poolers(
    connect: Callable[[str], Database], database_url: str, tmp_path: Path, mode: str
) -> None:
    """One that keeps sessions works; one that does not is refused at the start, in one line.

    Source: pgbouncer/pgbouncer issue 976 (features that transaction mode does not have fail later, and at random).
    """
    with pgbouncer(database_url, tmp_path, mode) as url:
        if mode == "session":
            migrate.require(url)
            database = connect(url)
            await _put(database)
            async with database.seat("gtm control test") as seat:
                assert await seat.take()
            return
        with pytest.raises(DatabaseUnfit, match="pooler that does not keep sessions") as caught:
            migrate.require(url)
        assert "\n" not in str(caught.value)


async def _tokens(database: Database) -> None:
    async with database.transaction() as tx:
        await tx.connection.execute(text("SET LOCAL lock_timeout = '50ms'"))  # for 5 s are long in a test
        await tx.tokens.live()


async def _put(database: Database, name: str = "clinic") -> None:
    async with database.transaction() as tx:
        await tx.resources("tenants").put(Tenant(name))
