"""What a balancer's workers said last, added up: what the first process reports, and passes on.

Laws:
  1. A slot is reported once: reports of workers add up to the region's. What one that is silent had free others fill, and say so.
  2. What a worker has counted stays counted when it ends, as far as it had said so.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from gtm.core.balance.flights import PEERS_LAST_S
from gtm.core.balance.sharing import Use
from gtm.core.balance.spill.room import Slots
from gtm.core.latency.samples import Interval
from gtm.core.quota.leases import LeaseHolder
from gtm.core.quota.names import QuotaText
from gtm.runtime.balancer.carrier import Counts
from gtm.runtime.balancer.carriers import Spent
from gtm.runtime.balancer.reporting import Report
from gtm.runtime.balancer.round_trips import MAX_SENT
from gtm.runtime.balancer.words import Word, together
from gtm.runtime.balancer.workers.merging import merged_report
from gtm.runtime.balancer.workers.messages import LoadMessage, PoolEnd, WordMessage
from gtm.runtime.process.forkserver import Process
from gtm.settings import BalancerSettings

SILENT = 3
"""Looks, a second apart, at a worker that said nothing between them, from which nobody waits for it. It has to say something three times a second."""


@dataclass(slots=True)
class RunningWorker:
    """A worker that runs: its line, its process, and what it said last."""

    number: int
    name: str
    line: PoolEnd
    process: Process
    ready: bool = False
    unheard: int = 0
    """Looks at it since it said anything. No seconds: whoever looks may have stood still itself."""
    said: WordMessage | None = None
    said_at: float = 0.0
    report: Report | None = None
    metrics: str = ""
    tiers: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    used: Mapping[QuotaText, int] = field(default_factory=dict)
    denied: Mapping[QuotaText, int] = field(default_factory=dict)

    @property
    def hangs(self) -> bool:
        """Whether it has been silent for so long that nobody waits for it."""
        return self.unheard >= SILENT

    def spent(self) -> Spent | None:
        """What it did with the leases since this was last asked; None: it has not said."""
        said = self.said
        if said is None:
            return None
        used, self.used = _since(self.used, said.used), said.used
        denied, self.denied = _since(self.denied, said.denied), said.denied
        return Spent(self.number - 1, said.parts, used, denied)

    def shown(self) -> dict[str, Any]:
        """The same for people."""
        uses = [] if self.said is None else self.said.word.uses.values()
        return {
            "worker": self.number,
            "process": self.process.pid,
            "ready": self.ready,
            "hangs": self.hangs,
            "running": sum(use.running for use in uses),
            "waiting": sum(use.waiting for use in uses),
        }


class Said:
    """See above: what `gtm.runtime.balancer.carriers.Carriers` is asked for.

    Args:
        settings: of the balancer.
        leases: of the quotas.
    """

    def __init__(self, settings: BalancerSettings, leases: LeaseHolder) -> None:
        self._settings = settings
        self._leases = leases
        self._loop = asyncio.get_running_loop()
        self._running: dict[int, RunningWorker] = {}
        self._learned = Interval([], [])
        self._pushed: Counter[str] = Counter()

    def _load(self, worker: RunningWorker, message: LoadMessage) -> None:
        worker.report, worker.metrics, worker.tiers = message.report, message.metrics, message.tiers
        self._learned.deltas.extend(message.deltas)
        self._learned.witnesses.extend(message.witnesses)
        del self._learned.deltas[:-MAX_SENT], self._learned.witnesses[:-MAX_SENT]

    def _ended(self, worker: RunningWorker) -> None:
        """It says nothing more: what it said last, and nobody asked for yet, counts."""
        del self._running[worker.number]
        rest = worker.spent()
        if rest is not None:
            self._leases.count(rest.used, rest.denied)
        if worker.said is not None:
            self._pushed.update(worker.said.pushes)

    def spent(self) -> Sequence[Spent]:
        """See `Carriers`."""
        return [rest for one in self._running.values() if (rest := one.spent()) is not None]

    def pushes(self) -> Mapping[str, int]:
        """See `Carriers`."""
        found = Counter(self._pushed)
        for one in self._running.values():
            if one.said is not None:
                found.update(one.said.pushes)
        return found

    def words(self) -> Mapping[str, Word]:
        """See `Carriers`. One that has not spoken yet has nothing."""
        now = self._loop.time()
        return {
            one.name: Word({one.name: Use(0, 0)})
            if one.said is None
            else replace(one.said.word, age=now - one.said_at)
            for one in self._running.values()
        }

    def use(self) -> Use:
        """See `Carriers`."""
        uses = [
            use
            for one in self._running.values()
            if one.said is not None
            for use in one.said.word.uses.values()
        ]
        return Use(sum(use.running for use in uses), sum(use.waiting for use in uses))

    def report(self) -> Report:
        """See `Carriers`."""
        found = merged_report([one.report for one in self._running.values() if one.report is not None])
        return cast(
            "Report",
            {"outstanding": 0, "queue": 0, "requests_per_second": 0.0, **found}
            | {"region": self._settings.region, "source": self._settings.name},
        )

    def tiers(self) -> Mapping[str, tuple[int, int]]:
        """See `Carriers`."""
        found: dict[str, tuple[int, int]] = {}
        for one in self._running.values():
            for tier, (running, waiting) in one.tiers.items():
                had = found.get(tier, (0, 0))
                found[tier] = had[0] + running, had[1] + waiting
        return found

    def round_trips(self) -> Interval:
        """See `Carriers`."""
        learned, self._learned = self._learned, Interval([], [])
        return learned

    def free_slots(self) -> Slots | None:
        """See `Carriers`."""
        now = self._loop.time()
        known: list[Slots] = []
        for one in self._running.values():
            if one.said is not None and one.said.room is not None:
                silent = (
                    now - one.said_at > PEERS_LAST_S
                )  # as the others take it (`gtm.core.balance.sharing`, law 6)
                known.append(replace(one.said.room, free=0.0, waiting=0.0) if silent else one.said.room)
        if not known:
            return None
        return Slots.counted(
            *(sum(getattr(room, name) for room in known) for name in ("free", "limit", "waiting"))
        )

    def counts(self) -> Counts:
        """See `Carriers`."""
        loads = together(list(self.words().values())).loads
        return Counts(*self.use(), {name: int(load.requests) for name, load in loads.items()})

    def processes(self) -> list[dict[str, Any]]:
        """The workers, for people."""
        return [one.shown() for _, one in sorted(self._running.items())]


def _since(before: Mapping[QuotaText, int], now: Mapping[QuotaText, int]) -> dict[QuotaText, int]:
    return {quota: count - before.get(quota, 0) for quota, count in now.items()}
