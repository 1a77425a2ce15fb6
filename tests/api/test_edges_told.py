"""What edges tell of their DNS and of certificates: shown, bounded, and unknown of edges of another version."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Annotated, Any

import httpx
import msgspec
import pytest

from gtm.api.reported import bound_problems
from gtm.core.model.certificates import Certificate, ShownCertificate
from gtm.core.model.state import EndpointHealth, HealthStatus
from gtm.feed.reports import DnsLimits, EdgeReport, FieldBounds
from tests.api.conftest import Api

URL = "http://127.0.1.1:9000"
DAY = 86_400.0
HOSTILE = "<script>alert(1)</script>\u202e\0\x1b[31m"
BARE = {"version": "0.1", "revision": 1, "epoch": 1, "health": {}}
"""A report as the first edges sent it."""


def certificate(days: float, *, subject: str = "CN=eu.example.com") -> Certificate:
    """One that ends in so many days."""
    now = time.time()
    return Certificate("ab" * 32, now - DAY, now + days * DAY, subject, "CN=Example CA", ("eu.example.com",))


def send(api: Api, told: Any, edge: str = "fra-1") -> httpx.Response:
    """Report."""
    return api.edge.post(
        f"/v1/edges/{edge}/report",
        content=msgspec.json.encode(told),
        headers={"Content-Type": "application/json"},
    )


def told(**more: Any) -> EdgeReport:
    """What an edge of this version says."""
    health = {"eu-central": {URL: EndpointHealth(HealthStatus.UP, 1.0)}}
    return EdgeReport("1.0", 2, 1, health, seconds=60.0, **{"dns": {}, "probed": (), **more})


def edge(api: Api, name: str = "fra-1") -> Any:
    """What is known of it."""
    answer = api.viewer.get(f"/v1/edges/{name}")
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_dns_is_told_in_rates(world: Api) -> None:
    """By type, response code and transport, the most first; what was limited and dropped beside it, and the limits."""
    counts = {
        "answered\tA\tNOERROR\tudp": 600.0,
        "answered\tAAAA\tNXDOMAIN\ttcp": 60.0,
        "limited\tslipped": 120.0,
        "dropped\tshort": 60.0,
    }
    assert send(world, told(dns=counts, dns_limits=DnsLimits(100, 2000, 2, 1))).status_code == 200
    found = edge(world)
    assert [(one["type"], one["rcode"], one["transport"]) for one in found["dns"]["answered"]] == [
        ("A", "NOERROR", "udp"),
        ("AAAA", "NXDOMAIN", "tcp"),
    ]
    assert found["dns"]["answered"][0]["per_second"] == pytest.approx(10, rel=0.01)
    assert found["dns"]["limited"] == {"slipped": pytest.approx(2, rel=0.01)}
    assert found["dns"]["dropped"] == {"short": pytest.approx(1, rel=0.01)}
    assert found["dns_limits"] == {"replies": 100, "excess_bytes": 2000, "slip": 2, "exempt": 1}


def test_an_edge_of_before_tells_nothing_of_it(world: Api) -> None:
    """It is taken in as ever, and what it does not tell is null, not zero; one of later may tell what is unknown here."""
    assert send(world, BARE).status_code == 200
    found = edge(world)
    assert (found["live"], found["dns"], found["dns_limits"], found["certificates"]) == (
        True,
        None,
        None,
        None,
    )
    later = msgspec.json.decode(msgspec.json.encode(told())) | {"of_later": {"deep": [1, 2]}}
    assert send(world, later, "fra-2").status_code == 200
    assert edge(world, "fra-2")["dns"] == {"answered": [], "limited": {}, "dropped": {}}
    assert world.viewer.get("/v1/edges/nobody").status_code == 404


def test_certificates_are_shown_and_warned_of(world: Api) -> None:
    """Those that end first come first; from 21 days before its end on, the status says which, where, and who sees it."""
    shown = (ShownCertificate("eu-central", URL, certificate(20.5)),)
    for name in ("fra-1", "fra-2"):
        assert send(world, told(certificates=shown), name).status_code == 200
    assert send(world, told(certificates=None), "fra-1").status_code == 200  # no news
    (one,) = edge(world)["certificates"]
    assert (one["region"], one["endpoint"], one["subject"]) == ("eu-central", URL, "CN=eu.example.com")
    assert (one["ends_soon"], round(one["days_left"])) == (True, 20)
    (words,) = [text for text in world.viewer.get("/v1/status").json()["warnings"] if "certificate" in text]
    assert "region eu-central: the certificate of http://127.0.1.1:9000 ends on" in words
    assert "`fra-1`, `fra-2`" in words
    for name in ("fra-1", "fra-2"):
        later = (ShownCertificate("eu-central", URL, certificate(21.5)),)
        assert send(world, told(certificates=later), name).status_code == 200
    assert "certificate" not in str(world.viewer.get("/v1/status").json()["warnings"])
    gone = (ShownCertificate("eu-central", URL, certificate(-3)),)
    assert send(world, told(certificates=gone)).status_code == 200
    assert "ended on" in str(world.viewer.get("/v1/status").json()["warnings"])


def test_what_no_edge_says_is_left_out(world: Api) -> None:
    """Words of DNS that are none, and certificates of what the policy does not name."""
    counts = {
        f"answered\t{HOSTILE}\tNOERROR\tudp": 1.0,
        "limited": 1.0,
        "answered\tA\tNOERROR": 1.0,
        "x\ty": 1.0,
    }
    shown = (
        ShownCertificate("eu-central", "http://elsewhere.test", certificate(90)),
        ShownCertificate(HOSTILE, URL, certificate(90)),
        ShownCertificate("eu-central", URL, certificate(90, subject=HOSTILE)),
        ShownCertificate("eu-central", URL, certificate(91)),
    )
    assert send(world, told(dns=counts, certificates=shown)).status_code == 200
    found = edge(world)
    assert found["dns"]["answered"] == []
    assert [round(one["days_left"]) for one in found["certificates"]] == [91]


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"dns": {f"limited\t{number}": 1.0 for number in range(501)}}, "dns"),
        ({"dns": {"limited\tslipped": -1.0}}, "dns"),
        ({"dns": {"limited\tslipped": 1e13}}, "dns"),
        ({"dns_limits": DnsLimits(-1, 0, 0)}, "dns_limits"),
        ({"probed": (("eu-central", URL, 1.0, 200, ""),) * 10_001}, "probed"),
        ({"probed": (("eu-central", URL, 1.0, 200, "x" * 1001),)}, "probed[0]"),
    ],
)
@pytest.mark.reads
def test_bad_reports_are_refused_whole(world: Api, changes: dict[str, Any], path: str) -> None:
    """With what is wrong, and where."""
    answer = send(world, told(**changes))
    assert answer.status_code == 422, answer.text
    assert path in [one["path"] for one in answer.json()["errors"]]


@pytest.mark.parametrize(
    "changes",
    [
        {"sha256": "<script>"},
        {"sha256": "AB" * 32},
        {"not_after": 1e300},
        {"not_before": -1e300},
        {"subject": "x" * 1001},
        {"names": ["x"] * 101},
        {"names": ["x" * 1001]},
    ],
)
@pytest.mark.reads
def test_bad_certificates_are_refused(world: Api, changes: dict[str, Any]) -> None:
    """Nothing that is no certificate comes any further."""
    shown = {"region": "eu-central", "url": URL, "certificate": msgspec.to_builtins(certificate(9)) | changes}
    answer = send(world, msgspec.to_builtins(told()) | {"certificates": [shown]})
    assert answer.status_code == 422, answer.text
    assert [one["path"] for one in answer.json()["errors"]] == ["certificates[0]"]


def test_a_bound_below_counts_without_one_above() -> None:
    """Each bound that stands beside a field's type is checked, whichever others stand there; what is no number keeps to none."""

    @dataclass(frozen=True)
    class Told:
        least: Annotated[float, FieldBounds(least=1)] = 1
        most: Annotated[float, FieldBounds(most=9)] = 9

    def wrong(told: Told) -> list[tuple[str, str]]:
        return [(one.path, one.message) for one in bound_problems(told)]  # type: ignore[arg-type]

    assert wrong(Told(1, 9)) == []
    assert wrong(Told(0.5, 9)) == [("least", "must be at least 1")]
    assert wrong(Told(1, 9.5)) == [("most", "must be at most 9")]
    assert [name for name, _ in wrong(Told(float("nan"), float("nan")))] == ["least", "most"]
