"""What moves on pages: rendered once a second for all who see the same, and sent as server-sent events.

Laws:
  1. However many look at the same, it is made once; nobody looks: it is not made.
  2. Who takes nothing for a while misses what came meanwhile, and costs no memory: only the newest is kept.
  3. A stream ends with the session that it is for, and with the process.
  4. Who takes nothing for half a minute is not waited for: else nothing would end the stream, and it would be rendered for ever.
  5. Nobody has more than so many streams: with one more, the oldest ends. Else one person could have everything rendered in a thousand ways.

Source: HTML, "Server-sent events" (event stream format, `retry`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import cast

from starlette.responses import StreamingResponse
from starlette.types import Send

logger = logging.getLogger(__name__)

EVERY = 1.0
"""Seconds between two renderings."""
MOST = 40
"""Streams of one person."""
RETRY_MS = 1000
"""After which a browser whose stream has ended asks again."""


class Stream(StreamingResponse):
    """A stream on its way to a browser; law 4. Where the browser takes a little now and then, the server closes once that is gone."""

    patience = 30.0
    """Seconds for which one event may wait to be taken."""

    async def stream_response(self, send: Send) -> None:
        """Send what comes; see Starlette."""
        start = {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
        await send(start)
        events = cast("AsyncGenerator[bytes]", self.body_iterator)
        async with aclosing(events):
            async for event in events:
                try:
                    async with asyncio.timeout(self.patience):
                        await send({"type": "http.response.body", "body": event, "more_body": True})
                except TimeoutError:
                    return  # unfinished: the server closes the connection
        await send({"type": "http.response.body", "body": b"", "more_body": False})


Render = Callable[[], Awaitable[Mapping[str, str]]]
"""Makes the events of a page now: name → data."""


class _Channel:
    """What those see who see the same."""

    def __init__(self, render: Render, closed: Callable[[], bool]) -> None:
        self.watchers = 0
        self.newest = b""
        self.changed = asyncio.Event()
        self._render = render
        self._closed = closed
        self._task = asyncio.ensure_future(self._run())

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while not self._closed():
            began = loop.time()
            try:
                events = await self._render()
            except Exception:
                logger.exception("a page could not be rendered")
            else:
                self.newest = encoded(events)
                self._tell()
            await asyncio.sleep(max(0.05, EVERY - (loop.time() - began)))
        self._tell()

    def _tell(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()

    def end(self) -> None:
        """Nobody looks any more."""
        self._task.cancel()


class Live:
    """See above.

    Args:
        closed: whether the process takes its leave.
    """

    def __init__(self, closed: Callable[[], bool]) -> None:
        self._closed = closed
        self._channels: dict[str, _Channel] = {}
        self.open: dict[str, list[object]] = {}
        """By person, the oldest first: a mark for each stream that may go on."""

    async def stream(
        self, key: str, render: Render, still_allowed: Callable[[], bool], whose: str
    ) -> AsyncGenerator[bytes]:
        """The stream of one browser.

        Args:
            key: the same for all who see the same.
            render: makes it.
            still_allowed: whether this browser may go on.
            whose: what the person is called who looks.
        """
        mark, mine = object(), self.open.setdefault(whose, [])
        mine.append(mark)
        del mine[:-MOST]
        channel = self._channels.get(key)
        if channel is None:
            channel = self._channels[key] = _Channel(render, self._closed)
        channel.watchers += 1
        sent = b""
        try:
            yield b"retry: %d\n\n" % RETRY_MS
            while not self._closed() and mark in mine and still_allowed():
                changed = channel.changed
                if channel.newest and channel.newest is not sent:
                    sent = channel.newest
                    yield sent
                    continue
                await changed.wait()
        finally:
            if mark in mine:
                mine.remove(mark)
            if not mine:
                self.open.pop(whose, None)
            channel.watchers -= 1
            if not channel.watchers:
                channel.end()
                del self._channels[key]


def encoded(events: Mapping[str, str]) -> bytes:
    r"""Events as they are sent.

    >>> encoded({"a": "1\n2"})
    b'event: a\ndata: 1\ndata: 2\n\n'
    """
    lines = []
    for name, data in events.items():
        lines.append(f"event: {name}")
        lines += [f"data: {line}" for line in data.splitlines() or [""]]
        lines.append("")
    return ("\n".join(lines) + "\n").encode()
