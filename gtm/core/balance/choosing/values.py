"""What choosing works on: what is wanted, who there is to choose from, and how it is to be done."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import accumulate
from typing import NamedTuple

from gtm.core.balance.backends import Backend, Condition
from gtm.core.balance.flights import InFlight


class Why(StrEnum):
    """Why no server takes a request."""

    NO_BACKEND = "no_backend"
    """There is none at all."""
    NO_MODEL = "no_model"
    """None serves the model."""
    NO_VERSION = "no_version"
    """None is of the version."""
    DRAINING = "draining"
    """All that could are being drained."""
    UNHEALTHY = "unhealthy"
    """All that could fail their checks; without panic, or are held or ejected."""
    TRIED = "tried"
    """All that could were tried already."""


class Pick(StrEnum):
    """How one of the eligible servers is picked."""

    P2C = "p2c"
    """The better of two that are drawn by weight; if both are full, any that is not. Few servers are all looked at."""
    SCAN = "scan"
    """The best of all; if it is full, the best that is not."""
    PREQUAL = "prequal"
    """Of a few that are drawn: the fastest that is not hot."""
    ROUND_ROBIN = "round_robin"
    """Servers take turns, in proportion to their weights."""
    RANDOM = "random"
    """One that is drawn by weight."""


class Prefix(StrEnum):
    """By what of a prompt's beginning servers are chosen."""

    NONE = "none"
    """Nothing."""
    HASH = "hash"
    """Prompts that begin alike go to one server, by consistent hashing."""
    MAP = "map"
    """A prompt goes where most of its beginning was sent before."""


class By(StrEnum):
    """By what a server was chosen."""

    __hash__ = str.__hash__  # it is counted by; an Enum's own is ten times slower

    LOAD = "load"
    """The pick chose the server."""
    SESSION = "session"
    """The request's session leads to the server."""
    PREFIX = "prefix"
    """It is that of prompts that begin so."""
    CACHE = "cache"
    """It has most of the prompt's beginning in its cache, by what was sent there."""


class Score(StrEnum):
    """What makes a server the better one."""

    REQUESTS = "requests"
    """Fewest outstanding requests, by weight."""
    WORK = "work"
    """Least outstanding work, by weight."""


@dataclass(frozen=True, slots=True)
class ChoosingSettings:
    """How servers are chosen.

    `pick`, `score`: see there. `scans`: power of two looks at all servers where there are no more than this, because with few
    the best is a great deal better than the better of two (docs/choosing.md has the figures). `latency`: whether a server's latency multiplies its score (peak-EWMA). `panic`: where less than
    this part of the servers that may serve a request is well, all that pass their checks count as well; 0: never. `bound`: a server that a
    session or a prompt sticks to may have this many times its share of what is in flight (above 1). `prefix`: see there. `most_memory`: a server whose memory
    is fuller gets nothing where another has room. `shares`: the part of clients for each version that is rolled out, 0 to
    1; what is left is for all other versions.
    """

    pick: Pick = Pick.P2C
    score: Score = Score.WORK
    scans: int = 16
    latency: bool = False
    panic: float = 0.3
    bound: float = 1.25
    prefix: Prefix = Prefix.NONE
    most_memory: float = 0.95
    shares: tuple[tuple[str, float], ...] = ()

    def __post_init__(self) -> None:
        """Refuse what cannot be.

        Raises:
            ValueError: versions share out more than there is.
        """
        if sum(share for _, share in self.shares) > 1 + 1e-9:
            raise ValueError("shares of versions are parts of 1, and no more than 1 together")


class WantedBackend(NamedTuple):  # made for each request
    """What a request needs.

    `model`: or a LoRA adapter, for OpenAI's wire format has one name for both. `key`: a session: requests of one key go
    to one server. `prefix`: the prompt's blocks (`prefixes.blocks`), of which only the first counts for `Prefix.HASH`. `cost`: seconds of
    work that are expected. `tried`: servers that have failed the request already.
    """

    model: str | None = None
    key: str | None = None
    prefix: tuple[int, ...] = ()
    cost: float = 1.0
    tried: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """A server in a pool.

    `number`: its place there. `weight`: what of its weight counts now (slow start). `slots`: the backend's, else what was learned; 0 where unknown.
    """

    number: int
    backend: Backend
    condition: Condition
    flight: InFlight
    weight: float
    slots: int

    @property
    def full(self) -> bool:
        """Whether all of its slots are taken, as far as is known. Where slots are unknown, nobody knows it to be full."""
        return self.flight.known >= self.slots > 0


@dataclass(frozen=True, slots=True, eq=False)
class Eligible:
    """The servers that may take one kind of request, in the pool's order.

    `sums`: the running sums of their weights. `numbered` finds them by their number in the pool. `why`: the reason if there are none. `missing`: none of them has the model or adapter loaded.
    `last`: where there are none, or all were tried, those who are asked before the request is refused.
    """

    candidates: tuple[Candidate, ...] = ()
    sums: tuple[float, ...] = ()
    numbered: Mapping[int, Candidate] = field(default_factory=dict)
    why: Why = Why.NO_BACKEND
    missing: bool = False
    last: Eligible | None = None


def eligible_of(
    found: Iterable[Candidate], *, missing: bool = False, last: Eligible | None = None
) -> Eligible:
    """These candidates, at least one, as those that may take a request."""
    candidates = tuple(found)
    sums = tuple(accumulate(one.weight for one in candidates))
    numbered = {one.number: one for one in candidates}
    return Eligible(candidates, sums, numbered, missing=missing, last=last)


Scoring = Callable[[Candidate, float], float]
"""How good a candidate is for a request of that cost (seconds); less is better."""
