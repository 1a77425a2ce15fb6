"""The regions' load and capacity, as one control process knows them.

Law: load lives in memory only. A control that starts knows of no report, and regions count as declared until the first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from gtm.core.capacity.load import MAX_SOURCES, Key, Load, LoadBook, read_reports
from gtm.core.capacity.supply import NO_ASSESSMENT, Assessment, RegionCapacity, assess, assess_region
from gtm.core.health.verdicts import HealthTable
from gtm.core.model.policy import Policy
from gtm.core.model.problems import Problem


class RegionLoads:
    """What reporters sent, and what follows from it.

    Args:
        clock: POSIX seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._book = LoadBook()
        self._policy = Policy()
        self._members: dict[str, frozenset[str]] = {}
        self._services: frozenset[str] = frozenset()
        self.assessment = NO_ASSESSMENT
        """The planner's last one, which its next goes on from."""

    def take(
        self, policy: Policy, body: Any, reporter: str, bound: str | None = None
    ) -> tuple[int, list[Problem]]:
        """Take in load reports.

        Args:
            policy: the policy in force.
            body: the decoded JSON, see `gtm.core.capacity.load`.
            reporter: the source of reports that name none.
            bound: the region that it may speak of, or a pattern of names; None: any.

        Returns:
            How many reports were taken in, and what was wrong with them or the others.
        """
        self._follow(policy)
        reports, problems = read_reports(
            body, self._members, self._services, reporter, self._clock(), bound=bound
        )
        refused = [report for report in reports if not self._book.take(report)]
        problems += [
            Problem("source", "out_of_range", f"region `{name}` has {MAX_SOURCES} other reporters already")
            for name in sorted({report.region for report in refused})
        ]
        return len(reports) - len(refused), problems

    def loads(self, policy: Policy) -> dict[Key, Load]:
        """What was reported of each region and service of the policy, also of old (a copy)."""
        self._follow(policy)
        return self._book.loads()

    async def assess(self, policy: Policy, health: HealthTable) -> tuple[Assessment, float]:
        """What every region can take now, and the POSIX time that now is. Worked out beside the event loop.

        It is for those who read: what the planner goes on from stays as it is.

        Args:
            policy: the policy in force.
            health: region name → endpoint URL → health, as the vantages agree.
        """
        now = self._clock()
        found = await asyncio.to_thread(assess, policy, health, self.loads(policy), now, self.assessment)
        return found, now

    async def assess_region(
        self, policy: Policy, health: HealthTable, name: str
    ) -> tuple[RegionCapacity | None, float]:
        """The same for one region; None: there is no such region."""
        now = self._clock()
        loads = self.loads(policy)
        before = self.assessment
        return await asyncio.to_thread(assess_region, policy, name, health, loads, now, before=before), now

    def _follow(self, policy: Policy) -> None:
        """Forget what a new policy does not know."""
        if policy is self._policy:
            return
        members: dict[str, set[str]] = {region.name: set() for region in policy.regions}
        for service in policy.services:
            for member in service.members:
                members[member.region].add(service.name)
        self._policy = policy
        self._members = {region: frozenset(names) for region, names in members.items()}
        self._services = frozenset(service.name for service in policy.services)
        self._book.retain(lambda key: key[0] in members and (not key[1] or key[1] in members[key[0]]))
