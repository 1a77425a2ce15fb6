"""The page of edges: who is in sync, who is silent, what each sees; keys of signed zones and tokens."""

from __future__ import annotations

import time

import msgspec
import psycopg
import pytest

from gtm.core.demand.cells import cell_of
from gtm.core.demand.rows import row_text
from gtm.core.model.access import Role
from gtm.core.model.certificates import Certificate, ShownCertificate
from gtm.core.model.requests import Location, Request
from gtm.core.model.services import Priority
from gtm.core.model.state import EndpointHealth, HealthStatus
from gtm.core.policy.edges import EdgePlace
from gtm.feed.reports import DnsLimits, EdgeReport
from tests.api.conftest import CHAT, ZONE, Api
from tests.dashboard.conftest import People, assert_inert

URL = "http://127.0.1.1:9000"
HOSTILE = "<script>alert(1)</script>\"'\u202e"


def report(api: Api, name: str, revision: int, *, detail: str = "") -> None:
    """An edge in Germany that sees eu-central up and eu-west down, and has answered three questions a second."""
    health = {
        region: {f"http://127.0.1.{number}:9000": EndpointHealth(status, 1.0, detail)}
        for region, number, status in (
            ("eu-central", 1, HealthStatus.UP),
            ("eu-west", 2, HealthStatus.DOWN),
        )
    }
    cell = cell_of(Request("chat", Location("DE", source="geoip")), Priority.REAL_TIME)
    demand = {
        row_text("chat", "eu-central", "served", via, "class", cell): count
        for via, count in (("dns", 120.0), ("lookup", 60.0))
    }
    told = EdgeReport("9.9.9", revision, 1, health, demand, 60.0, place=EdgePlace("DE"))
    answer = api.edge.post(
        f"/v1/edges/{name}/report",
        content=msgspec.json.encode(told),
        headers={"Content-Type": "application/json"},
    )
    assert answer.status_code == 200, answer.text


def until(holds: object) -> None:
    """Wait until a condition holds, which reports make true at the next judgement."""
    end = time.monotonic() + 30
    while not holds():  # type: ignore[operator]
        assert time.monotonic() < end, "did not happen within 30 seconds"
        time.sleep(0.05)


@pytest.mark.reads
def test_without_edges_it_says_what_to_do(people: People, world: Api) -> None:
    """How to start one."""
    text = people(Role.VIEWER).page("/edges")
    assert_inert(text)
    for words in ("No edge was ever heard of", "gtm edge --name", "No zone is signed", "shown to admins"):
        assert words in text


def test_who_has_what(people: People, world: Api) -> None:
    """An edge that lacks the newest revision comes first, since when it lacks it, and what it sees unlike the others."""
    world.must_put("/v1/services/billing", {"members": CHAT["members"]})
    newest = world.viewer.get("/v1/status").json()["sync"]["revision"]
    report(world, "a-new", newest)
    report(world, "b-old", newest - 1, detail=HOSTILE)
    text = people(Role.VIEWER).page("/edges")
    assert_inert(text)
    assert text.index("/edges/b-old") < text.index("/edges/a-new")
    for words in (
        "<b>1 of 2</b><span>live edges in sync",
        f"lacks {newest}; not in sync since",
        "control has",
        "edge-one",
        "2/s",
        "1/s",
        "● 1 up",
        "✕ 1 down",
    ):
        assert words in text, words
    one = people(Role.VIEWER).page("/edges/b-old")
    assert_inert(one)
    assert "&lt;script&gt;alert(1)" in one
    assert f"and lacks {newest}" in one
    assert "run from" not in one


def test_what_edges_decide_is_told_by_the_api(world: Api) -> None:
    """By tier, of those that are live."""
    report(world, "a", 1)
    (found,) = world.viewer.get("/v1/edges").json()["items"]
    rates = {tier: round(rate, 3) for tier, rate in found["decisions"].items()}
    assert rates == {"dns": 2.0, "lookup": 1.0, "redirect": 0.0, "carry": 0.0, "authorize": 0.0}


def test_silent_edges_come_first(people: People, world: Api) -> None:
    """With the command that forgets one; its page says what it may still do."""
    report(world, "here", 2)
    with psycopg.connect(world.database_url) as session:
        session.execute(
            "INSERT INTO edges (name, version, address, revision_applied, epoch_applied, first_seen, last_seen) "
            "VALUES ('gone', '1.0', '192.0.2.1', 1, 1, now() - interval '3 days', now() - interval '2 days')"
        )
    text = people(Role.VIEWER).page("/edges")
    assert_inert(text)
    assert text.index("/edges/gone") < text.index("/edges/here")
    assert "gtm edges forget gone" in text
    one = people(Role.VIEWER).page("/edges/gone")
    assert "it answers by what it had then" in one


@pytest.mark.reads
def test_an_edge_that_nobody_knows(people: People, world: Api) -> None:
    """404, whatever the name."""
    person = people(Role.VIEWER)
    for name in ("nobody", "%3Cscript%3E", "x" * 10_000, "..%2F..", "%00"):
        answer = person.get(f"/edges/{name}")
        assert answer.status_code in (404, 414), name
        assert_inert(answer.text)


def test_keys_and_tokens(people: People, world: Api) -> None:
    """A signed zone with the DS record for its parent; tokens for admins, which viewers are not shown."""
    world.must_put("/v1/zones/demo.test", {**ZONE, "dnssec": True})
    until(lambda: world.viewer.get("/v1/dnssec").json()["items"])
    text = people(Role.ADMIN).page("/edges")
    assert_inert(text)
    ds = world.viewer.get("/v1/dnssec").json()["items"][0]["ds"][0]
    for words in ("DS at the parent", ds, "KSK", "ZSK", "edge-one", "any edge"):
        assert words in text, words
    viewer = people(Role.VIEWER).page("/edges")
    assert ds in viewer
    assert "any edge" not in viewer


def test_it_moves(people: People, world: Api) -> None:
    """The stream has the same as the page."""
    report(world, "a", 1)
    with people(Role.VIEWER).client.stream("GET", "/live/edges") as answer:
        lines = answer.iter_lines()
        assert "event: edges" in lines
        assert any("/edges/a" in line for line in lines)


def told(api: Api, name: str, **more: object) -> None:
    """An edge of this version reports."""
    health = {"eu-central": {URL: EndpointHealth(HealthStatus.UP, 1.0)}}
    body = EdgeReport("9.9.9", 2, 1, health, seconds=60.0, **more)  # type: ignore[arg-type]
    answer = api.edge.post(
        f"/v1/edges/{name}/report",
        content=msgspec.json.encode(body),
        headers={"Content-Type": "application/json"},
    )
    assert answer.status_code == 200, answer.text


def test_what_dns_does_and_which_certificates_end(people: People, world: Api) -> None:
    """Types, response codes and transports with shares; limits; certificates with what is left; nothing of it runs."""
    now = time.time()
    hostile = Certificate("cd" * 32, now, now + 5.4 * 86_400, HOSTILE, HOSTILE, (HOSTILE,))
    counts = {
        "answered\tHTTPS\tNOERROR\tudp": 540.0,
        "answered\tA\tREFUSED\ttcp": 60.0,
        "limited\tslipped": 60.0,
    }
    told(
        world,
        "fra-1",
        dns=counts,
        dns_limits=DnsLimits(100, 2000, 2, 1),
        certificates=(ShownCertificate("eu-central", URL, hostile),),
    )
    text = people(Role.VIEWER).page("/edges/fra-1")
    assert_inert(text)
    for words in (
        "HTTPS",
        "REFUSED",
        "UDP",
        "90%",
        "10%",
        "/s slipped",
        "100 replies",
        "each 2nd reply",
        "! 5 days",
    ):
        assert words in text, words
    assert "has ended" not in text
    assert "the certificate of" in people(Role.VIEWER).page("/")


def test_an_edge_of_before_says_less(people: People, world: Api) -> None:
    """It is named as what it is: a version that does not tell, not one where nothing happens."""
    report(world, "old", 2)
    text = people(Role.VIEWER).page("/edges/old")
    assert text.count("Not told by version 9.9.9") == 2
    told(world, "new", dns={}, certificates=())
    text = people(Role.VIEWER).page("/edges/new")
    assert "Not told" not in text
    for words in ("answered nothing over DNS", "none is probed by", "none now"):
        assert words in text


def test_an_edge_that_is_gone_is_forgotten(people: People, world: Api) -> None:
    """By operators, once it is silent; viewers are not offered it, and refused if they ask."""
    with psycopg.connect(world.database_url, autocommit=True) as session:
        session.execute(
            "INSERT INTO edges (name, version, address, first_seen, last_seen, revision_applied, epoch_applied) "
            "VALUES ('gone', '1', '192.0.2.1', now() - interval '1 day', now() - interval '1 day', 1, 1)"
        )
    assert "/edges/gone/forget" not in people(Role.VIEWER).page("/edges/gone")
    assert people(Role.VIEWER).post("/edges/gone/forget").status_code == 403
    operator = people(Role.OPERATOR)
    told(world, "here", dns={})
    assert "/edges/here/forget" not in operator.page("/edges/here")
    refused = operator.post("/edges/here/forget")
    assert (refused.status_code, "is live" in refused.text) == (409, True)
    assert 'action="/edges/gone/forget"' in operator.page("/edges/gone")
    after = operator.post("/edges/gone/forget")
    assert (after.status_code, after.url.path) == (200, "/edges")
    assert "gone" not in after.text
    entries = world.admin.get("/v1/audit", params={"action": "edge.forget"}).json()["items"]
    assert [(one["target"], one["via"]) for one in entries] == [("edge gone", "dashboard")]
    assert operator.post("/edges/gone/forget").status_code == 404
