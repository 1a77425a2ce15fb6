"""Regions as pages: the table, the evidence, and changes with what they would do first (docs/dashboard.md)."""

from __future__ import annotations

import re
from itertools import count

import pytest

from gtm.core.model.access import Role
from tests.api.conftest import REGIONS, Api, region
from tests.api.test_drafts import BERLIN, BOSTON, live, policy, row, set_demand, set_health  # noqa: F401 - fixture
from tests.api.test_room import LINE, Line
from tests.dashboard.conftest import Markup, People, Person, assert_inert
from tests.system.harness import eventually

HOSTILE = ["<script>alert(1)</script>\"'&", "x" * 200, "\u202egnp.exe \u05d0\u05d1", "{{ 7*7 }}"]


def report(world: Api, detail: str, status: str = "down") -> None:
    """Let an edge tell what it sees of Frankfurt."""
    seen = {"status": status, "since": 1_700_000_000.0, "detail": detail, "latency_ms": 12.5}
    body = {
        "version": "1",
        "revision": 1,
        "epoch": 1,
        "health": {"eu-central": {"http://127.0.1.1:9000": seen}},
    }
    answer = world.edge.post("/v1/edges/paris/report", json=body)
    assert answer.status_code == 200, answer.text


def test_the_table_has_every_region(live: Api, people: People) -> None:  # noqa: F811 - the fixture
    """With health, demand and what was switched; it can be narrowed, and what is narrowed to nothing says so."""
    text = people(Role.VIEWER).page("/regions")
    assert_inert(text)
    assert all(f'id="region-{name}"' in text for name in REGIONS)
    assert "3 of 3" in text
    assert live.operator.post("/v1/regions/eu-west:drain").status_code == 200
    text = people(Role.VIEWER).page("/regions?state=draining&find=WEST&country=IE")
    assert 'id="region-eu-west"' in text
    assert 'id="region-us-east"' not in text
    assert "Show all" in text
    assert "No region is like that" in people(Role.VIEWER).page("/regions?state=full")


def test_without_any_region_it_says_how_to_begin(api: Api, people: People) -> None:
    """An installation without a policy."""
    api.operator.post("/v1/policy:apply", json={"policy": {}}, params={"force": True, "force_reason": "x"})
    answer = api.fence_admin.post(
        "/v1/policy:apply", json={"policy": {}}, params={"force": True, "force_reason": "to begin"}
    )
    assert answer.status_code == 200, answer.text
    assert "There are no regions yet" in people(Role.VIEWER).page("/regions")


def test_a_region_shows_its_inside(live: Api, people: People) -> None:  # noqa: F811
    """Model servers as each balancer sees them, what is wrong with words, and tenants of all balancers together; of none, nothing."""
    assert "Model servers" not in people(Role.VIEWER).page("/regions/eu-central")
    up = {"url": "http://10.0.0.1:8000", "state": "up", "outstanding": 4.0, "slots": 16, "memory": 0.5}
    out = {
        "url": "http://10.0.0.2:8000",
        "state": "ejected",
        "why": HOSTILE[0],
        "usable": False,
        "ejections": 3,
    }
    tenant = {"name": "acme", "running": 3, "refused_per_second": 0.5}
    inside = {"servers": [out, {**up, "models": HOSTILE[1:2]}], "tenants": [tenant], "tenants_left_out": 7}
    for name in ("lb-1", "lb-2"):
        body = {"region": "eu-central", "inside": inside}
        assert live.balancer.post(f"/v1/balancers/{name}/report", json=body).status_code == 200
    text = people(Role.VIEWER).page("/regions/eu-central")
    assert_inert(text)
    for words in ("1 of 2", "As lb-1 sees them", "As lb-2 sees them", "ejected", "4 of 16", "50%"):
        assert words in text, words
    for words in ("acme", "✕ 1/s", "14 more are not shown", "/v1/balancers/inside?region=eu-central"):
        assert words in text, words
    assert "Model servers" not in people(Role.VIEWER).page("/regions/us-east")


def test_a_region_shows_its_evidence(live: Api, people: People) -> None:  # noqa: F811
    """What each edge sees and since when, load and capacity with what reduces it, and whom it serves."""
    report(live, "connection refused")
    live.must_put("/v1/regions/eu-central", region("eu-central", capacity={"outstanding": 64}, reserve=0.2))
    told = {"region": "eu-central", "source": "b1", "outstanding": 16, "limit": 32, "queue": 5}
    assert live.reporter.post("/v1/load-reports", json=told).status_code == 204
    balancer = {"region": "eu-central", "version": "1.2.3", "tiers": {"real_time": [3, 2]}}
    assert live.balancer.post("/v1/balancers/lb-1/report", json=balancer).status_code == 200
    text = people(Role.VIEWER).page("/regions/eu-central")
    assert_inert(text)
    for words in ("connection refused", "paris", "12.5 ms", "2023-11-14", "What probes said"):
        assert words in text, words
    for words in ("5 waiting", "The reserve", "64", "32", "lb-1", "1.2.3", "real time 3", "2 waiting"):
        assert words in text, words
    assert re.search(r"DE</th><td>chat</td><td class=\"n\">2/s", text)
    assert "gtm regions show eu-central" in text
    for path in ("/policy/regions/eu-central", "/access/audit?target=eu-central"):
        assert f'href="{path}"' in text
        assert "eu-central" in people(Role.VIEWER).page(path)
    live.operator.post(
        "/v1/regions/eu-central:disable", params={"force": True, "force_reason": "to see what is said of it"}
    )
    text = people(Role.VIEWER).page("/regions/eu-central")
    assert "nobody probes it" in text
    assert "it takes no new clients" in text


def test_free_slots_that_do_not_count_are_told_apart(live: Api, people: People) -> None:  # noqa: F811
    """Where the policy declares fewer than a balancer says: on a region's page and in the table."""
    live.must_put("/v1/regions/eu-central", region("eu-central", capacity={"outstanding": 4}))
    line, sequence, viewer = Line(live), count(1), people(Role.VIEWER)

    def shown() -> bool:
        line.say(LINE % (next(sequence), 6))  # which counts for two seconds
        pages = [viewer.page(path) for path in ("/regions/eu-central", "/regions")]
        return all('6 of 8 <small class="dim">(4 count)</small>' in page for page in pages)

    eventually(shown, "both pages say it")
    line.end()


def test_a_region_shows_what_probes_said(live: Api, people: People) -> None:  # noqa: F811
    """Strips of time with what failed in words, changes in order, each with its evidence; whatever an edge says, nothing runs."""
    url = "http://127.0.1.1:9000"
    told = [
        ("down", [["eu-central", url, None, 503, "status 503 " + HOSTILE[0]]], "status 503 " + HOSTILE[0]),
        ("up", [["eu-central", url, 12.0, 200, ""], ["eu-central", url, None, None, HOSTILE[2]]], ""),
    ]
    for status, probed, detail in told:
        seen = {"status": status, "since": 1_700_000_000.0, "detail": detail, "latency_ms": 12.5}
        body = {
            "version": "1",
            "revision": 1,
            "epoch": 1,
            "health": {"eu-central": {url: seen}},
            "probed": probed,
        }
        assert live.edge.post("/v1/edges/paris/report", json=body).status_code == 200
    text = people(Role.VIEWER).page("/regions/eu-central")
    assert_inert(text)
    strips = text[text.index('id="history"') :]
    for words in (
        'class="bad"',
        "2</span> of 3",
        "down for a time; 2 of 3 probes failed",
        "the first verdict",
        "after down",
        "status 503 &lt;script&gt;",
        "(HTTP 503)",
        "2023-11-14 22:13:20 UTC</time> by its own clock",
    ):
        assert words in strips, words
    assert strips.index("after down") < strips.index("the first verdict")
    day = people(Role.VIEWER).page("/regions/eu-central?history=day")
    assert 'aria-current="true">The last 24 hours' in day
    assert people(Role.VIEWER).get("/regions/eu-central?changes=x").status_code == 400
    assert "No edge has said anything" in people(Role.VIEWER).page("/regions/us-east?history=else")


@pytest.mark.parametrize("hostile", HOSTILE)
def test_what_people_wrote_is_text(live: Api, people: People, hostile: str) -> None:  # noqa: F811
    """Names for people, what edges and balancers tell, reasons, and what stands in the address."""
    live.must_put("/v1/regions/eu-central", region("eu-central", display_name=hostile[:200]))
    report(live, hostile * 4)
    person = people(Role.OPERATOR)
    for path in ("/regions", "/regions/eu-central"):
        text = person.page(path)
        assert_inert(text)
        assert "<script>alert" not in text
    answer = person.post("/regions/eu-west/drain", {"reason": hostile})
    assert answer.status_code == 200
    for path in ("/regions", "/regions/eu-central", "/regions/eu-central/drain"):
        answer = person.client.get(
            path, params=dict.fromkeys(("find", "state", "country", "traffic", "preview"), hostile)
        )
        assert answer.status_code == 200
        assert_inert(answer.text)
        assert "<script>alert" not in answer.text
    answer = person.client.get(f"/regions/{hostile}")
    assert answer.status_code == 404
    assert_inert(answer.text)


@pytest.mark.reads
def test_a_region_that_is_none_is_not_found(live: Api, people: People) -> None:  # noqa: F811
    """Nor is what cannot be done to one."""
    person = people(Role.OPERATOR)
    for path in (
        "/regions/nowhere",
        "/regions/nowhere/drain",
        "/regions/eu-west/sink",
        "/regions/eu-west:drain",
    ):
        answer = person.get(path)
        assert answer.status_code == 404, path
        assert_inert(answer.text)
    assert person.post("/regions/nowhere/drain", {"reason": "x"}).status_code == 404


def test_a_drain_is_shown_before_it_is_made(live: Api, people: People) -> None:  # noqa: F811
    """The numbers are the API's simulation of the same draft; then it is made, and its reason is kept."""
    set_demand(live, {row(BERLIN, "eu-central"): 2.0, row(BOSTON, "us-east"): 8.0})
    person = people(Role.OPERATOR)
    shell = person.page("/regions/eu-central/drain")
    assert_inert(shell)
    assert 'hx-get="/regions/eu-central/drain?preview=now&amp;traffic=24h"' in shell
    assert "<noscript>" in shell
    draft = policy(live)
    draft["regions"] = [
        {**one, "admin_state": "draining" if one["name"] == "eu-central" else "active"}
        for one in draft["regions"]
    ]
    made = live.viewer.post("/v1/policy:simulate", json={"policy": draft, "traffic": "current"}).json()
    assert made["moved"] == pytest.approx(0.2)
    part = person.get("/regions/eu-central/drain?preview=now", **{"HX-Request": "true"}).text
    assert "<html" not in part
    assert "tried with those as of this moment" in part, "nothing is recorded here"
    for words in ("20% of all requests", "2/s more to <b>eu-west</b>", "Nobody more would be refused"):
        assert words in part, words
    assert "No safety rule stands against it" in part
    whole = person.page("/regions/eu-central/drain?preview=now&traffic=now")
    assert_inert(whole)
    assert re.search(r"DE</th><td>chat</td><td>eu-central</td><td>eu-west</td><td class=\"n\">20%", whole)
    assert "gtm regions drain eu-central --comment &#34;WHY&#34;" in whole
    before = live.viewer.get("/v1/status").json()["sync"]["revision"]
    answer = person.post("/regions/eu-central/drain", {"reason": "cooling is out"})
    assert (answer.status_code, answer.url.path) == (200, "/regions/eu-central")
    assert f"Revision {before + 1}" in answer.text
    assert "Activate…" in answer.text
    assert "draining since" in answer.text
    comment = live.viewer.get(f"/v1/revisions/{before + 1}").json()["comment"]
    assert comment == "set region eu-central draining: cooling is out"
    assert "draining already" in person.page("/regions/eu-central/drain")


def test_what_safety_rules_refuse_is_shown_with_numbers(live: Api, people: People) -> None:  # noqa: F811
    """In the preview and when it is made; then it can be forced, with a reason."""
    person = people(Role.OPERATOR)
    text = person.page("/regions/us-east/drain?preview=now&traffic=now")
    assert "The safety rules refuse it" in text
    assert "the most allowed is 30%" in text
    assert 'name="force"' in text
    answer = person.post("/regions/us-east/drain", {"reason": "to see"})
    assert answer.status_code == 409
    assert_inert(answer.text)
    assert "80.0% of the present requests would leave" in answer.text
    assert "Nothing was changed" in answer.text
    assert 'value="to see"' in answer.text
    assert "Drain us-east all the same" in answer.text
    assert live.viewer.get("/v1/regions/us-east").json()["admin_state"] == "active"
    answer = person.post("/regions/us-east/drain", {"reason": "it burns", "force": "yes"})
    assert (answer.status_code, answer.url.path) == (200, "/regions/us-east")
    revision = live.viewer.get("/v1/status").json()["sync"]["revision"]
    comment = live.viewer.get(f"/v1/revisions/{revision}").json()["comment"]
    assert comment.endswith("forced against the safety rules moved: it burns")


@pytest.mark.parametrize(
    ("fields", "status", "words"),
    [
        ({}, 422, "say why"),
        ({"reason": "  "}, 422, "say why"),
        ({"reason": "x" * 1001}, 422, "reason"),
        ({"reason": "a\nb"}, 422, "control characters"),
    ],
)
@pytest.mark.reads
def test_bad_forms(live: Api, people: People, fields: dict[str, str], status: int, words: str) -> None:  # noqa: F811
    """What is wrong is said beside the form, and nothing changes."""
    answer = people(Role.OPERATOR).post("/regions/eu-central/drain", fields)
    assert answer.status_code == status
    assert words in answer.text
    assert 'role="alert"' in answer.text
    assert 'name="reason"' in answer.text
    assert_inert(answer.text)
    assert live.viewer.get("/v1/regions/eu-central").json()["admin_state"] == "active"


@pytest.mark.reads
def test_a_viewer_is_offered_nothing(live: Api, people: People) -> None:  # noqa: F811
    """And is refused by hand; so is a form of another page."""
    person = people(Role.VIEWER)
    text = person.page("/regions/eu-central")
    assert "/regions/eu-central/drain" not in text
    assert not [
        attrs for tag, attrs in Markup(text).tags if tag == "form" and attrs.get("action") != "/sign-out"
    ]
    assert person.get("/regions/eu-central/drain").status_code == 403
    assert person.post("/regions/eu-central/drain", {"reason": "x"}).status_code == 403
    operator = people(Role.OPERATOR)
    operator.page("/regions/eu-central/drain?preview=skip")
    forged = operator.post("/regions/eu-central/drain", {"reason": "x", "csrf": "0" * 64})
    assert forged.status_code == 403
    assert (
        operator.post("/regions/eu-central/drain", {"reason": "x"}, Origin="https://evil.test").status_code
        == 403
    )
    assert live.viewer.get("/v1/regions/eu-central").json()["admin_state"] == "active"


def test_without_demand_only_the_rules_speak(world: Api, people: People) -> None:
    """Nobody can say what would move, and the page says that."""
    set_health(world, *REGIONS)
    text = people(Role.OPERATOR).page("/regions/us-east/disable?preview=now")
    assert "What it would do cannot be said" in text
    assert "no demand is known" in text
    assert "Disable us-east" in text


def events(person: Person, path: str, count: int) -> dict[str, str]:
    """The first events of a stream."""
    found: dict[str, str] = {}
    with person.client.stream("GET", path) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        name, lines = "", list[str]()
        for line in answer.iter_lines():
            field, _, value = line.partition(": ")
            if field == "event":
                name, lines = value, []
            elif field == "data":
                lines.append(value)
            elif name:
                found[name] = "\n".join(lines)
            if len(found) == count:
                break
    return found


@pytest.mark.reads
def test_what_moves_comes_as_a_stream(live: Api, people: People) -> None:  # noqa: F811
    """The table, and the parts of a region; each role sees what it may do."""
    found = events(people(Role.VIEWER), "/live/regions?state=up", 1)
    assert 'id="region-us-east"' in found["regions"]
    viewer = events(people(Role.VIEWER), "/live/regions/us-east", 2)
    operator = events(people(Role.OPERATOR), "/live/regions/us-east", 2)
    assert set(viewer) == set(operator) == {"head", "now"}
    assert "Drain…" not in viewer["head"]
    assert "Drain…" in operator["head"]
    for text in (*viewer.values(), *operator.values()):
        assert_inert(text)
