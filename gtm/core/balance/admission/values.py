"""What admission is asked and what it says. Times are monotonic seconds, of one clock that never steps back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from gtm.core.model.services import Priority

if TYPE_CHECKING:
    from gtm.core.balance.admission.fair import Flow
    from gtm.core.balance.admission.rooms import GroupRoom
    from gtm.core.balance.admission.tenants import TenantAccount

TIERS = (Priority.REAL_TIME, Priority.NEAR_REAL_TIME, Priority.BATCH)
"""From the highest to the lowest. Inside this room a tier is its number here."""
_REAL_TIME, _NEAR, _ = TIERS


def tier_of(priority: Priority) -> int:
    """The number of a tier: an Enum as a key of a dictionary would take ten times as long."""
    return 0 if priority is _REAL_TIME else 1 if priority is _NEAR else 2


class Arrival(NamedTuple):  # made for each request
    """One request that wants to begin.

    `cost` is its expected work, in any unit that is the same for all (above 0). `deadline` is the latest moment to begin;
    None: the tier's longest wait from now. `body_bytes` are held in memory while it waits. `input_tokens` and `output_tokens`
    are what it is expected to use. `tenant` None: the request has none.
    """

    priority: Priority = Priority.REAL_TIME
    tenant: str | None = None
    cost: float = 1.0
    deadline: float | None = None
    body_bytes: int = 0
    input_tokens: float = 0.0
    output_tokens: float = 0.0
    model: str | None = None


def check(arrival: Arrival) -> None:
    """Raises ValueError: a cost, a token count or a size of it is not one."""
    _, _, cost, deadline, held, inputs, outputs, _ = arrival
    if not (
        0.0 < cost < inf
        and (deadline is None or deadline < inf)
        and held >= 0
        and 0.0 <= inputs < inf
        and 0.0 <= outputs < inf
    ):
        raise ValueError(
            f"cost {arrival.cost}, deadline {arrival.deadline}, {arrival.body_bytes} bytes, {arrival.input_tokens} and "
            f"{arrival.output_tokens} tokens: a cost is above 0, bytes and tokens are 0 or more, and all are finite"
        )


class Used(NamedTuple):
    """What a request has used in the end. None: not known, so that what was expected stands."""

    input_tokens: float | None = None
    output_tokens: float | None = None
    cost: float | None = None


class RefusalCode(StrEnum):
    """Why admission refuses: stable words for programs. Other parts of the balancer have words of their own."""

    TENANT_RATE = "tenant_rate"
    TENANT_CONCURRENCY = "tenant_concurrency"
    INPUT_TOKENS = "input_tokens"
    OUTPUT_TOKENS = "output_tokens"
    MODEL_CONCURRENCY = "model_concurrency"
    QUEUE_FULL = "queue_full"
    PREEMPTED = "preempted"
    WAIT_TOO_LONG = "wait_too_long"
    DEADLINE = "deadline"
    NO_BACKEND = "no_backend"


class AdmissionRefusal(NamedTuple):
    """A request that does not begin: HTTP status, a stable word, words for people.

    `retry_after` in seconds, not rounded; None: nobody can say. `fallback` is the model to offer the request for instead.
    """

    status: int
    code: str
    detail: str
    retry_after: float | None = None
    fallback: str | None = None


class TicketState(StrEnum):
    """Where a ticket stands. It ends as REFUSED, WITHDRAWN or RELEASED, and never leaves these."""

    WAITING = "waiting"
    ADMITTED = "admitted"
    REFUSED = "refused"
    WITHDRAWN = "withdrawn"
    RELEASED = "released"


_WAITING = TicketState.WAITING


@dataclass(slots=True, eq=False)
class Ticket:
    """A request that was taken in. Its holder reads it, and may keep anything in `context`; only `Admission` writes the rest.

    `refusal` is there once it was refused while it waited. `offered` and `admitted` are when it came and when it began. `tier` is
    the number of its tier in `TIERS`; `account`, `group`, `client`, `flow`, `units` and `token_weight` are admission's own.
    """

    number: int
    arrival: Arrival
    account: TenantAccount
    tier: int
    offered: float
    deadline: float
    group: GroupRoom  # of the servers that it may go to
    admitted: float | None = None
    state: TicketState = _WAITING
    refusal: AdmissionRefusal | None = None
    context: object = None
    flow: Flow | None = None  # in which it waits, or waited until it was served
    client: Hashable = None  # whose it is, if it waits
    units: int = 0  # its part of what its client has in the queue
    token_weight: float = 1.0  # what a token of its model counted when it was charged

    @property
    def waiting(self) -> bool:
        """Whether it waits for a slot."""
        return self.state is _WAITING

    @property
    def budgeted(self) -> bool:
        """Whether its tokens are counted against a budget."""
        return self.account.budgeted


# --- What admission counts, for metrics. ---


class TierCounts(NamedTuple):
    """One tier. `admitted`, `queued`, `withdrawn` (while waiting) and `refused` (by code) count since the start."""

    running: int
    waiting: int
    waiting_bytes: int
    admitted: int
    queued: int
    withdrawn: int
    waited_s: float
    """The sum of the waits of those that waited and were admitted."""
    refused: Mapping[str, int]


class TenantCounts(NamedTuple):
    """One tenant, now."""

    running: int
    waiting: int


class AdmissionSnapshot(NamedTuple):
    """What admission holds. Tenants: those with anything running or waiting; `None` those without a name, "" too many others."""

    limit: int | None
    tiers: Mapping[Priority, TierCounts]
    tenants: Mapping[str | None, TenantCounts]
    models: Mapping[str, int]


class TierTotals:
    """What happened in one tier since the start."""

    __slots__ = ("admitted", "queued", "refused", "waited", "withdrawn")

    def __init__(self) -> None:
        self.admitted = 0
        self.queued = 0
        self.withdrawn = 0
        self.waited = 0.0
        self.refused: Counter[str] = Counter()
