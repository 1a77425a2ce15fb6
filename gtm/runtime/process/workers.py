"""The workers of one process: started, heard, started again when they die, and ended, each over a line of its own."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

from gtm.feed.wire import MAX_LINE, FeedError, Lines
from gtm.runtime.process.forkserver import Process
from gtm.runtime.process.handed import document
from gtm.runtime.process.lifeline import Lifeline, terminate

# --- A line between two processes of one gtm: a socket pair carrying messages, one a line. Both ends are the same version. ---
#
# Law: neither side waits for the other. Of messages to one that does not read, only the newest of a kind waits.


_Out = TypeVar("_Out")
_In = TypeVar("_In")
_Kind = TypeVar("_Kind")


class LineEnd(Generic[_Out, _In]):
    """One end, in an event loop.

    Subclasses say what is spoken.
    """

    says: Lines[_Out]
    hears: Lines[_In]

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._waiting: dict[type[_Out], _Out] = {}
        self._wake = asyncio.Event()
        self._sender = asyncio.ensure_future(self._send())

    @classmethod
    async def over(cls, end: socket.socket) -> Self:
        """Speak over one end of a socket pair."""
        reader, writer = await asyncio.open_connection(sock=end, limit=MAX_LINE)
        return cls(reader, writer)

    def put(self, messages: Iterable[_Out]) -> None:
        """Send when the other side is ready to read; a newer message of the same kind replaces one still waiting."""
        for message in messages:
            self._waiting.pop(type(message), None)
            self._waiting[type(message)] = message
        self._wake.set()

    def unsent(self, kind: type[_Kind]) -> _Kind | None:
        """The message of a kind that waits still: the next of its kind replaces it."""
        return next((one for one in self._waiting.values() if isinstance(one, kind)), None)

    async def get(self) -> _In | None:
        """The next message; None when the other side is gone.

        Raises:
            FeedError: it sent something else than a message.
        """
        while line := await self._read():
            message = self.hears.decode(line)
            if message is not None:
                return message
        return None

    async def close(self) -> None:
        """Hang up."""
        self._sender.cancel()
        self._writer.close()

    async def _read(self) -> bytes:
        try:
            return await self._reader.readline()
        except OSError:
            return b""

    async def _send(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._waiting:
                message = self._waiting.pop(next(iter(self._waiting)))
                self._writer.write(self.says.encode(message))
                try:
                    await self._writer.drain()
                except OSError:
                    return


# --- A child process that is kept running: started, watched, and started again when it ends by itself. ---


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


# --- The workers of one process: started, heard, started again when they die, and ended, each over a line of its own. ---


logger = logging.getLogger(__name__)

_Line = TypeVar("_Line", bound=LineEnd[Any, Any])

PATIENCE = 5.0
"""Seconds that a worker may take to end, beyond those for what it has begun."""


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

    async def _live(
        self, name: object, process: Process, line: LineEnd[Any, _In], take: Callable[[_In], None]
    ) -> int | None:
        """Hear one until it is gone, and see it end; its exit code."""
        if self._finishing.is_set():  # it was being started when the others were told
            process.terminate()
        try:
            await self._hear(name, line, take)
            # Who has hung up answers nobody any more.
            return await asyncio.wait_for(process.wait(), PATIENCE)
        except TimeoutError:
            logger.error("worker %s hung up, but does not end: it is killed", name)
            process.kill()
            return await process.wait()
        finally:
            await line.close()
            await terminate(process, PATIENCE)

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
