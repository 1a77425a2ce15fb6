"""What requests took on the pages of a region and of a service, and spillover by service: from what was recorded."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest

from gtm.core.capacity.durations import BOUNDS, Took
from gtm.core.demand.rows import Row
from gtm.core.model.access import Role
from gtm.dashboard.pages.plan_history import MOST_CURVES
from gtm.storage.history.requests import RequestMinute
from tests.api.conftest import Api
from tests.api.test_drafts import BERLIN
from tests.api.test_drafts import record as record_demand
from tests.api.test_request_history import record, start_of
from tests.dashboard.conftest import People, assert_inert
from tests.dashboard.test_region_charts import drawn
from tests.dashboard.test_regions import HOSTILE

TITLES = ["To the first byte, p50", "To the first byte, p99", "To the end, p50", "To the end, p99"]


def test_a_region_s_requests_are_drawn_by_service(world: Api, people: People) -> None:
    """With a gap where none ended (prometheus-junkyard/promdash#82 drew zeros), in seconds where they take long; names are text."""
    start = start_of(10)
    chat, slow = {("chat", HOSTILE[0]): Took({40: 9}, {60: 10})}, {("web", ""): Took({}, {130: 5})}
    record(
        world,
        {
            start: RequestMinute({"eu-central": {**chat, **slow}, "us-east": slow}, {}),
            start + timedelta(minutes=1): RequestMinute({"eu-central": slow}, {}),
        },
    )
    text = people(Role.VIEWER).page("/regions/eu-central/charts")
    assert_inert(text)
    found = drawn(text)
    assert [*found] == TITLES
    first, whole = found[TITLES[0]], found[TITLES[3]]
    assert (first["unit"], whole["unit"]) == ("ms", "s")
    values = {one["name"]: one["values"] for one in first["series"]}
    assert values["web"] == [None, None]
    assert values["chat"][0] == pytest.approx(1000 * BOUNDS[40], rel=0.13)
    assert values["chat"][1] is None
    values = {one["name"]: one["values"] for one in whole["series"]}
    assert values["web"] == [pytest.approx(BOUNDS[130], rel=0.13)] * 2
    rows = re.findall(r'<a href="/services/(\w+)/answers">.*?<td class="n">(\d+)</td>', text)
    assert rows == [("chat", "10"), ("web", "10")]
    assert "none stated" in text


def test_a_service_s_requests_are_drawn_by_region_and_so_is_its_spillover(world: Api, people: People) -> None:
    """Of more regions than can be told apart the busiest, and how many are not drawn: their percentiles add up to nothing."""
    start = start_of(10)
    busy = {f"region-{number:02}": {("chat", ""): Took({}, {60: 30 - number})} for number in range(12)}
    pushed = {("eu-central", "chat", "eu-west"): 120.0}
    record(world, {start: RequestMinute(busy, pushed)})
    away = Row("chat", "us-east", "served", "carry", "chat|real_time|eu-central>us-east|0", BERLIN)
    record_demand(world, {start: {away: 60.0}})
    text = people(Role.VIEWER).page("/services/chat/answers")
    assert_inert(text)
    found = drawn(text)
    assert [*found][3:] == [*TITLES, "Sent away by edges", "Pushed by balancers"]
    assert [one["name"] for one in found[TITLES[3]]["series"]] == sorted(busy)[:MOST_CURVES]
    assert "4 more with fewer requests are not drawn" in text
    assert found["Sent away by edges"]["series"] == [{"name": "eu-central → us-east", "values": [1.0]}]
    assert found["Pushed by balancers"]["series"] == [{"name": "eu-central → eu-west", "values": [2.0]}]
    part = people(Role.VIEWER).get("/services/web/answers", **{"HX-Request": "true"}).text
    assert "No balancer of gtm’s told of a request" in part
    assert "Nothing that is recorded went elsewhere" in part
