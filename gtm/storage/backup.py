"""The database in one file, and a database made of such a file: written by Postgres's own `pg_dump`, which comes with the embedded server.

Laws:
  1. A backup is of one moment, and whole: what was acknowledged before it began is in it. Nobody is kept waiting meanwhile.
  2. The file is its owner's alone, since it holds private keys, and takes no other's place.
  3. Restored is all of it, where no tables are, or nothing.
  4. The password of a database stands in no process's arguments.
  5. A file says what rows there are, and nothing else that is done: of its statements none is executed.

Theory. The format is `pg_dump`'s own ("custom"), so that any `pg_restore` reads it without gtm. `restore` takes only its rows: the tables are
made by gtm's migrations, up to the backup's revision, are filled, and go on to this version's, in one transaction. So a backup of one
Postgres is restored to an older one (statements of `pg_restore` 18 are errors to Postgres 16), into another schema, and by a role that may make no extensions.

Source: PostgreSQL 18 documentation, "SQL Dump" (§25.1), pg_dump, COPY.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import IO, Any, cast

import psycopg
from psycopg import conninfo, sql

from gtm.secret import redact
from gtm.storage import migrate
from gtm.storage.connecting import parameters
from gtm.storage.embedded.binaries import BIN, installed

_VERSION = re.compile(r"^COPY \S+\.alembic_version \(version_num\) FROM stdin;\n(\w+)$", re.MULTILINE)
_PART = 1 << 16
"""Bytes of rows that are sent together."""
_COPY = re.compile(rb'COPY \S+\.(\w+) \(([\w", ]+)\) FROM stdin;')
_SEQUENCE = re.compile(rb"SELECT pg_catalog\.setval\('\S+\.(\w+)', (\d+), (true|false)\);")
_THERE = """
SELECT c.relname FROM pg_catalog.pg_class c WHERE c.relnamespace = current_schema()::regnamespace
AND NOT EXISTS (SELECT FROM pg_catalog.pg_depend d WHERE d.objid = c.oid AND d.deptype = 'e') ORDER BY 1 LIMIT 1
"""
_TABLES = "SELECT tablename FROM pg_catalog.pg_tables WHERE schemaname = current_schema() AND tablename <> 'alembic_version'"
_SEQUENCES = "SELECT sequencename FROM pg_catalog.pg_sequences WHERE schemaname = current_schema()"
_INVERTED = """
SELECT c.relname, pg_get_indexdef(c.oid) FROM pg_catalog.pg_class c JOIN pg_catalog.pg_am a ON a.oid = c.relam
WHERE c.relnamespace = current_schema()::regnamespace AND a.amname = 'gin'
"""
"""Indexes that are made of a million rows in a fraction of the time in which a million rows are put into them."""
_OTHER_VERSION = re.compile(r"server version: (\S+).*pg_dump version: (\S+)", re.DOTALL)


class BackupError(Exception):
    """No backup was made, or none restored: nothing has changed."""


def dump(url: str, file: Path) -> None:
    """Write a database to a file that is not there yet.

    Raises:
        BackupError: the database cannot be read whole, or the file cannot be written.
        EmbeddedPostgresError: Postgres's programs are not installed.
        ValueError: the URL is not a Postgres URL.
    """
    unfinished = file.with_name(f"{file.name}.{os.getpid()}.tmp")
    try:
        descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            _run("pg_dump", url, "--format=custom", "--no-owner", "--no-privileges", f"--file={unfinished}")
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.link(unfinished, file)  # rename(2) would replace what is there
    except FileExistsError as error:
        raise BackupError(f"`{file}` is there already: name another file, or move it away") from error
    except OSError as error:
        raise BackupError(f"cannot write `{file}`: {(error.strerror or str(error)).lower()}") from error
    finally:
        with suppress(OSError):
            unfinished.unlink()


def schema_in(file: Path) -> str:
    """The revision of the schema in a backup that can be restored here.

    Raises:
        BackupError: the file cannot be read, or is no backup that this version of gtm understands.
        EmbeddedPostgresError: Postgres's programs are not installed.
    """
    try:
        with file.open("rb"):
            pass
    except OSError as error:
        raise BackupError(f"cannot read `{file}`: {(error.strerror or str(error)).lower()}") from error
    try:
        said = _run("pg_restore", None, "--data-only", "--table=alembic_version", "--file=-", str(file))
    except BackupError as error:
        raise BackupError(f"`{file}` is no backup, or is damaged: {error}") from error
    found = _VERSION.search(said)
    if found is None:
        raise BackupError(f"`{file}` is no backup of a gtm's database: `gtm backup` makes one")
    if found[1] not in migrate.revisions():
        raise BackupError(
            f"`{file}` was made by a later gtm (schema `{found[1]}`, this one knows up to `{migrate.head()}`): restore it with that one"
        )
    return found[1]


def restore(url: str, file: Path, schema: str) -> None:
    """Make the tables where none are, with the rows of a backup, and bring them to this version's schema.

    Args:
        url: of the database.
        file: the backup.
        schema: the revision of its schema (`schema_in`).

    Raises:
        BackupError: there are tables, or the file is damaged.
        EmbeddedPostgresError: Postgres's programs are not installed.
        StorageUnavailable: the server can't be reached.
        ValueError: the URL is not a Postgres URL.
    """
    there = migrate.value(url, _THERE)
    if there is not None:
        raise BackupError(
            f"the database is not empty (`{there}` is in it): restore into a new one, by --data-dir or --database-url; nothing was changed"
        )
    migrate.make(url, schema, partial(_filled, file))


def _filled(file: Path, connection: psycopg.Connection[Any]) -> None:
    """Fill empty tables with a backup's rows, and set their sequences."""
    wanted = {name for (name,) in connection.execute(_TABLES)}
    for name in sorted(wanted):
        table = sql.Identifier(name)
        if connection.execute(sql.SQL("SELECT FROM {} LIMIT 1").format(table)).fetchone() is not None:
            connection.execute(sql.SQL("DELETE FROM {}").format(table))  # what migrations put there
    wanted |= {name for (name,) in connection.execute(_SEQUENCES)}
    inverted = connection.execute(_INVERTED).fetchall()
    for index, _ in inverted:
        connection.execute(sql.SQL("DROP INDEX {}").format(sql.Identifier(index)))
    command: list[str | Path] = [installed() / BIN / "pg_restore", "--data-only", "--file=-", file]
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as program:
        script, errors = cast("IO[bytes]", program.stdout), cast("IO[bytes]", program.stderr)
        try:
            filled = _fill(connection, script, wanted)
        except (psycopg.DataError, psycopg.IntegrityError, psycopg.ProgrammingError) as error:
            raise BackupError(
                f"`{file}` is damaged: {str(error).splitlines()[0]}; nothing was changed"
            ) from error
        words = errors.read().decode(errors="replace")
    if program.returncode:
        raise BackupError(
            f"`{file}` is damaged: {_said('pg_restore', words, program.returncode)}; nothing was changed"
        )
    if missing := wanted - filled:
        raise BackupError(
            f"`{file}` does not have all of it: `{min(missing)}` is missing; nothing was changed"
        )
    for _, statement in inverted:
        connection.execute(statement)


def _fill(connection: psycopg.Connection[Any], script: IO[bytes], wanted: set[str]) -> set[str]:
    """Put a script's rows into tables, and its numbers into sequences; those that were in it. What else stands there is not gtm's, or settings of a session."""
    filled = set()
    for line in script:
        found = _COPY.fullmatch(line.rstrip())
        if found is not None:
            table, columns = found[1].decode(), found[2].decode()
            parts = _rows(script)
            if table not in wanted:
                for _ in parts:
                    pass
                continue
            filled.add(table)
            # The columns are names and commas, by the pattern.
            statement = sql.SQL("COPY {} ({}) FROM stdin").format(sql.Identifier(table), sql.SQL(columns))
            with connection.cursor() as cursor, cursor.copy(statement) as copy:
                for part in parts:
                    copy.write(part)
        elif (found := _SEQUENCE.fullmatch(line.rstrip())) is not None:
            sequence, number, called = found[1].decode(), int(found[2]), found[3] == b"true"
            if sequence not in wanted:
                continue
            filled.add(sequence)
            connection.execute("SELECT setval(%s::regclass, %s, %s)", (sequence, number, called))
    return filled


def _rows(script: IO[bytes]) -> Iterator[bytes]:
    """A table's rows as they are written, some together: each alone would cost as much as it takes to store it."""
    part = bytearray()
    for row in script:
        if row == b"\\.\n":
            yield bytes(part)
            return
        part += row
        if len(part) >= _PART:
            yield bytes(part)
            part.clear()
    raise BackupError("the backup ends within a table; nothing was changed")


def _run(program: str, url: str | None, *arguments: str) -> str:
    """What a program of Postgres prints."""
    environment = {**os.environ, "LC_ALL": "C"}
    command = [str(installed() / BIN / program)]
    if url is not None:
        found: dict[str, Any] = parameters(url)
        password = found.pop("password", None)
        if password is not None:
            environment["PGPASSWORD"] = str(password)
        command.append(f"--dbname={conninfo.make_conninfo('', **found)}")
    done = subprocess.run(
        [*command, "--no-password", *arguments] if url is not None else [*command, *arguments],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode:
        raise BackupError(_said(program, done.stderr, done.returncode))
    return done.stdout


def _said(program: str, words: str, code: int) -> str:
    """What a program has against it, in a line."""
    other = _OTHER_VERSION.search(words)
    if other is not None:
        return (
            f"the server is Postgres {other[1]}, and gtm's pg_dump is {other[2]}, which reads no later server: "
            "run that server's own `pg_dump --format=custom --no-owner --no-privileges`"
        )
    ended = f"it was ended by {signal.Signals(-code).name}" if code < 0 else f"it ended with {code}"
    lines = redact(words).strip().splitlines() or [ended]
    return f"{program}: {lines[0].removeprefix(f'{program}: ').removeprefix('error: ')}"
