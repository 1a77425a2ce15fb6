"""What carries a balancer's requests: this process, or workers (`gtm.runtime.balancer.workers`). The balancer asks both the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from gtm.core.balance.sharing import Use
from gtm.core.balance.spill.room import Slots
from gtm.core.handoff.keys import OwnKey
from gtm.core.latency.samples import Interval
from gtm.core.quota.leases import LeaseHolder
from gtm.core.quota.names import QuotaText
from gtm.runtime.balancer.admin import Shown
from gtm.runtime.balancer.carrier import Carrier, Counts
from gtm.runtime.balancer.reporting import Report
from gtm.runtime.balancer.words import Word
from gtm.runtime.following.told import ViewMessage
from gtm.runtime.process.listeners import Listener


@dataclass(frozen=True, slots=True)
class Spent:
    """What one process did with the quotas' leases since it was last asked: by which parts, requests used and denied."""

    worker: int
    sequence: int
    used: Mapping[QuotaText, int] = field(default_factory=dict)
    denied: Mapping[QuotaText, int] = field(default_factory=dict)


class Carriers(Protocol):
    """See above."""

    shown: Shown

    async def listen(self, listeners: Sequence[Listener]) -> None:
        """Look at every backend, then take requests; returns once all do."""

    def put(self, message: ViewMessage) -> None:
        """This is known now, and used in this process already."""

    def look_again(self) -> None:
        """Read the file of backends again, changed or not, and other files that have changed."""

    def sign(self, key: OwnKey) -> None:
        """Sign pushes with this key from now on."""

    def lease(self, holder: LeaseHolder) -> None:
        """Other leases are held now."""

    def spent(self) -> Sequence[Spent]:
        """What each of them did with its part of the leases since this was last asked."""

    def pushes(self) -> Mapping[str, int]:
        """Requests that found no slot, and that came for want of one elsewhere, by service, region and why, since this process began."""

    def words(self) -> Mapping[str, Word]:
        """What each of them says now, by its name."""

    def use(self) -> Use:
        """What they have of the region's slots."""

    def heard(self, words: Mapping[str, Word]) -> None:
        """What the region's other balancers say now: all of them."""

    def report(self) -> Report:
        """Their load now, and since the last report."""

    def tiers(self) -> Mapping[str, tuple[int, int]]:
        """Requests that run and that wait, by tier."""

    def round_trips(self) -> Interval:
        """What was learned of round trips since the last call."""

    def free_slots(self) -> Slots | None:
        """How many requests could begin now; None: nobody knows."""

    def counts(self) -> Counts:
        """The requests that all of them have now."""

    async def finish(self) -> None:
        """Take nothing new, and wait for what goes on, for the drain time at most."""

    async def close(self) -> None:
        """End at once."""


class Alone(Carriers):
    """The one process that a balancer is by default."""

    def __init__(self, carrier: Carrier) -> None:
        self._carrier = carrier
        self.shown: Shown = _Own(carrier)

    async def listen(self, listeners: Sequence[Listener]) -> None:
        await self._carrier.start()
        await self._carrier.listen(listeners)

    def put(self, message: ViewMessage) -> None:
        """Do nothing: the one process uses the View already."""

    def look_again(self) -> None:
        """Let the one process read its files again."""
        self._carrier.look_again()

    def sign(self, key: OwnKey) -> None:
        self._carrier.sign(key)

    def lease(self, holder: LeaseHolder) -> None:
        (parts,) = holder.parts()
        self._carrier.spend(parts)

    def spent(self) -> Sequence[Spent]:
        return (Spent(0, *self._carrier.spent()),)

    def pushes(self) -> Mapping[str, int]:
        return self._carrier.pushes()

    def words(self) -> Mapping[str, Word]:
        return {self._carrier.member: self._carrier.word()}

    def use(self) -> Use:
        return self._carrier.use

    def heard(self, words: Mapping[str, Word]) -> None:
        self._carrier.heard(words)

    def report(self) -> Report:
        return self._carrier.report()

    def tiers(self) -> Mapping[str, tuple[int, int]]:
        return self._carrier.tiers()

    def round_trips(self) -> Interval:
        return self._carrier.round_trips.due()

    def free_slots(self) -> Slots | None:
        return self._carrier.free_slots()

    def counts(self) -> Counts:
        return self._carrier.counts()

    async def finish(self) -> None:
        await self._carrier.finish()

    async def close(self) -> None:
        await self._carrier.close()


class _Own:
    """The page of the one process."""

    def __init__(self, carrier: Carrier) -> None:
        self._carrier = carrier

    async def unready(self) -> str:
        return self._carrier.page.unready()

    async def metrics(self) -> bytes:
        return self._carrier.page.metrics()

    async def state(self) -> dict[str, Any]:
        return self._carrier.page.state()
