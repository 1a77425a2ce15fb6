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
from math import inf
from types import MappingProxyType

from gtm.core.model.certificates import Certificate
from gtm.core.model.regions import AdminState, Probe, Region
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
        was = before.get(region, {}).get(url, UNKNOWN_HEALTH)
        said = [word for seen in cast.values() if (word := _verdict(seen, was)) is not None]
        verdict = _verdict(said, was)
        if verdict is None:
            verdict = was if was.tied else replace(was, tied=True)
        combined.setdefault(region, {})[url] = verdict
    return combined


def _verdict(cast: list[EndpointHealth], before: EndpointHealth) -> EndpointHealth | None:
    """What most say, where they said that before; None if as many say up as say down."""
    up = [health for health in cast if health.status is HealthStatus.UP]
    down = [health for health in cast if health.status is HealthStatus.DOWN]
    if len(up) == len(down):
        return None
    side = up if len(up) > len(down) else down
    latencies = sorted(health.latency_ms for health in side if health.latency_ms is not None)
    # The vantage whose word made the majority: one that flapped alone, has just started, or lies moves no ramp.
    if side is down:
        made = max(down, key=lambda health: health.since)
    else:
        by_time = sorted(up, key=_recovery)
        if before.status is HealthStatus.DOWN:
            made = by_time[len(cast) // 2]
        else:  # It stays up for as long as half of them see it up: no word beyond these says that it fell meanwhile.
            made = max(by_time[(len(cast) - 1) // 2], before, key=_recovery)
    return EndpointHealth(
        status=made.status,
        since=made.since,
        recovered=made.recovered,
        detail=next((health.detail for health in side if health.detail), ""),
        latency_ms=latencies[len(latencies) // 2] if latencies else None,
    )


def _recovery(health: EndpointHealth) -> tuple[bool, float]:
    """In the order of this, who saw an endpoint come back later comes later."""
    return health.recovered, health.since


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


# --- Slow start and drain: how a region's share of the traffic moves with time.
#
# Laws:
#   1. A factor moves in steps of 5 %, at moments that follow from policy and health alone: whoever computes it at the
#      same time gets the same one, and what hangs on it is rebuilt at those moments only.
#   2. A region ramps up after a failure, not after a start of its observer: only endpoints that `recovered` ramp.
#   3. What began to drain at an unknown time has no time left.


STEPS = 20
"""Steps in a whole: one is 5 %."""
SLOW_START_FLOOR = 2
"""Steps at the start of a ramp: 10 %, so that a first trickle shows whether the region holds."""


def slow_start_factor(region: Region, health: Mapping[str, EndpointHealth], now: float) -> float:
    """The share (0.1–1) of its usual traffic that a region gets after a failure.

    It counts from when the first endpoint was up again: others that follow take nothing from those that serve.

    Args:
        region: the region; it ramps over `slow_start` seconds.
        health: endpoint URL → health. Where no endpoint is up nothing ramps, and usability is decided elsewhere.
        now: POSIX seconds.
    """
    since = _up_again(region, health)
    return 1.0 if since is None else _ramp(since, region.slow_start, now)


def endpoint_factor(health: EndpointHealth, slow_start: float, now: float) -> float:
    """The share (0–1) of its capacity that one endpoint has: 0 unless it is up, rising after a failure."""
    if health.status is not HealthStatus.UP:
        return 0.0
    return _ramp(health.since, slow_start, now) if health.recovered else 1.0


def drain_factor(region: Region, now: float) -> float:
    """The share (0–1) of its clients with affinity that a region keeps.

    1 while it is active, 0 while it is disabled; draining, it falls from 1 to 0 over `drain_deadline` seconds.

    Args:
        region: the region.
        now: POSIX seconds.
    """
    if region.admin_state is AdminState.ACTIVE:
        return 1.0
    if region.admin_state is AdminState.DISABLED or region.draining_since is None:
        return 0.0
    moments = _moments(region.draining_since.timestamp(), region.drain_deadline, STEPS)
    return (STEPS - _passed(moments, now)) / STEPS


def next_change(regions: Iterable[Region], health: HealthTable, now: float) -> float:
    """The first POSIX time after `now` at which a factor of some region changes; infinite if none will.

    Args:
        regions: the policy's regions.
        health: region name → endpoint URL → health.
        now: POSIX seconds.
    """
    coming = (
        moment
        for region in regions
        for moment in _region_moments(region, health.get(region.name, {}))
        if moment > now
    )
    return min(coming, default=inf)


def _region_moments(region: Region, health: Mapping[str, EndpointHealth]) -> tuple[float, ...]:
    """When the factors of a region step: slow start while it is active, drain while it drains."""
    if region.admin_state is AdminState.ACTIVE:
        since = _up_again(region, health)
        return () if since is None else _moments(since, region.slow_start, STEPS - SLOW_START_FLOOR)
    if region.admin_state is AdminState.DRAINING and region.draining_since is not None:
        return _moments(region.draining_since.timestamp(), region.drain_deadline, STEPS)
    return ()


def _up_again(region: Region, health: Mapping[str, EndpointHealth]) -> float | None:
    """When the region came back: its first endpoint's recovery; None if one never failed, or none is up."""
    known = (health.get(endpoint.url, UNKNOWN_HEALTH) for endpoint in region.endpoints)
    up = [item for item in known if item.status is HealthStatus.UP]
    return min(item.since for item in up) if up and all(item.recovered for item in up) else None


def _ramp(since: float, slow_start: float, now: float) -> float:
    steps = STEPS - SLOW_START_FLOOR
    return (SLOW_START_FLOOR + _passed(_moments(since, slow_start, steps), now)) / STEPS


def _moments(since: float, duration: float, steps: int) -> tuple[float, ...]:
    """The POSIX times of the steps. Factor and next change both come from these, so that no rounding parts them."""
    return tuple(since + duration * step / steps for step in range(1, steps + 1))


def _passed(moments: tuple[float, ...], now: float) -> int:
    return sum(moment <= now for moment in moments)
