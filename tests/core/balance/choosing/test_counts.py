"""Counts neither leak nor go negative, whatever requests and configurations do."""

from __future__ import annotations

from math import inf, nan

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gtm.core.balance.backends import Backend, Condition, Scraped
from gtm.core.balance.choosing.chooser import BackendPool, begin, pool_of
from gtm.core.balance.choosing.values import Candidate, WantedBackend
from gtm.core.balance.flights import Flights, FlightTicket, InFlight, PeerLoad
from tests.core.strategies import quick

NAMES = ("http://a", "http://b", "http://c")
HEALTHY = Condition(healthy=True)


class Counting(RuleBasedStateMachine):
    """The model: a list of live tickets, each with the server it was sent to and the work it has left."""

    def __init__(self) -> None:
        super().__init__()
        self.flights = Flights()
        self.pools: list[BackendPool] = []
        self.seen: list[tuple[BackendPool, Candidate]] = []
        self.live: list[tuple[str, int, FlightTicket]] = []
        self.ended: list[FlightTicket] = []
        self.now = 0.0
        self.configure([True, True, False])

    @rule(listed=st.lists(st.booleans(), min_size=3, max_size=3))
    def configure(self, listed: list[bool]) -> None:
        """Servers leave and come back; pools of before are still in somebody's hands."""
        backends = [Backend(name) for name, here in zip(NAMES, listed, strict=True) if here]
        pool = pool_of(backends, dict.fromkeys(NAMES, HEALTHY), self.flights)
        self.pools.append(pool)
        self.seen += [(pool, candidate) for candidate in pool.candidates]

    @precondition(lambda self: self.seen)
    @rule(data=st.data(), cost=st.sampled_from((0.0, 0.1, 12.5, 1e9, -1.0, nan, inf)))
    def begins(self, data: st.DataObject, cost: float) -> None:
        """A request is sent, perhaps to a server that has left meanwhile."""
        pool, candidate = data.draw(st.sampled_from(self.seen))
        ticket = begin(pool, candidate, WantedBackend(cost=cost))
        work = 0 if cost != cost else int(min(max(cost, 0.0), 86_400.0) * 1_000_000)  # noqa: PLR0124
        self.live.append((candidate.backend.name, work, ticket))

    @precondition(lambda self: self.live)
    @rule(data=st.data(), left=st.sampled_from((0.0, 3.3, -2.0, nan)))
    def revised(self, data: st.DataObject, left: float) -> None:
        """What is left of a request is corrected."""
        place = data.draw(st.integers(0, len(self.live) - 1))
        name, _, ticket = self.live[place]
        ticket.revise(left)
        self.live[place] = (name, 3_300_000 if left > 0 else 0, ticket)

    @precondition(lambda self: self.live)
    @rule(data=st.data(), latency=st.none() | st.floats(0, 100))
    def ends(self, data: st.DataObject, latency: float | None) -> None:
        """A request ends, well or not."""
        *_, ticket = self.live.pop(data.draw(st.integers(0, len(self.live) - 1)))
        ticket.end(latency, self.now)
        self.ended.append(ticket)

    @precondition(lambda self: self.ended)
    @rule(data=st.data())
    def ends_again(self, data: st.DataObject) -> None:
        """What has ended is touched once more."""
        ticket = data.draw(st.sampled_from(self.ended))
        ticket.revise(7.0)
        ticket.end(1.0, self.now)
        assert ticket.ended

    @rule(name=st.sampled_from(NAMES), said=st.integers(0, 9), step=st.sampled_from((0.0, 0.1, 5.0)))
    def corrected(self, name: str, said: int, step: float) -> None:
        """Servers and peers say what they have, and time passes."""
        self.now += step
        self.flights.asking(name)
        self.flights.scraped(name, Scraped(said, 0, self.now))
        self.flights.told("peer", {name: PeerLoad(said, said * 1000)}, self.now)
        self.flights.settle(self.now)

    @invariant()
    def counts_are_the_live_tickets(self) -> None:
        """Exactly."""
        for name in NAMES:
            flight = self.flights.of(name)
            own = [work for where, work, _ in self.live if where == name]
            assert (flight.requests, flight.work_us) == (len(own), sum(own))
            assert flight.outstanding == len(own) + flight.others
            assert flight.backlog_us == sum(own) + flight.others_work_us
            assert flight.others >= 0
            assert flight.others_work_us >= 0

    @invariant()
    def the_pool_reads_these_counts(self) -> None:
        """What the newest pool chooses by is what is counted."""
        for candidate in self.pools[-1].candidates:
            assert candidate.flight is self.flights.of(candidate.backend.name)


TestCounting = Counting.TestCase
TestCounting.settings = quick(300)


def test_a_server_that_left_is_forgotten_when_its_last_request_ends() -> None:
    """Its counts stay while it has requests, and no longer."""
    flights = Flights([Backend("http://a")])
    before = flights.of("http://a")
    ticket = before.begin(1.0)
    flights.keep([])
    assert flights.of("http://a") is before
    ticket.end()
    flights.settle(0.0)
    assert flights.of("http://a") is not before


def test_what_a_ticket_met_is_without_itself() -> None:
    """The latency of a request belongs to the load that it found."""
    flight = InFlight()
    assert [flight.begin(1.0).met for _ in range(3)] == [0, 1, 2]
