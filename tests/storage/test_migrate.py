from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from typing import Any

import psycopg
import pytest

import gtm
from gtm.storage import migrate
from gtm.storage.errors import SchemaError, StorageUnavailable

CHECKOUT = Path(gtm.__file__).parent.parent


@pytest.mark.drill
def test_up_and_down(empty_database_url: str) -> None:
    """The schema goes up to the declared tables, down to nothing, and up again; a second run changes nothing."""
    assert migrate.current(empty_database_url) is None
    migrate.upgrade(empty_database_url)
    assert migrate.current(empty_database_url) == migrate.head()
    migrate.check(empty_database_url)
    migrate.upgrade(empty_database_url)
    migrate.downgrade(empty_database_url, "base")
    assert migrate.current(empty_database_url) is None
    for act in (migrate.check, migrate.require):
        with pytest.raises(SchemaError, match=r"`gtm db upgrade`"):
            act(empty_database_url)
    assert migrate.current(empty_database_url) is None
    migrate.upgrade(empty_database_url)
    migrate.check(empty_database_url)


def test_what_tokens_of_before_are_bound_to(empty_database_url: str) -> None:
    """Tokens from before tokens named regions keep their meaning; what is older gets none that would mean more there."""

    def add(connection: psycopg.Connection[Any], name: str, role: str, regions: str | None) -> None:
        edges = name if role == "edge" else None
        connection.execute(
            "INSERT INTO tokens (id, name, role, sha256, edges) VALUES (%s, %s, %s, %s, %s)"
            if regions is None
            else "INSERT INTO tokens (id, name, role, sha256, edges, regions) VALUES (%s, %s, %s, %s, %s, %s)",
            (name, name, role, sha256(name.encode()).digest(), edges, *filter(None, [regions])),
        )

    def names() -> list[tuple[str, str | None]]:
        with psycopg.connect(empty_database_url) as connection:
            return connection.execute("SELECT name, regions FROM tokens ORDER BY name").fetchall()

    migrate.upgrade(empty_database_url)
    migrate.downgrade(empty_database_url, "0009")
    with psycopg.connect(empty_database_url) as connection:
        for role in ("admin", "edge", "reporter"):
            add(connection, role, role, None)
    migrate.upgrade(empty_database_url)
    before = [("admin", None), ("edge", None), ("reporter", None)]
    assert names() == before
    with psycopg.connect(empty_database_url) as connection:
        add(connection, "bound", "reporter", "eu-west")
        add(connection, "fra", "balancer", "eu-central")
    for role, regions in (("balancer", None), ("edge", "eu-west"), ("admin", "*"), ("boss", None)):
        with psycopg.connect(empty_database_url) as connection, pytest.raises(psycopg.errors.CheckViolation):
            add(connection, "wrong", role, regions)
    assert len(names()) == 5
    migrate.downgrade(empty_database_url, "0009")
    migrate.upgrade(empty_database_url)
    assert names() == before


def test_whose_tokens_of_before_are(empty_database_url: str) -> None:
    """Nobody wrote it down, so it is unknown, and so are approvals of before; who came by an identity provider signs in once more."""
    migrate.upgrade(empty_database_url)
    migrate.downgrade(empty_database_url, "0017")
    sha256_of = [sha256(name.encode()).digest() for name in ("one", "two", "three")]
    with psycopg.connect(empty_database_url) as connection:
        connection.execute(
            "INSERT INTO tokens (id, name, role, sha256) VALUES ('i', 'ann', 'admin', %s)", [sha256_of[0]]
        )
        connection.execute(
            "INSERT INTO fence_approvals (sha256, approver, reason, expires_at) VALUES (%s, 'ann', 'x', now() + interval '1 hour')",
            ["ab" * 32],
        )
        for number, (name, token) in enumerate((("ann", "ab"), ("ann@example.com", ""))):
            connection.execute(
                "INSERT INTO sessions (id, sha256, name, role, token, agent, created_at, seen_at, expires_at) "
                "VALUES (%s, %s, %s, 'admin', %s, '', now(), now(), now() + interval '1 hour')",
                [str(number), sha256_of[number], name, token],
            )
    migrate.upgrade(empty_database_url)
    with psycopg.connect(empty_database_url) as connection:
        assert connection.execute("SELECT owner, makers FROM tokens").fetchall() == [(None, [])]
        found = connection.execute("SELECT credential, owner, makers FROM fence_approvals").fetchall()
        assert found == [("", None, [])]
        assert connection.execute("SELECT name FROM sessions").fetchall() == [("ann",)]


def test_replicas_that_start_at_once(empty_database_url: str) -> None:
    """Many upgrades at the same time all succeed."""
    with ThreadPoolExecutor(4) as replicas:
        assert list(replicas.map(migrate.upgrade, [empty_database_url] * 4)) == [None] * 4
    migrate.check(empty_database_url)


def test_differences_are_named(database_url: str) -> None:
    """A schema that was changed by hand is found out."""
    with psycopg.connect(database_url) as connection:
        connection.execute("ALTER TABLE tokens ADD COLUMN surprise text")
    with pytest.raises(SchemaError, match="surprise"):
        migrate.check(database_url)


def test_newer_schema(database_url: str) -> None:
    """A schema of a newer gtm is left as it is, and the error says what is the matter."""
    with psycopg.connect(database_url) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    for act in (migrate.upgrade, migrate.check, migrate.require, lambda url: migrate.downgrade(url, "base")):
        with pytest.raises(SchemaError, match=r"newer version.*9999"):
            act(database_url)
    assert migrate.current(database_url) == "9999"


def test_unreachable_server() -> None:
    """A server that isn't there is unavailable, and a URL that is none is a mistake."""
    with pytest.raises(StorageUnavailable):
        migrate.upgrade("postgresql://gtm@127.0.0.1:1/gtm")
    with pytest.raises(ValueError, match="not a Postgres URL"):
        migrate.upgrade("sqlite://")


def test_alembic_command_line(empty_database_url: str) -> None:
    """Developers' `alembic` finds the same migrations and takes GTM_DATABASE_URL."""
    done = subprocess.run(
        [sys.executable, "-m", "alembic", "-c", CHECKOUT / "migrations" / "alembic.ini", "upgrade", "head"],
        env={**os.environ, "GTM_DATABASE_URL": empty_database_url, "PYTHONPATH": str(CHECKOUT)},
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    migrate.check(empty_database_url)


@pytest.mark.drill
def test_wheel_brings_its_migrations(tmp_path: Path, empty_database_url: str) -> None:
    """A built wheel upgrades a database far from any checkout, and holds no compiled leftovers."""
    source = tmp_path / "source"
    ignore = shutil.ignore_patterns(
        ".*", "*.pyc", "tests", "gtm-data*"
    )  # which has sockets, if a system ran here
    shutil.copytree(CHECKOUT, source, ignore=ignore)
    build = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*build, "-w", tmp_path, source], check=True, capture_output=True)
    (wheel,) = tmp_path.glob("gtm_service-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        assert not [name for name in archive.namelist() if name.endswith(".pyc")]
        archive.extractall(tmp_path / "site")
    program = "import sys; from gtm.storage import migrate as m; m.upgrade(sys.argv[1]); print(m.migrations_directory())"
    done = subprocess.run(
        [sys.executable, "-c", program, empty_database_url],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "site")},
        check=True,
        capture_output=True,
        text=True,
    )
    assert Path(done.stdout.strip()) == tmp_path / "site" / "gtm" / "_migrations"
    migrate.check(empty_database_url)
