"""What of an answer waits to be sent to the client, in the framing that the client understands."""

from __future__ import annotations

from gtm.balancer.wire.heads import MAX_HEADERS, RequestHead, is_trailer
from gtm.balancer.wire.responses import (
    CHUNKED,
    LENGTH,
    NONE,
    Framing,
    ResponseError,
    ResponseHead,
    answer_head,
)

_EVENT_ENDS = (b"\n\n", b"\r\n\r\n", b"\r\r")
"""What an event ends with (WHATWG HTML §9.2.5)."""


class Answer:
    """One answer, from its head to its end; pieces are written together by who takes them."""

    __slots__ = ("_out", "_trailers", "events", "framing", "pieces", "size", "tail")

    def __init__(self) -> None:
        self.framing: Framing = NONE
        self.events = False
        """It is a stream of server-sent events."""
        self.size = 0
        """Bytes of its body."""
        self.pieces = 0
        """Pieces that it came in: of a stream of events about one each, as servers send them."""
        self._out: list[bytes] = []
        self.tail = b""
        """How a stream of events ends so far: four bytes at least, if there are so many."""
        self._trailers: list[bytes] | None = None

    def interim(self, response: ResponseHead) -> None:
        """A response before the answer (RFC 9110 §15.2)."""
        lines = b"".join(response.lines)
        self._out.append(b"HTTP/1.1 %d %b\r\n%b\r\n" % (response.status, response.reason, lines))

    def begin(self, request: RequestHead, response: ResponseHead, framing: Framing, more: bytes) -> None:
        """Write the head of the answer, as `answer_head` makes it."""
        self.framing = framing
        self.events = response.is_events
        self._out.append(answer_head(request, response, framing, more))

    def body(self, piece: bytes) -> None:
        """A piece of its body."""
        self.size += len(piece)
        self.pieces += 1
        if self.framing is CHUNKED:
            self._out.append(b"%x\r\n%b\r\n" % (len(piece), piece))
            if self.events:
                # The piece itself where it is a usual one: nothing is copied.
                self.tail = piece if 3 < len(piece) < 1024 else self.tail[-4:] + piece[-4:]
        elif self.framing is not NONE:
            self._out.append(piece)

    def trailer(self, name: bytes, value: bytes) -> None:
        """A field behind its body (RFC 9110 §6.5): it goes on where the framing has a place for it.

        Raises:
            ResponseError: there are more than go on. A client that got some of them would take them for all.
        """
        if self.framing is not CHUNKED or not is_trailer(name):
            return
        if self._trailers is None:
            self._trailers = []
        if len(self._trailers) >= MAX_HEADERS:
            raise ResponseError(f"more than {MAX_HEADERS} fields stand behind its body")
        self._trailers.append(b"%b: %b\r\n" % (name, value))

    def last_event(self, event: bytes) -> None:
        """An event of gtm's own behind those that came: not in the middle of one, of which it would become a part."""
        if self.framing is CHUNKED and (not self.size or self.tail.endswith(_EVENT_ENDS)):
            self._out.append(b"%x\r\n%b\r\n" % (len(event), event))

    def end(self) -> None:
        """The backend has sent all of the answer: write what ends it."""
        if self.framing is CHUNKED:
            self._out.append(b"0\r\n%b\r\n" % b"".join(self._trailers or ()))

    def take(self) -> bytes:
        """Take out the bytes that are to be sent to the client now."""
        out = self._out
        if not out:
            return b""
        self._out = []
        return out[0] if len(out) == 1 else b"".join(out)


class KeptAnswer(Answer):
    """The body of one that is kept back until it is known whether it goes to the client: of that, nothing is there to send."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__()
        self.framing = LENGTH

    @property
    def body_so_far(self) -> bytes:
        """Those bytes of the body that have come."""
        return b"".join(self._out)

    def take(self) -> bytes:
        """Nothing."""
        return b""
