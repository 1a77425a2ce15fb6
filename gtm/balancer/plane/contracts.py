"""What the data plane asks, and of whom: each of these may be replaced by another that answers the same questions.

In this order, in process, by plain calls: `Gate` (may this region serve it?), `RequestAdmission` (now, later, or not?), `Picker` (by which
backend?), `Pusher` (by which peer, where nothing is free here?).
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from gtm.balancer.plane.backend.backends import Route
from gtm.balancer.wire.facts import PromptCut
from gtm.balancer.wire.refusals import Refusal
from gtm.core.model.cors import Cors

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


class Gate(Protocol):
    """Says whether this region may serve a request."""

    def judge(self, exchange: Exchange, now: float) -> Refusal | None:
        """None if it may; `exchange.verdict` then has what was found."""

    def renew(self, exchange: Exchange) -> Refusal | None:
        """Judge one again whose verdict may be of another law than now: before it is sent, and while more of it comes. None if it may go on."""

    def unready(self) -> str:
        """Say why it lets no request pass whatever it is, for people; nothing: it lets some."""

    def client(self, exchange: Exchange) -> bytes:
        """The address of a request's client in network order, empty if it is unknown."""

    def cors(self, exchange: Exchange) -> Cors | None:
        """Which pages may read gtm's own answers of the service that a request is for; None: those of no other origin, or it is for none."""

    def more_headers(self, exchange: Exchange) -> bytes:
        """Header lines for the backend: who the client is, as far as that is known."""


class RequestAdmission(Protocol):
    """Says when."""

    def offer(self, exchange: Exchange, now: float) -> Refusal | None:
        """Take a request in: calls its `admitted` now or later, or its `refuse` later; or refuses it now."""

    def ended(self, exchange: Exchange, now: float) -> None:
        """A request that was offered has ended, however: also if it was refused. Once, and never for one that was not offered."""

    def withdraw(self, exchange: Exchange, now: float) -> None:
        """A request that was offered goes elsewhere. It may be offered again, which takes no more of a rate. Its end is told as of any other."""

    def tick(self, now: float) -> None:
        """Time has passed."""

    @property
    def has_waiting(self) -> bool:
        """Whether a request waits for a slot."""


@dataclass(frozen=True, slots=True)
class Looks:
    """What of a request's body choosing among the backends may go by, as they are now.

    `hints`: whatever says how much work it is, or whom it sticks to. `models`: its model, for not all serve the same as far as is known; `declared`: the
    file says so, and a request of no known model is right nowhere. `served`: the names that are known to be served; None: none is. `unsaid`: a server that may be asked says nothing of its names, and may
    serve others. `closed`: the file says of each server which models it has, and no other is right anywhere. `lists`: no server's own list of models has what the region serves, and only that. `several`: there is more than one, and what one has made no other has.
    """

    hints: bool = True
    models: bool = False
    declared: bool = False
    served: frozenset[str] | None = None
    unsaid: bool = False
    closed: bool = False
    lists: bool = False
    several: bool = False


class Picker(Protocol):
    """Says which backend."""

    @property
    def looks_at(self) -> Looks:
        """What of a body it may go by."""

    @property
    def cut(self) -> PromptCut | None:
        """How prompts are cut into blocks for it; None: it does not look at them."""

    def pick(self, exchange: Exchange, tried: tuple[str, ...], now: float) -> SentRequest | Refusal:
        """A backend for an admitted request, not one of those that were tried (by URL)."""

    def second(self, exchange: Exchange, tried: tuple[str, ...], now: float) -> SentRequest | None:
        """Another backend for one that a backend has: not one of those that were tried, and one at which it does not wait; None: there is none. As `pick`, it may set `exchange.chosen`."""

    def failed(self, sent: SentRequest, detail: str, now: float) -> None:
        """A backend did not answer, or broke off."""

    def failing_since(self, sent: SentRequest) -> float | None:
        """Since when a check of the backend fails, in monotonic seconds; None: none does."""

    def is_down(self, sent: SentRequest) -> bool:
        """Whether the backend is judged down: by a check, by how its requests ended, or because it is gone."""

    def has_room(self, exchange: Exchange, tried: tuple[str, ...]) -> bool:
        """Whether a backend that was not tried has a free slot for a request, as far as is known."""

    def silent(self, sent: SentRequest, since: float, now: float) -> None:
        """A request waits at a backend, and since then none of those that it has got a byte. It goes on."""

    def loaded(self, sent: SentRequest, said: bytes, now: float) -> None:
        """A backend said its load in an answer's head, in one of ORCA's forms: whatever bytes may come."""

    def usable(self) -> int:
        """How many backends may be picked now."""

    def routes(self) -> tuple[Route, ...]:
        """The ways to all of them."""


class Pusher(Protocol):
    """Says which peer region takes what finds no slot here."""

    def push(self, exchange: Exchange, refusal: Refusal | None) -> SentRequest | Refusal | None:
        """A peer for a request that waits, or is to be refused so: where it is carried to, or the answer that sends its client there.

        None: it stays.
        """

    def proof(self, asked: bytes) -> bytes | None:
        """What proves to a peer that this is a balancer of its region (`gtm.handoff.proof`); None: nothing does."""

    def answered(self, sent: SentRequest, said: bytes | None, status: int) -> bool:
        """Whether the peer took it, by what its answer says of that."""

    def routes(self) -> tuple[Route, ...]:
        """The ways to all peers."""


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
