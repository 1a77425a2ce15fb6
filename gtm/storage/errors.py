"""What can go wrong with the database, as far as callers tell it apart."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from gtm.secret import redact


class StorageUnavailable(Exception):  # noqa: N818 - it names a state of the server, as its readers (503) do
    """The database can't be reached or can't take the work now; the same call may succeed later."""


class StorageBusy(StorageUnavailable):
    """It is there, and has no time: others hold all connections, or a lock, for too long."""


class SchemaError(Exception):
    """The database's schema is not the one this version of gtm works with."""


_READ_ONLY = "25006"  # read_only_sql_transaction: a standby, as in the middle of a failover
_LOCKED = "55P03"  # lock_not_available: the lock timeout is over


@contextmanager
def unavailable() -> Iterator[None]:
    """Turn failures of the server or of the way to it into `StorageUnavailable`.

    Lost connections, refused log-ins, an exhausted pool, lock timeouts, deadlocks, a full disk and read-only
    standbys count; mistakes in a statement or in its data don't.

    Raises:
        StorageUnavailable: in place of the driver's error, which stays attached as the cause.
    """
    import psycopg  # together they take 300 ms to load, and `gtm serve` only needs to know the errors
    import sqlalchemy.exc

    try:
        yield
    except (sqlalchemy.exc.OperationalError, sqlalchemy.exc.InterfaceError, psycopg.OperationalError) as e:
        locked = getattr(getattr(e, "orig", e), "sqlstate", None) == _LOCKED
        raise (StorageBusy if locked else StorageUnavailable)(_reason(e)) from e
    except sqlalchemy.exc.TimeoutError as e:
        raise StorageBusy("all connections to the database are busy") from e
    except sqlalchemy.exc.DBAPIError as e:
        if e.connection_invalidated or getattr(e.orig, "sqlstate", None) == _READ_ONLY:
            raise StorageUnavailable(_reason(e)) from e
        raise


def _reason(error: BaseException) -> str:
    """The driver's first line: without statement, parameters or a link to a manual."""
    original = getattr(error, "orig", None) or error
    lines = redact(str(original)).strip().splitlines() or ["connection lost"]
    return f"database: {lines[0]}"
