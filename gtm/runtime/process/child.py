"""A child process that is kept running: started, watched, and started again when it ends by itself."""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field

from gtm.runtime.process.forkserver import Process
from gtm.runtime.process.lifeline import Lifeline, terminate

logger = logging.getLogger(__name__)

_SETTLED = 10.0
_LONGEST_PAUSE = 5.0
_PATIENCE = 10.0
"""Seconds that a child may take to stop."""


def pause_after(quick_deaths: int) -> float:
    """Seconds to wait before starting again something that has died this many times in a row, each time soon."""
    return min(0.1 * 2.0**quick_deaths, _LONGEST_PAUSE)


def ending(code: int | None) -> str:
    """How a process ended, in words."""
    if code is not None and code < 0:
        return f"killed by {signal.Signals(-code).name}"
    return f"exit code {code}"


async def keep(name: str, run: Callable[[], Awaitable[int | None]], finishing: asyncio.Event) -> None:
    """Run a process, and run it again whenever it ends, until nothing is to be begun any more.

    Args:
        name: what it is called in the log.
        run: starts it, waits for its end, and returns its exit code; raises OSError where it cannot be started.
        finishing: is set when the process that keeps it ends; whoever cancels this instead ends it, too.
    """
    quick_deaths = 0
    while not finishing.is_set():
        started = time.monotonic()
        try:
            how = ending(await run())
        except OSError as error:  # no memory, processes or descriptors: others may give some back
            how = f"it cannot be started: {error.strerror or error}"
        if finishing.is_set():
            return
        quick_deaths = quick_deaths + 1 if time.monotonic() - started < _SETTLED else 0
        pause = pause_after(quick_deaths)
        logger.error("%s ended (%s); starting it again in %.1f s", name, how, pause)
        with suppress(TimeoutError):
            await asyncio.wait_for(finishing.wait(), pause)


@dataclass(eq=False, slots=True)
class Child:
    """One process of `gtm serve`.

    `name` is what it is called in the log, `arguments` are module and arguments for `python -m`. `handed` says what it is handed, at
    every start (the database's address may have changed since). It inherits `pass_fds`; `forks`: it starts processes itself.
    """

    name: str
    arguments: list[str]
    handed: Callable[[], bytes]
    lifeline: Lifeline
    pass_fds: tuple[int, ...] = ()
    forks: bool = False
    process: Process | None = field(default=None, init=False)
    _keeper: asyncio.Task[None] | None = field(default=None, init=False)

    async def start(self) -> None:
        """Start it, and keep it running from now on."""
        self._keeper = asyncio.ensure_future(keep(self.name, self._run, asyncio.Event()))

    async def restart(self) -> None:
        """Stop it and start it anew, with what it is handed asked again."""
        await self.stop()
        await self.start()

    async def stop(self) -> None:
        """Stop it for good."""
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
        if self.process is not None:
            await terminate(self.process, _PATIENCE)

    async def _run(self) -> int:
        self.process = await self.lifeline.spawn(
            self.arguments, self.handed(), self.pass_fds, forks=self.forks
        )
        return await self.process.wait()
