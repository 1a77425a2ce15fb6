"""Schema migrations, run by the program itself."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import psycopg
from sqlalchemy import Connection, Engine, NullPool, create_engine, func, select, text

from gtm.storage.connecting import DRIVER, MIGRATION, connect_arguments, require_fit, settle
from gtm.storage.errors import SchemaError, unavailable

if TYPE_CHECKING:
    from alembic.config import Config

_MIGRATION_LOCK = 0x67746D_02  # beside the policy lock (gtm.storage.resources)
_UPGRADE = "bring it there with `gtm db upgrade`"


def migrations_directory() -> Path:
    """Where the migrations are: inside the installed package, or at the top of a checkout."""
    package = Path(__file__).parent.parent
    installed = package / "_migrations"
    return installed if installed.is_dir() else package.parent / "migrations"


def head() -> str:
    """The schema revision that this version of gtm works with."""
    return max(revisions(), default="base")


def upgrade(url: str) -> None:
    """Bring the schema to this version's; all of it or nothing. Replicas that start at once wait in turn.

    Raises:
        StorageUnavailable: the server can't be reached.
        SchemaError: the schema is from a newer version of gtm.
        ValueError: the URL is not a Postgres URL.
    """
    if current(url) != head():
        _run(url, lambda config: _commands().upgrade(config, "head"))


def make(url: str, revision: str, fill: Callable[[psycopg.Connection[Any]], None]) -> None:
    """Make the tables of a revision where none are, fill them, and bring them to this version's; all of it or nothing.

    Raises:
        StorageUnavailable: the server can't be reached.
        ValueError: the URL is not a Postgres URL.
    """

    def act(config: Config) -> None:
        _commands().upgrade(config, revision)
        fill(config.attributes["connection"].connection.driver_connection)
        _commands().upgrade(config, "head")

    _run(url, act)


def downgrade(url: str, revision: str) -> None:
    """Take the schema back to a revision (`base`: to nothing; data in dropped tables is lost).

    Raises:
        StorageUnavailable: the server can't be reached.
        SchemaError: there is no such revision, or the schema is from a newer version of gtm.
        ValueError: the URL is not a Postgres URL.
    """
    _run(url, lambda config: _commands().downgrade(config, revision))


def check(url: str) -> None:
    """Compare the schema with the tables that this version's code declares.

    Raises:
        StorageUnavailable: the server can't be reached.
        SchemaError: they differ, or migrations are pending; the message says in what.
        ValueError: the URL is not a Postgres URL.
    """
    _run(url, _commands().check)


def current(url: str) -> str | None:
    """The schema's revision; None for a database without one.

    Raises:
        StorageUnavailable: the server can't be reached.
        ValueError: the URL is not a Postgres URL.
    """
    if value(url, "SELECT to_regclass('alembic_version')::text") is None:
        return None
    return value(url, "SELECT version_num FROM alembic_version")


def value(url: str, statement: str) -> str | None:
    """The first column of a question's first row, asked as the schema's owner; None if there is no row.

    Raises:
        StorageUnavailable: the server can't be reached.
        ValueError: the URL is not a Postgres URL.
    """
    with _connection(url) as connection:
        found: str | None = connection.scalar(text(statement))
        return found


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
    newer = found is not None and found not in revisions()
    raise SchemaError(
        _explain(f"Can't locate revision identified by '{found}'" if newer else "not up to date")
    )


def revisions() -> set[str]:
    """All that there are: `0011_handoff_keys.py` brings a schema to `0011`, and the last is the head."""
    return {path.name.partition("_")[0] for path in (migrations_directory() / "versions").glob("[0-9]*.py")}


def _commands() -> ModuleType:
    """Alembic's, which take a quarter of a second to load: control that finds its database as it should be needs none.

    Half of that would be Pygments, with which Mako colours error pages: it does without where there is none.
    """
    sys.modules.setdefault("mako.ext.pygmentplugin", None)  # type: ignore[arg-type]  # the import then fails
    from alembic import command

    return command


def _config() -> Config:
    _commands()
    from alembic.config import Config

    config = Config(stdout=io.StringIO())
    config.set_main_option("script_location", str(migrations_directory()).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config


def engine(url: str) -> Engine:
    """Connections for migrations, which may take their time.

    Raises:
        ValueError: the URL is not a Postgres URL.
    """
    made = create_engine(DRIVER, poolclass=NullPool, connect_args=connect_arguments(url))
    settle(made, MIGRATION)
    return made


@contextmanager
def _connection(url: str) -> Iterator[Connection]:
    arguments = connect_arguments(url)
    with unavailable():
        with psycopg.connect(**arguments, autocommit=True) as first:
            require_fit(url, first)
        with engine(url).begin() as connection:
            yield connection


def _run(url: str, act: Callable[[Config], object]) -> None:
    config = _config()
    from alembic.util import CommandError

    with _connection(url) as connection:
        connection.execute(select(func.pg_advisory_xact_lock(_MIGRATION_LOCK)))
        config.attributes["connection"] = connection
        try:
            act(config)
        except CommandError as e:
            raise SchemaError(_explain(str(e))) from e


def _explain(message: str) -> str:
    if "Can't locate revision" in message:
        return (
            f"the schema revision is unknown to this version of gtm, which works with `{head()}`: it is from a "
            f"newer version, another program's (give gtm a database of its own), or mistyped ({message})"
        )
    if "not up to date" in message:
        return f"the database's schema is not this version's `{head()}` yet: {_UPGRADE}"
    return f"the database's schema is not this version's: {message}"
