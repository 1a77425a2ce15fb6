"""How an edge's HTTP worker carries requests to regions (docs/carry.md): the data plane of gtm's balancers, with the edge's decision in front.

    client ─▶ DirectProtocol ─head of a carried service─▶ CarriedConnection ─▶ Exchange ─▶ region's endpoint
                   ▲                                             │
                   └────────── the request is answered ──────────┘

What an exchange asks, the edge answers in its own way: `EdgeProxy.judge` decides as for a redirect, and whether the law lets this edge read the
request (`gtm.core.decision.carry`); everything is admitted at once; `RegionPicker` goes where the decision said, and after a failure where it
would have said with that region down.

Laws:
  1. Where a request goes was made from its fence (`CarriedRequest.place`), before and after a failure.
  2. No more of a request is carried once the law of now keeps it from here, or from where it goes (`EdgeGate.renew`).
  3. A request goes to another region only while nothing of an answer came and all of its body that came is kept (`may_ask_another`).
  4. What clients send reaches only servers that show a certificate of the endpoint's name, prove to be balancers of the region, or stand in a
     network that the edge's operator trusts (`PeerRoute`).
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from http import HTTPStatus
from urllib.parse import quote, urlsplit

from gtm.balancer.plane.backend.backends import PeerRoute, Route
from gtm.balancer.plane.client.downstream import Downstream
from gtm.balancer.plane.contracts import ConnectionKeeper, Limits, Looks, SentRequest
from gtm.balancer.plane.exchange import Exchange
from gtm.balancer.plane.proxy import Proxy, misstatement
from gtm.balancer.plane.timeouts import FIELD as TIMEOUT
from gtm.balancer.wire.facts import PromptCut
from gtm.balancer.wire.heads import PRIORITY, RequestHead, accepted
from gtm.balancer.wire.refusals import Refusal
from gtm.balancer.wire.responses import ResponseHead
from gtm.core.balance.health.values import Failure
from gtm.core.model.cors import Cors
from gtm.feed.current import CurrentView
from gtm.handoff import carried as handoffs
from gtm.http.answers.routes import CarriedRequest, EdgeHandoffs
from gtm.http.app import EdgeApp
from gtm.http.problems import Response
from gtm.http.requests.incoming import Incoming
from gtm.runtime.process.http import DirectProtocol, HandedConnection, Lines
from gtm.settings import Network
from gtm.telemetry import Counts

logger = logging.getLogger(__name__)

REPLAY = 1024 * 1024
"""Bytes of a body that are kept until a region answers, so that another may be asked."""
IDLE = 30.0
"""Seconds after which a connection to a region that waits is closed: balancers wait for longer."""
SHUNNED = 1.0
"""Seconds for which an endpoint is asked last that took no connection."""
UNPROVEN = 10.0
"""The same of one that did not prove to be a balancer: a new one's key is published within a second of its start."""
LIMITS = Limits(retry_share=1.0, retries_free=1000.0)
"""A region that fails breaks all requests that it has at once, and others take them: each request is asked again once at the most in the mean."""
MOST_HOPS = 8
"""Times that a request may have gone through gtm (`Via`): an edge, a balancer, one that it is pushed to, and as many of somebody else's again."""
_PUSH = b"gtm-push"
_OF_CLIENTS = (TIMEOUT, PRIORITY)
"""What clients say to the region's balancer."""


@dataclass(slots=True, eq=False)
class CarriedVerdict:
    """What an edge found of a request that it carries; `incoming` is what it was decided by, `token` the handoff that goes with it."""

    incoming: Incoming
    carried: CarriedRequest
    by_host: bool
    """It came by a host name of the policy, which the region's balancer knows the service by."""
    token: bytes = b""


class CarriedConnection(Downstream, HandedConnection):
    """A client's connection while a request of it is carried."""

    __slots__ = ("_of", "_parses", "first")

    def __init__(self, proxy: Proxy, of: DirectProtocol) -> None:
        super().__init__(proxy, secure=of.scheme == "https")
        self._of = of
        self._parses = False
        """What came is being parsed: an answer may be complete before all that came with its request is."""
        self.first = True
        """Its next request is the one that it was handed over for."""

    def finished(self, exchange: Exchange, *, keep_alive: bool) -> None:
        """The answer is complete: the connection goes back, if it goes on."""
        if self._current is exchange and not exchange.status:  # it got none (`EdgeProxy.judge`)
            self._current = None
            self._linger()  # its client expects no end, and may be sending
            return
        super().finished(exchange, keep_alive=keep_alive)
        if not self._parses:
            self._give_back()

    def _feed(self, data: bytes) -> None:
        self._parses = True
        super()._feed(data)
        self._parses = False
        self._give_back()

    def _give_back(self) -> None:
        if self._ended or self._current is not None or self._refusal is not None or self.in_head:
            return
        unread, self._unread = bytes(self._unread), bytearray()
        self.regulate(full=False)
        self._ended = True
        self.proxy.left(self)
        self._of.take_back(unread, writable=self.writable)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection has ended."""
        super().connection_lost(exc)
        self._of.connection_lost(exc)


class OpenAdmission:
    """Admits everything at once: a region's balancer says what it has no room for."""

    has_waiting = False

    def offer(self, exchange: Exchange, now: float) -> None:  # noqa: ARG002 - the contract
        """Let a request go on."""
        exchange.admitted()

    def ended(self, exchange: Exchange, now: float) -> None:
        """A request has ended."""

    def withdraw(self, exchange: Exchange, now: float) -> None:
        """A request goes elsewhere."""

    def tick(self, now: float) -> None:
        """Time has passed."""


class CarriedFlight:
    """A request at a region."""

    __slots__ = ("_counts", "_ended", "region")

    def __init__(self, counts: Counts, region: str) -> None:
        self._counts = counts
        self._ended = False
        self.region = region

    def end(self, exchange: Exchange, how: str) -> None:  # noqa: ARG002 - the contract
        """Count how it ended there."""
        if not self._ended:
            self._ended = True
            self._counts.add(f"gtm_edge_carried_total\t{self.region}\t{how}")


class RegionPicker:
    """Says to which region's endpoint a request goes.

    Args:
        current: the View.
        handoffs: signs.
        counts: where ends are counted.
        now: monotonic seconds.
        allowed: networks that are connected to whatever they are (`gtm.destinations`).
        trusted: networks of servers that see requests over plain HTTP without a proof.
        tls: what an https endpoint must show.
    """

    looks_at = Looks(hints=False)
    cut: PromptCut | None = None

    def __init__(
        self,
        current: CurrentView,
        handoffs: EdgeHandoffs,
        counts: Counts,
        now: Callable[[], float],
        *,
        allowed: tuple[Network, ...],
        trusted: tuple[Network, ...],
        tls: Callable[[], ssl.SSLContext],
    ) -> None:
        self._current = current
        self._handoffs = handoffs
        self._counts = counts
        self._now = now
        self._allowed = allowed
        self._trusted = (*allowed, *trusted)
        self._tls = tls
        self._routes: dict[tuple[str, str], PeerRoute] = {}
        """By URL and region: who is there proves to be a balancer of the region."""
        self._shunned: dict[str, float] = {}
        self._down: dict[str, float] = {}
        self._unproved: Counter[str] = Counter()
        """How often each was shunned since it had proven nothing."""
        self._snapshot: object = None

    def pick(self, exchange: Exchange, tried: tuple[str, ...], now: float) -> SentRequest | Refusal:
        """The endpoint of the region that was decided on, or of another one where that failed."""
        verdict = exchange.verdict
        assert isinstance(verdict, CarriedVerdict)  # noqa: S101 - nothing else is admitted
        self._forget()
        carried, decided = verdict.carried, verdict.carried.option
        before = decided.region
        shunned = [url for url, until in self._shunned.items() if until > now]
        endpoint = carried.place({*tried, *shunned}) if tried or shunned else carried.place(())
        if endpoint is None and shunned:
            endpoint = carried.place(tried)
        if endpoint is None:
            words = f"region `{before}` did not answer, and no other region is usable in which this request may be served: try again"
            return Refusal(502, "region_failed", words, retry_after=1)
        option = carried.option
        token = self._handoffs.of_carried(carried.resolved.routing, option, carried.route.handoffs)
        if token is None:
            carried.option = decided
            words = "the law is about to change, or this edge has no key yet: try again"
            return Refusal(503, "no_handoff", words, retry_after=1)
        verdict.token = token
        # A certificate of the endpoint's name says nothing of what stands there under the service's.
        if not verdict.by_host or endpoint.url.startswith("https:"):
            exchange.head.host = urlsplit(endpoint.url).netloc.encode()
        region = option.region or ""
        if tried and region != before:
            self._counts.add(f"gtm_edge_carried_elsewhere_total\t{before}\t{region}")
        return SentRequest(self._route(endpoint.url, region), CarriedFlight(self._counts, region))

    def failed(self, sent: SentRequest, detail: str, now: float) -> None:
        """A region did not answer: its probes say whether it is down."""

    def shun(self, url: str, seconds: float) -> None:
        """Ask an endpoint last for a while."""
        until = self._now() + seconds
        self._shunned[url] = max(until, self._shunned.get(url, until))

    def is_down(self, sent: SentRequest) -> bool:  # noqa: ARG002 - the contract
        """No: who fails is asked last."""
        return False

    def second(self, exchange: Exchange, tried: tuple[str, ...], now: float) -> None:
        """None: no request is at two regions at once."""

    def has_room(self, exchange: Exchange, tried: tuple[str, ...]) -> bool:  # noqa: ARG002 - the contract
        """Yes: regions have queues of their own."""
        return True

    def failing_since(self, sent: SentRequest) -> float | None:
        """Since when the endpoint is known not to be up; None: it is."""
        router, url = self._current.router, sent.route.url
        up = router is not None and any(
            one.url == url for several in router.view.endpoints for one in several
        )
        if up:
            self._down.pop(url, None)
            return None
        return self._down.setdefault(url, self._now())

    def silent(self, sent: SentRequest, since: float, now: float) -> None:
        """A request waits: that is the region's own matter."""

    def loaded(self, sent: SentRequest, said: bytes, now: float) -> None:
        """A region's load is told by its balancers."""

    def usable(self) -> int:
        """Say how many endpoints are up."""
        router = self._current.router
        return 0 if router is None else sum(map(len, router.view.endpoints))

    def routes(self) -> tuple[Route, ...]:
        """The ways to all that were asked."""
        return tuple(self._routes.values())

    def _route(self, url: str, region: str) -> PeerRoute:
        route = self._routes.get((url, region))
        if route is None:
            route = self._routes[url, region] = PeerRoute(
                url,
                region,
                lambda: self._current.handoff_keys,
                allowed=self._allowed,
                tls=self._tls,
                idle=IDLE,
                unproven=self._unproven,
                trusted=self._trusted,
                who="edge",
            )
        return route

    def _unproven(self, url: str, why: str) -> None:
        if self._shunned.get(url, 0.0) <= self._now() + SHUNNED:
            self._unproved[url] += 1
            if self._unproved[url] & (self._unproved[url] - 1) == 0:  # the 1st, 2nd, 4th, 8th … time
                logger.warning(
                    "nothing is carried to %s for %d s: %s; use https there, a balancer of gtm's, or name its network in --carry-trust",
                    url,
                    UNPROVEN,
                    why,
                )
        self.shun(url, UNPROVEN)

    def _forget(self) -> None:
        """Close ways to endpoints that are in no policy any more."""
        router = self._current.router
        snapshot = None if router is None else router.view.snapshot
        if snapshot is self._snapshot or snapshot is None:
            return
        self._snapshot = snapshot
        known = {(one.url, region.name) for region in snapshot.regions for one in region.endpoints}
        for way in [way for way in self._routes if way not in known]:
            self._routes.pop(way).close()
        self._shunned, self._down, self._unproved = {}, {}, Counter()


class EdgeGate:
    """What an exchange asks of the law.

    Args:
        app: decides.
    """

    def __init__(self, app: EdgeApp) -> None:
        self._app = app

    def judge(self, exchange: Exchange, now: float) -> Refusal | None:
        """Whatever is carried has been decided by `EdgeProxy.judge`."""

    def renew(self, exchange: Exchange) -> Refusal | None:
        """Ask the law of now about a request that is on its way."""
        verdict = exchange.verdict
        if not isinstance(verdict, CarriedVerdict) or self._app.is_still_carried(
            verdict.incoming, verdict.carried
        ):
            return None
        return Refusal(503, "law_changed", "the law has changed meanwhile: try again", retry_after=1)

    def unready(self) -> str:
        """Nothing that carries is asked."""
        return ""

    def client(self, exchange: Exchange) -> bytes:
        """The client's address in network order, empty if it is unknown."""
        verdict = exchange.verdict
        return verdict.carried.resolved.routing.client if isinstance(verdict, CarriedVerdict) else b""

    def cors(self, exchange: Exchange) -> Cors | None:
        """Which pages may read the edge's own answers."""
        verdict = exchange.verdict
        return verdict.carried.resolved.cors if isinstance(verdict, CarriedVerdict) else None

    def more_headers(self, exchange: Exchange) -> bytes:
        """Who the client is, and the handoff that says it to the region's balancer."""
        verdict, peer = exchange.verdict, (exchange.client.peer or "unknown").encode()
        assert isinstance(verdict, CarriedVerdict)  # noqa: S101 - nothing else is sent
        seen = exchange.head.seen
        before = seen.get(b"x-forwarded-for") if exchange.proxy.trusts(exchange.client.peer) else None
        lines = (
            b"x-forwarded-for: %b\r\nx-forwarded-proto: %b\r\nx-forwarded-host: %b\r\n%b: %b\r\n%b: 1\r\n"
            % (
                peer if before is None else b"%b, %b" % (before, peer),
                b"https" if exchange.client.secure else b"http",
                verdict.incoming.headers[b"host"],
                handoffs.HEADER,
                verdict.token,
                _PUSH,
            )
        )
        return lines + b"".join(b"%b: %b\r\n" % (name, seen[name]) for name in _OF_CLIENTS if name in seen)


def _accepts(head: RequestHead) -> Iterator[tuple[bytes, bytes]]:
    """What its client takes, as a header: read where a refusal's form goes by it."""
    yield b"accept", accepted(head.lines)


class EdgeProxy(Proxy):
    """What all connections share whose requests are carried.

    Args:
        app: decides.
        picker: says where to.
        counts: where requests are counted.
        room: says which connection goes for another.
        loop: the event loop.
        trusts: whether a peer is a proxy of the operator's.
    """

    def __init__(
        self,
        app: EdgeApp,
        picker: RegionPicker,
        counts: Counts,
        *,
        room: ConnectionKeeper,
        loop: asyncio.AbstractEventLoop,
        trusts: Callable[[str | None], bool],
    ) -> None:
        gate = EdgeGate(app)
        super().__init__(
            gate,
            OpenAdmission(),
            picker,
            room=room,
            loop=loop,
            region="",
            limits=LIMITS,
            trusts=trusts,
            replay=REPLAY,
            repeats=True,
        )
        self._app = app
        self._regions = picker
        self._counts = counts

    def judge(self, exchange: Exchange) -> bytes | Refusal | None:
        """A request's answer if it is not carried; None if it is."""
        head, client = exchange.head, exchange.client
        incoming = Incoming(
            head.method.decode("ascii"), head.target, _accepts(head), client.peer, head.version
        )
        incoming.headers = {**head.seen, b"host": head.host}
        if isinstance(client, CarriedConnection) and client.first:
            client.first = False
        elif not self._app.carries(head.target, ((b"host", head.host), *head.seen.items())):
            # It came right behind one that was carried: its client asks again.
            exchange.head = replace(head, keep_alive=False)
            return b""
        if head.seen.get(b"via", b"").count(b" gtm") >= MOST_HOPS:
            words = f"this request has gone through gtm {MOST_HOPS} times: a region's endpoint leads back to an edge"
            return self._unjudged(Refusal(508, "loop", words))
        if (misstated := misstatement(head)) is not None:
            return self._unjudged(misstated)
        ended, rest = self._app.carried(incoming)
        if isinstance(ended, Response):
            if ended.head.closes:
                exchange.head = replace(head, keep_alive=False)
            exchange.status = ended.head.status
            return _written(ended, closes=exchange.closes, head_only=head.method == b"HEAD")
        self._counts.add(ended.counted_as)
        query = handoffs.without(incoming.query)
        exchange.verdict = CarriedVerdict(incoming, ended, by_host=rest == incoming.raw_path)
        exchange.head = replace(head, target=b"%b?%b" % (rest, query) if query else rest)
        return None

    def _unjudged(self, refusal: Refusal) -> Refusal:
        """Count a request that is refused before anything is decided for it."""
        self._counts.add(f"gtm_http_requests_total\tcarry\t{refusal.status}")
        return refusal

    def failed(self, exchange: Exchange, sent: SentRequest, detail: str) -> None:
        """A region did not answer, or broke off."""
        super().failed(exchange, sent, detail)
        if exchange.failure is Failure.CONNECT:
            self._regions.shun(sent.route.url, SHUNNED)

    def said(
        self,
        exchange: Exchange,
        sent: SentRequest | None,  # noqa: ARG002 - the contract
        response: ResponseHead,
    ) -> bytes:
        """Which region serves it, as its balancer says or the edge decided, and why."""
        verdict = exchange.verdict
        assert isinstance(verdict, CarriedVerdict)  # noqa: S101 - nothing else is answered by a region
        option, seen = verdict.carried.option, response.seen
        own = quote(option.region or "").encode()
        said = b"x-gtm-region: %b\r\nx-gtm-reason: %b\r\nx-gtm-revision: %d\r\n" % (
            seen.get(b"x-gtm-region", own),
            option.reason.value.encode(),
            verdict.carried.resolved.routing.view.snapshot.revision,
        )
        model = seen.get(b"x-gtm-model")
        return said if model is None else said + b"x-gtm-model: %b\r\n" % model

    def ended(self, exchange: Exchange, sent: SentRequest | None, how: str, *, offered: bool) -> None:
        """A request has ended, however."""
        super().ended(exchange, sent, how, offered=offered)
        if isinstance(exchange.verdict, CarriedVerdict):
            self._counts.add(f"gtm_http_requests_total\tcarry\t{exchange.status or 499}")


class EdgeCarrier:
    """Carries for one worker.

    Args:
        app: decides.
        current: the View.
        handoffs: signs.
        counts: where requests are counted.
        room: says which connection goes for another.
        loop: the event loop.
        trusts: whether a peer is a proxy of the operator's.
        allowed: networks that are connected to whatever they are.
        trusted: networks of servers that see requests over plain HTTP without a proof.
        tls: what an https endpoint must show.
    """

    def __init__(
        self,
        app: EdgeApp,
        current: CurrentView,
        handoffs: EdgeHandoffs,
        counts: Counts,
        *,
        room: ConnectionKeeper,
        loop: asyncio.AbstractEventLoop,
        trusts: Callable[[str | None], bool],
        allowed: tuple[Network, ...] = (),
        trusted: tuple[Network, ...] = (),
        tls: Callable[[], ssl.SSLContext] = ssl.create_default_context,
    ) -> None:
        self.wants: Callable[[bytes, Lines], bool] = app.carries
        picker = RegionPicker(current, handoffs, counts, loop.time, allowed=allowed, trusted=trusted, tls=tls)
        self.proxy = EdgeProxy(app, picker, counts, room=room, loop=loop, trusts=trusts)
        self.proxy.start()

    def take(self, connection: DirectProtocol) -> CarriedConnection:
        """What reads a connection from now on."""
        return CarriedConnection(self.proxy, connection)

    def drain(self) -> None:
        """Take no further request on any connection: those that are carried are answered."""
        self.proxy.drain()

    def close(self) -> None:
        """Break off what is still carried: no client may take it for whole."""
        self.proxy.close()


def _written(response: Response, *, closes: bool, head_only: bool) -> bytes:
    """The bytes of an answer of the edge's own."""
    head = response.head
    length = b"" if head.status == 204 else b"content-length: %d\r\n" % len(response.body)
    return b"HTTP/1.1 %d %b\r\n%b%b%b\r\n%b" % (
        head.status,
        HTTPStatus(head.status).phrase.encode(),
        head.lines,
        length,
        b"connection: close\r\n" if closes and not head.closes else b"",
        b"" if head_only else response.body,
    )
