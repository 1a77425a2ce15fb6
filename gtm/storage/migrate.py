"""Schema migrations, run by the program itself."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import alembic.util
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, NullPool, create_engine, func, select

from gtm.storage.errors import SchemaError, unavailable
from gtm.storage.session import CONNECT_TIMEOUT, database_url

_MIGRATION_LOCK = 0x67746D_02  # beside the policy lock (gtm.storage.resources)
_UPGRADE = "bring it there with `gtm db upgrade`"


def migrations_directory() -> Path:
    """Where the migrations are: inside the installed package, or at the top of a checkout."""
    package = Path(__file__).parent.parent
    installed = package / "_migrations"
    return installed if installed.is_dir() else package.parent / "migrations"


def head() -> str:
    """The schema revision that this version of gtm works with."""
    return ScriptDirectory.from_config(_config()).get_current_head() or "base"


def upgrade(url: str) -> None:
    """Bring the schema to this version's; all of it or nothing. Replicas that start at once wait in turn.

    Raises:
        StorageUnavailable: the server can't be reached.
        SchemaError: the schema is from a newer version of gtm.
        ValueError: the URL is not a Postgres URL.
    """
    _run(url, lambda config: command.upgrade(config, "head"))


def downgrade(url: str, revision: str) -> None:
    """Take the schema back to a revision (`base`: to nothing; data in dropped tables is lost).

    Raises:
        StorageUnavailable: the server can't be reached.
        SchemaError: there is no such revision, or the schema is from a newer version of gtm.
        ValueError: the URL is not a Postgres URL.
    """
    _run(url, lambda config: command.downgrade(config, revision))


def check(url: str) -> None:
    """Compare the schema with the tables that this version's code declares.

    Raises:
        StorageUnavailable: the server can't be reached.
        SchemaError: they differ, or migrations are pending; the message says in what.
        ValueError: the URL is not a Postgres URL.
    """
    _run(url, command.check)


def current(url: str) -> str | None:
    """The schema's revision; None for a database without one.

    Raises:
        StorageUnavailable: the server can't be reached.
        ValueError: the URL is not a Postgres URL.
    """
    with _connection(url) as connection:
        return MigrationContext.configure(connection).get_current_revision()


def require(url: str) -> None:
    """Make sure that the schema is the one this version works with, without changing anything.

    Raises:
        StorageUnavailable: the server can't be reached.
        SchemaError: it is another, or there is none; the message says what to do.
        ValueError: the URL is not a Postgres URL.
    """
    found = current(url)
    if found == head():
        return
    known = {script.revision for script in ScriptDirectory.from_config(_config()).walk_revisions()}
    newer = found is not None and found not in known
    raise SchemaError(
        _explain(f"Can't locate revision identified by '{found}'" if newer else "not up to date")
    )


def _config() -> Config:
    config = Config(stdout=io.StringIO())
    config.set_main_option("script_location", str(migrations_directory()).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config


@contextmanager
def _connection(url: str) -> Iterator[Connection]:
    parsed = database_url(url)
    arguments = {} if "connect_timeout" in parsed.query else {"connect_timeout": CONNECT_TIMEOUT}
    engine = create_engine(parsed, poolclass=NullPool, connect_args=arguments)
    with unavailable(), engine.begin() as connection:
        yield connection


def _run(url: str, act: Callable[[Config], object]) -> None:
    config = _config()
    with _connection(url) as connection:
        connection.execute(select(func.pg_advisory_xact_lock(_MIGRATION_LOCK)))
        config.attributes["connection"] = connection
        try:
            act(config)
        except alembic.util.CommandError as e:
            raise SchemaError(_explain(str(e))) from e


def _explain(message: str) -> str:
    if "Can't locate revision" in message:
        return (
            f"the schema revision is unknown to this version of gtm, which works with `{head()}`: it is from a "
            f"newer version, or mistyped ({message})"
        )
    if "not up to date" in message:
        return f"the database's schema is not this version's `{head()}` yet: {_UPGRADE}"
    return f"the database's schema is not this version's: {message}"
