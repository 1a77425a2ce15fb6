"""A real control tier: uvicorn in a thread, on a fresh database."""

from __future__ import annotations

import asyncio
import pickle
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Self

import httpx
import pytest
import uvicorn
import uvloop

from gtm.api.app import create_app
from gtm.control.live import tokens
from gtm.control.policy.apart import Apart
from gtm.control.policy.drafts import answer
from gtm.core.model.access import Role
from gtm.dashboard.app import with_dashboard
from gtm.dashboard.sign_in.identity import Identity
from gtm.geoip.reader import Locator
from gtm.runtime.control.answers import edge_answers
from gtm.settings import ControlSettings
from gtm.storage.session import Database
from tests.conftest import fresh_database
from tests.worlds.control import CHAT, GDPR, POLICY, REGIONS, ZONE, region  # noqa: F401 - for tests in a control tier

if TYPE_CHECKING:
    from gtm.storage.embedded import EmbeddedPostgres

UNBOUNDED = 3600.0
"""Seconds: longer than pytest lets any test run."""
TOKENS = {role: f"gtm_test_{role.value}" for role in Role}
"""The texts of a token of each role, which `prepare` makes."""


def prepare(url: str) -> None:
    """Make `TOKENS`, and the first revision. Tests that need no more than these take `prepared_url`."""

    async def work() -> None:
        database = Database(url)
        try:
            for role, text in TOKENS.items():
                regions = "eu-central" if role is Role.BALANCER else None
                await tokens.install(
                    database,
                    f"{role.value}-one",
                    role,
                    text,
                    edges="*",
                    regions=regions,
                    names="*" if role is Role.ACME else None,
                    owner=f"{role.value}-one",
                )
            assert await tokens.bootstrap(database) is None
        finally:
            await database.dispose()

    with ThreadPoolExecutor(1) as apart:  # a test in a browser has a running loop in its own thread
        apart.submit(asyncio.run, work()).result()


class Here(Apart):
    """Looks at drafts in this process: one of its own takes half a second of a core until it has loaded what it needs."""

    async def _said(self, job: bytes) -> bytes:
        return await asyncio.to_thread(lambda: answer(pickle.loads(job)))  # noqa: S301 - just pickled


@cache
def _places() -> Locator:
    """By the shipped database, which is read when it is first needed."""
    return Locator()


class Server:
    """uvicorn with the control application on a free loopback port.

    It records no demand, unless told to: the minutes in which a test happens to run would be among what that test recorded.
    """

    def __init__(
        self, database_url: str, *, identity: Callable[[str], Identity] | None = None, **settings: Any
    ) -> None:
        """Take who says who people are, made for where the dashboard is, and settings."""
        self._home = TemporaryDirectory()
        said = ControlSettings(data_dir=Path(self._home.name), **{"demand_days": 0, **settings})
        self.app = create_app(
            Database(database_url), said, lambda address: _places().locate(address), edge_answers
        )
        self.app.state.context = replace(self.app.state.context, apart=Here())
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        both = with_dashboard(self.app, *((self.url, identity(self.url)) if identity else ()))
        # As long as no client of a test's keeps a connection: one that the server closes just as a request comes is reset.
        config = uvicorn.Config(
            both, log_level="warning", timeout_graceful_shutdown=1, timeout_keep_alive=600
        )
        self._server = uvicorn.Server(config)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        async def serve() -> None:
            self._loop = asyncio.get_running_loop()
            await self._server.serve([self._socket])

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(serve())

    def do(self, act: Callable[[], object]) -> None:
        """Do something to what control has in memory, where it is used: in its event loop, which may be waking those who wait for it."""

        async def done() -> None:
            act()

        assert self._loop is not None
        asyncio.run_coroutine_threadsafe(done(), self._loop).result(60)

    def __enter__(self) -> Self:
        self._thread.start()
        with httpx.Client(trust_env=False, timeout=60) as client:
            while client.get(f"{self.url}/healthz").status_code != 200:
                pass
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._thread.join(UNBOUNDED)
        assert not self._thread.is_alive()
        self._home.cleanup()


@dataclass
class Api:
    """A control tier, and a client for each role."""

    server: Server
    viewer: httpx.Client
    operator: httpx.Client
    fence_admin: httpx.Client
    admin: httpx.Client
    edge: httpx.Client
    reporter: httpx.Client
    balancer: httpx.Client
    acme: httpx.Client
    anonymous: httpx.Client
    database_url: str

    @property
    def url(self) -> str:
        return self.server.url

    def put(self, path: str, body: dict[str, Any], **headers: str) -> httpx.Response:
        """PUT as an operator."""
        return self.operator.put(path, json=body, headers=headers)

    def must_put(self, path: str, body: dict[str, Any]) -> httpx.Response:
        """PUT that has to work."""
        response = self.put(path, body)
        assert response.status_code in (200, 201), response.text
        return response

    def revision(self) -> int:
        """The policy's latest."""
        found: int = self.viewer.get("/v1/revisions", params={"limit": 1}).json()["items"][0]["number"]
        return found


@contextmanager
def running(database_url: str) -> Iterator[Api]:
    """A control tier on a database."""
    with Server(database_url) as server, ExitStack() as clients:

        def client(**headers: str) -> httpx.Client:
            made = httpx.Client(base_url=server.url, headers=headers, trust_env=False, timeout=UNBOUNDED)
            return clients.enter_context(made)

        roles = {
            role.value.replace("-", "_"): client(Authorization=f"Bearer {text}")
            for role, text in TOKENS.items()
        }
        yield Api(server=server, anonymous=client(), database_url=database_url, **roles)


def make_world(url: str) -> None:
    """Put `POLICY` in force in a prepared database, as an operator."""
    with running(url) as api:
        response = api.operator.post("/v1/policy:apply", json={"policy": POLICY})
        assert response.status_code == 200, response.text


class Shared(ExitStack):
    """What tests marked `reads` share with the other such tests of their file."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: dict[str, Any] = {}


@pytest.fixture(scope="module")
def shared() -> Iterator[Shared]:
    """Empty at first."""
    with Shared() as found:
        yield found


@pytest.fixture
def api(request: pytest.FixtureRequest, postgres: EmbeddedPostgres) -> Iterator[Api]:
    """A running control tier on a database of the test's own, with a policy if the test takes `world`.

    A test marked `reads` gets one together with those that take the same of `live`, `world` and `api`.
    """
    of = next(name for name in ("live", "world", "api") if name in request.fixturenames)
    template: str = request.getfixturevalue("prepared_template" if of == "api" else "world_template")
    if request.node.get_closest_marker("reads") is None:
        with fresh_database(postgres, template) as url, running(url) as own:
            yield own
        return
    shared: Shared = request.getfixturevalue("shared")
    if of not in shared.kept:
        url = shared.enter_context(fresh_database(postgres, template))
        shared.kept[of] = shared.enter_context(running(url))
    yield shared.kept[of]
    unchanged = shared.kept[of].revision() == (1 if of == "api" else 2)
    assert unchanged, "it is marked `reads`, and changed the policy"


@pytest.fixture
def processes(api: Api) -> None:
    """Drafts are looked at in processes of their own, as everywhere but in tests, and waited for however long a busy machine leaves those, which are nice, waiting."""
    state = api.server.app.state
    state.context = replace(state.context, apart=Apart(patience=UNBOUNDED, wait=UNBOUNDED))


@pytest.fixture
def world(api: Api) -> Api:
    """A control tier with three regions, a zone, a service and a rule: `api` has made it of a database with these."""
    return api
