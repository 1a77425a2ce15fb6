"""What is written correctly and is probably a slip: places that are not in their country, times in another unit.

It knows where countries are (`gtm.geoip`), which the core does not: so it stands beside the core's findings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from gtm.core.change.protections import led_out
from gtm.core.findings.report import findings
from gtm.core.model.geometry import great_circle_km
from gtm.core.model.names import closest
from gtm.core.model.policy import Policy
from gtm.core.model.problems import PolicyError, Problem
from gtm.core.model.regions import Region
from gtm.core.policy.snapshot import Snapshot
from gtm.dns.zone.findings import region_aliases, region_loops, zone_findings
from gtm.dns.zone.leads import leads_of
from gtm.geoip.centres import country_tiles

NEAR_KM = 500.0
"""From the middle of a cell of 2.5° in which a country has addresses; a cell is at most 280 km wide each way."""
LONG_INTERVAL = 300.0
"""Seconds between probes from on which milliseconds were probably meant."""


def all_findings(snapshot: Snapshot, now: float) -> tuple[Problem, ...]:
    """The core's findings, those of zones, what leads out of fences (`led_out`), then those of this module: `place` and `unit`.

    The others are `gtm.core.findings.report`'s and `gtm.dns.zone.findings`'.

    Args:
        snapshot: the policy.
        now: POSIX seconds.
    """
    return (
        *findings(snapshot, now),
        *zone_findings(snapshot, leads_of(snapshot)),
        *led_out(snapshot, now, leads_of),
        *plausibility(snapshot.policy),
    )


def errors(snapshot: Snapshot) -> tuple[Problem, ...]:
    """What no new policy may hold, and one in force may: edges answer by it, and others of its changes are not refused for it.

    That is what `gtm.dns.zone.findings.region_loops` finds. It costs nothing where no region has an alias for a name of the policy's.
    """
    if not any(closest(snapshot.zones, cname) for _, cname in region_aliases(snapshot)):
        return ()
    return tuple(region_loops(snapshot, leads_of(snapshot)))


def refuse_errors(before: Callable[[], Snapshot], after: Snapshot) -> None:
    """Refuse a change that brings such errors.

    Args:
        before: compiles the policy that is changed, where that is needed.
        after: the policy with the change.

    Raises:
        PolicyError: with those that the policy did not have before.
    """
    found = errors(after)
    known = {one.message for one in errors(before())} if found else ()
    new = [one for one in found if one.message not in known]
    if new:
        raise PolicyError(new)


def plausibility(policy: Policy) -> Iterator[Problem]:
    """Regions whose coordinates are far from their country, and probes that are hardly ever made."""
    for region in policy.regions:
        path = f"regions.{region.name}"
        if not _near(region.country, region.lat, region.lon):
            yield Problem(f"{path}.lat", "place", _misplaced(region))
        interval = region.probe.interval
        if interval >= LONG_INTERVAL:
            text = (
                f"{interval:g} s are {interval / 60:.0f} minutes, so a failure is seen after "
                f"{interval * region.probe.down_threshold / 60:.0f}: intervals are in seconds, were milliseconds meant?"
            )
            yield Problem(f"{path}.probe.interval", "unit", text)


def _misplaced(region: Region) -> str:
    where = f"latitude {region.lat:g}, longitude {region.lon:g} is far from {region.country}"
    if _near(region.country, region.lon, region.lat):
        return f"{where}, and the other way round it is not: latitude and longitude seem to be swapped"
    return (
        f"{where}: residency goes by the country, steering by the coordinates; one of them is probably wrong"
    )


def _near(country: str, lat: float, lon: float) -> bool:
    """Whether a country has addresses around there; also where nothing is known of it, or the place is none."""
    tiles = country_tiles().get(country)
    if tiles is None:
        return True
    return abs(lat) <= 90 and any(great_circle_km(lat, lon, *tile) <= NEAR_KM for tile in tiles)
