"""Time that this process stood still is not held against those that it waits for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
import uvloop

from gtm.waiting import STOOD_STILL, waiting
from tests.paused import PausedLoop, prompt_server


@pytest.mark.parametrize(
    "new_loop", [PausedLoop, pytest.param(uvloop.new_event_loop, marks=pytest.mark.drill)]
)
def test_what_came_meanwhile_is_read(new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    """The timer is due before it."""

    async def main() -> bytes:
        async def asked() -> bytes:
            async with waiting(3):
                reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
                writer.write(b"?")
                found = await reader.readexactly(2)
                writer.close()
                return found

        task = asyncio.create_task(asked())
        await server.stand_still(5)
        return await task

    with prompt_server(b"ok") as server, asyncio.Runner(loop_factory=new_loop) as runner:
        assert runner.run(main()) == b"ok"


async def _in_vain(seconds: float) -> None:
    """Wait for what never comes."""
    async with waiting(seconds):
        await asyncio.get_running_loop().create_future()


def test_what_never_comes_ends_in_a_process_that_stands_still_again_and_again() -> None:
    """After the time, as much for what it stood still, and as much of standing still: 30 pauses here, and what is under way then."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, PausedLoop)

        task = asyncio.create_task(_in_vain(100))
        pauses = 0
        while not task.done():
            await asyncio.sleep(0)
            loop.ahead += 10
            pauses += 1
            assert pauses < 40
        with pytest.raises(TimeoutError):
            await task

    with asyncio.Runner(loop_factory=PausedLoop) as runner:
        runner.run(main())


def test_a_busy_process_is_none_that_stood_still() -> None:
    """Its timers are a little late: time is up then."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, PausedLoop)

        task = asyncio.create_task(_in_vain(10_000))
        await asyncio.sleep(0)
        loop.ahead += 10_000 + STOOD_STILL / 10
        with pytest.raises(TimeoutError):
            await task

    with asyncio.Runner(loop_factory=PausedLoop) as runner:
        runner.run(main())


def test_what_is_cancelled_ran_out_of_no_time() -> None:
    """It ends as it was told to."""

    async def main() -> None:
        task = asyncio.create_task(_in_vain(3600))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
