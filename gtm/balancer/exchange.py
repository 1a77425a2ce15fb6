"""One request on its way: judged, admitted, sent to a backend, answered, accounted for.

    head ─▶ gate (law) ─▶ [body, where the choice needs it] ─▶ admission ─▶ pick ─▶ connection ─▶ response ─▶ end
              │ 421, 451                                        │ 429, 503, 504   │ 503, 502

Laws:
  1. However it ends (answered, refused, cancelled, failed, timed out), it ends once: `_end` gives back what was taken, in every case,
     and whatever comes later finds it ended.
  2. What a client no longer waits for, no backend works on: a connection that is lost on one side is lost on the other at once.
  3. A request is sent again only if no backend can have begun it: nothing of it was sent; or it may be done twice by its method
     (RFC 9110 §9.2.2) or its Idempotency-Key, and nothing of an answer was heard.
  4. An answer that breaks off is never made to look whole.
"""

from __future__ import annotations

import asyncio
from enum import Enum, auto
from typing import TYPE_CHECKING

from gtm.balancer.facts import MAX_INSPECTED, Facts, read_facts, wants_body
from gtm.balancer.heads import RequestHead, ResponseHead, forwarded_head
from gtm.balancer.refusals import Refusal, refusal_response

if TYPE_CHECKING:
    from gtm.balancer.downstream import Downstream
    from gtm.balancer.proxy import Proxy, Sent
    from gtm.balancer.upstream import Upstream

_MAX_REPLAY = 64 * 1024
"""Bytes of a body that are kept for another try."""
_MAX_BUFFER = 256 * 1024
"""Bytes kept of a body that cannot be sent yet, beyond which the client waits (unless all of it is wanted)."""
_SAFE_TWICE = frozenset((b"GET", b"HEAD", b"OPTIONS", b"TRACE", b"PUT", b"DELETE"))
_EMPTY = Facts()


class Phase(Enum):
    """Where it is."""

    NEW = auto()
    READING = auto()
    """Its body is awaited before anything is decided."""
    WAITING = auto()
    """It is in the queue."""
    CONNECTING = auto()
    SENT = auto()
    ANSWERING = auto()
    """The head of the answer went to the client."""
    ENDED = auto()


class Exchange:
    """See above.

    Args:
        proxy: what all share.
        client: whose request it is.
        head: as understood.
    """

    __slots__ = (
        "_body_ended",
        "_chunked_out",
        "_connecting",
        "_keeps",
        "_out",
        "_pieces",
        "_sent",
        "_trailers",
        "_tried",
        "_upstream",
        "admission",
        "began",
        "client",
        "facts",
        "first_byte",
        "head",
        "phase",
        "proxy",
        "received",
        "returned",
        "status",
        "streams_events",
        "tunnelled",
        "verdict",
    )

    def __init__(self, proxy: Proxy, client: Downstream, head: RequestHead) -> None:
        self.proxy = proxy
        self.client = client
        self.head = head
        self.facts = _EMPTY
        self.phase = Phase.NEW
        self.began = proxy.now()
        self.first_byte = 0.0
        self.received = 0
        """Bytes of the request's body."""
        self.returned = 0
        """Bytes of the response's body."""
        self.status = 0
        self.streams_events = False
        """The answer is a stream of server-sent events."""
        self.tunnelled = False
        self.verdict: object = None
        """What the gate said of it."""
        self.admission: object = None
        """What admission holds for it."""
        self._sent: Sent | None = None
        """The backend that has it, and its place in that one's counts."""
        self._upstream: Upstream | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._tried: tuple[str, ...] = ()
        self._pieces: list[bytes] = []
        self._keeps = True
        """All of the body that came is in `_pieces`."""
        self._body_ended = not head.has_body
        self._chunked_out = False
        self._trailers: list[bytes] = []
        self._out: list[bytes] = []

    @property
    def answering(self) -> bool:
        """Whether something of the answer went to the client."""
        return self.phase is Phase.ANSWERING

    @property
    def complete(self) -> bool:
        """Whether all of the request is there."""
        return self._body_ended

    # --- the request ---

    def begin(self) -> None:
        """It is its turn."""
        if self.phase is not Phase.NEW:
            return
        answer = self.proxy.judge(self)
        if answer is not None:
            self._answer(answer)
        elif wants_body(self.head) and not self._body_ended:
            self.phase = Phase.READING
            self._continue()
        else:
            self._admit()

    def body(self, piece: bytes) -> None:
        """A piece of the request's body."""
        if self.phase is Phase.ENDED:
            return
        self.received += len(piece)
        upstream = self._upstream
        if upstream is not None:
            upstream.transport.write(b"%x\r\n%b\r\n" % (len(piece), piece) if self.head.chunked else piece)
            if self._keeps and self.received > _MAX_REPLAY:
                self._keeps = False
                self._pieces.clear()
        if self._keeps:
            self._pieces.append(piece)
        if self.phase is Phase.READING:
            if self.received > MAX_INSPECTED:
                self._admit()
        else:
            self.regulate()

    def body_ended(self) -> None:
        """The request is complete."""
        self._body_ended = True
        if self.phase is Phase.READING:
            self._admit()
        elif self._upstream is not None and self.head.chunked:
            self._upstream.transport.write(b"0\r\n\r\n")

    def _continue(self) -> None:
        """Ask for the body where the client waits for that (RFC 9110 §10.1.1): the choice needs it."""
        if self.head.expects and not self.received:
            self.head.expects = False
            self.client.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    # --- admission, pick, connection ---

    def _admit(self) -> None:
        whole = self._body_ended and self._keeps
        self.facts = read_facts(self.head, b"".join(self._pieces) if whole and wants_body(self.head) else b"")
        self.phase = Phase.WAITING
        refusal = self.proxy.admit(self)
        if refusal is not None:
            self.refuse(refusal)

    def admitted(self) -> None:
        """There is room for it."""
        if self.phase is Phase.WAITING:
            self._dispatch()

    def _dispatch(self) -> None:
        self.phase = Phase.CONNECTING
        sent = self.proxy.pick(self, self._tried)
        if isinstance(sent, Refusal):
            self.refuse(sent)
            return
        self._sent = sent
        upstream = sent.route.take()
        if upstream is not None:
            self._attach(upstream)
        else:
            self._connecting = self.proxy.loop.create_task(self._connect(sent))

    async def _connect(self, sent: Sent) -> None:
        try:
            async with asyncio.timeout(self.proxy.limits.connect_timeout):
                upstream = await sent.route.connect(self.proxy.loop, self.proxy.now)
        except (OSError, TimeoutError) as error:
            self._connecting = None
            if self._sent is sent:
                why = str(error) or f"no connection within {self.proxy.limits.connect_timeout:g} s"
                self._failed(f"cannot connect: {why}", safe=True)
            return
        self._connecting = None
        if self._sent is sent and self.phase is Phase.CONNECTING:
            self._attach(upstream)
        else:
            sent.route.put(upstream, self.proxy.now())

    def _attach(self, upstream: Upstream) -> None:
        """Send the request."""
        self._upstream = upstream
        self.phase = Phase.SENT
        head, route = self.head, upstream.route
        target = route.prefix + head.target if route.prefix and head.target != b"*" else head.target
        parts = [forwarded_head(head, target, head.host, self.proxy.added(self), expect=head.expects)]
        if head.chunked:
            parts += [b"%x\r\n%b\r\n" % (len(piece), piece) for piece in self._pieces]
            if self._body_ended:
                parts.append(b"0\r\n\r\n")
        else:
            parts += self._pieces
        upstream.start(self, b"".join(parts) if len(parts) > 1 else parts[0])
        if self.received > _MAX_REPLAY:
            self._keeps = False
            self._pieces.clear()
        self.regulate()

    # --- the response ---

    def interim(self, response: ResponseHead) -> None:
        """A 1xx response, which goes on as it is (RFC 9110 §15.2)."""
        if self.head.version == "1.1" and self.phase is Phase.SENT:
            if response.status == 100:
                if not self.head.expects:
                    return  # the client does not wait for it
                self.head.expects = False
            self._out.append(
                b"HTTP/1.1 %d %b\r\n%b\r\n" % (response.status, response.reason, b"".join(response.lines))
            )

    def response_began(self, response: ResponseHead) -> None:
        """The head of the answer."""
        self.first_byte = self.proxy.now()
        self.status = response.status
        self.streams_events = response.content_type.lower().startswith(b"text/event-stream")
        head = self.head
        lines = b"".join(response.lines)
        if response.status == 101:
            lines += b"connection: upgrade\r\nupgrade: %b\r\n" % (response.upgrade or head.upgrade)
            self.tunnelled = True
            if self._upstream is not None:
                self._upstream.tunnel()
        elif not (head.method == b"HEAD" or response.status in (204, 304)) and response.length is None:
            if head.version == "1.1":
                self._chunked_out = True
                lines += b"transfer-encoding: chunked\r\n"
            else:
                head.keep_alive = False
        if head.keep_alive and (self.proxy.draining or not self._body_ended):
            head.keep_alive = False
        if not head.keep_alive and not self.tunnelled:
            lines += b"connection: close\r\n"
        elif head.version == "1.0":
            lines += b"connection: keep-alive\r\n"
        self.phase = Phase.ANSWERING
        self._out.append(
            b"HTTP/1.1 %d %b\r\n%b%b\r\n" % (response.status, response.reason, lines, self.proxy.said(self))
        )

    def response_body(self, piece: bytes) -> None:
        """A piece of the answer."""
        self.returned += len(piece)
        if self._chunked_out:
            self._out.append(b"%x\r\n%b\r\n" % (len(piece), piece))
        else:
            self._out.append(piece)

    def trailer(self, name: bytes, value: bytes) -> None:
        """A trailer of the answer (RFC 9110 §6.5): it goes on where the client's framing has a place for it."""
        if self._chunked_out and sum(map(len, self._trailers)) < _MAX_REPLAY:
            self._trailers.append(b"%b: %b\r\n" % (name, value))

    def flush(self) -> None:
        """Send the client what there is for it."""
        out = self._out
        if out:
            self._out = []
            self.client.write(out[0] if len(out) == 1 else b"".join(out))

    def response_ended(self, *, reusable: bool) -> None:
        """The answer is complete."""
        upstream, sent = self._upstream, self._sent
        self._upstream = None
        if upstream is not None and sent is not None:
            if reusable and self._body_ended:
                sent.route.put(upstream, self.proxy.now())
            else:
                upstream.abort()
        if self._chunked_out:
            self._out.append(b"0\r\n%b\r\n" % b"".join(self._trailers))
        self.flush()
        keep_alive = self.head.keep_alive
        self._end("answered")
        self.client.finished(self, keep_alive=keep_alive)

    # --- failures ---

    def backend_lost(self, detail: str, *, answered: bool) -> None:
        """The backend's connection ended, or what came on it cannot be read.

        Args:
            detail: what happened.
            answered: the head of an answer was there.
        """
        upstream, self._upstream = self._upstream, None
        if self.tunnelled:
            self.flush()
            self._end("answered")
            self.client.end()
            return
        if not answered and self.phase is Phase.SENT:
            twice = self.head.method in _SAFE_TWICE or b"idempotency-key" in self.head.seen
            # A connection that had served before may have been closed while the request was on its way.
            self._failed(detail, safe=twice and upstream is not None and upstream.served > 0)
        else:
            self._broken(detail)

    def _failed(self, detail: str, *, safe: bool) -> None:
        """No answer from a backend. `safe`: another may be asked."""
        sent, self._sent = self._sent, None
        if sent is not None:
            self.proxy.failed(self, sent, detail)
            self._tried = (*self._tried, sent.route.url)
        if safe and self._keeps and self.proxy.may_retry(len(self._tried)):
            self._dispatch()
            return
        self.refuse(Refusal(502, "backend_failed", f"a backend did not answer: {detail}"))

    def _broken(self, detail: str) -> None:
        """The answer breaks off: the client is told, in a stream of events by one, and always by the connection's end."""
        sent, self._sent = self._sent, None
        if sent is not None:
            self.proxy.failed(self, sent, detail)
        self.flush()
        if self._chunked_out:
            event = self.proxy.last_event(self, detail)
            if event:
                self.client.write(b"%x\r\n%b\r\n" % (len(event), event))
        self._end("broken")
        self.client.end()  # without the last chunk, or short of its length: nobody takes it for whole

    def time_is_up(self, status: int, code: str, detail: str) -> None:
        """What was awaited from the backend did not come in time."""
        self._drop()
        if self.phase is Phase.ANSWERING:
            self._broken(detail)
            return
        sent, self._sent = self._sent, None
        if sent is not None:
            self.proxy.failed(self, sent, detail)
        self.refuse(Refusal(status, code, detail))

    def refuse(self, refusal: Refusal) -> None:
        """End it with a refusal."""
        if self.phase is Phase.ENDED:
            return
        self.proxy.stats.refused(refusal)
        closes = not self.head.keep_alive or not self._body_ended or self.proxy.draining
        self.status = refusal.status
        self._answer(
            refusal_response(refusal, closes=closes, head_only=self.head.method == b"HEAD"), closes=closes
        )

    def _answer(self, response: bytes, *, closes: bool | None = None) -> None:
        """End it with an answer of gtm's own."""
        self._drop()
        self._out.clear()
        self.client.write(response)
        self._end("refused")
        if closes is None:
            closes = not self.head.keep_alive or not self._body_ended
        self.client.finished(self, keep_alive=not closes)

    def cancel(self) -> None:
        """The client is gone."""
        if self.phase is Phase.ENDED:
            return
        self._drop()
        self._end("cancelled")

    def _drop(self) -> None:
        """Let go of the backend, at once."""
        if self._connecting is not None:
            self._connecting.cancel()
            self._connecting = None
        upstream, self._upstream = self._upstream, None
        if upstream is not None:
            upstream.abort()

    def _end(self, how: str) -> None:
        """Give back what was taken. Once."""
        if self.phase is Phase.ENDED:
            return
        self.phase = Phase.ENDED
        self._pieces.clear()
        sent, self._sent = self._sent, None
        self.proxy.ended(self, sent, how)

    # --- flow ---

    def regulate(self) -> None:
        """Neither side is read from faster than the other takes it."""
        upstream = self._upstream
        if upstream is not None and not upstream.transport.is_closing():
            if self.client.writable:
                if not upstream.transport.is_reading():
                    upstream.transport.resume_reading()
                    upstream.heard = self.proxy.now()
            elif upstream.transport.is_reading():
                upstream.transport.pause_reading()
        if upstream is not None:
            full = not upstream.writable
        else:
            full = (
                self.phase in (Phase.WAITING, Phase.CONNECTING)
                and self.received > _MAX_BUFFER
                and not self._body_ended
            )
        self.client.regulate(full=full)

    def carry(self, data: bytes) -> None:
        """Bytes of a tunnel for the client."""
        self.returned += len(data)
        self.client.write(data)

    def carry_up(self, data: bytes) -> None:
        """Bytes of a tunnel for the backend."""
        self.received += len(data)
        if self._upstream is not None:
            self._upstream.transport.write(data)

    def late(self, now: float) -> None:
        """Look whether the backend is late."""
        upstream = self._upstream
        if upstream is None or self.tunnelled or not upstream.transport.is_reading():
            return
        limits = self.proxy.limits
        silent = now - upstream.heard
        if self.phase is Phase.SENT and silent > limits.response_timeout and self._body_ended:
            self.time_is_up(
                504, "backend_timeout", f"the backend did not answer within {limits.response_timeout:g} s"
            )
        elif self.phase is Phase.ANSWERING and silent > limits.stall_timeout:
            self.time_is_up(
                504, "backend_stalled", f"the backend sent nothing for {limits.stall_timeout:g} s"
            )
