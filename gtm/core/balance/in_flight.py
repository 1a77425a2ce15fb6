"""What a balancer has in flight at each server: its own counts, and what they are corrected by.

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

from gtm.core.balance.backends import Scraped
from gtm.core.balance.latency import LatencyByLoad, PeakEwma

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


class InFlight:
    """One server's counts. Choosing reads `outstanding` and `known` (requests), `backlog_us`, `slowness`; it writes `credit` alone.

    `requests` and `work_us` are our own. `others`, `others_work_us`: what else is there, as last settled. `known`: `outstanding` without what
    of the others is only assumed, by what other servers say: that makes no server full. `slowness`: how its
    latency compares to the other servers', 1 where nothing is known. `credit` is the smooth round robin's.
    """

    __slots__ = (
        "_assumed",
        "_most",
        "_said",
        "backlog_us",
        "credit",
        "known",
        "latency",
        "latency_by_load",
        "others",
        "others_work_us",
        "outstanding",
        "requests",
        "slots",
        "slowness",
        "weight",
        "work_us",
    )

    def __init__(self, weight: float = 1.0, slots: int | None = None) -> None:
        self.weight = weight
        self.slots = slots
        self.requests = 0
        self.work_us = 0
        self.others = 0.0
        self.others_work_us = 0
        self.outstanding = 0.0
        self.known = 0.0
        self.backlog_us = 0
        self.slowness = 1.0
        self.credit = 0.0
        self.latency = PeakEwma()
        self.latency_by_load = LatencyByLoad()
        self._assumed = 0.0
        self._most = 0  # requests of ours at once, since the server was asked
        self._said: tuple[Scraped, float] | None = None  # (figures, what of them is not ours)

    def begin(self, cost: float) -> Ticket:
        """Count a request that is expected to cost `cost` seconds of work. Whoever begins must end the ticket."""
        work_us = _us(cost)
        ticket = Ticket(self, work_us, self.outstanding)
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


class Ticket:
    """One request in flight. `cost_us`: as expected when it began; `work_us`: what of it is still to come; `met`: how many
    requests it found there."""  # noqa: D205, D209

    __slots__ = ("_flight", "cost_us", "met", "work_us")

    def __init__(self, flight: InFlight, cost_us: int, met: float) -> None:
        self._flight: InFlight | None = flight
        self.cost_us = cost_us
        self.work_us = cost_us
        self.met = met

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
