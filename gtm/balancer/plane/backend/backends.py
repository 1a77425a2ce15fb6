"""The way to one backend: its address, and connections to it that wait for the next request.

The last one that came back is taken first: those beyond what the load needs grow old and are closed, before the backend
closes them itself (many model servers do after five seconds) under a request that is on its way. One that has waited for longer
than a moment is looked at in the kernel before it is taken: what it was sent meanwhile is its end, or nobody's.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Callable
from urllib.parse import urlsplit

from gtm.balancer.plane.backend.upstream import Upstream

IDLE = 4.0
"""Seconds after which a connection that waits is closed: uvicorn, which serves most model servers, waits for five."""
MAX_IDLE = 256
"""Connections that wait to one backend."""
_FRESH = 0.1
"""Seconds for which a connection that came back is taken without a look."""


_PLAIN = re.compile(r"[\x21-\x7e]+")


class Route:
    """How one backend is reached.

    Args:
        url: `http://` or `https://`, host, port, and a path that goes before every target.
        tls: what an https backend must show, and what is shown to it; asked for if it is one.
        server_name: the name that it must show, and is asked by (SNI); None: the URL's host.
        idle: seconds after which a connection that waits is closed.

    Raises:
        ValueError: the URL is none that can be reached.
    """

    def __init__(
        self,
        url: str,
        tls: Callable[[], ssl.SSLContext] = ssl.create_default_context,
        *,
        server_name: str | None = None,
        idle: float = IDLE,
    ) -> None:
        wrong = ValueError(f"`{url[:200]}` is no URL of a backend: write `http://host:port`")
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            raise wrong from None
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise wrong
        if parts.username is not None or not _PLAIN.fullmatch(parts.hostname + parts.path):
            raise wrong
        self.url = url
        self.host = parts.hostname
        self.port = port or (443 if parts.scheme == "https" else 80)
        self.host_field: bytes | None = None
        """What requests say there in Host; None: what their clients say, and of checks the URL's."""
        self.prefix = parts.path.rstrip("/").encode()
        self.tls = tls() if parts.scheme == "https" else None
        self.server_name = (server_name or self.host) if self.tls is not None else None
        self._idle: list[Upstream] = []
        self._idle_for = idle
        self.open = 0
        """Connections there are, busy or not."""
        self._closed = False

    @property
    def waiting(self) -> int:
        """Connections that wait."""
        return len(self._idle)

    def take(self, now: float) -> Upstream | None:
        """A connection that waits, if there is one."""
        while self._idle:
            found = self._idle.pop()
            if found.usable and (now - found.idle_since < _FRESH or found.silent):
                return found
            found.abort()
        return None

    def put(self, connection: Upstream, now: float) -> None:
        """Take a connection back whose response is complete."""
        if self._closed or not connection.usable or len(self._idle) >= MAX_IDLE:
            connection.abort()
            return
        if not connection.transport.is_reading():  # its end would not be noticed
            connection.transport.resume_reading()
        connection.idle_since = now
        self._idle.append(connection)

    def expire(self, now: float) -> None:
        """Close those that have waited for too long: the first ones, since the last is taken first."""
        kept = now - self._idle_for
        count = 0
        for connection in self._idle:
            if connection.idle_since > kept:
                break
            count += 1
            connection.abort()
        if count:
            del self._idle[:count]

    def close(self) -> None:
        """Close all that wait, and those that are busy once they are given back: nobody comes this way any more."""
        self._closed = True
        for connection in self._idle:
            connection.abort()
        self._idle.clear()

    async def connect(self, loop: asyncio.AbstractEventLoop, clock: Callable[[], float]) -> Upstream:
        """Open another connection.

        Raises:
            OSError: the backend does not take it.
            ssl.SSLError: it does not show what it must.
        """
        connection = await self.opened(loop, clock)
        if not connection.usable:
            raise ConnectionError("the backend closed the connection as soon as it had taken it")
        # Counted here: of one that is given up while it opens, the event loop never tells the end.
        connection.counted = True
        self.open += 1
        return connection

    async def opened(self, loop: asyncio.AbstractEventLoop, clock: Callable[[], float]) -> Upstream:
        """A connection that has just opened.

        Raises:
            OSError: nobody takes it.
            ssl.SSLError: who does does not show what it must.
        """
        _, connection = await loop.create_connection(
            lambda: Upstream(self, clock),
            self.host,
            self.port,
            ssl=self.tls,
            server_hostname=self.server_name,
        )
        return connection
