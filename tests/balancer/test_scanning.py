"""Bodies that are read while they go on, held against the reader of whole ones and against the readers of servers: however a body is cut, nobody finds another model in it.

The model is slow and plain: `read_strictly` of all of it, `json`, `email` and `gzip`. Public reports, and what becomes of them here: a photo hides the model
(mnfst/llm-gateway#2126), a form whose file comes first (diegosouzapw/OmniRoute#2188, gpustack/gpustack#5226), a body that is cut where it is too long and says then that its model is invalid
(rockswang/wild-work#30).
"""

from __future__ import annotations

import asyncio
import gzip
import json
import tracemalloc
import zlib
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from gtm.balancer.plane.contracts import Looks
from gtm.balancer.plane.exchange import FIRST
from gtm.balancer.wire.bodies import (
    FREE,
    MAX_BRACKETS,
    MAX_MEMBER_NAME,
    MAX_MEMBERS,
    MAX_PARTS,
    MAX_READ,
    TIMES,
    BodyError,
    BodyScan,
    TooMuchError,
    Undoing,
    plain_body,
    read_strictly,
    undone,
)
from gtm.balancer.wire.endpoints import BodyKind
from gtm.balancer.wire.facts import MAX_INSPECTED, MAX_NAME
from gtm.balancer.wire.heads import RequestHead, read_head
from gtm.nesting import MAX_DEPTH
from tests.balancer.test_bodies import (
    AUDIO,
    CHAT,
    CHOSEN,
    LIMITED,
    MULTIPART,
    READERS,
    _email,
    _field,
    _form,
    _texts_of,
    _werkzeug,
    bodies,
    forms,
)
from tests.balancer.world import Backend, Peer, World, answering, run, world
from tests.balancer.world import read_head as read_sent
from tests.effort import examples

CODED = st.sampled_from([b"", b"", b"", b"gzip", b"deflate"])
CUTS = st.lists(st.integers(0, 400), max_size=6)


def _coded(body: bytes, coding: bytes) -> bytes:
    return {b"gzip": gzip.compress, b"deflate": zlib.compress}.get(coding, bytes)(body)


def _head(size: int, kind: bytes | None = None, coding: bytes = b"", path: bytes = CHAT) -> RequestHead:
    headers = [(b"Host", b"a"), (b"Content-Length", b"%d" % size)]
    headers += [(b"Content-Type", kind)] if kind else []
    headers += [(b"Content-Encoding", coding)] if coding else []
    return read_head(b"POST", path, "1.1", headers, keep_alive=True)


def _pieces(body: bytes, cuts: list[int]) -> list[bytes]:
    return [
        body[begin:end]
        for begin, end in pairwise([0, *sorted({min(cut, len(body)) for cut in cuts}), len(body)])
    ]


def _scanned(
    pieces: list[bytes], head: RequestHead, kind: BodyKind = BodyKind.JSON
) -> tuple[bool, str | None]:
    """Whether it is read to its end, and the model; or the code of its refusal."""
    try:
        scan = BodyScan(head, kind)
        for piece in pieces:
            scan.feed(piece)
        scan.end()
    except BodyError as error:
        return False, error.refusal.code
    return True, scan.model


def _whole(body: bytes, head: RequestHead, kind: BodyKind = BodyKind.JSON) -> tuple[bool, str | None]:
    """The same by the reader of whole bodies."""
    try:
        return True, read_strictly(head, kind, plain_body(head, body), CHOSEN, None).model
    except BodyError as error:
        return False, error.refusal.code


@settings(max_examples=examples(6000, 1500), deadline=None)
@given(bodies(), CUTS, CODED)
def test_however_an_object_is_cut_its_model_is_found(body: bytes, cuts: list[int], coding: bytes) -> None:
    """What is read whole is read in pieces, and its model is the same; what is ambiguous there is refused here; and of what goes on no server finds another model."""
    coded = _coded(body, coding)
    head = _head(len(coded), coding=coding)
    whole, said = _whole(coded, head)
    good, model = _scanned(_pieces(coded, cuts), head)
    assert _scanned([coded[at : at + 1] for at in range(len(coded))], head) == (good, model)
    if whole:
        assert (good, model) == (True, said)
    if not good:
        return
    assert said != "model_unread", body
    for reader in READERS:
        try:
            theirs = _texts_of(reader(body))
        except (ValueError, ValidationError, RecursionError):
            continue
        assert theirs == (model or None), (reader, body)


_LONG = "x" * 400


@pytest.mark.parametrize(
    ("member", "state"),
    [
        ('"previous_response_id": "resp_1"', "resp_1"),
        (r'"previous\u005fresponse_id": "resp\u005f1"', "resp_1"),
        ('"conversation": "conv_1"', "conv_1"),
        ('"conversation": {"id": "conv_1", "x": [1]}', None),
        ('"conversation": {"x": "}", "id" :"conv_1"}', "conv_1"),
        ('"input_file_id": "file_1"', "file_1"),
        ('"previous_response_id": null, "conversation": "conv_1"', "conv_1"),
        ('"previous_response_id": 7', None),
        (f'"previous_response_id": "{_LONG}"', None),
        (f'"previous_response_id": "{_LONG * 40}"', None),
        (f'"conversation": {{"id": "{_LONG * 40}"}}', None),
        (r'"previous_response_id": "\ud800"', None),
        ('"input": {"previous_response_id": "resp_1"}', None),
        (r'"input": "\"previous_response_id\": \"resp_1\""', None),
    ],
)
@pytest.mark.parametrize("step", [1, 7, 100_000])
def test_however_an_object_is_cut_what_it_goes_on_with_is_found(
    member: str, state: str | None, step: int
) -> None:
    """As a member of the object itself alone, and nothing of it is refused; its model is found beside it."""
    body = f'{{"text": [{{"a": "{_LONG}"}}], {member}, "model": "m"}}'.encode()
    scan = BodyScan(_head(len(body)), BodyKind.JSON)
    for at in range(0, len(body), step):
        scan.feed(body[at : at + step])
    scan.end()
    assert (scan.state, scan.model) == (state, "m")


@settings(max_examples=examples(3000, 800), deadline=None)
@given(forms(), CUTS, CODED)
def test_however_a_form_is_cut_its_model_is_found(
    form: tuple[bytes, bytes], cuts: list[int], coding: bytes
) -> None:
    """The same of forms; which of two faults is told may differ."""
    kind, body = form
    coded = _coded(body, coding)
    head = _head(len(coded), kind, coding, AUDIO)
    whole, said = _whole(coded, head, BodyKind.FORM)
    good, model = _scanned(_pieces(coded, cuts), head, BodyKind.FORM)
    assert _scanned([coded[at : at + 1] for at in range(len(coded))], head, BodyKind.FORM)[0] is good
    assert good is whole, (body, said, model)
    if not good:
        return
    assert model == said
    for reader in (_werkzeug, _email):
        try:
            theirs = reader(kind, body)
        except (ValueError, AssertionError, LookupError):
            continue
        assert theirs == ([] if model is None else [model]), (reader, form)


_TEXTS = st.text(st.sampled_from('"\\[]{}:,a\u00e4\U0001f600/\n'), max_size=300)


@settings(max_examples=examples(600, 200), deadline=None)
@given(
    st.dictionaries(
        st.text(max_size=9).filter(lambda name: name.casefold() not in ("model", "max_tokens")),
        st.recursive(
            st.none()
            | st.booleans()
            | st.integers()
            | st.floats(allow_nan=False, allow_infinity=False)
            | _TEXTS,
            lambda inner: st.lists(inner) | st.dictionaries(_TEXTS, inner),
            max_leaves=9,
        ),
        max_size=5,
    ),
    st.text(min_size=1, max_size=200),
    st.integers(0, 5),
    st.booleans(),
    CUTS,
)
def test_what_libraries_write_is_found(
    more: dict[str, Any], model: str, at: int, ascii_: bool, cuts: list[int]
) -> None:
    """Wherever it stands among the others, and however it is escaped; and it is known as soon as it has come."""
    members = [*more.items()]
    members.insert(at, ("model", model))
    raw = json.dumps(dict(members), ensure_ascii=ascii_).encode()
    assert _scanned(_pieces(raw, cuts), _head(len(raw))) == (True, model)
    end = raw.index(b'"model": ') + len(b'"model": ' + json.dumps(model, ensure_ascii=ascii_).encode())
    scan = BodyScan(_head(len(raw)), BodyKind.JSON)
    for place in range(end):
        assert not scan.known
        scan.feed(raw[place : place + 1])
    assert (scan.known, scan.model) == (True, model)


@pytest.mark.parametrize(
    ("body", "found"),
    [
        (b'{"x":' + b"[" * (MAX_DEPTH - 1) + b"]" * (MAX_DEPTH - 1) + b',"model":"big"}', (True, "big")),
        (b'{"x":' + b"[" * MAX_DEPTH + b"]" * MAX_DEPTH + b',"model":"big"}', (False, "body_unread")),
        (b'{"x":' + b"[" * 10**6, (False, "body_unread")),
        (b'{"x":[' + b"[]," * MAX_BRACKETS + b'1],"model":"big"}', (False, "body_too_large")),
        (b'{"x":[' + b"[]," * (MAX_BRACKETS // 2 - 2) + b'1],"model":"big"}', (True, "big")),
        (
            b"{" + b"".join(b'"%d":0,' % number for number in range(MAX_MEMBERS)) + b'"model":"big"}',
            (False, "body_too_large"),
        ),
        (
            b"{" + b"".join(b'"%d":0,' % number for number in range(MAX_MEMBERS - 1)) + b'"model":"big"}',
            (True, "big"),
        ),
        (b'{"%b":0,"model":"big"}' % ("\U0001f600" * MAX_MEMBER_NAME).encode(), (True, "big")),
        (b'{"%b":0,"model":"big"}' % (b"x" * (MAX_MEMBER_NAME + 1)), (False, "body_too_large")),
        (b'{"%b' % (b"x" * 10**6), (False, "body_too_large")),
        (b'{"model":"%b"}' % (b"x" * MAX_NAME), (True, "x" * MAX_NAME)),
        (b'{"model":"%b"}' % (b"x" * (MAX_NAME + 1)), (False, "model_unread")),
        (b'{"model":"%b' % (b"x" * 10**6), (False, "model_unread")),
        (b'{"model":null,"x":1}', (True, None)),
        (b'{"model":nullx}', (False, "model_unread")),
        (b'{"model":1}', (False, "model_unread")),
        (b'{"model":{"a":1}}', (False, "model_unread")),
        (b'{"mod\\u0065l":"big"}', (True, "big")),
        (b'{"model":"big","mod\\u0065l":"big"}', (False, "body_ambiguous")),
        (b'{"model":"big","x":"' + b"\\\\" * 1000 + b'\\"","model":"big"}', (False, "body_ambiguous")),
        (b'{"Model":"big"}', (False, "body_ambiguous")),
        (b'{"model":"big"}{"model":"big"}', (False, "body_unread")),
        ("\ufeff".encode() + b'{"model":"big"}', (False, "body_unread")),
        (b'{"model":"big","z":"\xff\xc0\xaf"}', (True, "big")),
        (b'{"model":"\xff"}', (False, "body_unread")),
        (b'{"model":"big"', (False, "body_unread")),
        (b'[{"model":"big"}]', (False, "body_unread")),
    ],
    ids=lambda one: repr(one[:40]) if isinstance(one, bytes) else str(one[1])[:20],
)
def test_objects(body: bytes, found: tuple[bool, str | None]) -> None:
    """Each bound, and what is written oddly."""
    head = _head(len(body))
    for step in (len(body), 4096, 7):
        if len(body) // step < 20_000:
            assert _scanned([body[at : at + step] for at in range(0, len(body), step)], head) == found


def test_forms() -> None:
    """Parts without end, and names."""
    for value, found in (
        (b"x" * MAX_NAME, (True, "x" * MAX_NAME)),
        (b"x" * (MAX_NAME + 1), (False, "model_unread")),
    ):
        body = _form([(_field(b"file", b'; filename="a"'), b"\r\n--Xy\r\n" * 999), (_field(b"model"), value)])
        assert (
            _scanned(_pieces(body, [*range(0, len(body), 100)]), _head(len(body), MULTIPART), BodyKind.FORM)
            == found
        )
    for count, good in ((MAX_PARTS - 1, True), (MAX_PARTS, False)):
        body = _form([(_field(b"x"), b"")] * count)
        head = _head(len(body), MULTIPART)
        assert _scanned([body], head, BodyKind.FORM)[0] is _whole(body, head, BodyKind.FORM)[0] is good
    endless = _form([(_field(b"model"), b"x" * 10**6)])
    assert _scanned([endless[:1000]], _head(9, MULTIPART), BodyKind.FORM) == (False, "model_unread")


@settings(max_examples=examples(300, 100), deadline=None)
@given(
    st.lists(st.sampled_from([b"x" * 1000, b"ab", bytes(300_000), bytes(range(256)) * 900]), max_size=8),
    CUTS,
    st.sampled_from([b"gzip", b"deflate"]),
)
def test_codings(parts: list[bytes], cuts: list[int], coding: bytes) -> None:
    """What is undone is what was coded, however it is cut; and no more of it than is bounded."""
    body = b"".join(parts)
    coded = _coded(body, coding)
    undoing = Undoing(coding, MAX_READ)
    made = 0
    try:
        found = []
        for piece in _pieces(coded, cuts):
            found += undoing.feed(piece)
            made = sum(map(len, found))
        undoing.end()
        assert b"".join(found) == body
        assert made <= FREE + TIMES * len(coded)
    except TooMuchError:
        assert len(body) > FREE
    assert (
        len(body) <= FREE
        or undone(coding, gzip.compress(b"x") if coding == b"gzip" else zlib.compress(b"x"), 1) == b"x"
    )
    for most in (len(body), len(body) - 1):
        if 0 <= most < FREE:
            if most == len(body):
                assert undone(coding, coded, most) == body
            else:
                with pytest.raises(TooMuchError):
                    undone(coding, coded, most)


def test_how_much_a_body_may_become() -> None:
    """What came counts, and so much more in any case; no more is made to find that out than is read at once."""
    size = FREE + TIMES * len(gzip.compress(bytes(FREE)))
    assert len(undone(b"gzip", gzip.compress(bytes(size)), MAX_READ)) == size
    bomb = gzip.compress(bytes(FREE + TIMES * len(gzip.compress(bytes(2 * FREE)))))
    undoing = Undoing(b"gzip", MAX_READ)
    tracemalloc.start()
    try:
        with pytest.raises(TooMuchError):
            assert max(map(len, undoing.feed(bomb))) <= 256 * 1024
        assert tracemalloc.get_traced_memory()[1] < 2 * 1024 * 1024
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "piece",
    [b"x" * 4096, b'"",', b'"\\"",', b"1,", b'\\"', b'{"a":"b"},' * 9 + b'"' + b"x" * 4000 + b'",'],
    ids=["text", "empty texts", "escaped", "numbers", "escapes", "objects"],
)
def test_little_is_kept(piece: bytes) -> None:
    """Whatever a body is made of: no more than a piece, and what is needed of it."""
    text = piece.startswith((b"x", b"\\"))
    scan = BodyScan(_head(9), BodyKind.JSON)
    scan.feed(b'{"model":"m","x":' + (b'"' if text else b"["))
    pieces = piece * (65_536 // len(piece))
    count = min(64, MAX_BRACKETS // max(1, pieces.count(b"{") * 2 + 1))
    tracemalloc.start()
    try:
        for _ in range(count):
            scan.feed(pieces)
        assert tracemalloc.get_traced_memory()[1] < 4 * len(pieces)
    finally:
        tracemalloc.stop()
    scan.feed(b'"}' if text else b"1]}")
    scan.end()
    assert scan.model == "m"


# --- through a balancer ---

UNLIKE = Looks(models=True, declared=True)
_OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
BIG = 3 * 1024 * 1024


class _Slowly:
    """A backend that says what of a body has come; `whole` has those whose end came, too."""

    def __init__(self) -> None:
        self.body = b""
        self.whole: list[bytes] = []
        self.ended = 0

    async def __call__(self, peer: Peer) -> None:
        while True:
            head = await read_sent(peer.reader)
            self.body = b""
            try:
                length = head.get("content-length")
                await (self._chunks(peer.reader) if length is None else self._bytes(peer.reader, int(length)))
            finally:
                self.ended += 1
            self.whole.append(self.body)
            peer.send(_OK)

    async def _chunks(self, reader: asyncio.StreamReader) -> None:
        while size := int(await reader.readuntil(b"\r\n"), 16):
            self.body += await reader.readexactly(size)
            await reader.readexactly(2)
        await reader.readuntil(b"\r\n")

    async def _bytes(self, reader: asyncio.StreamReader, length: int) -> None:
        while len(self.body) < length:
            more = await reader.read(65536)
            if not more:
                raise ConnectionResetError
            self.body += more


def _start(size: int | None, kind: bytes = b"application/json", path: bytes = CHAT, *more: bytes) -> bytes:
    framing = b"Transfer-Encoding: chunked" if size is None else b"Content-Length: %d" % size
    lines = b"".join(line + b"\r\n" for line in more)
    return b"POST %b HTTP/1.1\r\nHost: a\r\nContent-Type: %b\r\n%b\r\n%b\r\n" % (path, kind, framing, lines)


def _received(w: World) -> int:
    """Bytes that have come of the last request's body."""
    return w.gate.judged[-1].received if w.gate.judged else 0


def _strict(w: World, looks: Looks = UNLIKE) -> None:
    w.proxy.body_rules = CHOSEN
    w.picker.looks_at = looks


def test_a_body_goes_on_as_soon_as_its_model_is_known() -> None:
    """First, last, in pieces: nothing of it reaches a server before, and no more of it is held than there was then."""

    async def main() -> None:
        slowly = _Slowly()
        async with world(await Backend(slowly).start()) as w:
            _strict(w)
            text = b"x" * BIG
            for body, needed in (
                (b'{"model":"big","x":"%b"}' % text, MAX_INSPECTED + 1),
                (b'{"x":"%b","model":"big"}' % text, BIG + 22),
            ):
                client = await w.client()
                client.send(_start(len(body)))
                client.send(body[: needed - 4])
                await w.until(lambda needed=needed: _received(w) == needed - 4)  # type: ignore[misc]
                assert w.picker.in_flight == 0
                assert w.proxy.held.total >= needed - 4
                client.send(body[needed - 4 : needed + 60])
                await w.until(lambda: w.picker.in_flight == 1)
                await w.until(lambda needed=needed: len(slowly.body) >= needed)  # type: ignore[misc]
                await w.until(lambda: w.proxy.held.total == 0)
                client.send(body[needed + 60 :])
                assert (await client.response()).status == 200
                assert slowly.whole[-1] == body
                assert w.gate.judged[-1].facts.model == "big"
                client.close()

    run(main)


def test_a_form_goes_on_as_soon_as_its_model_is_known() -> None:
    """Its file may come first, as `curl -F file=@… -F model=…` writes it (diegosouzapw/OmniRoute#2188)."""

    async def main() -> None:
        slowly = _Slowly()
        async with world(await Backend(slowly).start()) as w:
            _strict(w)
            file = (_field(b"file", b'; filename="a.wav"'), bytes(range(256)) * (BIG // 256))
            named = (_field(b"model"), b"whisper")
            for parts in ([file, named], [named, file]):
                body = _form(parts)
                answer = await w.ask(_start(len(body), MULTIPART, AUDIO) + body)
                assert answer.status == 200
                assert slowly.whole[-1] == body
                assert w.gate.judged[-1].facts.model == "whisper"

    run(main)


@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunked"])
@pytest.mark.parametrize(
    ("end", "code"),
    [
        (b'","model":"small"}', "body_ambiguous"),
        (b'","mod\\u0065l":"small"}', "body_ambiguous"),
        (b'","MODEL":"small"}', "body_ambiguous"),
        (b'"}{"model":"small"}', "body_unread"),
        (b'"', "body_unread"),
    ],
)
def test_a_second_model_ends_a_request_before_its_last_byte(end: bytes, code: str, chunked: bool) -> None:
    """However late: the server that has the rest never has all of it."""

    async def main() -> None:
        slowly = _Slowly()
        async with world(await Backend(slowly).start()) as w:
            _strict(w)
            begin = b'{"model":"big","x":"' + b"x" * BIG
            body = begin + end
            client = await w.client()
            client.send(_start(None if chunked else len(body)))
            client.send(b"%x\r\n%b\r\n" % (len(begin), begin) if chunked else begin)
            await w.until(lambda: len(slowly.body) == len(begin))
            client.send(b"%x\r\n%b\r\n0\r\n\r\n" % (len(end), end) if chunked else end)
            refused = await client.response()
            assert (refused.status, json.loads(refused.body)["code"]) == (400, code)
            await w.until(lambda: slowly.ended == 1)
            assert slowly.whole == []
            assert w.picker.failures == []
            assert w.proxy.held.total == 0

    run(main)


def test_what_is_not_found_goes_only_where_all_are_alike() -> None:
    """Else it is refused, and the refusal says where its model was looked for."""

    async def main() -> None:
        async with world(await Backend(answering(_OK)).start()) as w:
            form = _form([(_field(b"file", b'; filename="a"'), b"x")])
            asked = [
                (_start(2) + b"{}", "`model` of its JSON object"),
                (_start(14) + b'{"model":null}', "`model` of its JSON object"),
                (_start(12) + b'{"model":""}', "`model` of its JSON object"),
                (_start(len(form), MULTIPART, AUDIO) + form, "`model` of its multipart form"),
                (b"GET /v1/realtime HTTP/1.1\r\nHost: a\r\n\r\n", "`?model=`"),
                (_start(2, path=b"/of/somebody") + b"{}", "does not know this endpoint"),
                (_start(4, path=b"/of/somebody") + b"%PDF", "does not know this endpoint"),
                (_start(BIG + 8) + b'{"x":"' + b"x" * BIG + b'"}', "`model` of its JSON object"),
            ]
            for raw, where in asked:
                _strict(w)
                refused = await w.ask(raw)
                problem = json.loads(refused.body)
                assert (refused.status, problem["code"]) == (400, "model_unnamed"), raw[:60]
                assert where in problem["detail"]
                assert w.picker.in_flight == 0
                _strict(w, Looks(hints=False))
                assert (await w.ask(raw)).status == 200
            for raw in (
                b"GET /v1/models HTTP/1.1\r\nHost: a\r\n\r\n",
                b"DELETE /v1/responses/7 HTTP/1.1\r\nHost: a\r\n\r\n",
            ):
                _strict(w)
                assert (await w.ask(raw)).status == 200

    run(main)


def test_no_more_is_held_than_is_read() -> None:
    """A body whose model does not come is refused; and what all hold is bounded as ever (tests/balancer/test_holding.py)."""

    async def main() -> None:
        async with world(await Backend(answering(_OK)).start()) as w:
            w.proxy.most_read = 2 * MAX_INSPECTED
            body = b'{"x":"' + b"x" * BIG + b'","model":"big"}'
            _strict(w)
            refused = await w.ask(_start(len(body)) + body)
            assert (refused.status, json.loads(refused.body)["code"]) == (400, "model_unnamed")
            assert "first 2 MiB" in json.loads(refused.body)["detail"]
            _strict(w, Looks(models=True))
            assert (await w.ask(_start(len(body)) + body)).status == 200
            w.proxy.held.bound(1_000_000)
            _strict(w)
            refused = await w.ask(_start(len(body)) + body)
            assert json.loads(refused.body)["code"] == "client_bodies_full"
            await w.until(lambda: w.proxy.held.total == 0)

    run(main)


def test_what_decides_nothing_is_not_awaited() -> None:
    """Where all servers are alike and nothing sticks, a body goes on from its first 64 KiB; its model is known to the log, if it stands there."""

    async def main() -> None:
        slowly = _Slowly()
        async with world(await Backend(slowly).start()) as w:
            w.picker.looks_at = Looks(hints=False)
            body = b'{"model":"big","x":"' + b"x" * 500_000 + b'"}'
            for rules in (None, CHOSEN):
                w.proxy.body_rules = rules
                client = await w.client()
                client.send(_start(len(body)) + body[: FIRST + 1])
                await w.until(lambda: len(slowly.body) == FIRST + 1)
                assert w.gate.judged[-1].facts.model == "big"
                client.send(body[FIRST + 1 :])
                assert (await client.response()).status == 200
                client.close()
            w.picker.looks_at = Looks(hints=False, several=True)  # a chat goes on with nothing
            client = await w.client()
            client.send(_start(len(body)) + body[: FIRST + 1])
            await w.until(lambda: len(slowly.body) == FIRST + 1)
            client.send(body[FIRST + 1 :])
            assert (await client.response()).status == 200
            client.close()
            w.picker.looks_at = Looks()
            client = await w.client()
            client.send(_start(len(body)) + body[: FIRST + 1])
            await w.until(lambda: _received(w) == FIRST + 1)
            assert w.picker.in_flight == 0
            client.send(body[FIRST + 1 :])
            assert (await client.response()).status == 200
            w.proxy.body_rules = LIMITED  # and where limits go by it, to its end
            client.send(_start(len(body)) + body[:-1])
            await w.until(lambda: _received(w) == len(body) - 1)
            await asyncio.sleep(0)
            assert w.picker.in_flight == 0
            client.send(body[-1:])
            assert (await client.response()).status == 200

    run(main)


def test_what_cannot_be_read_is_the_servers_to_refuse_where_nothing_goes_by_it() -> None:
    """Without rules nothing is refused for its body, whatever it is; hints are taken of what can be read."""

    async def main() -> None:
        slowly = _Slowly()
        async with world(await Backend(slowly).start()) as w:
            w.picker.looks_at = Looks(models=True)
            text = b"x" * (2 * MAX_INSPECTED)
            for body, coding, model in (
                (b'{"model":"big","x":"%b","model":"small"}' % text, b"", "big"),
                (b'{"x":"%b","model":"big"}' % text, b"", "big"),
                (b'{"x":"%b"' % text, b"", None),
                (b"%b" % text, b"", None),
                (gzip.compress(b'{"model":"big"}'), b"gzip", "big"),
                (b"no gzip at all", b"gzip", None),
                (b"no gzip at all" * 200_000, b"gzip", None),
                (b'{"model":"big"}', b"br", None),
                (zlib.compress(b'{"x":"%b' % bytes(MAX_READ)), b"deflate", None),
            ):
                lines = (b"Content-Encoding: " + coding,) if coding else ()
                answer = await w.ask(_start(len(body), b"application/json", CHAT, *lines) + body)
                assert answer.status == 200
                assert slowly.whole[-1] == body
                assert w.gate.judged[-1].facts.model == model, body[:60]
            assert w.proxy.held.total == 0

    run(main)
