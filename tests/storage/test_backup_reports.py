"""What people reported of others' backups, tried on gtm's: each case names its report."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest
from psycopg import sql

from gtm.storage import backup, migrate
from gtm.storage.backup import BackupError
from gtm.storage.embedded import EmbeddedPostgres
from tests.conftest import fresh_database
from tests.storage.test_backup import is_empty, restored, rows

PASSWORD = "p(%@:/ 'x\"\\$!&#?ß"
"""lysender/dbautobackup#5, centreon/centreon-archived#5173: characters that a shell or a URL understands otherwise."""


@pytest.fixture
def world(postgres: EmbeddedPostgres, world_template: str) -> Iterator[str]:
    """A database with a policy in force."""
    with fresh_database(postgres, world_template) as url:
        yield url


@pytest.fixture
def ann(world: str) -> Iterator[str]:
    """The same as somebody who may read all of it, and owns nothing."""
    with psycopg.connect(world, autocommit=True) as session:
        session.execute(sql.SQL("CREATE ROLE ann LOGIN PASSWORD {}").format(PASSWORD))
        session.execute("GRANT SELECT ON ALL TABLES IN SCHEMA public TO ann")
        session.execute("GRANT SELECT ON ALL SEQUENCES IN SCHEMA public TO ann")
    try:
        yield _as(world, PASSWORD)
    finally:
        with psycopg.connect(world, autocommit=True) as session:
            session.execute("DROP OWNED BY ann")
            session.execute("DROP ROLE ann")


def _as(url: str, password: str) -> str:
    return f"postgresql://ann:{quote(password, safe='')}@{url.partition('@')[2]}"


def test_a_password_of_all_characters(ann: str, world: str, empty_database_url: str, tmp_path: Path) -> None:
    """Whoever reads it all may back it up, and needs to own nothing."""
    backup.dump(ann, tmp_path / "one")
    restored(empty_database_url, tmp_path / "one")
    assert rows(empty_database_url) == rows(world)


def test_what_may_not_be_read_is_no_backup(ann: str, world: str, tmp_path: Path) -> None:
    """databasus/databasus#725: without the right to read a sequence backups succeeded that had no numbers."""
    with psycopg.connect(world, autocommit=True) as session:
        (name,) = session.execute("SELECT sequencename FROM pg_sequences LIMIT 1").fetchone() or ("",)
        session.execute(sql.SQL("REVOKE SELECT ON SEQUENCE {} FROM ann").format(sql.Identifier(name)))
    with pytest.raises(BackupError, match="may lack SELECT privilege"):
        backup.dump(ann, tmp_path / "one")
    assert list(tmp_path.iterdir()) == []


def test_a_sequence_that_is_not_in_it(world: str, empty_database_url: str, tmp_path: Path) -> None:
    """The same, of a backup that somebody else's pg_dump has made so: it is refused, and nothing is made."""
    with psycopg.connect(world, autocommit=True) as session:
        (name,) = session.execute("SELECT sequencename FROM pg_sequences LIMIT 1").fetchone() or ("",)
        session.execute(sql.SQL("ALTER SEQUENCE {} OWNED BY NONE").format(sql.Identifier(name)))
        session.execute(sql.SQL("ALTER SEQUENCE {} RENAME TO another").format(sql.Identifier(name)))
    backup.dump(world, tmp_path / "one")
    with pytest.raises(BackupError, match=f"`{name}` is missing"):
        restored(empty_database_url, tmp_path / "one")
    assert is_empty(empty_database_url)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        pytest.param("postgresql://u@127.0.0.1:1/x", "refused", id="Skyfay/DBackup#154"),
        pytest.param(
            "postgresql://u@nowhere.invalid/x", "translate host name|resolve", id="Skyfay/DBackup#154 names"
        ),
    ],
)
def test_a_server_that_is_not_there(url: str, said: str, tmp_path: Path) -> None:
    """No backup of no bytes is called a success."""
    with pytest.raises(BackupError, match=said):
        backup.dump(url, tmp_path / "one")
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_password(ann: str, world: str, tmp_path: Path) -> None:
    """nfrastack/db-backup#271: "completed successfully" stood below the refusal."""
    with pytest.raises(BackupError, match="password authentication failed"):
        backup.dump(_as(world, "another"), tmp_path / "one")
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk(world: str, tmp_path: Path) -> None:
    """k0lter/autopostgresqlbackup#2: what was cut off was kept as the backup."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.raises(BackupError, match="SIGXFSZ"):
            backup.dump(world, tmp_path / "one")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(tmp_path.iterdir()) == []


def test_whoever_owns_no_more_than_the_database(
    postgres: EmbeddedPostgres, world: str, empty_database_url: str, tmp_path: Path
) -> None:
    """ParabolInc/parabol#5473, craigkerstiens/postgresguide.com#83: "must be owner of extension"; bestinslot-xyz/OPI#19: of roles that are not there."""
    backup.dump(world, tmp_path / "one")
    with psycopg.connect(empty_database_url, autocommit=True) as session:
        name = session.info.dbname
        session.execute("CREATE ROLE ann LOGIN PASSWORD 'x'")
        session.execute(sql.SQL("ALTER DATABASE {} OWNER TO ann").format(sql.Identifier(name)))
    try:
        restored(_as(empty_database_url, "x"), tmp_path / "one")
        assert rows(empty_database_url) == rows(world)
        migrate.check(_as(empty_database_url, "x"))
    finally:
        with psycopg.connect(empty_database_url, autocommit=True) as session:
            session.execute("REASSIGN OWNED BY ann TO CURRENT_USER")
            session.execute("DROP OWNED BY ann")
            session.execute("DROP ROLE ann")


def test_a_warning_is_no_failure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """railwayapp-templates/postgres-s3-backups#13: whatever stood on standard error ended the backup."""
    program = tmp_path / "bin" / backup.BIN / "pg_dump"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\necho 'pg_dump: warning: there are circular foreign keys' >&2\n")
    program.chmod(0o755)
    monkeypatch.setattr(backup, "installed", lambda: tmp_path / "bin")
    backup.dump("postgresql://ann@db.test/gtm", tmp_path / "one")
    assert (tmp_path / "one").exists()
