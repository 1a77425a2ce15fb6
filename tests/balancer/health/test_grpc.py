"""gRPC's health check, asked of grpcio's own server; and of everything that is none."""

from __future__ import annotations

import asyncio
import ssl
import tracemalloc
import warnings
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, cast

import grpc
import hpack
import pytest
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from hyperframe.frame import (
    DataFrame,
    GoAwayFrame,
    HeadersFrame,
    PingFrame,
    PushPromiseFrame,
    RstStreamFrame,
    SettingsFrame,
)
from hypothesis import given
from hypothesis import strategies as st

from gtm.balancer.config import load, of_urls
from gtm.balancer.health.asking import (
    MAX_FIELDS,
    MAX_READS,
    MAX_RECEIVED,
    AskingError,
    Checking,
    ask,
    check_grpc,
    framed_name,
    head_of,
    serving_of,
)
from gtm.balancer.health.check_settings import CheckSettings, HealthCheck
from gtm.balancer.plane.backend.backends import Route
from gtm.balancer.wire.tls import BackendTls, backend_context
from gtm.core.model.problems import PolicyError
from tests.balancer.certificates import Authority
from tests.balancer.health.world import run, world
from tests.core.strategies import quick
from tests.patience import PATIENCE

Status = health_pb2.HealthCheckResponse


@asynccontextmanager
async def server(
    *, registered: bool = True, credentials: Any = None
) -> AsyncGenerator[tuple[int, health.aio.HealthServicer]]:
    """The server of grpcio with its health service; its port."""
    running = grpc.aio.server()
    servicer = health.aio.HealthServicer()
    if registered:
        health_pb2_grpc.add_HealthServicer_to_server(servicer, running)
    if credentials is None:
        port = running.add_insecure_port("127.0.0.1:0")
    else:
        port = running.add_secure_port("127.0.0.1:0", credentials)
    await running.start()
    try:
        yield port, servicer
    finally:
        await running.stop(0)


async def said(port: int, service: str = "", **more: Any) -> str:
    """What is wrong with a server; empty: nothing."""
    try:
        answer = await check_grpc(
            Route(f"http://127.0.0.1:{port}"), service, **({"timeout": PATIENCE} | more)
        )
    except AskingError as error:
        return str(error)
    assert (answer.status, answer.body) == (200, b"")
    return ""


def test_what_grpcs_own_server_says() -> None:
    """Each status of the protocol, of the whole server and of one service of it."""

    async def test() -> None:
        async with server() as (port, servicer):
            assert await said(port) == ""
            assert await said(port, "models") == (
                "it knows no service `models` (NOT_FOUND): set `service` to one that it has, or leave it out"
            )
            for status, words in (
                (Status.SERVING, ""),
                (Status.NOT_SERVING, "it says NOT_SERVING"),
                (Status.UNKNOWN, "it says UNKNOWN"),
                (Status.SERVICE_UNKNOWN, "it knows no service `models` (SERVICE_UNKNOWN): set `service`"),
            ):
                await servicer.set("models", status)
                found = await said(port, "models")
                assert found.startswith(words)
                assert bool(found) == bool(words)
            await servicer.set("x" * 200, Status.SERVING)
            assert await said(port, "x" * 200) == ""
        assert await said(port) == "connection refused"
        async with server(registered=False) as (port, _):
            assert "not its health protocol (UNIMPLEMENTED)" in await said(port)

    run(test)


def test_by_tls(tmp_path: Path) -> None:
    """With what `backend_tls` says: authority, name, and our own certificate where one is asked for."""
    authority, other = Authority(tmp_path, "authority"), Authority(tmp_path, "other")
    shown, own = authority.issue("models", "models.internal"), authority.issue("me", "balancer.internal")
    credentials = grpc.ssl_server_credentials(
        [(shown.key.read_bytes(), shown.chain.read_bytes())],
        authority.file.read_bytes(),
        require_client_auth=True,
    )

    async def test() -> None:
        async with server(credentials=credentials) as (port, _):

            async def by(settings: BackendTls, alpn: str = "h2") -> str:
                context = backend_context(settings, alpn)
                route = Route(f"https://127.0.0.1:{port}", lambda: context, server_name=settings.server_name)
                try:
                    await check_grpc(route, "", timeout=PATIENCE, tls=context)
                except AskingError as error:
                    return str(error)
                return ""

            assert (
                await by(BackendTls(ca=authority.file, certificate=own, server_name="models.internal")) == ""
            )
            assert "certificate is not accepted" in await by(
                BackendTls(ca=authority.file, certificate=own, server_name="others.internal")
            )
            assert "certificate is not accepted" in await by(
                BackendTls(ca=other.file, certificate=own, server_name="models.internal")
            )
            assert (
                await by(BackendTls(ca=authority.file, certificate=None, server_name="models.internal")) != ""
            )
            assert await said(port, timeout=1.0) != ""  # plain HTTP/2 to a port of TLS

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)  # TLS, and no HTTP/2
        context.load_cert_chain(shown.chain, shown.key)
        listening = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=context)
        async with listening:
            port = listening.sockets[0].getsockname()[1]
            assert "no HTTP/2 by TLS" in await by(
                BackendTls(ca=authority.file, certificate=None, server_name="models.internal")
            )

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        run(test)


def test_a_check_by_http_asks_for_the_name_of_backend_tls(tmp_path: Path) -> None:
    """As requests do: a backend that is known by its address shows the name that it has inside."""
    authority = Authority(tmp_path, "authority")
    shown = authority.issue("models", "models.internal")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(shown.chain, shown.key)

    async def answered(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
        writer.close()

    async def test() -> None:
        async with await asyncio.start_server(answered, "127.0.0.1", 0, ssl=context) as listening:
            tls = backend_context(
                BackendTls(ca=authority.file, certificate=None, server_name="models.internal")
            )
            url = f"https://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
            route = Route(url, lambda: tls, server_name="models.internal")
            assert (await ask(route, "/health", timeout=PATIENCE, most=100)).status == 200
            with pytest.raises(AskingError, match="certificate is not accepted"):
                await ask(Route(url, lambda: tls), "/health", timeout=PATIENCE, most=100)

    run(test)


@asynccontextmanager
async def answering(says: bytes, *, close: bool = False) -> AsyncGenerator[int]:
    """A server that says this to whoever comes; its port."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            await reader.read(1)
            writer.write(says)
            await writer.drain()
            if not close:
                await reader.read()
        writer.close()

    running = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with running:
        yield running.sockets[0].getsockname()[1]


def test_who_is_no_grpc_server() -> None:
    """An HTTP/1.1 server, one of HTTP/2 that knows no gRPC, one that hangs, hangs up, or talks without end."""
    settings = SettingsFrame(0).serialize()
    status = HeadersFrame(1, b"\x8d", flags=["END_HEADERS", "END_STREAM"]).serialize()  # :status: 404
    serving = DataFrame(1, b"\x00\x00\x00\x00\x02\x08\x01").serialize()

    def answer(status: bytes, body: bytes, code: bytes) -> bytes:
        """By HPACK's static table: 0x88 is status 200, 0x8e is 500."""
        head = HeadersFrame(1, status, flags=["END_HEADERS"]).serialize()
        trailers = b"\x40\x0bgrpc-status" + bytes((len(code),)) + code
        return (
            settings
            + head
            + body
            + HeadersFrame(1, trailers, flags=["END_HEADERS", "END_STREAM"]).serialize()
        )

    cases = (
        (
            b"HTTP/1.1 400 Bad Request\r\n\r\n",
            True,
            "speaks no HTTP/2: set `port` to that of gRPC, or `type` to http",
        ),
        (settings + status, False, "status 404 without gRPC's"),
        (answer(b"\x8e", serving, b"0"), False, "status 500 without gRPC's"),
        (
            settings
            + HeadersFrame(1, b"\x88", flags=["END_HEADERS"]).serialize()
            + DataFrame(1, b"", flags=["END_STREAM"]).serialize(),
            False,
            "status 200 without gRPC's",
        ),
        (answer(b"\x88", serving, b"14"), False, "it says UNAVAILABLE"),
        (answer(b"\x88", serving, b"17"), False, "it says gRPC status 17, which is not known"),
        (answer(b"\x88", serving, b"secret"), False, "it says gRPC status ?, which is not known"),
        (answer(b"\x88", DataFrame(1, b"x" * 1025).serialize(), b"1"), False, "no HealthCheckResponse"),
        (answer(b"\x88", b"", b"0"), False, "no HealthCheckResponse"),
        (settings + RstStreamFrame(1).serialize(), False, "it broke the call off"),
        (settings + GoAwayFrame(0).serialize(), False, "it broke the call off"),
        (settings, True, "the connection was closed before the answer was complete"),
        (settings + PingFrame(0, b"x" * 8).serialize() * (MAX_RECEIVED // 17 + 1), False, "longer than"),
    )

    async def test() -> None:
        for says, close, words in cases:
            async with answering(says, close=close) as port:
                found = await said(port)
                assert words in found, (words, found)
        async with answering(b"") as port:
            assert await said(port, timeout=0.05) == "no answer within 0.05 s"

    run(test)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 0),
        (b"\x08\x01", 1),
        (b"\x08\x02\x08\x01", 1),
        (b"\x12\x03abc\x08\x01", 1),
        (b"\x15abcd\x08\x01\x11abcdefgh", 1),
        (b"\x08\x81\x80\x80\x00", 1),
        (b"\x10\x01", 0),
        (b"\x0dabcd", None),
        (b"\x08", None),
        (b"\x08\x80", None),
        (b"\x08" + b"\x80" * 10 + b"\x01", None),
        (b"\x12\x7fabc", None),
        (b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", None),
        (b"\x15abc", None),
        (b"\x00\x01", None),
        (b"\x0b", None),
        (b"\x0a\x01a", None),
    ],
)
def test_the_answers_message(body: bytes, status: int | None) -> None:
    """As protobuf reads it: unknown fields are passed over, the last of two counts; what breaks off is no message."""
    framed = b"\x00" + len(body).to_bytes(4, "big") + body
    assert serving_of(framed) == status
    assert serving_of(b"\x01" + framed[1:]) is None  # compressed: nobody asked for that
    assert serving_of(framed + b"\x00") is None
    assert serving_of(framed[:4]) is None


@quick(500)
@given(st.binary(max_size=24))
def test_messages_are_read_as_protobuf_reads_them(body: bytes) -> None:
    """What is read here is what protobuf's own reader finds there."""
    found = serving_of(b"\x00" + len(body).to_bytes(4, "big") + body)
    try:
        known: int | None = Status.FromString(body).status
    except Exception:
        known = None
    if found is not None and known is not None:
        assert found & 0xFFFF_FFFF == known & 0xFFFF_FFFF
    if found == Status.SERVING:
        assert known == Status.SERVING


@quick(200)
@given(st.text(st.characters(codec="ascii"), max_size=200))
def test_requests_are_what_protobuf_writes(service: str) -> None:
    """To the byte, in gRPC's frame."""
    written = health_pb2.HealthCheckRequest(service=service).SerializeToString()
    assert ("content-type", "application/grpc") in head_of(Route("http://127.0.0.1"), 80, 1.0)
    assert framed_name(service) == b"\x00" + len(written).to_bytes(4, "big") + written


def _fed(says: bytes, piece: int = MAX_RECEIVED + 1000) -> str:
    """What is wrong with what is said, in pieces of so many bytes."""

    async def feed() -> str:
        protocol = Checking(
            asyncio.get_running_loop().create_future(), head_of(ROUTE, 80, 1.0), framed_name("")
        )
        protocol.connection_made(cast("asyncio.Transport", _Transport()))
        for at in range(0, len(says), piece):
            protocol.data_received(says[at : at + piece])
        error = protocol.done.exception() if protocol.done.done() else None
        protocol.close()
        return str(error or "")

    return asyncio.run(feed())


ROUTE = Route("http://127.0.0.1")


def test_a_head_that_unpacks_into_much() -> None:
    """HPACK says again in one byte what it has said before, so that 16 KiB are 37 MB: each head is bounded, and so are all."""
    encoder = hpack.Encoder()
    long = encoder.encode([(":status", "103"), ("x", "y" * 3900)], huffman=False)
    again = encoder.encode([(":status", "103"), *[("x", "y" * 3900)] * 15], huffman=False)
    settings = SettingsFrame(0).serialize()
    first = HeadersFrame(1, long, flags=["END_HEADERS"]).serialize()
    bomb = HeadersFrame(1, again, flags=["END_HEADERS"]).serialize()
    tracemalloc.start()
    try:
        assert _fed((settings + first + bomb * 2000)[:MAX_RECEIVED]) == (
            f"a head of the answer is longer than {MAX_FIELDS} bytes"
        )
        small = HeadersFrame(1, encoder.encode([(":status", "103"), ("x", "y" * 3900)])).serialize()
        small = small[:4] + b"\x04" + small[5:]  # END_HEADERS
        assert _fed((settings + first + small * 5000)[:MAX_RECEIVED]) == "the answer has more than 8 heads"
        assert tracemalloc.get_traced_memory()[1] < 5_000_000
    finally:
        tracemalloc.stop()


def test_frames_with_nothing_in_them_are_few() -> None:
    """Each frame costs, and each time that the network brings a byte of one: a thousand pings are no answer, nor is what comes byte by byte."""
    settings, ping = SettingsFrame(0).serialize(), PingFrame(0, b"x" * 8).serialize()
    assert _fed(settings + ping * 1000) == f"the answer is longer than {MAX_RECEIVED} bytes"
    assert _fed((settings + ping * 100)[:MAX_READS], piece=1) == ""
    assert (
        _fed((settings + ping * 100)[: MAX_READS + 1], piece=1) == "the answer comes in pieces of a few bytes"
    )


def test_nothing_is_taken_that_is_pushed() -> None:
    """From the first byte on, not only from a server that has heard so."""
    pushed = PushPromiseFrame(1, 2, b"\x82\x86\x84\x41\x01a", flags=["END_HEADERS"]).serialize()
    assert "speaks no HTTP/2" in _fed(SettingsFrame(0).serialize() + pushed)


def test_a_head_as_long_as_may_be_is_read() -> None:
    """With interim ones before, however it is cut."""
    encoder = hpack.Encoder()

    def head(*fields: tuple[str, str], end: bool = False) -> bytes:
        flags = ["END_HEADERS", "END_STREAM"] if end else ["END_HEADERS"]
        return HeadersFrame(1, encoder.encode(list(fields)), flags=flags).serialize()

    says = SettingsFrame(0).serialize() + head((":status", "103")) * 6
    says += head((":status", "200"), ("x", "y" * (MAX_FIELDS - 200)))
    says += DataFrame(1, b"\x00\x00\x00\x00\x02\x08\x01").serialize() + head(("grpc-status", "0"), end=True)
    assert _fed(says) == ""


_FRAMES = st.one_of(
    st.binary(max_size=40),
    st.sampled_from(
        [
            SettingsFrame(0).serialize(),
            SettingsFrame(0, flags=["ACK"]).serialize(),
            SettingsFrame(0, {1: 2**32 - 1, 4: 0, 5: 2**24 - 1}).serialize(),
            HeadersFrame(1, b"\x88", flags=["END_HEADERS"]).serialize(),
            HeadersFrame(1, b"\x88", flags=["END_HEADERS", "END_STREAM"]).serialize(),
            HeadersFrame(1, b"\x40\x0bgrpc-status\x010", flags=["END_HEADERS", "END_STREAM"]).serialize(),
            HeadersFrame(1, b"\xff\xff\xff", flags=["END_HEADERS"]).serialize(),
            HeadersFrame(1, b"\x88").serialize(),
            DataFrame(1, b"\x00\x00\x00\x00\x02\x08\x01").serialize(),
            DataFrame(1, b"x" * 2000).serialize(),
            DataFrame(3, b"x").serialize(),
            PingFrame(0, b"12345678").serialize(),
            GoAwayFrame(0).serialize(),
            RstStreamFrame(1).serialize(),
        ]
    ),
    st.builds(
        lambda kind, flags, stream, rest: (
            len(rest).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + rest
        ),
        st.integers(0, 12),
        st.integers(0, 255),
        st.sampled_from([0, 1, 2, 3, 2**31 - 1]),
        st.binary(max_size=30),
    ),
)


class _Transport:
    """Takes everything, and is no TLS."""

    def __init__(self) -> None:
        self.written = 0

    def get_extra_info(self, _: str) -> None:
        return None

    def write(self, data: bytes) -> None:
        self.written += len(data)

    def abort(self) -> None:
        pass


@quick(500)
@given(st.lists(_FRAMES, max_size=10), st.integers(1, 60))
def test_whatever_comes_is_a_result(frames: list[bytes], cut: int) -> None:
    """Nothing else is raised, and what is said in return is bounded by what came."""

    async def feed() -> None:
        done = asyncio.get_running_loop().create_future()
        one = Checking(done, head_of(Route("http://127.0.0.1"), 80, 1.0), framed_name(""))
        transport = _Transport()
        one.connection_made(transport)  # type: ignore[arg-type]
        bytes_in = SettingsFrame(0).serialize() + b"".join(frames)
        for at in range(0, len(bytes_in), cut):
            one.data_received(bytes_in[at : at + cut])
        one.connection_lost(None)
        assert done.done()
        assert transport.written < 1000 + 10 * len(bytes_in)
        with suppress(AskingError, OSError):
            status, _, message = done.result()
            assert len(status) < 70_000
            assert len(message) <= 1024
        one.close()

    asyncio.run(feed())


def test_a_balancer_goes_by_it(tmp_path: Path) -> None:
    """As its file says: up while SERVING, and why not otherwise."""

    async def test() -> None:
        async with server() as (port, servicer):
            await servicer.set("models", Status.SERVING)
            check = HealthCheck(type="grpc", service="models", port=port, interval=0.05)
            async with world(CheckSettings(health=check, models=None, scrape=None)) as here:
                assert here.condition().healthy
                await servicer.set("models", Status.NOT_SERVING)
                await here.until(lambda: not here.condition().healthy)
                assert here.why() == "health: it says NOT_SERVING"
                assert here.checks.problems() == {here.name: {"health": "it says NOT_SERVING"}}
                await servicer.set("models", Status.SERVING)
                await here.until(lambda: here.condition().healthy)

    run(test)
    file = tmp_path / "balancer.yaml"
    start = "backends: [{url: http://10.0.0.5:8000}]\nchecks:\n  health: "
    file.write_text(start + "{type: grpc, service: models, port: 9000, timeout: 0.5}\n")
    assert load(file).checks.health == HealthCheck(type="grpc", service="models", port=9000, timeout=0.5)
    assert of_urls(["http://10.0.0.5:8000"]).checks == CheckSettings()
    wrong: list[tuple[str, Callable[[str], bool]]] = [
        ("{type: grpc, path: /health}", lambda text: "`path`" in text and "type: http" in text),
        ("{type: grpc, status: [200]}", lambda text: "`status`" in text),
        ("{service: models}", lambda text: "`service`" in text and "type: grpc" in text),
        ("{type: grpc, service: 'a\\tb'}".replace("'", '"'), lambda text: "full name" in text),
        (f"{{type: grpc, service: {'a' * 201}}}", lambda text: "200 characters" in text),
        ("{type: grpc, port: 0}", lambda text: "port" in text),
        ("{type: tcp}", lambda text: "grpc" in text),
    ]
    for words, right in wrong:
        file.write_text(start + words + "\n")
        with pytest.raises(PolicyError) as caught:
            load(file)
        assert right(str(caught.value)), str(caught.value)
