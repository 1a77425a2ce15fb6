"""Whether the other side takes what is written."""

from __future__ import annotations

import asyncio
from typing import cast


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
