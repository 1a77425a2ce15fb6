"""The access log's file: lines are collected here, and written by a thread, so that no request waits for a disk.

Laws:
  1. What is collected is bounded (`MOST_LINES`, `MOST_BYTES`), that which is being written included. What does not fit is dropped, and counted:
     each line that came is counted once, as written or as dropped, or is still here.
  2. Lines are whole: each write ends with a line's end, and is one system call (O_APPEND), so that those of several workers do not mix. A disk that
     is full can cut one: it is ended by the next write, and written again.
  3. A file that was moved or removed gets no further line: the next is for the one that its path names then, made if it has to be.
  4. What goes wrong is said once, at most each minute, and tried again with each look.
"""

from __future__ import annotations

import asyncio
import logging
import os
import select
import stat
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from errno import EBADF
from itertools import islice
from pathlib import Path

from gtm.balancer.config import AccessLogDocument
from gtm.balancer.plane.access import LONGEST, AccessLines
from gtm.geoip.address import Address

logger = logging.getLogger(__name__)

MOST_LINES = 10_000
MOST_BYTES = 4 << 20
EVERY = 0.2
"""Seconds between two looks at what was collected."""
_SOON = MOST_BYTES // 4
"""Bytes collected while others were written that are not kept waiting."""
_AT_ONCE = 1000
"""Lines in one write."""
SAY_EVERY = 60.0
"""Seconds between two complaints in the log."""
_END_WITHIN = 3.0
"""Seconds at the end for what is still here."""
_PATIENCE_MS = 200
"""For a pipe whose reader is slow."""
_STDOUT = 1
_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_MODE = 0o640


class LogFile:
    """Appends lines to what a path names, in the thread of whoever calls; one at a time.

    Args:
        path: of the file; None: standard output.
        stdout: its descriptor.
    """

    def __init__(self, path: Path | None, stdout: int = _STDOUT) -> None:
        self.path = path
        self._descriptor = stdout if path is None else -1
        self._torn = False
        """It ends in a part of a line."""

    def append(self, lines: Sequence[bytes]) -> tuple[int, OSError | None]:
        """Write as many of them as go now: how many those were, and what kept the others from it, if that is known."""
        done = 0
        try:
            descriptor, regular = self._opened()
            while done < len(lines):
                some = lines[done : done + _AT_ONCE]
                if not regular:
                    some = some[: _fitting(some)]
                    if not _ready(descriptor):
                        break
                count = self._write(descriptor, some)
                done += count
                if not count:
                    break
        except BlockingIOError:  # another process has filled the pipe
            return done, None
        except OSError as error:
            return done, error
        return done, None

    @property
    def is_open(self) -> bool:
        """Whether there is something to close."""
        return self.path is not None and self._descriptor >= 0

    def close(self) -> None:
        """Let go of the file."""
        if self.is_open:
            with suppress(OSError):
                os.close(self._descriptor)
            self._descriptor = -1

    def _write(self, descriptor: int, lines: Sequence[bytes]) -> int:
        """Write the lines; returns how many of them are whole in the file."""
        data = b"".join(lines)
        before = b"\n" if self._torn else b""
        count = os.write(descriptor, before + data) - len(before)
        if count >= 0:
            self._torn = count > 0 and data[count - 1 : count] != b"\n"
        return data.count(b"\n", 0, max(0, count))

    def _opened(self) -> tuple[int, bool]:
        """The file that the path names now, and whether it is a regular one."""
        if self.path is None:
            if sys.__stdout__ is None:  # whatever has its number now is something else
                raise OSError(EBADF, "it is closed")
            return self._descriptor, stat.S_ISREG(os.fstat(self._descriptor).st_mode)
        if self._descriptor >= 0:
            held = os.fstat(self._descriptor)
            try:
                if os.path.samestat(held, self.path.stat()):
                    return self._descriptor, stat.S_ISREG(held.st_mode)
            except FileNotFoundError:
                pass
            self.close()
        self._descriptor = os.open(self.path, _FLAGS, _MODE)
        self._torn = False
        return self._descriptor, stat.S_ISREG(os.fstat(self._descriptor).st_mode)


def _fitting(lines: Sequence[bytes]) -> int:
    """How many of them a pipe takes at once: one at the least."""
    size = count = 0
    for line in lines:
        size += len(line)
        if size >= LONGEST:
            break
        count += 1
    return max(1, count)


def _ready(descriptor: int) -> bool:
    """Whether something that is no regular file takes a line now: of a pipe, that is a page."""
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    return bool(poll.poll(_PATIENCE_MS))


@dataclass(eq=False, repr=False)
class AccessLog:
    """See above.

    Args:
        folder: what paths are relative to.
        find: see `AccessLines`.
        say_every: seconds between two complaints in the log.
    """

    folder: Path
    find: Callable[[str | None, bytes | None, bytes | None], Address | None]
    say_every: float = SAY_EVERY

    def __post_init__(self) -> None:
        self.lines: AccessLines | None = None
        """Makes them; None: it is off."""
        self.written = 0
        self.dropped = 0
        self._document: AccessLogDocument | None = None
        self.file: LogFile | None = None
        """Where lines of now go; None: it never was on."""
        self.collected: deque[bytes] = deque()
        """Lines that are not written yet."""
        self.size = 0
        """Bytes of what is collected."""
        self._before = 0
        """Of what is collected, the lines that were made for the file before."""
        self._task: asyncio.Task[None] | None = None
        self._ending = asyncio.Event()
        self.failing = False
        """Whether the file could not be written at the last look."""
        self._said = False
        self._said_at = -self.say_every

    @property
    def used(self) -> bool:
        """Whether it is on, or was."""
        return self.file is not None

    def configure(self, document: AccessLogDocument | None) -> None:
        """From now on like this; None: it is off. What was collected is for the file that was named then, if that takes it; else for the one now."""
        if document == self._document:
            return
        self._document = document
        if document is None:
            self.lines = None
            return
        path = None if document.path == "-" else self.folder / document.path
        if self.file is None or self.file.path != path:
            old, self.file = self.file, LogFile(path)
            self._before = len(self.collected)
            if old is not None and self._task is None:
                old.close()
            # Else whoever writes closes it: a thread may be at it.
        self.lines = AccessLines(self._put, clients=document.clients, find=self.find)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        """Write what is here, as far as that goes."""
        self._ending.set()
        if self._task is not None:
            await self._task
        if self.collected:
            lost = len(self.collected)
            self.dropped += lost
            logger.error("the access log's last lines were not written: %d", lost)
        self.collected.clear()
        self.size = 0

    def _put(self, line: bytes) -> None:
        if len(self.collected) >= MOST_LINES or self.size + len(line) > MOST_BYTES:
            self.dropped += 1
            return
        self.collected.append(line)
        self.size += len(line)

    async def _run(self) -> None:
        file = self.file
        assert file is not None  # noqa: S101 - it is made before
        await self._look(file)  # so that what is wrong with it is said at once
        while not self._ending.is_set():
            if self.size < _SOON or self.failing:
                with suppress(TimeoutError):
                    async with asyncio.timeout(EVERY):
                        await self._ending.wait()
            if self.file is not file:
                file = await self._left(file)
                await self._look(file)
            elif self.collected:
                await self._look(file)
            elif self.lines is None and file.is_open:
                await asyncio.to_thread(file.close)
        if self.file is not file:
            file = await self._left(file)
        deadline = time.monotonic() + _END_WITHIN
        while self.collected and await self._look(file) and time.monotonic() < deadline:
            pass
        file.close()

    async def _left(self, file: LogFile) -> LogFile:
        """Write what was made for a file that is left, and close it: the file instead of it."""
        assert self.file is not None  # noqa: S101 - it was configured
        if self._before:
            await self._look(file, self._before)
            self._before = 0
        await asyncio.to_thread(file.close)
        return self.file

    async def _look(self, file: LogFile, most: int | None = None) -> bool:
        """Write what was collected so far, so many lines at the most; whether there is hope for the rest."""
        lines = list(islice(self.collected, len(self.collected) if most is None else most))
        count, error = await asyncio.to_thread(file.append, lines)
        for _ in range(count):
            self.size -= len(self.collected.popleft())
        self._before = max(0, self._before - count)
        self.written += count
        self._say(file, error)
        return error is None

    def _say(self, file: LogFile, error: OSError | None) -> None:
        now = time.monotonic()
        if error is None:
            if self._said:
                logger.info("the access log is written again; lines dropped so far: %d", self.dropped)
            self.failing = self._said = False
            return
        if not self.failing and now - self._said_at >= self.say_every:
            self._said, self._said_at = True, now
            name = "standard output" if file.path is None else f"`{file.path}`"
            logger.error(
                "the access log cannot be written: %s: %s. Requests go on; lines wait, then are dropped and counted",
                name,
                error.strerror or error,
            )
        self.failing = True
