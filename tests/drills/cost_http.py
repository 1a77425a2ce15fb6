"""Readers of what clients of control and edges say in HTTP, and what they may cost (`costs`)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, ClassVar
from urllib.parse import parse_qsl

import uvicorn
from starlette.requests import Request
from uvicorn.server import ServerState

from gtm.adapters.orca import MAX_ENTRIES, MAX_HEADER, read_orca
from gtm.dashboard import security
from gtm.dashboard.form_bodies import MAX_FIELDS, parts
from gtm.geoip.client import ClientFinder
from gtm.http.app import EdgeOptions
from gtm.http.requests.lookup import MAX_BATCH, parse_batch, parse_item, parse_query
from gtm.http.samples.beacons import parse_service
from gtm.runtime.process.http import MAX_HEAD, MAX_HEADERS, Direct, PatientProtocol
from gtm.settings import LOOPBACK
from tests.drills.costs import Reader, RefusedError
from tests.http.world import Edge

_FINDER = ClientFinder(LOOPBACK)


class Loop(asyncio.AbstractEventLoop):
    """Runs what is asked for at once, one after the other; time stands, and nothing that is asked for later comes."""

    def __init__(self) -> None:
        self._soon: list[tuple[Callable[..., Any], Sequence[Any]]] = []

    def time(self) -> float:
        return 1000.0

    def call_soon(self, callback: Callable[..., Any], *args: Any, context: Any = None) -> Any:  # noqa: ARG002
        self._soon.append((callback, args))

    def call_later(self, delay: float, callback: Callable[..., Any], *args: Any, context: Any = None) -> Any:  # noqa: ARG002
        return self

    def create_task(self, coro: Any, **_: Any) -> Any:
        self.call_soon(self._step, coro)
        return self

    def _step(self, coro: Any) -> None:
        """What is asked for here waits for nothing."""
        with suppress(StopIteration):
            coro.send(None)

    def add_done_callback(self, callback: Callable[..., Any]) -> None: ...

    def cancel(self) -> None: ...

    def run(self) -> None:
        while self._soon:
            asked, self._soon = self._soon, []
            for callback, args in asked:
                callback(*args)


class Pipe(asyncio.Transport):
    """Counts what is written to it, and keeps how that began."""

    others: ClassVar[dict[str, Any]] = {"peername": ("192.0.2.7", 1), "sockname": ("192.0.2.2", 80)}

    def __init__(self) -> None:
        super().__init__(self.others)
        self.begun = b""
        self.size = 0
        self.ended = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self.size:
            self.begun = bytes(data[:64])
        self.size += len(data)

    def is_closing(self) -> bool:
        return self.ended

    def is_reading(self) -> bool:
        return True

    def get_write_buffer_size(self) -> int:
        return 0

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.ended = True

    def close(self) -> None:
        self.ended = True

    abort = close

    def pause_reading(self) -> None: ...

    resume_reading = pause_reading


_LOOP = Loop()
_EDGE = Edge(EdgeOptions())
_EDGE.load()


def _configured() -> tuple[uvicorn.Config, ServerState]:
    config = uvicorn.Config(_EDGE.app, http=Direct(_EDGE.app.answer_head), lifespan="off", log_config=None)  # type: ignore[arg-type]
    config.load()
    return config, ServerState()


_CONFIG, _STATE = _configured()


def _served(text: bytes, piece: int) -> None:
    """An edge reads a connection that comes in pieces of so many bytes; its answers are none that refuse."""
    protocol: PatientProtocol = _CONFIG.http_protocol_class(  # type: ignore[assignment, call-arg]
        config=_CONFIG, server_state=_STATE, app_state={}, _loop=_LOOP
    )
    pipe = Pipe()
    protocol.connection_made(pipe)
    for at in range(0, len(text), piece):
        protocol.data_received(text[at : at + piece])
    _LOOP.run()
    protocol.connection_lost(None)
    _LOOP.run()
    if not pipe.size or pipe.begun.startswith((b"HTTP/1.1 4", b"HTTP/1.1 5")):
        raise RefusedError


def _found(x_forwarded_for: bytes | None, forwarded: bytes | None) -> None:
    if _FINDER.find("127.0.0.1", x_forwarded_for, forwarded) is None:
        raise RefusedError


def _batch(text: bytes) -> None:
    for item in parse_batch(text):
        parse_item(item)


def _cookie(text: bytes) -> None:
    request = Request({"type": "http", "headers": [(b"cookie", text)]})
    if security.cookie(request, "gtm_session") is None:
        raise RefusedError


_LINES = [
    b"x-a%d: " + b"b" * 180 + b"\r\n",
    b"x-forwarded-for: " + b"192.0.2.1, " * 14 + b"192.0.2.1\r\n",
    b"forwarded: " + b"for=192.0.2.1;by=a, " * 8 + b"for=a\r\n",
    b"accept: " + b"a/b;q=0.1," * 16 + b"*/*\r\n",
    b"cookie: " + b"a=b; " * 32 + b"\r\n",
    b"x:" + b" " * 180 + b"\r\n",
    b"x-gtm-tenant: shop\r\n",
    b"a:\r\n",
    b"content-length: 0\r\n",
    b"connection: " + b"a," * 90 + b"keep-alive\r\n",
    b"x: \xff\xfe\r\n",
]

READERS: tuple[Reader, ...] = (
    Reader(
        "HTTP heads at an edge",
        lambda text: _served(text, 65_536),
        _LINES,
        steps=3.0,
        peak=80.0,
        begin=b"GET /v1/route?service=web HTTP/1.1\r\nhost: a\r\n",
        end=b"\r\n",
        worst=[b"a:\r\n"],
    ),
    Reader(
        "HTTP heads at an edge, in pieces of 16 bytes",
        lambda text: _served(text, 16),
        _LINES,
        steps=5.0,
        peak=80.0,
        begin=b"GET /v1/route?service=web HTTP/1.1\r\nhost: a\r\n",
        end=b"\r\n",
    ),
    Reader(
        "HTTP requests at an edge, many at once",
        lambda text: _served(text, 65_536),
        [
            b"GET /v1/route?service=web HTTP/1.1\r\nhost: a\r\n\r\n",
            b"GET /%d HTTP/1.1\r\nhost: web.demo.test\r\n\r\n",
            b"HEAD /healthz HTTP/1.1\r\nhost: a\r\n\r\n",
            b"\r\n",
            b"GET / HTTP/1.1\r\nhost: a\r\nx: %d\r\n\r\n",
        ],
        steps=12.0,
        peak=120.0,
        begin=b"GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n",
    ),
    Reader(
        "targets of redirects",
        lambda text: _EDGE.app.answer_head(
            "GET", b"/" + text, [(b"host", b"web.demo.test")], "192.0.2.7", "1.1"
        ),
        [b"a", b"%41", b"/", b"?", b"&", b"=", b";", b"..", b"+", b"%", b"\xe9", b"//", b"@"],
        steps=12.0,
        peak=300.0,
    ),
    Reader(
        "queries of look-ups",
        parse_query,
        [b"a", b"%41", b"+", b"%C3%A9", b"-", b"/"],
        steps=12.0,
        peak=250.0,
        begin=b"service=web&explain=1&client_ip=192.0.2.1&model=",
        most=256,
    ),
    Reader(
        "batches of look-ups",
        _batch,
        [
            b'{"service":"web"},',
            b'{"service":"web","client_ip":"2001:db8::%d"},',
            b'{"service":"web","tenant":"t%d","model":"m","priority":"batch","explain":true},',
            b'{"host":"a"},',
            b" ",
        ],
        steps=5.0,
        peak=60.0,
        begin=b'{"requests":[',
        end=b'{"service":"web"}]}',
        most=18 * MAX_BATCH // 2,
    ),
    Reader(
        "queries of beacons",
        parse_service,
        [b"a", b"%41", b"+"],
        steps=12.0,
        peak=250.0,
        begin=b"service=",
        most=256,
    ),
    Reader(
        "X-Forwarded-For",
        lambda text: _found(text, None),
        [b"127.0.0.1,", b"1.2.3.4,", b",", b" ", b"[::1]:1,", b"::1,", b'"', b"unknown,"],
        steps=40.0,
        peak=150.0,
        begin=b"192.0.2.1,",
        end=b"127.0.0.1",
        most=8192,
        worst=[b',"', b'::1,"'],
    ),
    Reader(
        "Forwarded",
        lambda text: _found(None, text),
        [
            b"for=127.0.0.1,",
            b'for="[::1]:1",',
            b";",
            b"by=_a;",
            b",",
            b'"',
            b"\\",
            b"for=",
            b" ",
            b'for="\\1\\2\\7.0.0.1",',
        ],
        steps=40.0,
        peak=150.0,
        begin=b"for=192.0.2.1,",
        end=b"for=127.0.0.1",
        most=8192,
    ),
    Reader(
        "cookies",
        _cookie,
        [
            b"a%d=b; ",
            b'a="\\"\\""; ',
            b"\\",
            b'"',
            b"=",
            b";",
            b" ",
            b"\\101",
            b"gtm_session=x; ",
            b"gtm_session",
        ],
        steps=4.0,
        peak=60.0,
        begin=b'b="',
        end=b'"; gtm_session=abc',
        worst=[b'\\"', b"\\a"],
    ),
    Reader(
        "forms of fields",
        lambda text: dict(parse_qsl(text.decode(), keep_blank_values=True, max_num_fields=MAX_FIELDS)),
        [b"field%d=" + b"v" * 40 + b"&", b"%41" * 20, b"+" * 40, b"a=b&", b"%C3" * 10, b"=" * 40],
        steps=3.0,
        peak=120.0,
    ),
    Reader(
        "forms in parts",
        lambda text: list(parts(text, b"x")),
        [
            b'--x\r\nContent-Disposition: form-data; name="a"\r\n\r\nvalue\r\n',
            b'--x\r\nContent-Disposition: form-data; filename="b"; name="a%d"\r\nContent-Type: text/plain\r\n\r\n\r\n',
            b"--x\r\n" + b"Content-Disposition: form-data;" * 9 + b'name="a"\r\n\r\n\r\n',
            b"--x\r\n" + b"Content-Disposition:\n" * 20 + b'form-data; name="a"\r\n\r\n\r\n',
            b"--x\r\nContent-Disposition: form-data;" + b" ;" * 90 + b'name="a"\r\n\r\n\r\n',
            b"--x\r\nContent-Disposition:" + b"\n" * 180 + b'form-data; name="a"\r\n\r\n\r\n',
            b"--x\r\n"
            + b"content-disposition: form-data ;\n" * 40
            + b'\nContent-Disposition: form-data; name="a"\r\n\r\n\r\n',
            b"a" * 50,
            b"\r\n",
        ],
        steps=8.0,
        peak=20.0,
        end=b"--x--",
    ),
    Reader(
        "load reports of headers (ORCA)",
        lambda text: read_orca(text.decode("latin-1")),
        [
            b"named_metrics.a%d=1,",
            b"a=1,",
            b"rps_fractional=%d,",
            b" a:0.1e1 ,",
            b"named_metrics.vllm:num_requests_running=1,",
        ],
        steps=12.0,
        peak=150.0,
        begin=b"TEXT ",
        end=b"a=1",
        most=min(MAX_HEADER, 4 * MAX_ENTRIES),
    ),
    Reader(
        "load reports of headers (ORCA in JSON)",
        lambda text: read_orca(text.decode("latin-1")),
        [
            b'"named_metrics":{"a":1},',
            b'"a%d":1,',
            b'"a%d":{"b":1.5,"c":2},',
            b'"a":9999999999999999999999,',
            b" ",
        ],
        steps=12.0,
        peak=150.0,
        begin=b"JSON {",
        end=b'"a":1}',
        most=min(MAX_HEADER, 8 * MAX_ENTRIES),
    ),
)
assert MAX_HEAD >= 16_000
assert MAX_HEADERS >= 80
