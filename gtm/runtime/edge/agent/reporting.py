"""What control is told of an edge: once a second, and when something changed."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress

from gtm import __version__
from gtm.core.quota.leases import LeaseHolder
from gtm.feed.client import ControlUnreachable, FeedClient
from gtm.feed.current import CurrentView
from gtm.feed.reports import DnsLimits, EdgeReport
from gtm.handoff.own_keys import OwnKeys
from gtm.prober import Prober
from gtm.runtime.edge.agent.round_trips import RoundTrips
from gtm.runtime.edge.agent.veto import Veto
from gtm.runtime.edge.agent.worker_pool import WorkerPool
from gtm.runtime.process.clocks import boot_time
from gtm.settings import DnsSettings
from gtm.telemetry import EdgeMetrics

logger = logging.getLogger(__name__)

REPORT_EVERY = 1.0
"""Seconds between reports to control when nothing changes."""
CERTIFICATES_EVERY = 15.0
"""Seconds between reports that have certificates: they change with the seasons, and are much text."""


class Reporter:
    """Reports of one edge.

    Args:
        current: what it answers from.
        prober: what it sees of the regions.
        metrics: what it was asked.
        round_trips: what it learned of them.
        veto: where it goes by its own probes.
        leases: what it did with the quotas' leases.
        connected: whether control is heard.
        own_keys: what it signs handoffs with.
        dns: how its DNS limits abuse.
        kept: the revision on its disk.
    """

    def __init__(
        self,
        *,
        current: CurrentView,
        prober: Prober,
        metrics: EdgeMetrics,
        round_trips: RoundTrips,
        veto: Veto,
        leases: LeaseHolder,
        connected: Callable[[], bool],
        own_keys: OwnKeys,
        dns: DnsSettings,
        kept: Callable[[], int],
    ) -> None:
        self.due = asyncio.Event()
        """Set where control should hear soon."""
        self.wants_plan = False
        """Control has just started, and asks which plan is followed."""
        self._current = current
        self._prober = prober
        self._metrics = metrics
        self._round_trips = round_trips
        self._veto = veto
        self._leases = leases
        self._connected = connected
        self._own_keys = own_keys
        self._kept = kept
        self._limits = DnsLimits(
            dns.rate_limit, dns.rate_limit_excess, dns.rate_limit_slip, len(dns.rate_limit_exempt)
        )
        self._told_certificates = -CERTIFICATES_EVERY
        self._reported_at = time.monotonic()
        self._notice = ""

    async def run(self, client: FeedClient, name: Callable[[], str], workers: WorkerPool) -> None:
        """Report for ever. What control answers goes to whom it concerns: leases to the workers, notices into the log."""
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(self.due.wait(), REPORT_EVERY)
            self.due.clear()
            client.name = name()
            with suppress(ControlUnreachable):  # the feed's own loop says so
                reply = await client.report(self.next(workers.revision))
                self.wants_plan = reply.wants_plan
                if reply.notice and not self._notice:
                    logger.error("control says: %s", reply.notice[:1000])
                self._notice = reply.notice
                if reply.leases is not None and self._leases.take(reply.leases):
                    workers.put_parts()

    def next(self, revision: int) -> EdgeReport:
        """What control is told now. Demand that a lost report held stays in the metrics alone.

        Args:
            revision: which every worker that listens answers from.
        """
        now = time.monotonic()
        seconds, self._reported_at = now - self._reported_at, now
        deltas, witnesses = self._round_trips.take() if self._connected() else ((), ())
        certificates = None
        if now - self._told_certificates >= CERTIFICATES_EVERY:
            self._told_certificates, certificates = now, self._prober.certificates()
        return EdgeReport(
            version=__version__,
            place=self._current.place,
            revision=revision,
            kept=self._kept(),
            epoch=self._current.state.epoch,
            health=self._prober.votes(),
            addresses=self._prober.address_votes(),
            demand=self._metrics.take_demand(),
            seconds=seconds,
            leases=self._leases.use(boot_time()),
            latency=deltas,
            witnesses=witnesses,
            plan=self._current.state.plan if self.wants_plan else None,
            overruled=tuple(sorted(self._veto.regions)),
            handoff_keys=self._own_keys.public,
            corrections=self._metrics.take_corrections(),
            dns=self._metrics.take_dns(),
            dns_limits=self._limits,
            probed=self._prober.take_outcomes(),
            certificates=certificates,
        )
