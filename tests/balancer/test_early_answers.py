"""Servers that answer while a body is still coming, and close: their answer reaches the client, and counts for what it is.

The model (RFC 9112 §9.5, §9.6): whatever a server has said before its connection breaks was said. An answer that ends where its framing says
is whole; any other is not, and does not look so.

From apache/apisix#13366, h2o/h2o#2010, envoyproxy/envoy#2929 (413 of a server becomes 503), chimurai/http-proxy-middleware#265 (the connection is
reset), huggingface/text-generation-inference#1802.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from gtm.adapters.fullness import MOST_BYTES
from gtm.balancer.decide.picking import PoolPicker
from gtm.balancer.plane.client.downstream import LINGER, MOST_LINGER
from gtm.balancer.plane.contracts import SentRequest
from gtm.balancer.plane.exchange import FIRST, Exchange
from gtm.balancer.wire.refusals import Refusal
from gtm.core.balance.backends import Backend as Server
from gtm.core.balance.backends import Condition
from gtm.core.balance.choosing.values import ChoosingSettings as Choosing
from gtm.core.balance.health.health import BackendHealth
from gtm.core.balance.health.settings import HealthSettings
from tests.balancer.certificates import Authority
from tests.balancer.world import Backend, Message, Peer, World, ended_exchange, read_head, run, world

_HEAD = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000000\r\n\r\n"
_TOO_LARGE = b'{"error":{"message":"length limit exceeded","code":413}}'


class _Server:
    """Reads a request's head and no more; answers and closes when it is told to, at once: its kernel resets what is not read."""

    def __init__(self, tls: ssl.SSLContext | None) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._tls = tls
        self.url = f"http{'s' if tls else ''}://127.0.0.1:{self._listener.getsockname()[1]}"
        self._asked: socket.socket | None = None

    def ask(self) -> None:
        connection, _ = self._listener.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # else its end overtakes its answer
        if self._tls is not None:
            connection = self._tls.wrap_socket(connection, server_side=True)
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += connection.recv(1)
        self._asked = connection

    def answer(self, raw: bytes) -> None:
        assert self._asked is not None
        self._asked.sendall(raw)
        self._asked.close()
        self._asked = None

    def close(self) -> None:
        self._listener.close()
        if self._asked is not None:
            self._asked.close()


@contextlib.asynccontextmanager
async def _uploads(folder: Path, *, secure: bool) -> AsyncIterator[tuple[World, _Server]]:
    tls, more = None, {}
    if secure:
        ours = Authority(folder, "ca")
        own = ours.issue("server", "127.0.0.1")
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(own.chain, own.key)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(ours.file)
        more["tls"] = lambda: context
    server = _Server(tls)
    try:
        async with world(server.url, **more) as w:
            yield w, server
    finally:
        server.close()


async def _upload(w: World, server: _Server, raw: bytes, *, chunked: bool = False) -> tuple[Peer, Message]:
    """A client sends a body, and more of it in the very moment in which the server answers so and closes: nobody has read that when the write fails."""
    loop = asyncio.get_running_loop()

    def judge(exchange: Exchange, now: float) -> Refusal | None:
        if exchange.head.target == b"/now":
            server.answer(raw)
        return None if exchange.head.method == b"POST" else Refusal(404, "x", "x")

    w.gate.judge = judge  # type: ignore[method-assign]
    other = await w.client()
    other.send(b"GET /here HTTP/1.1\r\nHost: a\r\n\r\n")
    assert (await other.response()).status == 404
    client = await w.client()
    asked = loop.run_in_executor(None, server.ask)
    framing = b"Transfer-Encoding: chunked" if chunked else b"Content-Length: 10000000"
    first = bytes(FIRST + 1)
    client.send(b"POST / HTTP/1.1\r\nHost: a\r\n%b\r\n\r\n" % framing)
    client.send(b"%x\r\n%b\r\n" % (len(first), first) if chunked else first)
    await asked
    other.send(b"GET /now HTTP/1.1\r\nHost: a\r\n\r\n")
    client.send(b"5\r\nwhile\r\n" if chunked else b"while")
    assert (await other.response()).status == 404
    return client, await client.response()


def _raw(body: bytes, *, chunked: bool, status: bytes = b"413 Content Too Large") -> bytes:
    if not chunked:
        return b"HTTP/1.1 %b\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%b" % (status, len(body), body)
    pieces = [body[at : at + 1000] for at in range(0, len(body), 1000)]
    framed = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
    return b"HTTP/1.1 %b\r\nTransfer-Encoding: chunked\r\n\r\n%b0\r\n\r\n" % (status, framed)


@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.parametrize("chunked", [False, True])
def test_what_was_said_before_the_reset_was_said(tmp_path: Path, *, secure: bool, chunked: bool) -> None:
    """The model, by drawn answers: whole ones arrive whole, and the connection closes behind them; those that break off do not look whole."""
    draw = random.Random(7)

    async def main() -> None:
        async with _uploads(tmp_path, secure=secure) as (w, server):
            for status in (b"413 Content Too Large", b"401 Unauthorized", b"503 Full", b"200 OK"):
                body = draw.randbytes(draw.choice((1, 56, 5000, 50_000)))
                raw = _raw(body, chunked=chunked, status=status)
                client, answer = await _upload(w, server, raw, chunked=chunked)
                assert (answer.status, answer.body, answer.whole) == (int(status[:3]), body, True)
                assert answer.get("connection") == b"close"
                assert await client.end() == b""
                assert not w.picker.failures
                cut = draw.randint(1, 5 if chunked else len(body))
                client, answer = await _upload(w, server, raw[:-cut], chunked=chunked)
                if status.startswith(b"503") and not chunked and len(body) <= MOST_BYTES:
                    # It may have said that the server is full: nothing of it has gone to the client yet.
                    assert (answer.status, answer.whole) == (502, True)
                else:
                    assert (answer.status, answer.whole) == (int(status[:3]), False)
                assert len(w.picker.failures) == 1
                w.picker.failures.clear()
            _, answer = await _upload(w, server, b"HTTP/1.1 413 Content")  # no answer
            assert answer.status == 502

    run(main)


def test_an_answer_that_ends_with_its_connection_is_not_whole_by_a_reset(tmp_path: Path) -> None:
    """Where only the connection's end tells an answer's (RFC 9112 §6.3, rule 8), a reset tells that something is missing."""

    async def main() -> None:
        async with _uploads(tmp_path, secure=False) as (w, server):
            client, answer = await _upload(
                w, server, b"HTTP/1.1 413 Content Too Large\r\nConnection: close\r\n\r\n" + _TOO_LARGE
            )
            assert answer.status == 413
            assert not answer.whole
            assert await client.end() == b""

    run(main)


def test_a_client_that_sends_on_can_take_its_answer() -> None:
    """As long as it sends, its bytes are thrown away and its connection is not reset, within bounds (RFC 9112 §9.6; docs/limits.md)."""

    async def script(peer: Peer) -> None:
        await read_head(peer.reader)
        peer.send(_raw(_TOO_LARGE, chunked=False))
        await peer.end()

    async def main() -> None:
        async with world(await Backend(script).start()) as w:
            other = await w.client()

            async def sends(client: Peer) -> None:
                client.send(b"x")
                other.send(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
                await other.response()  # what came before it has been read

            async def uploads() -> Peer:
                client = await w.client()
                client.send(_HEAD, bytes(FIRST + 1))
                assert (await client.response()).body == _TOO_LARGE
                return client

            earliest = w.clock() + MOST_LINGER
            client = await uploads()
            latest = w.clock() + MOST_LINGER
            downstream = w.proxy.clients[-1]
            while not downstream.transport.is_closing():
                assert w.clock() < latest
                await sends(client)
                w.pass_time(LINGER * 0.6)
            assert w.clock() >= earliest
            await uploads()
            downstream = w.proxy.clients[-1]
            w.pass_time(LINGER)  # it has sent nothing
            assert downstream.transport.is_closing()

    run(main)


@pytest.mark.parametrize("early", [False, True])
def test_what_one_client_sends_ejects_nobody(*, early: bool) -> None:
    """Of unlike servers one refuses large bodies by their heads: that says nothing of it. Who says 4xx alone to whole requests is found, as ever (docs/backend-health.md)."""
    servers = [Server(f"http://10.0.0.{number}:8000") for number in range(2)]
    strict = servers[0].name
    health = BackendHealth(HealthSettings(checks={}), servers, 0.0)
    loop = cast("asyncio.AbstractEventLoop", SimpleNamespace(time=lambda: 1.0))
    draws = random.Random(3)
    picker = PoolPicker(servers, Choosing(), health, loop=loop, draw=draws.random)
    picker.conditions({one.name: Condition(healthy=True) for one in servers})
    for _ in range(60):
        exchange = ended_exchange()
        sent = picker.pick(exchange, (), 1.0)
        assert isinstance(sent, SentRequest)
        exchange.status = 413 if sent.route.url == strict else 200
        exchange.complete = not early or exchange.status == 200
        sent.flight.end(exchange, "answered")
    (standing,) = (one for one in health.snapshot(1.0) if one.name == strict)
    assert standing.ejections == (0 if early else 1)
