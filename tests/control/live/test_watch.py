"""How a control process follows its database."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import AsyncExitStack

import pytest
from sqlalchemy import text

from gtm.storage.session import Database
from gtm.storage.turns import CALLER
from tests.worlds import process

pytestmark = pytest.mark.anyio


async def test_a_look_at_the_database_waits_for_nobodys_turn(database_url: str) -> None:
    """Whoever asks for it: others wait for its end, and would wait for all that this caller waits for."""
    database = Database(database_url)
    try:
        watch = process.replica(database).watch
        await watch.refresh()
        CALLER.set("crowd")
        async with AsyncExitStack() as stack:
            while database.callers._is_free_for("crowd"):  # noqa: SLF001 - whether it has all that it may have
                await stack.enter_async_context(database.callers.turn("crowd"))
            other = asyncio.create_task(_in_turn(database))
            while not database.callers.waiting:  # noqa: ASYNC110 - there is no event of it
                await asyncio.sleep(0)
            await watch.refresh()
            assert database.callers.waiting == 1, "the caller's own still waits"
            assert CALLER.get() == "crowd"
        await other
    finally:
        await database.dispose()


async def test_a_server_that_hangs(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody who looks at control waits for it (hardware that swaps, a black hole: firecrawl/firecrawl#4291)."""
    monkeypatch.setattr("gtm.control.live.watch.CONNECT_TIMEOUT", 0.05)
    database = Database(database_url, pool_size=1, max_overflow=0)
    watch = process.replica(database).watch
    async with database.transaction() as tx:
        pid = int(await tx.connection.scalar(text("SELECT pg_backend_pid()")))
    os.kill(pid, signal.SIGSTOP)
    try:
        for _ in range(3):
            found = await watch.ping()
            assert found is not None
            assert "no answer within" in str(found)
    finally:
        os.kill(pid, signal.SIGCONT)
    while await watch.ping():  # noqa: ASYNC110 - the first answer is the one that was waited for
        await asyncio.sleep(0)
    await database.dispose()


async def test_many_who_ask_at_once_all_get_an_answer(database_url: str) -> None:
    """Also those who come when one question has ended and those who waited for it have not gone on yet."""
    database = Database(database_url)
    watch = process.replica(database).watch

    async def ask() -> None:
        for _ in range(20):
            assert await watch.ping() is None

    try:
        await asyncio.gather(*(ask() for _ in range(8)))
    finally:
        await database.dispose()


async def _in_turn(database: Database) -> None:
    async with database.transaction():
        pass
