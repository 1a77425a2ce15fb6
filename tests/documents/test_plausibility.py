"""Slips that are legal to write: places outside their country, seconds taken for milliseconds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gtm.core.model.problems import PolicyError
from gtm.core.model.regions import Endpoint, Probe, Region
from gtm.core.model.services import RecordSet, RefusalAddress, Zone
from gtm.core.policy.compile import compile_policy
from gtm.core.policy.snapshot import Snapshot
from gtm.documents.plausibility import all_findings, errors, plausibility, refuse_errors
from tests import worlds

FRANKFURT = worlds.region("r", at="de")


def _found(region: Region) -> list[tuple[str, str, str]]:
    return [(item.path, item.code, item.message) for item in plausibility(worlds.policy(region))]


@pytest.mark.parametrize(
    ("country", "lat", "lon"),
    [
        ("DE", 50.11, 8.68),
        ("US", 61.2, -149.9),  # Anchorage
        ("US", 21.3, -157.9),  # Honolulu
        ("RU", 43.1, 131.9),  # Vladivostok
        ("SG", 1.35, 103.82),
        ("AU", -31.95, 115.86),
        ("NO", 69.65, 18.96),
        ("CL", -53.16, -70.92),
        ("FJ", -18.14, 178.44),
    ],
)
def test_cities_are_in_their_countries(country: str, lat: float, lon: float) -> None:
    """Far corners and small islands included."""
    assert _found(replace(FRANKFURT, country=country, lat=lat, lon=lon)) == []


@pytest.mark.parametrize(
    ("country", "lat", "lon"), [("DE", 8.68, 50.11), ("US", -77.46, 39.04), ("SG", 103.82, 1.35)]
)
def test_swapped_coordinates_are_told(country: str, lat: float, lon: float) -> None:
    """Also where the longitude is no latitude at all (which documents refuse)."""
    ((path, code, message),) = _found(replace(FRANKFURT, country=country, lat=lat, lon=lon))
    assert (path, code) == ("regions.r.lat", "place")
    assert "swapped" in message


def test_another_country_is_told() -> None:
    """Coordinates of Dublin in a region that says Germany."""
    ((_, code, message),) = _found(replace(FRANKFURT, lat=53.35, lon=-6.26))
    assert code == "place"
    assert "far from DE" in message
    assert "swapped" not in message


def test_intervals_in_milliseconds_are_told() -> None:
    """2000 s between probes; a minute is nobody's slip."""
    ((path, code, message),) = _found(replace(FRANKFURT, probe=Probe(interval=2000.0)))
    assert (path, code) == ("regions.r.probe.interval", "unit")
    assert "33 minutes" in message
    assert _found(replace(FRANKFURT, probe=Probe(interval=60.0))) == []


def _aliases(*targets: str) -> Snapshot:
    """A service of a region with an alias for each of some names of `x.test`, where the service has the name `chat`."""
    ends = tuple(
        Endpoint(f"https://{number}.example", cname=f"{one}.x.test") for number, one in enumerate(targets)
    )
    chat = worlds.service("chat", "r", hostnames=("chat.x.test", "*.chat.x.test"), zone="x.test")
    refusal = RefusalAddress(("192.0.2.250",), ("2001:db8::250",))
    loop = RecordSet("l", "CNAME", ("l",))
    zone = Zone(
        "x.test", "ns.example.net", "h.example.net", records=(loop, RecordSet("a", "A", ("192.0.2.1",)))
    )
    policy = worlds.policy(replace(FRANKFURT, endpoints=ends), replace(chat, refusal=refusal), zone)
    return compile_policy(policy, worlds.SHIPPED)


def test_errors_are_refused_where_they_are_new() -> None:
    """A policy in force may have them, and is changed all the same, but not to one that has others."""
    fine, one, two = _aliases("a"), _aliases("a", "chat"), _aliases("chat", "a", "x.chat")
    assert [item.path for item in errors(one)] == ["regions.r.endpoints[1].cname"]
    assert errors(fine) == ()
    for before, after in ((one, one), (one, fine), (fine, fine), (two, one)):
        refuse_errors(lambda before=before: before, after)  # type: ignore[misc]
    for before, after in ((fine, one), (one, two), (fine, _aliases("l"))):
        with pytest.raises(PolicyError, match=r"regions\.r\.endpoints"):
            refuse_errors(lambda before=before: before, after)  # type: ignore[misc]
    with pytest.raises(PolicyError) as raised:
        refuse_errors(lambda: one, two)
    assert [item.path for item in raised.value.problems] == ["regions.r.endpoints[2].cname"]
    assert {item.code for item in all_findings(one, 0.0)} >= {"alias_loop"}, "it is told all the same"
