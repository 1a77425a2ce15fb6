"""The vantages' verdicts, told: what they say together is a new state as soon as it differs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from gtm.control.lead.reports import Reports
from gtm.control.live.present import Current
from gtm.control.live.subscribers import HEARTBEAT
from gtm.core.health.addresses import FAMILIES
from gtm.core.health.verdicts import HealthTable

COALESCE = 0.1
"""Longest time, in seconds, that a new verdict waits for others to travel with it."""


class Verdicts:
    """Judges for one control process.

    Args:
        current: whose state has the verdicts.
        reports: what the vantages said.
        clock: POSIX seconds.
    """

    def __init__(self, current: Current, reports: Reports, clock: Callable[[], float]) -> None:
        self._current = current
        self._reports = reports
        self._clock = clock

    async def run(self) -> None:
        """Combine reports soon after they arrive, and once a second for those that grow stale, until cancelled."""
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._reports.heard.wait(), HEARTBEAT)
                await asyncio.sleep(COALESCE / 2)
            self._reports.heard.clear()
            self.judge()

    def judge(self) -> None:
        """Combine what the vantages say now; a verdict that differs makes a new state."""
        now = self._current.now
        self._reports.follow()
        judgement = self._reports.vantages.judge(now.compiled, self._reports.clients)
        if not self._reports.vantages.gathering:
            self._reports.history.judged(judgement.votes, self._clock())
        told = judgement.told
        addresses = judgement.addresses
        if _verdicts(told) != _verdicts(now.state.health) or any(
            _verdicts(addresses.get(family, {})) != _verdicts(now.state.addresses.get(family, {}))
            for family in FAMILIES
        ):
            self._current.become(now.with_state(self._clock(), health=told, addresses=addresses))


def _verdicts(health: HealthTable) -> dict[tuple[str, str], tuple[str, str]]:
    """What of health matters to edges: a changed latency alone is no news."""
    return {
        (region, url): (item.status.value, item.detail)
        for region, endpoints in health.items()
        for url, item in endpoints.items()
    }
