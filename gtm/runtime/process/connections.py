"""A process's connections: how many it keeps, and which goes when another comes.

Laws:
  1. No client keeps another out: where there are as many as may be, the one goes that has been idle longest since its
     last answer; where none is idle, the one whose request has been awaited longest; and where all are being answered,
     the one that has not taken its answer for longest.
  2. A process never runs out of descriptors because of its clients: the limit is lower than what the system grants.
"""

from __future__ import annotations

import resource
from typing import Protocol

MAX_CONNECTIONS = 8192
"""HTTP connections of one process, where the system grants the descriptors: some 200 MB at most while they are idle."""
_WANTED = 16_384
"""Descriptors that a process asks for, if it may have them."""
_APART = 2048 + 256
"""Of them for all else: connections that are accepted in one go before any is looked at, files, links, probes."""


class Connection(Protocol):
    """One of them."""

    def evict(self) -> None:
        """Close the connection at once: another has taken its place."""


def raise_descriptor_limit() -> int:
    """Raise this process's soft limit of open descriptors (often 1,024) as far as it may and needs; the limit then."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = _WANTED if hard == resource.RLIM_INFINITY else min(hard, _WANTED)
    if soft != resource.RLIM_INFINITY and soft < allowed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
        return allowed
    return _WANTED if soft == resource.RLIM_INFINITY else soft


def fitting(descriptors: int) -> int:
    """How many connections to keep where so many descriptors are granted."""
    return max(1, min(MAX_CONNECTIONS, max(descriptors - _APART, descriptors // 2)))


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
