"""Whether the other side takes what is written, and is there at all."""

from __future__ import annotations

import asyncio
import os
import select
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar, cast

from gtm.core.shares import Shares

_NONE = cast("asyncio.Transport", None)
_PIECE = 256 * 1024
"""Bytes of one read, as event loops read."""
_HUNG_UP = getattr(select, "POLLRDHUP", 0) | select.POLLHUP | select.POLLERR


def waits(transport: asyncio.Transport, events: int) -> bool:
    """Whether the kernel has something to tell of a connection that the event loop has not come to, or does not ask for."""
    poll = select.poll()
    poll.register(transport.get_extra_info("socket").fileno(), events)
    return bool(poll.poll(0))


def left_in(transport: asyncio.Transport) -> Iterator[bytes]:
    """What the kernel still has of a connection that has failed, in pieces: it is bounded by the kernel's buffer, for nothing more comes."""
    descriptor = transport.get_extra_info("socket").fileno()
    while True:
        try:
            data = os.read(descriptor, _PIECE)
        except OSError:  # there is nothing more, or why it failed stands there
            return
        if not data:
            return
        yield data


def feed(protocol: asyncio.BufferedProtocol, data: bytes) -> None:
    """Give a protocol bytes that were read for it."""
    rest = memoryview(data)
    while rest:
        buffer = memoryview(protocol.get_buffer(len(rest)))
        size = min(len(buffer), len(rest))
        buffer[:size] = rest[:size]
        protocol.buffer_updated(size)
        rest = rest[size:]


def hung_up(transport: asyncio.Transport) -> bool:
    """Whether the other side has gone, of a connection that nothing is read from: its end stands behind what waits."""
    return waits(transport, _HUNG_UP)


@dataclass(slots=True, eq=False, repr=False)
class Outflow:
    """A connection's unsent bytes, as they were when somebody last looked."""

    transport: asyncio.Transport = field(init=False, default=_NONE)
    left: int = field(init=False, default=0)
    """Bytes that were not sent then."""
    moved: float = field(init=False, default=0.0)
    """Monotonic seconds at which their number last changed."""

    def stuck(self, now: float) -> float:
        """Seconds for which none of what is written was taken."""
        left = self.transport.get_write_buffer_size()
        if left != self.left or not left:
            self.left, self.moved = left, now
        return now - self.moved


# --- Bytes that clients have sent and that are kept: bodies that are read or wait, heads that are not whole, requests behind another.
#
# Laws:
#   1. All together hold no more than `most`, and no client more than `each`, beyond the one read that shows it.
#   2. Whoever grows beyond what its client may have gives way itself. Where there is too much in all, the client that has the most gives way: whoever
#      grows, if it is of that one, and else what came last of that one's. So what is nearly whole is not given up for what has just begun.


_Holder = TypeVar("_Holder", bound=Hashable)

HELD_BESIDE_QUEUE = 256 * 1024 * 1024
"""Bytes that one process holds beside those that may wait in the queue (`queue_mib`)."""
REQUEST = 4096
"""What a request whose head is understood takes, in bytes, besides its body."""


class KeptBytes(Generic[_Holder]):
    """What connections hold, in bytes.

    Args:
        most: in all; one client may have half of it.
    """

    def __init__(self, most: int) -> None:
        self.bound(most)
        self._holders: dict[Hashable, dict[_Holder, int]] = {}
        self._clients: dict[_Holder, Hashable] = {}
        self._shares: Shares[Hashable] = Shares()

    def bound(self, most: int) -> None:
        """Hold no more than this from now on."""
        self.most, self.each = most, most // 2

    @property
    def total(self) -> int:
        """This is what all hold together."""
        return self._shares.total

    def has(self, holder: _Holder) -> bool:
        """Whether a connection holds something."""
        return holder in self._clients

    def hold(self, holder: _Holder, size: int, whose: Callable[[], Hashable]) -> None:
        """A connection holds so much now.

        Args:
            holder: the connection.
            size: bytes; 0: it holds nothing any more.
            whose: says which client's it is; asked when it begins to hold something.
        """
        if holder in self._clients:
            client = self._clients[holder]
        elif size:
            client = self._clients[holder] = whose()
        else:
            return
        holders = self._holders.setdefault(client, {})
        self._shares.add(client, size - holders.get(holder, 0))
        if size:
            holders[holder] = size
            return
        holders.pop(holder, None)
        del self._clients[holder]
        if not holders:
            del self._holders[client]

    def gives_way(self, grown: _Holder) -> tuple[_Holder, bool] | None:
        """Who gives way next after a connection holds more, and whether it is for its own client's bound; None: nobody needs to."""
        client = self._clients.get(grown)
        if grown in self._clients and self._shares[client] > self.each:
            return grown, True
        if self.total <= self.most:
            return None
        largest = self._shares.largest()
        if grown in self._clients and client == largest:
            return grown, False
        return next(reversed(self._holders[largest])), False
