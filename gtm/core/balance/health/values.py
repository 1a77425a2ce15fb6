"""What health is told, and what it tells people."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from gtm.core.balance.health.comparing import Asker
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


class State(StrEnum):
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
class Load:
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
class Standing:
    """How a backend stands, for people and metrics.

    `why`: in words, empty if nothing is wrong. `since`: when this state began; `until`: when it ends by itself (None: not
    by time alone). `ended`: requests so far, by `good`, `full` or `Failure`. `ejections`, `falls`: so far, since the backend is known.
    """

    name: str
    state: State
    why: str
    since: float
    until: float | None
    warmth: float
    ejections: int
    falls: int
    ended: Mapping[str, int]
    checks: Mapping[Check, EndpointHealth]
