"""What stands between the provider and control in tests: it counts, breaks connections off, and speaks TLS."""

from __future__ import annotations

import http.client
import ssl
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import urlsplit

Trouble = Callable[[str], str | int | None]
"""What befalls a request to a path: `before` and `after` control had it the connection breaks off; a status is
answered in place of control; None: nothing."""


class Proxy:
    """Forwards requests to control. `seen` holds the method and path of each."""

    def __init__(self, to: str, *, tls: ssl.SSLContext | None = None) -> None:
        """Take control's address, and how to speak TLS."""
        self._to = urlsplit(to)
        self.seen: list[tuple[str, str]] = []
        self.trouble: Trouble = lambda _: None
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

            def _forward(self) -> None:
                proxy._serve(self)

            do_GET = do_POST = do_PUT = do_DELETE = _forward  # noqa: N815 - the names that http.server asks for

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        scheme = "http" if tls is None else "https"
        self.url = f"{scheme}://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _serve(self, asked: BaseHTTPRequestHandler) -> None:
        path = asked.path.partition("?")[0]
        self.seen.append((asked.command, path))
        body = asked.rfile.read(int(asked.headers.get("Content-Length", 0)))
        trouble = self.trouble(path)
        if trouble == "before":
            asked.close_connection = True
            return
        if isinstance(trouble, int):
            self._say(asked, trouble, {"X-GTM-Tier": "control"}, b'{"detail": "there is no such path"}')
            return
        connection = http.client.HTTPConnection(str(self._to.hostname), self._to.port, timeout=60)
        try:
            headers = {name: value for name, value in asked.headers.items() if name.lower() != "host"}
            connection.request(asked.command, asked.path, body, headers)
            answer = connection.getresponse()
            said = answer.read()
        finally:
            connection.close()
        if trouble == "after":
            asked.close_connection = True
            return
        kept = {name: value for name, value in answer.getheaders() if name.lower() in _KEPT}
        self._say(asked, answer.status, kept, said)

    @staticmethod
    def _say(asked: BaseHTTPRequestHandler, status: int, headers: dict[str, str], body: bytes) -> None:
        asked.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            asked.send_header(name, value)
        asked.end_headers()
        asked.wfile.write(body)


_KEPT = frozenset({"content-type", "x-gtm-tier", "retry-after", "etag"})
