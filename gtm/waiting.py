"""How long an answer is waited for: in time in which this process could have read it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

STOOD_STILL = 0.05
"""Seconds by which a timer is late in a process that was stopped or had no processor; in a busy one it is less."""


@asynccontextmanager
async def waiting(seconds: float) -> AsyncIterator[None]:
    """Wait for so many seconds, as `asyncio.timeout` does, and longer by what this process stood still at the end of them: by as many seconds more, of its own running, at the most.

    A process that was stopped, or had no processor, finds its timers due before it has read what came meanwhile: event loops run timers first
    (libuv), or end who waits before he has heard (asyncio). It would blame all that it asks for its own pause, at once.

    Raises:
        TimeoutError: they have gone.
    """
    loop = asyncio.get_running_loop()
    left = seconds
    timer: asyncio.TimerHandle

    def look(due: float) -> None:
        nonlocal left, timer
        now = loop.time()
        late = min(now - due, left)
        if late < STOOD_STILL:
            limit.reschedule(now)
        else:
            left -= late
            timer = loop.call_at(now + late, look, now + late)

    end = loop.time() + seconds
    async with asyncio.timeout(None) as limit:
        timer = loop.call_at(end, look, end)
        try:
            yield
        finally:
            timer.cancel()
