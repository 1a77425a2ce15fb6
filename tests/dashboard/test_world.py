"""The map's page over HTTP: what it says of demand that an edge reported, and what of hostile names."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gtm.client.objects import as_answered
from gtm.core.demand.cells import cell_of
from gtm.core.demand.rows import ClassKey, Row
from gtm.core.model.access import Role
from gtm.core.model.requests import Location, Request
from gtm.core.model.services import Priority
from gtm.dashboard.live import encoded
from gtm.dashboard.pages.world.country import by_service, memberships
from gtm.dashboard.pages.world.scene import away, by_country, scene_now, scene_then, tables, wrong
from gtm.dashboard.pages.world.seen import DemandFilter, Now, Then, as_time
from tests.api.conftest import Api, Shared
from tests.api.test_drafts import record
from tests.dashboard.conftest import People, assert_inert


def cell(**more: Any) -> dict[str, Any]:
    """A demand cell as the API shows it."""
    return {
        "service": "chat",
        "tenant": None,
        "data_class": None,
        "priority": "real_time",
        "country": "DE",
        "lat": 52.5,
        "lon": 12.5,
        **more,
    }


def row(region: str | None, rps: float, **more: Any) -> dict[str, Any]:
    """A row of demand."""
    outcome = "served" if region else "refused_residency"
    preferred = more.pop("preferred", None)
    told = {"region": region, "outcome": outcome, "preferred": preferred, "requests_per_second": rps}
    return {**told, "cell": cell(**more)}


def demand(*rows: dict[str, Any]) -> dict[str, Any]:
    """What the API says of these rows."""
    served: dict[str, float] = {}
    refused: dict[str, float] = {}
    for one in rows:
        sums, key = (served, one["region"]) if one["region"] else (refused, one["outcome"])
        sums[key] = sums.get(key, 0.0) + one["requests_per_second"]
    total = sum(served.values()) + sum(refused.values())
    told = {"at": 60.0, "recorded": None, "rate": total, "served": served, "refused": refused}
    return {**told, "rows": list(rows), "left_out": 0}


def region(name: str, **more: Any) -> dict[str, Any]:
    """A region as `/v1/top` shows it."""
    return {
        "region": name,
        "lat": 50.0,
        "lon": 8.0,
        "health": "up",
        "admin_state": "active",
        "utilisation": 0.5,
        "price_ms": 0.0,
        "exhausted": False,
        **more,
    }


def seen(*rows: dict[str, Any], **more: Any) -> Now:
    """What the API says at one moment."""
    top = {
        "at": 1.0,
        "database": "up",
        "plan": {"error": None},
        "regions": [region("a"), region("b")],
        "spill": [{"from": "a", "to": "b", "requests_per_second": 2.0}],
        "refusals": [],
        **more,
    }
    sync = {"state": "IN_SYNC", "revision": 3, "in_sync": ["e"], "pending": [], "lost": [], "unreachable": []}
    return Now(*map(as_answered, (top, demand(*rows), {"sync": sync, "warnings": []})))


def test_flows_are_what_rows_say() -> None:
    """By place and region; what is refused is no flow; what has no place is served all the same."""
    found = scene_now(
        seen(
            row("a", 1.0),
            row("a", 2.0, tenant="x"),
            row("b", 4.0, lat=0.0),
            row(None, 8.0),
            row("b", 5.0, lat=None),
        ),
        DemandFilter(),
    )
    assert found["flows"] == [[0.0, 12.5, "b", 4.0], [52.5, 12.5, "a", 3.0]]
    assert found["cells"] == [[0.0, 12.5, 4.0, 0.0], [52.5, 12.5, 11.0, 8.0]]
    assert {one["name"]: one["served"] for one in found["regions"]} == {"a": 3.0, "b": 9.0}
    assert found["arcs"] == [["a", "b", 2.0]]


def test_tables_say_what_the_map_draws() -> None:
    """Countries and regions by what is asked, the most first; who is nowhere is told apart; sums are the API's."""
    rows = [row("a", 1.0), row("b", 4.0, country="FR"), row(None, 2.0), row("a", 3.0, country=None)]
    found = tables(as_answered({**demand(*rows), "rate": 99.0, "left_out": 7}))
    assert (found["total"], found["rows_left"]) == (99.0, 7)
    assert found["refusals"] == [("refused_residency", 2.0)]
    assert found["flows"] == {"a": [("unknown", 3.0), ("DE", 1.0)], "b": [("FR", 4.0)]}
    assert [(one["country"], one["rps"], one["refused"]) for one in by_country(as_answered(rows))] == [
        (None, 3.0, 0.0),
        ("DE", 3.0, 2.0),
        ("FR", 4.0, 0.0),
    ]
    assert scene_now(seen(*rows), DemandFilter(service="chat"))["countries"] == [
        ["DE", 3.0, 2.0],
        ["FR", 4.0, 0.0],
    ]
    assert scene_now(seen(*rows), DemandFilter(service="chat"))["arcs"] == []


def test_what_was_is_drawn_as_recorded() -> None:
    """Regions have no state; arcs lead from the region that a class likes best; a region that is gone is in sums alone."""
    rows = [row("a", 1.0, preferred="a"), row("b", 4.0, preferred="a"), row("gone", 2.0, preferred="gone")]
    plans = {"a": {"use": 0.5, "price_ms": 12.345}}
    regions = {"a": {"name": "a", "lat": 1.0, "lon": 2.0}}
    found = Then("1970-01-01T00:01", *map(as_answered, (demand(*rows), regions)), plans=as_answered(plans))
    drawn = scene_then(found)
    assert [
        (one["name"], one["state"], one["use"], one["price"], one["served"]) for one in drawn["regions"]
    ] == [("a", "then", 0.5, 12.3, 1.0)]
    assert drawn["arcs"] == [["a", "b", 4.0]] == [list(one) for one in away(as_answered(rows))]
    assert sum(one[3] for one in drawn["flows"]) == 7.0


def test_services_of_a_country_with_their_shares() -> None:
    """Shares are of all that is asked, refusals included."""
    rows = [row("a", 1.0), row("b", 2.0), row(None, 1.0), row("a", 8.0, service="web")]
    found = by_service(as_answered(rows))
    assert [(one["service"], one["rps"], one["refused"], one["regions"]) for one in found] == [
        ("web", 8.0, 0.0, [("a", 1.0)]),
        ("chat", 4.0, 1.0, [("b", 0.5), ("a", 0.25)]),
    ]


def test_memberships_have_their_dates() -> None:
    """Of now, over, and to come; those of others are no matter."""
    term = {"member": "JP", "effective_from": "2019-01-23T00:00:00Z", "effective_until": None}
    later = {"member": "JP", "effective_from": "2099-01-01T00:00:00Z", "effective_until": None}
    past = {"country": "JP", "since": None, "until": "2020-01-01", "source": "", "checked": ""}
    bare = {"display_name": "", "terms": [], "decisions": [], "past": []}
    decision = {"country": "JP", "act": "x", "date": "2019-01-23"}
    found = memberships(
        as_answered(
            [
                {
                    **bare,
                    "name": "in",
                    "countries": ["JP"],
                    "terms": [term],
                    "decisions": [decision, {"country": "KR"}],
                },
                {**bare, "name": "out", "countries": ["DE"]},
                {**bare, "name": "later", "countries": [], "terms": [later]},
                {**bare, "name": "over", "countries": [], "past": [past]},
            ]
        ),
        "JP",
    )
    assert [(one["name"], one["since"], one["decisions"]) for one in found["now"]] == [
        ("in", "2019-01-23T00:00:00Z", [decision])
    ]
    assert [(one["name"], one["since"], one["until"]) for one in found["other"]] == [
        ("later", "2099-01-01T00:00:00Z", None),
        ("over", None, "2020-01-01"),
    ]


@pytest.mark.parametrize(
    ("text", "iso"),
    [
        ("2026-01-31T10:20", "2026-01-31T10:20:00+00:00"),
        ("2026-01-31T10:20:00+02:00", "2026-01-31T08:20:00+00:00"),
        ("0001-01-01T00:00+14:00", None),
        ("yesterday", None),
    ],
)
def test_a_time_without_a_zone_is_utc(text: str, iso: str | None) -> None:
    """As a field of time sends it."""
    found = as_time(text)
    assert (None if found is None else found.isoformat()) == iso


def test_the_worst_comes_first() -> None:
    """A database that is away before regions that are down, these before what is late, and that before what is only odd."""
    found = seen(
        database="down",
        regions=[
            region("a", health="down"),
            region("b", admin_state="draining"),
            region("c", exhausted=True),
        ],
        refusals=[{"service": "chat", "outcome": "refused_residency", "requests_per_second": 1.5}],
        plan={"error": "no"},
    )
    words = [line for _, line, _ in wrong(found)]
    assert [line.split()[0] + " " + line.split()[1] for line in words] == [
        "The database",
        "Region a",
        "1.5 requests",
        "The planner",
        "Region c",
        "Region b",
    ]


def test_events_cannot_be_broken_out_of() -> None:
    """A line of data is a line of data, whatever it has in it."""
    hostile = "a\nevent: evil\r\ndata: x\rid: 7\n\n"
    lines = encoded({"side": hostile}).decode().split("\n")
    assert [line for line in lines if line] == [
        "event: side",
        *(f"data: {line}" for line in hostile.splitlines()),
    ]


@pytest.mark.reads
def test_the_page_reads_without_scripts(people: People) -> None:
    """Regions, their state and what is wrong are text; the scene for the script is data."""
    text = people(Role.VIEWER).page("/")
    assert_inert(text)
    for name in ("eu-central", "eu-west", "us-east"):
        assert f'id="served-{name}"' in text
    assert "is not everywhere yet" in text
    found = re.search(r'<script type="application/json" id="scene">(.*?)</script>', text)
    assert found is not None
    assert {one["name"] for one in json.loads(found[1])["regions"]} == {"eu-central", "eu-west", "us-east"}


@pytest.mark.parametrize(
    "query", ["service=%3Cscript%3E", "country=%22%3E", "tenant=" + "x" * 5000, "priority=%00", "unknown=1"]
)
@pytest.mark.reads
def test_what_an_address_says_is_text(people: People, query: str) -> None:
    """Nothing is asked for by such a name, and it does no harm."""
    answer = people(Role.VIEWER).get(f"/?{query}")
    assert answer.status_code in (200, 404, 422)
    assert_inert(answer.text)
    assert "<script>" not in answer.text.replace('<script type="application/json"', "")
    assert "What is wrong now" in answer.text


@pytest.fixture
def recorded(world: Api, shared: Shared) -> datetime:
    """A minute, two hours ago, in which names as hostile as rows can bring them asked; an hour after there is another."""
    if world.url in (known := shared.kept.setdefault("recorded", {})):
        found: datetime = known[world.url]
        return found
    minute = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=2)
    known[world.url] = minute
    key = ClassKey("chat", "real_time", ("eu-central", "us-east"), "0").text
    hostile = "<script>alert(1)</script>"

    def asked(place: str, outcome: str = "served", **more: Any) -> Row:
        location = Location(more.get("country", "DE"), lat=52.5, lon=13.4)
        text = cell_of(Request(more.get("service", "chat"), location, more.get("tenant")), Priority.REAL_TIME)
        return Row(more.get("service", "chat"), place, outcome, "http", key, text)

    record(
        world,
        {
            minute: {
                asked("eu-central"): 60.0,
                asked("us-east"): 120.0,
                asked("", "refused_overload"): 30.0,
                asked(hostile, tenant=hostile, service=hostile, country="FR"): 6.0,
                asked("", hostile): 6.0,
            },
            minute + timedelta(minutes=61): {asked("eu-central"): 60.0},
        },
    )
    return minute


@pytest.mark.reads
def test_what_was_recorded_is_shown_again(people: People, recorded: datetime) -> None:
    """As a page that says plainly which minute it is of, what revision held, and what is not known of it; hostile names are text."""
    person, at = people(Role.VIEWER), recorded.strftime("%Y-%m-%dT%H:%M")
    text = person.page(f"/?at={at}")
    assert_inert(text)
    assert "<script>" not in text.replace('<script type="application/json"', "")
    assert "data-stream" not in text
    assert f"{recorded:%Y-%m-%d %H:%M}:00 UTC" in text
    assert "no record" in text
    assert "Away from the region liked best" in text
    assert "No verdict changed" in text
    assert "no longer in the policy" in text
    found = re.search(r'<script type="application/json" id="scene">(.*?)</script>', text)
    assert found is not None
    scene = json.loads(found[1])
    assert scene["arcs"][0][:2] == ["eu-central", "us-east"]
    assert {one["name"]: one["served"] for one in scene["regions"]} == {
        "eu-central": 1.0,
        "eu-west": 0.0,
        "us-east": 2.0,
    }
    parts = person.get(f"/live/then?at={at}&country=FR").json()
    assert parts.keys() == {"side", "table", "scene", "when"}
    for part in ("side", "table", "when"):
        assert_inert(parts[part])
    assert "0.10/s" in parts["side"]
    late = person.get(f"/?at={(recorded + timedelta(minutes=100)):%Y-%m-%dT%H:%M}:00Z")
    assert f"{recorded + timedelta(minutes=61):%Y-%m-%d %H:%M}:00 UTC" in late.text


@pytest.mark.parametrize(
    "at", ["yesterday", "1999-01-01T00:00", "0001-01-01T00:00", "9999-12-31T23:59", "%00", "%3Cb%3E"]
)
@pytest.mark.reads
def test_a_time_without_record_is_said_to_be(people: People, recorded: datetime, at: str) -> None:
    """It shows nothing, and says why; the way back to now is there."""
    answer = people(Role.VIEWER).get(f"/?at={at}")
    assert answer.status_code in (404, 422), answer.text
    assert_inert(answer.text)
    unrecorded = answer.status_code == 404
    assert ("Nothing is recorded" if unrecorded else "This cannot be shown") in answer.text
    assert "Back to now" in answer.text
    for claim in ("Nothing was refused", "All that was served", "Nobody asked", "<b>0/s"):
        assert claim not in answer.text, claim


def test_a_country_is_told_of(people: People, world: Api) -> None:
    """Members with dates, regions, rules with their legal basis as text, and distances; of a country that there is not, nothing."""
    hostile = '<script>alert(1)</script>" onload="x'
    strict = {"match": {"services": ["chat"]}, "allow": {"regions": ["eu-west"]}, "legal_basis": hostile}
    world.must_put("/v1/residency-rules/strict", strict)
    term = {"member": "DE", "effective_from": "2020-02-29T00:00:00Z"}
    own = {"display_name": hostile, "members": ["DE", "FR"], "terms": [term]}
    world.must_put("/v1/jurisdictions/OWN", own)
    person = people(Role.VIEWER)
    text = person.page("/countries/DE")
    assert_inert(text)
    assert "<script>" not in text
    assert "&lt;script&gt;alert(1)" in text
    for words in (
        "EEA",
        "OWN",
        "2020-02-29",
        "eu-central",
        "strict",
        "only</span> eu-west",
        "How far regions are",
    ):
        assert words in text
    assert "/countries/JP" in person.page("/countries")
    assert person.get("/countries?code=jp").url.path == "/countries/JP"
    assert "There is no country" in person.page("/countries?code=%3Cb")
    for code in ("XX", "de", "%3Cscript%3E", "DE%2F.."):
        assert person.get(f"/countries/{code}").status_code == 404


def test_the_stream_is_the_page_that_moves(people: People) -> None:
    """Its parts come again and again, until the session ends."""
    person = people(Role.OPERATOR)
    person.page("/")
    names, ended = [], False
    with person.client.stream("GET", "/live/world?country=EEA") as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        for line in answer.iter_lines():
            if line.startswith("event: "):
                names.append(line[7:])
            if len(names) >= 3 and not ended:
                ended = True
                person.post("/sign-out")
    assert names[:3] == ["side", "table", "scene"]
