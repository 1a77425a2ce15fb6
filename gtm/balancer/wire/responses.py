"""What the head of a backend's response says, and the head that goes on to the client.

As with requests, a response is written anew as it was understood. What could be read in two ways is a failure of the backend (502):
a transfer coding that is not `chunked`, a coding before HTTP/1.1, a status that does not exist, an interim response with a body,
a switch of protocols that nobody asked for.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, auto

import msgspec

from gtm.balancer.wire.heads import OF_ONE_HOP, Headers, RequestHead, read_length, tokens, without
from gtm.nesting import shallow

_TAKEN = frozenset((*OF_ONE_HOP, b"content-length", b"alt-svc"))
"""Fields of one hop, and of framing, which is written anew; and where else the server may be asked, which leads clients past gtm (RFC 7838)."""
_READ = frozenset((b"content-type", b"content-encoding"))
LOAD = b"endpoint-load-metrics"
"""ORCA's header, by which a backend says its load; and its form of other bytes. They are for who chooses, not for clients."""
LOAD_BIN = b"endpoint-load-metrics-bin"
_LOOKED_AT = _TAKEN | _READ | {LOAD, LOAD_BIN}
_OWN = (b"gtm-", b"x-gtm-")
"""Beginnings of the names of fields that gtm alone says to clients; what a peer's balancer says so is for this one."""
_PASSED, _KEPT, _READ_AND_KEPT = range(3)
_kinds: dict[bytes, tuple[bytes, int]] = {}
"""Name as sent → in lower case, and whether such a field goes on, is kept here, or both: of short names, some of them."""
_MAX_KINDS = 1024
_TEXT = re.compile(rb"[\t\x20-\x7e\x80-\xff]*")
_NO_BODY = (204, 304)


class ResponseError(Exception):
    """A backend's response that cannot be passed on: what was wrong."""


@dataclass(slots=True, eq=False)
class ResponseHead:
    """A backend's response as it was understood; `length` None: chunked, or until the connection ends.

    `load`: what the backend says of its load, in one of ORCA's forms. `is_events`: it is a stream of server-sent events that can be read
    as it is.
    """

    status: int
    reason: bytes
    length: int | None
    chunked: bool
    lines: list[bytes]
    seen: dict[bytes, bytes]
    load: bytes | None = None
    is_events: bool = False

    @property
    def retry_after(self) -> bool:
        """Whether it says when to try again."""
        return any(line[:12].lower() == b"retry-after:" for line in self.lines)

    @property
    def upgrade(self) -> bytes:
        """The protocol that it speaks of."""
        return self.seen.get(b"upgrade", b"").strip(b" \t")


def _kind(name: bytes) -> tuple[bytes, int]:
    low = name.lower()
    kind = _PASSED
    if low in _READ:
        kind = _READ_AND_KEPT
    elif low in _LOOKED_AT or low.startswith(_OWN):
        kind = _KEPT
    if len(_kinds) < _MAX_KINDS and len(name) <= 64:
        _kinds[name] = low, kind
    return low, kind


def read_response_head(status: int, reason: bytes, headers: Headers, version: str = "1.1") -> ResponseHead:
    """Understand a response's head. What the parser accepts has at most one length, and none beside a transfer coding.

    Raises:
        ResponseError: it cannot be passed on.
    """
    if not 100 <= status <= 599:
        raise ResponseError(f"there is no status {status:03} (RFC 9110 §15)")
    if version not in ("1.1", "1.0"):
        raise ResponseError(f"its version is HTTP/{version}")
    lines: list[bytes] = []
    seen: dict[bytes, bytes] = {}
    for name, value in headers:
        low, kind = _kinds.get(name) or _kind(name)
        if kind:
            seen[low] = seen[low] + b"," + value if low in seen else value
            if kind is _KEPT:
                continue
        lines.append(b"%b: %b\r\n" % (name, value))
    if b"connection" in seen:
        lines = without(lines, tokens(seen[b"connection"]))
    coding = seen.get(b"transfer-encoding")
    if coding is not None and (version == "1.0" or coding.strip(b" \t").lower() != b"chunked"):
        raise ResponseError("its transfer coding is not `chunked` (RFC 9112 §6.1)")
    length = None
    if b"content-length" in seen:
        length = read_length(seen[b"content-length"].strip(b" \t"))
        if length is None:
            raise ResponseError("its Content-Length is not one number of at most 15 digits (RFC 9110 §8.6)")
    if status < 200 and (length or coding is not None):
        raise ResponseError("an interim response has a body (RFC 9110 §15.2)")
    if reason != b"OK" and not _TEXT.fullmatch(reason):
        reason = b""
    load = seen.get(LOAD)
    if load is None and LOAD_BIN in seen:
        load = b"BIN " + seen[LOAD_BIN]
    media = seen.get(b"content-type", b"")
    is_events = media[:17].lower() == b"text/event-stream" and b"content-encoding" not in seen
    return ResponseHead(status, reason, length, coding is not None, lines, seen, load, is_events)


class Framing(Enum):
    """How a client knows where an answer ends."""

    NONE = auto()
    """There is no body, whatever a length says (RFC 9112 §6.3, rule 1)."""
    LENGTH = auto()
    CHUNKED = auto()
    CLOSE = auto()
    """With the connection: HTTP/1.0, and a length that nobody knows."""
    TUNNEL = auto()


NONE, LENGTH, CHUNKED, CLOSE, TUNNEL = Framing
"""By names of their own: what is looked up in an Enum takes ten times as long."""


def framing_of(request: RequestHead, response: ResponseHead) -> Framing:
    """How the answer's end is told to the client.

    Raises:
        ResponseError: it switches to a protocol that was not asked for.
    """
    if response.status == 101:
        if not request.upgrade or response.upgrade.lower() != request.upgrade:
            raise ResponseError("it switches to a protocol that was not asked for (RFC 9110 §15.2.2)")
        return TUNNEL
    if request.method == b"HEAD" or response.status in _NO_BODY:
        return NONE
    if response.length is not None:
        return LENGTH
    return CHUNKED if request.version == "1.1" else CLOSE


def answer_head(request: RequestHead, response: ResponseHead, framing: Framing, more: bytes) -> bytes:
    """The bytes of the head that the client gets.

    Args:
        request: what was asked; whether the connection goes on.
        response: as understood.
        framing: how its end is told.
        more: header lines of gtm's own.
    """
    said = b""
    if framing is CHUNKED:
        said = b"transfer-encoding: chunked\r\n"
    elif response.length is not None and response.status not in (101, 204):
        said = b"content-length: %d\r\n" % response.length
    if framing is TUNNEL:
        said += b"connection: upgrade\r\nupgrade: %b\r\n" % response.upgrade
    elif not request.keep_alive:
        said += b"connection: close\r\n"
    elif request.version == "1.0":
        said += b"connection: keep-alive\r\n"
    lines = b"".join(response.lines)
    return b"HTTP/1.1 %d %b\r\n%b%b%b\r\n" % (response.status, response.reason, lines, said, more)


# --- The chunks of an answer, as they usually come: told apart without the parser, and no more of them at once than others can wait for.
#
# Theory (RFC 9112 §7.1). Between two chunks the strict parser is always in one state, whatever chunks it has read. So chunks that are whole
# and plain need not be fed to it: before and after them it stands in that state. What is not plain is its own to read, from such a place on:
# the last chunk and trailers, extensions, sizes with leading zeros, and all that is none.
#
# Invariants:
#   1. A plain chunk is a size of one to seven hexadecimal digits, the first not 0, CRLF, as many bytes, CRLF. Every server reads it alike.
#   2. `whole` says yes only to plain chunks without anything before, between or behind them: they may go on as they are.
#   3. What `split` gives back as rest begins between two chunks.
#   4. One call takes `TURN` pieces at the most, however many came: a chunk of one byte takes as long as one of thousands.


TURN = 256
"""Pieces of a body, of a request or an answer, after which whatever else waits has its turn."""
PIECE = 8 * 1024
"""Bytes that a parser is fed at once where many small pieces or requests may be among them."""

_FRAMES = 5 * TURN
"""Bytes of the framing of plain chunks, of which each has five at least, that are no more than a turn has."""
_SIZE = re.compile(rb"([1-9A-Fa-f][0-9A-Fa-f]{0,6})\r\n")
_SIZE_BEGUN = re.compile(rb"[1-9A-Fa-f][0-9A-Fa-f]{0,6}\r?")
_match = _SIZE.match


class Chunks:
    """Where in the chunks of one answer a reader stands."""

    __slots__ = ("_begun", "_left", "broken", "later")

    def __init__(self) -> None:
        self.broken = False
        """A chunk did not end where its size says."""
        self.later = b""
        """What `split` has left for another turn, in which it is to be given to it."""
        self._left = 0
        """Bytes to come of the present chunk, with its CRLF."""
        self._begun = b""
        """A size line of which not all has come."""

    def whole(self, data: bytes) -> int:
        """How many bytes of a body these are, if they are whole plain chunks, `TURN` at most, the last of four bytes at least.

        Else it is -1, and nothing is read.
        """
        if self._left or self._begun:
            return -1
        at = size = 0
        end = len(data)
        while True:
            found = _match(data, at)
            if found is None:
                return -1
            length = int(found[1], 16)
            at = found.end() + length + 2
            if data[at - 2 : at] != b"\r\n":
                return -1
            size += length
            if at >= end:
                break
            if at - size >= _FRAMES:
                return -1
        return size if length > 3 and at == end else -1

    def split(self, data: bytes) -> tuple[list[bytes], bytes]:
        """Read what came: the pieces of the body in it, and what is the parser's to read (nothing: it goes on so). See `later`."""
        self.later = b""
        if self._begun:
            data, self._begun = self._begun + data, b""
        pieces: list[bytes] = []
        at, end = 0, len(data)
        while at < end:
            if len(pieces) >= TURN:
                self.later = data[at:]
                break
            left = self._left
            if left > 2:
                piece = data[at : at + left - 2]
                pieces.append(piece)
                at += len(piece)
                self._left = left - len(piece)
            elif left:
                if data[at] != b"\n\r"[left - 1]:
                    self.broken = True
                    break
                at += 1
                self._left = left - 1
            elif found := _match(data, at):
                at = found.end()
                self._left = int(found[1], 16) + 2
            elif _SIZE_BEGUN.fullmatch(data, at):
                self._begun = data[at:]
                break
            else:
                return pieces, data[at:]
        return pieces, b""


# --- Streams that say nothing but that they failed: their status was 200, for their head came before the engine had done anything. ---


class _Failure(msgspec.Struct):
    code: int | str | None = None


class _Event(msgspec.Struct):
    error: _Failure | str | None = None
    type: str | None = None
    code: int | str | None = None


_EVENT_DATA = re.compile(rb"(?:\A|[\r\n])data: ?(\{[^\r\n]*\})")
_event = msgspec.json.Decoder(_Event, strict=False)


def status_said(first: bytes) -> int | None:
    """The status that the first event of a stream stands for, where it is an error (`{"error": …}`, as vLLM, SGLang, TGI, OpenAI's and Anthropic's APIs have it).

    500, where it has no code that is a status of a failure; None: it is no error.
    """
    if b'error"' not in first or (found := _EVENT_DATA.search(first)) is None:
        return None
    try:
        event = _event.decode(shallow(found[1]))
    except ValueError:
        return None
    if not event.error and event.type != "error":
        return None
    code = event.error.code if isinstance(event.error, _Failure) and event.error.code else event.code
    said = int(code) if isinstance(code, int) or (isinstance(code, str) and code.isdecimal()) else 500
    return said if said in _FAILURES else 500


_FAILURES = frozenset((*range(400, 500), 500, 502, 503, 504))
