"""How much memory a request takes that is held open: the balancer's, per request, both of its connections included.

    python -m tests.bench.held_bench [requests]

Clients ask for streams of events that have begun and then say nothing for long, as streams of slow models do. Three processes:
clients and backends do not count. JSON on the last line: `{"held": …, "bytes_per_held": …, "aim": 61440}`.
"""

# ruff: noqa: ARG002 - the parts keep contracts of which they need little

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import resource
import sys
from multiprocessing.connection import Connection
from pathlib import Path

import uvloop

from gtm.balancer.plane.backend.backends import Route
from gtm.balancer.plane.contracts import SentRequest
from gtm.balancer.plane.exchange import Exchange
from gtm.balancer.plane.proxy import Proxy
from gtm.runtime.process.connections import MAX_CONNECTIONS, Connections

_ASK = (
    b"POST /v1/chat/completions HTTP/1.1\r\nHost: model.test\r\nAuthorization: Bearer %b\r\nAccept: */*\r\n"
    b"Content-Type: application/json\r\nUser-Agent: bench\r\nContent-Length: %d\r\n\r\n%b"
)
_BODY = b'{"model":"m","stream":true,"messages":[{"role":"user","content":"%b"}]}' % (b"word " * 400)
_BEGUN = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\nb\r\ndata: one\n\n\r\n"


class _Open:
    """Lets everything pass, at once, to one backend."""

    def __init__(self, route: Route) -> None:
        self._route = route
        self.held = 0

    def judge(self, exchange: Exchange, now: float) -> None:
        return None

    def unready(self) -> str:
        return ""

    def renew(self, exchange: Exchange) -> None:
        return None

    def cors(self, exchange: Exchange) -> None:
        return None

    def more_headers(self, exchange: Exchange) -> bytes:
        return b"x-forwarded-for: 192.0.2.1\r\n"

    def offer(self, exchange: Exchange, now: float) -> None:
        exchange.admitted()

    def ended(self, exchange: Exchange, now: float) -> None: ...

    def withdraw(self, exchange: Exchange, now: float) -> None: ...

    def tick(self, now: float) -> None: ...

    def pick(self, exchange: Exchange, tried: tuple[str, ...], now: float) -> SentRequest:
        self.held += 1
        return SentRequest(self._route, self)

    def end(self, exchange: Exchange, how: str) -> None:
        self.held -= 1

    def failed(self, sent: SentRequest, detail: str, now: float) -> None: ...

    def usable(self) -> int:
        return 1

    def routes(self) -> tuple[Route, ...]:
        return (self._route,)


def _resident() -> int:
    with Path("/proc/self/statm").open() as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _balancer(backend: int, line: Connection) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        parts = _Open(Route(f"http://127.0.0.1:{backend}"))
        proxy = Proxy(parts, parts, parts, room=Connections(MAX_CONNECTIONS), loop=loop, region="r1")
        proxy.start()
        server = await loop.create_server(proxy.connection, "127.0.0.1", 0, backlog=4096)
        line.send(server.sockets[0].getsockname()[1])
        while (await loop.run_in_executor(None, line.recv)) != "end":
            line.send((_resident(), parts.held))
        server.close()
        proxy.close()

    uvloop.run(main())


def _backend(line: Connection) -> None:
    class Begins(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            self.transport = transport

        def data_received(self, data: bytes) -> None:
            if data.endswith(b"]}"):
                self.transport.write(_BEGUN)  # type: ignore[attr-defined]

    async def main() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(Begins, "127.0.0.1", 0, backlog=4096)
        line.send(server.sockets[0].getsockname()[1])
        await loop.run_in_executor(None, line.recv)
        server.close()

    uvloop.run(main())


async def _held(port: int, count: int, line: Connection) -> int:
    """Bytes for each of so many held requests, beyond those of some that warm up."""

    async def ask() -> asyncio.StreamWriter:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(_ASK % (b"k" * 40, len(_BODY), _BODY))
        await asyncio.wait_for(reader.readuntil(b"data: one\n\n"), 30)
        return writer

    async def asked(number: int) -> tuple[int, list[asyncio.StreamWriter]]:
        writers = []
        for _ in range(0, number, 50):
            writers += await asyncio.gather(*(ask() for _ in range(50)))
        line.send("how much")
        resident, held = line.recv()
        assert held >= number, held
        return resident, writers

    before, warm = await asked(100)
    after, writers = await asked(count)
    for writer in warm + writers:
        writer.transport.abort()
    return (after - before) // count


def main() -> None:
    """Run it."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    context = multiprocessing.get_context("spawn")
    backend_line, backend_end = context.Pipe()
    backend = context.Process(target=_backend, args=(backend_end,), daemon=True)
    backend.start()
    line, end = context.Pipe()
    balancer = context.Process(target=_balancer, args=(backend_line.recv(), end), daemon=True)
    balancer.start()
    each = uvloop.run(_held(line.recv(), count, line))
    line.send("end")
    backend_line.send("end")
    balancer.join(10)
    backend.join(10)
    print(json.dumps({"held": count, "bytes_per_held": each, "aim": 60 * 1024}))


if __name__ == "__main__":
    main()
