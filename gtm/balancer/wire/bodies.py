"""Bodies that decide: read so that no server can find another model in them.

A limit by model, a budget of tokens and the models of a backend go by what a request's body says. A body that a model server reads, and gtm does not, would pass them all. Where a file has any of these
(`BodyRules`), and nowhere else, a request whose body cannot be read with one meaning is refused:

| where its model is named | read | refused |
|---|---|---|
| JSON (the member `model`) | whatever its Content-Type says: llama.cpp and Ollama do not look at that | what is not JSON by RFC 8259: another coding than UTF-8, a byte order mark, `NaN`; what is no object; a member twice (Python and Go take the last, others the first or none); a member that differs from one that is read by its case (Go takes it for that); a model that is no text; bounds of the output that are no whole numbers |
| a form (the part `model`) | multipart/form-data, written plainly | another type; two parts of that name; header lines of parts that can be understood in two ways; a boundary behind another end of a line than CRLF |
| its path | the path alone | a name that is not UTF-8 |
| an endpoint that is not known | as JSON, if it begins like an object | as JSON, but for a model that is not named |

Besides, where bodies are read: a Content-Encoding, which some servers undo; a body of more than `read_mib`, or of more than `MAX_BRACKETS` brackets, `MAX_MEMBERS` members or `MAX_MEMBER_NAME` characters of a member's name; a path that can be read in two ways; where a model has limits, also a request that names none, since servers have a
model for these, and a WebSocket, whose messages name them.

Laws, which tests/balancer/test_bodies.py holds against the readers of such servers:
  1. If a server finds a model in a request that is carried, it is the one that `read_strictly` found.
  2. The cost of a body is linear in its bytes: each is looked at a fixed number of times, in C. Python looks at the members of the object itself alone, and what nobody asks for is not kept.

Sources: RFC 8259 §4, §8.1; RFC 7578 §4; Go's encoding/json ("preferring exact matches but also accepting case-insensitive matches"); Starlette's `Request.json`; pydantic (jiter); serde_json.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from math import inf
from typing import NamedTuple
from urllib.parse import parse_qsl

import msgspec

from gtm.balancer.wire.endpoints import BodyKind, RequestTarget, ambiguous, model_in
from gtm.balancer.wire.estimate import BYTES_A_TOKEN, MEDIA, Media, form_tokens
from gtm.balancer.wire.facts import (
    DECODER,
    MAX_NAME,
    MEMBERS,
    STATE_MEMBERS,
    Body,
    PromptCut,
    RequestFacts,
    facts_of,
    leniently,
    named_state,
    read_facts,
    stated,
)
from gtm.balancer.wire.heads import RequestHead
from gtm.balancer.wire.refusals import Refusal
from gtm.nesting import DEEPER, MAX_DEPTH, BracketsError, shallow

MAX_READ = 32 * 1024 * 1024
"""Bytes of a body that is read."""
MAX_BRACKETS = 100_000
"""Brackets of JSON: to tell them from those in texts takes longer than to pass over texts."""
MAX_MEMBERS, MAX_MEMBER_NAME = 1000, 1000
"""Members of the object itself, and characters of their names: these are kept while it is read, to tell which is there twice."""

READ = frozenset((BodyKind.JSON, BodyKind.FORM, BodyKind.UNKNOWN))
"""Kinds of requests whose bodies are read."""
_DECIDING = frozenset(("model", "max_tokens", "max_completion_tokens", "max_output_tokens"))
"""Members that a limit goes by."""
_FIRST = b" \t\n\r\0\xef\xbb\xbf\xfe\xff"
"""What may stand before an object in some coding of Unicode."""
_MULTIPART = re.compile(
    rb"multipart/form-data[ \t]*;[ \t]*boundary=(?:\"([0-9A-Za-z'()+_,./:=?-]{1,70})\"|([0-9A-Za-z'+_.-]{1,70}))",
    re.IGNORECASE,
)
"""RFC 2046 §5.1.1; a space in a boundary is left out, and without quotes whatever is no token."""
_DISPOSITION = re.compile(
    rb"content-disposition:[ \t]*form-data;[ \t]*name=(?:\"([^\"\\%\r\n]*)\"|([!#$&+.^_`|~0-9A-Za-z-]+))"
    rb"((?:;[ \t]*filename\*?=(?:\"(?:[^\"\\\r\n]|\\[^\r\n])*\"|[^\";\r\n \t]+))*)[ \t]*",
    re.IGNORECASE,
)
"""A name in quotes or, as .NET writes it, without (RFC 7578 §4.2, RFC 2183 §2); then the file's, if it is one."""
_NO_MATTER = re.compile(
    rb"content-type:[!-~ \t]*+|content-length:[ \t]*[0-9]+[ \t]*"
    rb"|content-transfer-encoding:[ \t]*(?:7bit|8bit|binary)[ \t]*",
    re.IGNORECASE,
)
"""Lines that change nothing of what a part is. Whatever a line is, each of its bytes is looked at once."""
_PLAIN = re.compile(rb"[ -~]*")
MAX_PARTS = 1000
MAX_PART_HEAD, MAX_PART_LINES = 4096, 8
"""Bytes and lines of the head of a part; four kinds of lines are known."""


_NONE, _JSON, _OPAQUE, _UNKNOWN = BodyKind.NONE, BodyKind.JSON, BodyKind.OPAQUE, BodyKind.UNKNOWN
"""By names of their own: what is looked up in an Enum takes ten times as long."""
_WHERE = {
    BodyKind.JSON: "say which in the member `model` of its JSON object, as a text",
    BodyKind.FORM: "say which in the field `model` of its multipart form",
    BodyKind.PATH: "say which in its path",
    BodyKind.SOCKET: "say which in its query, `?model=`",
    BodyKind.UNKNOWN: "gtm does not know this endpoint, and looks for the member `model` of a JSON object",
    BodyKind.OPAQUE: "gtm does not know this endpoint, and looks for the member `model` of a JSON object, which its body is not",
}
"""Where a model was looked for."""


class BodyRules(NamedTuple):
    """What goes by bodies. `limits_models`: some model has limits of its own, so that each request must name one. `budgets`: somebody has a budget of tokens."""

    limits_models: bool
    budgets: bool = False

    @property
    def whole(self) -> bool:
        """Whether a body is awaited to its end: what it may cost stands anywhere in it, and a fallback is written into it."""
        return self.limits_models or self.budgets


_NO_RULES = BodyRules(limits_models=False)


class BodyError(Exception):
    """A request whose body is not read with one meaning, and the refusal of it."""

    def __init__(self, code: str, detail: str, status: int = 400) -> None:
        super().__init__(detail)
        self.refusal = Refusal(status, code, detail)


def kind_of(
    head: RequestHead, target: RequestTarget, rules: BodyRules | None, most: int = MAX_READ
) -> BodyKind:
    """How a request's body will be read, of which `most` bytes are.

    Raises:
        BodyError: it will not be, by what its head says. Never without rules.
    """
    kind = target.kind
    if rules is None or kind is BodyKind.NONE:
        return kind
    if kind is BodyKind.SOCKET:
        if rules.limits_models and head.upgrade:
            raise BodyError(
                "model_unread",
                "models have limits here (`admission.models`), and which model a WebSocket is for is said in its messages, which are not read",
            )
        return kind
    wrong = ambiguous(target.path)
    if wrong is not None:
        raise BodyError("path_ambiguous", f"the path can be read in two ways: it has {wrong}")
    if kind not in READ:
        return kind
    if b"content-encoding" in head.seen and (coding := coding_of(head)):
        try:
            Undoing(coding, most)
        except CodingError as error:
            raise not_undone(error) from error
    if rules.whole and head.length is not None and head.length > most and kind is not BodyKind.UNKNOWN:
        raise too_large(most)
    return kind


def not_undone(error: CodingError) -> BodyError:
    """A body's Content-Encoding is not undone."""
    status, code = 400, "body_unread"
    if isinstance(error, TooMuchError):
        status, code = 413, "body_too_large"
    elif isinstance(error, UnknownError):
        status, code = 415, "body_encoded"
    return BodyError(code, f"limits go by the body here, and this one {error}", status)


def plain_body(head: RequestHead, body: bytes, most: int = MAX_READ) -> bytes:
    """All of a body, without its Content-Encoding, of `most` bytes.

    Raises:
        BodyError: that is not undone.
    """
    coding = coding_of(head)
    try:
        return undone(coding, body, most) if coding else body
    except CodingError as error:
        raise not_undone(error) from error


def too_large(most: int) -> BodyError:
    """A body has more bytes than the `most` that are read."""
    return BodyError(
        "body_too_large",
        f"limits go by the body here, and of no body more than {most >> 20} MiB are read (`read_mib`)",
        413,
    )


def may_be_object(begin: bytes | bytearray) -> bool:
    """Whether a body that begins so may be a JSON object, in any coding."""
    rest = begin.lstrip(_FIRST)
    return not rest or rest.startswith(b"{")


def begins_object(begin: bytes | bytearray) -> bool:
    """Whether a body that begins so may be a JSON object in UTF-8."""
    return begin.lstrip(b" \t\n\r").startswith(b"{")


def read_strictly(  # noqa: PLR0917 - a request, and what is asked of it
    head: RequestHead,
    kind: BodyKind,
    body: bytes,
    rules: BodyRules,
    cut: PromptCut | None,
    media: Media = MEDIA,
) -> RequestFacts:
    """What a request says of its work, if its body says it with one meaning.

    Args:
        head: of the request.
        kind: where it names its model, by `kind_of`.
        body: all of it, as `plain_body`, if its kind is one of `READ`.
        rules: what goes by it.
        cut: how its prompt is cut into blocks; None: it is not.
        media: what counts for pictures, recordings and files.

    Raises:
        BodyError: it does not.
    """
    size = (len(body) or head.length or 0) // BYTES_A_TOKEN
    if kind is _NONE or kind is _OPAQUE or (kind is _UNKNOWN and not (body and may_be_object(body[:64]))):
        return RequestFacts(input_tokens=size)
    if kind is BodyKind.PATH:
        facts = RequestFacts(model_in(head.path), size)
        if facts.model is None:
            raise BodyError("model_unread", "the model that the path names is not UTF-8")
    elif kind is BodyKind.SOCKET:
        facts = RequestFacts(_asked_model(head.target))
    elif kind is BodyKind.FORM:
        form = _form(head.seen.get(b"content-type", b""), body)
        facts = RequestFacts(form.model, form_tokens(head.path, form.fields, form.files, media))
    else:
        facts = facts_of(head, _object(body), body, cut, media)
    if facts.model is not None and len(facts.model) > MAX_NAME:
        raise BodyError("model_unread", f"`model` has more than the {MAX_NAME} characters that are read")
    if not facts.model and rules.limits_models and kind is not BodyKind.UNKNOWN:
        raise BodyError(
            "model_unnamed",
            "models have limits here (`admission.models`), and the request names none: say which `model` it is for",
        )
    return facts


def read_loosely(
    head: RequestHead, kind: BodyKind, body: bytes, cut: PromptCut | None, media: Media = MEDIA
) -> RequestFacts:
    """What a request says of its work, where nothing goes by it but the choice: what is not read is unknown.

    Args:
        head: of the request.
        kind: where it names its model.
        body: all of it, as it came, or nothing.
        cut: how its prompt is cut into blocks; None: it is not.
        media: what counts for pictures, recordings and files.
    """
    if kind is _JSON or kind is _UNKNOWN:
        if b"content-encoding" in head.seen:
            with suppress(BodyError):
                return read_facts(head, plain_body(head, body), cut, media)
            body = b""
        return read_facts(head, body, cut, media)
    if kind is _NONE:
        return read_facts(head, b"", None, media)
    try:
        if kind is BodyKind.FORM:
            body = plain_body(head, body)
        return read_strictly(head, kind, body, _NO_RULES, None, media)
    except BodyError:
        return read_facts(head, b"", None, media)


def unnamed(kind: BodyKind, most: int | None = None) -> Refusal:
    """What a request is told whose model is not found, where each server has other models.

    Args:
        kind: where it was looked for.
        most: bytes of the body in which it was; None: all of it.
    """
    within = "" if most is None else f" within the first {most >> 20} MiB, which are read (`read_mib`)"
    return Refusal(
        400,
        "model_unnamed",
        f"the servers here have different models, and this request names none{within}: {_WHERE[kind]}",
    )


def _asked_model(target: bytes) -> str | None:
    """The model that a query names.

    Raises:
        BodyError: it names two, or none that is UTF-8.
    """
    try:
        asked = parse_qsl(
            target.partition(b"?")[2].decode("ascii"), errors="strict", max_num_fields=MAX_MEMBERS
        )
    except ValueError as error:
        raise BodyError("model_unread", "the query is not read: it is not UTF-8, or too long") from error
    found = [value for name, value in asked if name == "model"]
    if len(found) > 1:
        raise BodyError("body_ambiguous", "the query has `model` twice")
    return found[0] if found else None


def _object(body: bytes) -> Body:
    """A JSON object that all readers take for the same.

    Raises:
        BodyError: it is none.
    """
    try:
        msgspec.json.decode(
            shallow(body, MAX_BRACKETS), type=dict[_Name, msgspec.Raw], dec_hook=MemberNames().comes
        )
        try:
            return DECODER.decode(body)
        except msgspec.ValidationError:  # a member is of another type: that says nothing of what follows it
            members = MEMBERS.decode(body)
    except BracketsError as error:
        raise too_much() from error
    except ValueError as error:
        raise unread(str(error).lower()) from error
    _check_deciding(members)
    return leniently(members)


def unread(why: str) -> BodyError:
    """A body is no JSON object that all readers take for the same."""
    return BodyError(
        "body_unread",
        f"limits go by the body here, and this one is not read as a JSON object (UTF-8, RFC 8259): {why}",
    )


class _Name:
    """The name of a member, of which nothing is kept."""


_NAME = _Name()


class MemberNames:
    """The names of an object's members, as its parser comes to them."""

    def __init__(self) -> None:
        self._seen: set[str] = set()

    def comes(self, kind: type, name: str) -> _Name:  # noqa: ARG002 - the contract of `dec_hook`
        """The next.

        Raises:
            BodyError: it was there before, or is written as one that decides; or there is too much of it.
        """
        if name in self._seen:
            raise BodyError(
                "body_ambiguous", f"the body is ambiguous: it has the member `{name[:100]}` twice"
            )
        if len(name) > MAX_MEMBER_NAME or len(self._seen) >= MAX_MEMBERS:
            raise too_much()
        folded = name.casefold()
        if folded in _DECIDING and folded != name:
            raise BodyError(
                "body_ambiguous",
                f"the body is ambiguous: some servers take its member `{name}` for `{folded}`",
            )
        self._seen.add(name)
        return _NAME


def too_much() -> BodyError:
    """A JSON object has more of what each costs than is read."""
    return BodyError(
        "body_too_large",
        f"limits go by the body here, and of one with more than {MAX_BRACKETS:,} brackets, {MAX_MEMBERS:,} members, or {MAX_MEMBER_NAME:,} characters in the name of one, no more is read",
        413,
    )


def _check_deciding(members: msgspec.Struct) -> None:
    """Refuse what decides and is of no type that all servers take alike."""
    for name in _DECIDING:
        said = stated(members, name)
        if said is None:
            continue
        try:
            value = msgspec.json.decode(said, type=str | None if name == "model" else float | int | None)
        except ValueError:  # of another type, or a number beyond all bounds
            value = inf
        if name == "model" and value is inf:
            raise BodyError("model_unread", "`model` is no text")
        if isinstance(value, float) and not value.is_integer():
            raise BodyError(
                "body_ambiguous",
                f"the body is ambiguous: `{name}` is no whole number, which servers take in different ways",
            )


class _Form(NamedTuple):
    """What a form says: its part `model` (None: there is none), bytes of all fields, and of each file."""

    model: str | None
    fields: int
    files: list[int]


def _form(content_type: bytes, body: bytes) -> _Form:
    """A form that all readers take for the same.

    Raises:
        BodyError: it is no such form.
    """
    dashes = dashes_of(content_type)
    at_once = body.startswith(dashes)
    parts = body.split(b"\r\n" + dashes, MAX_PARTS - at_once)
    if at_once:
        parts[0] = parts[0][len(dashes) :]
    elif parts.pop(0):  # a line before it, which is not empty
        raise unended_form()
    if not parts or parts[-1] not in (b"--", b"--\r\n"):
        raise unended_form()
    found: list[str] = []
    files: list[int] = []
    for part in parts[:-1]:
        # In the middle of a line it is data for everybody, as a short one often is in a recording (RFC 2046 §5.1.1).
        if not part.startswith(b"\r\n") or b"\n" + dashes in part or b"\r" + dashes in part:
            raise ambiguous_line()
        head, end, value = part[2:].partition(b"\r\n\r\n")
        if not end:
            raise ambiguous_line()
        name, is_file = name_of_part(head)
        if is_file:
            files.append(len(value))
        if name == b"model":
            found.append(plain_value(value))
    if len(found) > 1:
        raise BodyError("body_ambiguous", "the form has the part `model` twice")
    return _Form(found[0] if found else None, len(body) - sum(files), files)


def dashes_of(content_type: bytes) -> bytes:
    """What stands before each part of a form: two dashes and its boundary.

    Raises:
        BodyError: it is none, or has no plain boundary.
    """
    said = _MULTIPART.fullmatch(content_type)
    if said is None:
        raise BodyError(
            "body_unread",
            "limits go by the body here, and that of this path is read as multipart/form-data with a plain boundary: its Content-Type says something else",
            415,
        )
    return b"--" + (said[1] or said[2])


def unended_form() -> BodyError:
    """A form has no clear beginning and end."""
    return BodyError(
        "body_unread",
        f"the form does not begin with its boundary and end with it, or has more than {MAX_PARTS} parts",
    )


def ambiguous_line() -> BodyError:
    """A form has a boundary, or a part without a head, where readers differ."""
    return BodyError(
        "body_ambiguous",
        "the form's boundary stands where not all take it for one, or a part of it has no head that ends",
    )


def name_of_part(head: bytes) -> tuple[bytes, bool]:
    """The name that a part's head gives it, and whether it is a file.

    Raises:
        BodyError: it can be understood in two ways, or is `model` and no plain field.
    """
    name, is_file = _part_name(head)
    if name is None:
        raise BodyError(
            "body_ambiguous",
            "a part of the form has a head that can be understood in two ways, or is longer than "
            f"{MAX_PART_HEAD} bytes or {MAX_PART_LINES} lines",
        )
    if name.lower() == b"model" and (is_file or name != b"model"):
        raise BodyError("body_ambiguous", "the form's part `model` is no plain field")
    return name, is_file


def plain_value(value: bytes) -> str:
    """What a form says of its model.

    Raises:
        BodyError: it is not plain ASCII.
    """
    if not _PLAIN.fullmatch(value):  # which of them it is depends on what else the form says of its coding
        raise BodyError("model_unread", "the form's part `model` has characters that are not ASCII's")
    return value.decode()


def _part_name(head: bytes) -> tuple[bytes | None, bool]:
    """The name that a part's head gives it, and whether it is a file; None: it can be understood in two ways, or is too long."""
    name, is_file = None, False
    lines = head.split(b"\r\n", MAX_PART_LINES) if len(head) <= MAX_PART_HEAD else ()
    if len(lines) > MAX_PART_LINES:
        return None, False
    for line in lines:
        said = _DISPOSITION.fullmatch(line)
        if said is not None and name is None:
            name, is_file = said[1] or said[2] or b"", bool(said[3])
        elif not _NO_MATTER.fullmatch(line):
            return None, False
    return name, is_file


# --- Content codings of requests that are undone here to read what they hold (RFC 9110 §8.4); what goes on is what came.
#
# Servers undo gzip and deflate: Starlette and aiohttp by their middleware, Go's and Rust's by theirs. One that does not finds no JSON and no form in such a body,
# so that nobody finds another model in it.
#
# Laws:
#   1. What a body becomes is bounded, in all (`most`) and by what came: `FREE`, and `TIMES` as many bytes.
#   2. It is undone with one meaning: one member of gzip or one stream of zlib, nothing behind it; and one coding.


TIMES, FREE = 100, 8 * 1024 * 1024
"""Bytes that each byte of a coded body may become, and that all of it may become in any case."""
_PIECE = 256 * 1024
"""Bytes that are undone at once."""
_WINDOWS = {b"gzip": 31, b"x-gzip": 31, b"deflate": 15}
"""What zlib is told: gzip's frame (RFC 1952), or zlib's own (RFC 1950), which is what `deflate` means (RFC 9110 §8.4.1.2)."""


class CodingError(ValueError):
    """A coded body that is not undone. Its text goes on after "the body"."""


class UnknownError(CodingError):
    """Its coding is none that is undone here."""


class TooMuchError(CodingError):
    """It becomes more than is read."""


def coding_of(head: RequestHead) -> bytes:
    """The coding of a request's body, in lower case; empty: it is plain."""
    found = head.seen.get(b"content-encoding", b"").strip().lower()
    return b"" if found == b"identity" else found


class Undoing:
    """Undoes a coding, piece by piece.

    Args:
        coding: its name.
        most: bytes that are made of all of it, at most.

    Raises:
        UnknownError: it is none that is undone here.
    """

    __slots__ = ("_came", "_made", "_most", "_zlib")

    def __init__(self, coding: bytes, most: int) -> None:
        window = _WINDOWS.get(coding)
        if window is None:
            raise UnknownError(
                "has a Content-Encoding that is not read: send it plainly, or by gzip or deflate"
            )
        self._zlib = zlib.decompressobj(window)
        self._most = most
        self._came = self._made = 0

    def feed(self, data: bytes | bytearray) -> Iterator[bytes]:
        """What some more bytes become.

        Raises:
            CodingError: they are not of this coding, or something stands behind its end.
            TooMuchError: they become too much.
        """
        self._came += len(data)
        most = min(self._most, FREE + TIMES * self._came)
        undoes, full = self._zlib, False
        while data or full:
            try:
                made = undoes.decompress(data, _PIECE)
            except zlib.error as error:
                raise CodingError("is not what its Content-Encoding says") from error
            self._made += len(made)
            if self._made > most:
                raise TooMuchError("becomes more than is read once its Content-Encoding is undone")
            if undoes.unused_data:
                raise CodingError("has something behind the end of what its Content-Encoding says")
            full = len(made) == _PIECE and not undoes.eof  # zlib may hold more than it gave
            data = undoes.unconsumed_tail
            if made:
                yield made

    def end(self) -> None:
        """All of it has come.

        Raises:
            CodingError: its end has not.
        """
        if not self._zlib.eof:
            raise CodingError("breaks off before the end of what its Content-Encoding says")


def undone(coding: bytes, body: bytes, most: int) -> bytes:
    """All of a body, without its coding.

    Raises:
        CodingError: as `Undoing`.
    """
    undoing = Undoing(coding, most)
    found = b"".join(undoing.feed(body))
    undoing.end()
    return found


# --- The model of a body that is not held: found while it comes, and held to the end to be the only one. ---
#
# `read_strictly` (`gtm.balancer.wire.bodies`) reads bodies that are there. What is longer than is awaited is read here instead, piece by piece, each byte once: as soon as
# its model is known the request may go on, and what comes later is looked at before it does. Nothing of a body is kept but a name that is not whole.
#
# Laws, which tests/balancer/test_scanning.py holds:
#   1. However a body is cut, the model that is found is the one that `read_strictly` finds in it; what that refuses for its model is refused here, before the body's last byte.
#   2. The cost of a body is linear in its bytes, each of which is looked at a fixed number of times, in C. Python looks at each member of the object itself, each bracket, each long text.
#
# What one server has, and the request goes on with (`previous_response_id`, …), is found likewise; one that is odd, or longer than an id is, is none.
#
# What is not told here is whether all of it is JSON: within values nobody looks but for texts and brackets. What no server can read is the server's to refuse.


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


_BEGIN, _FIRST_MEMBER, _MEMBER, _AWAITS_COLON, _VALUE, _IN_SCALAR, _IN_TEXT, _IN_VALUE, _NEXT, _END = range(
    10
)
"""What comes next of an object: `_FIRST_MEMBER` a member's name, or the object's end; `_IN_VALUE` the inside of a list or an object within it. Numbers, for they are looked up with each token."""
_STEPS = {
    (_BEGIN, ord("{")): _FIRST_MEMBER,
    (_FIRST_MEMBER, ord("}")): _END,
    (_AWAITS_COLON, ord(":")): _VALUE,
    (_NEXT, ord(",")): _MEMBER,
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
        if now in (_FIRST_MEMBER, _MEMBER) and mark == _QUOTE:
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
