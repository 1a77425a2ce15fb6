"""Settings that decide nothing where they stand."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from gtm.core.findings.report import effect_findings
from gtm.core.model.policy import SpilloverRule
from gtm.core.model.regions import Capacity, Endpoint, Probe, ProbeType, Region, SpillIn
from gtm.core.model.services import Affinity, Families, Member, OnOverload, RefusalAddress, Service, Steering
from tests import worlds

REGION = worlds.region("de")
CHAT = worlds.service("chat", "de ie")
_chat = partial(replace, CHAT)
_region = partial(replace, REGION)


def _found(service: Service = CHAT, region: Region = REGION, *rules: SpilloverRule) -> list[str]:
    found = list(effect_findings(worlds.policy(region, worlds.region("ie"), service, *rules)))
    assert {item.code for item in found} <= {"without_effect"}
    return [item.path for item in found]


def _probe(**changes: Any) -> Region:
    return replace(REGION, probe=Probe(**changes))


WEIGHTS = (Member("de", 2.0), Member("ie", 0.0))


@pytest.mark.parametrize(
    ("service", "path", "effective"),
    [
        (_chat(members=WEIGHTS), "members[0].weight", {"steering": Steering.WEIGHTED}),
        (
            _chat(steering=Steering.FAILOVER, service_time_ms=9.0),
            "service_time_ms",
            {"steering": Steering.GEO},
        ),
        (
            _chat(steering=Steering.WEIGHTED, on_overload=OnOverload.QUEUE),
            "on_overload",
            {"steering": Steering.LATENCY},
        ),
        (_chat(zone="x.test"), "zone", {"hostnames": ("a.x.test",)}),
        (_chat(refusal=RefusalAddress(("192.0.2.1",))), "refusal", {"hostnames": ("a.x.test",)}),
        (_chat(max_answers=2), "max_answers", {"hostnames": ("a.x.test",)}),
        (_chat(families=Families.SEPARATE), "families", {"hostnames": ("a.x.test",)}),
        (_chat(min_ttl=40), "min_ttl", {"ttl": 60}),
        (_chat(members=(Member("de"),), affinity=Affinity.KEY), "affinity", {"members": CHAT.members}),
        (_chat(members=(Member("de"),), exploration=0.1), "exploration", {"members": CHAT.members}),
    ],
)
def test_services(service: Service, path: str, effective: dict[str, Any]) -> None:
    """Found where it decides nothing, and not where it does."""
    assert _found(service) == [f"services.chat.{path}"]
    assert _found(replace(service, **effective)) == []


BOUND = Capacity(outstanding=8)


@pytest.mark.parametrize(
    ("region", "path", "effective"),
    [
        (_region(reserve=0.3), "reserve", {"capacity": BOUND}),
        (_region(spill_in=SpillIn(max_share=0.5)), "spill_in.max_share", {"capacity": BOUND}),
        (_probe(type=ProbeType.TCP, path="/x"), "probe.path", {"probe": Probe(path="/x")}),
        (
            replace(_probe(addresses=False), endpoints=(Endpoint("http://de", cname="de.example.net"),)),
            "probe.addresses",
            {"endpoints": (Endpoint("http://de", ("192.0.2.1",)),)},
        ),
        (_probe(verify_tls=False), "probe.verify_tls", {"probe": Probe(ProbeType.HTTPS, verify_tls=False)}),
    ],
)
def test_regions(region: Region, path: str, effective: dict[str, Any]) -> None:
    """Found where it decides nothing, and not where it does."""
    assert _found(CHAT, region) == [f"regions.de.{path}"]
    assert _found(CHAT, replace(region, **effective)) == []


def test_drains_and_spillover() -> None:
    """A deadline without sessions; a rule from a region whose services never spill."""
    slow = _region(drain_deadline=60.0)
    assert _found(CHAT, slow) == ["regions.de.drain_deadline"]
    assert _found(_chat(affinity=Affinity.KEY), slow) == []
    rule = SpilloverRule("r", "de", ("ie",), max_share=0.5)
    assert _found(_chat(steering=Steering.FAILOVER), REGION, rule) == ["spillover_rules.r.from_region"]
    assert _found(CHAT, REGION, rule) == []


def test_defaults_are_nobodys_statement() -> None:
    """What nobody wrote is not found, whatever the steering."""
    for steering in Steering:
        assert _found(_chat(steering=steering)) == []
