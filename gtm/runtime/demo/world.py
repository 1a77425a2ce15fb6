"""The demo world's servers: `python -m gtm.runtime.demo.world BLOCK FD REGION…`, one real HTTP server a region.

FD is the listening socket of the block's switch address, which the parent holds too.

A failed region does not listen at all: its clients see refused connections, as when a region dies. `POST /NAME/fail`
and `POST /NAME/restore` on the switch address turn regions off and on.
"""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import socket
import sys
import threading
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from gtm.runtime import lifeline
from gtm.runtime.demo.block import PORT, REFUSAL_HOST, address
from gtm.runtime.logs import configure

logger = logging.getLogger(__name__)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256


class _Handler(BaseHTTPRequestHandler):
    """One answer to a request (HTTP/1.0: every answer closes its connection, so that a failure fails at once)."""

    def answer(self, status: HTTPStatus, document: object, content_type: str = "application/json") -> None:
        length = int(self.headers.get("Content-Length") or 0)
        if 0 < length < 1 << 20:
            self.rfile.read(length)
        body = json.dumps(document).encode() + b"\n"
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        logger.debug(format, *args)


class _RegionHandler(_Handler):
    """A region: healthy, and saying who it is."""

    def __init__(self, region: str, *args: object) -> None:
        self.region = region
        super().__init__(*args)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        if self.path == "/healthz":
            self.answer(HTTPStatus.OK, {"status": "ok", "region": self.region})
        else:
            said = {
                "region": self.region,
                "method": self.command,
                "path": self.path,
                "host": self.headers.get("Host"),
            }
            self.answer(HTTPStatus.OK, said)

    do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_GET  # noqa: N815 - the base class's names


class _RefusalHandler(_Handler):
    """Where DNS sends clients that no lawful region can serve."""

    def do_GET(self) -> None:
        document = {
            "type": "about:blank",
            "title": "Unavailable For Legal Reasons",
            "status": 451,
            "detail": "no region that may serve you is usable now; your request was not sent anywhere else",
        }
        self.answer(HTTPStatus.UNAVAILABLE_FOR_LEGAL_REASONS, document, "application/problem+json")

    do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_GET  # noqa: N815 - the base class's names


class World:
    """The servers of one block.

    Args:
        block: which 127.0.N.0/24 to stand on.
        switch: the listening socket of the switch address.
        regions: names, in the order of their addresses.
    """

    def __init__(self, block: int, switch: socket.socket, regions: list[str]) -> None:
        self._block = block
        self._switch = switch
        self._hosts = {name: address(block, number) for number, name in enumerate(regions, 1)}
        self._running: dict[str, _Server] = {}
        self._lock = threading.Lock()

    def start(self) -> None:
        """Start every region, the refusal page and the switch.

        Raises:
            OSError: an address is taken.
        """
        for name in self._hosts:
            self.restore(name)
        self._serve(address(self._block, REFUSAL_HOST), _RefusalHandler)
        switch = _Server(self._switch.getsockname(), partial(_SwitchHandler, self), bind_and_activate=False)
        switch.socket.close()
        switch.socket = self._switch
        _run(switch)

    def state(self) -> dict[str, str]:
        """Region → `up` or `failed`."""
        return {name: "up" if name in self._running else "failed" for name in self._hosts}

    def fail(self, name: str) -> None:
        """Stop a region's server; nothing if it is stopped."""
        with self._lock:
            server = self._running.pop(name, None)
            if server is not None:
                server.shutdown()
                server.server_close()

    def restore(self, name: str) -> None:
        """Start a region's server again; nothing if it runs."""
        with self._lock:
            if name not in self._running:
                self._running[name] = self._serve(self._hosts[name], partial(_RegionHandler, name))

    def _serve(self, host: str, handler: object) -> _Server:
        return _run(_Server((host, PORT), handler))  # type: ignore[arg-type]


def _run(server: _Server) -> _Server:
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    return server


class _SwitchHandler(_Handler):
    """`GET /` tells every region's state; `POST /NAME/fail` and `POST /NAME/restore` change one."""

    def __init__(self, world: World, *args: object) -> None:
        self.world = world
        super().__init__(*args)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        self.answer(HTTPStatus.OK, self.world.state())

    def do_POST(self) -> None:
        _, name, action = (*self.path.split("/"), "", "")[:3]
        if name not in self.world.state() or action not in ("fail", "restore"):
            self.answer(
                HTTPStatus.NOT_FOUND, {"detail": f"there is no demo region `{name}`, or no action `{action}`"}
            )
            return
        (self.world.fail if action == "fail" else self.world.restore)(name)
        self.answer(HTTPStatus.OK, self.world.state())


async def _until_stopped() -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    lifeline.watch(stop.set)
    await stop.wait()


def main() -> None:
    """Run the world until the parent is gone or says so."""
    configure("info", "demo")
    block, descriptor, *regions = sys.argv[1:]
    World(int(block), socket.socket(fileno=int(descriptor)), regions).start()
    asyncio.run(_until_stopped())


if __name__ == "__main__":
    main()
