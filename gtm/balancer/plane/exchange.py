"""One request on its way: judged, admitted, sent to a backend, answered, accounted for.

    head ─▶ gate (law) ─▶ [body, where the choice needs it] ─▶ admission ─▶ pick ─▶ connection ─▶ response ─▶ end
              │ 421, 451                                        │ 429, 503, 504   │ 503, 502

It is one machine. Whatever happens to it is a method, and what that does depends on its phase (`TRANSITIONS`):

    phase        awaits                               begins by              ends by
    NEW          its turn on its connection           its head               `begin`
    READING      so much of its body as decides       `begin`                `_read`: enough of it came
    WAITING      a slot, in the queue                 `_admit`               `admitted`, or a peer region takes it (`_push`)
    CONNECTING   a connection to who was picked       `_send`                `_attach`
    SENT         the head of the answer               `_attach`              `_answers`, or another server is asked (law 3)
    ANSWERING    the end of the answer                `_answers`             `response_ended`
    ENDED        nothing                              `_end`, from anywhere

How far its body is awaited before anything is decided:

    come so far        nothing goes by what it says     choosing goes by it                      limits go by it
    64 KiB, or all     decided                          awaited                                  awaited
    1 MiB              -                                decided, as soon as its model is known   awaited
    `read_mib`         -                                decided, or refused without a model      refused

Where there are several servers, choosing goes by what `/v1/responses` and `/v1/batches` go on with (`previous_response_id`, …): up to 1 MiB they are awaited, and up to `read_mib` as long as they name nothing.

Where files say which models servers have, and limits, what comes after the decision is looked at before it goes on: a body that proves to have two meanings never
reaches its server whole (laws of `gtm.balancer.wire.bodies`).

Laws:
  1. However it ends (answered, refused, cancelled, failed, timed out), it ends once: `_end` gives back what was taken, in every case,
     and whatever comes later finds it ended.
  2. What a client no longer waits for, no backend works on: a connection that is lost on one side is lost on the other at once.
  3. A request is sent again only if no backend can have begun it, or it may be done twice (`may_ask_another`). One that has had no byte of its answer
     when its server is judged down is sent again if that is not back soon (`proxy.MAY_RETURN`), or refused (`bereft`): none stays there. A server that says that it is full
     (`gtm.adapters.fullness`) has not begun it, and none of its answer went to the client: a short answer that may say it is kept back until it is whole, and another
     server is asked, once. Where nobody else is asked that answer goes to the client as it is, with the server's own `Retry-After`.
     One that is late may be at a second server too, until either answers (`gtm.balancer.plane.hedging`).
  4. An answer that breaks off is never made to look whole.
  5. Neither side waits for the other for ever: whoever is awaited, to send or to take, has a time; or, a backend, checks that pass (`gtm.balancer.plane.timeouts`).
     Neither is read from faster than the other takes it.
  6. Nothing of a request goes to a backend under a law that is over (laws of `gtm.balancer.decide.gate`). What was sent whole is answered.

Trailers go on (RFC 9110 §6.5), but for those that would change what was said before (`gtm.balancer.wire.heads`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import TYPE_CHECKING

from gtm.adapters.fullness import MOST_BYTES, STATUSES, says_dead, says_full
from gtm.balancer.plane.contracts import SentRequest
from gtm.balancer.wire.bodies import (
    READ,
    BodyError,
    BodyScan,
    begins_object,
    kind_of,
    may_be_object,
    plain_body,
    read_loosely,
    read_strictly,
    too_large,
    unnamed,
)
from gtm.balancer.wire.endpoints import (
    NOT_THERE,
    NOWHERE,
    BodyKind,
    IdFinder,
    RequestTarget,
    says_absent,
    target_of,
)
from gtm.balancer.wire.estimate import unread_tokens
from gtm.balancer.wire.facts import MAX_INSPECTED, MAX_NAME, RequestFacts, read_facts, with_model
from gtm.balancer.wire.heads import (
    MAX_HEADERS,
    MAX_TRAILER_BYTES,
    MAX_TRAILERS,
    HeadError,
    RequestHead,
    accepted,
    announcement,
    forwarded_head,
    goes_on,
    is_trailer,
    kept_back,
)
from gtm.balancer.wire.refusals import Refusal, last_event, refusal_response
from gtm.balancer.wire.responses import (
    CHUNKED,
    CLOSE,
    LENGTH,
    NONE,
    TUNNEL,
    Framing,
    ResponseError,
    ResponseHead,
    answer_head,
    framing_of,
    status_said,
)
from gtm.balancer.wire.usage import Meter
from gtm.core.balance.choosing.chooser import BackendChoice
from gtm.core.balance.health.values import SERVER_FAILURES, Failure
from gtm.core.balance.work import AskedWork
from gtm.core.decision.view import Window
from gtm.core.handoff.verdict import Flaw
from gtm.transport import no_room

if TYPE_CHECKING:
    from gtm.balancer.plane.backend.backends import Route
    from gtm.balancer.plane.backend.upstream import Upstream
    from gtm.balancer.plane.client.downstream import Downstream
    from gtm.balancer.plane.hedging import Hedge
    from gtm.balancer.plane.proxy import Proxy
    from gtm.balancer.plane.timeouts import LeastPace, Timeouts
    from gtm.balancer.plane.tracing import Span


# --- Whether a request may be asked of another server, after one has not answered it (law 3). ---
#
# Said here once:
#
# | the last server | may be asked of another |
# |---|---|
# | listened to nobody (`UNHEARD`: connection refused), took no connection (`UNSENT`), or said that it does not take it (`DECLINED`) | yes: it cannot have begun it |
# | had it, and nothing of an answer came (`BEGUN`) | once, if it may be done twice: by its method (RFC 9110 §9.2.2) or an `Idempotency-Key`; where the proxy `repeats`, also what only runs a model |
# | the same, and is judged down | likewise, if it is not back soon (`proxy.MAY_RETURN`) |
# | is a balancer of gtm's, and says that its server broke off (502); or says that its engine has died (500 of vLLM's) | likewise, where the proxy `repeats` |
# | began to answer | never |
#
# Once for all of it, whoever broke off: what breaks the server that it comes to breaks two, and no third one.
# And in each case only while all of its body that came is kept, while it is of no state that one server has (another would say 404, which is a lie), and within the tries
# of one request and the budget of all; a connection that was refused takes nothing of the budget, for it cost no server anything. Nor does what a server had that is
# judged down: that comes once, not as often as something fails, and goes to free slots alone, or into the queue.


class Reached(Enum):
    """How far a request has come at the server that has not answered it."""

    UNHEARD = auto()
    """Nobody listened."""
    UNSENT = auto()
    """Nothing of it was sent."""
    DECLINED = auto()
    """It said that it does not take it."""
    BEGUN = auto()
    """It has it, and may have begun it."""


_BROKE_OFF, _BACKEND_FAILED = frozenset((500, 502)), b'"code":"backend_failed"'
"""What a region's balancer says where its server broke off; what others mean by 502, nobody knows."""
_TWICE = frozenset((b"GET", b"HEAD", b"OPTIONS", b"PUT", b"DELETE"))


def _broke_off(status: int, body: bytes) -> bool:
    """Whether an answer says that what should have answered died: a balancer's server, or a server's engine."""
    return (status == 502 and _BACKEND_FAILED in body) or says_dead(status, body)


def may_ask_another(
    exchange: Exchange, reached: Reached, *, home: bool = False, judged: bool = False
) -> bool:
    """Whether another server may be asked; if so, it is counted.

    Args:
        exchange: a request that no server has answered, with those that were tried.
        reached: how far it has come at the last of them.
        home: that was a peer region, and the region's own servers are the other: it takes nothing of the budget, and any state is as it was.
        judged: the last server is judged down: it takes nothing of the budget.
    """
    if why_not_another(exchange, reached, home=home):
        return False
    if not home:
        free = judged or reached is Reached.UNHEARD
        if not exchange.proxy.may_retry(len(exchange.tried), free=free):
            return False
    exchange.repeated = exchange.repeated or reached is Reached.BEGUN
    return True


def why_not_another(exchange: Exchange, reached: Reached, *, home: bool = False) -> str:
    """Why no other server may be asked, whatever the budget; empty: one may."""
    if exchange.answering:
        return "its answer had begun"
    if not exchange.keeps_body:
        return f"it is longer than what is kept for another try ({exchange.proxy.replay} bytes)"
    if reached is Reached.BEGUN:
        if exchange.repeated:
            return "it was asked of another once already"
        if exchange.heard:
            return "its answer had begun"
        if not may_be_done_twice(exchange):
            return "it may not be done twice; send an `Idempotency-Key` where it may"
    if not home and exchange.goes_on_with is not None:
        return "it goes on with what that server has"
    return ""


def may_be_done_twice(exchange: Exchange) -> bool:
    """Whether another server may do what one has perhaps begun."""
    head = exchange.head
    if head.method in _TWICE or b"idempotency-key" in head.seen:
        return True
    return exchange.proxy.repeats and exchange.target.runs_model and not exchange.makes_state


# --- One request on its way: judged, admitted, sent to a backend, answered, accounted for. ---


# --- What of an answer waits to be sent to the client, in the framing that the client understands. ---


_EVENT_ENDS = (b"\n\n", b"\r\n\r\n", b"\r\r")
"""What an event ends with (WHATWG HTML §9.2.5)."""


class ClientAnswer:
    """One answer, from its head to its end; pieces are written together by who takes them."""

    __slots__ = ("_out", "_trailers", "events", "first", "framing", "pieces", "size", "tail")

    def __init__(self) -> None:
        self.framing: Framing = NONE
        self.events = False
        """It is a stream of server-sent events."""
        self.size = 0
        """Bytes of its body."""
        self.pieces = 0
        """Pieces that it came in: of a stream of events about one each, as servers send them."""
        self.first = b""
        """The first of them, with its framing or without."""
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


class KeptAnswer(ClientAnswer):
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


# --- One request on its way: judged, admitted, sent to a backend, answered, accounted for. ---


_EMPTY = RequestFacts()
_OBJECTS = (BodyKind.JSON, BodyKind.UNKNOWN)
_RESET = Failure.RESET
MAX_REPLAY = 64 * 1024
"""Bytes of a body that are kept for another try."""
FIRST = 64 * 1024
"""Bytes of a body that is read by nobody here, and that must have come before it takes a slot: of most bodies, all."""
_SMALL, _TOGETHER = 4096, 64 * 1024
"""Bytes of a piece that is kept together with the one before, and of what is kept together."""
_UNKNOWN, _NONE = BodyKind.UNKNOWN, BodyKind.NONE
_MAX_BUFFER = 256 * 1024
"""Bytes kept of a body while its backend is connected to, beyond which the client waits."""
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_WENT_DOWN = "the backend is judged down, and nothing of an answer had come"
_NO_ROOM = Refusal(
    503, "no_room", "this balancer has no room for a connection to a backend: try again", retry_after=1.0
)


class ExchangePhase(Enum):
    """Where a request is on its way: the table above says what it awaits there."""

    NEW = auto()
    READING = auto()
    """Its body is awaited before anything is decided."""
    WAITING = auto()
    """The request is in the queue."""
    CONNECTING = auto()
    SENT = auto()
    ANSWERING = auto()
    """The head of the answer went to the client."""
    ENDED = auto()


NEW, READING, WAITING, CONNECTING, SENT, ANSWERING, ENDED = ExchangePhase
"""By names of their own: what is looked up in an Enum takes ten times as long."""
TRANSITIONS = {
    NEW: {READING, WAITING, ENDED},
    READING: {WAITING, ENDED},
    WAITING: {CONNECTING, ENDED},
    CONNECTING: {SENT, CONNECTING, WAITING, ENDED},
    SENT: {ANSWERING, CONNECTING, WAITING, ENDED},
    ANSWERING: {ENDED},
    ENDED: set[ExchangePhase](),
}
"""What follows a phase. From one that is at a backend or on its way there it goes to another server (CONNECTING), or comes home from a peer region (WAITING)."""


@dataclass(slots=True, eq=False, repr=False, init=False)
class Exchange:
    """A request on its way. What is not among the arguments begins as nothing, or none.

    Args:
        proxy: what all share.
        client: whose connection it came on.
        head: of the request.
    """

    proxy: Proxy
    client: Downstream
    head: RequestHead
    facts: RequestFacts
    target: RequestTarget
    """What its method and target say, from when it begins."""
    asked: tuple[AskedWork, float] | None
    """What of the facts tells its cost, and the seconds of work that it was expected to be when it came; None: nobody asked."""
    span: Span | None
    """Of its trace, if it is recorded."""
    chosen: BackendChoice | None
    """The backend that was chosen for the request, and by what."""
    fallback: str
    """The model that it is served by instead of the one that it asks for; empty: by that."""
    failure: Failure
    """How the last backend that failed it did."""
    phase: ExchangePhase
    began: float
    first_byte: float
    received: int
    """Bytes of the request's body."""
    status: int
    tunnelled: bool
    """Both sides have left HTTP."""
    verdict: object
    """What the gate said of it."""
    shown: tuple[bytes | Flaw, Window] | None
    """The handoff that it came with, or what was wrong with that, and when."""
    admission: object
    """Admission keeps this of the request between its arrival and its end."""
    meter: Meter | None
    """Looks for the tokens that it uses; None: nobody asks."""
    sent: SentRequest | None
    """Who has it, a backend or a peer, and its place in that one's counts; None: nobody has."""
    upstream: Upstream | None
    lost: SentRequest | None
    """The last that had it, and failed it."""
    refusal: Refusal | None
    """Why it was refused."""
    _connecting: asyncio.Task[None] | None
    _times: Timeouts | None
    """Once somebody has asked."""
    tried: tuple[str, ...]
    _pieces: list[bytes | bytearray]
    _kind: BodyKind
    """Says where a request to its path names its model."""
    _scan: BodyScan | None
    """Looks for its model in what comes of its body, which is not awaited whole."""
    _plain: bytes | None
    """Its body without its Content-Encoding, until it is sent; None: it has none, or was not read."""
    _until: int
    """Bytes of its body that are awaited before anything is decided; 0: all of it was there."""
    pace: LeastPace | None
    """How its body comes; None: it came at once."""
    taking: LeastPace | None
    """How its client takes the answer; None: it has always been as fast as its backend."""
    keeps_body: bool
    """All of its body that came is kept, so that it can be sent again."""
    complete: bool
    """All of the request is there."""
    _trailers: list[bytes]
    """Field lines that stand behind its body."""
    _withheld: frozenset[bytes] | None
    """Names that no trailer may have; None: there was none."""
    _queued: float
    """Since when it is in the queue."""
    waited: float
    """Seconds for which it was."""
    _offered: bool
    """Admission knows of it."""
    answer: ClientAnswer
    _untaken: bool
    """A peer has said that it does not take it."""
    _doubted: ResponseHead | None
    """The head of an answer that is kept back; None: none is."""
    full: bool
    """The client got an answer by which a backend said that it is full."""
    finds: IdFinder | None
    """Looks for the id of what it makes; None: it makes nothing that is kept."""
    seeks: bool
    """It goes on with something of which nobody knows which server has it: who says 404 has it not, and another is asked."""
    _moved: bool
    """Another server was asked since one was full."""
    repeated: bool
    """Another server was asked although one may have begun it."""
    begun: bool
    """It was sent to a backend."""
    heard: bool
    """Something of an answer came from the present server."""
    _failed_by: Refusal | None
    """What is said where no other server is there after one that has perhaps begun it."""
    unsaid: tuple[ResponseHead, Framing] | None
    """The head of a stream of events of which nothing else has come: the client gets it with its first byte, for another server may still be asked."""
    hedge: Hedge | None
    """Asks a second server, or has asked one, if the first is late (`gtm.balancer.plane.hedging`); None: nobody does."""

    # --- what is known of it ---

    def __init__(self, proxy: Proxy, client: Downstream, head: RequestHead) -> None:
        # By hand, and what has one value together: as a dataclass writes it, it takes nearly twice as long, for each request.
        self.proxy, self.client, self.head = proxy, client, head
        self.began = proxy.now()
        self.complete = not head.has_body
        self.phase, self.failure, self.fallback, self.tried = NEW, _RESET, "", ()
        self.facts, self.target, self.answer, self._kind = _EMPTY, NOWHERE, ClientAnswer(), _NONE
        self.asked = self.span = self.chosen = self.verdict = self.shown = self.admission = self.meter = None
        self.sent = self.upstream = self.lost = self.refusal = self.finds = self._connecting = self._times = (
            None
        )
        self.pace = self.taking = self._scan = self._plain = self._withheld = self._doubted = None
        self.unsaid = self._failed_by = self.hedge = None
        self.tunnelled = self.full = self.seeks = self.begun = self.heard = False
        self._offered = self._untaken = self._moved = self.repeated = False
        self.keeps_body = True
        self.received = self.status = self._until = 0
        self.first_byte = self.waited = self._queued = 0.0
        self._pieces, self._trailers = [], []

    @property
    def goes_on_with(self) -> str | None:
        """The id of what one server has and it goes on with; None: any server will do."""
        return self.facts.state or self.target.names

    @property
    def makes_state(self) -> bool:
        """Whether its server keeps what it makes, for later requests."""
        return self.target.makes_state and self.facts.stored

    @property
    def answering(self) -> bool:
        """Whether something of the answer went to the client."""
        return self.phase is ANSWERING

    @property
    def sending(self) -> bool:
        """Whether more of it goes to a backend: of its body, or through a tunnel."""
        return self.upstream is not None and (self.tunnelled or not self.complete)

    @property
    def held(self) -> int:
        """Bytes of its body that are kept, but for the few that a request at a backend may keep for another try."""
        if not self.keeps_body or self.phase is ENDED:
            return 0
        sent = self.phase is SENT or self.phase is ANSWERING
        more = 0 if self._plain is None else len(self._plain)
        return more if sent and self.received <= MAX_REPLAY else self.received + more

    @property
    def come(self) -> int:
        """Bytes of its body that have come, parsed or not."""
        return self.received if self.complete else self.client.come(self)

    @property
    def returned(self) -> int:
        """Bytes of the answer's body, or of what a tunnel brought."""
        return self.answer.size

    @property
    def taken(self) -> int:
        """Bytes of that which the client has taken, as far as this process knows."""
        return self.answer.size - self.client.transport.get_write_buffer_size()

    @property
    def tokens(self) -> int | None:
        """Tokens of its answer, where that said how many; None: nobody asked, or it did not."""
        if self.meter is None:
            return None
        return self.meter.used(self.returned, events=False).outputs or None

    @property
    def times(self) -> Timeouts:
        """How long what its backend does may take."""
        if self._times is None:
            self._times = self.proxy.times(self)
        return self._times

    def json_body(self) -> bytes | None:
        """Its body, if all of it is there and was read as JSON."""
        if self._kind not in _OBJECTS or not (self.complete and self.keeps_body):
            return None
        return b"".join(self._pieces) if self._plain is None else self._plain

    @property
    def closes(self) -> bool:
        """Whether the client's connection ends with an answer that is given now."""
        return not self.head.keep_alive or not self.complete or self.proxy.draining

    # --- the request ---

    def begin(self) -> None:
        """Judge the request: all that its client asked before is answered."""
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
        if self.complete:
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
        if self.keeps_body:
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
        self.complete = True
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
        if self.complete and self.phase in (WAITING, CONNECTING, SENT) and self.head.version == "1.1":
            self.client.write(_CONTINUE)

    def renew(self) -> None:
        """End it, if the law does not let more of it go where it goes."""
        refusal = self.proxy.renew(self)
        if refusal is not None:
            self.cut_short(refusal)

    # --- its body: how far it is awaited, and what it says ---

    def _awaited(self) -> int:
        """Bytes of its body, beyond the first, that are awaited before anything is decided."""
        if self._kind not in READ:
            return FIRST
        rules = self.proxy.body_rules
        if rules is not None and rules.whole:
            return self.proxy.most_read
        looks = self.proxy.picker.looks_at
        goes = looks.hints or looks.models or (looks.several and self.target.continues)
        return MAX_INSPECTED if goes else FIRST

    def _keep(self, piece: bytes) -> None:
        """Small pieces are kept together: of single bytes a list takes forty times their room."""
        pieces = self._pieces
        last = pieces[-1]
        if len(piece) >= _SMALL or len(last) >= _TOGETHER:
            pieces.append(piece)
            return
        if not isinstance(last, bytearray):
            last = pieces[-1] = bytearray(last)
        last += piece

    def _reading(self, more: int) -> None:
        """So many bytes more have come of a body that is awaited."""
        if self._kind is _UNKNOWN and more == self.received and not self._may_be_object():
            self._kind = BodyKind.OPAQUE
        if self.received <= self._until:
            return
        if self._until == FIRST:  # most bodies are shorter, and nobody asks this
            self._until = self._awaited()
            if self.received <= self._until:
                return
        if self._until == self.proxy.most_read:
            self.refuse(too_large(self._until).refusal)
            return
        if self._kind in READ:
            if self._scan is None and not self._scans():
                return
            if self._scan is not None and not self._scan.known and self._waits_for_model():
                return
            if self.target.continues and self._waits_for_state():
                return
        self._read()

    def _may_be_object(self) -> bool:
        """Whether its body may be a JSON object, by its first piece; where nothing but the choice goes by it, in UTF-8."""
        if b"content-encoding" in self.head.seen:
            return True
        begin = self._pieces[0]
        return begins_object(begin) if self.proxy.body_rules is None else may_be_object(begin)

    def _waits_for_model(self) -> bool:
        """Whether no more is decided before its model is known, which the end of its body may say; it is refused where too much has come."""
        looks, most = self.proxy.picker.looks_at, self.proxy.most_read
        if not looks.models:
            return False
        if self.received > most and looks.declared:
            self.refuse(unnamed(self._kind, most))
            return True
        return self.received <= most

    def _waits_for_state(self) -> bool:
        """Whether no more is decided before it is known what the request goes on with: another server has not that. The end of its body says that it is nothing."""
        scan = self._scan
        if scan is None or scan.state is not None or not scan.read or not self.proxy.picker.looks_at.several:
            return False
        return self.received <= self.proxy.most_read

    def _scans(self) -> bool:
        """Begin to look for its model in what comes; whether it goes on."""
        try:
            self._scan = BodyScan(self.head, self._kind, self.proxy.most_read)
        except BodyError as error:
            return self._misread(error)
        return all(self._scanned(piece) for piece in self._pieces)

    def _scanned(self, piece: bytes | bytearray) -> bool:
        """Look for its model in some more of its body; whether it goes on."""
        scan = self._scan
        if scan is None:
            return True
        try:
            scan.feed(piece)
            if self.received == self.head.length and self.phase is not READING:
                scan.end()  # before its last byte goes on
        except BodyError as error:
            return self._misread(error)
        return True

    def _misread(self, error: BodyError) -> bool:
        """Its body has not one meaning: whether it goes on, because nothing goes by it but the choice."""
        self._scan = None
        if self.proxy.body_rules is None:
            return True
        self.refuse(error.refusal)
        return False

    def _read(self) -> None:
        """Its body has come as far as it is awaited: what it says of its work."""
        try:
            self.facts = self._facts()
        except BodyError as error:
            self.refuse(error.refusal)
            return
        kind = self._kind
        if kind is not _NONE and not self.facts.model and self.proxy.picker.looks_at.declared:
            self.refuse(unnamed(kind))
            return
        self._admit()

    def _facts(self) -> RequestFacts:
        """What its body says of its work.

        Raises:
            BodyError: limits go by it, and it has not one meaning.
        """
        head, rules, cut, media = self.head, self.proxy.body_rules, self.proxy.picker.cut, self.proxy.media
        kind, scan = self._kind, self._scan
        if (scan is not None or not self.complete) and rules is not None and kind in READ:
            if scan is None or rules.whole:
                raise BodyError(
                    "limits_changed", "limits that go by the body came while it was sent: try again", 503
                )
            if self.complete:
                scan.end()
        if scan is not None:
            if rules is None:
                self._scan = None
            model = scan.model if scan.model is None or len(scan.model) <= MAX_NAME else None
            said, size = head.seen.get(b"content-type", b""), head.length or self.received
            return RequestFacts(model, unread_tokens(head.path, said, size, media), state=scan.state)
        body = b"".join(self._pieces) if self.complete and self.keeps_body else b""
        if rules is None:
            return read_loosely(head, kind, body, cut, media)
        if b"content-encoding" in head.seen and kind in READ:
            body = self._plain = plain_body(head, body, self.proxy.most_read)
        return read_strictly(head, kind, body, rules, cut, media)

    def _ends_well(self) -> bool:
        """Whether its body may end here, as far as anybody asks."""
        try:
            if self._scan is not None:
                self._scan.end()
        except BodyError as error:
            return self._misread(error)
        return True

    # --- admission, pick, connection ---

    def _admit(self) -> None:
        self.phase = WAITING
        self._offered = True
        refusal = self.proxy.admit(self)
        if self.phase is WAITING and self._push(refusal):
            return
        if self.phase is WAITING:
            refusal = refusal or self.proxy.unserved(self)
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
        if not in_body or not self.complete or not self.keeps_body:
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
        # What it makes or goes on with is looked for here later, or stands here.
        if self.tried or self.makes_state or self.goes_on_with is not None:
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
        sent = self.proxy.pick(self, self.tried)
        if isinstance(sent, Refusal):
            if not self._push(sent):
                self.refuse(self._failed_by or sent)
            return
        self._send(sent)

    def _send(self, sent: SentRequest) -> None:
        self.sent = sent
        upstream = sent.route.take(self.proxy.now())
        if upstream is not None:
            self._attach(upstream)
        else:
            self._connecting = self.proxy.loop.create_task(self._connect(sent))
            if self.received:
                self.client.settle()

    async def _connect(self, sent: SentRequest) -> None:
        proxy = self.proxy
        try:
            async with asyncio.timeout(self.times.connect):
                upstream = await sent.route.connect(proxy.loop, proxy.now)
        except Exception as error:  # noqa: BLE001 - whatever it is, the request must end
            self._connecting = None
            if self.sent is sent and no_room(error):
                self.proxy.without_room()
                self.refuse(_NO_ROOM)
            elif self.sent is sent:
                late = isinstance(error, TimeoutError) and not str(error)
                why = f"not within {self.times.connect:g} s" if late else str(error)
                self.failure = Failure.CONNECT
                nobody = isinstance(error, ConnectionRefusedError)
                self._failed(f"cannot connect: {why}", Reached.UNHEARD if nobody else Reached.UNSENT)
            return
        self._connecting = None
        if self.sent is not sent or self.phase is not CONNECTING:
            sent.route.put(upstream, proxy.now())
        elif upstream.usable:
            self._attach(upstream)
        else:  # it has ended since
            self.failure = Failure.CONNECT
            self._failed("the backend closed the connection as soon as it had taken it", Reached.UNSENT)

    def _attach(self, upstream: Upstream) -> None:
        """Send the request."""
        push = None if self.sent is None else self.sent.push
        more = self.proxy.added(self, push)
        if isinstance(more, Refusal):
            upstream.route.put(upstream, self.proxy.now())
            self.refuse(more)
            return
        self.upstream = upstream
        self._plain = None
        self.begun = True
        self.heard = False
        self.phase = SENT
        if self.makes_state:
            self.finds = IdFinder()
        if push is None:
            upstream.start(self, self.written(upstream.route, more))
        else:
            upstream.start(self, self.written(upstream.route, more + push.lines, push.host))
        self._forget_body()
        client = self.client
        if client.held:
            client.settle()
        if client.paused or not client.writable or not self.complete:
            self.regulate()
        if self.proxy.hedging is not None and push is None and not self.tried:
            self.hedge = self.proxy.hedging.begin(self)

    def written(self, route: Route, more: bytes, host: bytes | None = None) -> bytes:
        """What a backend gets of it: its head, and what there is of its body.

        Args:
            route: the way to the backend.
            more: header lines of gtm's own.
            host: what is said in Host; None: what the backend's route says, else what the client does.
        """
        head = self.head
        if host is None:
            host = route.host_field or head.host
        if head.chunked and not self.fallback:
            more += announcement(head)
        target = route.prefix + head.target if route.prefix and head.target != b"*" else head.target
        parts: list[bytes | bytearray] = [forwarded_head(head, target, host, more, expect=head.expects)]
        if head.chunked:
            for piece in self._pieces:
                parts += (b"%x\r\n" % len(piece), piece, b"\r\n")
            if self.complete:
                parts.append(self._last_chunk())
        else:
            parts += self._pieces
        return b"".join(parts)

    def takes_over(self, sent: SentRequest, upstream: Upstream) -> None:
        """The second server answers it from now on; the first one, if it still has it, is let go. Nothing of an answer has gone to the client."""
        first = self.sent
        self._let_go()
        if first is not None:
            self.proxy.not_there(self, first)
            self.tried = (*self.tried, first.route.url)
        self.answer, self.unsaid, self._doubted = ClientAnswer(), None, None
        self.heard = False
        self.sent, self.upstream = sent, upstream
        self.regulate()

    def _forget_body(self) -> None:
        """Keep no more of the body than for another try: all that is read before a choice, while a peer may give it back, or another server may have what it goes on with."""
        if self.received <= self.proxy.replay or not self.keeps_body:
            return
        pushed = self.sent is not None and self.sent.push is not None
        most = self.proxy.most_read if self.seeks else MAX_INSPECTED if pushed else self.proxy.replay
        if self.received > most:
            self.forget()

    def forget(self) -> None:
        """Keep nothing of the body: it is sent once."""
        self.keeps_body = False
        self._pieces.clear()

    # --- the answer ---

    def interim(self, response: ResponseHead) -> None:
        """A 1xx response, which goes on as it is (RFC 9110 §15.2)."""
        self.heard = True
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
        sent = self.sent
        if sent is not None and sent.push is not None:
            taken = self.proxy.taken(sent, response.seen.get(b"gtm-push"), response.status)
            if not taken and self.keeps_body:
                self._untaken = True
                raise ResponseError("the peer does not take it")
        if self.meter is not None:
            lines = response.seen.get(b"content-type", b"")[:20].lower() == b"application/x-ndjson"
            self.meter.begin(
                events=response.is_events, lines=lines, encoded=b"content-encoding" in response.seen
            )
        if response.load is not None and sent is not None:
            self.proxy.loaded(sent, response.load)
        status = response.status
        doubtful = status in STATUSES or (self.seeks and status in NOT_THERE)
        if status >= 500 and (
            (status in _BROKE_OFF and self.proxy.repeats and may_be_done_twice(self))
            or (self.hedge is not None and self.hedge.may_go_on)
        ):
            doubtful = True
        if doubtful and self._kept_back(response, framing):
            return
        if self.upstream is not None and self.upstream.bare and self._says_nothing(response, framing):
            self.unsaid = response, framing
            self.answer.events = True
            return
        self._answers(response, framing)

    def _says_nothing(self, response: ResponseHead, framing: Framing) -> bool:
        """Whether a head that came alone says nothing of whether there will be an answer: servers send those of streams before an engine has done anything."""
        return (
            self.proxy.keeps_heads
            and response.is_events
            and response.status == 200
            and framing is CHUNKED
            and self.complete
            and self.target.runs_model
            and self.sent is not None
            and self.sent.push is None
            and (
                not why_not_another(self, Reached.BEGUN)
                or (
                    self.hedge is not None and self.hedge.may_go_on
                )  # for which the same holds as for this one
            )
        )

    def begins(self, data: bytes = b"") -> bool:
        """Give the client the head that was kept back, with what follows it. False: that is an error, and another server is asked."""
        unsaid = self.unsaid
        if unsaid is not None:
            if b'error"' in data and status_said(data) in SERVER_FAILURES and self._errs(data):
                return False
            self.unsaid = None
            self._answers(*unsaid)
        return True

    def _errs(self, data: bytes) -> bool:
        """A stream begins with an error, as of a server whose engine has died: whether another is asked."""
        sent = self.sent
        if self._second_goes_on(status_said(data) or 500, data):
            return True
        if sent is None or says_full(503, data, retry_after=False):
            return False
        picker = self.proxy.picker
        judged = picker.is_down(sent)
        if picker.usable() <= len(self.tried) + (not judged):
            return False
        if not may_ask_another(self, Reached.BEGUN, judged=judged):
            return False
        self._drop()
        self.sent, self.failure = None, Failure.STATUS
        self.proxy.failed(self, sent, "its stream began with an error")
        self.tried = (*self.tried, sent.route.url)
        self._unsay()
        failed = Refusal(502, "backend_failed", "a backend's stream began with an error")
        self._goes_elsewhere(failed, queues=judged)
        return True

    def _answers(self, response: ResponseHead, framing: Framing) -> None:
        """The client gets this answer."""
        head, sent = self.head, self.sent
        if self.hedge is not None:
            self.hedge.answered(response.status)
        self.first_byte = self.proxy.now()
        self.status = response.status
        if framing is CLOSE or self.closes:
            head = self.head = replace(head, keep_alive=False)
        self.phase = ANSWERING
        self.keeps_body = False
        self._pieces.clear()
        more = self.proxy.said(self, sent, response)
        self.answer.begin(head, response, framing, more)
        upstream = self.upstream
        if upstream is not None and self.target.runs_model and 200 <= response.status < 300:
            upstream.teller = (
                upstream.route.work
            )  # what follows: heads of streams come before an engine has done anything
        if framing is TUNNEL and upstream is not None:
            self.tunnelled = True
            upstream.tunnel()
            early = self.client.tunnel()
            if early:
                self.carry_up(early)

    def response_ended(self, *, reusable: bool) -> None:
        """The answer is complete."""
        upstream, sent = self.upstream, self.sent
        self.upstream = None
        if upstream is not None and sent is not None:
            upstream.teller.heard = upstream.heard  # of an answer that came in one piece, too
            if reusable and self.complete:
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

    # --- an answer that says that the server is full, or failed, or has not what is asked for: kept back, for another may be asked ---

    def _kept_back(self, response: ResponseHead, framing: Framing) -> bool:
        """Keep an answer of one of the statuses back whose body may say that the server is full. False: the client gets it now."""
        sent = self.sent
        if sent is None or sent.push is not None:
            return False
        if framing is LENGTH and response.length is not None and response.length <= MOST_BYTES:
            self.flush()
            self.answer, self._doubted, self.heard = KeptAnswer(), response, True
            return True
        self.full = says_full(response.status, b"", retry_after=response.retry_after)
        return False

    def _asks_another(self) -> bool:
        """The answer that was kept back is whole. Whether another server is asked now; else the client gets it."""
        response, sent = self._doubted, self.sent
        assert response is not None  # noqa: S101 - see `_kept_back`
        assert isinstance(self.answer, KeptAnswer)  # noqa: S101 - likewise
        body = self.answer.body_so_far
        if self._second_goes_on(response.status, body, retry_after=response.retry_after):
            return True
        if sent is not None:
            before = self.tried
            self.tried = (*before, sent.route.url)  # what follows goes by it
            if self.seeks and response.status in NOT_THERE:
                absent = says_absent(response.status, body, self.goes_on_with or "")
                if (
                    absent
                    and self.complete
                    and self.keeps_body
                    and self.proxy.may_seek(len(self.tried))
                    and self._goes_to_another(self.proxy.not_there)
                ):
                    return True
            elif (broke_off := _broke_off(response.status, body)) or says_full(
                response.status, body, retry_after=response.retry_after
            ):
                once = self.repeated if broke_off else self._moved
                others = self.complete and not once and self.proxy.picker.usable() > len(self.tried)
                if (
                    others
                    and may_ask_another(self, Reached.DECLINED)
                    and self._goes_to_another(self.proxy.broke_off if broke_off else self.proxy.was_full)
                ):
                    self._moved = self._moved or not broke_off
                    self.repeated = self.repeated or broke_off
                    return True
                self.full = not broke_off
            self.tried = before
        self._lets_go(response)
        return False

    def _second_goes_on(self, status: int, body: bytes, *, retry_after: bool = False) -> bool:
        """The first server says that it has failed, or is full: whether a second one has the request, and answers it from now on."""
        hedge, sent = self.hedge, self.sent
        if hedge is None or sent is None or not hedge.may_go_on:
            return False
        self._let_go()
        if says_full(status, body, retry_after=retry_after):
            self.proxy.was_full(self, sent)
        elif status in SERVER_FAILURES:
            self.failure = Failure.STATUS
            self.proxy.failed(self, sent, f"it said {status}")
        else:
            self.proxy.not_there(self, sent)
        self.sent, self.tried = None, (*self.tried, sent.route.url)
        return hedge.goes_on()

    def _goes_to_another(self, told: Callable[[Exchange, SentRequest], None]) -> bool:
        """Send it to a server that was not tried, if one takes it; what its last one said is told then."""
        sent = self.sent
        found = self.proxy.pick(self, self.tried)
        if sent is None or not isinstance(found, SentRequest):
            return False
        self._doubted, self.answer = None, ClientAnswer()
        told(self, sent)
        self.phase = CONNECTING
        self._send(found)
        return True

    def _lets_go(self, response: ResponseHead) -> None:
        """Give the client what was kept back of an answer."""
        kept = self.answer
        self._doubted, self.answer = None, ClientAnswer()
        self._answers(response, LENGTH)
        if isinstance(kept, KeptAnswer) and kept.body_so_far:
            self.answer.body(kept.body_so_far)

    # --- bytes between the two sides (law 5) ---

    def flush(self) -> None:
        """Send the client what there is for it."""
        out = self.answer.take()
        if out:
            self.client.transport.write(out)

    def regulate(self) -> None:
        """Neither side is read from faster than the other takes it."""
        upstream = self.upstream
        if upstream is not None and not upstream.transport.is_closing():
            if self.client.writable and not upstream.behind:
                if not upstream.transport.is_reading():
                    upstream.transport.resume_reading()
                    upstream.heard = self.proxy.now()
            elif upstream.transport.is_reading():
                upstream.transport.pause_reading()
        if upstream is not None:
            full = not upstream.writable
        else:
            # What waits in the queue counts there with what of it has come: no more of it is read.
            full = not self.complete and (
                self.phase is WAITING or (self.phase is CONNECTING and self.received > _MAX_BUFFER)
            )
        self.client.regulate(full=full)

    def carry(self, data: bytes) -> None:
        """Bytes of a tunnel for the client."""
        self.answer.size += len(data)
        self.client.write(data)

    def carry_up(self, data: bytes) -> None:
        """Bytes of a tunnel for the backend."""
        self.received += len(data)
        if self.upstream is not None:
            self.upstream.transport.write(data)

    # --- failures, and the end (laws 1, 2, 4) ---

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
        sent, self.sent = self.sent, None
        self._untaken = False
        if sent is not None:
            self.proxy.failed(self, sent, detail)
            self.tried = (*self.tried, sent.route.url)
        self.answer.take()
        self._unsay()
        if self.hedge is not None and self.hedge.goes_on():
            return
        home = sent is not None and sent.push is not None
        judged = sent is not None and not home and self.proxy.picker.is_down(sent)
        # An edge that carries asks no other region for what two have failed.
        code = "backends_failed" if self.repeated and reached is Reached.BEGUN else "backend_failed"
        failed = Refusal(502, code, f"a backend did not answer: {detail}")
        if not may_ask_another(self, reached, home=home, judged=judged):
            self.refuse(failed)
        elif home:
            self.lost = None
            self._admit()
        elif reached is Reached.BEGUN:
            self._goes_elsewhere(failed, queues=judged)
        else:
            self.phase = CONNECTING
            self._dispatch()

    def _unsay(self) -> None:
        """Forget the head that was kept back."""
        if self.unsaid is not None:
            self.unsaid, self.answer = None, ClientAnswer()

    def is_bereft(self, route: Route) -> bool:
        """Whether it waits at this backend without a byte of its answer, or for a connection to it."""
        sent = self.sent
        return (
            sent is not None
            and sent.push is None
            and sent.route is route
            and (self.phase is SENT or self.phase is CONNECTING)
        )

    def bereft(self) -> None:
        """Its backend is judged down: another is asked, as far as it may be; else it is refused."""
        sent = self.sent
        assert sent is not None  # noqa: S101 - see `is_bereft`
        if self.hedge is not None and self.hedge.goes_on():
            return
        reached = Reached.BEGUN if self.phase is SENT else Reached.UNSENT
        self._drop()
        self.sent = None
        self.proxy.not_there(self, sent)
        self.lost = sent
        self.tried = (*self.tried, sent.route.url)
        why = why_not_another(self, reached)
        if why or not may_ask_another(self, reached, judged=True):
            why = why or f"{len(self.tried)} were asked already"
            self.refuse(
                Refusal(504, "backend_failing", f"{_WENT_DOWN}: no other is asked, for {why}", retry_after=1)
            )
            return
        self.answer.take()
        self._unsay()
        self._goes_elsewhere(Refusal(502, "backend_failed", _WENT_DOWN), queues=True)

    def _goes_elsewhere(self, failed: Refusal, *, queues: bool) -> None:
        """Ask another server after one has perhaps begun it.

        Args:
            failed: what to say where there is none: an edge that carries asks another region then.
            queues: only one that has a free slot; where none has, it waits for one as who comes now does.
        """
        self._failed_by = failed
        picker = self.proxy.picker
        if not picker.usable():
            self.refuse(failed)
        elif queues and not picker.has_room(self, self.tried):
            self.proxy.withdraw(self)
            self._admit()
        else:
            self.phase = CONNECTING
            self._dispatch()

    def _broken(self, detail: str) -> None:
        """The answer breaks off: the client is told, in a stream of events by one, and always by the connection's end."""
        sent, self.sent = self.sent, None
        if sent is not None:
            self.proxy.failed(self, sent, detail)
        if self.answer.events:
            self.answer.last_event(last_event(self.head.path, detail))
        self._cut("broken")

    def _cut(self, how: str) -> None:
        """End it in the middle of its answer."""
        self.flush()
        self._end(how)
        if self.answer.framing is CLOSE:
            self.client.abort()  # its end must not look like the answer's
        else:
            self.client.end()  # without the last chunk, or short of its length: nobody takes it for whole

    def time_is_up(self, refusal: Refusal, failure: Failure) -> None:
        """What was awaited from the backend did not come in time."""
        self.failure = failure
        self._drop()
        if self.phase is ANSWERING:
            self._broken(refusal.detail)
            return
        sent, self.sent = self.sent, None
        if sent is not None:
            self.proxy.failed(self, sent, refusal.detail)
        self.refuse(refusal)

    def cut_short(self, refusal: Refusal) -> None:
        """End it, for no fault of its backend's."""
        if self.phase is not ANSWERING:
            self.refuse(refusal)
            return
        self.proxy.stats.refused(refusal)
        self.refusal = refusal
        self._drop()
        if self.answer.events:
            self.answer.last_event(last_event(self.head.path, refusal.detail))
        self._cut("refused")

    def refuse(self, refusal: Refusal) -> None:
        """End it with a refusal."""
        if self.phase is ENDED:
            return
        if self.phase is ANSWERING:
            self._drop()
            self._broken(refusal.detail)
            return
        self.proxy.stats.refused(refusal)
        self.refusal = refusal
        self.status = refusal.status
        if b"gtm-push" in self.head.seen and not self.begun and refusal.status != 504:
            refusal = replace(refusal, headers=(*refusal.headers, (b"gtm-push", b"not-taken")))
        fields = self.proxy.readable(self)
        if fields:
            refusal = replace(refusal, headers=(*refusal.headers, *fields))
        self._say(
            refusal_response(
                refusal,
                closes=self.closes,
                head_only=self.head.method == b"HEAD",
                path=self.head.path,
                accept=accepted(self.head.lines),
            ),
            "refused",
        )

    def _say(self, response: bytes, how: str = "answered") -> None:
        """End it with an answer of gtm's own."""
        closes = self.closes
        self._drop()
        self.answer.take()
        self.client.write(response)
        self._end(how)
        self.client.finished(self, keep_alive=not closes)

    def cancel(self) -> None:
        """The client is gone."""
        if self.phase is ENDED:
            return
        self._drop()
        self._end("answered" if self.tunnelled else "cancelled")

    def give_up(self, why: Refusal | None = None) -> None:
        """The client is there, and takes nothing, or too little: which is counted and logged."""
        if why is not None:
            self.proxy.stats.refused(why)
            self.refusal = why
        self.cancel()
        self.client.abort()

    def _drop(self) -> None:
        """Let go of the backend, and of a second one, at once."""
        if self.hedge is not None:
            self.hedge.end()
        self._let_go()

    def _let_go(self) -> None:
        """Let go of the backend, at once."""
        if self._connecting is not None:
            self._connecting.cancel()
            self._connecting = None
        upstream, self.upstream = self.upstream, None
        if upstream is None:
            return
        if self.tunnelled:
            upstream.finish(self.proxy.loop)
        else:
            upstream.abort()

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
        sent, self.sent = self.sent, None
        if begun or how != "cancelled":  # nothing was done for one whose turn never came
            self.proxy.ended(self, sent, how, offered=self._offered)
