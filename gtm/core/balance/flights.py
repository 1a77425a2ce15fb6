"""The counts of all servers of a region, through changes of configuration, and what others say of them.

Laws:
  1. A server that is taken out of the configuration keeps its counts until its last request has ended, and has them back if
     it returns before: else requests that are still in it would not count.
  2. What peers told and what servers said are not added, for servers count the peers' requests too: the larger counts.
  3. A server of which nothing is known beside others of which something is, counts as the middle one of these, by weight (of two, the one
     that has less): unknown is not idle, and one that says much moves no other. What is only assumed so makes nobody full.
  4. The requests of a peer that fell silent, at servers that we have too, count as spread over these by weight, until it is
     forgotten: they are somewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import inf
from typing import NamedTuple

from gtm.core.balance.backends import Backend, Scraped
from gtm.core.balance.in_flight import US, InFlight

PEERS_LAST_S = 1.0
"""Seconds for which what a peer told counts server by server."""
HOT_QUANTILE = 0.84
"""Servers with more in flight than this part of all are hot (Prequal's Q_RIF; Wydrowski et al., §4: 0.75 to 0.9 do well)."""
_SLOWEST = 32.0
"""Slower than the others by more than this makes no difference: one outlier does not close a server."""


class Told(NamedTuple):
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
        self._peers: dict[str, tuple[float, dict[str, Told]]] = {}
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

    def tell(self) -> dict[str, Told]:
        """What peers are to be told of our own requests: servers that have some."""
        return {
            name: Told(flight.requests, flight.work_us)
            for name, flight in self._flights.items()
            if flight.requests
        }

    def told(self, peer: str, loads: Mapping[str, Told], at: float) -> None:
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

    def _by_server(self, now: float) -> dict[str, Told]:
        """What the peers that speak have in flight together."""
        sums: dict[str, Told] = {}
        for at, loads in self._peers.values():
            if now - at <= PEERS_LAST_S:
                for name, load in loads.items():
                    had = sums.get(name, _NOTHING)
                    sums[name] = Told(had.requests + load.requests, had.work_us + load.work_us)
        return sums

    def _silent(self, now: float) -> Told:
        """What the peers had in flight that have fallen silent."""
        loads = [
            load
            for at, all_of_it in self._peers.values()
            if now - at > PEERS_LAST_S
            for name, load in all_of_it.items()
            if name in self._listed
        ]
        return Told(sum(load.requests for load in loads), sum(load.work_us for load in loads))

    def _slowness(self, flights: Mapping[str, InFlight], now: float) -> dict[str, float]:
        """Latency relative to the mean of servers, forgotten bit by bit: towards 1, not towards fast."""
        values = [flight.latency.value for flight in flights.values() if flight.latency.value is not None]
        mean = sum(values) / len(values) if values else 0.0
        expected = [flight.latency_by_load.expected(flight.outstanding) for flight in flights.values()]
        measured = [latency for latency in expected if latency is not None]
        self.typical = sum(measured) / len(measured) if measured else None
        return {name: _relative(flight, mean, now) for name, flight in flights.items()}


_NOTHING = Told(0, 0)


def _relative(flight: InFlight, mean: float, now: float) -> float:
    value = flight.latency.value
    if value is None or mean <= 0:
        return 1.0
    ratio = min(max(value / mean, 1 / _SLOWEST), _SLOWEST)
    return float(ratio ** flight.latency.weight(now))
