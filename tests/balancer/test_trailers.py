"""Fields behind a request's body: which go on (docs/balancer.md), by which way the request goes, and for how many there is room.

The model is RFC 9110 §6.5.1 and the fields that docs/balancer.md says gtm alone may say, written out by hand.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gtm.balancer.plane.exchange import Exchange
from gtm.balancer.wire.heads import MAX_FRAMING, MAX_TRAILERS, announcement, goes_on, kept_back, read_head
from tests.balancer.world import Backend, Message, Peer, answering, run, world
from tests.effort import examples

_OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
_FRAMING = ("content-length", "transfer-encoding", "trailer", "te", "connection", "upgrade", "keep-alive")
_ROUTING = (
    "host",
    "forwarded",
    "via",
    "x-real-ip",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-proto",
)
_MODIFIERS = ("expect", "range", "if-match", "if-none-match", "cache-control", "max-forwards", "pragma")
_WHO = (
    *("authorization", "x-api-key", "api-key", "proxy-authorization"),
    *("cookie", "set-cookie", "www-authenticate"),
)
_FORMAT = ("content-type", "content-encoding", "content-range")
_READ = (
    "traceparent",
    "idempotency-key",
    "gtm-handoff",
    "gtm-tenant",
    "gtm-priority",
    "gtm-push",
    "x-gtm-region",
)
_NEVER = (*_FRAMING, *_ROUTING, *_MODIFIERS, *_WHO, *_FORMAT, *_READ)
_MAY = ("x-sum", "content-digest", "repr-digest", "x-amz-checksum-crc32", "etag", "x-a", "grpc-status")


@st.composite
def _name(draw: st.DrawFn, plain: str) -> bytes:
    """The name as somebody may write it who hopes that it is not known again."""
    marks = draw(st.lists(st.sampled_from("-_."), min_size=plain.count("-"), max_size=plain.count("-")))
    parts = plain.split("-")
    written = "".join(part + mark for part, mark in zip(parts, [*marks, ""], strict=True))
    return "".join(draw(st.sampled_from((one.upper(), one))) for one in written).encode()


@settings(max_examples=examples(2000, 300), deadline=None)
@given(st.data(), st.sampled_from(_NEVER + _MAY), st.sampled_from(("", "named", "said", "both")))
def test_which_go_on(data: st.DataObject, plain: str, before: str) -> None:
    """None that gtm reads or says, or that says how to take the message, however it is spelt; none of one hop; none said before."""
    name = data.draw(_name(plain))
    headers = [(b"Host", b"a"), (b"Transfer-Encoding", b"chunked"), (b"Trailer", b"x-z, " + name)]
    if before in ("named", "both"):
        headers.append((b"Connection", b"x-b, " + data.draw(_name(plain))))
    if before in ("said", "both") and plain in _MAY:
        headers.append((data.draw(_name(plain)), b"1"))
    head = read_head(b"POST", b"/", "1.1", headers, keep_alive=True)
    named = before in ("named", "both")
    # What Connection names is of one hop in the head too: then the head has not said it.
    may = plain in _MAY and not named and before != "said"
    assert goes_on(name, kept_back(head)) is may
    wanted = sorted([b"x-z", *([name.lower()] if may else [])])
    assert announcement(head) == b"trailer: %b\r\n" % b", ".join(wanted)


@pytest.mark.parametrize("name", [b"x-api-key", b"X_Api_Key", b"api.key", b"Api-Key", b"Authorization"])
def test_no_key_goes_on(name: bytes) -> None:
    """A tenant is known by the head alone."""
    assert not goes_on(name, frozenset())


_TRAILED = b"POST %b HTTP/1.1\r\nHost: a\r\n%bTrailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\nX-Sum: 1\r\n\r\n"
_JSON = b'{"model":"m","messages":[]}'


def _trailed(path: bytes, *more: bytes, body: bytes = b"abc") -> bytes:
    return _TRAILED % (path, b"".join(line + b"\r\n" for line in more), len(body), body)


def test_they_go_on_by_every_way() -> None:
    """With a body that goes on as it comes, that was read first, that waited, and with one that is sent again."""

    async def dies(peer: Peer) -> None:
        await peer.request()
        peer.abort()

    async def main() -> None:
        seen: list[Message] = []
        good = await Backend(answering(_OK, seen=seen)).start()
        chat = _trailed(b"/v1/chat/completions", b"Content-Type: application/json", body=_JSON)
        async with world(good) as w:
            await w.ask(_trailed(b"/"))
            await w.ask(chat)
            w.admission.holds = True
            client = await w.client()
            client.send(_trailed(b"/"))
            await w.until(lambda: bool(w.admission.waiting and w.admission.waiting[0].complete))
            w.admission.waiting.pop().admitted()
            assert (await client.response()).status == 200
        async with world(await Backend(dies).start(), good) as w:
            assert (await w.ask(_trailed(b"/", b"Idempotency-Key: 1"))).status == 200
        assert [one.trailers for one in seen] == [[(b"X-Sum", b"1")]] * 4
        assert [one.get("trailer") for one in seen] == [b"x-sum"] * 4

    run(main)


def test_they_end_where_the_body_becomes_another() -> None:
    """A digest of what the client sent is none of what another model is asked."""

    async def main() -> None:
        seen: list[Message] = []
        async with world(await Backend(answering(_OK, seen=seen)).start()) as w:

            def offer(exchange: Exchange, now: float) -> None:
                assert exchange.use_model("other")
                w.admission.inside.add(exchange)
                exchange.admitted()

            w.admission.offer = offer  # type: ignore[method-assign]
            await w.ask(_trailed(b"/v1/chat/completions", b"Content-Type: application/json", body=_JSON))
        (one,) = seen
        assert (one.trailers, one.get("trailer")) == ([], None)
        assert b'"other"' in one.body

    run(main)


def test_too_many_end_the_request() -> None:
    """What a backend has of it then is no whole request, and what follows is not read."""

    async def main() -> None:
        ended: list[bool] = []

        async def script(peer: Peer) -> None:
            ended.append((await peer.request()).whole)

        many = b"".join(b"X-%d: 1\r\n" % number for number in range(MAX_TRAILERS + 1))
        async with world(await Backend(script).start()) as w:
            client = await w.client()
            client.send(_trailed(b"/").replace(b"X-Sum: 1\r\n", many))
            answer = await client.response()
            assert (answer.status, answer.get("connection")) == (431, b"close")
            await w.until(lambda: bool(ended) or not w.admission.inside)
            assert not any(ended)

    run(main)


def _calls(act: Callable[[], object]) -> int:
    """How many functions are called."""
    found = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal found
        found += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        act()
    finally:
        sys.setprofile(None)
    return found


def test_many_names_cost_what_they_are() -> None:
    """Of Connection, Trailer and the fields themselves: four times as many are four times the work, not sixteen times."""

    def cost(number: int) -> int:
        names = [b"x-%d" % one for one in range(number)]
        headers = [(b"Host", b"a"), (b"Transfer-Encoding", b"chunked"), (b"Trailer", b", ".join(names))]
        headers.append((b"Connection", b", ".join(b"y-%d" % one for one in range(number))))
        head = read_head(b"POST", b"/", "1.1", headers, keep_alive=True)

        def all_of_it() -> None:
            assert announcement(head)
            withheld = kept_back(head)
            assert all(goes_on(name, withheld) for name in names)

        return _calls(all_of_it)

    assert cost(2000) < 5 * cost(500)


def test_a_line_that_does_not_end_is_bounded_by_itself() -> None:
    """Behind a large body, of a request or an answer: it is no part of the body, and whoever parses it keeps all of it."""
    block = b"x" * 100_000
    body = b"%x\r\n%b\r\n" % (len(block), block) * 20
    line = b"0\r\nX-T: " + b"t" * (MAX_FRAMING + 64_000)

    async def main() -> None:
        read: list[bool] = []

        async def script(peer: Peer) -> None:
            read.append((await peer.request()).whole)

        async def answers(peer: Peer) -> None:
            await peer.request()
            peer.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + body)
            peer.send(line)
            await peer.request()

        async with world(await Backend(script).start()) as w:
            client = await w.client()
            client.send(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" + body + line)
            answer = await client.response()
            assert (answer.status, answer.get("connection")) == (431, b"close")
            assert not any(read)
        async with world(await Backend(answers).start()) as w:
            answer = await w.ask(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            assert not answer.whole

    run(main)
