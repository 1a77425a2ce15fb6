"""What a client makes of servers that are away, slow to come back, or not gtm; when it asks again."""

from __future__ import annotations

import asyncio
import json
import socket
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gtm.client import (
    NEVER,
    AsyncControl,
    Call,
    ConnectionFailed,
    Control,
    GtmError,
    NotGtm,
    Options,
    ProblemError,
    RefusedByLaw,
    Retries,
    Unavailable,
    UsageError,
    calls,
)
from gtm.client.calls import segment
from tests.client.conftest import Scripted, http

QUICK = Options(retries=Retries(times=3, first=0.001, longest=0.01))
DOWN = http(
    503, json.dumps({"code": "unavailable", "detail": "away"}), "X-GTM-Tier: control", "Retry-After: 0"
)
OVER = http(
    503, json.dumps({"code": "unavailable", "detail": "away"}), "X-GTM-Tier: control", "Retry-After: 9"
)
BROKEN = http(503, json.dumps({"code": "unavailable", "detail": "away"}), "X-GTM-Tier: control")
GOOD = http(200, json.dumps({"name": "x"}))
LOST = b""
PUT = calls.put_tenants("x", {})
PUT_IF = calls.put_tenants("x", {}, if_match='"1"')
GET = calls.get_tenants("x")
POST = calls.rollback_revision(1, {})


@pytest.mark.parametrize(
    ("call", "answers", "asked"),
    [
        (GET, [GOOD], 1),
        (GET, [DOWN, DOWN, GOOD], 3),
        (POST, [DOWN, GOOD], 2),  # it has not been done
        (GET, [DOWN] * 4, None),
        (GET, [OVER, GOOD], None),  # longer than anybody waits
        (GET, [BROKEN, GOOD], None),  # nobody says that it will pass
        (GET, [LOST, LOST, GOOD], 3),
        (PUT, [LOST, GOOD], 2),  # twice the same is once
        (PUT_IF, [LOST, GOOD], None),  # the second would fail if the first was done
        (POST, [LOST, GOOD], None),
        (GET, [http(200, "<h1>It works!</h1>", kind="text/html"), GOOD], None),
    ],
)
@pytest.mark.parametrize("waits", [False, True])
def test_when_a_call_is_made_again(
    scripted: Scripted, call: Call[Any], answers: list[bytes], asked: int | None, waits: bool
) -> None:
    """Only if it was not done, or may be done twice."""
    scripted.answers = list(answers)

    def once() -> Any:
        if not waits:
            return Control(scripted.url, "t", QUICK).send(call)

        async def later() -> Any:
            async with AsyncControl(scripted.url, "t", QUICK) as control:
                return await control.send(call)

        return asyncio.run(later())

    if asked is not None:
        assert once().value == {"name": "x"}
        assert len(scripted.asked) == asked
        return
    with pytest.raises(GtmError):
        once()
    assert len(scripted.asked) == (4 if answers[1:] == [DOWN] * 3 else 1)


def test_who_is_not_there() -> None:
    """Nothing was sent: any call may be made again, and its failure says so."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
    with pytest.raises(ConnectionFailed, match="cannot be reached") as failed:
        Control(url, "t", QUICK).send(POST)
    assert not failed.value.sent


@pytest.mark.parametrize(
    ("answer", "error", "says"),
    [
        (http(200, "[1]"), NotGtm, "status 200"),
        (http(200, "{"), NotGtm, "application/json"),
        (http(200, "[" * 100_000), NotGtm, "status 200, application/json, nested deeper than 100"),
        (http(302, "", "Location: /elsewhere"), NotGtm, "status 302"),
        (http(204), NotGtm, "status 204"),  # no content is no answer (BasedHardware/omi#12955)
        (http(304), NotGtm, "status 304"),
        (http(404, '{"detail": "no"}'), NotGtm, "status 404"),  # not control's word: no X-GTM-Tier
        (
            http(451, '{"detail": "no", "code": "refused_residency"}', "X-GTM-Tier: control"),
            RefusedByLaw,
            "no",
        ),
        (http(503, "{}", "X-GTM-Tier: control"), Unavailable, "answered 503"),
        (http(418, '{"detail": "tea"}', "X-GTM-Tier: control"), ProblemError, "tea"),
        (
            http(422, '{"detail": "d", "errors": [7, {"path": "a", "message": "b"}]}', "X-GTM-Tier: control"),
            ProblemError,
            "a: b",
        ),
        (b"SSH-2.0-OpenSSH_9.2\r\n", ConnectionFailed, "broke the connection off"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{", ConnectionFailed, "broke the connection off"),
    ],
)
def test_what_else_may_answer(scripted: Scripted, answer: bytes, error: type[GtmError], says: str) -> None:
    """Never an exception of a library below, never a wrong value."""
    scripted.answers = [answer]
    with pytest.raises(error, match=says):
        Control(scripted.url, "t", Options(retries=NEVER)).send(GET)


@given(st.binary(max_size=300))
def test_any_bytes(scripted_for_all: Scripted, answer: bytes) -> None:
    """Whatever comes, it is an answer or a `GtmError`."""
    for text in (b"HTTP/1.1 200 OK\r\n" + answer, b"HTTP/1.1 200 OK\r\n\r\n" + answer):
        scripted_for_all.answers = [text]
        try:
            found = Control(scripted_for_all.url, "t", Options(retries=NEVER)).send(GET)
        except GtmError:
            continue
        assert isinstance(found.value, dict)


def test_lines_that_end_early(scripted: Scripted) -> None:
    """What came is given; then it is said that there is more."""
    scripted.answers = [b'HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"id": 1}\n{"id": 2}\n{"i']
    found = []
    with pytest.raises(GtmError):
        found.extend(Control(scripted.url, "t").export_audit())
    assert found == [{"id": 1}, {"id": 2}]
    scripted.answers = [http(403, '{"detail": "not you"}', "X-GTM-Tier: control")]
    with pytest.raises(ProblemError, match="not you"):
        next(Control(scripted.url, "t").export_audit())


@pytest.mark.parametrize(
    ("url", "token", "options", "parameter"),
    [
        ("ftp://127.0.0.1", "t", Options(), "url"),
        ("127.0.0.1:8080", "t", Options(), "url"),
        ("http://127.0.0.1:8080/?a=b", "t", Options(), "url"),
        ("http://127.0.0.1:0", "t", Options(), "url"),
        ("http://127.0.0.1", "two words", Options(), "token"),
        ("http://127.0.0.1", "ключ", Options(), "token"),
        ("http://gtm.example.com", "t", Options(), "insecure"),
        ("https://gtm.example.com", "t", Options(ca_file="nowhere.pem"), "ca_file"),
    ],
)
def test_what_cannot_be(url: str, token: str, options: Options, parameter: str) -> None:
    """Said at once, by the parameter; a token is never repeated."""
    with pytest.raises(UsageError) as wrong:
        Control(url, token, options)
    assert wrong.value.parameter == parameter
    assert token == "t" or token not in str(wrong.value)


def test_the_token_goes_nowhere_without_being_told(scripted: Scripted) -> None:
    """Said in the header, not in the query, nor in what is shown of a client."""
    scripted.answers = [GOOD]
    control = Control(scripted.url + "/", " gtm_secret \n")
    control.send(calls.list_audit(forced=True, who=None, since="2026-01-01"))
    assert b"Authorization: Bearer gtm_secret\r\n" in scripted.asked[0].replace(
        b"authorization", b"Authorization"
    )
    assert scripted.asked[0].startswith(b"GET /v1/audit?since=2026-01-01&forced=true HTTP/1.1\r\n")
    assert "secret" not in repr(control) + repr(control.options)


@given(st.text(max_size=20))
def test_a_name_is_one_segment(name: str) -> None:
    """No name leads elsewhere."""
    try:
        found = segment(name)
    except UnicodeEncodeError:
        return  # half a surrogate pair is no text
    assert not set(found) & set("/?#\\")
    assert found not in {".", ".."}
    assert found.isascii()


@given(st.integers(1, 9), st.floats(0, 1, exclude_max=True), st.integers(0, 20) | st.none(), st.booleans())
def test_pauses(made: int, drawn: float, asked: int | None, sent: bool) -> None:
    """They grow, are never longer than the longest, nor shorter than the server asks, and end."""
    patient = Retries(times=5, first=0.5, longest=8.0)
    busy = Unavailable(503, {}, None if asked is None else float(asked))
    pause = patient.pause(POST, busy, made, drawn)
    if made > 5 or asked is None or asked > 8:
        assert pause is None
    else:
        assert pause is not None
        assert asked <= pause <= 8
    lost = patient.pause(POST, ConnectionFailed("u", "w", sent=sent), made, drawn)
    assert (lost is None) == (sent or made > 5)
    if lost is not None:
        assert min(8.0, 0.25 * 2 ** (made - 1)) / 1.0001 <= lost * 1.0001 or lost >= 4
        assert lost <= 8
