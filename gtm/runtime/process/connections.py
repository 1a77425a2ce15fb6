"""A process's connections: how many it keeps, and which goes when another comes.

Laws:
  1. No client keeps another out: where there are as many as may be, the client with the most of them gives one up
     (`gtm.core.shares`): of those that are idle since their last answer, and those whose request is awaited, whichever are
     more, the one that has been so for longest. Where all of its own are being answered, an idle one of any client goes;
     where there is none, the one of its own that has not taken its answer for longest.
  2. A process never runs out of descriptors because of its clients: the limit is lower than what the system grants.
"""

from __future__ import annotations

import asyncio
import logging
import resource
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any, Protocol

from gtm.core.shares import Shares
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


def fitting(descriptors: int, each: int = 1) -> int:
    """How many connections to keep where so many descriptors are granted.

    Args:
        descriptors: of the process.
        each: how many a connection takes: two, where another leads on from here.
    """
    return max(1, min(MAX_CONNECTIONS, max(descriptors - _APART, descriptors // 2) // each))


@dataclass(slots=True, eq=False)
class _Group:
    """One client's connections, by what they wait for; of each, those that have longest come first."""

    client: Hashable
    idle: dict[Connection, None] = field(default_factory=dict)
    arriving: dict[Connection, None] = field(default_factory=dict)
    answered: dict[Connection, None] = field(default_factory=dict)


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
    """The connections of one server, by client and by what they wait for.

    Args:
        limit: at most so many.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.evicted = 0
        """Those that have gone for others."""
        self._groups: dict[Connection, _Group] = {}
        self._clients: dict[Hashable, _Group] = {}
        self._resting: dict[_Group, None] = {}
        """Those that have an idle one, and some that had one: who has none any more is left out when somebody looks (`_rested`)."""
        self._shares: Shares[Hashable] = Shares()

    def __len__(self) -> int:
        return len(self._groups)

    @property
    def clients(self) -> int:
        """How many clients something is kept of."""
        return len(self._clients | dict.fromkeys(group.client for group in self._resting))

    def enter(self, connection: Connection, client: Hashable = None) -> None:
        """Take in a new connection, for which another may have to go.

        Args:
            connection: the new one.
            client: whose it is, as a prefix of addresses; the connection itself where that is nobody's.
        """
        if len(self._groups) >= self.limit:
            leaving = self._leaving()
            self.leave(leaving)
            self.evicted += 1
            leaving.evict()
        group = self._clients.get(client)
        if group is None:
            group = self._clients[client] = _Group(client)
        self._groups[connection] = group
        self._shares.add(client, 1)
        # Not idle before its first answer: those that come in a crowd would push each other out before they had asked.
        group.arriving[connection] = None

    def _leaving(self) -> Connection:
        """Find the connection that goes for another: there is one at least."""
        most = self._clients[self._shares.largest()]
        if most.idle or most.arriving:
            return next(iter(most.arriving if len(most.arriving) > len(most.idle) else most.idle))
        rested = self._rested()
        return next(iter(most.answered if rested is None else rested.idle))

    def _rested(self) -> _Group | None:
        """Find a client with an idle connection. Each that has none any more was put there by a request, and goes by this."""
        while self._resting:
            found = next(iter(self._resting))
            if found.idle:
                return found
            del self._resting[found]
        return None

    def leave(self, connection: Connection) -> None:
        """A connection has ended, or is about to."""
        group = self._groups.pop(connection, None)
        if group is None:
            return
        for those in (group.idle, group.arriving, group.answered):
            those.pop(connection, None)
        self._shares.add(group.client, -1)
        if not group.idle and not group.arriving and not group.answered:
            self._resting.pop(group, None)
            del self._clients[group.client]

    def begins(self, connection: Connection) -> None:
        """The first byte of a further request, where no other is being answered."""
        group = self._groups.get(connection)
        if group is not None and connection in group.idle:
            del group.idle[connection]
            group.arriving[connection] = None

    def arrived(self, connection: Connection) -> None:
        """A request is there, and is being answered; of one that came at once, nobody need say that it begins."""
        group = self._groups.get(connection)
        if group is None:
            return
        if connection in group.idle:
            del group.idle[connection]
        elif connection in group.arriving:
            del group.arriving[connection]
        else:
            return
        group.answered[connection] = None

    def rests(self, connection: Connection, *, arriving: bool) -> None:
        """All that had arrived is answered; `arriving`: more is on its way."""
        group = self._groups.get(connection)
        if group is None:
            return
        if connection in group.answered:
            del group.answered[connection]
        elif connection in group.arriving:
            del group.arriving[connection]
        else:
            return
        if arriving:
            group.arriving[connection] = None
        else:
            self._resting[group] = None
            group.idle[connection] = None
