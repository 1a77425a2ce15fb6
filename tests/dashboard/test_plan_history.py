"""The plan's history, by the API and as a page: what was recorded, what was not, and a database that is away."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from html import unescape
from typing import Any

import pytest

from gtm.client.objects import as_answered
from gtm.core.model.access import Role
from gtm.core.plan.history import RegionMinute
from gtm.dashboard.pages.plan_history import MEASURES, MOST_CURVES, MOST_ROWS, shown
from gtm.storage.session import Database
from tests.api.conftest import Api
from tests.api.test_resources import problem
from tests.dashboard.conftest import People, assert_inert

FULL = RegionMinute(12, 10.0, 8.0, 1.0, 1.0, 0.9, 50.0, 1.0)
HOSTILE = ["<script>alert(1)</script>\"'", "x" * 5000, "{{ 7*7 }}", "\u202e"]


def record(api: Api, *minutes: tuple[int, dict[str, RegionMinute]]) -> datetime:
    """Let control have recorded minutes, each so many minutes ago; what now counts as."""
    now = datetime.now(UTC).replace(second=0, microsecond=0)

    async def work() -> None:
        database = Database(api.database_url)
        async with database.transaction() as tx:
            for ago, regions in minutes:
                await tx.plans.record(now - timedelta(minutes=ago), regions)
        await database.dispose()

    asyncio.run(work())
    return now


def test_the_api_tells_it_in_columns(world: Api) -> None:
    """By region and time; what was not recorded is null, what never was is missing, and a region can be asked for alone."""
    empty = world.viewer.get("/v1/plan/history").json()
    assert (empty["times"], empty["regions"], empty["step_seconds"]) == ([], [], 900.0)
    now = record(world, (3, {"eu-west": FULL, "gone": FULL}), (2, {"eu-west": replace(FULL, use=None)}))
    since = (now - timedelta(hours=1)).isoformat()
    found = world.viewer.get("/v1/plan/history", params={"since": since}).json()
    assert found["step_seconds"] == 60.0
    assert found["times"] == [(now - timedelta(minutes=ago)).timestamp() for ago in (3, 2)]
    assert found["regions"] == [
        {
            "region": "eu-west",
            "whole": {"minutes": 2, **_said(FULL)},
            "minutes": [1, 1],
            "demand": [10.0, 10.0],
            "planned": [8.0, 8.0],
            "away": [1.0, 1.0],
            "refused": [1.0, 1.0],
            "use": [0.9, None],
            "most_use": [0.9, None],
            "price_ms": [50.0, 50.0],
            "most_price_ms": [50.0, 50.0],
            "exhausted": [1.0, 1.0],
        },
        {
            "region": "gone",
            "whole": {"minutes": 1, **_said(FULL)},
            "minutes": [1, None],
            **{name: [value, None] for name, value in _said(FULL).items()},
        },
    ]
    one = world.viewer.get("/v1/plan/history", params={"since": since, "region": "gone"}).json()
    assert [region["region"] for region in one["regions"]] == ["gone"]
    part = world.viewer.get("/v1/plan/history", params={"since": since, "column": "use"}).json()
    assert part["regions"] == [
        {"region": one["region"], "whole": one["whole"], "use": one["use"]} for one in found["regions"]
    ]
    problem(world.viewer.get("/v1/plan/history", params={"column": "region"}), 422)
    for wrong in ({"since": since, "until": since}, {"since": "1000-01-01T00:00:00Z"}):
        problem(world.viewer.get("/v1/plan/history", params=wrong), 400)


def _said(one: RegionMinute) -> dict[str, Any]:
    return {
        "demand": one.demand,
        "planned": one.planned,
        "away": one.away,
        "refused": one.refused,
        "use": one.use,
        "most_use": one.use,
        "price_ms": one.price_ms,
        "most_price_ms": one.price_ms,
        "exhausted": one.exhausted,
    }


def test_the_plan_page_asks_for_it(world: Api, people: People) -> None:
    """As a part, after the plan of now; without scripts there is a page of its own."""
    person = people(Role.VIEWER)
    text = person.page("/plan")
    assert 'hx-get="/plan/history"' in text
    assert '<noscript><p><a class="button" href="/plan/history">' in text
    assert "Nothing is recorded" in person.page("/plan/history")
    record(
        world, (3, {"eu-west": FULL, "us-east": replace(FULL, use=0.2, refused=0.0)}), (2, {"eu-west": FULL})
    )
    part = person.get("/plan/history", **{"HX-Request": "true"}).text
    whole = person.page("/plan/history?over=1h&measure=price")
    assert "<html" not in part
    for text in (part, whole):
        assert_inert(text)
        for words in (
            '<th scope="row">eu-west</th>',
            '<th scope="row">us-east</th>',
            "✕ 1/s",
            "90%",
            "50 ms",
            "100%",
        ):
            assert words in text, words
    chart = json.loads(unescape(re.findall(r'data-chart="([^"]*)"', whole)[0]))
    assert [one["name"] for one in chart["series"]] == ["eu-west", "us-east"]
    assert chart["series"][1]["values"] == [50.0, None]
    assert (chart["unit"], chart["step"]) == ("ms", 60.0)


@pytest.mark.parametrize("hostile", HOSTILE)
@pytest.mark.reads
def test_it_stands_odd_questions(world: Api, people: People, hostile: str) -> None:
    """Which are those usually asked."""
    record(world, (2, {"eu-west": FULL}))
    answer = people(Role.VIEWER).client.get(
        "/plan/history", params={"over": hostile, "measure": hostile}, headers={"Accept": "text/html"}
    )
    assert answer.status_code == 200
    assert_inert(answer.text)
    assert "Use of the limit" in answer.text


def test_without_the_database_the_page_says_so(world: Api, people: People) -> None:
    """And the plan of now is there all the same."""
    person = people(Role.VIEWER)
    person.page("/plan")
    context = world.server.app.state.context
    real, gone = context.database.transaction, Database("postgresql://127.0.0.1:1/none").transaction
    object.__setattr__(context.database, "transaction", gone)
    try:
        answer = person.get("/plan/history", **{"HX-Request": "true"})
        assert answer.status_code == 503
        assert "The history cannot be read now" in answer.text
        assert_inert(answer.text)
        assert "<h1>Plan</h1>" in person.page("/plan")
    finally:
        object.__setattr__(context.database, "transaction", real)


def test_of_many_regions_those_with_most_have_curves() -> None:
    """Others stand in the table, and beyond that are counted."""
    regions = [
        {
            "region": f"r{n:03}",
            "whole": {name: value * n for name, value in _said(FULL).items()},
            "use": [FULL.use * n, None],
        }
        for n in range(150)
    ]
    found = shown(
        as_answered(
            {
                "since": "2026-01-31T00:00:00Z",
                "until": "2026-01-31T01:00:00Z",
                "times": [0.0, 60.0],
                "step_seconds": 60.0,
                "regions": regions,
            }
        ),
        MEASURES["use"],
    )
    assert [one["region"] for one in found["curves"]] == [
        f"r{n:03}" for n in range(149, 149 - MOST_CURVES, -1)
    ]
    assert (len(found["rows"]), found["more"], found["left_out"]) == (MOST_ROWS, 50, 150 - MOST_CURVES)
    assert found["chart"]["series"][0]["values"] == [pytest.approx(0.9 * 149 * 100), None]
    assert found["rows"][0]["demand"] == pytest.approx(1490.0)
