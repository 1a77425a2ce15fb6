"""Forms as browsers send them: fields, and files beside them.

Sources: the URL standard (application/x-www-form-urlencoded); RFC 7578 and RFC 2046 §5.1.1 (multipart/form-data); HTML, "Multipart form data" (how names are written).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import parse_qsl

from starlette.exceptions import HTTPException
from starlette.requests import Request

MAX_FORM = 2 * 1024 * 1024
"""Bytes of a form."""
MAX_UPLOAD = 8 * 1024 * 1024
"""Bytes of a form with a file."""
MAX_FIELDS = 1000
_MAX_HEAD = 2000
"""Bytes of the header lines of a part."""
_FIELDS, _PARTS = "application/x-www-form-urlencoded", "multipart/form-data"
_BOUNDARY = re.compile(r"""boundary=(?:"([^"]{1,70})"|([^\s;"]{1,70}))""", re.IGNORECASE)
_NAME = re.compile(
    rb"""^content-disposition:\s*form-data\s*;(?:.*?;)?\s*name="([^"]{0,200})\"""",
    re.IGNORECASE | re.MULTILINE,
)


async def read_form(request: Request, most: int = MAX_FORM, *, files: bool = False) -> dict[str, str]:
    """The fields of a form: the last of each name. A file is a field with its text.

    Args:
        request: with the form.
        most: bytes that it may have.
        files: whether it may be one with files.

    Raises:
        HTTPException: it is no form, or too large.
    """
    given = request.headers.get("content-type", "")
    kind = given.partition(";")[0].strip().lower()
    if kind != _FIELDS and not (files and kind == _PARTS):
        raise HTTPException(415, f"a form is `{_FIELDS}`")
    raw = await _body(request, most)
    try:
        if kind == _PARTS:
            return dict(parts(raw, boundary(given)))
        return dict(parse_qsl(raw.decode(), keep_blank_values=True, max_num_fields=MAX_FIELDS))
    except ValueError as error:
        raise HTTPException(400, f"the form cannot be read: {error}") from error


async def _body(request: Request, most: int) -> bytes:
    """All of it; what says beforehand that it is larger is not read."""
    length = request.headers.get("content-length", "")
    raw = bytearray()
    if not (length.isdigit() and int(length[:20]) > most):
        async for piece in request.stream():
            raw += piece
            if len(raw) > most:
                break
        else:
            return bytes(raw)
    raise HTTPException(413, f"this form may have {most >> 10:,} KiB")


def boundary(content_type: str) -> bytes:
    """What stands between parts.

    Raises:
        ValueError: it does not say.

    >>> boundary('multipart/form-data; boundary="a b"')
    b'a b'
    """
    found = _BOUNDARY.search(content_type)
    if found is None:
        raise ValueError("it does not say what stands between its parts")
    return (found[1] or found[2]).encode("latin-1")


def parts(raw: bytes, between: bytes) -> Iterator[tuple[str, str]]:
    """Names and texts of the parts.

    Raises:
        ValueError: they are none, too many, or no text.
    """
    pieces = (b"\r\n" + raw).split(b"\r\n--" + between, MAX_FIELDS + 2)
    if len(pieces) < 2 or not pieces[-1].startswith(b"--"):
        raise ValueError(
            "it ends too early" if len(pieces) <= MAX_FIELDS + 2 else f"it has more than {MAX_FIELDS} fields"
        )
    for piece in pieces[1:-1]:
        head, sign, content = piece.lstrip(b" \t").partition(b"\r\n\r\n")
        found = _NAME.search(head[:_MAX_HEAD])
        if not sign or found is None:
            raise ValueError("a part has no name")
        name = found[1].decode().replace("%22", '"').replace("%0D", "\r").replace("%0A", "\n")
        yield name, _text(name, content)


def _text(name: str, content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ValueError(f"`{name}`, line {line}: is not UTF-8 text. Save the file as UTF-8") from None
