"""What an earlier `gtm serve` on the data directory left when it was killed, and what to say if that keeps a port.

Its control ends by itself, and its edge hands its sockets over; either takes a moment. Whoever holds the lock file of its kind in the data
directory is one of these, and nobody else is. On another directory its edge goes on for as long as nothing starts there.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shlex
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

from gtm.lockfile import holder_of
from gtm.runtime.edge import orphans
from gtm.runtime.following.handover import HandoverError
from gtm.runtime.process.sockets import PortInUseError
from gtm.storage.embedded.lock import LOCK

logger = logging.getLogger(__name__)

PATIENCE = 15.0
"""Seconds for which a process of an earlier start may take to end, or to hand its sockets over."""
_AGAIN = 0.1
"""Seconds between two tries."""
_LISTEN = "0A"
"""What /proc/net says of a TCP socket that listens."""


async def given_up(
    lock: Path, what: str, take: Callable[[], Awaitable[None]], stopped: Callable[[float], Awaitable[bool]]
) -> None:
    """Take ports, once a process of an earlier start has given them up.

    Args:
        lock: the lock file that it holds.
        what: what it is called.
        take: takes the ports, or raises PortInUseError.
        stopped: waits for so many seconds, and says whether this start was told to end meanwhile; nothing is taken then.

    Raises:
        PortInUseError: a port is taken. If such a process is there, and stays, the message says how to end it.
        HandoverError: it is an edge, and does not hand its sockets over; likewise.
        OSError: an address is not this machine's, or may not be bound.
    """
    deadline = asyncio.get_running_loop().time() + PATIENCE
    said = False
    while True:
        process = holder_of(lock)  # before the try: one that has the port now may be gone when that fails
        try:
            return await take()
        except HandoverError as error:
            raise type(error)(error.errno, f"{error.strerror}{_advice(process)}") from error
        except PortInUseError as error:
            if process is None:
                elsewhere = await asyncio.to_thread(left_on, error.port)
                if elsewhere is None:
                    raise
                message = (
                    f"{error.strerror}; the edge of a `gtm serve` that was killed goes on there: start that again on its data "
                    f"directory, or end the edge with `gtm edge --stop --data-dir {shlex.quote(str(elsewhere))}`"
                )
                raise PortInUseError(error.errno, message) from error
            if asyncio.get_running_loop().time() > deadline:
                message = (
                    f"{error.strerror}; the {what} of an earlier start on `{lock.parent}` (process {process or 'unknown'}) "
                    f"may hold it, and has not ended within {PATIENCE:.0f} s{_advice(process)}"
                )
                raise PortInUseError(error.errno, message) from error
            if not said:
                where = (error.strerror or "").partition(";")[0]
                logger.info(
                    "waiting for the %s of an earlier start (process %s) to end: %s", what, process, where
                )
                said = True
        if await stopped(_AGAIN):
            return None


def _advice(process: str | None) -> str:
    """How to end it, appended to what is wrong."""
    return f": end it with `kill -9 {process}`, and start again" if process and process.isdecimal() else ""


def left_on(port: int) -> Path | None:
    """The data directory of a `gtm serve` that was killed and whose edge has a port, as far as this user may look: root anywhere."""
    sockets = {f"socket:[{inode}]" for inode in _inodes(port)}
    for process in Path("/proc").glob("[0-9]*/fd") if sockets else ():
        try:
            opened = [os.readlink(one) for one in process.iterdir()]  # noqa: PTH115 - most are no paths
        except OSError:  # gone, or not ours to see
            continue
        if not sockets.isdisjoint(opened):
            for one in map(Path, opened):
                if (
                    one.name == orphans.LOCK
                    and one.with_name(LOCK).exists()
                    and holder_of(one.with_name(LOCK)) is None
                ):
                    return one.parent
    return None


def _inodes(port: int) -> set[str]:
    """The sockets that a port of this machine is bound by, any address and protocol."""
    found = set()
    for table in ("tcp", "tcp6", "udp", "udp6"):
        lines: list[str] = []
        with suppress(OSError):  # a machine without IPv6, or without /proc
            lines = Path("/proc/net", table).read_text().splitlines()[1:]
        for fields in map(str.split, lines):
            listens = fields[3] == _LISTEN or table.startswith("udp")
            if listens and int(fields[1].rpartition(":")[2], 16) == port:
                found.add(fields[9])
    return found
