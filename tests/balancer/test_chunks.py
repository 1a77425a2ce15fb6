"""Plain chunks, which are told apart without the parser: the strict parser's own word on the same bytes is the model."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import pairwise
from types import SimpleNamespace
from typing import cast

import pytest
from httptools import HttpParserError, HttpResponseParser
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gtm.balancer.plane.access import AccessLines
from gtm.balancer.plane.backend.upstream import Upstream
from gtm.balancer.plane.exchange import ClientAnswer
from gtm.balancer.wire import responses as wire
from gtm.balancer.wire.responses import PIECE, TURN, Chunks
from tests.balancer import world as worlds
from tests.balancer.world import Backend, Message, Peer, answering, run, world
from tests.effort import examples

# --- chunks ---

_HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


class _Parser:
    """The strict parser behind a head, and what it made of what came."""

    def __init__(self) -> None:
        self.body = b""
        self.ended = self.wrong = False
        self._parser = HttpResponseParser(self)
        self._parser.feed_data(_HEAD)

    def feed(self, data: bytes) -> None:
        if not self.ended and not self.wrong:
            try:
                self._parser.feed_data(data)
            except HttpParserError:
                self.wrong = not self.ended

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        self.ended = True


def _apart(data: bytes, cuts: list[int]) -> Iterator[bytes]:
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    for start, end in pairwise(places):
        yield data[start:end]


def _read(parts: Iterator[bytes]) -> tuple[bytes, bool, bool]:
    """What a reader makes of chunks that leaves to the parser what is not plain. What goes on as it is must be body in chunks."""
    chunks: Chunks | None = Chunks()
    body, parser = b"", _Parser()
    for part in parts:
        if chunks is None:
            parser.feed(part)
            continue
        size = chunks.whole(part)
        if size >= 0:
            passed = _Parser()
            passed.feed(part)
            assert not passed.wrong
            assert len(passed.body) == size
            assert part[-6:-2] == passed.body[-4:]
            body += passed.body
            after = _Parser()
            after.feed(part + b"0\r\n\r\n")
            assert after.ended, "it ends between two chunks"
            continue
        pieces, rest = chunks.split(part)
        body += b"".join(pieces)
        while chunks.later:
            assert len(pieces) == wire.TURN
            assert not rest
            pieces, rest = chunks.split(chunks.later)
            body += b"".join(pieces)
        if chunks.broken:
            return body, False, True
        if rest:
            chunks = None
            parser.feed(rest)
    return body + parser.body, parser.ended, parser.wrong


_plain = st.binary(min_size=1, max_size=40).map(lambda data: b"%x\r\n%b\r\n" % (len(data), data))
_odd = st.sampled_from(
    [b"0\r\n\r\n", b"0\r\nA: b\r\n\r\n", b"00\r\n\r\n", b"03\r\nabc\r\n", b"3;x=y\r\nabc\r\n", b"3 \r\nabc\r\n", b"3\nabc\r\n", b"3\r\nabc\n",
     b"3\r\nabcd\r\n", b"3\r\nab\r\n", b"-1\r\n", b"0x3\r\nabc\r\n", b"fffffffff\r\n", b"3\r\r\nabc\r\n", b"\r\n", b"A\r\n0123456789\r\n", b"g\r\n",
     b"3\r\nabc\r\r", b"3\r\nabc\rx", b"1_0\r\n0123456789abcdef\r\n", b"+3\r\nabc\r\n"]
)  # fmt: skip


@settings(max_examples=examples(3000, 150), deadline=None)
@given(
    st.lists(st.one_of(_plain, _plain, _plain, _odd), max_size=8),
    st.lists(st.integers(0, 400), max_size=8),
    st.sampled_from((1, 2, 3, wire.TURN)),
)
@example([b"3\r\nabc\r\n", b"0\r\n\r\n"], [1, 2, 3, 4, 5, 6, 7, 8, 9], 1)
@example([b"4\r\nabcd\r\n", b"0000\r\n\r\n"], [9], 256)
@example(
    [b"9\r\n4\r\nabcd\r\n\r\n", b"0\r\n\r\n"], [3, 12], 256
)  # what looks like a chunk is the middle of one
@example([b"14\r\nabcd\r\n" + b"y" * 14 + b"\r\n"], [1, 10], 256)
def test_chunks_are_what_the_parser_says(parts: list[bytes], cuts: list[int], turn: int) -> None:
    """However the bytes are cut, and however many pieces a turn has: the same body, the same end, the same refusal."""
    data = b"".join(parts)
    model = _Parser()
    model.feed(data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wire, "TURN", turn)
        body, ended, wrong = _read(_apart(data, cuts))
    assert wrong == model.wrong
    if not wrong:
        assert (body, ended) == (model.body, model.ended)


def test_more_than_a_turn_of_chunks_is_not_read_at_once() -> None:
    """As many as a turn has go on as they are; more are split, so many in a call."""
    chunk = b"4\r\nabcd\r\n"
    assert Chunks().whole(chunk * TURN) == 4 * TURN
    chunks = Chunks()
    assert chunks.whole(chunk * (TURN + 1)) == -1
    assert chunks.split(chunk * (TURN + 1)) == ([b"abcd"] * TURN, b"")
    assert chunks.split(chunks.later) == ([b"abcd"], b"")
    assert not chunks.later


def test_bodies_of_other_lengths_by_one_head() -> None:
    """On one connection and on others: each body arrives with its own length, and each answer with its own."""

    async def main() -> None:
        seen: list[Message] = []
        bodies = [b"x" * length for length in (3, 1, 12, 1, 300, 3)]
        answers = [b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body) for body in bodies]
        async with world(await Backend(answering(*answers, seen=seen)).start()) as w:
            client = await w.client()
            for number, body in enumerate(bodies):
                if number % 3 == 2:
                    client = await w.client()
                client.send(
                    b"POST /%d HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%b"
                    % (number % 2, len(body), body)
                )
                answer = await client.response()
                assert (answer.body, answer.get("content-length")) == (body, b"%d" % len(body))
            assert [one.body for one in seen] == bodies

    run(main)


def test_what_one_request_changes_others_do_not_feel() -> None:
    """One whose connection ends with its answer, for the backend's sake, leaves those of the same head as they are."""

    async def main() -> None:
        until = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
        async with world(await Backend(answering(until)).start()) as w:
            client = await w.client()
            raw = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
            for _ in range(3):
                client.send(raw)
                answer = await client.response()
                assert (answer.body, answer.get("connection")) == (b"abc", None)
            w.proxy.draining = True
            client.send(raw)
            assert (await client.response()).get("connection") == b"close"
            w.proxy.draining = False
            other = await w.client()
            for _ in range(2):
                other.send(raw)
                assert (await other.response()).get("connection") is None

    run(main)


# --- on the way ---

_GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
_OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def _asked(answer: bytes, times: int = 3, *requests: bytes) -> tuple[list[Message], int]:
    """Answers to requests on connections of their own, and how many connections the backend saw."""
    answers: list[Message] = []
    backend = Backend(answering(answer))

    async def main() -> None:
        async with world(await backend.start()) as w:
            for number in range(times):
                raw = requests[number % len(requests)] if requests else _GET
                answers.append(await w.ask(raw, raw.partition(b" ")[0].decode()))
                await asyncio.sleep(0.01)  # what is beyond an answer is there

    run(main)
    return answers, backend.connections


@pytest.mark.parametrize(
    "answer",
    [
        _OK + b"more",
        b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nmore",
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\nmore",
        b"HTTP/1.1 204 No\r\nX: chunked\r\n\r\nmore",
    ],
)
def test_a_connection_that_is_over(answer: bytes) -> None:
    """What a backend says beyond an answer is nobody's, and its last answer is its last: also when the head is known."""
    answers, connections = _asked(answer)
    assert connections == 3
    assert all(one.whole and one.status < 300 for one in answers)


def test_answers_that_end_by_what_was_asked() -> None:
    """The same head answers GET with a body, and HEAD without; 304 has none, whatever length it speaks of; HTTP/1.0 has no chunks."""
    unchanged = b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n"
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"

    async def script(peer: Peer) -> None:
        while True:
            request = await peer.request()
            if b"/chunks" in request.start:
                for piece in (chunked, b"4\r\nokok\r\n", b"0\r\n\r\n"):
                    peer.send(piece)
                    await asyncio.sleep(0.01)
            elif b"/unchanged" in request.start:
                peer.send(unchanged)
            else:
                peer.send(_OK[:-2] if request.start.startswith(b"HEAD") else _OK)

    async def main() -> None:
        async with world(await Backend(script).start()) as w:
            client = await w.client()
            for method in ("GET", "GET", "HEAD", "HEAD", "GET"):
                client.send(method.encode() + _GET[3:])
                answer = await client.response(method)
                assert (answer.get("content-length"), answer.body) == (
                    b"2",
                    b"" if method == "HEAD" else b"ok",
                )
            for _ in range(3):
                client.send(_GET.replace(b"/ ", b"/unchanged "))
                assert (await client.response()).status == 304
            for old in (False, False, True, True):
                raw = _GET.replace(b"/ ", b"/chunks ")
                answer = await w.ask(raw.replace(b"HTTP/1.1", b"HTTP/1.0") if old else raw)
                assert (answer.body, answer.get("transfer-encoding")) == (
                    b"okok",
                    None if old else b"chunked",
                )

    run(main)


def test_requests_that_repeat_what_cannot_be_known() -> None:
    """A length that cannot be left out, the end of a connection, and a head within a head."""

    async def main() -> None:
        seen: list[Message] = []
        async with world(await Backend(answering(_OK, seen=seen)).start()) as w:
            client = await w.client()
            odd = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 002\r\n\r\n"
            for number in range(4):
                client.send(odd + b"hi"[: 2 if number < 2 else 0])
                if number >= 2:
                    await asyncio.sleep(0.01)
                    client.send(b"hi")
                assert (await client.response()).body == b"ok"
                assert (seen[-1].body, seen[-1].get("content-length")) == (b"hi", b"2")
            for _ in range(2):
                client.send(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
                await asyncio.sleep(0.01)
                client.send(b"2\r\nhi\r\n0\r\n\r\n")
                assert (await client.response()).body == b"ok"
                assert seen[-1].body == b"hi"
            for _ in range(3):
                closing = await w.client()
                closing.send(_GET[:-2] + b"Connection: close\r\n\r\n")
                assert (await closing.response()).get("connection") == b"close"
                assert await closing.end() == b""
            for _ in range(2):
                client.send(_GET)
                await client.response()
            seen.clear()
            client.send(b"POST /x HTTP/1.1\r\nX: ")
            await asyncio.sleep(0.01)
            client.send(_GET)
            assert (await client.response()).status == 200
            assert [(one.start, one.get("x")) for one in seen] == [(b"POST /x HTTP/1.1", b"GET / HTTP/1.1")]

    run(main)


def test_what_gtm_adds_is_of_each_request() -> None:
    """Its own lines to backends and clients, the way's path: none is another request's."""

    async def main() -> None:
        seen: list[Message] = []
        here = await Backend(answering(_OK, seen=seen)).start()
        there = await Backend(answering(_OK, seen=seen)).start()
        async with world(here, there + "/v2") as w:
            numbers = iter(range(100))
            w.gate.more_headers = lambda _: b"x-number: %d\r\n" % ((next(numbers) + 1) // 2)  # type: ignore[method-assign,assignment]
            client = await w.client()
            waits = []
            for number in range(6):
                w.admission.holds = number == 3
                client.send(_GET)
                if number == 3:
                    await w.until(lambda: bool(w.admission.waiting))
                    w.clock.ahead += 1.0
                    w.admission.waiting.pop().admitted()
                waits.append((await client.response()).get("server-timing") is not None)
                if number in {1, 4}:
                    w.picker.configure(w.picker.routes()[::-1])
            assert waits == [False, False, False, True, False, False]
            assert [one.get("x-number") for one in seen] == [b"0", b"1", b"1", b"2", b"2", b"3"]
            assert [one.start.split(b" ")[1] for one in seen] == [b"/", b"/", b"/v2/", b"/v2/", b"/v2/", b"/"]

    run(main)


@pytest.mark.parametrize("known", [False, True])
def test_a_stream_that_breaks_off(known: bool) -> None:
    """Its size counts what came as it is; an error is told behind an event, and not in the middle of one."""
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    turn = asyncio.Event()

    async def main() -> None:
        async def script(peer: Peer) -> None:
            while True:
                request = await peer.request()
                peer.send(head)
                for piece in (b"data: 1\n\n", b"data: 2\n\n" if b"/whole" in request.start else b"data: 2"):
                    await turn.wait()
                    turn.clear()
                    peer.send(b"%x\r\n%b\r\n" % (len(piece), piece))
                if b"/again" in request.start:
                    await turn.wait()
                    turn.clear()
                    peer.send(b"0\r\n\r\n")
                    continue
                await turn.wait()
                turn.clear()
                return

        sizes: list[int] = []
        log = SimpleNamespace(ended=lambda exchange, *_: sizes.append(exchange.returned))
        async with world(await Backend(script).start(), log=cast("AccessLines", log)) as w:
            for path in [b"/again", b"/again"] * known + [b"/whole", b"/half"]:
                client = await w.client()
                client.send(b"GET %b HTTP/1.1\r\nHost: a\r\n\r\n" % path)
                await worlds.read_head(client.reader)
                got = b""
                for ending in (b"1\n\n\r\n", b"2\r\n" if path != b"/whole" else b"2\n\n\r\n"):
                    turn.set()
                    while not got.endswith(ending):
                        got += await client.reader.read(100)
                turn.set()
                if path == b"/again":
                    assert await client.reader.readexactly(5) == b"0\r\n\r\n"
                    assert sizes[-1] == len(b"data: 1\n\ndata: 2")
                else:
                    rest = await client.end()
                    assert (b"error" in rest) == (path == b"/whole")
                    assert not rest.endswith(b"0\r\n\r\n")

    run(main)


_HEADS = {
    "plain": (b"%x\r\n%b\r\n", b"HTTP/1.1"),
    "with extensions": (b"%x;a\r\n%b\r\n", b"HTTP/1.1"),
    "for HTTP/1.0": (b"%x\r\n%b\r\n", b"HTTP/1.0"),
}


@pytest.mark.parametrize(("form", "version"), _HEADS.values(), ids=_HEADS)
def test_an_answer_in_bytes_leaves_others_their_turn(
    monkeypatch: pytest.MonkeyPatch, form: bytes, version: bytes
) -> None:
    """Many chunks of one byte at once: others come in between, often, nothing is read meanwhile, and all of it arrives; then another request's."""
    data = bytes(number % 251 for number in range(60_000))
    chunked = b"".join(form % (1, data[at : at + 1]) for at in range(len(data))) + b"0\r\n\r\n"
    turns, inside = [0], ClientAnswer.body

    def counted(answer: ClientAnswer, piece: bytes) -> None:
        turns[-1] += len(piece)
        inside(answer, piece)

    monkeypatch.setattr(ClientAnswer, "body", counted)
    reads, taken = [], Upstream.data_received

    def read(upstream: Upstream, data: bytes) -> None:
        reads.append(upstream.behind)
        taken(upstream, data)

    monkeypatch.setattr(Upstream, "data_received", read)

    async def main() -> None:
        backend = Backend(answering(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked))
        async with world(await backend.start()) as w:
            loop = asyncio.get_running_loop()

            def others() -> None:
                turns.append(0)
                loop.call_soon(others)

            loop.call_soon(others)
            for _ in range(2):
                answer = await w.ask(_GET.replace(b"HTTP/1.1", version))
                assert answer.body == data
        assert backend.connections == 1

    run(main)
    assert sum(turns) == 2 * len(data)
    assert not any(reads)
    # A turn ends with the bytes that the parser was fed together, of which a chunk has six at least; the end of one read and the
    # beginning of the next may be in one.
    assert max(turns) <= 2 * (TURN + PIECE // 6)


def test_an_answer_that_ends_while_it_waits_for_its_turn() -> None:
    """The client is gone, or the backend has sent something that cannot be read: what waits is read by nobody, and others go on."""
    many = b"1\r\nx\r\n" * 20_000

    async def main() -> None:
        async def script(peer: Peer) -> None:
            while True:
                request = await peer.request()
                if b"/bad" in request.start:
                    peer.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + many + b"zz\r\n")
                elif b"/long" in request.start:
                    peer.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + many)
                else:
                    peer.send(_OK)

        async with world(await Backend(script).start()) as w:
            gone = await w.client()
            gone.send(_GET.replace(b"/ ", b"/long "))
            await worlds.read_head(gone.reader)
            gone.abort()
            await w.until(lambda: not w.admission.inside)
            bad = await w.client()
            bad.send(_GET.replace(b"/ ", b"/bad "))
            assert not (await bad.end()).endswith(b"0\r\n\r\n")
            await w.until(lambda: not w.admission.inside)
            assert (await w.ask(_GET)).body == b"ok"

    run(main)
