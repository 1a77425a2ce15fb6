"""What an earlier `gtm serve` on the data directory left when it was killed, and what to say if that keeps a port.

Its control ends by itself, and its edge hands its sockets over; either takes a moment. Whoever holds the lock file of its kind in the data
directory is one of these, and nobody else is.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

from gtm.lockfile import holder_of
from gtm.runtime.following.handover import HandoverError
from gtm.runtime.process.sockets import PortInUseError

logger = logging.getLogger(__name__)

PATIENCE = 15.0
"""Seconds for which a process of an earlier start may take to end, or to hand its sockets over."""
_AGAIN = 0.1
"""Seconds between two tries."""


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
                raise
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
