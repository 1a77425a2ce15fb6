"""Which checks are made when, and the verdicts that come of them.

Laws:
  1. Never two checks in flight to one target (host and port), whatever regions, jobs or policy revisions want them.
  2. A verdict that changes is reported at once.
  3. What a check says counts only if its endpoint and probe are still the policy's when it is over.
  4. What was not checked for want of room here leaves every verdict as it was.
  5. A clock that is set back or forth delays no check.
  6. Addresses that DNS gives out are checked by the same probe, each by itself (`gtm.core.health.addresses`), and no more of them than
     `MOST_ADDRESSES`, so that what a policy lists costs no more than that. They never keep the check of a URL waiting, and those that
     were never up, which may be many that cannot be reached from here, are checked more seldom.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter, deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import monotonic

from apscheduler.job import Job
from apscheduler.jobstores.base import JobLookupError
from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.triggers.interval import IntervalTrigger

from gtm.core.health.addresses import (
    FAMILIES,
    address_key,
    advance_address,
    judged_addresses,
    trusted,
)
from gtm.core.health.history import Probed
from gtm.core.health.verdicts import ProbeResult, Track, advance
from gtm.core.model.certificates import ShownCertificate
from gtm.core.model.regions import AdminState, Probe
from gtm.core.model.state import UNKNOWN_HEALTH, EndpointHealth, HealthStatus
from gtm.core.policy.snapshot import Snapshot
from gtm.destinations import Destination
from gtm.prober.checks import Checker, CheckError, target_of
from gtm.settings import Network

logger = logging.getLogger(__name__)

_scheduler_logger = logging.getLogger(f"{__name__}.jobs")
# It warns of every run that is left out because the one before is not over, which is as meant here.
_scheduler_logger.setLevel(logging.ERROR)

CONCURRENCY = 200
"""Checks in flight at once, over all targets."""

_SHORTEST = 0.9
"""Checks follow each other at 90–100% of the interval: jitter never makes a failure known later."""

_FIRST_SPACING = 0.005
"""Seconds between first checks of new endpoints, so that a large policy does not start with a burst."""

_SOON = 0.02

SUSPECTED = 1.0
"""Seconds for which a region counts as suspect after it was called one."""
_SUSPECT_PAUSE = 0.1
"""Seconds between a failed check of a suspect and the next."""

MOST_MISSED = 10
"""Checks in a row that this process could not make, after which its last verdict is no vote any more."""
MOST_OUTCOMES = 5_000
"""Outcomes kept until somebody takes them."""

_CLOCK_EVERY = 1.0
_CLOCK_STEP = 0.5
"""Seconds by which the system's clock may drift from the monotonic one in a second before it counts as set."""

ADDRESSES_AT_ONCE = 100
"""Checks of addresses in flight at once, beside those of URLs."""
UNSEEN = 6
"""Intervals between two checks of an address that was never up, as long as its URL is what it was."""
MOST_ADDRESSES = 4_000
"""Addresses that one process checks by themselves, in the policy's order; the others are as their endpoints."""

_MOST_LEFT_OUT = 20
"""Addresses beyond these that are told one by one."""
_TOO_MANY = EndpointHealth(
    detail=f"an edge probes {MOST_ADDRESSES:,} addresses by themselves, and the policy has more"
)

_Key = tuple[str, Probe, type, str]


@dataclass(slots=True, eq=False)
class _Watch:
    """One URL checked in one way, for all regions that have it. `probed` is set once there is a result.

    `address`: the one that is checked by itself; empty: whatever the URL's host resolves to.
    """

    url: str
    probe: Probe
    address: str = ""
    regions: tuple[str, ...] = ()
    job: Job | None = None
    suspect_until: float = 0.0
    missed: int = 0
    """Checks in a row that could not be made."""
    probed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def spot(self) -> str:
        """What names it in tables of health: the URL, or the address and the URL."""
        return address_key(self.url, self.address) if self.address else self.url


class Prober:
    """Probes every endpoint of a policy but those of disabled regions. Belongs to one event loop.

    A failure is known within `interval × down_threshold`, plus the timeout where the threshold is 1 and the endpoint
    does not answer at all.

    Args:
        report: called in the event loop whenever a verdict has changed.
        clock: POSIX seconds.
        measured: called with a region's name and the round trip to it in ms, whenever a check's connection told one.
        allowed: networks that are checked although they are loopback, link-local or the like (`targets`).
        ca_file: certificates that count besides the public ones, None for no others.
        ever_up: the addresses (`address_key`) that were up when this was looked at last: of these alone a first failure counts.
    """

    def __init__(
        self,
        report: Callable[[], None],
        clock: Callable[[], float],
        measured: Callable[[str, float], None] | None = None,
        *,
        allowed: tuple[Network, ...] = (),
        ca_file: Path | None = None,
        ever_up: Collection[str] = (),
    ) -> None:
        self.ever_up = frozenset(ever_up)
        """The addresses (`address_key`) that were up once; those that the policy gives up are forgotten."""
        self.results: Counter[tuple[str, str]] = Counter()
        """Checks, by region and outcome (`ok`, `failed`; `not_made` for want of descriptors or memory here)."""
        self._without_room = False
        self._report = report
        self._clock = clock
        self._measured = measured
        self._checker = Checker(clock, allowed, ca_file)
        self._scheduler = AsyncIOScheduler(timezone=UTC, logger=_scheduler_logger)
        self._watches: dict[_Key, _Watch] = {}
        self._tracks: dict[tuple[str, str], Track] = {}
        self.latest: dict[tuple[str, str], ProbeResult] = {}
        """The newest result of each region's endpoints, by region and URL."""
        self._outcomes: deque[Probed] = deque(maxlen=MOST_OUTCOMES)
        self._probes: dict[tuple[str, str], _Key] = {}
        self._families: dict[tuple[str, str], str] = {}
        self._left_out: dict[str, dict[str, dict[str, EndpointHealth]]] = {}
        self._locks: dict[Destination | None, tuple[asyncio.Lock, int]] = {}
        self._slots = asyncio.Semaphore(CONCURRENCY)
        self._address_slots = asyncio.Semaphore(ADDRESSES_AT_ONCE)
        self._checks: set[asyncio.Task[None]] = set()
        self._runs: set[asyncio.Task[None]] = set()
        self._clock_watch: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to check what `update` says. To be called in the event loop."""
        self._scheduler.start()
        self._clock_watch = asyncio.get_running_loop().create_task(self._watch_clock())

    async def stop(self) -> None:
        """End all checks, those in flight too. The verdicts stay readable."""
        tasks = [*self._checks, *([self._clock_watch] if self._clock_watch else [])]
        if self._scheduler.running:
            self._scheduler.pause()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, *self._runs, return_exceptions=True)
        if self._scheduler.running:
            self._scheduler.shutdown(wait=False)
            await asyncio.sleep(0)  # the scheduler does it in the loop's next turn
        await self._checker.close()

    def update(self, snapshot: Snapshot) -> None:
        """Follow another policy: new endpoints are checked at once, unchanged ones keep their verdict and rhythm.

        An endpoint whose probe changed keeps its verdict and begins a new streak. Endpoints that are gone, and those
        of disabled regions, are forgotten: they come back as unknown.
        """
        wanted: dict[_Key, list[str]] = {}
        probes: dict[tuple[str, str], _Key] = {}
        for region in snapshot.regions:
            if region.admin_state is AdminState.DISABLED:
                continue
            # The value's type is part of the key: true and 1 are equal in Python, but not in JSON.
            probe = region.probe
            for url in dict.fromkeys(endpoint.url for endpoint in region.endpoints):
                key = (url, probe, type(probe.json_value), "")
                wanted.setdefault(key, []).append(region.name)
                probes[region.name, url] = key
        self._add_addresses(snapshot, wanted, probes)
        tracks = {}
        for place, key in probes.items():
            track = self._tracks.get(place, Track())
            tracks[place] = track if self._probes.get(place) == key else Track(track.health)
        self._tracks, self._probes = tracks, probes
        self.latest = {place: result for place, result in self.latest.items() if place in probes}
        for key in self._watches.keys() - wanted.keys():
            self._remove(self._watches.pop(key))
        added = 0
        for key, regions in wanted.items():
            watch = self._watches.get(key)
            if watch is None:
                watch = self._watches[key] = self._add(key, added * _FIRST_SPACING)
                added += 1
            elif not set(regions).issubset(watch.regions):
                watch.probed.clear()
                self._reschedule(watch, 0)
            watch.regions = tuple(regions)

    def _add_addresses(
        self, snapshot: Snapshot, wanted: dict[_Key, list[str]], probes: dict[tuple[str, str], _Key]
    ) -> None:
        """Want the addresses checked too, those of URLs first come first served."""
        self._families, self._left_out = {}, {}
        checked: set[_Key] = set()
        left_out = 0
        for region in snapshot.regions:
            if region.admin_state is AdminState.DISABLED:
                continue
            probe = region.probe
            for family, endpoint, address in judged_addresses(region):
                key = (endpoint.url, probe, type(probe.json_value), address)
                place = (region.name, address_key(endpoint.url, address))
                if place in probes:
                    continue
                if key not in checked and len(checked) >= MOST_ADDRESSES:
                    left_out += 1
                    if left_out <= _MOST_LEFT_OUT:
                        self._left_out.setdefault(family, {}).setdefault(region.name, {})[place[1]] = (
                            _TOO_MANY
                        )
                    continue
                checked.add(key)
                wanted.setdefault(key, []).append(region.name)
                probes[place], self._families[place] = key, family
        self.ever_up &= {spot for _, spot in self._families}

    def suspect(self, regions: Collection[str]) -> None:
        """Check these regions at once, and again soon where that fails: something says that they may have died.

        Being called a suspect again changes nothing for as long as the first time lasts. It takes as many failures in a row as
        ever to be down.
        """
        now = monotonic()
        for watch in self._watches.values():
            if now >= watch.suspect_until and not set(regions).isdisjoint(watch.regions):
                watch.suspect_until = now + SUSPECTED
                self._reschedule(watch, 0)

    async def first_round(self, timeout: float) -> bool:  # noqa: ASYNC109 - giving up is the point, not an error
        """Wait until every endpoint has been checked once, and every address that was up before.

        Args:
            timeout: the longest wait in seconds.

        Returns:
            Whether all have; those that have not are unknown.
        """
        waits = [
            asyncio.ensure_future(watch.probed.wait())
            for watch in self._watches.values()
            if not watch.address or watch.spot in self.ever_up
        ]
        if not waits:
            return True
        _, pending = await asyncio.wait(waits, timeout=timeout)
        for wait in pending:
            wait.cancel()
        return not pending

    def health(self) -> dict[str, dict[str, EndpointHealth]]:
        """The verdicts: region's name → endpoint's URL → health. Not checked yet: unknown."""
        table: dict[str, dict[str, EndpointHealth]] = {}
        for place, track in self._tracks.items():
            if place not in self._families:
                table.setdefault(place[0], {})[place[1]] = track.health
        return table

    def addresses(self) -> dict[str, dict[str, dict[str, EndpointHealth]]]:
        """The verdicts on addresses (`gtm.core.health.addresses`): family → region's name → address and URL → health."""
        return trusted(self._seen_addresses())

    def address_votes(self) -> dict[str, dict[str, dict[str, EndpointHealth]]]:
        """Of these what others may go by, as `votes`."""
        table = self._seen_addresses()
        for watch in self._watches.values():
            if watch.address and watch.missed >= MOST_MISSED:
                for region in watch.regions:
                    table[self._families[region, watch.spot]][region][watch.spot] = UNKNOWN_HEALTH
        return trusted(table)

    def _seen_addresses(self) -> dict[str, dict[str, dict[str, EndpointHealth]]]:
        table: dict[str, dict[str, dict[str, EndpointHealth]]] = {
            family: {region: dict(spots) for region, spots in self._left_out.get(family, {}).items()}
            for family in FAMILIES
        }
        for (region, spot), family in self._families.items():
            table[family].setdefault(region, {})[spot] = self._tracks[region, spot].health
        return table

    def votes(self) -> dict[str, dict[str, EndpointHealth]]:
        """The verdicts that others may go by: unknown where `MOST_MISSED` checks in a row could not be made, for what was seen then may be over."""
        table = self.health()
        for watch in self._watches.values():
            if not watch.address and watch.missed >= MOST_MISSED:
                for region in watch.regions:
                    table[region][watch.url] = UNKNOWN_HEALTH
        return table

    def take_outcomes(self) -> tuple[Probed, ...]:
        """Hand over the outcomes since the last time, in their order; of too many the newest."""
        taken = tuple(self._outcomes)
        self._outcomes.clear()
        return taken

    def certificates(self) -> tuple[ShownCertificate, ...]:
        """What endpoints showed to the newest probe of each."""
        return tuple(
            ShownCertificate(*place, result.certificate)
            for place, result in self.latest.items()
            if result.certificate is not None
        )

    def _add(self, key: _Key, delay: float) -> _Watch:
        url, probe, _, address = key
        watch = _Watch(url, probe, address)
        watch.job = self._scheduler.add_job(
            self._run,
            rhythm(probe),
            args=(watch,),
            max_instances=1,
            coalesce=True,
            misfire_grace_time=None,
            next_run_time=_after(min(delay, probe.interval)),
        )
        return watch

    def _remove(self, watch: _Watch) -> None:
        self._reschedule(watch, None)
        watch.probed.set()

    def _reschedule(self, watch: _Watch, delay: float | None) -> None:
        """Make the next check of a watch in `delay` seconds; None: never again."""
        if watch.job is None:
            return
        try:
            if delay is None:
                watch.job.remove()
                watch.job = None
            else:
                watch.job.modify(next_run_time=_after(delay))
        except JobLookupError:
            watch.job = None

    async def _run(self, watch: _Watch) -> None:
        """The scheduler's job. It waits for the check, so that `max_instances` holds, but cannot fail with it."""
        run = asyncio.current_task()
        task = asyncio.get_running_loop().create_task(self._check(watch))
        for item, group in ((task, self._checks), (run, self._runs)):
            if item is not None:
                group.add(item)
                item.add_done_callback(group.discard)
        await asyncio.wait((task,))

    async def _check(self, watch: _Watch) -> None:
        try:
            target = target_of(watch.url, watch.probe)
            if watch.address:
                target = Destination(watch.address, target.port)
        except CheckError:
            target = None  # the check itself says what is wrong
        lock, users = self._locks.get(target, (asyncio.Lock(), 0))
        self._locks[target] = (lock, users + 1)
        try:
            async with lock, self._address_slots if watch.address else self._slots:
                if watch.job is None:
                    return
                started = monotonic()
                result = await self._checker.check(watch.url, watch.probe, watch.address)
        finally:
            lock, users = self._locks.pop(target)
            if users > 1:
                self._locks[target] = (lock, users - 1)
        if watch.job is None:
            return
        if result is None:
            self._note_no_room(watch)
        else:
            self._without_room = False
            self._take(watch, result, monotonic() - started)

    def _note_no_room(self, watch: _Watch) -> None:
        """A check could not be made, which says nothing of its endpoint. Many in a row end what was said before."""
        watch.missed += 1
        if watch.missed == MOST_MISSED:
            self._tell()
        for region in watch.regions:
            self.results[region, "not_made"] += 1
        if not self._without_room:
            self._without_room = True
            logger.error(
                "endpoints cannot be probed: this process has no descriptors or memory left for connections; verdicts stay as they are, and after %d "
                "checks that are not made nobody else is told of them. Let it have more descriptors (LimitNOFILE, ulimit -n)",
                MOST_MISSED,
            )

    def _take(self, watch: _Watch, result: ProbeResult, took: float) -> None:
        """Draw the conclusions from one result."""
        changed, doubted, spot = watch.missed >= MOST_MISSED, False, watch.spot
        watch.missed = 0
        for region in watch.regions:
            before = self._tracks[region, spot]
            if watch.address:
                after = advance_address(before, result, watch.probe, seen=spot in self.ever_up)
            else:
                after = advance(before, result, watch.probe)
                self._note(region, watch.url, result)
            self._tracks[region, spot] = after
            self.results[region, "ok" if result.ok else "failed"] += 1
            if after.health.status is not before.health.status:
                changed = True
                _log(region, spot, after.health)
            doubted |= after.streak > 0
        if watch.address and result.ok:
            self.ever_up |= {spot}
        watch.probed.set()
        failed, suspect = doubted and not result.ok, monotonic() < watch.suspect_until
        if watch.address and spot not in self.ever_up and not failed:
            self._reschedule(watch, UNSEEN * pause_of(watch.probe))
        elif (pause := pause_after(watch.probe, took, failed=failed, suspect=suspect)) is not None:
            self._reschedule(watch, pause)
        if changed:
            self._look_at_addresses(watch)
            self._tell()

    def _look_at_addresses(self, changed: _Watch) -> None:
        """A URL has another verdict, so its addresses may have too: those that were never up are checked at once."""
        for watch in self._watches.values() if not changed.address else ():
            if watch.address and watch.url == changed.url and watch.spot not in self.ever_up:
                self._reschedule(watch, 0)

    def _note(self, region: str, url: str, result: ProbeResult) -> None:
        """What else is told of a check of an endpoint's URL."""
        self.latest[region, url] = result
        failure = "" if result.ok else result.detail or "failed"
        self._outcomes.append(Probed(region, url, result.latency_ms, result.status, failure))
        if result.connect_ms is not None and self._measured is not None:
            self._measured(region, result.connect_ms)

    def _tell(self) -> None:
        try:
            self._report()
        except Exception:
            logger.exception("could not report a changed verdict")

    async def _watch_clock(self) -> None:
        """Run every job anew when the system's clock was set: the scheduler plans by it (law 5)."""
        offset = self._clock() - monotonic()
        while True:
            await asyncio.sleep(_CLOCK_EVERY)
            now = self._clock() - monotonic()
            if abs(now - offset) > _CLOCK_STEP:
                logger.warning("the system's clock was set by %.1f s; probing goes on", now - offset)
                for watch in list(self._watches.values()):
                    self._reschedule(watch, random.uniform(0, watch.probe.interval))
            offset = now


def rhythm(probe: Probe) -> IntervalTrigger:
    """When the checks of a probe follow each other."""
    return IntervalTrigger(
        seconds=probe.interval * _SHORTEST, jitter=probe.interval * (1 - _SHORTEST), timezone=UTC
    )


def pause_of(probe: Probe) -> float:
    """Seconds until the next check, if this one had taken no time."""
    return probe.interval * random.uniform(_SHORTEST, 1)


def pause_after(probe: Probe, took: float, *, failed: bool, suspect: bool) -> float | None:
    """Seconds from the end of a check to the next one, where the rhythm does not say it (None).

    A check that ran into its timeout brings the next one forward by as much, so that the verdict still comes within interval × threshold; one that outlasted
    its interval is followed at once. (A little later than at once: the scheduler counts a run as over only a moment from now.)

    Args:
        probe: whose.
        took: seconds that the check took.
        failed: it failed, and more such failures change the verdict.
        suspect: somebody says that the endpoint is down.
    """
    if failed:
        pause = _SUSPECT_PAUSE if suspect else pause_of(probe) - 2 * took
        return max(_SOON, min(pause, probe.interval))
    return _SOON if took >= probe.interval * _SHORTEST else None


def _after(seconds: float) -> datetime:
    return datetime.now(UTC) + timedelta(seconds=seconds)


def _log(region: str, url: str, health: EndpointHealth) -> None:
    if health.status is HealthStatus.UP:
        logger.info("region %s: %s is up", region, url)
    else:
        logger.warning("region %s: %s is down: %s", region, url, health.detail)
