"""The map's page over HTTP: what it says of demand that an edge reported, and what of hostile names."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from gtm.core.model.access import Role
from gtm.dashboard.live import encoded
from gtm.dashboard.pages.world import Filter, Seen, scene, side, wrong
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
    return {"region": region, "outcome": outcome, "requests_per_second": rps, "cell": cell(**more)}


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


def seen(*rows: dict[str, Any], **more: Any) -> Seen:
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
    sync = {"state": "IN_SYNC", "revision": 3, "in_sync": ["e"], "pending": [], "unreachable": []}
    return Seen(top, {"rows": list(rows)}, {"sync": sync, "warnings": []})


def test_flows_are_what_rows_say() -> None:
    """By place and region; what is refused is no flow; what has no place is served all the same."""
    found = scene(
        seen(
            row("a", 1.0),
            row("a", 2.0, tenant="x"),
            row("b", 4.0, lat=0.0),
            row(None, 8.0),
            row("b", 5.0, lat=None),
        ),
        Filter(),
    )
    assert found["flows"] == [[0.0, 12.5, "b", 4.0], [52.5, 12.5, "a", 3.0]]
    assert found["places"] == [[0.0, 12.5, 4.0, 0.0], [52.5, 12.5, 11.0, 8.0]]
    assert {one["name"]: one["served"] for one in found["regions"]} == {"a": 3.0, "b": 9.0}
    assert found["arcs"] == [["a", "b", 2.0]]


@pytest.mark.parametrize(
    ("chosen", "served"),
    [
        (Filter(), 15.0),
        (Filter(service="web"), 8.0),
        (Filter(tenant="t"), 4.0),
        (Filter(country="DE"), 7.0),
        (Filter(country="EEA", countries=frozenset({"DE", "FR"})), 15.0),
        (Filter(country="XX"), 0.0),
        (Filter(service="chat", country="DE", priority="batch"), 2.0),
    ],
)
def test_a_filter_leaves_what_it_says(chosen: Filter, served: float) -> None:
    """Of flows, totals and tables alike."""
    found = seen(
        row("a", 1.0),
        row("a", 2.0, priority="batch"),
        row("b", 4.0, tenant="t"),
        row("b", 8.0, service="web", country="FR"),
    )
    assert side(found, chosen)["total"] == served
    assert sum(one[3] for one in scene(found, chosen)["flows"]) == served
    assert sum(side(found, chosen)["served"].values()) == served


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
def test_what_an_address_says_is_text(people: People, query: str) -> None:
    """Nothing is asked for by such a name, and it does no harm."""
    text = people(Role.VIEWER).page(f"/?{query}")
    assert_inert(text)
    assert "<script>" not in text.replace('<script type="application/json"', "")


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
