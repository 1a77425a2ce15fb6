"""What is known of one request on its way; `gtm.balancer.plane.exchange` says what becomes of it."""

from __future__ import annotations

import asyncio
from enum import Enum, auto
from typing import TYPE_CHECKING, cast

from gtm.balancer.plane.answer import Answer
from gtm.balancer.wire.endpoints import BodyKind
from gtm.balancer.wire.facts import Facts
from gtm.balancer.wire.heads import RequestHead
from gtm.balancer.wire.refusals import Refusal
from gtm.balancer.wire.responses import ResponseHead
from gtm.balancer.wire.states import IdFinder
from gtm.balancer.wire.targets import NOWHERE
from gtm.balancer.wire.usage import Meter
from gtm.core.balance.choosing.chooser import Choice
from gtm.core.balance.health import Failure
from gtm.core.balance.work import Asked
from gtm.core.decision.view import Window
from gtm.core.handoff.verdict import Flaw

if TYPE_CHECKING:
    from gtm.balancer.plane.backend.upstream import Upstream
    from gtm.balancer.plane.client.downstream import Downstream
    from gtm.balancer.plane.contracts import Sent
    from gtm.balancer.plane.exchange import Exchange
    from gtm.balancer.plane.lateness import LeastPace
    from gtm.balancer.plane.proxy import Proxy
    from gtm.balancer.plane.timeouts import Timeouts
    from gtm.balancer.plane.tracing import Span
    from gtm.balancer.wire.scanning import BodyScan

_EMPTY = Facts()
_OBJECTS = (BodyKind.JSON, BodyKind.UNKNOWN)
_RESET = Failure.RESET
MAX_REPLAY = 64 * 1024
"""Bytes of a body that are kept for another try."""


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


NEW, READING, WAITING, CONNECTING, SENT, ANSWERING, ENDED = Phase
"""By names of their own: what is looked up in an Enum takes ten times as long."""


class ExchangeState:
    """A request, where it is, who has it, and what was counted.

    Args:
        proxy: what all share.
        client: whose request it is.
        head: as understood.
    """

    lost: Sent | None
    """The last that had it, and failed it."""
    refusal: Refusal | None
    """Why it was refused."""

    __slots__ = (
        "_begun",
        "_body_ended",
        "_connecting",
        "_doubted",
        "_heard",
        "_keeps",
        "_kind",
        "_moved",
        "_offered",
        "_pieces",
        "_plain",
        "_queued",
        "_scan",
        "_sent",
        "_times",
        "_trailers",
        "_tried",
        "_untaken",
        "_until",
        "_withheld",
        "admission",
        "answer",
        "asked",
        "began",
        "chosen",
        "client",
        "facts",
        "failure",
        "fallback",
        "finds",
        "first_byte",
        "full",
        "head",
        "lost",
        "meter",
        "pace",
        "phase",
        "proxy",
        "received",
        "refusal",
        "seeks",
        "shown",
        "span",
        "status",
        "taking",
        "target",
        "tunnelled",
        "upstream",
        "verdict",
        "waited",
    )

    def __init__(self, proxy: Proxy, client: Downstream, head: RequestHead) -> None:
        self.proxy, self.client, self.head = proxy, client, head
        self.facts = _EMPTY
        self.target = NOWHERE
        """What its method and target say, from when it begins."""
        self.asked: tuple[Asked, float] | None = None
        """What of the facts tells its cost, and the seconds of work that it was expected to be when it came; None: nobody asked."""
        self.span: Span | None = None
        """Of its trace, if it is recorded."""
        self.chosen: Choice | None = None
        """How its backend was chosen."""
        self.fallback = ""
        """The model that it is served by instead of the one that it asks for; empty: by that."""
        self.failure = _RESET
        """How the last backend that failed it did."""
        self.phase = NEW
        self.began, self.first_byte = proxy.now(), 0.0
        self.received = 0
        """Bytes of the request's body."""
        self.status = 0
        self.tunnelled = False
        """Both sides have left HTTP."""
        self.verdict: object = None
        """What the gate said of it."""
        self.shown: tuple[bytes | Flaw, Window] | None = None
        """The handoff that it came with, or what was wrong with that, and when."""
        self.admission: object = None
        """What admission holds for it."""
        self.meter: Meter | None = None
        """Looks for the tokens that it uses; None: nobody asks."""
        self._sent: Sent | None = None
        """The backend that has it, and its place in that one's counts."""
        self.upstream: Upstream | None = None
        self.lost = self.refusal = None
        self._connecting: asyncio.Task[None] | None = None
        self._times: Timeouts | None = None
        """Once somebody has asked."""
        self._tried: tuple[str, ...] = ()
        self._pieces: list[bytes | bytearray] = []
        self._kind = BodyKind.NONE
        """Says where a request to its path names its model."""
        self._scan: BodyScan | None = None
        """Looks for its model in what comes of its body, which is not awaited whole."""
        self._plain: bytes | None = None
        """Its body without its Content-Encoding, until it is sent; None: it has none, or was not read."""
        self._until = 0
        """Bytes of its body that are awaited before anything is decided; 0: all of it was there."""
        self.pace: LeastPace | None = None
        """How its body comes; None: it came at once."""
        self.taking: LeastPace | None = None
        """How its client takes the answer; None: it has always been as fast as its backend."""
        self._keeps = True
        """All of the body that came is in `_pieces`."""
        self._body_ended = not head.has_body
        self._trailers: list[bytes] = []
        self._withheld: frozenset[bytes] | None = None
        """Names that no trailer may have; None: there was none."""
        """Field lines that stand behind its body."""
        self._queued = 0.0
        """Since when it is in the queue."""
        self.waited = 0.0
        """Seconds for which it was."""
        self._offered = False
        """Admission knows of it."""
        self.answer = Answer()
        self._untaken = False
        """A peer has said that it does not take it."""
        self._doubted: ResponseHead | None = None
        """The head of an answer that is kept back; None: none is."""
        self.full = False
        """The client got an answer by which a backend said that it is full."""
        self.finds: IdFinder | None = None
        """Looks for the id of what it makes; None: it makes nothing that is kept."""
        self.seeks = False
        """It goes on with something of which nobody knows which server has it: who says 404 has it not, and another is asked."""
        self._moved = False
        """Another server was asked since one was full."""
        self._begun = self._heard = False
        """It was sent to a backend; something of an answer came from the present one."""

    @property
    def goes_on_with(self) -> str | None:
        """The id of what one server has and it goes on with; None: any server will do."""
        return self.facts.state or self.target.names

    @property
    def makes_state(self) -> bool:
        """Whether its server keeps what it makes, for later requests."""
        return self.target.makes_state and self.facts.stored

    @property
    def keeps_home(self) -> bool:
        """Whether no peer region may take it: what it makes or goes on with is looked for here later, or stands here."""
        return self.makes_state or self.goes_on_with is not None

    @property
    def answering(self) -> bool:
        """Whether something of the answer went to the client."""
        return self.phase is ANSWERING

    @property
    def begun(self) -> bool:
        """Whether it was sent to a backend."""
        return self._begun

    @property
    def sending(self) -> bool:
        """Whether more of it goes to a backend: of its body, or through a tunnel."""
        return self.upstream is not None and (self.tunnelled or not self._body_ended)

    @property
    def streams_events(self) -> bool:
        """Whether the answer is a stream of server-sent events."""
        return self.answer.events

    @property
    def held(self) -> int:
        """Bytes of its body that are kept, but for the few that a request at a backend may keep for another try."""
        if not self._keeps or self.phase is ENDED:
            return 0
        sent = self.phase is SENT or self.phase is ANSWERING
        more = 0 if self._plain is None else len(self._plain)
        return more if sent and self.received <= MAX_REPLAY else self.received + more

    @property
    def come(self) -> int:
        """Bytes of its body that have come, parsed or not."""
        return self.received if self._body_ended else self.client.come(self)

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
            self._times = self.proxy.times(cast("Exchange", self))
        return self._times

    @property
    def sent(self) -> Sent | None:
        """Who has it, a backend or a peer; None: nobody has."""
        return self._sent

    @property
    def keeps_body(self) -> bool:
        """Whether all of its body that came is kept, so that it can be sent again."""
        return self._keeps

    @property
    def heard(self) -> bool:
        """Whether something of an answer came from the present server."""
        return self._heard

    @property
    def tries(self) -> int:
        """How many servers it was given to that failed it."""
        return len(self._tried)

    @property
    def complete(self) -> bool:
        """Whether all of the request is there."""
        return self._body_ended

    def json_body(self) -> bytes | None:
        """Its body, if all of it is there and was read as JSON."""
        if self._kind not in _OBJECTS or not (self._body_ended and self._keeps):
            return None
        return b"".join(self._pieces) if self._plain is None else self._plain

    @property
    def closes(self) -> bool:
        """Whether the client's connection ends with an answer that is given now."""
        return not self.head.keep_alive or not self._body_ended or self.proxy.draining
