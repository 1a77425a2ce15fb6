"""A connection on which one thing is asked of a backend."""

from __future__ import annotations

import asyncio
from typing import Generic, TypeVar

Answer = TypeVar("Answer")


class Question(asyncio.Protocol, Generic[Answer]):
    """`done` gets what is answered, or an exception."""

    def __init__(self, done: asyncio.Future[Answer]) -> None:
        self.done = done
        self._transport: asyncio.Transport | None = None

    def close(self) -> None:
        """End the connection."""
        if self._transport is not None:
            self._transport.abort()
        if self.done.done():
            if not self.done.cancelled():
                self.done.exception()  # it has been seen
        else:
            self.done.cancel()
