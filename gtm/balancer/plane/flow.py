"""Whether the other side takes what is written, and is there at all."""

from __future__ import annotations

import asyncio
import select
from typing import cast

_HUNG_UP = getattr(select, "POLLRDHUP", 0) | select.POLLHUP | select.POLLERR


def waits(transport: asyncio.Transport, events: int) -> bool:
    """Whether the kernel has something to tell of a connection that the event loop has not come to, or does not ask for."""
    poll = select.poll()
    poll.register(transport.get_extra_info("socket").fileno(), events)
    return bool(poll.poll(0))


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
