"""Addresses at control: what is taken of reports, what edges are told, and what people are."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from gtm.control.lead.reports import ReportIntake
from gtm.control.lead.vantages import GATHERING, Vantages
from gtm.control.warnings import address_warnings
from gtm.core.model.regions import Endpoint, Probe
from gtm.core.model.state import EndpointHealth, HealthStatus
from gtm.core.policy.compile import compile_policy
from gtm.feed.reports import EdgeReport
from tests import worlds

UP, DOWN, UNKNOWN = HealthStatus.UP, HealthStatus.DOWN, HealthStatus.UNKNOWN


def _region(name: str, number: int, **changes: Any) -> Any:
    endpoint = Endpoint(f"http://{name}.test", (f"192.0.2.{number}",), (f"2001:db8::{number}",))
    return worlds.region(name, endpoint, at="de", **changes)


REGIONS = (_region("eu", 1), _region("us", 2), _region("off", 3, probe=Probe(addresses=False)))
SNAPSHOT = compile_policy(worlds.policy(*REGIONS, worlds.service("web", "eu us off")), (), revision=1)


def _told(
    number: int, name: str, status: HealthStatus, detail: str = ""
) -> dict[str, dict[str, EndpointHealth]]:
    return {name: {f"192.0.2.{number} http://{name}.test": EndpointHealth(status, detail=detail)}}


def _report(addresses_: dict[str, Any] | None, urls: HealthStatus = UP) -> EdgeReport:
    health = {one.name: {one.endpoints[0].url: EndpointHealth(urls)} for one in REGIONS}
    return EdgeReport("1", 1, 1, health, addresses=addresses_)


class World:
    """Control after these edges of a token each have reported."""

    def __init__(self, **reports: EdgeReport) -> None:
        self.now = 100.0
        self.vantages = Vantages(lambda: self.now, lambda: self.now)
        self.hear(**reports)
        self.now += GATHERING
        self.hear(**reports)

    def hear(self, **reports: EdgeReport) -> None:
        """Take in a report of each edge, and judge."""
        intake = ReportIntake(SNAPSHOT, Counter())
        for name, report in reports.items():
            self.vantages.take(name, name, "", intake.read(report, self.now), name)
        self.vantages.judge(SNAPSHOT)

    def status(self, name: str) -> HealthStatus:
        """What edges are told of a region's IPv4 address."""
        told = self.vantages.judgement.addresses["ipv4"].get(name, {})
        return next((one.status for one in told.values()), UNKNOWN)

    def warnings(self) -> list[str]:
        """What people are told."""
        return address_warnings(SNAPSHOT.policy, self.vantages.judgement, self.vantages.live())


def test_only_what_the_policy_has_probed_is_taken() -> None:
    """In its own family, of a region that has its addresses probed; the rest is counted as dropped."""
    dropped: Counter[str] = Counter()
    told = {
        "ipv4": {**_told(1, "eu", DOWN), **_told(3, "off", DOWN), "nowhere": {"a b": EndpointHealth(UP)}},
        "ipv6": _told(1, "eu", DOWN),
        "ipx": _told(1, "eu", DOWN),
    }
    found = ReportIntake(SNAPSHOT, dropped).read(_report(told), 100.0).addresses
    assert found == {"ipv4": _told(1, "eu", DOWN), "ipv6": {}}
    assert dropped["addresses"] == 4


def test_edges_are_told_of_dead_addresses_and_people_too() -> None:
    """The region is down for the family, and the sentence says which address and why."""
    report = _report({"ipv4": {**_told(1, "eu", DOWN, "connection refused"), **_told(2, "us", UP)}})
    world = World(one=report, two=report)
    assert (world.status("eu"), world.status("us")) == (DOWN, UP)
    [said] = world.warnings()
    assert "region `eu` is down for IPv4" in said
    assert "192.0.2.1 (connection refused)" in said


def _both(number: int, name: str, ipv4: HealthStatus, ipv6: HealthStatus) -> dict[str, Any]:
    v6 = f"2001:db8::{number} http://{name}.test"
    return {"ipv4": _told(number, name, ipv4), "ipv6": {name: {v6: EndpointHealth(ipv6)}}}


@pytest.mark.parametrize("urls", [UP, DOWN], ids=["the URL answers", "nothing answers"])
def test_a_region_that_is_gone_is_told_in_one_sentence(urls: HealthStatus) -> None:
    """OneUptime/oneuptime#3022: one outage was told once for each check of the same device. A family alone is told as such."""
    report = _report(_both(1, "eu", DOWN, DOWN), urls)
    [said] = World(one=report, two=report).warnings()
    assert (
        said == "region `eu` is down: no address of it is left in DNS (192.0.2.1 (down), 2001:db8::1 (down))"
    )
    alone = _report(_both(1, "eu", UP, DOWN))
    [said] = World(one=alone, two=alone).warnings()
    assert said.startswith("region `eu` is down for IPv6: no address is left (2001:db8::1 (down)); ")


def test_a_region_of_one_family_that_is_gone_is_down() -> None:
    """It has no other family that could be whole."""
    only = replace(REGIONS[0], endpoints=(replace(REGIONS[0].endpoints[0], ipv6=()),))
    report = _report({"ipv4": _told(1, "eu", DOWN)})
    world = World(one=report, two=report)
    [said] = address_warnings(
        worlds.policy(only, worlds.service("web", "eu")), world.vantages.judgement, world.vantages.live()
    )
    assert said == "region `eu` is down: no address of it is left in DNS (192.0.2.1 (down))"


def test_an_edge_of_an_earlier_version_votes_by_its_url() -> None:
    """It tells nothing of addresses: beside it one edge alone takes none away from all."""
    world = World(old=_report(None), new=_report({"ipv4": _told(1, "eu", DOWN)}))
    assert world.status("eu") is UNKNOWN


def test_many_families_at_once_are_an_alarm() -> None:
    """Most regions' IPv4 goes down at once by votes alone: the verdicts are withdrawn, as those of regions are."""
    up = {**_told(1, "eu", UP), **_told(2, "us", UP)}
    down = {**_told(1, "eu", DOWN), **_told(2, "us", DOWN)}
    well, liar = _report({"ipv4": up}), _report({"ipv4": down})
    world = World(one=well, two=well, three=well)
    world.hear(one=well, two=liar, three=liar)
    assert (world.status("eu"), world.status("us")) == (UNKNOWN, UNKNOWN)
    assert any(said.startswith("alarm: the IPv4 addresses of `eu`, `us`") for said in world.warnings())


def test_what_no_edge_reaches_is_said() -> None:
    """With the reason and the remedy; not where the policy switches it off."""
    unknown = {
        "ipv4": {**_told(1, "eu", UNKNOWN, "no answer within 3 s"), **_told(2, "us", UP)},
        "ipv6": {"off": {"2001:db8::3 http://off.test": EndpointHealth(detail="never")}},
    }
    [said] = World(one=_report(unknown)).warnings()
    assert "no edge can tell whether 192.0.2.1 (no answer within 3 s) answers" in said
    assert "`probe: {addresses: false}`" in said
