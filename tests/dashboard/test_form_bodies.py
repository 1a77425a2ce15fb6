"""Forms as browsers send them (RFC 7578, the URL standard), against an encoder that others wrote; and as nobody should."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from urllib.parse import urlencode

import httpx
import pytest
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import Message

from gtm.dashboard.form_bodies import MAX_FIELDS, MAX_FORM, boundary, parts, read_form
from tests.effort import examples

_OF_NAMES = 'ab:;=" \r\nä'
_CHARS = "ab\r\n-;=\"'\\%22 \0\u00e4\u202e\U0001f937:"


def _texts(rng: random.Random, count: int, chars: str = _CHARS) -> Iterator[str]:
    for _ in range(count):
        yield "".join(rng.choices(chars, k=rng.randrange(12)))


def _encoded(fields: dict[str, str], files: dict[str, tuple[str, bytes]]) -> tuple[str, bytes]:
    made = httpx.Request("POST", "http://x/", data=fields, files=files)
    return made.headers["content-type"], made.read()


@pytest.mark.endurance
@pytest.mark.parametrize("seed", range(examples(60)))
def test_what_is_sent_arrives(seed: int) -> None:
    """Any fields and any file: each under its name, the last of equal ones, to the letter."""
    rng = random.Random(seed)
    names = list(dict.fromkeys(f"{one}{place}" for place, one in enumerate(_texts(rng, 4, _OF_NAMES))))
    fields = dict(zip(names, _texts(rng, len(names)), strict=True))
    content = "".join(_texts(rng, 30))
    kind, body = _encoded(fields, {"file": ('a b;"name="x.csv', content.encode())})
    expected = {**fields, "file": content}
    found = dict(parts(body, boundary(kind)))
    assert found == expected


def _request(kind: str, pieces: list[bytes], length: str | None = None) -> Request:
    left = list(pieces)

    async def receive() -> Message:
        return {"type": "http.request", "body": left.pop(0), "more_body": bool(left)}

    headers = [(b"content-type", kind.encode()), *([(b"content-length", length.encode())] if length else [])]
    return Request({"type": "http", "method": "POST", "path": "/", "headers": headers}, receive)


def _read(request: Request, most: int = MAX_FORM, *, files: bool = False) -> dict[str, str]:
    return asyncio.run(read_form(request, most, files=files))


@pytest.mark.parametrize("cut", [0, 1, 10, 60, -3, -40])
def test_what_is_cut_short_is_nothing(cut: int) -> None:
    """Half a form does nothing."""
    kind, body = _encoded({"a": "1"}, {"file": ("x.csv", b"service,count\nchat,1\n")})
    with pytest.raises(HTTPException) as refused:
        _read(_request(kind, [body[:cut]]), files=True)
    assert refused.value.status_code == 400


@pytest.mark.parametrize(
    ("kind", "body", "words"),
    [
        ("multipart/form-data", b"--x\r\n\r\n--x--", "between"),
        ("multipart/form-data; boundary=x", b"--x\r\n\r\n1\r\n--x--", "no name"),
        ("multipart/form-data; boundary=x", b'--x\r\nContent-Disposition: form-data; name="a"\r\n--x--', "no name"),
        ("multipart/form-data; boundary=x", b'--x\r\nContent-Disposition: form-data; name="a"\r\n\r\n1\n2\xff\r\n--x--', "`a`, line 2"),
        ("multipart/form-data; boundary=x", b'--x\r\nContent-Disposition: form-data; name="a"\r\n\r\n1\r\n' * (MAX_FIELDS + 5) + b"--x--", str(MAX_FIELDS)),
        ("application/x-www-form-urlencoded", b"a=1&" * (MAX_FIELDS + 5), "fields"),
        ("application/x-www-form-urlencoded", b"a=\xff\xfe", "cannot be read"),
    ],
)  # fmt: skip
def test_what_is_no_form(kind: str, body: bytes, words: str) -> None:
    """It says what is wrong."""
    with pytest.raises(HTTPException) as refused:
        _read(_request(kind, [body]), files=True)
    assert refused.value.status_code == 400
    assert words in refused.value.detail


def test_files_come_where_they_are_asked_for() -> None:
    """Elsewhere, and of any other type, it is no form."""
    for kind in ("multipart/form-data; boundary=x", "application/json", "text/plain", ""):
        with pytest.raises(HTTPException) as refused:
            _read(_request(kind, [b"--x--"]))
        assert refused.value.status_code == 415


def test_no_more_is_read_than_may_come() -> None:
    """Neither of what says its length, nor of what does not end."""
    kind = "application/x-www-form-urlencoded"
    for request in (
        _request(kind, [], "11"),
        _request(kind, [b"a" * 6, b"a" * 6, b"never"]),
        _request(kind, [], "9" * 400),
    ):
        with pytest.raises(HTTPException) as refused:
            _read(request, 10)
        assert refused.value.status_code == 413
    assert _read(_request(kind, [urlencode({"a": "ä"}).encode()]), 10) == {"a": "ä"}
