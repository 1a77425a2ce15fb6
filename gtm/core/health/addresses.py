"""Which of the addresses that DNS gives out answer: each is probed by itself, and one that died leaves the answers.

Theory. An endpoint's URL is checked as ever. Beside it each address of the endpoint has a verdict of its own, by the same thresholds, from
the same checks made at that address. DNS goes by the addresses, where they are known, and HTTP by the URL, which it hands out. So what is
probed is what clients are given, also where the URL's host resolves to something else (such as the service itself).

Laws:
  1. An address counts once it was up, at the edge that judges. Until then it is unknown, and its URL's verdict stands for it:
     edges may not reach what clients do (NAT that does not lead back, URLs of private networks).
  2. A common verdict on an address takes most of those who know it, and most of those who vote on its endpoint, where who does not know the
     address votes as on its URL. Else each edge goes by its own. So who alone knows an address decides nothing for others.
  3. An edge that sees all addresses of a family down, in two regions or more, has lost that family itself: it says nothing of it.
  4. Alarm and veto (`gtm.core.health.alarm`, `verdicts.overruled`) hold for each family by itself.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from gtm.core.health.verdicts import (
    HealthTable,
    ProbeResult,
    Track,
    VantageReport,
    advance,
    combine,
    fill,
    followed,
    overruled,
)
from gtm.core.model.regions import AddressFamily, Endpoint, Probe, Region
from gtm.core.model.state import UNKNOWN_HEALTH, EndpointHealth, HealthStatus

FAMILIES: Final[tuple[str, ...]] = tuple(AddressFamily)
"""The families, by the names of an endpoint's fields."""
Addresses = Mapping[str, HealthTable]
"""Family → region name → `address_key` → health."""
NO_ADDRESSES: Addresses = MappingProxyType({})
_Table = dict[str, dict[str, EndpointHealth]]


def address_key(url: str, address: str) -> str:
    """What names an endpoint's address in tables of health: it is probed by the endpoint's URL."""
    return f"{address} {url}"


def address_of(key: str) -> str:
    """The address of an `address_key`."""
    return key.partition(" ")[0]


def url_of(key: str) -> str:
    """The endpoint's URL of an `address_key`."""
    return key.partition(" ")[2]


def judged_addresses(region: Region) -> Iterable[tuple[str, Endpoint, str]]:
    """The addresses of a region that are probed by themselves: family, endpoint, address.

    Not those that are their URL's own host: the URL's check is theirs.
    """
    if region.probe.addresses:
        for endpoint in region.endpoints:
            for family in FAMILIES:
                for address in getattr(endpoint, family):
                    if endpoint.host != address:
                        yield family, endpoint, address


def advance_address(track: Track, result: ProbeResult, probe: Probe, *, seen: bool) -> Track:
    """Take one result into account, as `advance` does; one that was never up stays unknown, with its failure (law 1).

    Args:
        track: what is remembered of the address.
        result: of a check made at it.
        probe: how it was made.
        seen: whether it was ever up from here.
    """
    if not seen and not result.ok:
        return Track(replace(UNKNOWN_HEALTH, detail=result.detail))
    return advance(track, result, probe)


def trusted(own: Addresses) -> dict[str, _Table]:
    """What an edge may say of addresses: nothing of a family that it has lost itself (law 3)."""
    return {family: _trusted(table) for family, table in own.items()}


def _trusted(table: HealthTable) -> _Table:
    known = {
        region: {one.status for one in addresses.values()} - {HealthStatus.UNKNOWN}
        for region, addresses in table.items()
    }
    told = [statuses for statuses in known.values() if statuses]
    if len(told) < 2 or any(HealthStatus.UP in statuses for statuses in told):
        return {region: dict(addresses) for region, addresses in table.items()}
    lost = "every address of this family is down from here, so this edge has lost the family itself"
    return {
        region: {
            key: replace(UNKNOWN_HEALTH, detail=lost) if one.status is HealthStatus.DOWN else one
            for key, one in addresses.items()
        }
        for region, addresses in table.items()
    }


@dataclass(frozen=True, slots=True)
class AddressReport:
    """What one edge sees of endpoints and of their addresses; the rest is as `VantageReport` has it."""

    endpoints: VantageReport
    addresses: Addresses


def combine_addresses(
    reports: Collection[AddressReport], now: float, max_age: float, before: Addresses = NO_ADDRESSES
) -> dict[str, _Table]:
    """What the vantages say together of addresses (law 2). What is left out has no common verdict.

    Args:
        reports: the newest of each vantage.
        now: POSIX seconds, by the clock that stamped the reports.
        max_age: seconds after which a report has no vote.
        before: what they said together the last time.
    """
    doubted = {
        (region, url)
        for report in reports
        for region, endpoints in report.endpoints.health.items()
        for url, one in endpoints.items()
        if one.status is not HealthStatus.UP
    }
    found = {}
    for family in FAMILIES:
        cast = [replace(one.endpoints, health=one.addresses.get(family, {})) for one in reports]
        known = combine(cast, now, max_age, before.get(family, {}))
        # Of an address that is up by those who know it, and whose URL is up for all, everybody says the same.
        keys = [
            (region, key)
            for region, table in known.items()
            for key, one in table.items()
            if one.status is not HealthStatus.UP or one.tied or (region, url_of(key)) in doubted
        ]
        whole = combine([_whole(one, family, keys) for one in reports], now, max_age)
        for region, key in keys:
            agreed = whole.get(region, {}).get(key, UNKNOWN_HEALTH)
            if agreed.status is not known[region][key].status:
                del known[region][key]
        found[family] = {region: table for region, table in known.items() if table}
    return found


def _whole(report: AddressReport, family: str, keys: Iterable[tuple[str, str]]) -> VantageReport:
    """A vantage's votes on these addresses: on those that it does not know, as on their URL."""
    said, table = report.addresses.get(family, {}), dict[str, dict[str, EndpointHealth]]()
    for region, key in keys:
        one = said.get(region, {}).get(key, UNKNOWN_HEALTH)
        if one.status is HealthStatus.UNKNOWN:
            one = report.endpoints.health.get(region, {}).get(url_of(key), UNKNOWN_HEALTH)
        table.setdefault(region, {})[key] = one
    return replace(report.endpoints, health=table)


def followed_addresses(agreed: Addresses, own: Addresses, recent: Addresses) -> dict[str, _Table]:
    """What an edge goes by of addresses, family by family (`followed`, whose arguments these are)."""
    return {
        family: followed(agreed.get(family, {}), own.get(family, {}), recent.get(family, {}))
        for family in FAMILIES
    }


def overruled_addresses(agreed: Addresses, recent: Addresses) -> frozenset[str]:
    """The regions for whose addresses an edge goes by its own probes against the common verdict (`overruled`)."""
    return frozenset[str]().union(
        *(overruled(agreed.get(family, {}), recent.get(family, {})) for family in FAMILIES)
    )


def fill_addresses(agreed: Addresses, own: Addresses) -> dict[str, _Table]:
    """The common verdicts on addresses, and one vantage's own where there is none, or a tie."""
    return {family: fill(agreed.get(family, {}), own.get(family, {})) for family in FAMILIES}


def ever_up(addresses: Addresses) -> frozenset[str]:
    """The addresses, by key, of which a table knows that they were up once."""
    return frozenset(
        key
        for table in addresses.values()
        for region in table.values()
        for key, one in region.items()
        if one.status is not HealthStatus.UNKNOWN
    )


def answered(
    region: Region, health: Mapping[str, EndpointHealth], addresses: Addresses
) -> tuple[Endpoint, ...]:
    """A region's endpoints as DNS gives them out: with the addresses that are up, of those that have something left.

    An address that is known counts by itself, any other and a `cname` as the URL. Endpoints that lost nothing are the policy's own objects.

    Args:
        region: with its endpoints.
        health: of its endpoints, by URL.
        addresses: of all regions.
    """
    found = []
    ipv4, ipv6 = (
        addresses.get(family, {}).get(region.name, {}) if region.probe.addresses else {}
        for family in FAMILIES
    )
    dead = any(one.status is HealthStatus.DOWN for known in (ipv4, ipv6) for one in known.values())
    for endpoint in region.endpoints:
        up = health.get(endpoint.url, UNKNOWN_HEALTH).status is HealthStatus.UP
        if (up and not dead) or not (ipv4 or ipv6):
            found += [endpoint] if up else []
            continue
        alive = _alive(endpoint, endpoint.ipv4, ipv4, up=up), _alive(endpoint, endpoint.ipv6, ipv6, up=up)
        same = alive == (endpoint.ipv4, endpoint.ipv6)
        left = endpoint if same else replace(endpoint, ipv4=alive[0], ipv6=alive[1])
        if left.ipv4 or left.ipv6 or (up and (left.cname or same)):
            found.append(left)
    return tuple(found)


def _alive(
    endpoint: Endpoint, given: tuple[str, ...], known: Mapping[str, EndpointHealth], *, up: bool
) -> tuple[str, ...]:
    """The addresses that are up; `up`: what holds for those that are not known."""
    status = HealthStatus.UP if up else HealthStatus.DOWN
    found = []
    for one in given:
        said = known.get(address_key(endpoint.url, one), UNKNOWN_HEALTH).status
        if (status if said is HealthStatus.UNKNOWN else said) is HealthStatus.UP:
            found.append(one)
    return tuple(found)


def _given(left: tuple[Endpoint, ...], family: str) -> bool:
    """Whether DNS answers a family by what is left of a region: by addresses, or where there is none of either family by an alias."""
    if any(getattr(one, family) for one in left):
        return True
    return any(one.cname for one in left) and not any(one.ipv4 or one.ipv6 for one in left)


def lost_families(region: Region, left: tuple[Endpoint, ...], addresses: Addresses) -> tuple[str, ...]:
    """The families that a region has lost: nothing is left that answers them in DNS (`answered`), though something is known of its addresses.

    Known is that one of the family is down, or one of the other family up: then that goes on answering while the URL fails, which stands
    for this one, and an empty answer would say that clients of this family have no region anywhere. What is still known of addresses
    that the policy gave up, or probes by their URLs alone, says nothing.
    """
    known: dict[str, set[HealthStatus]] = {family: set() for family in FAMILIES}
    for family, endpoint, address in judged_addresses(region):
        table = addresses.get(family, {}).get(region.name, {})
        known[family].add(table.get(address_key(endpoint.url, address), UNKNOWN_HEALTH).status)
    for statuses in known.values():
        statuses.discard(HealthStatus.UNKNOWN)
    return tuple(
        family
        for family in FAMILIES
        if any(getattr(one, family) for one in region.endpoints)
        and not _given(left, family)
        and (
            HealthStatus.DOWN in known[family]
            or any(HealthStatus.UP in known[other] for other in FAMILIES if other != family)
        )
    )


def families_of(
    region: Region, health: Mapping[str, EndpointHealth], addresses: Addresses
) -> dict[str, HealthStatus]:
    """A region's status by family, as DNS sees it: up, if an address of the family is left; unknown, if the region has none, or nothing is known.

    The arguments are those of `answered`.
    """
    left = answered(region, health, addresses)
    known = {health.get(one.url, UNKNOWN_HEALTH).status for one in region.endpoints}
    found = {}
    for family in FAMILIES:
        if not any(getattr(one, family) for one in region.endpoints):
            found[family] = HealthStatus.UNKNOWN
        elif _given(left, family):
            found[family] = HealthStatus.UP
        else:
            probed = bool(left) or known != {HealthStatus.UNKNOWN}
            found[family] = HealthStatus.DOWN if probed else HealthStatus.UNKNOWN
    return found
