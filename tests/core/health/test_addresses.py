"""Verdicts on addresses: what one edge may say, and what edges say together, as docs/concepts.md#addresses has it."""

from __future__ import annotations

from itertools import product

import pytest

from gtm.core.health.addresses import (
    AddressReport,
    advance_address,
    combine_addresses,
    ever_up,
    families_of,
    followed_addresses,
    trusted,
)
from gtm.core.health.verdicts import ProbeResult, Track, VantageReport
from gtm.core.model.regions import Endpoint, Probe
from gtm.core.model.state import EndpointHealth, HealthStatus
from tests import worlds

UP, DOWN, UNKNOWN = HealthStatus.UP, HealthStatus.DOWN, HealthStatus.UNKNOWN
URL = "http://eu.test"
KEY = f"192.0.2.1 {URL}"
PROBE = Probe(up_threshold=1, down_threshold=2)


def _run(results: str, *, seen: bool = False) -> list[HealthStatus]:
    """The status after each result (`+` good, `-` bad)."""
    track, found = Track(), []
    for number, mark in enumerate(results):
        track = advance_address(track, ProbeResult(mark == "+", float(number), "why"), PROBE, seen=seen)
        seen |= mark == "+"
        found.append(track.health.status)
    return found


@pytest.mark.parametrize(
    ("results", "seen", "statuses"),
    [
        ("----", False, [UNKNOWN] * 4),
        ("-+--", False, [UNKNOWN, UP, UP, DOWN]),
        ("-", True, [DOWN]),
        ("+-+-", False, [UP, UP, UP, UP]),
    ],
)
def test_an_address_counts_once_it_was_up(results: str, seen: bool, statuses: list[HealthStatus]) -> None:
    """One that was never up is unknown, however often it fails; one that was up before a restart is down at its first failure."""
    assert _run(results, seen=seen) == statuses


def _report(voter: str, url: HealthStatus, address: HealthStatus) -> AddressReport:
    seen = VantageReport(voter, 100.0, {"eu": {URL: EndpointHealth(url)}}, voter)
    return AddressReport(seen, {"ipv4": {"eu": {KEY: EndpointHealth(address)}}})


def _agreed(*cast: tuple[HealthStatus, HealthStatus]) -> HealthStatus:
    reports = [_report(f"edge{number}", *votes) for number, votes in enumerate(cast)]
    found = combine_addresses(reports, 101.0, 10.0)
    return found["ipv4"].get("eu", {}).get(KEY, EndpointHealth()).status


def test_common_verdicts_are_those_of_the_model() -> None:
    """Of up to four voters: most of those who know the address, and most of those who vote on the endpoint, or nothing."""
    ballots = list(product((UP, DOWN), (UP, DOWN, UNKNOWN)))
    for count in (1, 2, 3):
        for cast in product(ballots, repeat=count):
            knowing = [address for _, address in cast if address is not UNKNOWN]
            voting = [url if address is UNKNOWN else address for url, address in cast]
            expected = UNKNOWN
            for side in (UP, DOWN):
                if 2 * knowing.count(side) > len(knowing) and 2 * voting.count(side) > len(voting):
                    expected = side
            assert _agreed(*cast) is expected, cast


def test_one_liar_takes_no_address_from_those_who_cannot_see_it() -> None:
    """Who alone knows an address decides nothing for others, whichever way: they are left to their URL's verdict."""
    assert _agreed((UP, DOWN), (UP, UNKNOWN)) is UNKNOWN
    assert _agreed((UP, DOWN), (UP, UNKNOWN), (UP, UNKNOWN)) is UNKNOWN
    assert _agreed((UP, UP), (DOWN, UNKNOWN), (DOWN, UNKNOWN)) is UNKNOWN
    assert _agreed((UP, DOWN), (UP, DOWN), (UP, UNKNOWN)) is DOWN


def test_an_edge_that_lost_a_family_says_nothing_of_it() -> None:
    """All addresses of a family down, in two regions: it is the edge's own network. One that is up makes the others' verdicts its word."""
    down, up = {KEY: EndpointHealth(DOWN)}, {"x": EndpointHealth(UP)}
    found = trusted({"ipv4": {"eu": down, "us": down}, "ipv6": {"eu": up, "us": down}})
    assert {one.status for table in found["ipv4"].values() for one in table.values()} == {UNKNOWN}
    assert found["ipv6"]["us"][KEY].status is DOWN
    assert trusted({"ipv4": {"eu": down}})["ipv4"]["eu"][KEY].status is DOWN


def test_votes_on_one_family_do_not_empty_an_edge() -> None:
    """The veto holds for each family by itself: IPv6 that is left everywhere is no reason to let votes take all of IPv4."""
    own = {
        family: {region: {f"{family} {URL}": EndpointHealth(UP)} for region in ("eu", "us", "ap")}
        for family in ("ipv4", "ipv6")
    }
    agreed = {"ipv4": {region: {f"ipv4 {URL}": EndpointHealth(DOWN)} for region in ("eu", "us")}}
    found = followed_addresses(agreed, own, own)
    assert {one.status for table in found["ipv4"].values() for one in table.values()} == {UP}
    one = {"ipv4": {"eu": agreed["ipv4"]["eu"]}}
    assert followed_addresses(one, own, own)["ipv4"]["eu"][f"ipv4 {URL}"].status is DOWN


def test_a_region_is_told_by_family() -> None:
    """Down for the family of which no address is left; unknown for one that the region never had."""
    region = worlds.region("eu", Endpoint(URL, ("192.0.2.1",), ("2001:db8::1",)), at="de")
    health = {URL: EndpointHealth(UP)}
    dead = {"ipv4": {"eu": {KEY: EndpointHealth(DOWN)}}}
    assert families_of(region, health, {}) == {"ipv4": UP, "ipv6": UP}
    assert families_of(region, health, dead) == {"ipv4": DOWN, "ipv6": UP}
    single = worlds.region("eu", Endpoint(URL, ("192.0.2.1",)), at="de")
    assert families_of(single, health, dead) == {"ipv4": DOWN, "ipv6": UNKNOWN}
    off = worlds.region("eu", Endpoint(URL, ("192.0.2.1",)), at="de", probe=Probe(addresses=False))
    assert families_of(off, health, dead)["ipv4"] is UP


def test_what_was_ever_up_is_told_by_a_verdict() -> None:
    """Up and down are of addresses that were up once; unknown is not."""
    table = {"a": EndpointHealth(UP), "b": EndpointHealth(DOWN), "c": EndpointHealth()}
    assert ever_up({"ipv4": {"eu": table}}) == {"a", "b"}
