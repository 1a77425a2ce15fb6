"""One request on its way: judged, admitted, sent to a backend, answered, accounted for.

    head ─▶ gate (law) ─▶ [body, where the choice needs it] ─▶ admission ─▶ pick ─▶ connection ─▶ response ─▶ end
              │ 421, 451                                        │ 429, 503, 504   │ 503, 502

Laws:
  1. However it ends (answered, refused, cancelled, failed, timed out), it ends once: `_end` gives back what was taken, in every case,
     and whatever comes later finds it ended.
  2. What a client no longer waits for, no backend works on: a connection that is lost on one side is lost on the other at once.
  3. A request is sent again only if no backend can have begun it, or it may be done twice (`gtm.balancer.plane.asking_again`); a server that says
     that it is full has not begun it (`gtm.balancer.plane.exchange_full`).
  4. An answer that breaks off is never made to look whole.
  5. Neither side waits for the other for ever: whoever is awaited, to send or to take, has a time; or, a backend, checks that pass (`gtm.balancer.plane.lateness`).
  6. Nothing of a request goes to a backend under a law that is over (laws of `gtm.balancer.decide.gate`). What was sent whole is answered.

Trailers go on (RFC 9110 §6.5), but for those that would change what was said before (`gtm.balancer.wire.trailers`).
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from gtm.adapters.fullness import STATUSES
from gtm.balancer.plane.asking_again import Reached, may_ask_another
from gtm.balancer.plane.exchange_body import FIRST, ExchangeBody
from gtm.balancer.plane.exchange_full import ExchangeFull
from gtm.balancer.plane.exchange_state import (
    ANSWERING,
    CONNECTING,
    ENDED,
    MAX_REPLAY,
    NEW,
    READING,
    SENT,
    WAITING,
)
from gtm.balancer.wire.bodies import BodyError, kind_of
from gtm.balancer.wire.endpoints import BodyKind
from gtm.balancer.wire.facts import MAX_INSPECTED, read_facts, with_model
from gtm.balancer.wire.heads import HeadError, forwarded_head
from gtm.balancer.wire.refusals import Refusal
from gtm.balancer.wire.responses import CLOSE, TUNNEL, Framing, ResponseError, ResponseHead, framing_of
from gtm.balancer.wire.states import NOT_THERE, IdFinder
from gtm.balancer.wire.targets import target_of
from gtm.balancer.wire.trailers import MAX_TRAILER_BYTES, MAX_TRAILERS, announcement, goes_on, kept_back
from gtm.core.balance.health import Failure
from gtm.transport import no_room

if TYPE_CHECKING:
    from gtm.balancer.plane.backend.upstream import Upstream
    from gtm.balancer.plane.contracts import Sent

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_NO_ROOM = Refusal(
    503, "no_room", "this balancer has no room for a connection to a backend: try again", retry_after=1.0
)
_UNKNOWN = BodyKind.UNKNOWN


class Exchange(ExchangeBody, ExchangeFull):
    """A request on its way: what it is about is in `ExchangeState`, how its body is read in `ExchangeBody`, what a full server does in `ExchangeFull`, how it ends in `ExchangeEnd`."""

    __slots__ = ()

    # --- the request ---

    def begin(self) -> None:
        """It is its turn."""
        if self.phase is not NEW:
            return
        answer = self.proxy.judge(self)
        if answer is not None:
            if isinstance(answer, Refusal):
                self.refuse(answer)
            else:
                self._say(answer)
            return
        head, rules = self.head, self.proxy.body_rules
        self.target = target_of(head.method, head.target)
        try:
            self._kind = kind_of(head, self.target, rules, self.proxy.most_read)
        except BodyError as error:
            self.refuse(error.refusal)
            return
        if self._body_ended:
            self._read()
            return
        self._until = FIRST
        self.phase = READING
        self._continue()
        if self.received:
            self._reading(self.received)

    def body(self, piece: bytes) -> None:
        """A piece of the request's body."""
        if self.phase is ENDED:
            return
        self.received += len(piece)
        if self._scan is not None and not self._scanned(piece):
            return
        upstream = self.upstream
        if upstream is not None:
            upstream.transport.write(b"%x\r\n%b\r\n" % (len(piece), piece) if self.head.chunked else piece)
            self._forget_body()
        if self._keeps:
            if self._pieces:
                self._keep(piece)
            else:
                self._pieces.append(piece)
        if self.phase is not READING:
            self.regulate()
        elif (
            self.received > self._until or self._kind is _UNKNOWN
        ):  # most bodies are one piece, and nothing of this
            self._reading(len(piece))

    def trailer(self, name: bytes, value: bytes) -> None:
        """A field behind the request's body.

        Raises:
            HeadError: there are too many.
        """
        if self.phase is ENDED:
            return
        if self._withheld is None:
            self._withheld = kept_back(self.head)
        if not goes_on(name, self._withheld):
            return
        self._trailers.append(b"%b: %b\r\n" % (name, value))
        if len(self._trailers) > MAX_TRAILERS or sum(map(len, self._trailers)) > MAX_TRAILER_BYTES:
            detail = f"more than {MAX_TRAILERS} fields or {MAX_TRAILER_BYTES} bytes stand behind the body"
            raise HeadError(431, "trailers_too_large", detail)

    def body_ended(self) -> None:
        """The request is complete."""
        self._body_ended = True
        upstream = self.upstream
        if self.phase is READING:
            self._read()
        elif upstream is not None:
            if self._scan is not None and not self._ends_well():
                return
            upstream.heard = self.proxy.now()
            if self.head.chunked:
                upstream.transport.write(self._last_chunk())

    def _last_chunk(self) -> bytes:
        return b"0\r\n%b\r\n" % b"".join(self._trailers)

    def _continue(self) -> None:
        """Ask for the body where the client waits for that (RFC 9110 §10.1.1): the choice needs it."""
        if self.head.expects and not self.received:
            self.head = replace(self.head, expects=False)
            self.client.write(_CONTINUE)

    def probe(self) -> None:
        """Send the client what it may always be sent before an answer (RFC 9110 §15.2): if it is gone, its side resets the connection.

        Not while its body is awaited: then the queue's time, or the backend's to take it, is a bound; and some clients count
        interim responses.
        """
        if self._body_ended and self.phase in (WAITING, CONNECTING, SENT) and self.head.version == "1.1":
            self.client.write(_CONTINUE)

    def renew(self) -> None:
        """End it, if the law does not let more of it go where it goes."""
        refusal = self.proxy.renew(self)
        if refusal is not None:
            self.cut_short(refusal)

    # --- admission, pick, connection ---

    def _admit(self) -> None:
        self.phase = WAITING
        self._offered = True
        refusal = self.proxy.admit(self)
        if self.phase is WAITING and self._push(refusal):
            return
        if refusal is not None:
            self.refuse(refusal)
        elif self.phase is WAITING:
            self._queued = self.proxy.now()
            self.regulate()
            if self.received:
                self.client.settle()

    def use_model(self, model: str) -> bool:
        """Ask for another model instead; whether the body is there, and one in which that can be said."""
        in_body = self._kind in (BodyKind.JSON, _UNKNOWN) and self.facts.model is not None
        if not in_body or not self._body_ended or not self._keeps:
            return False
        body = with_model(b"".join(self._pieces), model)
        if body is None:
            return False
        self._pieces = [body]
        self._trailers.clear()  # digests of another body
        self.fallback = model
        self.facts = read_facts(self.head, body, self.proxy.picker.cut, self.proxy.media)
        self.asked = None
        if self.head.length is not None:
            self.head = replace(self.head, length=len(body))
        return True

    def _push(self, refusal: Refusal | None) -> bool:
        """Hand it to a peer region, if one takes it. Once: what came back stays."""
        if self._tried or self.keeps_home:
            return False
        sent = self.proxy.push(self, refusal)
        if sent is None:
            return False
        if isinstance(sent, Refusal):  # what of its body has not come yet ends with the connection
            self.refuse(sent)
            return True
        self.phase = CONNECTING
        self._send(sent)
        return True

    def admitted(self) -> None:
        """There is room for it."""
        if self.phase is not WAITING:
            return
        self.phase = CONNECTING
        if self._queued:
            self.waited = self.proxy.now() - self._queued
        if self.proxy.ending:
            # Another's end made room. Were it refused now, its end would make room again: without an end to the stack.
            self.proxy.loop.call_soon(self._dispatch)
        else:
            self._dispatch()

    def _dispatch(self) -> None:
        if self.phase is not CONNECTING:
            return
        sent = self.proxy.pick(self, self._tried)
        if isinstance(sent, Refusal):
            if not self._push(sent):
                self.refuse(sent)
            return
        self._send(sent)

    def _send(self, sent: Sent) -> None:
        self._sent = sent
        upstream = sent.route.take(self.proxy.now())
        if upstream is not None:
            self._attach(upstream)
        else:
            self._connecting = self.proxy.loop.create_task(self._connect(sent))
            if self.received:
                self.client.settle()

    async def _connect(self, sent: Sent) -> None:
        proxy = self.proxy
        try:
            async with asyncio.timeout(self.times.connect):
                upstream = await sent.route.connect(proxy.loop, proxy.now)
        except Exception as error:  # noqa: BLE001 - whatever it is, the request must end
            self._connecting = None
            if self._sent is sent and no_room(error):
                self.proxy.without_room()
                self.refuse(_NO_ROOM)
            elif self._sent is sent:
                late = isinstance(error, TimeoutError) and not str(error)
                why = f"not within {self.times.connect:g} s" if late else str(error)
                self.failure = Failure.CONNECT
                nobody = isinstance(error, ConnectionRefusedError)
                self._failed(f"cannot connect: {why}", Reached.UNHEARD if nobody else Reached.UNSENT)
            return
        self._connecting = None
        if self._sent is not sent or self.phase is not CONNECTING:
            sent.route.put(upstream, proxy.now())
        elif upstream.usable:
            self._attach(upstream)
        else:  # it has ended since
            self.failure = Failure.CONNECT
            self._failed("the backend closed the connection as soon as it had taken it", Reached.UNSENT)

    def _attach(self, upstream: Upstream) -> None:
        """Send the request."""
        push = None if self._sent is None else self._sent.push
        more = self.proxy.added(self, push)
        if isinstance(more, Refusal):
            upstream.route.put(upstream, self.proxy.now())
            self.refuse(more)
            return
        self.upstream = upstream
        self._plain = None
        self._begun = True
        self._heard = False
        self.phase = SENT
        head, route = self.head, upstream.route
        if self.target.makes_state and self.facts.stored:
            self.finds = IdFinder()
        host = route.host_field or head.host
        if push is not None:
            more, host = more + push.lines, push.host
        if head.chunked and not self.fallback:
            more += announcement(head)
        target = route.prefix + head.target if route.prefix and head.target != b"*" else head.target
        parts: list[bytes | bytearray] = [forwarded_head(head, target, host, more, expect=head.expects)]
        if head.chunked:
            for piece in self._pieces:
                parts += (b"%x\r\n" % len(piece), piece, b"\r\n")
            if self._body_ended:
                parts.append(self._last_chunk())
        else:
            parts += self._pieces
        upstream.start(self, b"".join(parts))
        self._forget_body()
        client = self.client
        if client.held:
            client.settle()
        if client.paused or not client.writable or not self._body_ended:
            self.regulate()

    def _forget_body(self) -> None:
        """Keep no more of the body than for another try: all that is read before a choice, while a peer may give it back."""
        if self.received <= MAX_REPLAY or not self._keeps:
            return
        pushed = self._sent is not None and self._sent.push is not None
        if not pushed or self.received > MAX_INSPECTED:
            self.forget()

    def forget(self) -> None:
        """Keep nothing of the body: it is sent once."""
        self._keeps = False
        self._pieces.clear()

    # --- the response ---

    def interim(self, response: ResponseHead) -> None:
        """A 1xx response, which goes on as it is (RFC 9110 §15.2)."""
        self._heard = True
        if self.head.version == "1.1" and self.phase is SENT:
            if response.status == 100:
                if not self.head.expects:
                    return  # the client does not wait for it
                self.head = replace(self.head, expects=False)
            self.answer.interim(response)

    def response_began(self, response: ResponseHead) -> None:
        """The head of the answer.

        Raises:
            ResponseError: it is none to this request.
        """
        framing = framing_of(self.head, response)
        sent = self._sent
        if sent is not None and sent.push is not None:
            taken = self.proxy.taken(sent, response.seen.get(b"gtm-push"))
            if not taken and self._keeps:
                self._untaken = True
                raise ResponseError("the peer does not take it")
        if self.meter is not None and b"content-encoding" in response.seen:
            self.meter.encoded = True
        if response.load is not None and sent is not None:
            self.proxy.loaded(sent, response.load)
        doubtful = response.status in STATUSES or (self.seeks and response.status in NOT_THERE)
        if doubtful and self._kept_back(response, framing):
            return
        self._answers(response, framing)

    def _answers(self, response: ResponseHead, framing: Framing) -> None:
        """The client gets this answer."""
        head, sent = self.head, self._sent
        self.first_byte = self.proxy.now()
        self.status = response.status
        if framing is CLOSE or self.closes:
            head = self.head = replace(head, keep_alive=False)
        self.phase = ANSWERING
        self._keeps = False
        self._pieces.clear()
        more = self.proxy.said(self, sent)
        if sent is not None and sent.push is not None and b"x-gtm-model" in response.seen:
            more += b"x-gtm-model: %b\r\n" % response.seen[b"x-gtm-model"]
        self.answer.begin(head, response, framing, more)
        upstream = self.upstream
        if framing is TUNNEL and upstream is not None:
            self.tunnelled = True
            upstream.tunnel()
            early = self.client.tunnel()
            if early:
                self.carry_up(early)

    def response_ended(self, *, reusable: bool) -> None:
        """The answer is complete."""
        upstream, sent = self.upstream, self._sent
        self.upstream = None
        if upstream is not None and sent is not None:
            if reusable and self._body_ended:
                sent.route.put(upstream, self.proxy.now())
            else:
                upstream.abort()
        if self._doubted is not None and self._asks_another():
            return
        self.answer.end()
        self.flush()
        keep_alive = self.head.keep_alive
        self._end("answered")
        self.client.finished(self, keep_alive=keep_alive)

    # --- failures ---

    def backend_lost(self, detail: str, failure: Failure = Failure.RESET) -> None:
        """The backend's connection ended, or what came on it cannot be read."""
        self.upstream = None
        self.failure = failure
        if self.tunnelled:
            self.flush()
            self._end("answered")
            self.client.end()
        elif self.phase is SENT:
            self._failed(detail, Reached.DECLINED if self._untaken else Reached.BEGUN)
        elif self.phase is ANSWERING:
            self._broken(detail)

    def _failed(self, detail: str, reached: Reached) -> None:
        """No answer from a backend, or a peer: then it comes home, as if it had not been pushed."""
        sent, self._sent = self._sent, None
        self._untaken = False
        if sent is not None:
            self.proxy.failed(self, sent, detail)
            self._tried = (*self._tried, sent.route.url)
        self.answer.take()
        home = sent is not None and sent.push is not None
        if not may_ask_another(self, reached, home=home):
            self.refuse(Refusal(502, "backend_failed", f"a backend did not answer: {detail}"))
        elif home:
            self.lost = None
            self._admit()
        else:
            self.phase = CONNECTING
            self._dispatch()

    def _end(self, how: str) -> None:
        """Give back what was taken. Once."""
        if self.phase is ENDED:
            return
        begun = self.phase is not NEW
        if self._queued and self.phase is WAITING:
            self.waited = self.proxy.now() - self._queued
        self.phase = ENDED
        self._pieces.clear()
        self._plain = self._scan = None
        if self.client.held:
            self.client.settle()
        sent, self._sent = self._sent, None
        if begun or how != "cancelled":  # nothing was done for one whose turn never came
            self.proxy.ended(self, sent, how, offered=self._offered)
