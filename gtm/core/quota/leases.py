"""Exact quotas without a call per request: control leases edges parts of each quota, for seconds at a time.

An edge reports what it used; the reply leases it what it may use next. These are the values that travel, and the
edge's side. Control's side is `gtm.core.quota.ledger`.

Laws:
  1. A lease ends at the edge before it ends in control's books, whatever the network does: the edge counts its
     duration from when it sent the report, control from when it answered. No clock is shared.
  2. A reply counts only if it answers the newest report, and only once: one that was late, repeated or overtaken
     changes nothing.
  3. What an edge says it has taken, all its workers have taken: until then, it has not.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from gtm.core.model.affinity import key_hash
from gtm.core.model.units import MOST_INTEGER, MOST_RATE, within
from gtm.core.quota.names import QuotaText

DURATION = 3.0
"""Seconds that a lease lasts: two reports may be lost before an edge stops spending."""
MAX_WORKERS = 1024


@dataclass(frozen=True, slots=True)
class Lease:
    """A part of a quota: `rate` in requests per second, in equal parts for `parts` of the edge's workers.

    Raises:
        ValueError: a rate that is not above 0 and up to `MOST_RATE`, or parts that are not 1 to `MAX_WORKERS`.
    """

    quota: QuotaText
    rate: float
    parts: int = 1

    def __post_init__(self) -> None:
        if not (within(self.rate, MOST_RATE) and self.rate > 0):
            raise ValueError(
                f"rate of a lease of `{self.quota}` is {self.rate}; it must be above 0, and {MOST_RATE:.0f} at most"
            )
        if not 1 <= self.parts <= MAX_WORKERS:
            raise ValueError(f"parts of a lease of `{self.quota}` are {self.parts}, not 1 to {MAX_WORKERS}")


@dataclass(frozen=True, slots=True)
class LeaseUse:
    """Edge → control, in its report.

    `instance` is drawn at random when the edge starts: one that was replaced may still run somewhere. `report` numbers
    the instance's reports, `sequence` is of the newest grant that all its workers have taken, `held` the leases in force.
    `used` and `denied` count requests by quota since the instance started, so that a lost report loses nothing.

    Raises:
        ValueError: no instance, numbers below 0 or above `MOST_INTEGER`, or workers that are not 1 to `MAX_WORKERS`.
    """

    instance: str
    report: int
    sequence: int = 0
    workers: int = 1
    used: dict[QuotaText, int] = field(default_factory=dict)
    denied: dict[QuotaText, int] = field(default_factory=dict)
    held: tuple[Lease, ...] = ()

    def of(self, quotas: Collection[QuotaText]) -> LeaseUse:
        """The same of these quotas alone."""
        return replace(
            self,
            used={quota: count for quota, count in self.used.items() if quota in quotas},
            denied={quota: count for quota, count in self.denied.items() if quota in quotas},
            held=tuple(lease for lease in self.held if lease.quota in quotas),
        )

    def __post_init__(self) -> None:
        if not self.instance:
            raise ValueError("the instance is empty")
        if not 1 <= self.workers <= MAX_WORKERS:
            raise ValueError(f"workers are {self.workers}, not 1 to {MAX_WORKERS}")
        numbers = self.report, self.sequence, *self.used.values(), *self.denied.values()
        if min(numbers) < 0 or max(numbers) > MOST_INTEGER:
            raise ValueError(f"the numbers of reports, grants and requests are from 0 to {MOST_INTEGER}")


@dataclass(frozen=True, slots=True)
class LeaseGrant:
    """Control → edge, in the reply to report number `report`: all that the edge holds from now on.

    It lasts `duration` seconds from when that report was sent. Sequence numbers grow with every grant.
    """

    report: int
    sequence: int
    duration: float
    """Seconds."""
    leases: tuple[Lease, ...] = ()


@dataclass(frozen=True, slots=True)
class LeaseParts:
    """Agent → one worker: its part of each quota in requests per second, until a time of the machine's own clock."""

    sequence: int
    until: float
    rates: dict[QuotaText, float]


def split(leases: tuple[Lease, ...], workers: int) -> list[dict[QuotaText, float]]:
    """Each worker's part of each lease in requests per second; the parts of a lease are equal and sum to it.

    Which workers hold a lease of fewer parts than workers depends on the quota's name alone: more parts only add
    holders, fewer only remove some.
    """
    rates: list[dict[QuotaText, float]] = [{} for _ in range(workers)]
    for lease in leases:
        parts = min(lease.parts, workers)
        first = key_hash(lease.quota) % workers
        for number in range(parts):
            rates[(first + number) % workers][lease.quota] = lease.rate / parts
    return rates


class LeaseHolder:
    """The edge's side of leasing, for its agent.

    Times are seconds of a clock that all workers of the machine share and that goes on while the machine sleeps
    (Linux: CLOCK_BOOTTIME). The number of workers is fixed for the instance's life: a worker that ends leaves its parts
    to its successor, which starts with empty buckets.
    """

    def __init__(self, instance: str, workers: int) -> None:
        self.instance = instance
        self.workers = workers
        self._report = 0
        self._sent: float | None = None  # when the newest report was sent; None once it is answered
        self._grant = LeaseGrant(0, 0, 0.0)
        self._until = 0.0  # the past, by a clock that starts with the machine
        self._fell: int | None = None  # the grant that lowered a lease, until a report says that it was taken
        self._taken: list[int | None] = [None] * workers
        self._used: dict[QuotaText, int] = {}
        self._denied: dict[QuotaText, int] = {}

    def count(self, used: Mapping[QuotaText, int], denied: Mapping[QuotaText, int]) -> None:
        """Add what a worker counted since it was last asked."""
        for totals, more in ((self._used, used), (self._denied, denied)):
            for quota, requests in more.items():
                totals[quota] = totals.get(quota, 0) + requests

    def started(self, worker: int) -> LeaseParts:
        """What a worker (0 to `workers` - 1) that starts may spend, to be sent to it first."""
        self._taken[worker] = self._grant.sequence
        return self.parts()[worker]

    def taken(self, worker: int, sequence: int) -> None:
        """A worker spends by this grant from now on, and by no older one."""
        self._taken[worker] = max(self._taken[worker] or 0, sequence)

    def ended(self, worker: int) -> None:
        """A worker's process is gone, and spends nothing."""
        self._taken[worker] = None

    @property
    def overdue(self) -> bool:
        """Report now: others may be waiting for what this edge has given up."""
        return self._fell is not None and self._sequence >= self._fell

    @property
    def _sequence(self) -> int:
        """The newest grant that all workers have taken."""
        return min((taken for taken in self._taken if taken is not None), default=self._grant.sequence)

    def use(self, now: float) -> LeaseUse:
        """What to report, to be sent now."""
        if self.overdue:
            self._fell = None
        self._report += 1
        self._sent = now
        held = self._grant.leases if now < self._until else ()
        return LeaseUse(
            self.instance,
            self._report,
            self._sequence,
            self.workers,
            dict(self._used),
            dict(self._denied),
            held,
        )

    def take(self, grant: LeaseGrant) -> bool:
        """Hold what the reply to a report grants; False if it is not the reply waited for."""
        if self._sent is None or grant.report != self._report or grant.sequence <= self._grant.sequence:
            return False
        rates = {lease.quota: lease.rate for lease in grant.leases}
        if any(rates.get(lease.quota, 0.0) < lease.rate for lease in self._grant.leases):
            self._fell = grant.sequence
        self._grant = grant
        self._until = self._sent + grant.duration
        self._sent = None
        return True

    def parts(self) -> list[LeaseParts]:
        """What each worker may spend, to be sent to all after `take`."""
        grant = self._grant
        return [LeaseParts(grant.sequence, self._until, rates) for rates in split(grant.leases, self.workers)]
