"""A line between two processes of one gtm: a socket pair carrying messages, one a line. Both ends are the same version.

Law: neither side waits for the other. Of messages to one that does not read, only the newest of a kind waits.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable
from typing import Generic, Self, TypeVar

from gtm.feed.wire import MAX_LINE, Lines

_Out = TypeVar("_Out")
_In = TypeVar("_In")


class LineEnd(Generic[_Out, _In]):
    """One end, in an event loop.

    Subclasses say what is spoken.
    """

    says: Lines[_Out]
    hears: Lines[_In]

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._waiting: dict[type[_Out], _Out] = {}
        self._wake = asyncio.Event()
        self._sender = asyncio.ensure_future(self._send())

    @classmethod
    async def over(cls, end: socket.socket) -> Self:
        """Speak over one end of a socket pair."""
        reader, writer = await asyncio.open_connection(sock=end, limit=MAX_LINE)
        return cls(reader, writer)

    def put(self, messages: Iterable[_Out]) -> None:
        """Send when the other side is ready to read; a newer message of the same kind replaces one still waiting."""
        for message in messages:
            self._waiting.pop(type(message), None)
            self._waiting[type(message)] = message
        self._wake.set()

    async def get(self) -> _In | None:
        """The next message; None when the other side is gone.

        Raises:
            FeedError: it sent something else than a message.
        """
        while line := await self._read():
            message = self.hears.decode(line)
            if message is not None:
                return message
        return None

    async def close(self) -> None:
        """Hang up."""
        self._sender.cancel()
        self._writer.close()

    async def _read(self) -> bytes:
        try:
            return await self._reader.readline()
        except OSError:
            return b""

    async def _send(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._waiting:
                message = self._waiting.pop(next(iter(self._waiting)))
                self._writer.write(self.says.encode(message))
                try:
                    await self._writer.drain()
                except OSError:
                    return
