"""Bodies that limits go by, held against docs/balancer.md ("Limits that go by the body") and against the readers of servers: what two of them take for two models is refused.

What people reported of others, and what becomes of it here: a model twice, authorized as the first and run as the last (ENTERPILOT/GoModel#870), and members that match whatever their case
(golang/go#14750, modelcontextprotocol/go-sdk#807) are refused; bodies of 2.5 MB (agentgateway/agentgateway#2350) and forms (higress-group/higress#1887, vllm-project/aibrix#1859) are read; names without quotes (dotnet/runtime#72447,
nodejs/undici#4660) and parts with a length (cloudfoundry/cloud_controller_ng#4565) are what .NET writes; half a surrogate pair (JustVugg/colibri#1589, raullenchai/Rapid-MLX#730) and compressed bodies
(agentgateway/agentgateway#2402 and #2621, langwatch/langwatch#6344) are refused with the reason.
"""

from __future__ import annotations

import asyncio
import email.parser
import email.policy
import gzip
import io
import json
import subprocess
import tracemalloc
import zlib
from base64 import b64encode
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import httpx
import pytest
import requests
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import from_json
from starlette.requests import Request
from werkzeug.formparser import FormDataParser
from werkzeug.test import EnvironBuilder

from gtm.balancer.config import checked
from gtm.balancer.plane.exchange import Exchange
from gtm.balancer.wire.bodies import (
    MAX_BRACKETS,
    MAX_MEMBER_NAME,
    MAX_MEMBERS,
    MAX_PART_HEAD,
    MAX_PART_LINES,
    MAX_READ,
    READ,
    BodyError,
    BodyRules,
    kind_of,
    plain_body,
    read_strictly,
)
from gtm.balancer.wire.endpoints import BodyKind, target_of
from gtm.balancer.wire.facts import RequestFacts, read_facts
from gtm.balancer.wire.heads import RequestHead, read_head
from gtm.balancer.wire.refusals import Refusal
from tests.balancer.world import Backend, Peer, run, world
from tests.effort import examples
from tests.tools import tool

LIMITED, CHOSEN = BodyRules(limits_models=True), BodyRules(limits_models=False)
BUDGETED = BodyRules(limits_models=False, budgets=True)
CHAT = b"/v1/chat/completions"
AUDIO = b"/v1/audio/transcriptions"
PLAIN: dict[str, Any] = {"model": "big", "messages": [{"role": "user", "content": "x"}]}


def _head(
    size: int, path: bytes = CHAT, kind: bytes | None = b"application/json", *more: tuple[bytes, bytes]
) -> RequestHead:
    headers = [(b"Host", b"a"), (b"Content-Length", b"%d" % size), *more]
    if kind is not None:
        headers.append((b"Content-Type", kind))
    return read_head(b"POST", path, "1.1", headers, keep_alive=True)


def _kind_of(head: RequestHead, rules: BodyRules) -> BodyKind:
    return kind_of(head, target_of(head.method, head.target), rules)


def _read(body: bytes, head: RequestHead | None = None, rules: BodyRules = LIMITED) -> RequestFacts | str:
    """What is known of a request, or the code of its refusal."""
    head = head or _head(len(body))
    try:
        kind = _kind_of(head, rules)
        plain = plain_body(head, body) if kind in READ else body
        return read_strictly(head, kind, plain, rules, None)
    except BodyError as error:
        return error.refusal.code


def _model(body: bytes, head: RequestHead | None = None, rules: BodyRules = LIMITED) -> str | None:
    """The model of a request, or the code of its refusal."""
    found = _read(body, head, rules)
    return found if isinstance(found, str) else found.model


RAW = json.dumps(PLAIN).encode()
PADDED = RAW[:-1] + b" " * (1024 * 1024) + b"}"


@pytest.mark.parametrize(
    ("body", "found"),
    [
        (RAW, "big"),
        (PADDED, "big"),
        (b'{"mod\\u0065l":"big"}', "big"),
        (b' \t\r\n{"model" : "big" , "x" : 1e400 , "max_tokens":8.0}\n', "big"),
        (b'{"model":"big","z":"\xff"}', "big"),  # no server reads it, or each finds this model
        (b'{"model":"big","x":1' + b"0" * 4000 + b"}", "big"),
        (b'{"model":"big","x":{"model":"small","Model":1}}', "big"),
        ("\ufeff".encode() + RAW, "body_unread"),
        (RAW.decode().encode("utf-16"), "body_unread"),
        (RAW.decode().encode("utf-16-le"), "body_unread"),
        (RAW.decode().encode("utf-32-be"), "body_unread"),
        (b'{"model":"big","x":NaN}', "body_unread"),
        (b'{"model":"big","x":"a\x01"}', "body_unread"),
        (b'{"model":"big","x":"\\ud83d"}', "body_unread"),
        (b'{"model":"big","x":' + b"[" * 900 + b"]" * 900 + b"}", "body_unread"),
        (b'{"model":"big","x":' + b"[" * 10**6, "body_unread"),
        (b'{"model":"big"} x', "body_unread"),
        (b'[{"model":"big"}]', "body_unread"),
        (b'"big"', "body_unread"),
        (b"", "body_unread"),
        (b"{", "body_unread"),
        (b'{"model":"small","model":"big"}', "body_ambiguous"),
        (b'{"model":"big","model":"big"}', "body_ambiguous"),
        (b'{"model":"small","mod\\u0065l":"big"}', "body_ambiguous"),
        (b'{"model":"small","x":1,"x":2}', "body_ambiguous"),
        (b'{"model":"small","Model":"big"}', "body_ambiguous"),
        (b'{"MODEL":"big"}', "body_ambiguous"),
        ('{"model":"big","max_to\u212aens":9}'.encode(), "body_ambiguous"),  # Kelvin's sign folds to k
        ('{"model":"big","max_token\u017f":9}'.encode(), "body_ambiguous"),
        (b'{"model":"big","max_tokens":"9"}', "body_ambiguous"),
        (b'{"model":"big","max_tokens":true}', "body_ambiguous"),
        (b'{"model":"big","max_tokens":1e400}', "body_ambiguous"),
        (b'{"model":"big","max_tokens":1' + b"0" * 5000 + b"}", "body_ambiguous"),
        (b'{"model":"big","max_tokens":9.5}', "body_ambiguous"),
        (b'{"model":1e400}', "model_unread"),
        (b'{"model":"big","max_tokens":1e3,"stream":1e400,"user":[]}', "big"),
        (b'{"model":["big"]}', "model_unread"),
        (b'{"model":"' + b"b" * 257 + b'"}', "model_unread"),
        (b'{"messages":[]}', "model_unnamed"),
        (b'{"model":null}', "model_unnamed"),
        (b'{"model":""}', "model_unnamed"),
        (
            b'{"model":"big"' + b"".join(b',"%d":0' % number for number in range(MAX_MEMBERS)) + b"}",
            "body_too_large",
        ),
        (
            b'{"model":"big"' + b"".join(b',"%d":0' % number for number in range(MAX_MEMBERS - 1)) + b"}",
            "big",
        ),
        (b'{"model":"big","%b":0}' % (b"x" * MAX_MEMBER_NAME), "big"),
        (b'{"model":"big","%b":0}' % ("\U0001f600" * MAX_MEMBER_NAME).encode(), "big"),
        (b'{"model":"big","%b":0}' % (b"x" * (MAX_MEMBER_NAME + 1)), "body_too_large"),
        (b'{"model":"big","x":["' + b"[" * MAX_BRACKETS + b'"]}', "big"),
        (b'{"model":"big","x":[' + b"[]," * (MAX_BRACKETS // 2 - 2) + b"1]}", "big"),
        (b'{"model":"big","n":"x","user":"\xff"}', "big"),
        (b'{"n":"x","model":"\xff"}', "model_unread"),
        (b'{"model":"big","x":[' + b"[]," * MAX_BRACKETS, "body_too_large"),  # and no more of it is looked at
        (
            b'{"model":"big","x":[' + b"[]," * (MAX_BRACKETS // 2) + b"[]]}",
            "body_too_large",
        ),
    ],
    ids=lambda one: repr(one[:40]) if isinstance(one, bytes) else one,
)
def test_what_a_body_says_is_found_or_refused(body: bytes, found: str) -> None:
    """What is read, and what is refused."""
    assert _model(body) == found


@pytest.mark.parametrize(
    ("path", "kind", "found"),
    [
        (b"/v1/chat/%63ompletions", b"application/json", "big"),
        (CHAT + b"/", b"application/json", "big"),
        (CHAT + b"?x=1", b"application/json", "big"),
        (CHAT, b"text/plain", "big"),
        (CHAT, b"application/x-www-form-urlencoded", "big"),
        (CHAT, b"application/vnd.api+json", "big"),
        (CHAT, None, "big"),
        (b"/invocations", None, "big"),
        (b"/of/somebody", None, "big"),
        (b"/v1//chat/completions", b"application/json", "path_ambiguous"),
        (b"/v1/x/../chat/completions", b"application/json", "path_ambiguous"),
        (b"/v1/models/big:x:predict", b"application/json", "big:x"),
        (b"/v2/models/b%69g/infer", b"application/octet-stream", "big"),
        (b"/v2/models/%ff/infer", b"application/json", "model_unread"),
        (b"/v1/models/meta%3Allama:predict", b"application/json", "meta:llama"),
        (AUDIO, b"application/json", "body_unread"),
    ],
)
def test_paths_and_types(path: bytes, kind: bytes | None, found: str) -> None:
    """The same body is the same whatever is said of it; paths are compared as servers compare them."""
    assert _model(RAW, _head(len(RAW), path, kind)) == found


def test_what_a_head_says() -> None:
    """Codings, lengths and WebSockets are refused by it; what asks for no model's work goes on."""
    for coding, found in (
        (b"identity", "big"),
        (b"gzip", "body_unread"),
        (b"br", "body_encoded"),
        (b"gzip, gzip", "body_encoded"),
        (b"identity, gzip", "body_encoded"),
    ):
        assert _model(RAW, _head(len(RAW), CHAT, None, (b"Content-Encoding", coding))) == found
    for coding, coded in (
        (b"gzip", gzip.compress(RAW)),
        (b"X-Gzip", gzip.compress(RAW)),
        (b"deflate", zlib.compress(RAW)),
    ):
        head = _head(len(coded), CHAT, None, (b"Content-Encoding", coding))
        assert _model(coded, head) == "big"
        for wrong in (coded[:-1], coded + b"x", coded + coded, zlib.compress(RAW, wbits=-15), b""):
            assert _model(wrong, head) == "body_unread"
        assert (
            _model(
                gzip.compress(bytes(200_000)) if b"zip" in coding.lower() else zlib.compress(bytes(200_000)),
                head,
            )
            == "body_unread"
        )
        bomb = b'{"x":"' + bytes(12_000_000)
        assert (
            _model(gzip.compress(bomb) if b"zip" in coding.lower() else zlib.compress(bomb), head)
            == "body_too_large"
        )
    assert _model(b"", _head(MAX_READ + 1)) == "body_too_large"
    tensors = _head(
        MAX_READ + 1, b"/v2/models/big/infer", None, (b"Content-Encoding", b"gzip")
    )  # its path says it
    assert _model(b"", tensors) == "big"
    headers = [(b"Host", b"a"), (b"Connection", b"upgrade"), (b"Upgrade", b"websocket")]
    socket = read_head(b"GET", b"/v1/realtime?model=big", "1.1", headers, keep_alive=True, upgrades=True)
    assert _model(b"", socket) == "model_unread"
    assert _kind_of(socket, CHOSEN) is BodyKind.SOCKET
    assert _model(b"", socket, CHOSEN) == "big"
    for query, named in (
        (b"", None),
        (b"?model=", None),
        (b"?x=1&model=meta%2Fllama%20a", "meta/llama a"),
        (b"?model=big&model=big", "body_ambiguous"),
        (b"?model=%ff", "model_unread"),
        (b"?model=" + b"b" * 257, "model_unread"),
    ):
        asked = read_head(b"GET", b"/v1/realtime" + query, "1.1", headers, keep_alive=True, upgrades=True)
        assert _model(b"", asked, CHOSEN) == named
    for method, path in ((b"GET", b"/v1/models"), (b"POST", b"/v1/responses/7/cancel"), (b"DELETE", b"/x")):
        assert (
            _kind_of(read_head(method, path, "1.1", headers[:1], keep_alive=True), LIMITED) is BodyKind.NONE
        )


def test_endpoints_that_are_not_known() -> None:
    """What may be an object in some coding is read as one, but need not name a model; anything else goes on."""
    for body, found in (
        (b"%PDF-1.7 \xff", None),
        (b"", None),
        (b"[1]", None),
        (b'{"job":1}', None),
        (b'{"model":"a","model":"b"}', "body_ambiguous"),
        (RAW.decode().encode("utf-16"), "body_unread"),
        (RAW.decode().encode("utf-32-be"), "body_unread"),
    ):
        assert _model(body, _head(len(body), b"/of/somebody", None)) == found


def test_which_files_are_concerned() -> None:
    """Those with limits of models, models of backends or budgets of tokens, and no others."""
    backends: list[dict[str, Any]] = [{"url": "http://127.0.0.1:1"}]

    def rules(**more: Any) -> BodyRules | None:
        return checked({"backends": backends, **more}, "x", None).body_rules()

    assert rules() is None
    assert rules(admission={"tenants": {"a": {"requests_per_second": 1}}}) is None
    assert rules(admission={"models": {"big": {"concurrency": 1}}}) == LIMITED
    assert rules(admission={"tenants": {"a": {"input_tokens_per_minute": 1}}}) == BUDGETED
    assert rules(admission={"default_tenant": {"output_tokens_per_minute": 1}}) == BUDGETED
    assert rules(admission={"without_tenant": {"output_tokens_per_minute": 1}}) == BUDGETED
    assert (LIMITED.whole, BUDGETED.whole, CHOSEN.whole) == (True, True, False)
    assert rules(backends=[{**backends[0], "models": ["big"]}]) == CHOSEN
    assert _model(b'{"messages":[]}', rules=CHOSEN) is None


def _held(read: Callable[[], object]) -> int:
    """How many bytes it holds at most."""
    tracemalloc.start()
    try:
        read()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


_NAMED = [b'"%d%b":1,' % (number, b"x" * 980) for number in range(MAX_MEMBERS - 3)]


@pytest.mark.parametrize(
    "members",
    [
        b"".join(_NAMED),
        b"".join(one.replace(b"x", "\U0001f600".encode(), 1) for one in _NAMED),
        b'"%b":1,' % (b"x" * 1_000_000),
        b'"\xf0\x9f\x98\x80%b":1,' % (b"x" * 1_000_000),
        b'"max_tokens":[' + b"[]," * 40_000 + b"[]],",
        b'"x":[' + b'"",' * 300_000 + b'""],',
        b"".join(b'"%d":"%b",' % (number, b"x" * 1000) for number in range(MAX_MEMBERS - 3)),
    ],
    ids=["names", "wide names", "one name", "one wide name", "lists", "texts", "values"],
)
@pytest.mark.parametrize("odd", [b"", b'"n":"x",'], ids=["plain", "odd"])
def test_little_is_kept_of_what_nobody_asks_for(members: bytes, odd: bytes) -> None:
    """Whatever a body is made of: at most what its longest name takes, in Python's widest text, beside it."""
    body = b"{" + odd + members + b'"model":"big"}'
    assert _held(lambda: _read(body)) < 6 * len(body)
    assert _held(lambda: read_facts(_head(len(body)), body)) < 6 * len(body)


def test_of_members_that_nobody_asks_for_nothing_is_kept() -> None:
    """Where bodies are read for hints alone there may be any number of them."""
    body = b'{"n":"x",' + b",".join(b'"%d":1' % number for number in range(100_000)) + b"}"
    assert _held(lambda: read_facts(_head(len(body)), body)) < 100_000


# --- the readers of servers ---


def _starlette(body: bytes) -> Any:
    """What vLLM's and SGLang's framework makes of a body."""
    request = Request({"type": "http", "method": "POST", "headers": [], "path": "/"})
    request._body = body  # noqa: SLF001 - as if it had been received
    try:
        request.json().send(None)
    except StopIteration as done:
        return done.value
    raise AssertionError("it waits")


def _first(body: bytes) -> Any:
    """A reader that keeps the first of two members."""
    return json.loads(body, object_pairs_hook=lambda members: dict(reversed(members)))


class _Asked(BaseModel):
    model: str | None = None


def _pydantic(body: bytes) -> Any:
    return _Asked.model_validate_json(body).model_dump()


def _go(body: bytes) -> Any:
    """Go's encoding/json into a struct: members match whatever their case, and the last one counts."""

    def made(members: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(members)
        for name, value in members:
            if name.casefold() == "model" and isinstance(value, str):
                found["model"] = value
        return found

    return json.loads(body.decode(errors="replace"), object_pairs_hook=made)


READERS: tuple[Callable[[bytes], Any], ...] = (
    _starlette,
    _first,
    _go,
    _pydantic,
    from_json,
    TypeAdapter(Any).validate_json,
    lambda body: json.loads(body.decode("utf-8-sig")),
)


def _texts_of(value: Any) -> str | None:
    found = value.get("model") if isinstance(value, dict) else None
    return found if isinstance(found, str) and found else None


_NAMES = st.sampled_from(
    [
        '"model"',
        '"Model"',
        '"mod\\u0065l"',
        '"MODEL"',
        '"max_tokens"',
        '"max_to\u212aens"',
        '"messages"',
        '"x"',
        '"mod\\"el"',
        '""',
    ]
)
_VALUES = st.sampled_from(
    [
        '"big"',
        '"small"',
        '"b\\u0069g"',
        '""',
        "null",
        "1",
        "1.5",
        "1e3",
        "1e400",
        "true",
        "NaN",
        "-Infinity",
        '[{"model":"small"}]',
        '{"model":"small"}',
        '"\\ud83d"',
        '"\\ud83d\\ude00"',
        '"}"',
        '"\\\\"',
        "[]",
        '["]"]',
    ]
)
_VALUES |= st.text(max_size=4).map(json.dumps) | st.integers().map(str)
_NAMES |= st.text(max_size=3).map(json.dumps)
_SPACES = st.sampled_from([*["", " ", "\n", "\t\r\n"] * 12, "\f", "\u00a0"])
_CODINGS = st.sampled_from(
    ["utf-8"] * 20 + ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "latin-1"]
)


@st.composite
def bodies(draw: st.DrawFn) -> bytes:
    """Objects as clients and attackers write them, and a few bytes changed."""
    members = draw(st.lists(st.tuples(_SPACES, _NAMES, _SPACES, _VALUES), max_size=5))
    text = ",".join(f"{before}{name}{space}:{value}{before}" for before, name, space, value in members)
    whole = f"{draw(_SPACES)}{{{text}}}{draw(_SPACES)}"
    raw = bytearray(whole.encode(draw(_CODINGS), "replace"))
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 2]))):
        if raw:
            at = draw(st.integers(0, len(raw) - 1))
            raw[at : at + draw(st.integers(0, 2))] = draw(
                st.sampled_from([b"", b'"', b"\\", b",", b"}", b"{", b"\0", b"\xff", b"/*", b"e"])
            )
    return bytes(raw)


@settings(max_examples=examples(6000, 2000), deadline=None)
@given(bodies())
def test_no_server_finds_another_model(body: bytes) -> None:
    """Law 1: of what is carried each reader finds the model that was found here, or none, or says that it cannot read it."""
    found = _read(body, rules=CHOSEN)
    if isinstance(found, str):
        return
    for reader in READERS:
        try:
            theirs = _texts_of(reader(body))
        except (ValueError, ValidationError, RecursionError):
            continue
        assert theirs == (found.model or None), (reader, body)


@settings(max_examples=examples(600, 200), deadline=None)
@given(
    st.dictionaries(
        st.text(max_size=9).filter(lambda name: name.casefold() not in ("model", "max_tokens")),
        st.recursive(
            st.none()
            | st.booleans()
            | st.integers()
            | st.floats(allow_nan=False, allow_infinity=False)
            | st.text(),
            lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
            max_leaves=9,
        ),
        max_size=5,
    ),
    st.text(min_size=1, max_size=200),
    st.sampled_from([None, 2]),
    st.booleans(),
)
def test_what_libraries_write_is_carried(
    more: dict[str, Any], model: str, indent: int | None, ascii_: bool
) -> None:
    """Nothing that a JSON library writes of a sound request is refused."""
    raw = json.dumps({**more, "model": model, "max_tokens": 7}, indent=indent, ensure_ascii=ascii_).encode()
    found = _read(raw)
    assert isinstance(found, RequestFacts)
    assert (found.model, found.max_tokens) == (model, 7)


# --- forms ---


def _form(parts: Iterable[tuple[bytes, bytes]], boundary: bytes = b"XyZ") -> bytes:
    return (
        b"".join(b"--%b\r\n%b\r\n\r\n%b\r\n" % (boundary, head, value) for head, value in parts)
        + b"--%b--\r\n" % boundary
    )


def _field(name: bytes, more: bytes = b"") -> bytes:
    return b'Content-Disposition: form-data; name="%b"%b' % (name, more)


FILE = (_field(b"file", b'; filename="a b.wav"') + b"\r\nContent-Type: audio/wav", b"RIFF\r\n\0--Xy\r\n")
DOTNET_FILE = (
    b"Content-Type: application/octet-stream\r\nContent-Disposition: form-data; name=file; "
    b"filename=a.wav; filename*=utf-8''a.wav\r\nContent-Length: 4"
)
MULTIPART = b"multipart/form-data; boundary=XyZ"


@pytest.mark.parametrize(
    ("body", "kind", "found"),
    [
        (_form([FILE, (_field(b"model"), b"big")]), MULTIPART, "big"),
        (_form([FILE, (_field(b"model"), b"big")]), b'Multipart/Form-Data;boundary="XyZ"', "big"),
        (_form([FILE]), MULTIPART, "model_unnamed"),
        (
            _form([FILE, (_field(b"model"), b"big"), (_field(b"model"), b"small")]),
            MULTIPART,
            "body_ambiguous",
        ),
        (_form([(_field(b"Model"), b"big")]), MULTIPART, "body_ambiguous"),
        (_form([(_field(b"model", b'; filename="x"'), b"big")]), MULTIPART, "body_ambiguous"),
        (_form([(b"Content-Disposition: form-data; name=model", b"big")]), MULTIPART, "big"),
        (_form([(b"Content-Disposition: form-data; name=mo%64el", b"big")]), MULTIPART, "body_ambiguous"),
        (
            _form(
                [
                    (DOTNET_FILE, b"RIFF"),
                    (
                        b"Content-Type: text/plain; charset=utf-8\r\nContent-Disposition: form-data; name=model",
                        b"big",
                    ),
                ]
            ),
            b'multipart/form-data; boundary="XyZ"',
            "big",
        ),
        (
            _form([(_field(b"model") + b"\r\nContent-Type: text/plain; charset=utf-16", b"b\0i\0g\0")]),
            MULTIPART,
            "model_unread",
        ),
        (_form([(_field(b"model") + b"\r\nContent-Transfer-Encoding: 8bit", b"big")]), MULTIPART, "big"),
        (
            _form([(b"Content-Disposition: form-data; name*=utf-8''model", b"big")]),
            MULTIPART,
            "body_ambiguous",
        ),
        (
            _form([(_field(b"model") + b"\r\nContent-Transfer-Encoding: base64", b"Ymln")]),
            MULTIPART,
            "body_ambiguous",
        ),
        (_form([(_field(b"x") + b"\r\n" + _field(b"model"), b"big")]), MULTIPART, "body_ambiguous"),
        (_form([(_field(b"mo\\del"), b"big")]), MULTIPART, "body_ambiguous"),
        (_form([(_field(b"x"), b"--XyZ")]), MULTIPART, "body_ambiguous"),
        (_form([(_field(b"x"), b"a--XyZ\r\n"), (_field(b"model"), b"big")]), MULTIPART, "big"),
        (_form([(_field(b"x"), b"a\n--XyZ\r\n"), (_field(b"model"), b"big")]), MULTIPART, "body_ambiguous"),
        (_form([(_field(b"x"), b"a\r--XyZ\r\n"), (_field(b"model"), b"big")]), MULTIPART, "body_ambiguous"),
        (_form([(_field(b"model"), b"big")]).replace(b"\r\n", b"\n\n", 1), MULTIPART, "body_ambiguous"),
        (_form([(_field(b"model"), b"big")]).replace(b"big\r\n", b"bigXX"), MULTIPART, "body_unread"),
        (b"preamble\r\n" + _form([(_field(b"model"), b"big")]), MULTIPART, "body_unread"),
        (_form([(_field(b"model"), b"big")]) + b"epilogue", MULTIPART, "body_unread"),
        (_form([(_field(b"model"), b"big")])[:-4], MULTIPART, "body_unread"),
        (_form([(_field(b"model"), b"big")]), MULTIPART + b"; boundary=other", "body_unread"),
        (_form([(_field(b"model"), b"big")]), MULTIPART + b"; charset=utf-16", "body_unread"),
        (_form([(_field(b"x"), b"")] * 1200), MULTIPART, "body_unread"),
        (b"model=big", b"application/x-www-form-urlencoded", "body_unread"),
        (_form([(_field(b"model"), b"\xff")]), MULTIPART, "model_unread"),
        (b"", MULTIPART, "body_unread"),
    ],
)
def test_forms(body: bytes, kind: bytes, found: str) -> None:
    """Plain ones are read, whatever else stands in them."""
    assert _model(body, _head(len(body), AUDIO, kind)) == found


def _werkzeug(kind: bytes, body: bytes) -> list[str]:
    _, fields, _ = FormDataParser(silent=False).parse(
        io.BytesIO(body), kind.decode("latin-1").partition(";")[0].strip().lower(), len(body), _options(kind)
    )
    return fields.getlist("model")


def _options(kind: bytes) -> dict[str, str]:
    message = email.parser.BytesParser(policy=email.policy.compat32).parsebytes(
        b"Content-Type: " + kind + b"\r\n\r\n"
    )
    return dict(message.get_params([])[1:])


def _email(kind: bytes, body: bytes) -> list[str]:
    """The parts `model` that Python's reader of mail finds."""
    message = email.message_from_bytes(
        b"Content-Type: " + kind + b"\r\n\r\n" + body, policy=email.policy.compat32
    )
    if not message.is_multipart():
        raise ValueError("no form")
    found = []
    for part in message.walk():
        if part.get_param("name", header="content-disposition") == "model" and part.get_filename() is None:
            payload = part.get_payload(decode=True)
            assert isinstance(payload, bytes)
            found.append(payload.decode())
    return found


@pytest.mark.parametrize(
    ("lines", "wanted"),
    [
        ([b"Content-Type: a/b"] * (MAX_PART_LINES - 1), "big"),
        ([b"Content-Type: a/b"] * MAX_PART_LINES, "body_ambiguous"),
        ([b"Content-Type:" + b" " * (MAX_PART_HEAD - len(_field(b"model")) - 15)], "big"),
        ([b"Content-Type:" + b" " * (MAX_PART_HEAD - len(_field(b"model")) - 14)], "body_ambiguous"),
        ([b"Content-Type:" + b" " * 1_000_000 + b"\xff"], "body_ambiguous"),
    ],
)
def test_how_long_a_part_may_speak_of_itself(lines: list[bytes], wanted: str) -> None:
    """Each line that is read costs, and a body has room for millions of them."""
    body = _form([(b"\r\n".join([_field(b"model"), *lines]), b"big")])
    assert _model(body, _head(len(body), AUDIO, MULTIPART)) == wanted


@st.composite
def forms(draw: st.DrawFn) -> tuple[bytes, bytes]:
    """A Content-Type and a form, as clients and attackers write them, and a few bytes changed."""
    heads = st.sampled_from(
        [
            _field(b"model"),
            _field(b"model"),
            _field(b"file", b'; filename="a.wav"'),
            _field(b"model", b'; filename="a"'),
            _field(b"Model"),
            b'content-disposition:form-data;name="model"',
            b"Content-Disposition: form-data; name=model",
            b'Content-Disposition: form-data; name="x"; name="model"',
            b"Content-Disposition: form-data; name*=utf-8''model",
            _field(b"model") + b"\r\nContent-Type: text/plain",
            _field(b"model") + b"\r\n X: folded",
            b"Content-Type: text/plain\r\n" + _field(b"model"),
            b"Content-Disposition: form-data; name=model; filename=a; filename*=utf-8''a",
            _field(b"model") + b"\r\nContent-Length: 9",
        ]
    )
    heads |= st.binary(max_size=3).map(lambda name: _field(name.hex().encode()))
    values = st.binary(max_size=5) | st.sampled_from(
        [
            *(b"big", b"small", b"", b"b\r\nig", b"--XyZ", b"\r\n--XyZ", b"\r\n--XyZ--", b"\xff"),
            *(b"a--XyZ", b"a--XyZ\r\n", b"a\n--XyZ\r\n", b"a\r--XyZ--", b"a--XyZ--\r\n"),
        ]
    )
    boundary = draw(st.sampled_from([b"XyZ", b"XyZ", b"Xy"]))
    raw = bytearray(_form(draw(st.lists(st.tuples(heads, values), max_size=4)), boundary))
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 2]))):
        at = draw(st.integers(0, len(raw)))
        raw[at : at + draw(st.integers(0, 3))] = draw(
            st.sampled_from([b"", b"\r\n", b"\n", b"-", b'"', b";", b"\0", b"--XyZ", b" "])
        )
    kind = draw(
        st.sampled_from(
            [
                MULTIPART,
                MULTIPART,
                b'multipart/form-data; boundary="XyZ"',
                MULTIPART + b"; boundary=Xy",
                b"multipart/form-data; boundary=Xy",
            ]
        )
    )
    return kind, bytes(raw)


@settings(max_examples=examples(3000, 900), deadline=None)
@given(forms())
def test_no_server_finds_another_model_in_a_form(form: tuple[bytes, bytes]) -> None:
    """Law 1, of forms."""
    kind, body = form
    found = _read(body, _head(len(body), AUDIO, kind), CHOSEN)
    if isinstance(found, str):
        return
    for reader in (_werkzeug, _email):
        try:
            theirs = reader(kind, body)
        except (ValueError, AssertionError, LookupError):
            continue
        assert theirs == ([] if found.model is None else [found.model]), (reader, form)


# --- through a balancer ---


def _post(body: bytes, path: bytes = CHAT, *more: bytes) -> bytes:
    lines = b"".join(line + b"\r\n" for line in more)
    return b"POST %b HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n%b\r\n%b" % (path, len(body), lines, body)


async def _echo(peer: Peer) -> None:
    while True:
        asked = await peer.request()
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(asked.body), asked.body)


def test_through_a_balancer() -> None:
    """What is carried goes on byte by byte, in pieces too; what is refused reaches no server, and its connection goes on where all of it was read. Without rules all of it goes on."""

    async def main() -> None:
        async with world(await Backend(_echo).start()) as w:
            models: list[str | None] = []
            offer = w.proxy.admission.offer

            def offered(exchange: Exchange, now: float) -> Refusal | None:
                models.append(exchange.facts.model)
                return offer(exchange, now)

            w.proxy.admission.offer = offered  # type: ignore[method-assign]
            w.proxy.body_rules = LIMITED
            client = await w.client()
            for body in (RAW, PADDED):
                client.send(_post(body))
                answer = await client.response()
                assert (answer.status, answer.body) == (200, body)
            client.send(b"POST %b HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" % CHAT)
            for at in range(len(RAW)):
                client.send(b"1\r\n%b\r\n" % RAW[at : at + 1])
                await asyncio.sleep(0)
            client.send(b"0\r\n\r\n")
            assert (await client.response()).body == RAW
            assert models == ["big"] * 3
            for bad, status in ((b'{"model":"a","model":"b"}', 400), (RAW.decode().encode("utf-16"), 400)):
                client.send(_post(bad))
                refused = await client.response()
                assert refused.status == status
                assert json.loads(refused.body)["code"].startswith("body_")
            coded = gzip.compress(RAW)
            client.send(_post(coded, CHAT, b"Content-Encoding: gzip"))
            assert (await client.response()).body == coded
            assert models.pop() == "big"
            for coding, status in ((b"gzip", 400), (b"br", 415)):
                client.send(_post(RAW, CHAT, b"Content-Encoding: " + coding))
                assert (await client.response()).status == status
            assert len(models) == 3
            client = await w.client()
            big = b"%PDF" + b"x" * 5000
            client.send(_post(big, b"/of/somebody"))
            assert (await client.response()).body == big
            w.proxy.body_rules = None
            client.send(_post(b'{"model":"a","model":"b"}'))
            assert (await client.response()).status == 200
            assert w.proxy.held.total == 0

    run(main)


def test_a_body_that_is_read_is_bounded() -> None:
    """Whatever it says of its length; what all hold together is tested in tests/balancer/test_holding.py."""

    async def main() -> None:
        async with world(await Backend(_echo).start()) as w:
            w.proxy.body_rules, w.proxy.most_read = LIMITED, 100_000
            head = b"POST %b HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" % CHAT
            piece = b'{"x":"' + b"y" * 60_000
            client = await w.client()
            client.send(head, *[b"%x\r\n%b\r\n" % (len(piece), piece)] * 2)
            assert (await client.response()).status == 413
            assert w.proxy.held.total == 0

    run(main)


def test_pieces_of_a_body_take_little_more_than_the_body() -> None:
    """However small they are sent: two bytes in a list take twenty times their room."""
    count = 100_000

    async def main() -> None:
        async with world(await Backend(_echo).start()) as w:
            w.proxy.body_rules = LIMITED
            client = await w.client()
            client.send(b"POST %b HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" % CHAT)
            await w.until(lambda: len(w.gate.judged) == 1)
            (exchange,) = w.gate.judged
            tracemalloc.start()
            try:
                for _ in range(100):
                    client.send(b"2\r\n{}\r\n" * (count // 100))
                    await client.writer.drain()
                await w.until(lambda: exchange.received == 2 * count)
                assert tracemalloc.get_traced_memory()[0] < 5 * 2 * count
            finally:
                tracemalloc.stop()
            client.close()

    run(main)


def test_what_clients_write_is_carried() -> None:
    """Forms as the libraries write them that people use."""
    name, audio = "whisper/large-v3", b"RIFF\0\xff\r\n--x"
    files = {"file": ("\u00e4 b.wav", audio, "audio/wav")}
    httpx_made = httpx.Request("POST", "http://a/", data={"model": name}, files=files)
    requests_made = requests.Request("POST", "http://a/", data={"model": name}, files=files).prepare()
    data = {"model": name, "file": (io.BytesIO(audio), "a b.wav")}
    environ = EnvironBuilder(method="POST", data=data).get_environ()
    made = [
        (httpx_made.headers["content-type"], httpx_made.read()),
        (requests_made.headers["content-type"], requests_made.body),
        (environ["CONTENT_TYPE"], environ["wsgi.input"].read()),
    ]
    for kind, body in made:
        assert isinstance(body, bytes)
        assert isinstance(kind, str)
        assert _model(body, _head(len(body), AUDIO, kind.encode())) == name, body


def test_limits_that_come_while_a_body_is_read() -> None:
    """A request that began without rules is read by those that came, if all of it is there; else it is told to try again."""

    async def main() -> None:
        async with world(await Backend(_echo).start()) as w:
            for body, status in (
                (b'{"model":"a","model":"b"}', 400),
                (RAW, 200),
                (PADDED + b" " * 300_000, 503),
            ):
                w.proxy.body_rules = None
                before, client = len(w.gate.judged), await w.client()
                asked = _post(body, CHAT, b"Content-Type: application/json")
                if status == 503:
                    asked = asked.replace(
                        b"Content-Length: %d" % len(body), b"Transfer-Encoding: chunked"
                    ).replace(b"\r\n\r\n" + body, b"\r\n\r\n%x\r\n%b" % (len(body), body))
                at = asked.index(b"\r\n\r\n") + 4
                if status == 503:
                    at += 100_000
                client.send(asked[:at])
                await w.until(lambda before=before: len(w.gate.judged) > before)
                if status == 503:
                    await w.until(lambda: w.gate.judged[-1].received > 90_000)
                w.proxy.body_rules = LIMITED
                client.send(asked[at:])
                assert (await client.response()).status == status
                client.close()

    run(main)


# --- Go's own readers ---

_GO = """
package main

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
)

// Each line is a Content-Type and a body, both in base64. The answer is the models that Go finds in it, as JSON, or "unread".
func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		kind, coded, _ := strings.Cut(lines.Text(), " ")
		said, _ := base64.StdEncoding.DecodeString(kind)
		body, _ := base64.StdEncoding.DecodeString(coded)
		found := []string{}
		if len(said) == 0 {
			var asked struct{ Model string `json:"model"` }
			if json.Unmarshal(body, &asked) != nil {
				fmt.Println("unread")
				continue
			}
			if asked.Model != "" {
				found = append(found, asked.Model)
			}
		} else {
			request, _ := http.NewRequest("POST", "/", bytes.NewReader(body))
			request.Header.Set("Content-Type", string(said))
			if request.ParseMultipartForm(1<<20) != nil {
				fmt.Println("unread")
				continue
			}
			found = append(found, request.MultipartForm.Value["model"]...)
		}
		out, _ := json.Marshal(found)
		fmt.Println(string(out))
	}
}
"""


@pytest.mark.drill
def test_go_finds_no_other_model(tmp_path: Path) -> None:
    """Law 1, of Ollama's language: JSON into a struct, and its reader of forms."""
    carried: list[tuple[bytes, bytes, str | None]] = []

    @settings(max_examples=examples(6000, 6000), deadline=None, database=None)
    @given(bodies(), forms())
    def collect(body: bytes, form: tuple[bytes, bytes]) -> None:
        for kind, raw in ((b"", body), form):
            found = _read(raw, _head(len(raw), AUDIO if kind else CHAT, kind or None), CHOSEN)
            if isinstance(found, RequestFacts):
                carried.append((kind, raw, found.model or None))

    collect()
    assert min(len({one for one in carried if bool(one[0]) is form}) for form in (False, True)) > 20
    source = tmp_path / "main.go"
    source.write_text(_GO)
    lines = "".join(f"{b64encode(kind).decode()} {b64encode(raw).decode()}\n" for kind, raw, _ in carried)
    done = subprocess.run(
        [tool("go"), "run", str(source)],
        input=lines,
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    )
    theirs = done.stdout.removesuffix("\n").split("\n")  # some texts hold other line ends
    for one, line in zip(carried, theirs, strict=True):
        models = [] if line == "unread" else [model for model in json.loads(line) if model]
        assert line == "unread" or models == ([] if one[2] is None else [one[2]]), (one, line)
