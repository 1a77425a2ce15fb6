"""A region over time: what was recorded of it as curves and tables, and what happened on the way."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html import unescape
from typing import Any

import pytest

from gtm.client.objects import as_answered
from gtm.core.model.access import Role
from gtm.core.plan.history import RegionMinute
from gtm.dashboard import charts
from tests.api.conftest import Api
from tests.dashboard.conftest import People, assert_inert
from tests.dashboard.test_plan_history import record
from tests.dashboard.test_regions import HOSTILE, report
from tests.system.harness import eventually

SPILLS = RegionMinute(12, 10.0, 8.0, 3.0, 1.0, 0.9, 50.0, 1.0)


def drawn(text: str) -> dict[str, Any]:
    """The charts of a page by their titles."""
    found = re.findall(r'data-chart="([^"]*)" aria-label="([^"]*) over time;', text)
    return {title: json.loads(unescape(told)) for told, title in found}


def went_down(world: Api, detail: str) -> None:
    """Frankfurt is down by all together, and control has written that down."""
    report(world, detail)
    wanted = {"region": "eu-central", "vantage": "*"}

    def known() -> bool:
        found = world.viewer.get("/v1/health/changes", params=wanted).json()["items"]
        return any(one["after"] == "down" for one in found)

    eventually(known, "the verdict is known")


def test_what_was_recorded_is_drawn_and_told(world: Api, people: People) -> None:
    """Load against capacity, refusals, spillover out and in; of what came from elsewhere, what is planned here and is nobody's at home."""
    record(world, (3, {"eu-west": SPILLS, "us-east": SPILLS}), (2, {"eu-west": replace(SPILLS, use=None)}))
    text = people(Role.VIEWER).page("/regions/eu-west")
    assert_inert(text)
    found = drawn(text)
    assert [*found] == ["Load against capacity", "Refused of its home demand", "Spillover"]
    series = {one["name"]: one["values"] for chart in found.values() for one in chart["series"]}
    assert series == {
        "in use": [90.0, None],
        "limit": [100.0, 100.0],
        "refused": [1.0, 1.0],
        "out": [3.0, 3.0],
        "in": [2.0, 2.0],
    }
    assert "90%" in text
    assert "Nothing is recorded" in people(Role.VIEWER).page("/regions/eu-central")


def test_what_happened_stands_on_the_time_axis(world: Api, people: People) -> None:
    """Revisions and verdicts by number, the oldest first, with words of others' as text."""
    record(world, (1, {"eu-central": SPILLS}))
    went_down(world, HOSTILE[0])
    answer = world.operator.post("/v1/regions/eu-west:drain", json={}, params={"comment": HOSTILE[0]})
    assert answer.status_code == 200, answer.text
    text = people(Role.VIEWER).page("/regions/eu-central/charts?over=24h")
    assert_inert(text)
    (marks,) = {json.dumps(one["marks"]) for one in drawn(text).values()}
    numbers = [one["number"] for one in json.loads(marks)]
    assert numbers == [*range(1, len(numbers) + 1)]
    assert {one["kind"] for one in json.loads(marks)} == {"", "bad"}
    listed = re.findall(r'<span class="number" aria-hidden="true">(\d+)</span>', text)
    assert [*map(int, listed)] == numbers
    assert re.search(r'<a href="/policy/revisions/(\d+)">revision \1</a>', text)
    assert "<html" in text
    part = people(Role.VIEWER).get("/regions/eu-central/charts", **{"HX-Request": "true"})
    assert "<html" not in part.text


def test_of_much_that_happened_the_newest_is_marked() -> None:
    """What is older is counted; what was before the axis begins is not there at all."""
    since = charts.moment("2026-01-01T00:00:00Z")
    revisions = [{"created_at": f"2026-01-01T00:{minute:02}:00Z"} for minute in range(40)]
    old = {"created_at": "2025-12-31T23:59:59Z"}
    found, left_out = charts.marks(since, as_answered([*revisions, old]), [])
    assert (len(found), left_out) == (charts.MOST_MARKS, 40 - charts.MOST_MARKS)
    assert found[-1]["at"] == charts.moment("2026-01-01T00:39:00Z").timestamp()


@pytest.mark.parametrize("query", ["over=99d", "over=", "over=1h&over=7d"])
def test_any_address_shows_some_time(world: Api, people: People, query: str) -> None:
    """What cannot be read is the usual hour."""
    record(world, (1, {"eu-central": SPILLS}))
    assert "The last hour" in people(Role.VIEWER).page(f"/regions/eu-central/charts?{query}")
