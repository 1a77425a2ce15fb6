"""A process's connections: how many it keeps, and which goes when another comes.

Laws:
  1. No client keeps another out: where there are as many as may be, the one goes that has been idle longest since its
     last answer; where none is idle, the one whose request has been awaited longest; and where all are being answered,
     the one that has not taken its answer for longest.
  2. A process never runs out of descriptors because of its clients: the limit is lower than what the system grants.
"""

from __future__ import annotations

import asyncio
import logging
import resource
from typing import Any, Protocol

from gtm.transport import no_room

MAX_CONNECTIONS = 8192
"""HTTP connections of one process, where the system grants the descriptors: some 200 MB at most while they are idle."""
_WANTED = 16_384
"""Descriptors that a process asks for, if it may have them."""
_APART = 2048 + 256
"""Of them for all else: connections that are accepted in one go before any is looked at, files, links, probes."""


_FEW = 1024
"""Descriptors below which a process says how little that is."""
ACCEPTED = 16
"""Connections that a loop of asyncio accepts in one go: as many more than the limit may be open for a moment."""
_SAID_EVERY = 60.0
"""Seconds between two words about the same lack."""

_log = logging.getLogger(__name__)


class Connection(Protocol):
    """One of them."""

    def evict(self) -> None:
        """Close the connection at once: another has taken its place."""


def raise_descriptor_limit(*, serves: bool = True) -> int:
    """Raise this process's soft limit of open descriptors (often 1,024) as far as it may and needs; the limit then.

    Args:
        serves: it takes connections, and so says if it is granted few.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = _WANTED if hard == resource.RLIM_INFINITY else min(hard, _WANTED)
    if serves and allowed < _FEW:
        _log.warning(
            "this process is granted %d descriptors only, and keeps %d connections: let it have more (LimitNOFILE, ulimit -n)",
            allowed,
            fitting(allowed),
        )
    if soft != resource.RLIM_INFINITY and soft < allowed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
        return allowed
    return _WANTED if soft == resource.RLIM_INFINITY else soft


def fitting(descriptors: int) -> int:
    """How many connections to keep where so many descriptors are granted."""
    return max(1, min(MAX_CONNECTIONS, max(descriptors - _APART, descriptors // 2)))


def say_once_without_room(loop: asyncio.AbstractEventLoop) -> None:
    """Have a loop say in a line, once a minute at most, that it has no room for a connection; it then pauses by itself.

    asyncio says it with a traceback, for each connection that waits.
    """
    said = float("-inf")

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        nonlocal said
        error = context.get("exception")
        if "socket" not in context or error is None or not no_room(error):
            loop.default_exception_handler(context)
        elif loop.time() - said > _SAID_EVERY:
            said = loop.time()
            _log.error(
                "no connection can be accepted (%s): clients wait until there is room; let the process have more descriptors "
                "(LimitNOFILE, ulimit -n)",
                str(error.strerror).lower() if isinstance(error, OSError) else error,
            )

    loop.set_exception_handler(handle)


class Connections:
    """The connections of one server, by what they wait for; of each, those that have longest come first.

    Args:
        limit: at most so many.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._idle: dict[Connection, None] = {}
        self._arriving: dict[Connection, None] = {}
        self._answered: dict[Connection, None] = {}

    def enter(self, connection: Connection) -> None:
        """Take in a new connection, for which another may have to go."""
        if len(self._idle) + len(self._arriving) + len(self._answered) >= self._limit:
            leaving = next(iter(self._idle or self._arriving or self._answered))
            self.leave(leaving)
            leaving.evict()
        # Not idle before its first answer: those that come in a crowd would push each other out before they had asked.
        self._arriving[connection] = None

    def leave(self, connection: Connection) -> None:
        """A connection has ended, or is about to."""
        for group in (self._idle, self._arriving, self._answered):
            group.pop(connection, None)

    def begins(self, connection: Connection) -> None:
        """The first byte of a further request, where no other is being answered."""
        if connection in self._idle:
            del self._idle[connection]
            self._arriving[connection] = None

    def arrived(self, connection: Connection) -> None:
        """A whole request is there, and is being answered."""
        if connection in self._arriving:
            del self._arriving[connection]
            self._answered[connection] = None

    def rests(self, connection: Connection, *, arriving: bool) -> None:
        """All that had arrived is answered; `arriving`: more is on its way."""
        if connection in self._answered:
            del self._answered[connection]
        elif connection in self._arriving:
            del self._arriving[connection]
        else:
            return
        (self._arriving if arriving else self._idle)[connection] = None
