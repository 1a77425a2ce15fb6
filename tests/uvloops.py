"""Tests in uvloop, as servers run: in one loop for all of a process, which is never closed.

Closing one waits for connections that are still closing, and for some of them for ever: no time limit of pytest's ends that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from functools import cache
from typing import Any, TypeVar

import uvloop

_Result = TypeVar("_Result")


@cache
def _loop() -> asyncio.AbstractEventLoop:
    return uvloop.new_event_loop()


def run(main: Coroutine[Any, Any, _Result]) -> _Result:
    """Run something to its end; what it has started and left is cancelled, as by `asyncio.run`."""
    loop = _loop()
    loop.set_exception_handler(None)
    task = loop.create_task(main)
    try:
        return loop.run_until_complete(task)
    finally:
        left = asyncio.all_tasks(loop)
        for one in left:
            one.cancel()
        if left:
            loop.run_until_complete(_ended(left))


async def _ended(tasks: set[asyncio.Task[Any]]) -> None:
    await asyncio.gather(*tasks, return_exceptions=True)
