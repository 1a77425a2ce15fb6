"""How deeply text from outside may be nested, and that no object has a member twice: everywhere alike, on every version of Python."""

from __future__ import annotations

import ast
import json
import re
import tracemalloc
from base64 import urlsafe_b64encode
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, TypeVar

import httpx
import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from pydantic_core import from_json
from starlette.requests import Request

import gtm
from gtm.adapters.listing import read_list
from gtm.adapters.orca import MAX_HEADER, read_orca
from gtm.balancer.health.asking import BackendAnswer
from gtm.balancer.health.checks import tokenless
from gtm.balancer.wire.facts import read_facts, with_model
from gtm.client import reading
from gtm.client.calls import Call
from gtm.control.policy.drafts import parsed as parsed_draft
from gtm.control.policy.questions import ExplainRequest
from gtm.demo.backend import requests as backend
from gtm.demo.backend.faults import read_fault
from gtm.demo.backend.server import decoded
from gtm.documents import yamls
from gtm.documents.imports import gdnsd, octodns, route53
from gtm.feed import clockfile, lastgood, wire
from gtm.geoip.overrides import load_overrides
from gtm.handoff import jwt
from gtm.http.requests.lookup import parse_batch
from gtm.http.samples.intake import parse_beacon, parse_samples
from gtm.nesting import DEEPER, MAX_DEPTH, TwiceError, loads, read, shallow
from gtm.prober.checks import judge_json
from gtm.runtime.balancer.peers import opened
from tests.effort import examples
from tests.sources import parsed

THEIRS = jwt.made()
_Text = TypeVar("_Text", str, bytes)


def deepest(text: str) -> int:
    """The model: how many lists and objects are open at most, up to where the text ends."""
    depth = most = 0
    inside = escaped = False
    for char in text:
        if escaped:
            escaped = False
        elif inside:
            inside, escaped = char != '"', char == "\\"
        elif char == '"':
            inside = True
        else:
            depth += (char in "[{") - (char in "]}")
            most = max(most, depth)
    return most


SIBLINGS = [
    *("0", "-1.5e3", "true", "null", "[]", "{}", "[[1], {}]", '{"[": [{}]}'),
    *(
        '""',
        '"[[[[{{{{"',
        r'"\"[{"',
        r'"\\"',
        r'"\\\"["',
        r'"\"\"]}"',
        '"]]]]}}}}"',
        r'"\u005b\n"',
        '"\u5b22[\u00e9"',
    ),
]


def nested(random: Random, levels: int) -> str:
    """A text of at least so many levels, with neighbours on all of them."""
    text = random.choice(["", "", *SIBLINGS])
    only = random.choice(["[", "{", "[{"])
    for _ in range(levels):
        before, after = ([random.choice(SIBLINGS)] * random.choice([0, 0, 0, 1]) for _ in range(2))
        parts = [*before, *([text] if text else []), *after]
        if random.choice(only) == "{":
            parts = [
                f'"{random.choice(["", "[", "]"])}{number}": {part}' for number, part in enumerate(parts)
            ]
            text = "{" + ", ".join(parts) + "}"
        else:
            text = "[" + ", ".join(parts) + "]"
    return text


TEXTS = st.builds(nested, st.integers(0).map(Random), st.integers(MAX_DEPTH - 6, MAX_DEPTH + 2))
"""Around the limit, with and without what parsers put around it."""


def _token(part: str) -> str:
    return ".".join(urlsafe_b64encode(text.encode()).rstrip(b"=").decode() for text in (part, "{}", "x"))


def _datagram(text: str) -> bytes:
    signature = Ed25519PrivateKey.from_private_bytes(THEIRS.private).sign(b"GTMW1\0" + text.encode())
    return b"GTMW1" + THEIRS.public + signature + text.encode()


def _answered(text: str) -> None:
    call: Call[Any] = Call("GET", "/")
    reading.answer("http://a", call, httpx.Response(200, content=text), None, None)


def _raised(problem: str) -> None:
    if problem:
        raise ValueError(problem)


def _overrides(text: str, path: Path) -> None:
    path.write_text(text)
    load_overrides(path)


def _clock(text: str, path: Path) -> None:
    path.write_bytes(b"")
    lastgood.write(path, clockfile.MAGIC, text.encode())
    clockfile.load(path)


def _request(text: str) -> Any:
    return SimpleNamespace(body=text.encode())


PARSERS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "a batch of look-ups": ('{"requests": [%s]}', lambda text: parse_batch(text.encode())),
    "a beacon": ('{"samples": %s}', lambda text: parse_beacon(text.encode())),
    "samples": ("%s", lambda text: parse_samples(text.encode())),
    "a draft": ('{"policy": %s}', lambda text: parsed_draft(ExplainRequest, text.encode())),
    "what a probe reads": ("%s", lambda text: judge_json(text.encode(), "a", 1)),
    "an answer of a server": ('{"a": %s}', _answered),
    "a line of one": ("%s", lambda text: reading.line("http://a", text)),
    "the feed": ('{"type": "state", "body": %s}', lambda text: wire.decode(text.encode())),
    "the feed of a newer gtm": ('{"type": "new", "body": %s}', lambda text: wire.decode(text.encode())),
    "models": ('{"data": [], "more": %s}', lambda text: read_list(text.encode())),
    "a completion": (
        '{"choices": [%s]}',
        lambda text: _raised(tokenless(BackendAnswer(200, text.encode(), 0.1))),
    ),
    "Route 53": ('{"ResourceRecordSets": [%s]}', route53.read),
    "YAML": ("%s", yamls.load),
    "JSON of a policy": ("%s", lambda text: yamls.load_json(text.encode())),
    "octoDNS": ('{"a": %s}', octodns.read),
    "a datagram": ('{"more": %s}', lambda text: opened(_datagram(text), lambda _: True)),
    "a chat": ('{"model": "m", "more": %s}', lambda text: backend.read_chat(text.encode())),
    "a prompt": ('{"model": "m", "prompt": %s}', lambda text: backend.read_completion(text.encode())),
    "a fault": ("%s", lambda text: read_fault(text.encode())),
    "an adapter": ('{"more": %s}', lambda text: decoded(_request(text), dict[str, Any])),
    "json": ("%s", loads),
    "json in UTF-16": ("%s", lambda text: loads(text.encode("utf-16"))),
    "json in UTF-32": ("%s", lambda text: loads(text.encode("utf-32-be"))),
    "text": ("%s", lambda text: json.loads(shallow(text))),
}


LOOK_AHEAD = (yamls.load, octodns.read)
"""Whether something is a key is known a thousand characters later: where it breaks off may be seen first."""


def said(read: Callable[[_Text], Any], text: _Text) -> str:
    """What is wrong with a text, empty if nothing is; never a stack that has ended."""
    try:
        read(text)
    except RecursionError:
        raise
    except Exception as error:
        return str(error) or type(error).__name__
    return ""


@pytest.mark.parametrize("what", PARSERS)
@settings(max_examples=examples(300), deadline=None)
@given(text=TEXTS, cut=st.none() | st.integers(0))
def test_every_parser_refuses_what_is_too_deep_and_nothing_else(
    what: str, text: str, cut: int | None
) -> None:
    """Also in members that it passes over, and in texts that break off; brackets in strings do not count."""
    around, read = PARSERS[what]
    whole = around % text
    if cut is not None and read not in LOOK_AHEAD:
        whole = whole[: cut % (len(whole) + 1)]
    assert (DEEPER in said(read, whole)) is (deepest(whole) > MAX_DEPTH)


@settings(max_examples=examples(300), deadline=None)
@given(text=TEXTS, in_header=st.booleans())
def test_small_ones(text: str, in_header: bool) -> None:
    """Likewise in headers and tokens, which have a bound of their own."""
    assume(len(text) < 1000)
    reader: Callable[[str], Any] = (
        (lambda text: read_orca(f"JSON {text}")) if in_header else (lambda text: jwt.parsed(_token(text)))
    )
    assert max(MAX_HEADER, jwt.MAX_TOKEN) > 1000
    assert (DEEPER in said(reader, text)) is (deepest(text) > MAX_DEPTH)


@settings(max_examples=examples(60), deadline=None)
@given(text=TEXTS)
def test_files(text: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Likewise."""
    path = tmp_path_factory.getbasetemp() / "nested"
    for reader in (_overrides, _clock):
        assert (DEEPER in said(lambda text, reader=reader: reader(text, path), text)) is (
            deepest(text) > MAX_DEPTH
        )


@given(st.lists(st.sampled_from("[{"), min_size=MAX_DEPTH - 3, max_size=MAX_DEPTH + 2))
def test_vscf(opened: list[str]) -> None:
    """Gdnsd's language, whose text is a mapping itself."""
    text = "a => " + "".join("[" if mark == "[" else "{ a => " for mark in opened) + "1"
    text += "".join("]" if mark == "[" else "}" for mark in reversed(opened))
    assert (DEEPER in said(gdnsd.load_vscf, text)) is (1 + len(opened) > MAX_DEPTH)


@settings(max_examples=examples(300), deadline=None)
@given(text=TEXTS)
def test_a_request_that_is_too_deep_is_unknown(text: str) -> None:
    """A balancer passes it on, whatever its backend makes of it."""
    body = f'{{"model": "m", "messages": {text}}}'
    deep = deepest(body) > MAX_DEPTH
    head: Any = SimpleNamespace(length=None)
    assert read_facts(head, body.encode()).model == (None if deep else "m")
    assert (with_model(body.encode(), "n") is None) is deep


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"[1 2," + b"[" * 200, "byte 3"),
        (b"<html>" + b"{" * 5000, "byte 0"),
        (b"[" * MAX_DEPTH + b"x" + b"[" * 5000, f"byte {MAX_DEPTH}"),
        (b"[" * (MAX_DEPTH + 1) + b"x" + b"[" * 5000, DEEPER),
        (b"[" * (MAX_DEPTH + 1), DEEPER),
        (b"[" * MAX_DEPTH, None),
        (b"[" * 200_000 + b"x", DEEPER),
        (b'["\\\\"' + b"[" * 5000, "byte 5"),
        (b'["\\\\",' + b"[" * 5000, DEEPER),
        (b"[" * MAX_DEPTH + b"\xff", None),
        (b'["' + b"[" * 5000, None),
        (b'["\\"' + b"[" * 5000, None),
        (b"]" * 5000 + b"[" * 5000, None),
    ],
)
def test_a_fault_before_is_told_as_it_is(text: bytes, says: str | None) -> None:
    """What stands behind it is nobody's business; None: the parser will find it, without going deep."""
    found = said(shallow, text)
    assert (says in found) if says else not found


MARKS = [
    "[",
    "{",
    "]",
    "}",
    '"',
    "\\",
    '\\"',
    "\\\\",
    '""',
    '"["',
    ",",
    "a",
    "é",
    "[" * 90,
    "]" * 90,
    '[""]' * 60,
]


@settings(max_examples=examples(3000, 500), deadline=None)
@given(st.lists(st.sampled_from(MARKS), max_size=80), st.integers(0, 1000))
def test_whatever_stands_there_its_depth_is_found(marks: list[str], before: int) -> None:
    """Also in what is no JSON, up to its first fault, and behind as many brackets as there may be: as if all of it were split by its quotes at once."""
    text = "[" + "[]," * before + "".join(marks)
    found = said(shallow, text)
    assert said(shallow, text.encode()) == found
    model = said(_shallow_by_lists, text.encode())  # which says of a fault the same in other words
    assert (bool(found), DEEPER in found) == (bool(model), DEEPER in model)


def _shallow_by_lists(raw: bytes) -> None:
    """The model of it, which holds a list of all that stands between quotes."""

    def deep(raw: bytes) -> bool:
        parts = re.sub(rb'\\["\\]', b"", raw).split(b'"')
        steps = ((mark in b"[{") - (mark in b"]}") for mark in b"".join(parts[::2]))
        return max(accumulate(steps), default=0) > MAX_DEPTH

    if not deep(raw):
        return
    try:
        msgspec.json.decode(raw)
    except RecursionError:
        pass
    except ValueError as fault:
        place = re.search(r"\(byte (\d+)\)", str(fault))
        if place is not None and not deep(raw[: int(place[1])]):
            raise
    raise ValueError(DEEPER)


@pytest.mark.parametrize(
    "piece",
    ['["["],', '[""],', '"\\"[",', '"\\\\",[],', "[],", "{},", '"[[[["', '"é[",', '[{"a":[]}],', '"[","]",'],
)
@pytest.mark.parametrize("end", ["]", "[" * 101], ids=["flat", "deep"])
@pytest.mark.parametrize("coded", [str, str.encode], ids=["str", "bytes"])
def test_little_is_held(piece: str, end: str, coded: Callable[[str], str | bytes]) -> None:
    """Of each byte of a text, whatever it is: no more than a few."""
    text = coded("[" + piece * (200_000 // len(piece)) + "1" + end)
    tracemalloc.start()
    try:
        said(shallow, text)
        held = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert held < 4 * len(text)


def test_how_many_brackets() -> None:
    """Those in strings do not count."""
    text = "[" + "[]," * 200 + '"[[[[" ]'
    assert shallow(text, 402) == text
    with pytest.raises(ValueError, match="more than 401 brackets"):
        shallow(text, 401)


def test_the_documents_say_how_deep() -> None:
    """Where bounds are listed."""
    said = (Path(gtm.__file__).parents[1] / "docs/limits.md").read_text()
    assert f"up to {MAX_DEPTH} levels" in said
    assert f"`{DEEPER}`" in said.replace("\n", " ")


OWN = {
    "cli/common/output.py": "what it wrote itself",
    "control/policy/drafts.py": "what its own process says",
    "dashboard/sign_in/provider.py": "what a control has sealed",
    "client/objects.py": "what it wrote itself",
    "dashboard/inside.py": "what the API of its own process answers",
    "feed/wire.py": "parts of a line that was looked at, and what it wrote itself",
    "balancer/wire/bodies.py": "parts of a body that was looked at",
    "balancer/wire/estimate.py": "parts of a body that was looked at",
    "balancer/wire/facts.py": "parts of a body that was looked at",
    "nesting.py": "the one place",
    "runtime/process/forkserver.py": "what both ends of its own line say",
    "runtime/process/handed.py": "what the process that started it says",
    "runtime/serve/handed.py": "what control says to who started it",
    "runtime/serve/supervisor.py": "what its own demo world says",
    "storage/documents.py": "what control wrote",
}


def _unbounded(path: Path) -> list[str]:
    """The calls in a module that read JSON as it comes."""
    if "json" not in path.read_text():
        return []
    tree = parsed(path)
    decoders = {
        target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and "json.Decoder" in ast.unparse(node.value)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    readers = {"json.loads", "json.load", "msgspec.json.decode", *(f"{name}.decode" for name in decoders)}
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            bounded = node.args and ast.unparse(node.args[0]).startswith("shallow(")
            if (called in readers and not bounded) or (called.endswith(".json") and called != "msgspec.json"):
                found.append(f"{called}, line {node.lineno}")
    return found


def test_whatever_reads_json_bounds_it() -> None:
    """By `shallow` or `loads`; and nobody catches an end of the stack."""
    root = Path(gtm.__file__).parent
    for path in root.rglob("*.py"):
        name = str(path.relative_to(root))
        assert (not _unbounded(path)) is (name not in OWN), (name, _unbounded(path))
        assert "RecursionError" not in path.read_text() or name == "nesting.py"


# --- a member twice ---

_MEMBERS = st.recursive(
    st.sampled_from(["1", '"a"', "null", "[]", "1e400", "NaN"]),
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda items: f"[{', '.join(items)}]")
        | st.lists(
            st.tuples(st.sampled_from(['"a"', '"b"', '"A"', '"\\u0061"', '""']), inner), max_size=3
        ).map(lambda pairs: "{" + ",".join(f"{name}: {value}" for name, value in pairs) + "}")
    ),
    max_leaves=8,
)


def _twice(value: Any) -> bool:
    """The model: of what `json` makes of a text with lists of pairs for objects, whether any has a name twice."""
    if isinstance(value, tuple):
        names = [name for name, _ in value]
        return len(names) > len(set(names)) or any(_twice(inner) for _, inner in value)
    return isinstance(value, list) and any(_twice(inner) for inner in value)


@settings(max_examples=examples(3000, 600), deadline=None)
@given(_MEMBERS, st.sampled_from(["utf-8", "utf-16", "utf-8-sig"]))
def test_a_member_twice_is_refused_and_nothing_else_is_changed(text: str, coding: str) -> None:
    """What is read is what Starlette's `request.json()` and pydantic read of the same bytes; an object with a member twice is refused."""
    raw = text.encode(coding)
    twice = _twice(json.loads(text, object_pairs_hook=tuple))
    request = Request({"type": "http", "method": "PUT", "headers": [], "path": "/"})
    request._body = raw  # noqa: SLF001 - as if it had been received
    with pytest.raises(StopIteration) as done:
        request.json().send(None)
    try:
        assert repr(loads(raw)) == repr(done.value.value)
        assert not twice
    except TwiceError:
        assert twice
    try:
        found = read(raw)
    except ValueError:
        assert twice or coding != "utf-8" or "NaN" in text or "1e400" in text
    else:
        assert not twice
        assert coding == "utf-8"
        assert repr(found) == repr(from_json(raw))


def test_who_is_told_which_member() -> None:
    """By its name, in a time that grows with the text."""
    with pytest.raises(TwiceError, match="has the member `country` twice"):
        loads('{"regions": [{"country": "SG", "x": 1, "country": "ID"}]}')
    many = ",".join(f'"{number}":1' for number in range(200_000))
    with pytest.raises(TwiceError, match="`199999` twice"):
        loads(f'{{{many},"199999":2}}')


def test_what_nothing_can_write_again() -> None:
    """Half a surrogate pair and a number that no float holds, wherever they stand: JustVugg/colibri#1589."""
    for text in (b'["\\ud800"]', b'{"a": {"\\uDFFF": 1}}', b"[-1e999]", b"[1E400]"):
        with pytest.raises(ValueError, match=r"surrogate|out of range"):
            read(text)
    assert read(b'["\\ud83d\\ude00", "\\\\ud800"]') == ["\U0001f600", "\\ud800"]
