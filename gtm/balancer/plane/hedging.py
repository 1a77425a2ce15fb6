"""A request that is late is asked of a second server, and whoever answers first is relayed (docs/balancer.md, "Hedging").

    sent ─▶ late (`FirstBytes`) ─▶ bounds ─▶ second server ─▶ its first byte ─▶ it goes on, the first one is let go
              │ answered before       │ looked at again         │ the first one's comes before: the second is let go

Until it is decided the second connection speaks to `Hedge`, not to the exchange, and what comes on it is kept: so the exchange has one server at any time, as
without a hedge, and nothing of two answers can be mixed.

Laws:
  1. A request has one second server at the most, which is never asked but while nothing of an answer has come, and in which it does not wait.
  2. Whoever is let go is let go whole: its connection is closed, and its place in the counts given back, at once.
  3. What the second server says reaches the client if it is an answer of 200 to 299 of which a byte has come, or if the first one has failed.
  4. Whatever goes wrong with a hedge, the first server goes on as if there had been none.
"""

from __future__ import annotations

import asyncio
import re
from collections import OrderedDict
from typing import TYPE_CHECKING

from gtm.balancer.plane.backend.upstream import Upstream, keeps_alive
from gtm.balancer.plane.contracts import SentRequest
from gtm.balancer.plane.exchange import SENT, Exchange, Reached, why_not_another
from gtm.balancer.wire.heads import MAX_HEAD
from gtm.balancer.wire.refusals import Refusal
from gtm.balancer.wire.responses import status_said
from gtm.core.balance.choosing.chooser import BackendChoice
from gtm.core.balance.hedging import FirstBytes, HedgeShare, KnownWaits, kind_of
from gtm.core.handoff.verdict import Verdict

if TYPE_CHECKING:
    from gtm.balancer.plane.proxy import Proxy

MOST_SERVICES = 1024
"""Services whose hedges are counted: where there are more, the first ones are counted anew."""
MOST_PIECES = 256
"""Reads of the second server's connection in which it has to begin its answer: each looks at all of it that is kept."""
_HEAD = re.compile(rb"HTTP/1\.[01] (\d{3})[ \r]")
_EVENTS = re.compile(rb"\r\ncontent-type:[ \t]*text/event-stream", re.IGNORECASE)


def weighed(said: bytes) -> tuple[bool | None, bytes]:
    """Whether what a server said so far begins an answer of 200 to 299, a stream of events with a first event that is no error. None: nobody knows yet.

    Returns:
        That, and what of it counts: without interim answers, and pings before the first event.
    """
    while True:
        end = said.find(b"\r\n\r\n", 0, MAX_HEAD) + 4
        if end < 4:
            return (None if len(said) < MAX_HEAD else False), said
        found = _HEAD.match(said)
        status = 0 if found is None else int(found[1])
        if status == 101 or not 100 <= status < 300:
            return False, said
        if status >= 200:
            break
        said = said[end:]
    if not _EVENTS.search(said, 0, end):
        return True, said
    first = said[end:]
    if not first or keeps_alive(first) is not None:
        return None, said[:end]
    return status_said(first) is None, said


class Hedging:
    """What hedges of one process go by.

    Args:
        proxy: whose requests they are.
        share: of each service's requests that may be hedged, in (0, 1).
    """

    def __init__(self, proxy: Proxy, share: float) -> None:
        self.proxy, self.share = proxy, share
        self.first_bytes = FirstBytes()
        self.racing: dict[Hedge, None] = {}
        """Those that have a second server, or are on their way to one."""
        self._services: OrderedDict[str, HedgeShare] = OrderedDict()

    def begin(self, exchange: Exchange) -> Hedge | None:
        """Look after a request that was sent to its first server. None: it is none that may be hedged."""
        service = _service(exchange)
        self.of(service).requested(self.proxy.now())
        target, facts = exchange.target, exchange.facts
        if not (
            exchange.complete
            and exchange.keeps_body
            and target.runs_model
            and self.proxy.repeats
            and exchange.goes_on_with is None
            and not exchange.makes_state
        ):
            return None
        asked = facts.model or "", facts.input_tokens, facts.max_tokens
        known = self.first_bytes.of(kind_of(service, target.path, asked, streams=facts.streams))
        return Hedge(self, exchange, service, known)

    def of(self, service: str) -> HedgeShare:
        """What is counted of a service."""
        found = self._services.get(service)
        if found is None:
            if len(self._services) >= MOST_SERVICES:
                self._services.popitem(last=False)
            found = self._services[service] = HedgeShare()
        return found

    def give_way(self) -> None:
        """A request finds no free slot: what is hedged takes none of it."""
        for hedge in tuple(self.racing):
            hedge.end("gave_way")

    def services(self) -> dict[str, HedgeShare]:
        """Counts of the last minute by the service that requests are for."""
        now = self.proxy.now()
        for one in self._services.values():
            one.look(now)
        return dict(self._services)


def _service(exchange: Exchange) -> str:
    verdict = exchange.verdict
    routing = verdict.routing if isinstance(verdict, Verdict) else None
    return "" if routing is None else routing.request.service


class Hedge(asyncio.Protocol):
    """One request that may be asked of a second server; and what speaks on that one's connection until it is decided who answers.

    Args:
        hedging: what all share.
        exchange: the request, which its first server has now.
        service: that it is for.
        known: how long others of its kind waited.
    """

    __slots__ = (
        "_chosen",
        "_connecting",
        "_exchange",
        "_hedging",
        "_known",
        "_late_s",
        "_looks_again",
        "_pieces",
        "_refused",
        "_said",
        "_sent",
        "_service",
        "_since",
        "_timer",
        "_upstream",
        "outcome",
    )

    def __init__(self, hedging: Hedging, exchange: Exchange, service: str, known: KnownWaits) -> None:
        self.outcome = ""
        """How it ended; empty: it has not, or there was none."""
        self._hedging, self._service, self._known = hedging, service, known
        self._exchange: Exchange | None = exchange
        """None: it is decided, or over."""
        self._since = hedging.proxy.now()
        self._sent: SentRequest | None = None
        self._upstream: Upstream | None = None
        """The second server's connection, once it has had the request."""
        self._chosen: BackendChoice | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._said = b""
        self._pieces = 0
        self._refused = False
        late = known.late
        self._late_s = self._looks_again = late or 0.0
        self._timer = None if late is None else hedging.proxy.loop.call_later(late, self._late)

    # --- the first server's part ---

    def answered(self, status: int) -> None:
        """The client gets the answer of the server that has its request; a second one is let go."""
        if self._exchange is None:
            return
        if 200 <= status < 300:
            self._learn()
        self.end("lost")

    def _learn(self) -> None:
        hedged = self._sent is not None
        self._known.learn(self._late_s if hedged else self._hedging.proxy.now() - self._since)

    # --- the second one's ---

    def _late(self) -> None:
        """The request has waited for unusually long."""
        self._timer = None
        exchange, hedging = self._exchange, self._hedging
        upstream = None if exchange is None else exchange.upstream
        if exchange is None or upstream is None or not self._waits(exchange) or not upstream.silent:
            return  # what it waits for is there, or it is at no server
        why = self._begin(exchange)
        if not why:
            return
        if not self._refused:
            self._refused = True
            hedging.proxy.stats.hedges[why] += 1
        self._looks_again *= 2
        self._timer = hedging.proxy.loop.call_later(self._looks_again, self._late)

    @staticmethod
    def _waits(exchange: Exchange) -> bool:
        return exchange.phase is SENT and not why_not_another(exchange, Reached.BEGUN)

    def _begin(self, exchange: Exchange) -> str:
        """Ask a second server, if one may be asked; else what is in the way."""
        hedging = self._hedging
        proxy, share, first = hedging.proxy, hedging.of(self._service), exchange.sent
        if proxy.admission.has_waiting:
            return "queue"
        now = proxy.now()
        if not share.allows(now, hedging.share):
            return "over_percent"
        chosen = exchange.chosen
        sent = None if first is None else proxy.second(exchange, (*exchange.tried, first.route.url))
        self._chosen, exchange.chosen = exchange.chosen, chosen
        if sent is None:
            return "no_room"
        share.hedged(now)
        self._sent = sent
        hedging.racing[self] = None
        upstream = sent.route.take(now)
        if upstream is None:
            self._connecting = proxy.loop.create_task(self._connect(sent, exchange.times.connect))
        else:
            self._attach(exchange, upstream)
        return ""

    async def _connect(self, sent: SentRequest, patience: float) -> None:
        proxy = self._hedging.proxy
        try:
            async with asyncio.timeout(patience):
                upstream = await sent.route.connect(proxy.loop, proxy.now)
        except Exception:  # noqa: BLE001 - whatever it is, the first server has the request
            self._connecting = None
            self.end("failed")
            return
        self._connecting = None
        exchange = self._exchange
        if exchange is None or not upstream.usable or not self._waits(exchange):
            sent.route.put(upstream, proxy.now())
            self.end("failed")
        else:
            self._attach(exchange, upstream)

    def _attach(self, exchange: Exchange, upstream: Upstream) -> None:
        """Send the request there, if the law is as it was."""
        more = self._hedging.proxy.added(exchange, None)
        if isinstance(more, Refusal):
            upstream.route.put(upstream, self._hedging.proxy.now())
            self.end("failed")
            return
        exchange.repeated = True
        self._upstream = upstream
        upstream.start(exchange, exchange.written(upstream.route, more))
        upstream.transport.set_protocol(self)

    @property
    def may_go_on(self) -> bool:
        """Whether the second server has the request, and is not judged down."""
        sent, races = self._sent, self._exchange is not None and self._upstream is not None
        return races and sent is not None and not self._hedging.proxy.picker.is_down(sent)

    def goes_on(self) -> bool:
        """The first server does not: whether the second one has the request, and answers it from now on."""
        if not self.may_go_on:
            self.end("failed")
            return False
        self._takes_over("took_over")
        return True

    def _takes_over(self, outcome: str) -> None:
        exchange, sent, upstream, said = self._exchange, self._sent, self._upstream, self._said
        assert exchange is not None and sent is not None and upstream is not None  # noqa: S101, PT018 - as its callers know
        self._over(outcome)
        upstream.transport.set_protocol(upstream)
        exchange.chosen = self._chosen
        exchange.takes_over(sent, upstream)
        if said:
            upstream.data_received(said)

    def end(self, outcome: str = "ended") -> None:
        """Nothing more is asked of a second server; one that has the request is let go."""
        exchange, sent, upstream = self._exchange, self._sent, self._upstream
        if exchange is None:
            return
        self._over("" if sent is None else outcome)
        if self._connecting is not None:
            self._connecting.cancel()
            self._connecting = None
        if upstream is not None:
            upstream.abort()
        if sent is not None:
            self._hedging.proxy.not_there(exchange, sent)

    def _over(self, outcome: str) -> None:
        """It is decided. `outcome`: empty where no second server was asked."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._exchange, self._said = None, b""
        if outcome:
            self.outcome = outcome
            self._hedging.racing.pop(self, None)
            self._hedging.proxy.stats.hedges[outcome] += 1

    # --- from the event loop, on the second server's connection ---

    def data_received(self, data: bytes) -> None:
        """The second server has sent these bytes."""
        if self._exchange is None:  # it was let go
            return
        self._pieces += 1
        well, self._said = weighed(self._said + data)
        if well is None and self._pieces >= MOST_PIECES:
            well = False
        if well:
            self._learn()
            self._takes_over("won")
        elif well is False:
            self.end("failed")

    def eof_received(self) -> bool:
        """The second server sends no more."""
        self.end("failed")
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection to the second server has ended."""
        self.end("failed")
        if self._upstream is not None:
            self._upstream.connection_lost(exc)

    def pause_writing(self) -> None:
        """The second server takes no more for now."""
        if self._upstream is not None:
            self._upstream.writable = False

    def resume_writing(self) -> None:
        """The second server takes more bytes again."""
        if self._upstream is not None:
            self._upstream.writable = True
