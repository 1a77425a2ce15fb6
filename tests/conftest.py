"""What all tests share: a real Postgres, one server per test process and one database per test."""

from __future__ import annotations

import gc
import itertools
import os
import ssl
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from importlib import import_module
from pathlib import Path
from random import Random
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any

import httpx
import psycopg
import pytest

from tests import (
    effort,  # noqa: F401 - sets how many examples property tests try
    tools,
)
from tests.warden import Warden, in_memory

if TYPE_CHECKING:
    from gtm.storage.embedded import EmbeddedPostgres
    from tests.system.harness import System

_TEMPLATE = "gtm_migrated"
_numbers = itertools.count(1)
_warden: list[Warden] = []
_shared: list[tuple[System, ExitStack]] = []
_contexts: dict[tuple[str | None, ...] | None, ssl.SSLContext] = {}


def pytest_xdist_auto_num_workers() -> int:
    """Four more than cores, or as PYTEST_XDIST_AUTO_NUM_WORKERS says: tests of whole systems wait for much of their time."""
    said = os.environ.get("PYTEST_XDIST_AUTO_NUM_WORKERS")
    return int(said) if said else (os.cpu_count() or 1) + 4


_SHARING = frozenset(
    {
        "tests/cli/live/test_running_system.py",
        "tests/system/test_edge.py",
        "tests/system/test_handoff.py",
        "tests/system/test_round_trips.py",
    }
)
"""Files whose tests take `shared_demo`: one process runs them all, one after another."""


_BROWSER = "tests/browser/"
"""Whose tests share a browser and a demo of their own, likewise."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Hand tests out by file (`--dist loadfile`), and the files that share a demo as one."""
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = super()._split_scope(nodeid)
            if file.startswith(_BROWSER):
                return _BROWSER
            return "shared demo" if file in _SHARING else file

    return Scheduling(config, log) if config.getvalue("dist") == "loadfile" else None


def pytest_addoption(parser: pytest.Parser) -> None:
    """Any order will do, and `--shuffle 17` tries the seventeenth."""
    parser.addoption(
        "--shuffle", type=int, metavar="SEED", help="run files, and the tests of each, in random order"
    )


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Files that share a demo, those of whole systems, those with a database, property tests: what is left for the end is short."""
    seed: int | None = config.getoption("shuffle")
    if seed is not None:
        places: dict[Path, float] = {}
        chance = Random(seed)
        for item in items:
            places.setdefault(item.path, chance.random())
        order = {item: (places[item.path], chance.random()) for item in items}
        items.sort(key=order.__getitem__)
        return
    ranks: dict[Path, int] = {}
    for item in items:
        long = (
            item.get_closest_marker("system") is not None,
            "postgres" in getattr(item, "fixturenames", ()),
            item.get_closest_marker("hypothesis") is not None,
            True,
        )
        ranks[item.path] = min(ranks.get(item.path, len(long)), long.index(True))
    items.sort(key=lambda item: (not _shares(item), ranks[item.path]))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """What programs it may ask for."""
    tools.in_drill = item.get_closest_marker("drill") is not None


def _shares(item: pytest.Item) -> bool:
    return item.nodeid.partition("::")[0] in _SHARING


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """Have what a run starts end with it; before xdist starts its workers, so that these are watched too."""
    if not hasattr(session.config, "workerinput"):
        factory: pytest.TempPathFactory = session.config._tmp_path_factory  # type: ignore[attr-defined]  # noqa: SLF001 - pytest offers it to fixtures alone
        _warden.append(Warden(factory.getbasetemp()))


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(exitstatus: int) -> None:
    """The end of a run that nobody cut off: its files may stay."""
    if exitstatus != pytest.ExitCode.INTERRUPTED:
        for warden in _warden:
            warden.release()


def pytest_configure() -> None:
    """Spare what thousands of clients and hundreds of processes would do again and again.

    A certificate store is read once a process rather than once a client (30 ms of a core), and compiled modules are kept,
    so that each process that a test starts need not compile gtm (up to a second). A client that says nothing of time waits for
    half a minute: on a busy machine an answer takes longer than the five seconds that httpx waits for.
    """
    from httpx import _config
    from httpx._transports import default

    default.create_ssl_context = _ssl_context
    unsaid = _config.DEFAULT_TIMEOUT_CONFIG
    unsaid.connect = unsaid.read = unsaid.write = unsaid.pool = 30.0
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = (
        False  # pytest compiles each module of tests anew otherwise: 6 s of a core for each worker
    )


def _ssl_context(verify: Any = True, cert: Any = None, trust_env: bool = True) -> ssl.SSLContext:
    """What httpx makes, but the default once only."""
    if verify is not True or cert is not None:
        return httpx.create_ssl_context(verify, cert, trust_env)
    store = tuple(os.environ.get(name) for name in ("SSL_CERT_FILE", "SSL_CERT_DIR")) if trust_env else None
    if store not in _contexts:
        _contexts[store] = httpx.create_ssl_context(trust_env=trust_env)
    return _contexts[store]


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Iterator[object]:
    """Have no garbage looked for among what thousands of tests are made of, which stays: that was a fifth of all work."""
    gc.disable()
    try:
        _load_share(session.config)
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def _load_share(config: pytest.Config) -> None:
    """Load this worker's share of the modules of tests before all of them.

    In a fresh checkout pytest rewrites the asserts of each module and keeps what it compiles, which takes 20 s of a core.
    All workers load the same modules in the same order, so each of them would do it all.
    """
    if not hasattr(config, "workerinput") or config.args != config.getini("testpaths"):
        return
    worker, workers = int(config.workerinput["workerid"][2:]), config.workerinput["workercount"]
    for path in sorted(config.rootpath.glob("tests/**/test_*.py"))[worker::workers]:
        module = ".".join(path.relative_to(config.rootpath).with_suffix("").parts)
        with suppress(Exception, pytest.skip.Exception):  # pytest says it when it comes to that module
            import_module(module)


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
    # In memory, where a database is made of its template for a fifth of what it takes on a disk.
    settings |= {
        "wal_level": "minimal",
        "max_wal_senders": "0",
        "max_wal_size": "64MB",
        "min_wal_size": "32MB",
    }
    memory = in_memory()
    place = tmp_path_factory.mktemp("postgres") if memory is None else Path(mkdtemp(dir=memory))
    with EmbeddedPostgres(place, settings=settings) as server:
        with psycopg.connect(server.url, autocommit=True) as session:
            session.execute(f"CREATE DATABASE {_TEMPLATE}")
            # A random password needs no stretching, and thousands of connections would each take 2 ms for it.
            session.execute("SET scram_iterations = 1")
            session.execute(f"ALTER USER gtm PASSWORD '{session.info.password}'")
        migrate.upgrade(_database(server, _TEMPLATE))
        yield server


def _database(server: EmbeddedPostgres, name: str) -> str:
    return server.url.replace("/gtm?", f"/{name}?")


@contextmanager
def fresh_database(server: EmbeddedPostgres, template: str) -> Iterator[str]:
    """The URL of a database made of a template, which then goes."""
    name = f"test_{next(_numbers)}"
    with psycopg.connect(server.url, autocommit=True) as session:
        session.execute(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY FILE_COPY")
        try:
            yield _database(server, name)
        finally:
            if server.alive():
                session.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def database_url(postgres: EmbeddedPostgres) -> Iterator[str]:
    """The URL of a fresh database with gtm's tables, the test's own."""
    with fresh_database(postgres, _TEMPLATE) as url:
        yield url


@pytest.fixture
def shared_demo(tmp_path_factory: pytest.TempPathFactory) -> System:
    """A running `gtm serve --demo` for tests that leave it as they found it, in the files of `_SHARING`.

    To start and stop one takes 7 s of CPU, and to let it run a tenth of a core: it ends after the last of these files.
    """
    from tests.system.harness import system

    if not _shared:
        stack = ExitStack()
        running = stack.enter_context(system(tmp_path_factory.mktemp("shared") / "data", "--demo"))
        _shared.append((running, stack))
    return _shared[0][0]


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> None:
    """End the shared demo when no test is next that may want it."""
    if _shared and (nextitem is None or not _shares(nextitem)):
        _shared.pop()[1].close()


@pytest.fixture(scope="session")
def prepared_template(postgres: EmbeddedPostgres) -> str:
    """The name of a database with `tests.api.conftest.TOKENS` and the first revision."""
    from tests.api.conftest import prepare

    name = f"{_TEMPLATE}_prepared"
    with psycopg.connect(postgres.url, autocommit=True) as session:
        session.execute(f"CREATE DATABASE {name} TEMPLATE {_TEMPLATE}")
    prepare(_database(postgres, name))
    return name


@pytest.fixture(scope="session")
def world_template(postgres: EmbeddedPostgres, prepared_template: str) -> str:
    """The same with `tests.worlds.control.POLICY` in force: hundreds of tests begin with it, and to apply it takes as long as to start control."""
    from tests.api.conftest import make_world

    name = f"{prepared_template}_world"
    with psycopg.connect(postgres.url, autocommit=True) as session:
        session.execute(f"CREATE DATABASE {name} TEMPLATE {prepared_template}")
        make_world(_database(postgres, name))
        # A control that stops while it looks at the database may leave that connection to its process's end, and what is connected to is no template.
        session.execute(
            "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE datname = %s", (name,)
        )
    return name


@pytest.fixture
def prepared_url(postgres: EmbeddedPostgres, prepared_template: str) -> Iterator[str]:
    """The URL of a fresh database with `tests.api.conftest.TOKENS` and the first revision, the test's own."""
    with fresh_database(postgres, prepared_template) as url:
        yield url


@pytest.fixture
def empty_database_url(postgres: EmbeddedPostgres) -> Iterator[str]:
    """The URL of a fresh database without any tables, the test's own."""
    with fresh_database(postgres, "template0") as url:
        yield url
