"""The model of a body that is not held: found while it comes, and held to the end to be the only one.

`read_strictly` (`gtm.balancer.wire.bodies`) reads bodies that are there. What is longer than is awaited is read here instead, piece by piece, each byte once: as soon as
its model is known the request may go on, and what comes later is looked at before it does. Nothing of a body is kept but a name that is not whole.

Laws, which tests/balancer/test_scanning.py holds:
  1. However a body is cut, the model that is found is the one that `read_strictly` finds in it; what that refuses for its model is refused here, before the body's last byte.
  2. The cost of a body is linear in its bytes, each of which is looked at a fixed number of times, in C. Python looks at each member of the object itself, each bracket, each long text.

What one server has, and the request goes on with (`previous_response_id`, …), is found likewise; one that is odd, or longer than an id is, is none.

What is not told here is whether all of it is JSON: within values nobody looks but for texts and brackets. What no server can read is the server's to refuse.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from gtm.balancer.wire.bodies import (
    MAX_BRACKETS,
    MAX_MEMBER_NAME,
    MAX_PART_HEAD,
    MAX_PARTS,
    MAX_READ,
    BodyError,
    CodingError,
    MemberNames,
    Undoing,
    ambiguous_line,
    coding_of,
    dashes_of,
    may_be_object,
    name_of_part,
    not_undone,
    plain_value,
    too_much,
    unended_form,
    unread,
)
from gtm.balancer.wire.endpoints import BodyKind
from gtm.balancer.wire.facts import MAX_NAME, STATE_MEMBERS, named_state
from gtm.balancer.wire.heads import RequestHead
from gtm.nesting import DEEPER, MAX_DEPTH, shallow

_ESCAPED = 12
"""Bytes that a character takes at most: two escapes of four digits (RFC 8259 §7)."""
_BLANK = re.compile(rb"[ \t\n\r]*+")
_TEXT = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
_REST = re.compile(rb'(?:[^"\\]++|\\.)*+', re.DOTALL)
"""Of a text, up to its end or to an escape that is not whole."""
_SCALAR = re.compile(rb"[-+.0-9A-Za-z]*+")
_WITHIN = re.compile(
    rb'(?:[^"\\\[\]{}]++|"[^"\\]{0,128}+(?:\\.[^"\\]{0,128}+){0,16}+")*+',
    re.DOTALL,
)
"""Up to a bracket, or to a text that is long: the end of one is found faster, and it need not be there."""
_FLAT = re.compile(rb'\{(?:[^"{}\[\]\\]++|"(?:[^"\\]++|\\.)*+")*+', re.DOTALL)
"""An object with nothing in it but texts and scalars, up to its end, or to a text that is not whole."""
_MOST_FLAT = 8192
"""Bytes of an object that names a conversation, at most."""
_QUOTE, _BACKSLASH = b'"\\'
_DOWN, _UP = b"{[", b"}]"


_BEGIN, _FIRST, _NAME, _AWAITS_COLON, _VALUE, _IN_SCALAR, _IN_TEXT, _IN_VALUE, _NEXT, _END = range(10)
"""What comes next of an object: `_FIRST` a member's name, or the object's end; `_IN_VALUE` the inside of a list or an object within it. Numbers, for they are looked up with each token."""
_STEPS = {
    (_BEGIN, ord("{")): _FIRST,
    (_FIRST, ord("}")): _END,
    (_AWAITS_COLON, ord(":")): _VALUE,
    (_NEXT, ord(",")): _NAME,
    (_NEXT, ord("}")): _END,
}


class ObjectScan:
    """Finds the member `model` of a JSON object, and those that name what one server has."""

    __slots__ = (
        "_at",
        "_brackets",
        "_depth",
        "_is_model",
        "_is_state",
        "_names",
        "_rest",
        "known",
        "model",
        "state",
    )

    def __init__(self) -> None:
        self.model: str | None = None
        self.known = False
        """Its model was there, even if it is null."""
        self.state: str | None = None
        """The id of what one server has and the request goes on with, as far as it has come."""
        self._at = _BEGIN
        self._depth = 1
        self._brackets = 1
        self._is_model = self._is_state = False
        self._names = MemberNames()
        self._rest = b""

    def feed(self, data: bytes | bytearray) -> None:
        """Some more of it.

        Raises:
            BodyError: it has not one meaning.
        """
        if self._rest:
            data, self._rest = self._rest + data, b""
        at, size = 0, len(data)
        while at < size:
            if self._at == _IN_TEXT:
                at = self._text(data, at)
            elif self._at == _IN_VALUE:
                at = self._within(data, at)
            elif self._at == _IN_SCALAR:
                at = self._scalar(data, at)
            else:
                found = _BLANK.match(data, at)
                assert found is not None  # noqa: S101 - it may be empty
                at = found.end()
                if at < size:
                    at = self._token(data, at)

    def end(self) -> None:
        """All of it has come.

        Raises:
            BodyError: its end has not.
        """
        if self._at != _END:
            raise unread("it breaks off")

    def _token(self, data: bytes | bytearray, at: int) -> int:
        """Read what stands between values."""
        now, mark = self._at, data[at]
        if now == _VALUE:
            return self._value(data, at)
        if now in (_FIRST, _NAME) and mark == _QUOTE:
            return self._name(data, at)
        step = _STEPS.get((now, mark))
        if step is None:
            raise unread(
                "something stands there that no object has" if now != _END else "something stands behind it"
            )
        self._at = step
        return at + 1

    def _name(self, data: bytes | bytearray, at: int) -> int:
        text = self._whole_text(data, at, MAX_MEMBER_NAME)
        if text is None:
            return len(data)
        name = _decoded(text)
        self._names.comes(str, name)
        self._is_model = name == "model"
        self._is_state = name in STATE_MEMBERS
        self._at = _AWAITS_COLON
        return at + len(text)

    def _whole_text(self, data: bytes | bytearray, at: int, most: int) -> bytes | None:
        """A text that is needed; None: its end has not come, and it is kept."""
        found = _TEXT.match(data, at)
        if found is not None:
            return found[0]
        if len(data) - at > _ESCAPED * most + 2:
            raise too_much() if most == MAX_MEMBER_NAME else long_model()
        self._rest = bytes(data[at:])
        return None

    def _value(self, data: bytes | bytearray, at: int) -> int:
        mark = data[at]
        if self._is_state and (mark == _QUOTE or mark in _DOWN) and not self._named(data, at):
            return len(data)
        if self._is_model and mark == _QUOTE:
            text = self._whole_text(data, at, MAX_NAME)
            if text is None:
                return len(data)
            model = _decoded(text)
            if len(model) > MAX_NAME:
                raise long_model()
            self.model, self.known, self._at = model, True, _NEXT
            return at + len(text)
        if mark == _QUOTE:
            self._at = _IN_TEXT
            return at + 1
        if mark in _DOWN:
            if self._is_model:
                raise no_text()
            self._at = _IN_VALUE
            return at
        self._at = _IN_SCALAR
        return at

    def _named(self, data: bytes | bytearray, at: int) -> bool:
        """Look at a value that may name what one server has; False: its end has not come, and it is kept. All of it is read as any other is, then."""
        if data[at] == _QUOTE:
            found, most = _TEXT.match(data, at), _ESCAPED * MAX_NAME + 2
            value: bytes | bytearray = found[0] if found is not None else b""
        else:
            found, most = _FLAT.match(data, at), _MOST_FLAT
            end = found.end() if found is not None else at
            value = data[at : end + 1] if data[end : end + 1] == b"}" else b""
            if not value and end < len(data) and data[end] != _QUOTE:  # it is none that names one
                most = 0
        if not value and len(data) - at <= most:
            self._rest = bytes(data[at:])
            return False
        self._is_state = False
        self.state = self.state or (named_state(bytes(value)) if value else None)
        return True

    def _scalar(self, data: bytes | bytearray, at: int) -> int:
        found = _SCALAR.match(data, at)
        assert found is not None  # noqa: S101 - it may be empty
        end = found.end()
        if self._is_model:
            if end == len(data):
                self._rest = bytes(data[at:])
                if len(self._rest) > len(b"null"):
                    raise no_text()
                return end
            if found[0] != b"null":
                raise no_text()
            self.known = True
        if end < len(data):
            self._at = _NEXT
            if end == at and not self._is_model and data[at] not in b",} \t\n\r":
                raise unread("something stands there that no value has")
        return end

    def _text(self, data: bytes | bytearray, at: int) -> int:
        """Up to the end of a text that nobody asks for."""
        end = data.find(b'"', at)
        if (end > at and data[end - 1] == _BACKSLASH) or (end < 0 and data[-1] == _BACKSLASH):
            found = _REST.match(data, at)
            assert found is not None  # noqa: S101 - it may be empty
            end = found.end()
            if end < len(data) and data[end] == _BACKSLASH:  # the escape is not whole
                self._rest = bytes(data[end:])
                return len(data)
        if end < 0 or end == len(data):
            return len(data)
        self._at = _NEXT if self._depth == 1 else _IN_VALUE
        return end + 1

    def _within(self, data: bytes | bytearray, at: int) -> int:
        size = len(data)
        while at < size:
            found = _WITHIN.match(data, at)
            assert found is not None  # noqa: S101 - it may be empty
            at = found.end()
            if at == size:
                break
            mark = data[at]
            at += 1
            if mark == _QUOTE:
                self._at = _IN_TEXT
                return at
            if mark == _BACKSLASH:
                raise unread("an escape stands outside of texts")
            self._brackets += 1
            if self._brackets > MAX_BRACKETS:
                raise too_much()
            if mark in _UP:
                self._depth -= 1
                if self._depth == 1:
                    self._at = _NEXT
                    return at
            else:
                self._depth += 1
                if self._depth > MAX_DEPTH:
                    raise unread(DEEPER)
        return size


def _decoded(text: bytes) -> str:
    try:
        return msgspec.json.decode(shallow(text), type=str)
    except ValueError as error:
        raise unread(str(error).lower()) from error


def long_model() -> BodyError:
    """A model's name is longer than is read."""
    return BodyError("model_unread", f"`model` has more than the {MAX_NAME} characters that are read")


def no_text() -> BodyError:
    """A model is no text."""
    return BodyError("model_unread", "`model` is no text")


class FormScan:
    """Finds the part `model` of a multipart form.

    Args:
        content_type: of the request.

    Raises:
        BodyError: it says of no form.
    """

    __slots__ = (
        "_at",
        "_dashes",
        "_fresh",
        "_is_model",
        "_named",
        "_parts",
        "_rest",
        "known",
        "model",
        "state",
    )

    def __init__(self, content_type: bytes) -> None:
        self.model: str | None = None
        self.state: str | None = None
        """Forms name nothing that a request goes on with."""
        self.known = self._named = False
        self._dashes = dashes_of(content_type)
        self._parts = 0
        self._is_model = self._fresh = False
        self._rest = b""
        self._at = self._begin

    def feed(self, data: bytes | bytearray) -> None:
        """Some more of it.

        Raises:
            BodyError: it has not one meaning.
        """
        rest: bytes | None = self._rest + data
        while rest is not None:
            self._rest = rest
            rest = self._at(rest)

    def end(self) -> None:
        """All of it has come.

        Raises:
            BodyError: its end has not.
        """
        if self._at != self._behind or self._rest not in (b"", b"\r\n"):
            raise unended_form()

    # Each takes what is there; what is left for the next, or None: more is needed, and `_rest` is kept.

    def _begin(self, data: bytes) -> bytes | None:
        whole = (self._dashes, b"\r\n" + self._dashes)
        for begin in whole:
            if data.startswith(begin):
                self._at = self._delimited
                return data[len(begin) :]
        if not any(begin.startswith(data) for begin in whole):
            raise unended_form()
        return None

    def _delimited(self, data: bytes) -> bytes | None:
        self._parts += 1
        if self._parts > MAX_PARTS:
            raise unended_form()
        self._at = self._line
        return data

    def _line(self, data: bytes) -> bytes | None:
        """Read what stands behind a boundary: a line's end, or the form's."""
        if len(data) < 2:
            return None
        if data.startswith(b"--"):
            self._at = self._behind
        elif data.startswith(b"\r\n"):
            self._at = self._head
        else:
            raise ambiguous_line()
        return data[2:]

    def _head(self, data: bytes) -> bytes | None:
        end = data.find(b"\r\n\r\n", 0, MAX_PART_HEAD + 4)
        if self._is_on_a_line(data[: end if end >= 0 else MAX_PART_HEAD + 4]):
            raise ambiguous_line()
        if end < 0:
            if len(data) >= MAX_PART_HEAD + 4:
                raise ambiguous_line()
            return None
        self._is_model = name_of_part(data[:end])[0] == b"model"
        if self._is_model and self._named:
            raise BodyError("body_ambiguous", "the form has the part `model` twice")
        self._named = self._named or self._is_model
        self._at, self._fresh = self._content, True
        return data[end + 4 :]

    def _is_on_a_line(self, data: bytes) -> bool:
        """Whether the boundary begins a line of what begins one: then it is no data, in the middle of a line it is."""
        dashes = self._dashes
        return data.startswith(dashes) or b"\n" + dashes in data or b"\r" + dashes in data

    def _content(self, data: bytes) -> bytes | None:
        end = data.find(b"\r\n" + self._dashes)
        if self._is_on_a_line(data[: max(end, 0)] if end >= 0 else data) and (
            self._fresh or not data.startswith(self._dashes)
        ):
            raise ambiguous_line()
        if end < 0:
            keep = len(self._dashes) + 1
            if self._is_model and len(data) > MAX_NAME + keep:
                raise long_model()
            if not self._is_model and len(data) > keep:
                self._rest, self._fresh = data[-keep:], False
            return None
        if self._is_model:
            self.model = plain_value(data[:end])
            self.known = True
            if len(self.model) > MAX_NAME:
                raise long_model()
        self._at = self._delimited
        return data[end + 2 + len(self._dashes) :]

    def _behind(self, data: bytes) -> bytes | None:
        if not b"\r\n".startswith(data):
            raise unended_form()
        return None


class BodyScan:
    """Finds the model of a request's body, and undoes its coding.

    Args:
        head: of the request.
        kind: where its model is named: in JSON, or in a form.
        most: bytes that are read of it, at most, where it has a coding.

    Raises:
        BodyError: it will not be read, by what its head says.
    """

    __slots__ = ("_coding", "_kind", "_scan")

    def __init__(self, head: RequestHead, kind: BodyKind, most: int = MAX_READ) -> None:
        coding = coding_of(head)
        try:
            self._coding = Undoing(coding, most) if coding else None
        except CodingError as error:
            raise not_undone(error) from error
        self._kind = kind
        self._scan: ObjectScan | FormScan = (
            FormScan(head.seen.get(b"content-type", b"")) if kind is BodyKind.FORM else ObjectScan()
        )

    @property
    def model(self) -> str | None:
        """The model that it names, as far as it has come."""
        return self._scan.model

    @property
    def state(self) -> str | None:
        """The id of what one server has and it goes on with, as far as it has come."""
        return self._scan.state

    @property
    def read(self) -> bool:
        """Whether it is a body that names something."""
        return self._kind is not BodyKind.OPAQUE

    @property
    def known(self) -> bool:
        """Whether nothing that comes can name its model: it was there, if only as null; or this is no body that names one."""
        return self._scan.known or self._kind is BodyKind.OPAQUE

    def feed(self, data: bytes | bytearray) -> None:
        """Some more of it.

        Raises:
            BodyError: it has not one meaning, or becomes too much.
        """
        try:
            pieces: Iterable[bytes | bytearray] = (data,) if self._coding is None else self._coding.feed(data)
            for piece in pieces:
                if self._kind is BodyKind.UNKNOWN:
                    self._kind = BodyKind.JSON if may_be_object(piece[:64]) else BodyKind.OPAQUE
                if self._kind is not BodyKind.OPAQUE:
                    self._scan.feed(piece)
        except CodingError as error:
            raise not_undone(error) from error

    def end(self) -> None:
        """All of it has come.

        Raises:
            BodyError: its end has not.
        """
        try:
            if self._coding is not None:
                self._coding.end()
        except CodingError as error:
            raise not_undone(error) from error
        if self._kind is not BodyKind.OPAQUE:
            self._scan.end()
