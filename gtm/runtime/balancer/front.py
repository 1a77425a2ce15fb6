"""How clients come to a balancer, and it to its backends: plain or by TLS, behind a PROXY protocol or not."""

from __future__ import annotations

import asyncio
import logging
import resource
import socket
import ssl
from collections.abc import Iterable

from gtm.balancer.config import BalancerDocument
from gtm.balancer.plane.backend.backends import Route
from gtm.balancer.plane.client.proxy_protocol import ProxiedConnection
from gtm.balancer.plane.proxy import Proxy
from gtm.balancer.wire.tls import BackendContext, Listener

logger = logging.getLogger(__name__)

_BACKLOG = 2048


class Front:
    """See above.

    Args:
        document: what the balancer's file says.

    Raises:
        TlsError: a file of a certificate cannot be used.
    """

    def __init__(self, document: BalancerDocument) -> None:
        self._listener = None if document.tls is None else Listener(document.tls)
        self._backends = BackendContext(document.backend_tls)
        self._trusted = document.proxy_protocol
        self._hosts = document.hosts()

    @property
    def words(self) -> str:
        """What the log says of it."""
        tls = " (TLS)" if self._listener is not None else ""
        return f"{tls} (PROXY protocol from {len(self._trusted)} networks)" if self._trusted else tls

    async def listen(self, proxy: Proxy, sock: socket.socket) -> asyncio.Server:
        """Take connections of clients."""
        trusted, listener = self._trusted, self._listener

        def connection() -> asyncio.Protocol:
            if listener is not None:  # by the context of now: it is another when files have been read again
                return ProxiedConnection(proxy, trusted, listener.context)
            return ProxiedConnection(proxy, trusted) if trusted else proxy.connection()

        # As many as wait are accepted in one go, before any is looked at.
        backlog = max(1, min(_BACKLOG, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 8))
        return await proxy.loop.create_server(connection, sock=sock, backlog=backlog)

    def route(self, url: str) -> Route:
        """The way to a backend."""
        found = Route(url, lambda: self._backends.context, server_name=self._backends.server_name)
        found.host_field = self._hosts.get(url)
        return found

    def configure(self, document: BalancerDocument, routes: Iterable[Route]) -> None:
        """Say from now on in Host what the file says, also where the ways are known."""
        self._hosts = document.hosts()
        for route in routes:
            route.host_field = self._hosts.get(route.url)

    def http2(self) -> ssl.SSLContext:
        """What https backends must show to who speaks HTTP/2 with them."""
        return self._backends.http2

    def look(self) -> None:
        """Read certificates again whose files have changed."""
        for one in (self._listener, self._backends):
            problem = None if one is None else one.look()
            if problem is not None:
                logger.error("%s", problem)

    def renew(self, routes: Iterable[Route]) -> None:
        """Let the next connections to backends be made with what was read last."""
        for route in routes:
            if route.tls is not None:
                route.tls = self._backends.context
