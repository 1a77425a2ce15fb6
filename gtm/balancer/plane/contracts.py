"""What the data plane and those that it asks hand each other.

It asks, in this order, in process, by plain calls: `LawGate` (may this region serve the request?), `QueueAdmission` (does the request begin
now, later, or not at all?), `PoolPicker` (which backend serves it?), `Pusher` (which peer serves it, where nothing is free here?).
All of them stand in `gtm.balancer.decide`.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from gtm.balancer.plane.backend.backends import Route

if TYPE_CHECKING:
    from gtm.balancer.plane.exchange import Exchange


@dataclass(frozen=True, slots=True)
class Limits:
    """Times in seconds, and how often.

    `head_timeout`: for a request's head to arrive. `first_request`: for the first one of a new connection, where no more are taken.
    `keep_alive`: that a client's connection waits for another request.
    `stall_timeout`: between two pieces of a request's body, and for either side to take some of what it is sent. `silence`: for which a backend
    that passes its checks and has requests may send nothing of any answer, before each that waits as long counts as a stall; none ends by it.
    `body_rate`: bytes a second that a request's body comes at, and `body_grace`: seconds by which it may fall behind that, once. `take_rate`: those that
    a client takes of an answer that the balancer has no room for, while others wait for a slot; and `take_grace` likewise.
    `tunnel_timeout`: between two pieces in either direction, once both sides speak another protocol. `tries`: backends asked for one request at most.
    `retry_share`: of all requests may be sent again, besides `retries_free` a second.
    """

    head_timeout: float = 10.0
    first_request: float = 1.0
    keep_alive: float = 75.0
    stall_timeout: float = 60.0
    silence: float = 300.0
    body_rate: float = 4096.0
    body_grace: float = 10.0
    take_rate: float = 4096.0
    take_grace: float = 10.0
    tunnel_timeout: float = 3600.0
    tries: int = 3
    retry_share: float = 0.2
    retries_free: float = 1.0


class Flight(Protocol):
    """A request's place in the counts of the backend that has it."""

    def end(self, exchange: Exchange, how: str) -> None:
        """It has ended there: `answered`, `broken`, `cancelled`, `failed`, `full` or `refused`. Only the first call counts."""


@dataclass(frozen=True, slots=True)
class PushedRequest:
    """How a request goes to a peer region: the region, its Host header, and header lines that prove it."""

    region: str
    host: bytes
    lines: bytes


@dataclass(slots=True, eq=False)
class SentRequest:  # not frozen: that takes three times as long to make
    """A backend that was picked for a request, or a peer that it is pushed to, and the request's place in its counts. Nobody changes it."""

    route: Route
    flight: Flight
    push: PushedRequest | None = None


@dataclass(frozen=True, slots=True)
class Looks:
    """What of a request's body choosing among the backends may go by, as they are now.

    `hints`: whatever says how much work it is, or whom it sticks to. `models`: its model, for not all serve the same as far as is known; `declared`: the
    file says so, and a request of no known model is right nowhere. `served`: the names that are served; None: a server that may be asked says nothing of them.
    `lists`: no server's own list of models has what the region serves, and only that.
    """

    hints: bool = True
    models: bool = False
    declared: bool = False
    served: frozenset[str] | None = None
    lists: bool = False


class Evictable(Protocol):
    """A client's connection, or what will become one."""

    def evict(self) -> None:
        """Close it at once: another has taken its place."""

    def __hash__(self) -> int: ...


class ConnectionKeeper(Protocol):
    """Says which connection goes where another has no room (`gtm.runtime.process.connections`)."""

    limit: int
    evicted: int

    def enter(self, connection: Evictable, client: Hashable = None) -> None:
        """Take in a new connection of a client, for which another may have to go."""

    def leave(self, connection: Evictable) -> None:
        """It has ended, or is about to."""

    def begins(self, connection: Evictable) -> None:
        """The first byte of a further request, where no other is being answered."""

    def arrived(self, connection: Evictable) -> None:
        """A request is being answered."""

    def rests(self, connection: Evictable, *, arriving: bool) -> None:
        """All that had arrived is answered; `arriving`: more is on its way."""
