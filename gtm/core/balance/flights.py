"""The counts of all servers of a region, through changes of configuration, and what others say of them.

Laws:
  1. A server that is taken out of the configuration keeps its counts until its last request has ended, and has them back if
     it returns before: else requests that are still in it would not count.
  2. What peers told and what servers said are not added, for servers count the peers' requests too: the larger counts.
  3. A server of which nothing is known beside others of which something is, counts as the middle one of these, by weight (of two, the one
     that has less): unknown is not idle, and one that says much moves no other. What is only assumed so makes nobody full.
  4. The requests of a peer that fell silent, at servers that we have too, count as spread over these by weight, until it is
     forgotten: they are somewhere.

One server. What a balancer has in flight at each server: its own counts, and what they are corrected by.

Theory. A request is counted by a `Ticket` from `InFlight.begin` to `Ticket.end`. The ticket holds the very object that it was
counted in and what it counts there, and takes exactly that away again, once: so counts are sums over live tickets, whatever
order things end in. Work is kept in whole microseconds, because sums of floating point numbers that come and go drift.

What a server says of itself comes late and counts everybody's requests, ours too. Only the difference is news:

    beyond = max(0, scraped − most of ours that were in flight since the server was asked), scraped within what it can have
    outstanding = ours now + what others have there (`gtm.core.balance.flights` settles it, from `beyond` and from peers)

The alternative, max(ours, scraped), forgets others as soon as we have as many: with 6 of ours and 6 of others it reads 12 as
it is right after a scrape, and still 12 when ours have all ended. "The most of ours since it was asked" because nobody knows at
which moment of the exchange the server counted: a lone balancer must never take its own requests for somebody else's.

Laws:
  1. `requests` and `work_us` are the sums over tickets that have begun and not ended: 0 when there are none, never below.
  2. A ticket ends once. What is done to it later, does nothing.
  3. A figure that is stale or missing says nothing: it is not 0 (`beyond` is None).
  4. A lone balancer's `beyond` is 0, however late figures are.
  5. What a server says counts up to its slots that run and as many that wait (`MOST_RUNNING` where its slots are unknown): whatever it
     says, it is full, and no more.

Example. Two requests; one is found to need less, and ends twice.

>>> flight = InFlight()
>>> long, short = flight.begin(12.0), flight.begin(0.2)
>>> flight.requests, flight.work_us
(2, 12200000)
>>> long.revise(3.0); flight.work_us
3200000
>>> long.end(); long.end(); flight.requests, flight.work_us
(1, 200000)

The server is asked, and says 4 run in it: three are others'. When ours ends, they still are.

>>> flight.asking(); flight.scraped(Scraped(running=4, waiting=0, at=10.0))
>>> short.end(); flight.beyond(10.5), flight.beyond(99.0)
(3.0, None)

Sources: Mitzenmacher, "How useful is old information?" (IEEE TPDS 2000), why stale loads mislead; docs/choosing.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import exp, inf
from typing import NamedTuple

from gtm.core.balance.backends import Backend, Scraped

PEERS_LAST_S = 1.0
"""Seconds for which what a peer told counts server by server."""
HOT_QUANTILE = 0.84
"""Servers with more in flight than this part of all are hot (Prequal's Q_RIF; Wydrowski et al., §4: 0.75 to 0.9 do well)."""
_SLOWEST = 32.0
"""Slower than the others by more than this makes no difference: one outlier does not close a server."""


class PeerLoad(NamedTuple):
    """What a balancer has in flight at one server: requests, and microseconds of work."""

    requests: float
    work_us: int


class Flights:
    """Counts by the name of the server.

    Args:
        backends: the servers to begin with.
    """

    def __init__(self, backends: Iterable[Backend] = ()) -> None:
        self.hot = inf
        """Requests per weight above which a server is hot."""
        self.typical: float | None = None
        """The mean latency, per cost, that servers show at their load; None: nothing was measured."""
        self._flights: dict[str, InFlight] = {}
        self._listed: frozenset[str] = frozenset()
        self._peers: dict[str, tuple[float, dict[str, PeerLoad]]] = {}
        self._mean_us = US  # of the work left of a request of ours
        self.keep(backends)

    def of(self, name: str) -> InFlight:
        """One server's counts; those of a server that was not there yet start at 0."""
        flight = self._flights.get(name)
        if flight is None:
            flight = self._flights[name] = InFlight()
        return flight

    def keep(self, backends: Iterable[Backend]) -> None:
        """Go on with these servers: a change of configuration."""
        listed = {backend.name: backend for backend in backends}
        self._listed = frozenset(listed)
        for name, backend in listed.items():
            flight = self.of(name)
            flight.weight, flight.slots = backend.weight, backend.slots
        self._sweep()

    def asking(self, name: str) -> None:
        """The server is being asked for its figures."""
        self.of(name).asking()

    def scraped(self, name: str, said: Scraped) -> None:
        """The server said what is in it; it counts from the next `settle`."""
        self.of(name).scraped(said)

    def tell(self) -> dict[str, PeerLoad]:
        """What peers are to be told of our own requests: servers that have some."""
        return {
            name: PeerLoad(flight.requests, flight.work_us)
            for name, flight in self._flights.items()
            if flight.requests
        }

    def told(self, peer: str, loads: Mapping[str, PeerLoad], at: float) -> None:
        """A peer told what it has in flight: all of it, by server. It counts from the next `settle`.

        Raises:
            ValueError: a number is impossible. Nothing of it is taken.
        """
        for name, load in loads.items():
            if not (0 <= load.requests < inf and 0 <= load.work_us < inf):
                raise ValueError(
                    f"peer {peer} says of {name}: {load.requests} requests, {load.work_us} µs of work: no counts"
                )
        self._peers[peer] = (at, dict(loads))

    def forget(self, peer: str) -> None:
        """A peer is no more: its connections are closed, and its requests with them."""
        self._peers.pop(peer, None)

    def settle(self, now: float) -> None:
        """Work out what others have at each server, how slow each is, and when one is hot. Some ten times a second.

        Args:
            now: seconds of the clock of `told` and `Scraped.at`.
        """
        self._sweep()
        flights = {name: self._flights[name] for name in self._listed}
        requests = sum(flight.requests for flight in flights.values())
        if requests:
            self._mean_us = sum(flight.work_us for flight in flights.values()) // requests
        weights = sum(flight.weight for flight in flights.values())
        beyond = {name: flight.beyond(now) for name, flight in flights.items()}
        known = sorted(figure / flights[name].weight for name, figure in beyond.items() if figure is not None)
        middle = known[(len(known) - 1) // 2] if known else 0.0
        told = self._by_server(now)
        even = self._silent(now)
        slowness = self._slowness(flights, now)
        for name, flight in flights.items():
            peers = told.get(name, _NOTHING)
            part = flight.weight / weights
            count = peers.requests + even.requests * part
            work = peers.work_us + int(even.work_us * part)
            figure = beyond[name]
            more = max(0.0, (middle * flight.weight if figure is None else figure) - count)
            assumed = more if figure is None else 0.0
            flight.settle(count + more, work + int(more * self._mean_us), slowness[name], assumed)
        loads = sorted(flight.outstanding / flight.weight for flight in flights.values())
        self.hot = loads[int(HOT_QUANTILE * (len(loads) - 1))] if loads else inf

    def _sweep(self) -> None:
        """Forget servers that are out of the configuration and have nothing in flight."""
        gone = [
            name for name, flight in self._flights.items() if name not in self._listed and not flight.requests
        ]
        for name in gone:
            del self._flights[name]

    def _by_server(self, now: float) -> dict[str, PeerLoad]:
        """What the peers that speak have in flight together."""
        sums: dict[str, PeerLoad] = {}
        for at, loads in self._peers.values():
            if now - at <= PEERS_LAST_S:
                for name, load in loads.items():
                    had = sums.get(name, _NOTHING)
                    sums[name] = PeerLoad(had.requests + load.requests, had.work_us + load.work_us)
        return sums

    def _silent(self, now: float) -> PeerLoad:
        """What the peers had in flight that have fallen silent."""
        loads = [
            load
            for at, all_of_it in self._peers.values()
            if now - at > PEERS_LAST_S
            for name, load in all_of_it.items()
            if name in self._listed
        ]
        return PeerLoad(sum(load.requests for load in loads), sum(load.work_us for load in loads))

    def _slowness(self, flights: Mapping[str, InFlight], now: float) -> dict[str, float]:
        """Latency relative to the mean of servers, forgotten bit by bit: towards 1, not towards fast."""
        values = [flight.latency.value for flight in flights.values() if flight.latency.value is not None]
        mean = sum(values) / len(values) if values else 0.0
        expected = [flight.latency_by_load.expected(flight.outstanding) for flight in flights.values()]
        measured = [latency for latency in expected if latency is not None]
        self.typical = sum(measured) / len(measured) if measured else None
        return {name: _relative(flight, mean, now) for name, flight in flights.items()}


_NOTHING = PeerLoad(0, 0)


def _relative(flight: InFlight, mean: float, now: float) -> float:
    value = flight.latency.value
    if value is None or mean <= 0:
        return 1.0
    ratio = min(max(value / mean, 1 / _SLOWEST), _SLOWEST)
    return float(ratio ** flight.latency.weight(now))


# --- How slow a server is, from the requests that ended there: measured here, read by scores and picks.
#
# Latencies are given per second of work that the request was expected to cost: a long answer is not a slow server.


DECAY_S = 10.0
"""Time constant, in seconds, of what is forgotten."""
_BUCKETS = 12
_BLEND = 0.2
"""How much of a new latency enters the mean of its bucket."""


class PeakEwma:
    """An exponentially weighted mean that rises at once and falls slowly (Finagle's `peak_ewma`; linkerd2-proxy).

    A server that turns slow is noticed by its first slow request, one that recovers is believed gradually.
    """

    __slots__ = ("_at", "value")

    def __init__(self) -> None:
        self.value: float | None = None
        self._at = 0.0

    def observe(self, latency: float, now: float) -> None:
        """Take a latency into account. `now`: seconds of a clock that does not step back."""
        value = self.value
        if value is None or latency >= value:
            self.value = latency
        else:
            self.value = latency + self.weight(now) * (value - latency)
        self._at = max(self._at, now)

    def weight(self, now: float) -> float:
        """What the mean still counts, 1 when it was just observed, falling to 0."""
        return exp((self._at - now) / DECAY_S) if now > self._at else 1.0


class LatencyByLoad:
    """What requests took that came when so many were in flight: Prequal's estimate (Wydrowski et al., NSDI 2024, §4.1).

    Loads fall into buckets by powers of two; each keeps a mean that forgets.
    """

    __slots__ = ("_means",)

    def __init__(self) -> None:
        self._means: list[float | None] = [None] * _BUCKETS

    def observe(self, latency: float, load: float) -> None:
        """Take the latency of a request into account that met `load` others."""
        bucket = min(_BUCKETS - 1, int(load + 1).bit_length() - 1)
        mean = self._means[bucket]
        self._means[bucket] = latency if mean is None else mean + _BLEND * (latency - mean)

    def expected(self, load: float) -> float | None:
        """What a request would take that meets `load` others: of the nearest bucket, lower first; None: nothing is known."""
        bucket = min(_BUCKETS - 1, int(load + 1).bit_length() - 1)
        for distance in range(_BUCKETS):
            for near in (bucket - distance, bucket + distance):
                if 0 <= near < _BUCKETS:
                    mean = self._means[near]
                    if mean is not None:
                        return mean
        return None


# --- What is in flight at one server. ---

US = 1_000_000
MOST_RUNNING = 4096
"""Requests that a server whose slots are unknown can say run in it, or wait: several times what engines run at once (vLLM: 1,024)."""
SCRAPED_LASTS_S = 3.0
"""Seconds for which what a server said of itself counts."""
_MOST_COST_US = 86_400 * US
"""No request is expected to take longer than a day: an absurd estimate must not outweigh all others for ever."""


def _us(seconds: float) -> int:
    """Seconds as whole microseconds, between 0 and a day. What is no number counts as nothing."""
    if 0.0 <= seconds < 1000.0:
        return int(seconds * US)
    return int(min(max(seconds, 0.0) * US, _MOST_COST_US)) if seconds == seconds else 0  # noqa: PLR0124 - NaN


@dataclass(slots=True, eq=False)
class InFlight:
    """One server's counts. Choosing reads `outstanding` and `known` (requests), `backlog_us`, `slowness`; it writes `credit` alone.

    `requests` and `work_us` are our own. `others`, `others_work_us`: what else is there, as last settled. `known`: `outstanding` without what
    of the others is only assumed, by what other servers say: that makes no server full. `slowness`: how its
    latency compares to the other servers', 1 where nothing is known. `credit` is the smooth round robin's.
    """

    weight: float = 1.0
    slots: int | None = None
    requests: int = 0
    work_us: int = 0
    others: float = 0.0
    others_work_us: int = 0
    outstanding: float = 0.0
    known: float = 0.0
    backlog_us: int = 0
    slowness: float = 1.0
    credit: float = 0.0
    latency: PeakEwma = field(default_factory=PeakEwma)
    latency_by_load: LatencyByLoad = field(default_factory=LatencyByLoad)
    _assumed: float = 0.0
    _most: int = 0  # requests of ours at once, since the server was asked
    _said: tuple[Scraped, float] | None = None  # (figures, what of them is not ours)

    def begin(self, cost: float) -> FlightTicket:
        """Count a request that is expected to cost `cost` seconds of work. Whoever begins must end the ticket."""
        work_us = _us(cost)
        ticket = FlightTicket(self, work_us, work_us, self.outstanding)
        self.requests = requests = self.requests + 1
        self._most = max(self._most, requests)
        self._add(work_us)
        return ticket

    def asking(self) -> None:
        """The server is being asked for its figures, one question at a time: from now on, ours may be in them."""
        self._most = self.requests

    def scraped(self, said: Scraped) -> None:
        """Take the answer into account that the server gave since `asking`."""
        most = self.slots or MOST_RUNNING
        self._said = (said, float(max(0.0, min(said.running, most) + min(said.waiting, most) - self._most)))

    def beyond(self, now: float) -> float | None:
        """How many requests the server has that are not ours; None: unknown."""
        if self._said is None:
            return None
        said, beyond = self._said
        return None if said.requests(now, SCRAPED_LASTS_S) is None else beyond

    def queues(self, now: float) -> bool:
        """Whether it says that requests wait in it."""
        said = None if self._said is None else self._said[0]
        return said is not None and said.waiting > 0 and said.requests(now, SCRAPED_LASTS_S) is not None

    def settle(self, others: float, others_work_us: int, slowness: float, assumed: float = 0.0) -> None:
        """Take over what `Flights.settle` made of what is known; `assumed`: what of the others is not."""
        self.others = others
        self._assumed = assumed
        self.others_work_us = others_work_us
        self.slowness = slowness
        self._add(0)

    def _add(self, work_us: int) -> None:
        self.work_us += work_us
        self.outstanding = outstanding = self.requests + self.others
        self.known = outstanding - self._assumed
        self.backlog_us = self.work_us + self.others_work_us


@dataclass(slots=True, eq=False)
class FlightTicket:
    """One request in flight. `cost_us`: as expected when it began; `work_us`: what of it is still to come; `met`: how many
    requests it found there."""  # noqa: D205, D209

    _flight: InFlight | None
    cost_us: int
    work_us: int
    met: float

    @property
    def ended(self) -> bool:
        """Whether it counts no more."""
        return self._flight is None

    def revise(self, left: float) -> None:
        """Correct how much work, in seconds, is expected to be left."""
        flight = self._flight
        if flight is not None:
            left_us = _us(left)
            flight._add(left_us - self.work_us)  # noqa: SLF001 - the two are one
            self.work_us = left_us

    def end(self, latency: float | None = None, now: float = 0.0) -> None:
        """Stop counting it, however it ended; only the first call does something.

        Args:
            latency: seconds it took, for the measures of how slow the server is; None where that tells nothing (it was
                cancelled, or failed: a server that refuses at once is not a fast one).
            now: seconds of a clock that does not step back.
        """
        flight, self._flight = self._flight, None
        if flight is None:
            return
        flight.requests -= 1
        flight._add(-self.work_us)  # noqa: SLF001 - the two are one
        if latency is not None:
            by_cost = latency * US / self.cost_us if self.cost_us else latency
            flight.latency.observe(by_cost, now)
            flight.latency_by_load.observe(by_cost, self.met)
