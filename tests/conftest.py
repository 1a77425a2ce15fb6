"""What all tests share: a real Postgres, one server per test process and one database per test."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING

import psycopg
import pytest

from tests.warden import Warden

if TYPE_CHECKING:
    from gtm.storage.embedded import EmbeddedPostgres

_TEMPLATE = "gtm_migrated"
_numbers = itertools.count(1)
_warden: list[Warden] = []


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """Have what a run starts end with it; before xdist starts its workers, so that these are watched too."""
    if not hasattr(session.config, "workerinput"):
        factory: pytest.TempPathFactory = session.config._tmp_path_factory  # type: ignore[attr-defined]
        _warden.append(Warden(factory.getbasetemp()))


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(exitstatus: int) -> None:
    """The end of a run that nobody cut off: its files may stay."""
    if exitstatus != pytest.ExitCode.INTERRUPTED:
        for warden in _warden:
            warden.release()


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """`@pytest.mark.anyio` runs on asyncio, as gtm does."""
    return "asyncio"


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedPostgres]:
    """The test process's own server, with a migrated database as a template."""
    from gtm.storage import migrate
    from gtm.storage.embedded import EmbeddedPostgres

    # Durability is for real data; `tests/storage/test_embedded.py` tests the real settings.
    settings = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
    with EmbeddedPostgres(tmp_path_factory.mktemp("postgres"), settings=settings) as server:
        with psycopg.connect(server.url, autocommit=True) as session:
            session.execute(f"CREATE DATABASE {_TEMPLATE}")
        migrate.upgrade(_database(server, _TEMPLATE))
        yield server


def _database(server: EmbeddedPostgres, name: str) -> str:
    return server.url.replace("/gtm?", f"/{name}?")


def _fresh(server: EmbeddedPostgres, template: str) -> Iterator[str]:
    name = f"test_{next(_numbers)}"
    with psycopg.connect(server.url, autocommit=True) as session:
        session.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
        try:
            yield _database(server, name)
        finally:
            if server.alive():
                session.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def database_url(postgres: EmbeddedPostgres) -> Iterator[str]:
    """The URL of a fresh database with gtm's tables, the test's own."""
    yield from _fresh(postgres, _TEMPLATE)


@pytest.fixture
def empty_database_url(postgres: EmbeddedPostgres) -> Iterator[str]:
    """The URL of a fresh database without any tables, the test's own."""
    yield from _fresh(postgres, "template0")
