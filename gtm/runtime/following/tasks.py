"""Tasks of a process: started one by one, and ended together."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Coroutine
from typing import Any, NoReturn

logger = logging.getLogger(__name__)


class Tasks:
    """What a process does at once. None of it fails; if one does, it is better to restart than to go on half.

    Args:
        failed: called when one has failed.
    """

    def __init__(self, failed: Callable[[], None]) -> None:
        self.failure: BaseException | None = None
        """Why one failed."""
        self._failed = failed
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Begin something."""
        task = asyncio.ensure_future(work)
        task.add_done_callback(self._ended)
        self._tasks.append(task)
        return task

    async def cancel(self) -> None:
        """End all that goes on."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            self.failure = task.exception()
            self._failed()


async def first_of(*events: asyncio.Event) -> None:
    """Wait until one of several events is set."""
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for wait in waits:
        wait.cancel()


def die(failure: BaseException) -> NoReturn:
    """End this process at once, and leave the workers alone: an orderly end would end them too."""
    logger.critical("the agent failed; its workers go on alone until the next", exc_info=failure)
    logging.shutdown()
    os._exit(1)
