"""What health is told, and what it tells people."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import ceil, inf, log, sqrt
from typing import NamedTuple

from gtm.core.model.state import EndpointHealth

SERVER_FAILURES = frozenset((500, 502, 503, 504))
"""Statuses that say that the server failed. 501 says that the request was wrong, and so do 4xx (RFC 9110 §15.5, §15.6.2) where peers say it, too."""


class Check(StrEnum):
    """A check that balancers make of backends."""

    HEALTH = "health"
    """It says itself that it is well."""
    MODELS = "models"
    """It lists the models that it must have."""
    COMPLETION = "completion"
    """The backend generates a token."""


class Failure(StrEnum):
    """How a request that was sent to a backend failed there."""

    CONNECT = "connect"
    """The backend took no connection."""
    TIMEOUT = "timeout"
    """It did not answer in time."""
    RESET = "reset"
    """The connection broke off before the answer was complete."""
    MALFORMED = "malformed"
    """What it sent cannot be read."""
    STATUS = "status"
    """It answered with 500, 502, 503 or 504."""
    STALL = "stall"
    """A stream stopped."""
    REFUSED = "refused"
    """It answered with 4xx: a failure as far as its peers do not say that to such requests."""


class BackendState(StrEnum):
    """How a backend stands, the first that applies."""

    DRAINING = "draining"
    """The backend takes no new requests."""
    UNKNOWN = "unknown"
    """Some check has not been made yet."""
    DOWN = "down"
    """A check fails."""
    HELD = "held"
    """Checks pass again, but fell too often."""
    EJECTED = "ejected"
    """Live requests failed."""
    TRIAL = "trial"
    """A few requests may try it."""
    WARMING = "warming"
    """It gets a part of its weight."""
    UP = "up"
    """The backend gets requests by its full weight."""


class Sending(NamedTuple):
    """A request that was sent to a backend; `begun` gives it, and one of the ends takes it.

    `period`: of the backend's breaker. `asker`: whose it is; None: nobody's who could make it fail.
    """

    name: str
    period: int
    at: float
    asker: Asker | None = None


@dataclass(frozen=True, slots=True)
class BackendLoad:
    """What a server said of its load; None: it did not say.

    `running` and `waiting`: requests. `memory`: the used part of its KV cache, 0 to 1. `models` and `adapters` that it has loaded.
    `cache_tokens`: what its KV cache holds.
    """

    running: float | None = None
    waiting: float | None = None
    memory: float | None = None
    models: frozenset[str] | None = None
    adapters: frozenset[str] | None = None
    cache_tokens: float | None = None


@dataclass(frozen=True, slots=True)
class BackendStanding:
    """How a backend stands, for people and metrics.

    `why`: in words, empty if nothing is wrong. `since`: when this state began; `until`: when it ends by itself (None: not
    by time alone). `ended`: requests so far, by `good`, `full` or `Failure`. `ejections`, `falls`: so far, since the backend is known.
    """

    name: str
    state: BackendState
    why: str
    since: float
    until: float | None
    warmth: float
    ejections: int
    falls: int
    ended: Mapping[str, int]
    checks: Mapping[Check, EndpointHealth]


# --- Whether a backend fails by itself, or by what it is asked: its failures beside those of its peers.
#
# Theory. A request can make whoever gets it fail: a prompt that crashes an engine, a body that nobody can read. Clients choose requests,
# and choose them ill or ill-meaning; so a failure of a request says something of the backend only as far as its **peers**, who serve the
# same models and are usable, do not fail likewise. What nobody's request can cause (no connection) needs no comparison.
#
# Let p be the share of failures that peers have. The chance that n requests in a row fail at a backend that is like its peers is pⁿ. A row
# counts where p is no more than `CLEAN`; where it is more, the row must be as much longer as makes it as unlikely:
#
#     n ≥ least · ln(CLEAN) / ln(p)              least 5: 5 where peers are clean, 8 with p = 0.15, 22 with 0.5, 143 with 0.9
#
# p is the larger of two: over the last ends that peers had (attacks go on), and over those since the row began (an attack begins). Of f
# failures among n ends it is (f + √f + 0.2) / (n + 1): with a standard deviation on top (a count's is its root), since an estimate that is too
# low ejects who is like the others; and peers that have ended nothing yet prove nothing.
#
# In a window, peers' failures explain as many of a backend's as they make likely: n·p and four standard deviations of chance.
#
# A client that chooses its backend (a session's, a prompt's that is cached there) is one witness, however often it comes: its failures count once
# in a window.


CLEAN = 0.05
"""The share of failures up to which peers count as having none."""
_LAST = 16
"""Ends of one kind that are remembered of each backend."""
_CHANCE = 4.0
"""Standard deviations that chance explains."""

Kind = frozenset[str]
"""What a request's backends are: those that serve its model."""


class Asker(NamedTuple):
    """Whose request is sent to a backend: among which backends it could go, and what made it go to this one; None: the load alone."""

    kind: Kind
    mark: int | None = None


class CallKind(NamedTuple):
    """What a request is, as far as its latency follows from it: those of one kind of call take about as long, those of others need not.

    `path` of its target. `streams`: its answer is a stream of events, whose first one does not wait for the last. `counted`: the tokens of its
    answer are known.
    """

    model: str = ""
    path: bytes = b""
    streams: bool = False
    counted: bool = False


ANY_CALL = CallKind()


class Run:
    """How requests of one kind ended at one backend: the last ones, and the failures since something ended well there."""

    __slots__ = ("began", "last", "row", "stalls")

    def __init__(self) -> None:
        self.row = 0
        self.stalls = 0
        self.began = 0.0
        """The row began at this time."""
        self.last: deque[tuple[float, bool]] = deque(maxlen=_LAST)
        """Each of them has the time at which it ended, and whether it failed."""

    def bad(self, now: float, *, stalled: bool) -> None:
        """One failed."""
        if not self.row:
            self.began = now
        self.row += 1
        self.stalls += stalled
        self.last.append((now, True))

    def end_row(self) -> None:
        """Something ended well at the backend."""
        self.row = self.stalls = 0


def needed(least: int, peers: Iterable[Run | None], began: float | None) -> float:
    """How many failures in a row say that a backend is unlike its peers; infinite: however many there are.

    Args:
        least: where no peer fails.
        peers: how requests of the kind ended at each peer; None: none did.
        began: when the row began; None: what peers did since does not matter.
    """
    found = [run.last for run in peers if run is not None]
    recent = _share([failed for last in found for _, failed in last])
    since = 0.0 if began is None else _share([failed for last in found for at, failed in last if at >= began])
    share = max(recent, since)
    if share <= CLEAN:
        return float(least)
    return float(ceil(least * log(CLEAN) / log(share) - 1e-9)) if share < 1 else inf


def _share(ends: list[bool]) -> float:
    failed = sum(ends)
    return (failed + sqrt(failed) + 0.2) / (len(ends) + 1)


def explained(name: str, counts: Mapping[str, Mapping[Kind, Sequence[int]]]) -> float:
    """How many of a backend's failures in a window its peers' explain.

    Args:
        name: the backend's.
        counts: good and bad ends in the window, by backend and kind.
    """
    found = 0.0
    for kind, (good, bad) in counts[name].items():
        others = [of[kind] for peer, of in counts.items() if peer != name and peer in kind and kind in of]
        ends = sum(map(sum, others))
        if not ends:
            found += bad  # nobody to compare it with
            continue
        share, own = sum(failed for _, failed in others) / ends, good + bad
        found += min(bad, own * share + _CHANCE * sqrt(own * share * (1 - share)))
    return found
