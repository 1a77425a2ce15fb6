"""Request lines that no honest client sends, at a balancer's plane and at its own page."""

from __future__ import annotations

import asyncio

from gtm.runtime.balancer.admin import Admin
from gtm.settings import LOOPBACK
from tests import request_lines
from tests.balancer.world import Backend, Peer, run, world
from tests.runtime.balancer.test_admin import Shown


def test_odd_request_lines_at_its_page() -> None:
    """Each is answered or refused, HEAD as GET without the body, another method with 405, and nothing is left in the log (RFC 9110 §9)."""

    async def main() -> None:
        admin = Admin(Shown(), LOOPBACK)
        server = await asyncio.get_running_loop().create_server(admin.connection, "127.0.0.1", 0)
        address = server.sockets[0].getsockname()
        assert await asyncio.to_thread(request_lines.wrong, address) == {}

        async def said(method: str, path: str, more: str = "") -> tuple[bytes, bytes]:
            line = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n{more}\r\n".encode()
            head, _, body = (await asyncio.to_thread(request_lines.answer, address, line)).partition(
                b"\r\n\r\n"
            )
            return head, body

        for path in ("/readyz", "/metrics", "/state", "/nothing"):
            head, body = await said("GET", path)
            assert body
            assert await said("HEAD", path) == (head, b"")
        assert (await said("OPTIONS", "/readyz"))[0].startswith(b"HTTP/1.1 200 ")
        for method in ("POST", "PUT", "TRACE"):
            head, _ = await said(method, "/metrics")
            assert head.startswith(b"HTTP/1.1 405 Method Not Allowed\r\n")
            assert b"\r\nallow: GET, HEAD, OPTIONS\r\n" in head
        head, _ = await said("CONNECT", "a:1")
        assert head.startswith(b"HTTP/1.1 405 ")
        head, _ = await said("GET", "/readyz", "Connection: upgrade\r\nUpgrade: websocket\r\n")
        assert head.startswith(b"HTTP/1.1 200 ")
        server.close()

    run(main)


def test_odd_request_lines_at_its_plane() -> None:
    """What can be carried is answered by the backend, the rest is refused."""

    async def main() -> None:
        async def script(peer: Peer) -> None:
            while True:
                request = await peer.request()
                body = b"" if request.start.startswith(b"HEAD") else b"ok"
                peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n" + body)

        async with world(await Backend(script).start()) as w:
            assert await asyncio.to_thread(request_lines.wrong, w.address) == {}

    run(main)
