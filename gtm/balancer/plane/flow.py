"""Whether the other side takes what is written, and is there at all."""

from __future__ import annotations

import asyncio
import os
import select
from collections.abc import Iterator
from typing import cast

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


class Outflow:
    """A connection's unsent bytes, as they were when somebody last looked."""

    __slots__ = ("left", "moved", "transport")

    def __init__(self) -> None:
        self.transport: asyncio.Transport = cast("asyncio.Transport", None)
        self.left = 0
        """Bytes that were not sent then."""
        self.moved = 0.0
        """Monotonic seconds at which their number last changed."""

    def stuck(self, now: float) -> float:
        """Seconds for which none of what is written was taken."""
        left = self.transport.get_write_buffer_size()
        if left != self.left or not left:
            self.left, self.moved = left, now
        return now - self.moved
