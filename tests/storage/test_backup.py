"""Backups: what is in one comes back, whole or not at all, whatever Postgres and schema it came from."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator
from pathlib import Path
from random import Random
from threading import Event, Thread
from typing import Any

import psycopg
import pytest
from psycopg import sql

from gtm.storage import backup, migrate
from gtm.storage.backup import BackupError
from gtm.storage.embedded import EmbeddedPostgres
from tests.conftest import fresh_database
from tests.effort import examples

ODD = ("\\.", "\\N", "a\tb\nc", "\\", "'\"", "ß\U0001f600", "\x01", "", "COPY public.audit (x) FROM stdin;")
Rows = dict[str, list[tuple[Any, ...]]]


@pytest.fixture
def world(postgres: EmbeddedPostgres, world_template: str) -> Iterator[str]:
    """A database with a policy in force, and with texts that are hard to write down."""
    with fresh_database(postgres, world_template) as url:
        with psycopg.connect(url) as session:
            for number, text in enumerate(ODD):
                session.execute(
                    "INSERT INTO secrets (name, value) VALUES (%s, %s)",
                    (f"odd-{number}", text.encode() + b"\x00"),
                )
                session.execute("UPDATE revisions SET comment = %s WHERE number = %s", (text, number))
        yield url


def rows(url: str) -> Rows:
    """All that is in a database, and where its sequences stand."""
    found: Rows = {}
    with psycopg.connect(url) as session:
        for (name,) in session.execute(backup._TABLES).fetchall():  # noqa: SLF001 - which tables there are
            found[name] = sorted(
                session.execute(sql.SQL("SELECT * FROM {}").format(sql.Identifier(name))), key=repr
            )
        found["sequences"] = session.execute(
            "SELECT sequencename, last_value FROM pg_sequences WHERE schemaname = current_schema() ORDER BY 1"
        ).fetchall()
    return found


def restored(url: str, file: Path) -> None:
    """As `gtm restore` does."""
    backup.restore(url, file, backup.schema_in(file))


def is_empty(url: str) -> bool:
    """Whether nothing of gtm is there."""
    return migrate.current(url) is None


def test_all_of_it_comes_back(world: str, empty_database_url: str, tmp_path: Path) -> None:
    """Rows, sequences and schema; the file is its owner's alone; what is there is written over by neither."""
    file = tmp_path / "one"
    backup.dump(world, file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    content = file.read_bytes()
    with pytest.raises(BackupError, match="is there already"):
        backup.dump(world, file)
    assert file.read_bytes() == content
    assert [one.name for one in tmp_path.iterdir()] == ["one"]
    restored(empty_database_url, file)
    assert rows(empty_database_url) == rows(world)
    migrate.check(empty_database_url)
    with pytest.raises(BackupError, match="is not empty"):
        restored(empty_database_url, file)


def test_into_another_schema_of_a_role(world: str, empty_database_url: str, tmp_path: Path) -> None:
    """Beside others' tables, where the role's search path leads."""
    file = tmp_path / "one"
    backup.dump(world, file)
    with psycopg.connect(empty_database_url) as session:
        name = session.info.dbname
        session.execute("CREATE TABLE public.others (id int)")
        session.execute("CREATE SCHEMA ours")
        session.execute(sql.SQL("ALTER DATABASE {} SET search_path = ours").format(sql.Identifier(name)))
    restored(empty_database_url, file)
    assert rows(empty_database_url) == rows(world)
    again = tmp_path / "again"
    backup.dump(empty_database_url, again)
    assert backup.schema_in(again) == migrate.head()


def test_of_an_older_version(empty_database_url: str, postgres: EmbeddedPostgres, tmp_path: Path) -> None:
    """It is brought to this version's schema; of a later one it is refused, and nothing is made."""
    migrate.upgrade(empty_database_url)
    file = tmp_path / "later"
    with psycopg.connect(empty_database_url) as session:
        session.execute("UPDATE alembic_version SET version_num = '9999'")
    backup.dump(empty_database_url, file)
    with psycopg.connect(empty_database_url) as session:
        session.execute("UPDATE alembic_version SET version_num = %s", (migrate.head(),))
    migrate.downgrade(empty_database_url, "0011")
    older = tmp_path / "older"
    backup.dump(empty_database_url, older)
    with fresh_database(postgres, "template0") as url:
        with pytest.raises(BackupError, match="by a later gtm"):
            restored(url, file)
        assert is_empty(url)
        restored(url, older)
        migrate.check(url)


def test_what_is_no_backup(empty_database_url: str, tmp_path: Path) -> None:
    """It is told before anything is made: other files, another program's database, a folder."""
    other = tmp_path / "other"
    with psycopg.connect(empty_database_url) as session:
        session.execute("CREATE TABLE t AS SELECT 1 AS alembic_version")
    backup.dump(empty_database_url, other)
    (tmp_path / "text").write_text("CREATE TABLE tokens (id int);")
    (tmp_path / "empty").touch()
    for name in ("other", "text", "empty", "missing", "."):
        with pytest.raises(BackupError):
            backup.schema_in(tmp_path / name)


def test_damage_is_refused_whole(world: str, empty_database_url: str, tmp_path: Path) -> None:
    """A file with bytes flipped or cut off: nothing is made, or all that was backed up."""
    file, wrong = tmp_path / "one", tmp_path / "wrong"
    backup.dump(world, file)
    content, wanted, chance = file.read_bytes(), rows(world), Random(48)
    for number in range(examples(60, 6)):
        damaged = bytearray(content)
        if number % 2:
            del damaged[chance.randrange(len(damaged)) :]
        else:
            damaged[chance.randrange(len(damaged))] ^= 1 << chance.randrange(8)
        wrong.write_bytes(damaged)
        try:
            restored(empty_database_url, wrong)
        except BackupError:
            assert is_empty(empty_database_url)
        else:
            assert rows(empty_database_url) == wanted, number
            migrate.downgrade(empty_database_url, "base")
            with psycopg.connect(empty_database_url) as session:
                session.execute("DROP TABLE IF EXISTS alembic_version")


def test_what_was_acknowledged_before_is_in_it(world: str, empty_database_url: str, tmp_path: Path) -> None:
    """While others write: the numbers up to one, and none that came later."""
    stop, before = Event(), 0
    acknowledged: list[int] = []

    def write() -> None:
        with psycopg.connect(world, autocommit=True) as session:
            while not stop.is_set():
                number = len(acknowledged)
                session.execute("INSERT INTO secrets (name, value) VALUES (%s, %s)", (f"n{number:06}", b"x"))
                acknowledged.append(number)

    writer = Thread(target=write)
    writer.start()
    try:
        while len(acknowledged) < 20:
            pass
        before = len(acknowledged)
        backup.dump(world, tmp_path / "one")
    finally:
        stop.set()
        writer.join()
    restored(empty_database_url, tmp_path / "one")
    names = [name for name, *_ in rows(empty_database_url)["secrets"] if name.startswith("n")]
    assert len(names) >= before
    assert names == [f"n{number:06}" for number in range(len(names))]


def test_the_password_is_in_no_arguments(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Anybody on the machine can read these."""
    program = tmp_path / backup.BIN / "pg_dump"
    program.parent.mkdir(parents=True)
    program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" "$PGPASSWORD" > {tmp_path}/said\n')
    program.chmod(0o755)
    monkeypatch.setattr(backup, "installed", lambda: tmp_path)
    backup.dump("postgresql://ann:s3cret%20x@db.test/gtm?sslmode=require", tmp_path / "one")
    *arguments, password = (tmp_path / "said").read_text().splitlines()
    assert password == "s3cret x"
    assert "s3cret" not in json.dumps(arguments)
    assert any("sslmode=require" in one and "db.test" in one for one in arguments)


def test_a_later_server_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """In words that say what to do."""
    program = tmp_path / backup.BIN / "pg_dump"
    program.parent.mkdir(parents=True)
    words = "pg_dump: error: aborting because of server version mismatch\\npg_dump: detail: server version: 19.1; pg_dump version: 18.6"
    program.write_text(f'#!/bin/sh\nprintf "{words}\\n" >&2; exit 1\n')
    program.chmod(0o755)
    monkeypatch.setattr(backup, "installed", lambda: tmp_path)
    with pytest.raises(BackupError, match=r"the server is Postgres 19\.1.*that server's own"):
        backup.dump("postgresql://ann@db.test/gtm", tmp_path / "one")
    assert not (tmp_path / "one").exists()
