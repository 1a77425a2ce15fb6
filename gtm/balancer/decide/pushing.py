"""Requests that find no slot here, pushed to a peer region that has some: `gtm.core.balance.spill.push` over connections of this process.

Laws:
  1. A push goes where the gate's verdict reaches (`Verdict.reach`) and the class's ways lead, and nowhere else; `onward` checks it again.
  2. A push is signed by a key of this balancer's that is published, or does not happen: no peer would believe it.
  3. What owes a quota takes a token of it, or does not happen.
  4. A client that is sent on (`push: redirect`) has a handoff of one hop in its link: nobody pushes it further.
  5. Who has not proven to be a balancer of the peer's region sees nothing of a request, and no address is connected to that probes would not
     (`gtm.balancer.plane.backend.backends`).
  6. A peer that does not take a push leaves the request where it was: it waits here, unless some backend may have begun it.

A peer says whether it takes a push, in a field of its answer that no client gets: `taken`, or `not-taken` where it was refused before any
backend had it. One that says nothing has not understood that it was a push; it is left alone for a while.
"""

from __future__ import annotations

import logging
import os
import random
import ssl
from base64 import urlsafe_b64encode
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from math import inf
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from gtm.balancer.decide.gate import PUSH, OwnHandoffs
from gtm.balancer.plane.backend.backends import PeerRoute, Route
from gtm.balancer.plane.contracts import PushedRequest, SentRequest
from gtm.balancer.wire.refusals import Refusal
from gtm.core.balance.admission.values import RefusalCode, Ticket, TicketState
from gtm.core.balance.serving import known_as
from gtm.core.balance.spill.edge import counted_at, owed, ways
from gtm.core.balance.spill.push import PushPeer, expected_wait, push
from gtm.core.balance.spill.room import (
    FAILED,
    OpenSlots,
    Sender,
    SentBeyond,
    Slots,
    SpillReason,
    standing,
    wanting,
)
from gtm.core.decision.decide import Routing
from gtm.core.decision.options import endpoint_for
from gtm.core.decision.ranking import RankingClass
from gtm.core.decision.view import View
from gtm.core.handoff.judge import onward
from gtm.core.handoff.verdict import Verdict
from gtm.core.model.names import host_name
from gtm.core.model.outcomes import Reason
from gtm.core.model.requests import Location
from gtm.core.model.services import Push
from gtm.core.quota.names import QuotaText
from gtm.destinations import Network
from gtm.feed.current import CurrentView
from gtm.handoff import carried
from gtm.handoff.carried import HEADER

if TYPE_CHECKING:
    from gtm.balancer.plane.exchange import Exchange

logger = logging.getLogger(__name__)

IDLE = 30.0
"""Seconds after which a connection to a peer that waits is closed: a balancer waits for longer."""
SHUNNED = 2.0
"""Seconds for which a peer's endpoint is left alone that failed, or did not take a push: until what it says of its slots is new."""
MISUNDERSTOOD = 60.0
"""The same of one that did not say that it had understood."""
_REMEMBERED = 4096
"""Classes whose ways are remembered, for as long as a View lasts."""
_TRIPS = 3
"""Round trips that a client needs which is sent on: it connects anew, with TLS."""
_NONCE = 12
"""Random bytes of a nonce."""
_OF_LAWS = (421, 451)
"""Statuses of a peer that goes by another law or other keys than this balancer."""
_FOR_WANT_OF_ROOM = frozenset(
    (RefusalCode.QUEUE_FULL.value, RefusalCode.WAIT_TOO_LONG.value, RefusalCode.NO_BACKEND.value)
)
NO_KEY = "no_key"
"""Beside the codes of `SpillReason`: no key of this balancer's is published yet."""
NO_HANDOFF = "no_handoff"
"""None can be made: what this follows from is over within the second."""
REDIRECTED = "redirected"
"""Moved, by an answer that sends the client there."""


class _To(NamedTuple):
    """A region as an outcome that names it, for the choice of its endpoint."""

    number: int
    reason: Reason = Reason.SPILLOVER


class _Flight:
    """A request at a peer."""

    __slots__ = ("_ended", "_pusher", "for_itself", "region", "service", "url")

    def __init__(self, pusher: PeerPusher, service: str, region: str, url: str) -> None:
        self._pusher = pusher
        self._ended = False
        self.for_itself = False
        """The peer has refused it for what it is (a model that it has not, a tenant's limit): which says nothing of the next one."""
        self.service = service
        self.region = region
        self.url = url

    def end(self, exchange: Exchange, how: str) -> None:  # noqa: ARG002 - the contract
        """Count the request no more among those that the peer has."""
        if not self._ended:
            self._ended = True
            self._pusher.landed(self, how)


@dataclass(eq=False, repr=False)
class PeerPusher:
    """See above.

    Args:
        current: the View, and what regions say of their slots.
        region: this balancer's.
        name: this balancer's.
        own: signs.
        slots: how many there are here, how many of them are free and how many requests wait, without the one that is asked for;
            None: nobody knows.
        service_s: mean seconds that a request holds a slot.
        afford: takes one token of each quota, or none and says no.
        allowed: networks that are connected to whatever they are (`gtm.destinations`).
        tls: what an https endpoint must show, asked for when there is one.
        now: monotonic seconds.
        siblings: how many such processes this balancer has.
    """

    current: CurrentView
    region: str
    name: str
    own: OwnHandoffs
    _: KW_ONLY
    slots: Callable[[], Slots | None]
    service_s: Callable[[], float]
    afford: Callable[[tuple[QuotaText, ...]], bool]
    now: Callable[[], float]
    allowed: tuple[Network, ...] = ()
    tls: Callable[[], ssl.SSLContext] = ssl.create_default_context
    siblings: int = 1
    draw: Callable[[], float] = random.random

    def __post_init__(self) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()
        """Requests that found no slot, by the region that took them (empty: none) and why."""
        self.pushes: Counter[str] = Counter()
        """The same, for control: service, region and why, tabs between."""
        self.in_flight: Counter[str] = Counter()
        """Requests at peers, by region."""
        self.unproven: Counter[str] = Counter()
        """Connections to peers' endpoints on which nothing was sent, for who is there did not prove to be a balancer."""
        self._sent = SentBeyond()
        self._routes: dict[tuple[str, str], Route] = {}
        self._shunned: dict[str, float] = {}
        self._heard: object = None
        self._wanting = 1
        self._view: View | None = None
        self._ways: dict[RankingClass, tuple[PushPeer, ...]] = {}
        self._extra: dict[int, float] = {}

    # --- for the proxy ---

    def push(self, exchange: Exchange, refusal: Refusal | None) -> SentRequest | Refusal | None:
        """Find a peer for a request that waits, or is to be refused so; None: it stays."""
        verdict = exchange.verdict
        if not isinstance(verdict, Verdict) or verdict.routing is None or not self._asks(exchange, refusal):
            return None
        routing = verdict.routing
        how = routing.ranking.group.service.service.push
        if how is Push.NEVER:
            return None
        hops = 0 if verdict.believed is None else verdict.believed.hop
        if not hops and not self.own.signs:
            self._count(routing, "", NO_KEY)
            return None
        view = self._present(routing.view)
        peers = self._peers(view, routing, verdict.reach, exchange.facts.model)
        head = exchange.head
        link = how is Push.REDIRECT and not head.upgrade and head.target[:1] == b"/"
        if link:
            peers = [peer._replace(extra_s=_TRIPS * peer.extra_s) for peer in peers]
        current = self.current
        part = exchange.facts.model or routing.request.service
        sender = Sender(lambda number: self._known(number, part), self._sent, self._share(), self.afford)
        wait = self._wait() if refusal is None else inf
        found = push(wait, hops, peers, sender, current.boot(), draws=(self.draw(), self.draw()))
        if found.peer is None:
            self._count(routing, "", found.why.value)
            return None
        return self._to(exchange, verdict, view, routing, found.peer.number, link=link)

    def answered(self, sent: SentRequest, said: bytes | None, status: int) -> bool:
        """Whether a peer took a push, by what its answer says of it."""
        if said is None:
            self._shunned[sent.route.url] = self.now() + MISUNDERSTOOD
        elif isinstance(sent.flight, _Flight):
            sent.flight.for_itself = 400 <= status < 500 and status not in _OF_LAWS
        return said != PUSH_NOT_TAKEN

    def proof(self, asked: bytes) -> bytes | None:
        """What proves to a peer that this is a balancer of its region; None: nothing does, or somebody else is asked for."""
        return self.own.proof(asked, self.region)

    def _unproven(self, url: str, why: str) -> None:
        """Leave an endpoint alone; its region's operator, or this one's, must hear why."""
        self._shunned[url] = self.now() + MISUNDERSTOOD
        self.unproven[url] += 1
        if self.unproven[url] & (self.unproven[url] - 1) == 0:  # the 1st, 2nd, 4th, 8th … time
            logger.warning("nothing is pushed to %s for %d s: %s", url, MISUNDERSTOOD, why)

    def routes(self) -> tuple[Route, ...]:
        """The ways to all peers."""
        return tuple(self._routes.values())

    def landed(self, flight: _Flight, how: str) -> None:
        """A request has ended at a peer."""
        self.in_flight[flight.region] -= 1
        if how == "failed":
            self.counts[flight.region, FAILED] += 1
            self.pushes[f"{flight.service}\t{flight.region}\t{FAILED}"] += 1
            if flight.for_itself:
                return
            until = self.now() + SHUNNED
            self._shunned[flight.url] = max(until, self._shunned.get(flight.url, until))

    def _count(self, routing: Routing, region: str, why: str) -> None:
        self.counts[region, why] += 1
        self.pushes[f"{routing.request.service}\t{region}\t{why}"] += 1

    # --- whether ---

    @staticmethod
    def _asks(exchange: Exchange, refusal: Refusal | None) -> bool:
        """Whether it is room that a request lacks."""
        if refusal is None:
            ticket = exchange.admission
            return isinstance(ticket, Ticket) and ticket.state is TicketState.WAITING
        return refusal.status == 503 and (
            refusal.code in _FOR_WANT_OF_ROOM or refusal.code.startswith("backends_")
        )

    def _wait(self) -> float:
        """Seconds that one more request is expected to wait here. Slots that are free are kept for others: it waits."""
        slots = self.slots()
        return (
            inf if slots is None else expected_wait(Slots(0.0, slots.limit, slots.waiting), self.service_s())
        )

    def _share(self) -> float:
        """Of what is open elsewhere: one part in as many as there are that may want to send, by tokens, and then by those of this one's."""
        rooms = self.current.rooms
        if rooms is not self._heard:
            self._heard = rooms
            every = (room for several in rooms.values() for room in several)
            current = self.current
            self._wanting = wanting(every, current.senders, current.boot()) * current.beside
        return 1 / (self._wanting * self.siblings)

    def _known(self, number: int, part: str) -> OpenSlots | None:
        current = self.current
        view = self._view
        if view is None:
            return None
        region = view.snapshot.regions[number]
        rooms = current.rooms.get(region.name)
        return None if rooms is None else standing(rooms, part, current.boot(), region.capacity.outstanding)

    # --- where ---

    def _present(self, judged: View) -> View:
        """The View of now, where only the world's state has changed since a request was judged: else the one that its verdict is of."""
        router = self.current.router
        return router.view if router is not None and router.view.basis is judged.basis else judged

    def _peers(self, view: View, routing: Routing, reach: int, model: str | None) -> Sequence[PushPeer]:
        """Where a request may be pushed. A model that only its body names counts, if the policy knows it."""
        group = routing.ranking.group
        if view is not self._view:
            self._view, self._ways, self._extra = view, {}, {}
            self._forget(view)
        found = self._ways.get(group)
        if found is None:
            if len(self._ways) >= _REMEMBERED:
                self._ways = {}
            found = self._ways[group] = tuple(self._made(view, group))
        snapshot, now = view.snapshot, self.now()
        wanted = None if model is None else known_as(model, snapshot.models)
        if wanted not in snapshot.models:
            wanted = None
        return [
            peer
            for peer in found
            if reach >> peer.number & 1
            and (wanted is None or wanted in snapshot.regions[peer.number].models)
            and not all(self._shunned.get(one.url, 0.0) > now for one in view.endpoints[peer.number])
        ]

    def _made(self, view: View, group: RankingClass) -> list[PushPeer]:
        here = view.snapshot.region_numbers.get(self.region)
        every = ways(view, group, self.name)
        counted = counted_at(view, group, every, here)
        return [
            PushPeer(way.number, self._extra_s(view, here, way.number), owed(way.quotas, counted), way.key)
            for way in every
            if way.number != here
        ]

    def _extra_s(self, view: View, here: int | None, number: int) -> float:
        """The round trip to another region, in seconds: as of a client that stands where this region does."""
        if here is None:
            return inf
        if not self._extra:
            regions = view.snapshot.regions
            own = regions[here]
            place = Location(own.country, lat=own.lat, lon=own.lon)
            paths = view.basis.estimator.paths(place, tuple(range(len(regions))))
            self._extra = {other: path.estimate_ms / 1000 for other, path in paths.items()}
        return self._extra.get(number, inf)

    def _forget(self, view: View) -> None:
        """Close ways to endpoints that are in no policy any more."""
        ways = {(one.url, region.name) for region in view.snapshot.regions for one in region.endpoints}
        for way in [way for way in self._routes if way not in ways]:
            self._routes.pop(way).close()
        known = {url for url, _ in ways}
        now = self.now()
        self._shunned = {url: until for url, until in self._shunned.items() if until > now}
        self.unproven = Counter({url: count for url, count in self.unproven.items() if url in known})

    # --- how ---

    def _to(
        self, exchange: Exchange, verdict: Verdict, view: View, routing: Routing, number: int, *, link: bool
    ) -> SentRequest | Refusal | None:
        region, now = view.snapshot.regions[number].name, self.now()
        endpoint = endpoint_for(view, _To(number), routing.key)
        if endpoint is not None and self._shunned.get(endpoint.url, 0.0) > now:
            able = (one for one in view.endpoints[number] if self._shunned.get(one.url, 0.0) <= now)
            endpoint = next(able, None)
        nonce = urlsafe_b64encode(os.urandom(_NONCE)).decode()
        claims = onward(
            verdict,
            region,
            self.current.window,
            issuer=self.own.issuer,
            nonce=nonce,
            client=routing.client,
            push=not link,
        )
        handoff = None if claims is None else self.own.sign(claims)
        if endpoint is None or handoff is None:
            self._count(routing, "", NO_HANDOFF)
            return None
        if link:
            self._count(routing, region, REDIRECTED)
            return _sent_on(region, endpoint.url, exchange.head.target, handoff)
        route = self._routes.get((endpoint.url, region))
        if route is None:
            route = self._routes[endpoint.url, region] = PeerRoute(
                endpoint.url,
                region,
                lambda: self.current.handoff_keys,
                allowed=self.allowed,
                tls=self.tls,
                idle=IDLE,
                unproven=self._unproven,
            )
        self._count(routing, region, SpillReason.MOVED.value)
        self.in_flight[region] += 1
        host = exchange.head.host
        if view.snapshot.host_of(host_name(host)) is None:
            host = urlsplit(endpoint.url).netloc.encode()
        lines = _lines(handoff, exchange.head.seen)
        return SentRequest(
            route,
            _Flight(self, routing.request.service, region, endpoint.url),
            PushedRequest(region, host, lines),
        )


def _sent_on(region: str, url: str, target: bytes, handoff: bytes) -> Refusal:
    """The answer that sends a client to a peer: with the method and body that it came with (RFC 9110 §15.4.8)."""
    path, _, query = target.partition(b"?")
    location = b"%b%b?%b" % (url.rstrip("/").encode(), path, carried.added(query, handoff))
    headers = ((b"x-gtm-region", region.encode()), (b"x-gtm-reason", Reason.FREE_SLOTS.value.encode()))
    words = f"there is no room here; region `{region}` has some, and this says where"
    return Refusal(307, REDIRECTED, words, location=location, headers=headers)


PUSH_NOT_TAKEN = b"not-taken"


def _lines(handoff: bytes, seen: Mapping[bytes, bytes]) -> bytes:
    """Header lines of a push: what proves it, and what of the request only balancers read."""
    lines = b"%b: %b\r\n%b: 1\r\n" % (HEADER, handoff, PUSH)
    timeout = seen.get(b"gtm-timeout")  # its priority is in the handoff
    return lines if timeout is None else lines + b"gtm-timeout: %b\r\n" % timeout
