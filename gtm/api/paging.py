"""Opaque cursors and entity tags."""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import Header, Query

from gtm.api.query import TypedResponse
from gtm.control.errors import BadRequest
from gtm.control.policy.resources import Precondition
from gtm.documents.parts import own_tag

Limit = Annotated[int, Query(ge=1, le=1000, description="Most items in the answer.")]
Cursor = Annotated[
    str | None, Query(max_length=1000, description="`next_cursor` of the answer before, to go on behind it.")
]
IfMatch = Annotated[
    str | None,
    Header(max_length=1000, description="Only if the resource has (one of) these entity tags; `*`: any."),
]
IfNoneMatch = Annotated[
    str | None,
    Header(max_length=1000, description="Only if it has none of these entity tags; `*`: if there is none."),
]

_TAGS = re.compile(r'\s*(?:W/)?"[\x21\x23-\x7e\x80-\xff]*"\s*(?:,\s*(?:W/)?"[\x21\x23-\x7e\x80-\xff]*"\s*)*')
_TAG = re.compile(r'(?:W/)?"[^"]*"')
_PREFIX = "after:"
NO_CURSOR = "`cursor` is not one that was handed out here: start without one"


def encode_cursor(last: str) -> str:
    """The cursor behind an item."""
    return urlsafe_b64encode(f"{_PREFIX}{last}".encode()).decode().rstrip("=")


def decode_cursor(cursor: str | None) -> str | None:
    """The item a cursor stands behind; None without a cursor.

    Raises:
        BadRequest: it is not a cursor of ours.
    """
    if cursor is None:
        return None
    try:
        text = urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode()
    except ValueError:
        text = ""
    if not text.startswith(_PREFIX) or encode_cursor(text.removeprefix(_PREFIX)) != cursor or "\0" in text:
        raise BadRequest(NO_CURSOR)
    return text.removeprefix(_PREFIX)


def precondition(if_match: str | None, if_none_match: str | None) -> Precondition:
    """The conditions a request states. Weak tags never match (If-Match compares strongly, RFC 9110 §13.1.1).

    Raises:
        BadRequest: a header is malformed.
    """
    match = _tags("If-Match", if_match)
    if match is not None:
        match = frozenset(map(own_tag, match))
    return Precondition(match, _tags("If-None-Match", if_none_match))


def not_modified(
    if_none_match: str | None, tag: str, headers: Mapping[str, str] | None = None
) -> TypedResponse[Any] | None:
    """The 304, with further headers, for a client that has the current version; it compares weakly (RFC 9110 §13.1.2). None: it has not.

    Raises:
        BadRequest: the header is malformed.
    """
    known = _tags("If-None-Match", if_none_match) or frozenset()
    if known.isdisjoint({"*", tag, f"W/{tag}"}):
        return None
    return TypedResponse(status_code=304, headers={"ETag": tag, **(headers or {})})


def decode_number(cursor: str | None) -> int | None:
    """As `decode_cursor`, for items that are numbered.

    Raises:
        BadRequest: it is not a cursor of ours.
    """
    last = decode_cursor(cursor)
    if last is None:
        return None
    if not is_number(last):
        raise BadRequest(NO_CURSOR)
    return int(last)


def is_number(text: str) -> bool:
    """Whether a text is a number as written here: ASCII digits, and few enough for the database."""
    return text.isascii() and text.isdigit() and len(text) <= 18


def _tags(header: str, value: str | None) -> frozenset[str] | None:
    if value is None:
        return None
    if value.strip() == "*":
        return frozenset({"*"})
    if not _TAGS.fullmatch(value):
        raise BadRequest(f'`{header}` must be `*` or quoted entity tags such as `"42"`')
    return frozenset(_TAG.findall(value))
