"""When an endpoint counts as up: a state machine per vantage, and how vantages agree.

Laws:
  1. Unknown is never healthy: an endpoint is not used before its first verdict.
  2. The first result decides at once (a fresh edge must not refuse clients for `up_threshold` rounds); after that a
     change takes as many results in a row as its threshold says.
  3. Silence is not health: a vantage whose report is stale has no vote.
  4. An endpoint has recovered when it was seen down and is up again: not when its observer started, and together not
     before most vantages say so.
  5. Who speaks for several vantages has one vote: their majority. A token that is stolen is one voter, under however
     many names it reports.
  6. A tie decides nothing: it leaves what was, and each vantage goes by its own probes. Otherwise one voter of two could
     take any region down, or keep a dead one up.
  7. Votes alone do not empty an edge: where they would take down most of what it sees up itself, it goes by its own
     probes there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from gtm.core.model.certificates import Certificate
from gtm.core.model.regions import Probe
from gtm.core.model.state import UNKNOWN_HEALTH, EndpointHealth, HealthStatus

HealthTable = Mapping[str, Mapping[str, EndpointHealth]]
"""Region name → endpoint URL → health."""


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """The outcome of one check. `at` in POSIX seconds, `latency_ms` of the whole exchange where there was one.

    `status` is HTTP's, where the endpoint sent one. `connect_ms` is the network's round trip alone, where the connection's
    handshake told it; `certificate` is the one that was shown.
    """

    ok: bool
    at: float
    detail: str = ""
    latency_ms: float | None = None
    connect_ms: float | None = None
    certificate: Certificate | None = None
    status: int | None = None


@dataclass(frozen=True, slots=True)
class Track:
    """One vantage's memory of one endpoint: its verdict, and the results in a row that contradict it."""

    health: EndpointHealth = UNKNOWN_HEALTH
    streak: int = 0


def advance(track: Track, result: ProbeResult, probe: Probe) -> Track:
    """Take one probe result into account.

    Returns:
        The new memory. `health.since` moves only when the status does.
    """
    wanted = HealthStatus.UP if result.ok else HealthStatus.DOWN
    before = track.health
    detail = "" if result.ok else result.detail
    if before.status is wanted:
        return Track(replace(before, detail=detail, latency_ms=result.latency_ms))
    threshold = probe.up_threshold if result.ok else probe.down_threshold
    streak = track.streak + 1
    if before.status is HealthStatus.UNKNOWN or streak >= threshold:
        recovered = result.ok and before.status is HealthStatus.DOWN
        return Track(EndpointHealth(wanted, result.at, detail, result.latency_ms, recovered))
    kept = before.detail if result.ok else detail
    return Track(replace(before, detail=kept, latency_ms=result.latency_ms), streak)


@dataclass(frozen=True, slots=True)
class VantageReport:
    """What one edge saw, and when it said so (seconds of control's clock).

    `voter` is who answers for it (a token): reports of one voter have one vote together. Empty: the vantage itself.
    """

    vantage: str
    received: float
    health: HealthTable
    voter: str = ""


def combine(
    reports: Iterable[VantageReport], now: float, max_age: float, before: HealthTable = MappingProxyType({})
) -> dict[str, dict[str, EndpointHealth]]:
    """What the vantages say together: what more than half of the voters that know an endpoint say.

    A voter with several vantages says what more than half of those of its vantages that know the endpoint say; where
    these are split evenly, it does not vote. Where the voters are split evenly, the verdict stays what it was before, as
    `tied`; unknown, if there was none before.

    Args:
        reports: the newest report of each vantage.
        now: POSIX seconds, by the clock that stamped the reports.
        max_age: seconds after which a report has no vote.
        before: what they said together the last time.
    """
    votes: dict[tuple[str, str], dict[str, list[EndpointHealth]]] = {}
    for report in reports:
        if now - report.received > max_age:
            continue
        voter = report.voter or report.vantage
        for region, endpoints in report.health.items():
            for url, health in endpoints.items():
                if health.status is not HealthStatus.UNKNOWN:
                    votes.setdefault((region, url), {}).setdefault(voter, []).append(health)
    combined: dict[str, dict[str, EndpointHealth]] = {}
    for (region, url), cast in votes.items():
        said = [word for seen in cast.values() if (word := _verdict(seen)) is not None]
        verdict = _verdict(said)
        if verdict is None:
            was = before.get(region, {}).get(url, UNKNOWN_HEALTH)
            verdict = was if was.tied else replace(was, tied=True)
        combined.setdefault(region, {})[url] = verdict
    return combined


def _verdict(cast: list[EndpointHealth]) -> EndpointHealth | None:
    """What most say; None if as many say up as say down."""
    up = [health for health in cast if health.status is HealthStatus.UP]
    down = [health for health in cast if health.status is HealthStatus.DOWN]
    if len(up) == len(down):
        return None
    side = up if len(up) > len(down) else down
    latencies = sorted(health.latency_ms for health in side if health.latency_ms is not None)
    # The vantage whose word made the majority: one that flapped alone, or has just started, moves no ramp.
    made = (
        sorted(up, key=lambda health: (health.recovered, health.since))[len(cast) // 2]
        if side is up
        else max(down, key=lambda health: health.since)
    )
    return EndpointHealth(
        status=made.status,
        since=made.since,
        recovered=made.recovered,
        detail=next((health.detail for health in side if health.detail), ""),
        latency_ms=latencies[len(latencies) // 2] if latencies else None,
    )


def fill(agreed: HealthTable, own: HealthTable) -> dict[str, dict[str, EndpointHealth]]:
    """The vantages' common verdicts, and one vantage's own where there is none, or a tie.

    A control that has just restarted knows nothing yet; edges must not forget what they see because of that.
    """
    filled = {region: dict(endpoints) for region, endpoints in own.items()}
    for region, endpoints in agreed.items():
        known = filled.setdefault(region, {})
        known.update({url: health for url, health in endpoints.items() if _decided(health, known.get(url))})
    return filled


def _decided(agreed: EndpointHealth, own: EndpointHealth | None) -> bool:
    """Whether the common verdict on an endpoint goes before a vantage's own, which may be missing."""
    if agreed.status is HealthStatus.UNKNOWN:
        return False
    return not agreed.tied or own is None or own.status is HealthStatus.UNKNOWN


def overruled(agreed: HealthTable, own: HealthTable) -> frozenset[str]:
    """The regions for which an edge goes by its own probes against the common verdict: most of what it sees up.

    One or two regions that others cannot reach are theirs to judge. When the common verdict would leave an edge with
    less than half of the regions that it can reach itself, the votes are more likely to be wrong, or forged.

    Args:
        agreed: the common verdicts.
        own: what the edge's own probes say now.

    Returns:
        The regions up by `own` and not by `fill(agreed, own)`, if these are more than half of those up by `own`.
    """
    seen = up_regions(own)
    lost = seen - up_regions(fill(agreed, own))
    return lost if 2 * len(lost) > len(seen) else frozenset()


def up_regions(table: HealthTable) -> frozenset[str]:
    """The regions with an endpoint that is up."""
    return frozenset(
        region
        for region, endpoints in table.items()
        if any(health.status is HealthStatus.UP for health in endpoints.values())
    )


def followed(
    agreed: HealthTable, own: HealthTable, recent: HealthTable
) -> dict[str, dict[str, EndpointHealth]]:
    """What an edge goes by: the common verdicts, its own where there is none, and its own where it overrules them.

    Args:
        agreed: the common verdicts.
        own: what the edge's own probes said last.
        recent: of that what they have said lately, which alone overrules.
    """
    ours = overruled(agreed, recent)
    return fill({region: endpoints for region, endpoints in agreed.items() if region not in ours}, own)
