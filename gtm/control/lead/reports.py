"""Edges' reports, taken in: what they see to the vantages, what they count to demand, what they measure to round trips."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from gtm.control.lead.corrections import CorrectionBook
from gtm.control.lead.demand import DemandBook, Reported
from gtm.control.lead.intake import Intake
from gtm.control.lead.latency import LatencyBook
from gtm.control.lead.leases import Leases
from gtm.control.lead.takeover import Takeover
from gtm.control.lead.vantages import Vantages
from gtm.control.live.present import Current
from gtm.feed.wire import EdgeReply, EdgeReport


class Reports:
    """What the edges of one control process reported.

    Args:
        current: the policy that reports are read by.
        latency: takes what was learned of round trips.
        leases: answers what edges ask of quotas.
        clock: POSIX seconds.
        monotonic: seconds that never step back.
    """

    def __init__(
        self,
        current: Current,
        latency: LatencyBook,
        leases: Leases,
        clock: Callable[[], float],
        monotonic: Callable[[], float],
    ) -> None:
        self.vantages = Vantages(clock, monotonic)
        self.demand = DemandBook()
        self.corrections = CorrectionBook()
        self.takeover = Takeover()
        self.dropped: Counter[str] = Counter()
        """Items that were left out of reports, by part of the report."""
        self.heard = asyncio.Event()
        """Set by each report; whoever looks at them clears it."""
        self._current = current
        self._latency = latency
        self._leases = leases
        self._clock = clock
        self._monotonic = monotonic
        self._intake = Intake(None, self.dropped)

    def take(
        self, edge: str, address: str, report: EdgeReport, token: str = "", token_id: str = ""
    ) -> EdgeReply:
        """Take in what an edge sees and was asked; the reply leases it its part of the quotas.

        Args:
            edge: its name.
            address: where the report came from.
            report: what was read of it, within bounds (`gtm.api.routes.edges`).
            token: the token's name; all edges of one token have one vote. Empty: each has its own.
            token_id: the token's id.

        Raises:
            Conflict: one token reports under too many names.
        """
        compiled = self._current.now.compiled
        if self._intake.snapshot is not compiled:
            self._intake = Intake(compiled, self.dropped)
        report, now = self._intake.read(report, self._clock()), self._monotonic()
        known = self.vantages.take(token, edge, address, report, token_id)
        self.demand.take(known.source, report.demand, report.seconds, now, self._intake.wanted)
        self.corrections.take(known.source, report.corrections, report.seconds, now)
        self._latency.take(report.latency, token or edge, report.witnesses)
        wants_plan = self.takeover.take(known.source, report.plan, now)
        self.heard.set()
        reply = EdgeReply(None, wants_plan, self.vantages.notice(known))
        return replace(reply, leases=self._leases.answer(edge, report.leases, now))

    @property
    def corrected(self) -> dict[tuple[str, str], float]:
        """What all edges move by free slots now, in requests per second, by the region that the plan chose and the one that takes them."""
        return self.corrections.rates(self._monotonic())

    @property
    def reported(self) -> Reported:
        """The rates of all edges now, to be added up."""
        return self.demand.reported(self._monotonic())
