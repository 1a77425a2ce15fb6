"""How a connection to Postgres is made, and what every session states for itself, whatever server, role and URL set.

Sources: PostgreSQL 18, chapters 19.11 (client connection defaults), 32.1 (connection strings, several hosts, sockets).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, LiteralString

import psycopg
from psycopg import conninfo, sql
from sqlalchemy import Engine, event

from gtm.secret import remember
from gtm.storage.errors import READ_ONLY, DatabaseUnfit, StorageReadOnly

DRIVER = "postgresql+psycopg://"
"""What SQLAlchemy is told; where the server is, libpq is told."""
CONNECT_TIMEOUT = 5
"""Seconds until a server that doesn't answer counts as unreachable."""
LOCK_TIMEOUT = 5
"""Seconds for which a statement waits for a lock that somebody else holds on a table or a row."""
STATEMENT_TIMEOUT = 60
"""Seconds that a statement may take."""
OLDEST = 14
"""The oldest major version of Postgres that gtm works with."""
_SCHEMES = ("postgres", "postgresql", "postgresql+psycopg")
_LIVENESS = {  # seconds; a peer that vanished without a word is noticed within half a minute
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 15_000,  # milliseconds
}
_NUMBERS = frozenset({*_LIVENESS, "connect_timeout", "keepalives"})
"""Parameters that are numbers (chapter 32.1.2)."""
_SESSION = {
    "DateStyle": "ISO, MDY",  # the driver reads no other
    "IntervalStyle": "postgres",
    "TimeZone": "UTC",
    "extra_float_digits": "1",  # with 0, numbers come back rounded
    "default_transaction_isolation": "read committed",
    "default_transaction_deferrable": "off",
    "lock_timeout": f"{LOCK_TIMEOUT}s",
    "statement_timeout": f"{STATEMENT_TIMEOUT}s",
    # The seat of the active control and its notifications rest for days, and plans are made within a transaction.
    "idle_in_transaction_session_timeout": "0",
    "idle_session_timeout": "0",
    "transaction_timeout": "0",  # Postgres 17 and later
}
IS_READ_ONLY: LiteralString = "SELECT pg_is_in_recovery() OR current_setting('transaction_read_only')::bool"
"""Asks whether a server takes no writes from this session, without writing."""
MIGRATION = {"lock_timeout": "60s", "statement_timeout": "0"}
"""What migrations state otherwise: they may rewrite tables, and replicas that start at once wait for one another."""
_POOLER = (
    "a pooler that does not keep sessions (pool_mode transaction or statement) is between: name Postgres itself in "
    "GTM_DATABASE_URL, or a pool of mode `session`; gtm needs notifications and locks of sessions"
)


def parameters(url: str) -> dict[str, Any]:
    """What a URL says, as libpq reads it: several hosts, sockets, services.

    Raises:
        ValueError: it is no Postgres URL; the message doesn't repeat it, since it may hold a password.
    """
    remember(url)
    scheme, mark, rest = url.partition("://")
    who, _, path = rest.partition("?")[0].partition("/")
    if "@" in path or who.count("@") > 1:  # libpq would take a part of the password for a host, and tell it
        raise ValueError("the database URL has an `@` or a `/` in its user or password: write %40 and %2F")
    found: dict[str, Any] | None = None
    if mark and scheme in _SCHEMES:
        try:
            found = conninfo.conninfo_to_dict(f"postgresql://{rest}")
        except psycopg.Error as error:
            if unknown := re.search(r'invalid URI query parameter: "([^"]*)"', str(error)):
                raise ValueError(
                    f"the database URL has a parameter that Postgres does not know, `{unknown[1]}`: take it out "
                    "(a schema is chosen by `ALTER ROLE … SET search_path`)"
                ) from None
    ports = re.fullmatch(r"[0-9,]*", str((found or {}).get("port") or ""))
    if found is None or ports is None:
        raise ValueError(
            "the database URL is not a Postgres URL such as postgresql://user@host:5432/database, with the password behind `user:`"
        )
    for (
        name,
        value,
    ) in found.items():  # the driver reads one of them itself, and fails otherwise than where libpq does
        if name in _NUMBERS and re.fullmatch(r"\s*[-+]?[0-9]{1,9}\s*", str(value)) is None:
            raise ValueError(f"the database URL's parameter `{name}` is no whole number")
    return found


def connect_arguments(url: str) -> dict[str, Any]:
    """The same with what the operator's URL leaves open, for the driver.

    Raises:
        ValueError: as `parameters`.
    """
    defaults = {"connect_timeout": CONNECT_TIMEOUT, "application_name": "gtm", **_LIVENESS}
    # The driver reads the first answers by it, before the session can state anything.
    return {**defaults, **parameters(url), "client_encoding": "utf8"}


def session_statement(otherwise: Mapping[str, str] | None = None) -> sql.Composed:
    """What a session states first, as one statement.

    It leaves out what an older server does not have. The search path is one schema from then on: the one that gtm's
    tables are in, or else the one where they would be made. Tables of others by the same names, and a schema that
    somebody adds in front of it, so come not between.

    Args:
        otherwise: settings with another value.
    """
    wanted = sql.SQL(", ").join(
        sql.SQL("({}, {})").format(name, value) for name, value in {**_SESSION, **(otherwise or {})}.items()
    )
    return sql.SQL(
        "SELECT set_config(name, value, false) FROM (VALUES {}) AS wanted (name, value) "
        "WHERE current_setting(name, true) IS NOT NULL UNION ALL "
        "SELECT set_config('search_path', quote_ident(coalesce((SELECT n.nspname FROM pg_catalog.pg_class c "
        "JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = to_regclass('alembic_version')), "
        "current_schema())), false) WHERE current_schema() IS NOT NULL"
    ).format(wanted)


def read_only() -> StorageReadOnly:
    """What to raise where `IS_READ_ONLY` is so."""
    return StorageReadOnly("database: the server takes no writes", READ_ONLY)


def settle(engine: Engine, otherwise: Mapping[str, str] | None = None) -> None:
    """Have every connection of an engine state what it needs, when it is made."""
    statement = session_statement(otherwise).as_string(None)

    def state(connection: Any, _record: object) -> None:
        connection.autocommit = True
        cursor = connection.cursor()
        cursor.execute(statement)
        cursor.close()
        connection.autocommit = False

    event.listen(engine, "connect", state)


def require_fit(url: str, connection: psycopg.Connection[Any]) -> None:
    """Make sure that a server is one that gtm works with. A pooler is found out here, and costs two connections then.

    Args:
        url: where the connection leads.
        connection: to it, in autocommit mode.

    Raises:
        DatabaseUnfit: it is too old, keeps texts otherwise than in UTF-8, or a pooler between does not keep sessions.
        psycopg.Error: it cannot be asked.
    """
    version = connection.info.server_version // 10_000
    if version < OLDEST:
        raise DatabaseUnfit(
            f"database: Postgres {version} is too old", f"gtm needs Postgres {OLDEST} or a later one"
        )
    encoding = connection.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        raise DatabaseUnfit(
            f"database: `{connection.info.dbname}` keeps texts in {encoding}",
            "make one with CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0, and move the data there with pg_dump",
        )
    if _serving(connection) == connection.info.backend_pid:
        return  # a pooler tells a number of its own
    if not _keeps_sessions(url, connection):
        raise DatabaseUnfit("database: sessions do not last", _POOLER)


def _keeps_sessions(url: str, connection: psycopg.Connection[Any]) -> bool:
    """Whether a server process stays with its client between transactions, also when another client wants one."""
    served = _serving(connection)
    arguments = connect_arguments(url)
    with psycopg.connect(**arguments) as one, psycopg.connect(**arguments) as other:
        for beside in (one, other):  # each keeps the process that serves it, within its transaction
            if _serving(beside) == served:
                return False
        return _serving(connection) == served


def _serving(connection: psycopg.Connection[Any]) -> int:
    """The server process that has this statement."""
    row = connection.execute("SELECT pg_backend_pid()", prepare=False).fetchone()
    return int(row[0]) if row else 0
