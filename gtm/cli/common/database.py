"""Commands' own way to the database, past control: for lost tokens and for migrations."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gtm.cli.common import output
from gtm.cli.common.exits import CommandError, Exit


@contextmanager
def failures() -> Iterator[None]:
    """Failures to use a database, or a backup of one, as errors that end the command.

    Raises:
        CommandError: in place of them.
    """
    from gtm.storage.backup import BackupError
    from gtm.storage.embedded import EmbeddedPostgresError
    from gtm.storage.errors import SchemaError, StorageUnavailable

    try:
        yield
    except ValueError as error:  # not a URL of a Postgres server; the message does not repeat it
        raise CommandError(f"GTM_DATABASE_URL: {error}") from error
    except StorageUnavailable as error:
        raise CommandError(str(error), Exit.UNREACHABLE) from error
    except (SchemaError, BackupError) as error:
        raise CommandError(str(error), Exit.NO) from error
    except EmbeddedPostgresError as error:
        raise CommandError(str(error), Exit.CANNOT_RUN) from error


@contextmanager
def database(url: str | None, data_dir: Path, *, create: bool = False) -> Iterator[str]:
    """The URL of the database, and failures to use it as errors that end the command.

    Args:
        url: of a Postgres server; None: the data directory's embedded one, started for the time if it does not run.
        data_dir: where that is.
        create: make an embedded one if there is none.

    Raises:
        CommandError: it cannot be reached or used.
    """
    with failures():
        if url is not None:
            yield url
        else:
            with _embedded(data_dir.absolute(), create=create) as found:
                yield found


@contextmanager
def _embedded(data_dir: Path, *, create: bool) -> Iterator[str]:
    from gtm.storage.embedded import DataDirectoryInUse, EmbeddedPostgres, connection_url

    try:
        there = (data_dir / "postgres").is_dir()
    except OSError as error:
        message = f"cannot look into `{data_dir}`: {(error.strerror or str(error)).lower()}"
        raise CommandError(message, Exit.CANNOT_RUN) from error
    if not there and not create:
        raise CommandError(
            f"there is no database in `{data_dir}`: name the data directory of `gtm serve` with --data-dir, or a "
            "Postgres server with GTM_DATABASE_URL",
            Exit.CANNOT_RUN,
        )
    postgres = EmbeddedPostgres(data_dir)
    try:
        with output.progress("starting the embedded Postgres"):
            url = postgres.start()
    except DataDirectoryInUse:
        yield connection_url(data_dir)
        return
    try:
        yield url
    finally:
        postgres.stop()


def require_current_schema(url: str) -> None:
    """Refuse to work on tables of another version.

    Raises:
        SchemaError: the schema is not this version's.
    """
    from gtm.storage import migrate
    from gtm.storage.errors import SchemaError

    found, wanted = migrate.current(url), migrate.head()
    if found != wanted:
        raise SchemaError(
            f"the database's schema is {f'`{found}`' if found else 'empty'}, this gtm works with `{wanted}`: run "
            "`gtm db upgrade` first"
        )
