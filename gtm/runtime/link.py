"""The line between an edge's agent and one of its workers: a socket pair carrying feed messages.

Law: the agent's end closing means that the agent is gone. Its worker then stops, so that no orphan goes on answering
from a View that nobody renews.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterable

from gtm.feed.wire import MAX_LINE, Message, decode, encode


class AgentEnd:
    """The agent's end. Messages to a worker that does not read are bounded: only the newest of a kind waits."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._waiting: dict[type[Message], Message] = {}
        self._wake = asyncio.Event()
        self._sender = asyncio.ensure_future(self._send())

    @classmethod
    async def over(cls, end: socket.socket) -> AgentEnd:
        """Speak over one end of a socket pair."""
        reader, writer = await asyncio.open_connection(sock=end, limit=MAX_LINE)
        return cls(reader, writer)

    def put(self, messages: Iterable[Message]) -> None:
        """Send when the worker is ready to read; a newer message of the same kind replaces one still waiting."""
        for message in messages:
            self._waiting.pop(type(message), None)
            self._waiting[type(message)] = message
        self._wake.set()

    async def get(self) -> Message | None:
        """The worker's next message; None when it is gone.

        Raises:
            FeedError: the worker sent something else than a message.
        """
        while line := await self._read():
            message = decode(line)
            if message is not None:
                return message
        return None

    async def close(self) -> None:
        """Hang up; the worker stops."""
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
                self._writer.write(encode(message))
                try:
                    await self._writer.drain()
                except OSError:
                    return


class WorkerEnd:
    """The worker's end, blocking: one thread reads, any may write a line at a time."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self._writing = threading.Lock()
        self._file = end.makefile("rb")

    def get(self) -> Message | None:
        """The agent's next message; None when the agent is gone.

        Raises:
            FeedError: the agent sent something else than a message.
        """
        while line := self._read():
            message = decode(line)
            if message is not None:
                return message
        return None

    def put(self, message: Message) -> None:
        """Send a message.

        Raises:
            OSError: the agent is gone.
        """
        line = encode(message)
        with self._writing:  # a long line is sent in pieces
            self._socket.sendall(line)

    def _read(self) -> bytes:
        try:
            return self._file.readline()
        except OSError:
            return b""
