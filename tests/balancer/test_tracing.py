"""Traces: what goes on to the backend, what is exported, and that nothing waits for it."""

from __future__ import annotations

import asyncio
import json
import re
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gtm.balancer.plane.tracing import TraceContext, Tracer, TraceSettings, read_parent, written
from tests.balancer.world import Backend, Message, World, answering, run, world

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
_OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


@pytest.mark.parametrize(
    ("text", "sampled"),
    [
        (f"00-{TRACE}-{PARENT}-01", True),
        (f"00-{TRACE}-{PARENT}-00", False),
        (f"cc-{TRACE}-{PARENT}-01-what-comes", True),
        (f"00-{TRACE}-{PARENT}-03", True),
    ],
)
def test_parents_are_read(text: str, sampled: bool) -> None:
    """As W3C Trace Context §3.2 writes them; later versions by the part that is known."""
    assert read_parent(text.encode()) == TraceContext(bytes.fromhex(TRACE), bytes.fromhex(PARENT), sampled)


@pytest.mark.parametrize(
    "text",
    [
        "",
        f"ff-{TRACE}-{PARENT}-01",
        f"00-{'0' * 32}-{PARENT}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-{PARENT}-01",
        f"00-{TRACE}-{PARENT}-01-more",
        f"00-{TRACE}-{PARENT}",
        f"00-{TRACE}-{PARENT}-1",
    ],
)
def test_what_is_no_parent(text: str) -> None:
    """It is as if nothing had been said."""
    assert read_parent(text.encode()) is None


@given(st.binary(min_size=16, max_size=16), st.binary(min_size=8, max_size=8), st.booleans())
def test_what_is_written_is_read(trace: bytes, span: bytes, sampled: bool) -> None:
    """Whatever is told can be followed, but for names of zeros."""
    line = written(TraceContext(trace, span, sampled))
    found = read_parent(line.removeprefix(b"traceparent: ").strip())
    assert found == (TraceContext(trace, span, sampled) if any(trace) and any(span) else None)


@given(st.binary(max_size=80))
def test_anything_is_a_parent_or_none(text: bytes) -> None:
    """It is read or it is not; it is never an error."""
    read_parent(text)


class Collector:
    """An OTLP collector: it takes POSTs of JSON."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        while True:
            try:
                head = await reader.readuntil(b"\r\n\r\n")
            except asyncio.IncompleteReadError:
                break
            assert head.startswith(b"POST /v1/traces HTTP/1.1\r\n")
            (length,) = re.findall(rb"content-length: (\d+)", head, re.IGNORECASE)
            self.requests.append(json.loads(await reader.readexactly(int(length))))
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}")
        writer.close()


def _tracer(endpoint: str, of: World, **more: Any) -> Tracer:
    settings = TraceSettings(endpoint, **more)
    loop = asyncio.get_running_loop()
    return Tracer(settings, "r1", wall=lambda: 1e9, now=of.proxy.now or loop.time, random=Random(1))


def _parents(seen: list[Message]) -> list[bytes]:
    return [value for one in seen for name, value in one.headers if name == b"traceparent"]


def test_a_sampled_request_is_a_span_between_client_and_backend() -> None:
    """Its parent is the client's, the backend's parent is it, and the collector hears of it; one not sampled goes on as it was."""

    async def main() -> None:
        collector = Collector()
        server = await asyncio.start_server(collector.serve, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()[:2]
        seen: list[Message] = []
        backend = Backend(answering(_OK, seen=seen))
        async with world(await backend.start()) as w:
            w.proxy.tracer = tracer = _tracer(f"http://{host}:{port}", w)
            exporting = asyncio.create_task(tracer.run())
            for flags in ("01", "00"):
                line = f"traceparent: 00-{TRACE}-{PARENT}-{flags}\r\n"
                await w.ask(f"GET /v1/models HTTP/1.1\r\nhost: a\r\n{line}\r\n".encode())
            await w.until(
                lambda: tracer.exported + tracer.dropped > 0
            )  # counted once the collector has answered
            exporting.cancel()
            assert (tracer.exported, tracer.dropped) == (1, 0)
        server.close()
        (told,) = collector.requests
        (scope,) = told["resourceSpans"][0]["scopeSpans"]
        (span,) = scope["spans"]
        assert (span["traceId"], span["parentSpanId"], span["name"]) == (TRACE, PARENT, "GET /v1/models")
        assert int(span["endTimeUnixNano"]) >= int(span["startTimeUnixNano"]) >= 1e18 - 1e12
        said = {one["key"]: next(iter(one["value"].values())) for one in span["attributes"]}
        assert (said["http.response.status_code"], said["gtm.region"], said["gtm.end"]) == (
            "200",
            "r1",
            "answered",
        )
        first, second = _parents(seen)
        assert first == f"00-{TRACE}-{span['spanId']}-01".encode()
        assert second == f"00-{TRACE}-{PARENT}-00".encode()

    run(main)


def test_a_collector_that_is_gone_costs_nothing() -> None:
    """Spans that nobody takes are dropped and counted; requests are served."""

    async def main() -> None:
        seen: list[Message] = []
        backend = Backend(answering(_OK, seen=seen))
        async with world(await backend.start()) as w:
            w.proxy.tracer = tracer = _tracer("http://127.0.0.1:9", w, sample=1.0)
            exporting = asyncio.create_task(tracer.run())
            for _ in range(5):
                assert (await w.ask(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")).status == 200
            await w.until(lambda: tracer.dropped == 5)
            exporting.cancel()
        assert len(_parents(seen)) == 5

    run(main)
