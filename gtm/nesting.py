"""Which JSON from outside is refused though parsers take it: what is nested too deeply, and what has a member twice.

Parsers recurse, and where a stack ends differs from one version of Python to the next. Of a member that an object has twice one reader takes the first and
another the last (RFC 8259 §4), so that what is checked may not be what is done.

Laws, which `tests/test_nesting.py` holds:
  1. Whatever reads text from outside refuses what is nested deeper than `MAX_DEPTH`, and never finds that out by its stack.
  2. `loads` and `read`, by which requests of people and programs come in, refuse an object with a member twice.
"""

from __future__ import annotations

import json
import re
from array import array
from collections import Counter
from collections.abc import Callable
from itertools import accumulate
from math import inf, isinf
from typing import Any, TypeVar

MAX_DEPTH = 100
"""Lists and mappings within each other: several times what people or programs write, a tenth of what any stack takes."""
DEEPER = f"nested deeper than {MAX_DEPTH}"
"""What is wrong with text that is."""

_Text = TypeVar("_Text", str, bytes)
_STEPS = bytes.maketrans(b"[{]}", b"\1\1\xff\xff")
"""One level down, or up again, as signed bytes."""
_OTHERS = bytes({*range(256)} - {*b'[{]}"'})
_WINDOW = 128
"""Brackets and quotes that are told apart at once: what lists of them hold goes by this, and not by the text; and flat parts of a text go no deeper."""
_PLACE = re.compile(r"\(byte (\d+)\)")


class ShapeError(ValueError):
    """JSON that is refused for its shape. Its text goes on after "the body is"."""


class NestingError(ShapeError):
    """Text is nested deeper than `MAX_DEPTH`."""

    def __init__(self) -> None:
        super().__init__(DEEPER)


class BracketsError(ShapeError):
    """A text has more brackets than may be."""

    def __init__(self, most: int) -> None:
        super().__init__(f"too much: it has more than {most:,} brackets")


class TwiceError(ShapeError):
    """An object has a member twice."""

    def __init__(self, name: str) -> None:
        super().__init__(f"ambiguous: an object in it has the member `{name[:100]}` twice")


def shallow(text: _Text, brackets: int | None = None) -> _Text:
    """The same JSON, which a parser may read. It need not be valid: what it is up to its first fault counts.

    It is looked at a few times in C, whatever it is, and a few bytes are held for each of its own.

    Args:
        text: the JSON.
        brackets: those outside of its strings that it may have, `MAX_DEPTH` at least; None: any number.

    Raises:
        NestingError: it is nested too deeply.
        BracketsError: it has more brackets before anything is wrong with its depth.
        ValueError: it would be, behind what is no JSON; it says what that is.
    """
    if not _few(text):
        _check(text, inf if brackets is None else brackets)
    return text


def loads(content: str | bytes, hook: Callable[[dict[str, Any]], Any] | None = None) -> Any:
    """As `json.loads`, of what is nested no deeper than may be and has no member twice.

    Raises:
        TwiceError: an object has one.
        ValueError: as `shallow`, or it is no JSON (`json.JSONDecodeError`).
    """
    if isinstance(content, bytes):  # which the module reads in UTF-16 and UTF-32 too
        content = content.decode(json.detect_encoding(content), "surrogatepass")
    made = _once if hook is None else lambda members: hook(_once(members))
    return json.loads(shallow(content), object_pairs_hook=made)


def read(content: bytes) -> Any:
    """JSON as RFC 8259 has it: as `loads`, but in UTF-8 alone (§8.1), without `NaN` and `Infinity` (§6).

    Also without numbers that no float holds, and without halves of surrogate pairs (§8.2), which nothing can write again.

    Raises:
        ValueError: as `loads`.
    """
    found = json.loads(
        shallow(content.decode()), object_pairs_hook=_once, parse_constant=_no_number, parse_float=_number
    )
    if b"\\ud" in content.lower():  # only escapes can make one, and few texts have any
        _check_surrogates(found)
    return found


def _once(members: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object by its members, each of which must be there once."""
    found = dict(members)
    if len(found) < len(members):
        raise TwiceError(Counter(name for name, _ in members).most_common(1)[0][0])
    return found


def _number(text: str) -> float:
    found = float(text)
    if isinf(found):
        raise ValueError(f"`{text[:100]}` is a number out of range")
    return found


def _check_surrogates(found: Any) -> None:
    try:
        json.dumps(found, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise ValueError("a text has half a surrogate pair") from error


def _no_number(text: str) -> Any:
    raise ValueError(f"`{text}` is no number of JSON")


def _few(text: str | bytes) -> bool:
    """Whether there are not enough brackets for too deep a text, strings and all: as nearly always.

    They are looked for one by one, and no more of them than matter: libc looks at many bytes at once, and `bytes.count` does not.
    """
    left = MAX_DEPTH
    find: Callable[..., int] = text.find
    for mark in ("[", "{") if isinstance(text, str) else (b"[", b"{"):
        at = find(mark)
        while at >= 0:
            if not left:
                return False
            left -= 1
            at = find(mark, at + 1)
    return True


def _check(text: str | bytes, brackets: float) -> None:
    """Refuse text with many brackets, as `shallow` says it: if it is too deep, by its depth or by the fault that comes first."""
    raw = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
    if not _deep(raw, brackets):
        return
    import msgspec

    try:
        msgspec.json.decode(raw, type=msgspec.Raw)  # which makes nothing of it
    except RecursionError:  # there is no fault before that, on this stack or a larger one
        raise NestingError from None
    except ValueError as fault:
        place = _PLACE.search(str(fault))
        if place is not None and not _deep(raw[: int(place[1])], inf):
            raise
    raise NestingError


def _deep(raw: bytes, brackets: float) -> bool:
    """Whether a text goes too deep before its first fault, if it has one; behind that, brackets may be miscounted."""
    if b"\\" in raw:
        raw = raw.replace(b"\\\\", b"").replace(b'\\"', b"")
    # Quotes with no bracket between them are left out, which keeps all others inside or outside of strings as they are.
    marks = raw.translate(_STEPS, _OTHERS).replace(b'""', b"")
    depth = count = inside = 0
    for at in range(0, len(marks), _WINDOW):
        parts = marks[at : at + _WINDOW].split(b'"')
        steps = b"".join(parts[inside::2])
        down = steps.count(b"\1")
        if depth + down > MAX_DEPTH and max(accumulate(array("b", steps), initial=depth)) > MAX_DEPTH:
            return True
        depth += 2 * down - len(steps)
        count += len(steps)
        if count > brackets:
            raise BracketsError(int(brackets))
        inside = (inside + len(parts) - 1) % 2
    return False
