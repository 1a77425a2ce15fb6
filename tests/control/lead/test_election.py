"""One control of several is active: what the one that is cut off knows, and when."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from time import monotonic
from urllib.parse import quote

import psycopg
import pytest

from gtm.control.lead.active import Active
from gtm.control.lead.election import FENCE, Election, Standing
from gtm.control.live.present import Current, Present
from gtm.core.model.policy import Policy
from gtm.core.model.state import State
from gtm.core.policy.compile import compile_policy
from gtm.core.quota.leases import LeaseUse
from gtm.feed.reports import EdgeReport
from gtm.storage.session import Database
from tests.worlds.process import SETTINGS

pytestmark = pytest.mark.anyio


class Wire:
    """A way to Postgres over TCP that can fall silent: nothing is closed, and nothing gets through any more."""

    def __init__(self, database_url: str) -> None:
        self._target = psycopg.conninfo.conninfo_to_dict(database_url)
        self._passes = asyncio.Event()
        self._passes.set()
        self._carried = 0

    def silence(self) -> None:
        """Let nothing through from now on, of new connections neither."""
        self._passes.clear()

    def mend(self) -> None:
        """Let all through, what was held up first."""
        self._passes.set()

    @asynccontextmanager
    async def url(self) -> AsyncIterator[str]:
        """The database's URL by this way."""
        given = {name: quote(str(value), safe="") for name, value in self._target.items()}
        async with await asyncio.start_server(self._serve, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            yield f"postgresql://{given['user']}:{given.get('password', '')}@127.0.0.1:{port}/{given['dbname']}"
        await _eventually(lambda: not self._carried)

    async def _serve(self, near: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        self._carried += 1
        await self._passes.wait()
        host, port = str(self._target["host"]), int(self._target.get("port", 5432))
        far, there = (
            await asyncio.open_unix_connection(f"{host}/.s.PGSQL.{port}")
            if host.startswith("/")
            else await asyncio.open_connection(host, port)
        )
        await asyncio.gather(self._carry(near, there), self._carry(far, back))
        self._carried -= 1

    async def _carry(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await source.read(65536):
                await self._passes.wait()
                sink.write(data)
        sink.close()
        with suppress(OSError):
            await sink.wait_closed()


async def _eventually(check: Callable[[], object], within: float = 30.0) -> None:
    """Wait for something, for so many seconds."""
    began = monotonic()
    while not check():
        assert monotonic() - began < within, f"did not happen within {within:g} s"
        await asyncio.sleep(0.02)


async def test_a_silent_network_is_noticed_in_time(database_url: str) -> None:
    """Who is cut off without a word stops before anybody else may lease, whatever its connection still waits for."""
    wire = Wire(database_url)
    async with wire.url() as url:
        databases = Database(url), Database(database_url)
        elections = [
            Election(database, name, lambda: None) for database, name in zip(databases, "ab", strict=True)
        ]
        tasks = [asyncio.create_task(elections[0].run())]
        try:
            await _eventually(lambda: elections[0].standing is Standing.ACTIVE)
            tasks.append(asyncio.create_task(elections[1].run()))
            await _eventually(lambda: elections[0].standbys)
            wire.silence()
            await _eventually(lambda: elections[0].standing is Standing.ADRIFT, FENCE)
        finally:
            wire.mend()
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            for database in databases:
                await database.dispose()


@pytest.mark.parametrize(("standing", "works"), [(Standing.ACTIVE, True), (Standing.ADRIFT, False)])
async def test_a_control_adrift_neither_leases_nor_plans(standing: Standing, *, works: bool) -> None:
    """Another may do both by now. It takes reports in all the same."""
    database = Database("postgresql://nobody@127.0.0.1:1/none")
    election = Election(database, "a", lambda: None)
    election.standing = standing
    compiled = compile_policy(Policy(), (), revision=1)
    current = Current(Present(State(1), compiled=compiled))
    active = Active(database, SETTINGS, current, election, time.time, monotonic=time.monotonic)
    reply = active.reports.take("edge", "192.0.2.1", EdgeReport("1", 1, 1, {}, leases=LeaseUse("i", 1)))
    assert (reply.leases is not None) is works
    assert [edge.name for edge in active.reports.vantages.live()] == ["edge"]
    await active.planning.tick()
    assert (active.planning.latest.plan.made > 0) is works
    await database.dispose()
