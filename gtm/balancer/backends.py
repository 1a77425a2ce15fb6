"""The way to one backend: its address, and connections to it that wait for the next request.

The last one that came back is taken first: those beyond what the load needs grow old and are closed, before the backend
closes them itself (many model servers do after five seconds) under a request that is on its way.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from urllib.parse import urlsplit

from gtm.balancer.upstream import Upstream

IDLE = 4.0
"""Seconds after which a connection that waits is closed: uvicorn, which serves most model servers, waits for five."""
MAX_IDLE = 256
"""Connections that wait to one backend."""


class Route:
    """How one backend is reached.

    Args:
        url: `http://` or `https://`, host, port, and a path that goes before every target.
        tls: what an https backend must show, and what is shown to it; None: the system's authorities.

    Raises:
        ValueError: the URL is none that can be reached.
    """

    def __init__(self, url: str, tls: ssl.SSLContext | None = None, *, idle: float = IDLE) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise ValueError(f"`{url[:200]}` is no URL of a backend: write `http://host:port`")
        self.url = url
        self.host = parts.hostname
        self.port = parts.port or (443 if parts.scheme == "https" else 80)
        self.prefix = parts.path.rstrip("/").encode()
        self.tls = (tls or ssl.create_default_context()) if parts.scheme == "https" else None
        self._idle: list[Upstream] = []
        self._idle_for = idle
        self.open = 0
        """Connections there are, busy or not."""

    def take(self) -> Upstream | None:
        """A connection that waits, if there is one."""
        while self._idle:
            found = self._idle.pop()
            if found.usable:
                return found
        return None

    def put(self, connection: Upstream, now: float) -> None:
        """Take a connection back whose response is complete."""
        if not connection.usable or len(self._idle) >= MAX_IDLE:
            connection.abort()
            return
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
        """Close all that wait."""
        for connection in self._idle:
            connection.abort()
        self._idle.clear()

    async def connect(self, loop: asyncio.AbstractEventLoop, clock: Callable[[], float]) -> Upstream:
        """Open another connection.

        Raises:
            OSError: the backend does not take it.
            ssl.SSLError: it does not show what it must.
        """
        _, connection = await loop.create_connection(
            lambda: Upstream(self, clock), self.host, self.port, ssl=self.tls
        )
        return connection
