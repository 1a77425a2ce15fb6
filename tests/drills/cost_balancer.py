"""Readers of what clients, backends and peers say to a balancer, and what they may cost (`costs`)."""

from __future__ import annotations

import asyncio
import socket
from base64 import urlsafe_b64encode
from contextlib import suppress
from typing import Any, cast

import hpack
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hyperframe.frame import DataFrame, HeadersFrame, PingFrame, SettingsFrame, WindowUpdateFrame

from gtm.adapters.exposition import MetricsError
from gtm.adapters.orca import read_orca
from gtm.balancer.health.asking import MAX_RECEIVED, Asking, Checking, framed_name, head_of
from gtm.balancer.plane.backend.backends import Route
from gtm.balancer.plane.backend.upstream import Upstream
from gtm.balancer.plane.client.downstream import Downstream
from gtm.balancer.plane.client.proxy_protocol import SIGNATURE, read_proxy_header
from gtm.balancer.plane.contracts import SentRequest
from gtm.balancer.plane.proxy import Proxy
from gtm.balancer.wire.bodies import MAX_MEMBERS, BodyRules, read_strictly
from gtm.balancer.wire.endpoints import BodyKind, Paths
from gtm.balancer.wire.facts import PromptCut, read_facts
from gtm.balancer.wire.heads import MAX_HEAD, MAX_TRAILER_BYTES, RequestHead, read_head
from gtm.balancer.wire.usage import Meter, bounds_of
from gtm.core.handoff.claims import Issuer
from gtm.core.handoff.keys import PublicKey, PublicKeys, key_text
from gtm.core.handoff.verdict import Flaw
from gtm.handoff.jwt import MAX_TOKEN, HandoffSigner, made
from gtm.handoff.verifier import Verifier
from gtm.runtime.balancer.peers import opened
from gtm.runtime.process.connections import Connections
from tests.balancer.world import Admission, Gate, Picker
from tests.drills.cost_http import Loop, Pipe
from tests.drills.costs import Reader, RefusedError

_LOOP = Loop()
Pipe.others["socket"] = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
"""One on which nothing comes: the kernel is asked whether something waits."""


class _Backend(Pipe):
    """A backend's end of a connection, which says what a test says, and takes everything."""


class _Way(Route):
    """To backends that are there at once."""

    def __init__(self) -> None:
        super().__init__("http://192.0.2.1:1")
        self.last: Upstream | None = None

    def take(self, now: float) -> Upstream | None:  # noqa: ARG002 - the contract
        upstream = self.last = Upstream(self, _LOOP.time)
        upstream.connection_made(_Backend())
        return upstream

    def put(self, upstream: Upstream, now: float) -> None:  # noqa: ARG002 - the contract
        upstream.abort()


class _Picker(Picker):
    """One that reads what a backend says of its load."""

    def loaded(self, sent: SentRequest, said: bytes, now: float) -> None:  # noqa: ARG002 - the contract
        with suppress(MetricsError):
            read_orca(said.decode("latin-1"))


_WAY = _Way()


def _proxy() -> Proxy:
    return Proxy(
        Gate(),
        Admission(),
        _Picker([_WAY]),
        room=Connections(64),
        loop=_LOOP,
        region="r",
        paths=Paths(["inference", "GET /files/**"]),
    )


def _connected() -> tuple[Downstream, Pipe]:
    client, pipe = _proxy().connection(), Pipe()
    client.connection_made(pipe)
    return client, pipe


def _asked(text: bytes, piece: int, *, whole: bool = True) -> None:
    """A balancer reads a connection that comes in pieces of so many bytes, and sends a request on; `whole`: to its end."""
    _WAY.last = None
    client, pipe = _connected()
    for at in range(0, len(text), piece):
        client.data_received(text[at : at + piece])
        _LOOP.run()
    upstream, current = _WAY.last, client._current  # noqa: SLF001 - whether it was read to the end
    done = upstream is not None and current is not None and (current.complete or not whole)
    client.connection_lost(None)
    _LOOP.run()
    if not done or pipe.begun.startswith(b"HTTP/1.1 4"):
        raise RefusedError


def _answered(text: bytes, piece: int) -> None:
    """A balancer reads a backend's answer, and hands it on to its end."""
    client, pipe = _connected()
    client.data_received(b"GET /v1/models HTTP/1.1\r\nhost: a\r\nte: trailers\r\n\r\n")
    upstream = _WAY.last
    assert upstream is not None
    for at in range(0, len(text), piece):
        if upstream.exchange is None:
            break
        upstream.data_received(text[at : at + piece])
        _LOOP.run()
    done = upstream.exchange is None and pipe.begun.startswith((b"HTTP/1.1 200", b"HTTP/1.1 103"))
    broken = pipe.ended
    client.connection_lost(None)
    _LOOP.run()
    if not done or broken:
        raise RefusedError


_LINES = [
    b"x-a%d: " + b"b" * 180 + b"\r\n",
    b"accept: " + b"a/b;q=0.1," * 16 + b"*/*\r\n",
    b"connection: " + b"x-a1," * 36 + b"keep-alive\r\n",
    b"x_forwarded_for: " + b"1" * 170 + b"\r\n",
    b"cookie: " + b"a=b; " * 32 + b"\r\n",
    b"te: " + b"a," * 90 + b"trailers\r\n",
    b"via: " + b"1.1 a," * 28 + b"1.1 b\r\n",
    b"trailer: " + b"x-b," * 40 + b"x-c\r\n",
    b"x:" + b" " * 180 + b"\r\n",
    b"gtm-timeout: " + b"1" * 180 + b"\r\n",
    b"a:\r\n",
    b"x-gtm-a%d: b\r\n",
    b"content-type: text/plain\r\n",
]
_GET = b"GET /v1/models HTTP/1.1\r\nhost: a\r\n"
_POST = b"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\n"
_CHUNKED = _POST + b"transfer-encoding: chunked\r\n\r\n"
_CHUNKS = [
    b"40\r\n" + b"a" * 64 + b"\r\n",
    b"1\r\na\r\n",
    b"1;a=b\r\na\r\n",
    b'10;a="b;c"\r\n' + b"a" * 16 + b"\r\n",
    b"0001\r\na\r\n",
    b"100\r\n" + b"a" * 256 + b"\r\n",
    b"5;" + b"e" * 20 + b"\r\nhello\r\n",
]
_OK = b"HTTP/1.1 200 OK\r\n"
_RULES = BodyRules(limits_models=True)


def _head(*lines: tuple[bytes, bytes]) -> RequestHead:
    given = [(b"host", b"a"), *lines]
    return read_head(b"POST", b"/v1/chat/completions", "1.1", given, keep_alive=True)


_JSON_HEAD = _head((b"content-type", b"application/json"))
_FORM_HEAD = _head((b"content-type", b"multipart/form-data; boundary=x"))
_MEMBERS = [
    b'"a%d":"b",',
    b'"a%d":[1,[2],{"c":null}],',
    b'"a\\u0041%d":1,',
    b'"a%d":"\\\\\\"",',
    b'"a%d":"' + b"x" * 60 + b'",',
    b'"messages":[{"role":"user","content":"x"}],',
    b'"tools":[],',
    b'"max_tokens":1,',
    b'"n":1.0,',
    b" ",
    b'"a%d":[[[[[[]]]]]],',
]
_PROMPT = [
    b'{"role":"user","content":"' + b"word " * 20 + b'"},',
    b'{"role":"user","content":"x"},',
    b'{"role":"user","content":[{"type":"text","text":"y"},{"type":"image_url","image_url":{"url":"z"}}]},',
    b"{},",
    b"[],",
    b'"\\u00e9",',
    b" ",
]


def _hinted(text: bytes) -> None:
    facts = read_facts(_JSON_HEAD, text, PromptCut(64))
    bounds_of(b"/v1/chat/completions", text, facts.most_output)
    if facts.model is None:
        raise RefusedError


def _metered(text: bytes) -> None:
    meter = Meter()
    for at in range(0, len(text), 64):
        meter.piece(text[at : at + 64])
    meter.used(len(text), events=True)


def _proxied(text: bytes) -> None:
    """A header that comes byte by byte."""
    for end in range(1, len(text) + 1):
        if read_proxy_header(text[:end]) is not None:
            return
    raise RefusedError


def _with_values(values: bytes) -> bytes:
    """A header of version 2 with these type-length-values."""
    addresses = bytes((192, 0, 2, 1, 198, 51, 100, 1, 0, 80, 1, 187))
    return SIGNATURE + b"\x21\x11" + (len(addresses) + len(values)).to_bytes(2) + addresses + values


_KEY = made()
_PRIVATE = Ed25519PrivateKey.from_private_bytes(_KEY.private)
_VERIFIER = Verifier(PublicKeys((PublicKey("fra-1", key_text(_KEY.public), Issuer.EDGE, "*"),), 1))
_CLAIMS = b'{"iss":"fra-1","aud":"r","iat":1,"exp":2,"jti":"n","service":"s","fence":"0123456789abcdef","revision":1,"hop":0,"once":true'


def _sealed(body: bytes) -> bytes:
    """A peer's datagram."""
    return b"GTMW1" + _KEY.public + _PRIVATE.sign(b"GTMW1\0" + body) + body


def _handed(payload: bytes) -> bytes:
    """A handoff that an edge has signed."""
    header = HandoffSigner(_KEY)._header  # noqa: SLF001 - as it writes it
    signed = header + urlsafe_b64encode(payload).rstrip(b"=")
    return signed + b"." + urlsafe_b64encode(_PRIVATE.sign(signed)).rstrip(b"=")


def _verified(token: bytes) -> None:
    if isinstance(_VERIFIER.verify(token), Flaw):
        raise RefusedError


def _timed(text: bytes) -> None:
    float(text)  # as `gtm.balancer.decide.queueing` reads it


class _Future:
    """What somebody would wait for."""

    def __init__(self) -> None:
        self.found: object = None
        self.wrong: Exception | None = None

    def done(self) -> bool:
        return self.found is not None or self.wrong is not None

    def set_result(self, found: object) -> None:
        self.found = found

    def set_exception(self, error: Exception) -> None:
        self.wrong = error


def _checked(text: bytes) -> None:
    done = _Future()
    check = Checking(cast("Any", done), head_of(_WAY, 80, 1.0), framed_name(""))
    pipe = Pipe()
    pipe.others = {}  # type: ignore[misc]
    check.connection_made(pipe)
    for at in range(0, len(text), 4096):
        check.data_received(text[at : at + 4096])
    if done.wrong is not None or done.found is None:
        raise RefusedError


def _scraped(text: bytes, piece: int) -> None:
    done = _Future()
    asking = Asking(cast("asyncio.Future[tuple[int, bytes]]", done), 65_536)
    asking.connection_made(Pipe())
    for at in range(0, len(text), piece):
        asking.data_received(text[at : at + piece])
    asking.connection_lost(None)
    if done.wrong is not None or done.found is None:
        raise RefusedError


_ENCODER = hpack.Encoder()


def _heads(*fields: tuple[str, str], end: bool = False) -> bytes:
    flags = ["END_HEADERS", "END_STREAM"] if end else ["END_HEADERS"]
    return cast("bytes", HeadersFrame(1, hpack.Encoder().encode(list(fields)), flags=flags).serialize())


_PATHS = Paths(["inference", "GET /files/**", "GET /v2/*/x/*/y", "POST /v1/*/x/*/y"])


def _carried(text: bytes) -> None:
    if _PATHS.refusal(b"GET", text) is not None:
        raise RefusedError


READERS: tuple[Reader, ...] = (
    Reader(
        "HTTP heads at a balancer",
        lambda text: _asked(text, 65_536),
        _LINES,
        steps=3.0,
        peak=80.0,
        begin=_GET,
        end=b"\r\n",
        worst=[b"a:\r\n"],
    ),
    Reader(
        "HTTP heads at a balancer, in single bytes",
        lambda text: _asked(text, 1),
        _LINES,
        steps=90.0,
        peak=80.0,
        begin=_GET,
        end=b"\r\n",
    ),
    Reader(
        "HTTP requests at a balancer, many at once",
        lambda text: _asked(text, 65_536),
        [
            _GET + b"\r\n",
            b"GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n",
            b"GET /%d HTTP/1.1\r\nhost: a\r\n\r\n",
            b"\r\n",
            b"POST /v1/completions HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\n\r\na",
        ],
        steps=12.0,
        peak=120.0,
        begin=_GET + b"\r\n",
    ),
    Reader(
        "bodies in chunks at a balancer",
        lambda text: _asked(text, 65_536),
        _CHUNKS,
        steps=12.0,
        peak=60.0,
        begin=_CHUNKED,
        end=b"0\r\n\r\n",
        worst=[b"1\r\na\r\n"],
    ),
    Reader(
        "bodies in chunks at a balancer, in single bytes",
        lambda text: _asked(text, 1),
        _CHUNKS,
        steps=110.0,
        peak=60.0,
        begin=_CHUNKED,
        end=b"0\r\n\r\n",
    ),
    Reader(
        "fields behind a body at a balancer",
        lambda text: _asked(text, 65_536),
        [
            b"x-b%d: " + b"c" * 240 + b"\r\n",
            b"content-digest: " + b"d" * 240 + b"\r\n",
            b"x_forwarded_for: a\r\n",
            b"connection: " + b"x," * 90 + b"\r\n",
            b"a:\r\n",
        ],
        steps=3.0,
        peak=80.0,
        begin=_POST
        + b"connection: x-b1, x-b2\r\ntrailer: x-b3\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\n",
        end=b"\r\n",
        most=MAX_TRAILER_BYTES - 1000,
    ),
    Reader(
        "targets at a balancer",
        _carried,
        [b"a/", b"%41", b"a", b"/", b".", b"..;", b"%2e", b"%", b";", b"?", b"a/x/b/y/", b"%2E%2E/"],
        steps=6.0,
        peak=100.0,
        begin=b"/files/",
        end=b"a",
        most=MAX_HEAD // 2,
    ),
    Reader(
        "JSON bodies that limits go by",
        lambda text: read_strictly(_JSON_HEAD, BodyKind.JSON, text, _RULES, PromptCut(64)),
        _MEMBERS,
        steps=9.0,
        peak=120.0,
        begin=b'{"model":"m",',
        end=b'"z":1}',
        most=10 * MAX_MEMBERS,
    ),
    Reader(
        "prompts that limits go by",
        lambda text: read_strictly(_JSON_HEAD, BodyKind.JSON, text, _RULES, PromptCut(64)),
        _PROMPT,
        steps=20.0,
        peak=120.0,
        begin=b'{"model":"m","messages":[',
        end=b"{}]}",
    ),
    Reader(
        "prompts that are read for hints",
        _hinted,
        _PROMPT,
        steps=6.0,
        peak=60.0,
        begin=b'{"model":"m","messages":[',
        end=b"{}]}",
    ),
    Reader(
        "forms that limits go by",
        lambda text: read_strictly(_FORM_HEAD, BodyKind.FORM, text, _RULES, None),
        [
            b'--x\r\nContent-Disposition: form-data; name="a"\r\n\r\nvalue\r\n',
            b"--x\r\nContent-Disposition: form-data; name=a\r\n\r\n\r\n",
            b'--x\r\nContent-Disposition: form-data; name="f"; filename="' + b"\\a" * 90 + b'"\r\n\r\n\r\n',
            b'--x\r\nContent-Disposition: form-data; name="f"' + b';filename="a"' * 30 + b"\r\n\r\n\r\n",
            b'--x\r\nContent-Type: text/plain\r\nContent-Disposition: form-data; name="f"\r\n\r\n\r\n',
            b'--x\r\nContent-Disposition: form-data; name="f"\r\n'
            + b"Content-Length: 1\r\n" * 7
            + b"\r\n\r\n",
            b"a" * 50,
            b"\r\n",
        ],
        steps=3.0,
        peak=60.0,
        begin=b'--x\r\nContent-Disposition: form-data; name="model"\r\n\r\nm\r\n',
        end=b"--x--\r\n",
        most=40 * 1000,
    ),
    Reader(
        "usage that answers say",
        _metered,
        [
            b"\ndata: x\n",
            b'"prompt_tokens": 1,',
            b'"completion_tokens"' + b" " * 60,
            b'"output_tokens":' + b"1" * 9,
            b"data:",
            b"\n",
        ],
        steps=1.5,
        peak=20.0,
    ),
    Reader(
        "heads of answers",
        lambda text: _answered(text, 65_536),
        [
            b"x-a%d: " + b"b" * 180 + b"\r\n",
            b"connection: " + b"x-a1," * 36 + b"keep-alive\r\n",
            b"set-cookie: a%d=" + b"b" * 170 + b"\r\n",
            b"a:\r\n",
            b"x-gtm-a%d: b\r\n",
            b"endpoint-load-metrics: TEXT " + b"a=1," * 30 + b"a=1\r\n",
        ],
        steps=3.0,
        peak=80.0,
        begin=_OK + b"content-length: 0\r\n",
        end=b"\r\n",
    ),
    Reader(
        "answers before the answer",
        lambda text: _answered(text, 65_536),
        [
            b"HTTP/1.1 103 Early Hints\r\nlink: " + b"a" * 1000 + b"\r\n\r\n",
            b"HTTP/1.1 100 Continue\r\n\r\n",
            b"HTTP/1.1 102 \r\n\r\n",
        ],
        steps=3.0,
        peak=60.0,
        most=1040 * 15,
        end=_OK + b"content-length: 0\r\n\r\n",
    ),
    Reader(
        "answers in chunks",
        lambda text: _answered(text, 65_536),
        _CHUNKS,
        steps=12.0,
        peak=60.0,
        begin=_OK + b"content-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n",
        end=b"0\r\n\r\n",
        worst=[b"1\r\na\r\n"],
    ),
    Reader(
        "answers in chunks, in single bytes",
        lambda text: _answered(text, 1),
        _CHUNKS,
        steps=90.0,
        peak=60.0,
        begin=_OK + b"content-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n",
        end=b"0\r\n\r\n",
    ),
    Reader(
        "fields behind answers",
        lambda text: _answered(text, 65_536),
        [b"x-b%d: " + b"c" * 240 + b"\r\n", b"content-digest: a\r\n", b"set-cookie: a\r\n", b"a:\r\n"],
        steps=8.0,
        peak=60.0,
        begin=_OK + b"transfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\n",
        end=b"\r\n",
    ),
    Reader(
        "PROXY headers, version 1, in single bytes",
        _proxied,
        [b"0", b"1", b":", b"f", b" ", b"%"],
        steps=30.0,
        peak=70.0,
        begin=b"PROXY UNKNOWN ",
        end=b"\r\n",
        most=107,
    ),
    Reader(
        "PROXY headers, version 2, in single bytes",
        _proxied,
        [b"\x20\0\7\1\0\0\0\0\x21\0", b"\4\0\1\0", b"\xee\0\0", b"\x20\xff\xff", b"\0"],
        steps=16.0,
        peak=20.0,
        wrap=_with_values,
        most=4000,
    ),
    Reader(
        "datagrams of peers",
        lambda datagram: opened(datagram, lambda _: True),
        [b'"http://10.0.0.1:%d":[3,1],', b'"a%d":[0,0],', b'"\\u0041%d":[1,1],', b" ", b'"a":[1,2],'],
        steps=2.0,
        peak=60.0,
        begin=b'{"region":"fra","instance":"b.1","sequence":1,"at":1.5,"age":0,"uses":{"b.1/1":[3,1]},"loads":{',
        end=b'"z":[1,1]}}',
        wrap=_sealed,
        most=48_000,
    ),
    Reader(
        "handoffs",
        _verified,
        [b" ", b"\t", b"\n"],
        steps=6.0,
        peak=60.0,
        begin=_CLAIMS,
        end=b"}",
        wrap=_handed,
        most=3 * (MAX_TOKEN - 300) // 4,
    ),
    Reader(
        "`gtm-timeout`",
        _timed,
        [b"1", b"0", b".", b"e", b"-", b"_1"],
        steps=1.0,
        peak=20.0,
        begin=b"0",
        most=MAX_HEAD,
        worst=[b"1"],
    ),
    Reader(
        "gRPC's answers to checks",
        _checked,
        [
            PingFrame(0, b"12345678").serialize(),
            SettingsFrame(0, {4: 65_535}).serialize(),
            WindowUpdateFrame(0, window_increment=1).serialize(),
            WindowUpdateFrame(1, window_increment=1).serialize(),
            DataFrame(1, b"").serialize(),
            b"\0\0\1\x77\0\0\0\0\0a",
            HeadersFrame(1, b"\x88", flags=["END_HEADERS"]).serialize(),
        ],
        steps=30.0,
        peak=120.0,
        begin=SettingsFrame(0).serialize(),
        end=_heads((":status", "200"))
        + DataFrame(1, b"\x00\x00\x00\x00\x02\x08\x01").serialize()
        + _heads(("grpc-status", "0"), end=True),
        most=MAX_RECEIVED - 300,
    ),
    Reader(
        "answers to checks",
        lambda text: _scraped(text, 256),
        [
            b"40\r\n" + b"a" * 64 + b"\r\n",
            b"20;a=b\r\n" + b"a" * 32 + b"\r\n",
            b"1\r\na\r\n",
            b"200\r\n" + b"a" * 512 + b"\r\n",
        ],
        steps=3.0,
        peak=20.0,
        begin=_OK + b"transfer-encoding: chunked\r\n\r\n",
        end=b"0\r\n\r\n",
    ),
    Reader(
        "heads of answers to checks",
        lambda text: _scraped(text, 256),
        [b"x-a%d: " + b"b" * 180 + b"\r\n", b"a:\r\n", b"x:" + b" " * 90 + b"\r\n"],
        steps=3.0,
        peak=80.0,
        begin=_OK + b"content-length: 0\r\n",
        end=b"\r\n",
    ),
)
