"""What can go wrong with the database, as far as callers tell it apart: each error is a line with its cause and a remedy."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar

from gtm.secret import redact


class StorageUnavailable(Exception):  # noqa: N818 - it names a state of the server, as its readers (503) do
    """The database can't be reached or can't take the work now; the same call may succeed later.

    Args:
        cause: one line for the log; of the driver's words the first.
        remedy: what to do, in words that say nothing of who uses the database; empty: nothing but wait.
    """

    state: ClassVar[str] = "down"
    """`GET /v1/status` calls the database so."""
    why: ClassVar[str] = "cannot be reached"
    """This goes on a sentence that begins with "the database"."""

    def __init__(self, cause: str, remedy: str = "") -> None:
        super().__init__(f"{cause}; {remedy}" if remedy else cause)
        self.remedy = remedy


class StorageBusy(StorageUnavailable):
    """It is there, and has no time: others hold all connections, or a lock, for too long."""

    state = "busy"
    why = "is busy with others' work"


class StorageReadOnly(StorageUnavailable):
    """It answers, and takes no writes: a standby, a primary that was demoted, or one whose disk is kept from filling."""

    state = "read_only"
    why = "is read-only"


class DatabaseUnfit(StorageUnavailable):
    """It is there, and nothing gets better by waiting: somebody has to change the server, the role or the URL."""

    state = "unfit"
    why = "is not as gtm needs it"


UP = "up"
"""`GET /v1/status` calls a database so that takes changes."""
STATES = (UP, *(kind.state for kind in (StorageReadOnly, StorageBusy, DatabaseUnfit, StorageUnavailable)))
"""`GET /v1/status` has one of these for the database."""


class SchemaError(Exception):
    """The database's schema is not the one this version of gtm works with."""


READ_ONLY = (
    "name the primary in GTM_DATABASE_URL, or all hosts with target_session_attrs=read-write; or, if it is the primary, "
    "see why default_transaction_read_only is on"
)
TABLES = "gtm's tables are not this version's, or not where the role's search_path leads: `gtm db check` compares them"
_OTHERS = "what is there is not gtm's, or half of it: give gtm a database of its own, or a schema by ALTER ROLE … SET search_path"
_POOLED = "a pooler that does not keep sessions is between: name Postgres itself in GTM_DATABASE_URL, or a pool of mode `session`"
_FULL = "raise max_connections (or the role's or the database's CONNECTION LIMIT), or end others' connections"
LOCKED = "somebody holds a lock: `SELECT pid, pg_blocking_pids(pid), query FROM pg_stat_activity` says who"
RIGHTS = "let the role of GTM_DATABASE_URL own gtm's tables and their schema, or grant it the right"
_PARAMETERS = "correct that parameter in GTM_DATABASE_URL, or take it out"
_NO_SCHEMA = "no schema of the role's search_path exists: create one, AUTHORIZATION that role"

_Kind = type[StorageUnavailable]
_STATES: dict[str, tuple[_Kind, str]] = {
    "25006": (StorageReadOnly, READ_ONLY),
    "55P03": (StorageBusy, LOCKED),
    "57014": (StorageBusy, "it took longer than a statement may take, or somebody cancelled it"),
    "53300": (StorageBusy, _FULL),
    "53100": (StorageUnavailable, "make room on the disk of the database"),
    "42501": (DatabaseUnfit, RIGHTS),
    "42P01": (DatabaseUnfit, TABLES),
    "42703": (DatabaseUnfit, TABLES),
    "42883": (DatabaseUnfit, TABLES),
    "3F000": (DatabaseUnfit, _NO_SCHEMA),
    "42P07": (DatabaseUnfit, _OTHERS),
    "42701": (DatabaseUnfit, _OTHERS),
    "42710": (DatabaseUnfit, _OTHERS),
    "42723": (DatabaseUnfit, _OTHERS),
    "42809": (DatabaseUnfit, _OTHERS),
    "42P05": (DatabaseUnfit, _POOLED),
    "26000": (DatabaseUnfit, _POOLED),
    "0A000": (StorageUnavailable, "the tables have changed beside gtm: try again"),
}
"""SQLSTATE → what it means here (PostgreSQL 18, appendix A)."""
_CLASSES: dict[str, tuple[_Kind, str]] = {
    "08": (StorageUnavailable, ""),
    "25": (StorageUnavailable, ""),
    "40": (StorageBusy, ""),
    "53": (StorageUnavailable, "give the server more of what it lacks"),
    "57": (StorageUnavailable, ""),
    "58": (StorageUnavailable, "the log of Postgres says more"),
    "XX": (StorageUnavailable, "the log of Postgres says more"),
}
"""The same of whole classes. In all others it is gtm that made a mistake."""
_REFUSALS: tuple[tuple[re.Pattern[str], _Kind, str], ...] = tuple(
    (re.compile(pattern), kind, remedy)
    for pattern, kind, remedy in (
        (r"invalid \w+ value|invalid port number|weak sslmode|definition of service|configuration parameter|(set|for) parameter|walsender", DatabaseUnfit, _PARAMETERS),
        (r"password|SCRAM|authentication failed", StorageUnavailable, "see to user and password in GTM_DATABASE_URL"),
        (r'database "[^"]*" does not exist', StorageUnavailable, "create it: CREATE DATABASE … ENCODING 'UTF8'"),
        (r'role "[^"]*" does not exist', StorageUnavailable, "create it: CREATE ROLE … LOGIN"),
        (r"not permitted to log in", StorageUnavailable, "let it: ALTER ROLE … LOGIN"),
        (r"not currently accepting", StorageUnavailable, "let it: ALTER DATABASE … ALLOW_CONNECTIONS true"),
        (r"no encryption|SSL off|SSL required", StorageUnavailable, "add sslmode=require to GTM_DATABASE_URL"),
        (r"pg_hba\.conf", StorageUnavailable, "let the server's pg_hba.conf allow this machine"),
        (r"does not support SSL", StorageUnavailable, "switch ssl on at the server, or take sslmode out of GTM_DATABASE_URL"),
        (r"certificate", StorageUnavailable, "name the authority with sslrootcert in GTM_DATABASE_URL"),
        (r"too many clients|too many connections|connection slots", StorageBusy, _FULL),
        (r"session is read-only|is in hot standby", StorageReadOnly, READ_ONLY),
        (r"startup parameter|pooling mode", DatabaseUnfit, _POOLED),
        (r"permission denied for database", DatabaseUnfit, "GRANT CONNECT ON DATABASE … TO the role"),
        (r"translate host name|resolve host|Name or service", StorageUnavailable, "see to the host name in GTM_DATABASE_URL"),
        (r"refused|No such file|timeout expired|timed out", StorageUnavailable, "see whether Postgres runs where GTM_DATABASE_URL leads"),
    )
)  # fmt: skip
"""The same of refused connections, of which the driver tells words alone."""


@contextmanager
def unavailable() -> Iterator[None]:
    """Turn failures of the server, of the way to it, or of how it is set up into `StorageUnavailable`.

    Lost connections, refused log-ins, an exhausted pool, lock timeouts, deadlocks, a full disk, read-only standbys,
    missing rights and tables count; mistakes in a statement or in its data don't.

    Raises:
        StorageUnavailable: in place of the driver's error, which stays attached as the cause.
    """
    import psycopg  # together they take 300 ms to load, and `gtm serve` only needs to know the errors
    import sqlalchemy.exc

    try:
        yield
    except sqlalchemy.exc.TimeoutError as e:
        raise StorageBusy("all connections to the database are busy") from e
    except (sqlalchemy.exc.DBAPIError, psycopg.Error) as e:
        found = _meaning(e)
        if found is None:
            raise
        kind, remedy = found
        raise kind(_reason(e), remedy) from e


def _meaning(error: Exception) -> tuple[_Kind, str] | None:
    """What an error of the driver means to callers; None: gtm made a mistake."""
    import psycopg

    original = getattr(error, "orig", None) or error
    state = getattr(original, "sqlstate", None)
    if state is None or state[:2] == "08":  # refused; a pooler's refusals are all of that class
        lost = isinstance(original, (psycopg.OperationalError, psycopg.InterfaceError))
        if not lost and not getattr(error, "connection_invalidated", False):
            return None
        words = str(original)
        return next(
            ((kind, remedy) for pattern, kind, remedy in _REFUSALS if pattern.search(words)),
            (StorageUnavailable, ""),
        )
    found = _STATES.get(state) or _CLASSES.get(state[:2])
    if found is None and isinstance(original, psycopg.OperationalError):
        return StorageUnavailable, ""
    return found


def _reason(error: BaseException) -> str:
    """The driver's first line: without statement, parameters or a link to a manual."""
    original = getattr(error, "orig", None) or error
    lines = redact(str(original)).strip().splitlines() or ["connection lost"]
    return f"database: {lines[0]}"
