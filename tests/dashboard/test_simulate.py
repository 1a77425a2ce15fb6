"""Simulations as pages: the question in the address, the report as `gtm simulate` makes it (docs/dashboard.md)."""

from __future__ import annotations

import json
import re
from html import unescape
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from gtm.client.objects import as_answered
from gtm.core.model.access import Role
from gtm.dashboard.drafts import MAX_LINK, Draft
from gtm.dashboard.effects import told
from gtm.dashboard.pages import simulate as page
from tests.api.conftest import Api
from tests.api.test_drafts import BERLIN, BOSTON, live, row, set_demand  # noqa: F401 - fixture
from tests.dashboard.conftest import People, assert_inert

HOSTILE = [
    "<script>alert(1)</script>\"'&",
    "x" * 5000,
    "\u202egnp.exe",
    "{{ 7*7 }}",
    "nan",
    "-1",
    "../..",
    "🤷",
]
FORM = {
    "traffic": "now",
    "demand": "2",
    "what0": "down",
    "region0": "us-east",
    "what1": "capacity",
    "region1": "eu-west",
    "percent1": "50",
    "what2": "drain",
    "region2": "",
    "service0": "chat",
    "factor0": "1.5",
}
ASKED = "/simulate?traffic=now&down=us-east&capacity=eu-west%3A50&demand=2&service=chat%3A1.5"


def scene_of(text: str) -> dict[str, Any]:
    """What the map is told."""
    found = re.search(r'data-scene="([^"]*)"', text)
    assert found is not None
    made: dict[str, Any] = json.loads(unescape(found[1]))
    return made


@pytest.mark.reads
def test_it_begins_with_a_question(live: Api, people: People) -> None:  # noqa: F811 - the fixture
    """Nothing is worked out before somebody asks; it is in the menu, for all who may look."""
    text = people(Role.VIEWER).page("/simulate")
    assert_inert(text)
    assert '<a href="/simulate" aria-current="page">' in text
    assert "<option>eu-central</option>" in text
    assert "hx-get" not in text


@pytest.mark.reads
def test_the_form_leads_to_an_address(live: Api, people: People) -> None:  # noqa: F811
    """One that can be shared, without what was left empty; there the form holds the same, and the report is asked for apart."""
    person = people(Role.VIEWER)
    answer = person.post("/simulate", FORM)
    assert answer.status_code == 200, answer.text
    assert str(answer.url).endswith(ASKED)
    assert_inert(answer.text)
    assert f'hx-get="{ASKED.replace("&", "&amp;")}"' in answer.text
    assert "<option selected>us-east</option>" in answer.text
    assert 'value="1.5"' in answer.text
    assert "<noscript>" in answer.text
    part = person.post("/simulate", FORM, **{"HX-Request": "true"})
    assert (part.status_code, part.headers["hx-redirect"]) == (204, ASKED)


@pytest.mark.reads
def test_the_report_is_that_of_the_api(live: Api, people: People) -> None:  # noqa: F811
    """In sentences, in tables and for the map; with and without scripts; with the command and the call that do the same."""
    person = people(Role.VIEWER)
    asked = "/simulate?traffic=now&down=us-east"
    body = {"traffic": "current", "scenario": {"down": ["us-east"]}}
    made = live.viewer.post("/v1/policy:simulate", json=body).json()
    assert made["moved"] == pytest.approx(0.8)
    part = person.get(asked, **{"HX-Request": "true"}).text
    assert "<html" not in part
    whole = person.page(asked + "&show=now")
    for text in (part, whole):
        assert_inert(text)
        for words in (
            "80% of all requests would go elsewhere than now: 8/s more to <b>eu-west</b>",
            "Nobody more would be refused",
            '<th scope="row">us-east</th><td>eu-west</td><td class="n">8/s</td>',
            "gtm simulate --traffic current --down us-east",
            "v1/policy:simulate",
            "&#34;down&#34;: [&#34;us-east&#34;]",
        ):
            assert words in text, words
        assert 'class="curves"' in text
    scene = scene_of(part)
    assert {one["name"]: one["kind"] for one in scene["regions"]} == {
        "eu-central": "same",
        "eu-west": "gains",
        "us-east": "loses",
    }
    assert scene["moves"] == [{"from": "us-east", "to": "eu-west", "rate": 8.0, "label": "8/s"}]
    ((lat, lon, rate, kind),) = scene["places"]
    assert (lat, lon, rate, kind) == (42.5, -72.5, pytest.approx(8.0), "moved")
    said = {one["name"]: one["said"] for one in scene["regions"]}
    assert said["us-east"].startswith("us-east: 8/s before, 0/s after")


@pytest.mark.reads
def test_refusals_have_their_reasons(live: Api, people: People) -> None:  # noqa: F811
    """No region inside the fence is left: who is refused, by which rule, is in the sentence, the tables and on the map."""
    text = (
        people(Role.VIEWER)
        .get("/simulate?traffic=now&down=eu-central&down=eu-west", **{"HX-Request": "true"})
        .text
    )
    assert "2/s more would be refused" in text
    assert "Refused by rule gdpr" in text
    assert '<td><span class="state bad">' in text
    scene = scene_of(text)
    assert [(one[:2], one[3]) for one in scene["places"]] == [([52.5, 12.5], "refused")]
    assert scene["moves"][0]["to"] is None


@pytest.mark.reads
def test_growth_is_told_apart_from_moves(live: Api, people: People) -> None:  # noqa: F811
    """Twice the requests: more of them, none elsewhere."""
    text = people(Role.VIEWER).get("/simulate?traffic=now&demand=2", **{"HX-Request": "true"}).text
    assert "Instead of 10/s there would be 20/s" in text
    assert "Nobody would be served elsewhere" in text


@pytest.mark.reads
def test_a_draft_comes_along(live: Api, people: People) -> None:  # noqa: F811
    """From the Policy pages by its link or its form, with its findings; one too long for a link is worked out at once."""
    person = people(Role.OPERATOR)
    draft = Draft("regions:\n  - name: us-east\n", 2, tags={})
    document = live.viewer.get("/v1/regions/us-east").json()
    text = "services:\n  - name: chat\n    members: [{region: eu-west}]\n"
    draft = Draft(text, 2)
    preview = person.post("/policy/draft", {"draft": draft.kept, "text": draft.text}).text
    assert '<button formaction="/simulate">Simulate it</button>' in preview
    answer = person.post("/simulate", {"draft": draft.kept, "text": draft.text})
    query = parse_qs(urlsplit(str(answer.url)).query)
    assert Draft.of_link(query["d"][0]) == draft
    assert "draft of <b><bdi>chat</bdi></b>" in answer.text
    report = person.page(f"/simulate?traffic=now&show=now&d={draft.packed}")
    assert_inert(report)
    assert "100% of all requests would go elsewhere" in report
    assert "--policy FOLDER" in report
    noise = "".join(f"# {hash((n, 'x')):x}\n" for n in range(4000))
    long = Draft(text + noise, 2)
    assert long.packed is None or len(long.packed) > MAX_LINK
    answer = person.post("/simulate", {"draft": long.kept, "text": long.text, "traffic": "now"})
    assert answer.status_code == 200
    assert urlsplit(str(answer.url)).query == ""
    assert "100% of all requests would go elsewhere" in answer.text
    assert document["country"] == "US"


@pytest.mark.reads
def test_what_is_wrong_is_said(live: Api, people: People) -> None:  # noqa: F811
    """What the API refuses stands in the report; the form keeps what was written."""
    person = people(Role.VIEWER)
    for query, words in (
        ("traffic=now&down=nowhere", "there is no region <code>nowhere</code>"),
        ("traffic=now&demand=many", "scenario.demand"),
        ("traffic=now&at=2020-01-01T00%3A00", "is over"),
        ("traffic=24h&down=us-east", "Take the requests of this moment"),
        ("traffic=now&capacity=us-east:lots", "scenario.capacity"),
    ):
        text = person.page(f"/simulate?{query}&show=now")
        assert_inert(text)
        assert words in text, words
    assert 'value="many"' in person.page("/simulate?traffic=now&demand=many")
    assert person.get("/simulate?traffic=now&d=nothing").status_code == 400
    wrong = Draft("regions: [", 2)
    assert "The draft has problems" in person.page(f"/simulate?traffic=now&show=now&d={wrong.packed}")
    set_demand(live, {})
    assert "no demand is known now" in person.page("/simulate?traffic=now&show=now")


@pytest.mark.parametrize("hostile", HOSTILE)
@pytest.mark.reads
def test_what_people_write_is_text(live: Api, people: People, hostile: str) -> None:  # noqa: F811
    """In any field of the address or the form."""
    person = people(Role.VIEWER)
    fields = ("traffic", "down", "drain", "capacity", "demand", "service", "at", "show")
    answer = person.client.get(
        "/simulate", params=dict.fromkeys(fields, hostile), headers={"Accept": "text/html"}
    )
    assert answer.status_code == 200
    assert_inert(answer.text)
    assert "<script>alert" not in answer.text
    answer = person.client.get(
        "/simulate", params={**dict.fromkeys(fields, hostile), "show": "now"}, headers={"Accept": "text/html"}
    )
    assert answer.status_code == 200
    assert_inert(answer.text)
    assert "<script>alert" not in answer.text
    answer = person.post("/simulate", {**FORM, **dict.fromkeys(FORM, hostile), "what0": "down"})
    assert answer.status_code == 200
    assert_inert(answer.text)


def test_addresses_and_forms_say_the_same() -> None:
    """What a form says is what its address says; empty rows and unknown words say nothing."""
    asked = page.SimulationAsked.of_form({**FORM, "what3": "explodes", "region3": "us-east"})
    assert asked.address == ASKED
    assert asked.scenario == {
        "down": ["us-east"],
        "capacity": {"eu-west": 0.5},
        "services": {"chat": 1.5},
        "demand": 2.0,
    }
    assert page.SimulationAsked.of_form({"traffic": "yesterday"}).address == "/simulate?traffic=24h"
    assert page.commands(asked)[0] == (
        "gtm simulate --traffic current --down us-east --capacity eu-west=0.5 --demand 2 --demand chat=1.5 --html report.html"
    )


def test_of_many_regions_those_concerned_have_names() -> None:
    """The map stays legible; the tables have all."""
    names = [f"r{n}" for n in range(100)]
    room = {"utilization": 0.5}

    def side(moved: float) -> dict[str, Any]:
        parts = [
            {
                "region": one,
                "rate": 1.0,
                "share": 0.01,
                "queued": 0.0,
                "room": room,
                "price_ms": 0.0,
                "exhausted": False,
            }
            for one in names
        ]
        parts[0] |= {"rate": 1.0 - moved}
        parts[1] |= {"rate": 1.0 + moved}
        return {
            "rate": 100.0,
            "regions": parts,
            "latency_ms": None,
            "spill": [],
            "refused": {"rate": 0.0, "share": 0.0, "reasons": {}, "rules": {}},
            "queued": 0.0,
            "exhausted": [],
        }

    both = {
        "moved": 0.01,
        "newly_served": 0.0,
        "moves": [{"from": "r0", "to": "r1", "rate": 1.0}],
        "before": side(0.0),
        "after": side(1.0),
    }
    made = {
        "average": both,
        "peak": both,
        "countries": [],
        "places": [],
        "regions": [{"region": one, "lat": 0.0, "lon": 0.0} for one in names],
    }
    scene = told(as_answered(made))["scene"]
    assert [one["label"] for one in scene["regions"] if one["label"]] == ["r0 −1/s", "r1 +1/s"]
