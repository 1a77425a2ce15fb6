"""What all connections of a balancer share: who judges, who admits, who picks, what is counted.

Whoever is asked is one of `gtm.balancer.plane.contracts`. Who fails is logged, and fails one request at the most.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterable
from dataclasses import KW_ONLY, InitVar, dataclass, field, replace
from math import inf
from time import perf_counter
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote_to_bytes

import msgspec

from gtm.balancer.plane.backend.backends import Route
from gtm.balancer.plane.client.downstream import Downstream
from gtm.balancer.plane.contracts import (
    ConnectionKeeper,
    Evictable,
    Gate,
    Limits,
    Picker,
    PushedRequest,
    Pusher,
    RequestAdmission,
    SentRequest,
)
from gtm.balancer.plane.exchange import ENDED, MAX_REPLAY, WAITING, Exchange
from gtm.balancer.plane.flow import HELD_BESIDE_QUEUE, KeptBytes
from gtm.balancer.plane.hedging import Hedging
from gtm.balancer.plane.stats import EACH, Stats
from gtm.balancer.plane.timeouts import FIELD as TIMEOUT
from gtm.balancer.plane.timeouts import TimeoutRules, Timeouts
from gtm.balancer.plane.tracing import Tracer, written
from gtm.balancer.wire.bodies import MAX_READ, BodyRules
from gtm.balancer.wire.endpoints import Paths
from gtm.balancer.wire.estimate import MEDIA, Media
from gtm.balancer.wire.heads import KEYS, PRIORITY, RequestHead, priority_of
from gtm.balancer.wire.refusals import Refusal, no_model
from gtm.balancer.wire.responses import ResponseHead
from gtm.core.balance.health.retries import RetryBudget
from gtm.core.balance.health.values import Failure
from gtm.core.balance.serving import known_as, named
from gtm.core.handoff.verdict import Verdict
from gtm.core.model.cors import answer_fields, preflight_fields
from gtm.core.model.services import Priority
from gtm.core.shares import client_prefix
from gtm.geoip.client import peer_address
from gtm.handoff.proof import FIELD, PATH

# --- Which models a region serves, as OpenAI's API lists them: `GET /v1/models`, and `GET /v1/models/NAME`. ---
#
# Each server lists its own models, and vLLM, SGLang and others say nothing of a single one: where servers differ, or the file says what they serve, the balancer answers. A name may have
# slashes, and clients write them plainly (openai-python) or encoded (openai-node): no server reads such a path, so both are taken for the name.


MODELS = b"/v1/models"
ONE_MODEL = MODELS + b"/*"
"""A path that stands for all of single models where it is asked what is carried."""


def asked_of(head: RequestHead) -> str | None:
    """The model that a request asks about, empty: all of them; None: it is no such request."""
    if head.method not in (b"GET", b"HEAD"):
        return None
    path = head.path
    if path == MODELS:
        return ""
    if not path.startswith(MODELS + b"/"):
        return None
    return unquote_to_bytes(path[len(MODELS) + 1 :]).decode("utf-8", "replace") or None


def listed(names: Iterable[str]) -> bytes:
    """A list of models."""
    return msgspec.json.encode({"object": "list", "data": [_card(name) for name in sorted(names)]})


def described(name: str) -> bytes:
    """One model."""
    return msgspec.json.encode(_card(name))


def _card(name: str) -> dict[str, object]:
    """Of a model no more is known than its name; clients' types want the other members."""
    return {"id": name, "object": "model", "created": 0, "owned_by": "gtm"}


# --- What all connections of a balancer share: who judges, who admits, who picks, what is counted. ---


if TYPE_CHECKING:
    from gtm.balancer.plane.access import AccessLines

_log = logging.getLogger(__name__)

MOST_SOUGHT = 16
"""Servers that are asked at the most for what nobody knows who has it."""

_PROBES = (b"GET", b"HEAD", b"OPTIONS")
"""How monitors ask: HAProxy by OPTIONS unless it is told otherwise."""
_CLIENT_FULL = Refusal(
    429,
    "client_bodies_full",
    "of your network's requests more bytes are kept here than of one network may be: send fewer at once",
    retry_after=1.0,
)
_BODIES_FULL = Refusal(
    503, "bodies_full", "more bytes of requests are kept here than may be: try again", retry_after=1.0
)
_SAID_EVERY = 60.0
"""Seconds between two words about the same lack."""
MAY_RETURN = 2.0
"""Seconds for which requests wait on at a backend that is judged down. Most that fail their checks had stood still for a moment, some for one of these requests: where it went next would stand still, too."""
TICK = 0.25
"""Seconds between looks at deadlines."""


@dataclass(eq=False, repr=False)
class Proxy:
    """See above.

    Args:
        gate: judges by the law.
        admission: admits.
        picker: picks.
        room: says which connection goes for another.
        queue_bytes: what may wait in the queue, in bytes.
        trusts: whether a peer is a proxy of the operator's, whose connections are many clients'.
        pusher: pushes; None: nothing is pushed.
        asks: header lines that ask backends for more than their answer.
        paths: the methods and paths that the balancer carries; None: it carries everything.
        limits: times and rates of connections, and how often.
        timeouts: how long what backends do may take.
        loop: the event loop.
        region: this region's name.
        log: told of each request that has ended, and how; None: nobody is.
        tracer: records sampled requests; None: none is.
        health_path: answered here: 200 while some backend is usable and the process is not ending, else 503.
    """

    gate: Gate
    admission: RequestAdmission
    picker: Picker
    _: KW_ONLY
    room: ConnectionKeeper
    loop: asyncio.AbstractEventLoop
    region: str
    limits: Limits = field(default_factory=Limits)
    health_path: bytes = b"/healthz"
    log: AccessLines | None = None
    tracer: Tracer | None = None
    pusher: Pusher | None = None
    asks: bytes = b""
    """Header lines that ask backends for more than their answer."""
    paths: Paths | None = None
    """The methods and paths that the balancer carries; None: it carries everything."""
    body_rules: BodyRules | None = None
    """What goes by requests' bodies; None: nothing, and they are read for hints."""
    timeouts: TimeoutRules = field(default_factory=TimeoutRules)
    media: Media = MEDIA
    """What counts for pictures, recordings and files in requests."""
    most_read: int = MAX_READ
    """Bytes of a body that are read, or held back until its model is known."""
    trusts: Callable[[str | None], bool] = lambda _: False
    replay: int = MAX_REPLAY
    """Bytes of a body that are kept while a server has it, so that another may be asked."""
    repeats: bool = False
    """Requests that only run a model may be asked again although a server may have begun them: they may be computed twice."""
    keeps_heads: bool = False
    """The head of a stream that comes alone is kept back for a while, so that another server may be asked: not by an edge, whose regions do so."""
    queue_bytes: InitVar[int] = 0

    def __post_init__(self, queue_bytes: int) -> None:
        self.held: KeptBytes[Downstream] = KeptBytes(HELD_BESIDE_QUEUE + queue_bytes)
        """Bytes that clients have sent, and that are kept."""
        self._giving_way = False
        self.now: Callable[[], float] = self.loop.time
        """Monotonic seconds."""
        self._bereft: deque[tuple[float, Route, list[tuple[Exchange, SentRequest]]]] = deque()
        """When to take whom from which backend that is judged down."""
        self.stats = Stats()
        self.draining = False
        self.ending = 0
        """Requests whose ends are being told right now."""
        self._said = b"x-gtm-region: %b\r\n" % self.region.encode()
        self._clients: dict[Downstream, None] = {}
        self._seeking = RetryBudget(self.loop.time(), share=1.0, floor=20.0, most=200.0)
        self._budget = RetryBudget(
            self.loop.time(),
            share=self.limits.retry_share,
            floor=self.limits.retries_free,
            most=10.0 + self.limits.retries_free,
        )
        self._ticker: asyncio.TimerHandle | None = None
        self._said_at = -inf
        self.hedging: Hedging | None = None
        """Has requests that are late asked of a second server; None: none is."""

    # --- life ---

    def start(self) -> None:
        """Begin to look at deadlines."""
        self._ticker = self.loop.call_later(TICK, self._tick)

    def connection(self, *, secure: bool = False) -> Downstream:
        """The protocol of a client's new connection."""
        return Downstream(self, secure=secure)

    def entered(self, client: Downstream) -> None:
        """A client's connection is open."""
        self.room.enter(client, self.whose(client, client.peer))
        self._clients[client] = None

    def left(self, client: Downstream) -> None:
        """A client's connection is closed."""
        self.room.leave(client)
        self.held.hold(client, 0, client.whose)
        self._clients.pop(client, None)

    def whose(self, connection: Evictable, peer: str | None) -> Hashable:
        """The client whose a connection is, as a prefix of addresses; the connection itself where many clients' requests come on it."""
        address = peer_address(peer)
        if address is None:
            return None
        return connection if self.trusts(peer) else client_prefix(address.packed)

    def hold(self, client: Downstream, size: int) -> None:
        """A client's connection keeps so many bytes now: others may have to give theirs up, or itself."""
        self.held.hold(client, size, client.whose)
        if self._giving_way:
            return  # whoever gives way tells so
        self._giving_way = True
        try:
            while (found := self.held.gives_way(client)) is not None:
                gone, its_own = found
                gone.give_way(_CLIENT_FULL if its_own else _BODIES_FULL)
                if self.held.has(gone):
                    gone.abort()
                    self.held.hold(gone, 0, gone.whose)
        finally:
            self._giving_way = False

    def without_room(self) -> None:
        """This process has no descriptor left: connections to backends that wait give theirs back."""
        self.stats.without_room["request"] += 1
        now = self.now()
        if now >= self._said_at + _SAID_EVERY:
            self._said_at = now
            _log.error(
                "no backend can be connected to: this process has no descriptors or memory left for connections; requests are refused. "
                "Let it have more descriptors (LimitNOFILE, ulimit -n)"
            )
        for route in self._routes():
            route.expire(inf)

    @property
    def clients(self) -> tuple[Downstream, ...]:
        """Clients' connections that are open."""
        return tuple(self._clients)

    @property
    def connections(self) -> int:
        """How many of them there are."""
        return len(self._clients)

    def drain(self) -> None:
        """Take no further requests: connections that wait end now, others after their answer."""
        self.draining = True
        for client in tuple(self._clients):
            client.drain()

    def close(self) -> None:
        """End everything at once."""
        self.draining = True
        if self._ticker is not None:
            self._ticker.cancel()
            self._ticker = None
        for client in tuple(self._clients):
            client.abort()
        for route in self._routes():
            route.close()

    def _tick(self) -> None:
        self._ticker = self.loop.call_later(TICK, self._tick)
        self.look()

    def unready(self) -> str:
        """Say why no request is served here now; nothing: they are."""
        if self.draining:
            return "draining"
        return self.gate.unready() or ("" if self.picker.usable() else "no usable backend")

    def look(self) -> None:
        """Look whether something is late."""
        now = self.now()
        for client in tuple(self._clients):
            self._tell(client.look, now)
        for route in self._routes():
            route.expire(now)
        self._tell(self._take_bereft, now)
        self._tell(self.admission.tick, now)

    def _routes(self) -> tuple[Route, ...]:
        pushed = () if self.pusher is None else self.pusher.routes()
        return (*self.picker.routes(), *pushed)

    def _tell(self, whom: Callable[..., object], *args: object) -> None:
        """Call what must not keep others from being called: an error is logged."""
        try:
            whom(*args)
        except Exception:  # noqa: BLE001 - it is logged
            _log.exception("an error of gtm's own, which others do not feel")

    # --- for exchanges ---

    def judge(self, exchange: Exchange) -> bytes | Refusal | None:
        """A request's answer if it is gtm's own, or the law's; None if it goes on."""
        if self.tracer is not None:
            exchange.span = self.tracer.begin(exchange.head.seen.get(b"traceparent"))
        head = exchange.head
        if (misstated := misstatement(head)) is not None:
            return misstated
        asked = None
        if head.method != b"POST":  # nearly every request is one, and none of these
            if head.target.partition(b"?")[0] == self.health_path and head.method in _PROBES:
                return self._health(exchange)
            if head.target == PATH and head.method == b"GET":
                return self._proof(exchange)
            if head.method == b"OPTIONS" and b"access-control-request-method" in head.seen:
                answer = self._preflight(exchange)
                if answer is not None:
                    return answer
            if head.target.startswith(MODELS):
                asked = self._model_asked_of(head)
        refusal = None
        if self.paths is not None:
            refusal = self.paths.refusal(head.method, ONE_MODEL if asked else head.target)
        try:
            refusal = refusal or self.gate.judge(exchange, exchange.began)
        except Exception:  # noqa: BLE001 - logged there; the request is refused
            return _internal("the gate")
        return self._listed(exchange, asked) if refusal is None and asked is not None else refusal

    def _model_asked_of(self, head: RequestHead) -> str | None:
        """The model that a request asks about, or empty: all of them; None: it is no such request, or a server is to say it."""
        looks = self.picker.looks_at
        if looks.served is None:
            return None
        asked = asked_of(head)
        return None if asked and looks.unsaid and not named(asked, looks.served) else asked

    def _listed(self, exchange: Exchange, asked: str) -> bytes | Refusal | None:
        """What the region serves, or that it serves a model; None: a server says it."""
        looks = self.picker.looks_at
        if not asked:
            body = listed(looks.served) if looks.served is not None and looks.lists else None
        elif looks.served is not None and named(asked, looks.served):
            body = described(asked)
        else:
            return no_model(asked)
        if body is None:
            return None
        fields = b"".join(b"%b: %b\r\n" % field for field in self.readable(exchange))
        return self._own(exchange, 200, body, self._said + fields)

    def _preflight(self, exchange: Exchange) -> bytes | Refusal | None:
        """What answers a page that asks whether it may send a request; None: its model server answers. It says nothing of any data: no law is asked."""
        try:
            cors = self.gate.cors(exchange)
        except Exception:  # noqa: BLE001 - logged there; the request is refused
            return _internal("the gate")
        if cors is None:
            return None
        seen = exchange.head.seen
        origin, method, fields = (
            seen.get(name, b"").decode("latin-1")
            for name in (b"origin", b"access-control-request-method", b"access-control-request-headers")
        )
        if not cors.allows(origin):
            words = "pages of this origin may not use the service: list it in the service's `cors.origins`"
            return Refusal(403, "origin_not_allowed", words)
        exchange.status = 204
        said = b"".join(
            b"%b: %b\r\n" % (name.encode(), value.encode("latin-1"))
            for name, value in preflight_fields(cors, origin, method, fields)
        )
        closes = b"connection: close\r\n" if exchange.closes else b""
        return b"HTTP/1.1 204 No Content\r\n%b%b\r\n" % (said, closes)

    def readable(self, exchange: Exchange) -> tuple[tuple[bytes, bytes], ...]:
        """Header fields of an answer of gtm's own, by which a page of another origin may read it."""
        origin = exchange.head.seen.get(b"origin")
        if origin is None:
            return ()
        try:
            cors = self.gate.cors(exchange)
        except Exception:  # noqa: BLE001 - it is logged; the answer goes without
            _log.exception("the gate failed")
            return ()
        if cors is None:
            return ()
        found = answer_fields(cors, origin.decode("latin-1"))
        return tuple((name.encode(), value.encode("latin-1")) for name, value in found)

    def times(self, exchange: Exchange) -> Timeouts:
        """How long what its backend does may take: of a request that was judged."""
        head, verdict = exchange.head, exchange.verdict
        routing = verdict.routing if isinstance(verdict, Verdict) else None
        found = self.timeouts.of(
            None if routing is None else routing.request.service, head.method, head.target
        )
        return found.within(head.seen[TIMEOUT]) if TIMEOUT in head.seen else found

    def _health(self, exchange: Exchange) -> bytes:
        why = self.unready()
        body = msgspec.json.encode(
            {"status": why or "up", "region": self.region, "usable_backends": self.picker.usable()}
        )
        return self._own(exchange, 503 if why else 200, body)

    def _own(self, exchange: Exchange, status: int, body: bytes, more: bytes = b"") -> bytes:
        """An answer of gtm's own, in JSON."""
        exchange.status = status
        return (
            b"HTTP/1.1 %b\r\ncontent-type: application/json\r\ncache-control: no-store\r\ncontent-length: %d\r\n%b\r\n%b"
            % (
                b"200 OK" if status == 200 else b"503 Service Unavailable",
                len(body),
                more + (b"connection: close\r\n" if exchange.closes else b""),
                b"" if exchange.head.method == b"HEAD" else body,
            )
        )

    def _proof(self, exchange: Exchange) -> bytes | Refusal:
        asked = exchange.head.seen.get(FIELD)
        try:
            found = None if self.pusher is None or asked is None else self.pusher.proof(asked)
        except Exception:  # noqa: BLE001 - logged there; nothing is proven
            return _internal("the proof")
        if found is None:
            words = "ask as a balancer does (docs/spill-back.md), for this region; a balancer that has just started proves nothing yet"
            return Refusal(404, "no_proof", words)
        exchange.status = 200
        closes = b"connection: close\r\n" if exchange.closes else b""
        return b"HTTP/1.1 200 OK\r\ncache-control: no-store\r\n%b: %b\r\ncontent-length: 0\r\n%b\r\n" % (
            FIELD,
            found,
            closes,
        )

    def renew(self, exchange: Exchange) -> Refusal | None:
        """Have the gate judge a request again; None: it may go on."""
        try:
            return self.gate.renew(exchange)
        except Exception:  # noqa: BLE001 - logged there; the request ends
            return _internal("the gate")

    def admit(self, exchange: Exchange) -> Refusal | None:
        """Offer a request to admission; a refusal, if it is refused at once."""
        try:
            refusal = self.admission.offer(exchange, self.now())
        except Exception:  # noqa: BLE001 - logged there; the request is refused
            return _internal("admission")
        if self.hedging is not None and self.hedging.racing and exchange.phase is WAITING:
            self.hedging.give_way()
        return refusal

    def hedge(self, share: float | None) -> None:
        """Have so much of each service's requests hedged, in (0, 1), from now on; None: none. What is learned stays as long as some are."""
        if share is None or self.hedging is None:
            self.hedging = None if share is None else Hedging(self, share)
        else:
            self.hedging.share = share

    def second(self, exchange: Exchange, tried: tuple[str, ...]) -> SentRequest | None:
        """Have a second backend picked for a request that is late; None: none has room."""
        try:
            return self.picker.second(exchange, tried, self.now())
        except Exception:  # noqa: BLE001 - it is logged; the first one goes on
            _log.exception("the picker failed")
            return None

    def unserved(self, exchange: Exchange) -> Refusal | None:
        """What to say to one that would wait for a slot, where no server has its model: whichever becomes free, it could not have it."""
        looks, model = self.picker.looks_at, exchange.facts.model
        served = looks.served or ()
        if not model or not looks.closed or known_as(model, served) in served:
            return None
        return no_model(model)

    def pick(self, exchange: Exchange, tried: tuple[str, ...]) -> SentRequest | Refusal:
        """Have a backend picked for a request, not one of those that were tried."""
        stats = self.stats
        stats.picks += 1
        try:
            if self.hedging is not None and self.hedging.racing and not self.picker.has_room(exchange, tried):
                self.hedging.give_way()
            if stats.picks % EACH:
                return self.picker.pick(exchange, tried, self.now())
            began = perf_counter()
            found = self.picker.pick(exchange, tried, self.now())
            stats.decision_seconds += perf_counter() - began
            stats.decisions += 1
        except Exception:  # noqa: BLE001 - logged there; the request is refused
            return _internal("the picker")
        else:
            return found

    def failed(self, exchange: Exchange, sent: SentRequest, detail: str) -> None:
        """A backend did not answer, or broke off: it counts no more there."""
        self._tell(sent.flight.end, exchange, "failed")
        exchange.lost = sent
        if sent.push is not None:
            return
        self._tell(self.picker.failed, sent, detail, self.now())
        self.stats.failed(sent.route.url)

    def push(self, exchange: Exchange, refusal: Refusal | None) -> SentRequest | Refusal | None:
        """Find a peer for a request that found no slot; None: it stays."""
        if self.pusher is None:
            return None
        found: SentRequest | Refusal | None = None
        try:
            if self.gate.renew(exchange) is None:
                found = self.pusher.push(exchange, refusal)
        except Exception:  # noqa: BLE001 - it is logged; the request stays
            _log.exception("the pusher failed")
        if found is not None:
            self.withdraw(exchange)
        return found

    def withdraw(self, exchange: Exchange) -> None:
        """A request gives back its slot, or its place in the queue, and goes elsewhere, or is offered again."""
        self._tell(self.admission.withdraw, exchange, self.now())

    def take_from(self, route: Route) -> None:
        """A backend is judged down: unless it is back `MAY_RETURN` seconds later, what waits there now without a byte of its answer is asked of others, those that came first at first, or refused."""
        known = {one for _, _, waiting in self._bereft for one, _ in waiting}
        waiting = [
            (one, sent)
            for client in self._clients
            if (one := client.current) is not None
            and one not in known
            and one.is_bereft(route)
            and (sent := one.sent) is not None
        ]
        if waiting:
            self._bereft.append((self.now() + MAY_RETURN, route, waiting))

    def _take_bereft(self, now: float) -> None:
        while self._bereft and self._bereft[0][0] <= now:
            _, route, waiting = self._bereft.popleft()
            found = [
                one
                for one, sent in waiting
                if one.sent is sent and one.is_bereft(route) and self.picker.is_down(sent)
            ]
            if found:
                self._take(route, found)

    def _take(self, route: Route, found: list[Exchange]) -> None:
        found.sort(key=lambda one: one.began)
        ends: Counter[str] = Counter()
        for one in found:
            self._tell(one.bereft)
            ends["refused" if one.phase is ENDED else "queued" if one.phase is WAITING else "moved"] += 1
        for how, count in ends.items():
            self.stats.rescued(route.url, how, count)
        _log.warning(
            "backend %s: it is judged down: of %d requests that had had nothing of an answer %d were asked of others, %d wait for a slot, %d were refused",
            *(route.url, len(found), ends["moved"], ends["queued"], ends["refused"]),
        )

    def loaded(self, sent: SentRequest, said: bytes) -> None:
        """Tell the picker of the load that a backend has said in an answer's head."""
        if sent.push is None:
            self._tell(self.picker.loaded, sent, said, self.now())

    def taken(self, sent: SentRequest, said: bytes | None, status: int) -> bool:
        """Whether a peer has taken a request, by what its answer says."""
        return self.pusher is None or self.pusher.answered(sent, said, status)

    def may_retry(self, tries: int, *, free: bool = False) -> bool:
        """Whether another backend may be asked: within the tries of one request, and the budget of all.

        `free`: nobody listened at the last one. That cost no server anything, so it takes nothing of the budget.
        """
        if tries >= self.limits.tries or not (free or self._budget.take(self.now())):
            return False
        self.stats.retries += 1
        return True

    def was_full(self, exchange: Exchange, sent: SentRequest) -> None:
        """A backend has said that it is full, and another is asked: the request counts no more there."""
        self._tell(sent.flight.end, exchange, "full")
        self.stats.full[sent.route.url] += 1

    def broke_off(self, exchange: Exchange, sent: SentRequest) -> None:
        """What is behind a region's balancer, or a server's engine, has failed a request, and another is asked: the request counts no more there."""
        exchange.failure = Failure.RESET  # whatever an earlier server did
        self.failed(exchange, sent, "what is behind it did not answer")

    def may_seek(self, tries: int) -> bool:
        """Whether another backend may be asked for what those that were tried have not. It has a budget of its own: who makes ids up takes nothing of others' retries."""
        return tries < min(MOST_SOUGHT, self.picker.usable()) and self._seeking.take(self.now())

    def not_there(self, exchange: Exchange, sent: SentRequest) -> None:
        """A backend has not what the request goes on with, and another is asked: it counts no more there, and as nothing."""
        self._tell(sent.flight.end, exchange, "refused")

    def ended(self, exchange: Exchange, sent: SentRequest | None, how: str, *, offered: bool) -> None:
        """A request has ended, however. Who fails to hear it keeps nobody else from hearing it."""
        now = self.now()
        self.ending += 1
        if how == "answered":
            self._budget.requested()
            self._seeking.requested()
        try:
            if sent is not None:
                sent.flight.end(exchange, how)
        except Exception:  # noqa: BLE001 - it is logged
            _log.exception("the picker did not hear of an end")
        try:
            if offered:
                self.admission.ended(exchange, now)
        except Exception:  # noqa: BLE001 - it is logged
            _log.exception("admission did not hear of an end")
        had = exchange.lost if how == "broken" else sent  # let go of before its end was told
        if exchange.refusal is not None and how == "cancelled" and not exchange.status:
            how, exchange.status = "refused", exchange.refusal.status  # its body could not be read
        url = "" if had is None or had.push is not None else had.route.url
        if exchange.full and url:
            self.stats.full[url] += 1
        self.stats.ended(exchange, url, how, now)
        if self.log is not None:
            self._tell(self.log.ended, exchange, sent or exchange.lost, how, now)
        if self.tracer is not None and exchange.span is not None:
            self.tracer.ended(exchange.span, exchange, "" if sent is None else sent.route.url, how, now)
        self.ending -= 1

    def unread(self, client: Downstream, refusal: Refusal, target: bytes) -> None:
        """A request was refused of which there is no exchange: it could not be read, but for this of its target."""
        if self.log is not None:
            self._tell(self.log.unread, client, refusal, target)

    def added(self, exchange: Exchange, push: PushedRequest | None) -> bytes | Refusal:
        """Header lines of gtm's own for the backend, or why it is not sent there: the law may be another than when it came."""
        try:
            before = exchange.verdict
            refusal = self.gate.renew(exchange)
            if refusal is not None:
                return refusal
            if push is not None and exchange.verdict is not before:  # the peer was chosen by what is over
                return Refusal(503, "law_changed", "the law has changed meanwhile: try again", retry_after=1)
            more = self.gate.more_headers(exchange)
            if self.asks and push is None:
                more += self.asks
        except Exception:  # noqa: BLE001 - it is logged
            return _internal("the gate")
        if exchange.span is None:
            return more
        head = exchange.head
        exchange.head = replace(
            head, lines=[line for line in head.lines if line[:12].lower() != b"traceparent:"]
        )
        return more + written(exchange.span.context)

    def said(self, exchange: Exchange, sent: SentRequest | None, response: ResponseHead) -> bytes:
        """Header lines of gtm's own for the client.

        Which region serves it; to a balancer that pushed it, that it was taken; another model than it asked for; how long it was in the
        queue, if it was (W3C Server Timing).
        """
        if sent is not None and sent.push is not None:
            model = response.seen.get(b"x-gtm-model")
            more = b"" if model is None else b"x-gtm-model: %b\r\n" % model
            return b"x-gtm-region: %b\r\n%b" % (sent.push.region.encode(), more)
        said = self._said + b"gtm-push: taken\r\n" if b"gtm-push" in exchange.head.seen else self._said
        if exchange.fallback:
            said += b"x-gtm-model: %b\r\n" % quote(exchange.fallback, safe="/:").encode()
        if response.status == 401 and _lost_its_key(exchange):
            said += _KEY_LOST
        if exchange.waited:
            said += b"server-timing: queue;dur=%.1f\r\n" % (1000 * exchange.waited)
        return said


_SHOWN = 64
"""Characters of a field's value that a refusal repeats."""
_KEY_LOST = (
    b"x-gtm-hint: this request came by a redirect, on which HTTP clients leave Authorization out; ask by the service's DNS name, by a look-up, or "
    b"through an edge that carries (answer: carry)\r\n"
)


def _lost_its_key(exchange: Exchange) -> bool:
    """Whether a request without a key came by a redirect, as its handoff says: clients leave their keys out there (docs/api.md)."""
    verdict, seen = exchange.verdict, exchange.head.seen
    believed = verdict.believed if isinstance(verdict, Verdict) else None
    by_redirect = believed is not None and believed.once and not believed.carried
    return by_redirect and not any(name in seen for name in KEYS)


def misstatement(head: RequestHead) -> Refusal | None:
    """What a client states of its patience or its priority that nobody can read; None: nothing."""
    seen = head.seen
    if TIMEOUT in seen:
        try:
            Timeouts().within(seen[TIMEOUT])
        except ValueError as error:
            return Refusal(400, "timeout_unread", f"`gtm-timeout` {error}")
    if PRIORITY in seen and priority_of(seen[PRIORITY]) is None:
        known = ", ".join(priority.value for priority in Priority)
        said = seen[PRIORITY].decode("latin-1")[:_SHOWN]
        return Refusal(400, "priority_unread", f"`gtm-priority` is `{said}`; it can be {known}")
    return None


def _internal(whose: str) -> Refusal:
    _log.exception("%s failed", whose)
    return Refusal(500, "internal", "an error of gtm's own: the request was not sent to a backend")
