"""The workers of one process: started, heard, started again when they die, and ended, each over a line of its own."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Generic, TypeVar

from gtm.feed.wire import FeedError
from gtm.runtime.process.child import keep
from gtm.runtime.process.forkserver import Process
from gtm.runtime.process.handed import document
from gtm.runtime.process.lifeline import Lifeline
from gtm.runtime.process.line import LineEnd

logger = logging.getLogger(__name__)

_Line = TypeVar("_Line", bound=LineEnd[Any, Any])
_In = TypeVar("_In")


class Workers(Generic[_Line]):
    """All of them, of one kind.

    Args:
        module: what each runs.
        line: this process's end of a line.
        geoip_db: what they load alike, besides.
    """

    def __init__(self, module: str, line: type[_Line], geoip_db: Path | None) -> None:
        self._module = module
        self._line = line
        self._lifeline = Lifeline(
            [(f"{module}.__main__",), ("gtm.geoip.reader", "keep", str(geoip_db or ""))]
        )
        self._kept: list[asyncio.Task[None]] = []
        self._finishing = asyncio.Event()

    def _keep(self, name: object, run: Callable[[], Awaitable[int | None]]) -> None:
        """Run one, and again whenever it ends."""
        self._kept.append(asyncio.ensure_future(keep(f"worker {name}", run, self._finishing)))

    async def _begin(self, told: Any, lent: Sequence[int], *arguments: str) -> tuple[Process, _Line]:
        """Start one, at the other end of a line.

        Args:
            told: what it is handed, a dataclass whose `descriptor` is its end of the line.
            lent: descriptors that it gets besides.
            arguments: what others see behind its module in the list of processes.

        Raises:
            OSError: it cannot be started.
        """
        ours, theirs = socket.socketpair()
        try:
            descriptor = theirs.fileno()
            handed = document(replace(told, descriptor=descriptor))
            process = await self._lifeline.spawn(
                [self._module, *arguments], handed, pass_fds=(descriptor, *lent)
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        return process, await self._line.over(ours)

    async def _hear(self, name: object, line: LineEnd[Any, _In], take: Callable[[_In], None]) -> None:
        """Take one's messages until it is gone."""
        while True:
            try:
                message = await line.get()
            except (FeedError, ValueError) as error:
                logger.error("ignored a message from worker %s: %s", name, error)
                continue
            if message is None:
                return
            take(message)

    async def _finish(self, processes: Iterable[Process], patience: float) -> None:
        """End all once they have done what they have begun, within so many seconds."""
        self._finishing.set()
        for process in processes:
            with suppress(ProcessLookupError):
                process.terminate()
        if self._kept:
            await asyncio.wait(self._kept, timeout=patience)

    async def stop(self) -> None:
        """End all at once, and wait for them."""
        self._finishing.set()
        for task in self._kept:
            task.cancel()
        await asyncio.gather(*self._kept, return_exceptions=True)
        self._lifeline.close()
