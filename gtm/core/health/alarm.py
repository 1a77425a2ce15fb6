"""When many regions go down at once by votes alone: an alarm, not an action.

Edges' reports are votes, and votes can be forged (a stolen token) or wrong (the vantages' own networks). One region that
most vantages cannot reach is down. More than half of all regions, of a service's, or of those in a fence, at once is taken
for a mistake of those who say so: control withdraws its verdicts on them, and every edge goes by its own probes. A true outage so acts
as well, at each edge as soon as it sees it.

Laws:
  1. It takes two regions: one that fails alone is no alarm, however small the world.
  2. A verdict of down is withdrawn only while the alarm is on. It ends for a region when the votes say up, or when for
     `HOLD` seconds nobody has seen the region up: then it is down.
  3. What went down before the alarm, one at a time, stays down.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from gtm.core.health.verdicts import HealthTable, VantageReport, combine, up_regions
from gtm.core.model.state import EndpointHealth, HealthStatus

WINDOW = 30.0
"""Seconds within which regions go down at once."""
HOLD = 60.0
"""Seconds for which nobody may see a region up before an alarm believes that it is down."""


@dataclass(frozen=True, slots=True)
class Fall:
    """When the votes took a region down, and whether they had said up before."""

    at: float
    from_up: bool


@dataclass(frozen=True, slots=True)
class Alarm:
    """What is remembered from one look to the next. Times are seconds of one clock that never steps back.

    `disputed` maps regions whose verdict is withdrawn to when somebody saw them up last (or the alarm began).
    """

    known_up: frozenset[str] = frozenset()
    falls: Mapping[str, Fall] = field(default_factory=dict)
    disputed: Mapping[str, float] = field(default_factory=dict)


def look(
    before: Alarm, agreed: HealthTable, seen_up: frozenset[str], scopes: Iterable[frozenset[str]], now: float
) -> Alarm:
    """Take in what the votes say now.

    Args:
        before: the result of the last look; `Alarm()` at the start.
        agreed: what the votes say together.
        seen_up: the regions that at least one vantage sees up.
        scopes: sets of regions that clients depend on together: all of the policy, a service's members, those in a fence.
        now: seconds.
    """
    up = up_regions(agreed)
    down = frozenset(
        region
        for region, endpoints in agreed.items()
        if region not in up and any(one.status is HealthStatus.DOWN for one in endpoints.values())
    )
    falls = {
        region: before.falls.get(region) or Fall(now, from_up=region in before.known_up) for region in down
    }
    disputed = {
        region: now if region in seen_up else last
        for region, last in before.disputed.items()
        if region in down and (region in seen_up or now - last < HOLD)
    }
    # A control that has just started saw nothing fall; what somebody sees up all the same may have fallen just now.
    fresh = frozenset(
        region
        for region, fall in falls.items()
        if now - fall.at <= WINDOW and (fall.from_up or region in seen_up)
    )
    found = dict(disputed)
    for scope in scopes if fresh - disputed.keys() else ():
        fallen = (fresh | disputed.keys()) & scope
        if len(fallen) > 1 and len(fallen) > len(up & scope) and fresh & scope - disputed.keys():
            found |= dict.fromkeys(fallen - found.keys(), now)
    return Alarm((before.known_up | up) - down, falls, found)


def withdrawn(agreed: HealthTable, alarm: Alarm) -> dict[str, dict[str, EndpointHealth]]:
    """What is told to edges: the verdicts, without those that the alarm disputes."""
    return {region: dict(table) for region, table in agreed.items() if region not in alarm.disputed}


def presumed(
    agreed: HealthTable,
    alarm: Alarm,
    reports: Sequence[VantageReport],
    now: float,
    max_age: float,
    *,
    clients: Callable[[], Mapping[str, float]] = dict,
) -> dict[str, dict[str, EndpointHealth]]:
    """What plans are made for: the verdicts, and where they are withdrawn or tied what those edges go by that have most clients.

    Each edge goes by its own probes there, so the plan is made for where most clients can be sent.

    Args:
        agreed: what the votes say together.
        alarm: the result of the last look.
        reports: the newest report of each vantage.
        now: POSIX seconds, by the clock that stamped the reports.
        max_age: seconds after which a report has no vote.
        clients: tells how much is asked of each voter's edges. Of two that have as much, the one that sees an endpoint up counts.
    """
    found = {
        region: {url: one for url, one in table.items() if not one.tied}
        for region, table in withdrawn(agreed, alarm).items()
    }
    if not alarm.disputed and all(len(found[region]) == len(table) for region, table in agreed.items()):
        return found  # nearly always: nothing is left to be looked for in all reports
    asked = clients()
    said: dict[tuple[str, str], dict[HealthStatus, list[VantageReport]]] = {}
    for report in reports:
        for region, table in report.health.items() if now - report.received <= max_age else ():
            for url, one in table.items():
                if one.status is not HealthStatus.UNKNOWN and url not in found.get(region, {}):
                    said.setdefault((region, url), {}).setdefault(one.status, []).append(report)
    for (region, url), sides in said.items():
        weights = {
            side: sum(asked.get(voter, 0.0) for voter in {one.voter for one in those})
            for side, those in sides.items()
        }
        side = max(weights, key=lambda one: (weights[one], one is HealthStatus.UP))
        verdict = combine(
            [
                VantageReport(one.vantage, one.received, {region: {url: one.health[region][url]}})
                for one in sides[side]
            ],
            now,
            max_age,
            agreed,
        )
        found.setdefault(region, {}).update(verdict[region])
    return found
