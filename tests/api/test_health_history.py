"""What probes said lately, over HTTP: changes with their evidence, steps by endpoint and edge."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from gtm.core.health.history import Probed
from gtm.core.model.state import EndpointHealth, HealthStatus
from gtm.feed.reports import EdgeReport
from tests.api.conftest import Api
from tests.system.harness import eventually

URL = "http://127.0.1.1:9000"
HOSTILE = "<script>alert(1)</script>\u202e\0"
UP, DOWN = HealthStatus.UP, HealthStatus.DOWN


def send(
    api: Api, edge: str, status: HealthStatus, probed: tuple[Probed, ...] | None, detail: str = ""
) -> None:
    """An edge reports on one endpoint."""
    health = {"eu-central": {URL: EndpointHealth(status, 1.0, detail, 7.0)}}
    body = msgspec.json.encode(EdgeReport("1.0", 2, 1, health, probed=probed))
    answer = api.edge.post(
        f"/v1/edges/{edge}/report", content=body, headers={"Content-Type": "application/json"}
    )
    assert answer.status_code == 200, answer.text


def changes(api: Api, **query: Any) -> Any:
    """A page of changes."""
    answer = api.viewer.get("/v1/health/changes", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


def steps(api: Api, **query: Any) -> Any:
    """A page of steps."""
    answer = api.viewer.get("/v1/health/steps", params={"region": "eu-central", **query})
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_changes_and_steps_are_told(world: Api) -> None:
    """Each edge's, those of all together, and of an edge of before what its verdicts say."""
    failed = Probed("eu-central", URL, None, 503, f"status 503, expected 200 {HOSTILE}")
    elsewhere = Probed("eu-central", "http://elsewhere.test", 1.0, 200, "")
    send(world, "fra", UP, (Probed("eu-central", URL, 4.0, 200, ""), elsewhere))
    send(world, "old", UP, None)
    eventually(
        lambda: {one["vantage"] for one in changes(world)["items"]} == {"fra", "old", None},
        "all are told",
        30,
    )
    send(world, "fra", DOWN, (failed,), failed.failure)
    eventually(lambda: len(changes(world, vantage="fra")["items"]) == 2, "that it went down is told", 30)
    page = changes(world, vantage="fra")
    assert page["complete"] is True
    down, up = page["items"]
    assert (up["before"], up["after"], up["status"], up["latency_ms"]) == ("unknown", "up", 200, 4.0)
    assert (down["before"], down["after"], down["status"], down["latency_ms"]) == ("up", "down", 503, None)
    assert down["detail"].startswith("status 503, expected 200 <script>")
    assert datetime.fromisoformat(down["at"]) > datetime.now(UTC) - timedelta(minutes=5)
    assert down["edge_at"] == "1970-01-01T00:00:01Z"
    found = steps(world)
    by_vantage = {one["vantage"]: one["steps"] for one in found["items"]}
    assert [one["vantage"] for one in found["items"]] == [None, "fra", "old"]
    mine = by_vantage["fra"]
    assert (sum(one["probes"] for one in mine), sum(one["failed"] for one in mine)) == (2, 1)
    assert mine[-1]["worst"] == "down"
    assert {one["probes"] for one in (*by_vantage["old"], *by_vantage[None])} == {None}
    assert found["step_seconds"] == 300


def test_pages_go_on_where_they_ended(world: Api) -> None:
    """Both kinds, narrowed down or not, each item once."""
    for edge in ("fra", "iad", "sin"):
        for status in (UP, DOWN, UP):
            send(world, edge, status, ())
    eventually(
        lambda: {one["vantage"] for one in steps(world)["items"]} >= {None}, "all together are told", 30
    )
    seen, cursor = [], None
    while True:
        page = (
            changes(world, limit=2, cursor=cursor, endpoint=URL, region="eu-central")
            if cursor
            else changes(world, limit=2)
        )
        seen += [(one["at"], one["vantage"]) for one in page["items"] if one["vantage"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert len(seen) == len(set(seen)) == 9
    assert seen == sorted(seen, reverse=True)
    first = steps(world, limit=2)
    second = steps(world, limit=2, cursor=first["next_cursor"])
    names = [one["vantage"] for one in (*first["items"], *second["items"])]
    assert (names, second["next_cursor"]) == ([None, "fra", "iad", "sin"], None)
    assert [one["vantage"] for one in steps(world, vantage="*")["items"]] == [None]
    assert changes(world, region="us-east")["items"] == []
    assert changes(world, until="2020-01-01T00:00:00Z")["items"] == []


@pytest.mark.parametrize(
    ("path", "query", "status"),
    [
        ("steps", {}, 422),
        ("steps", {"region": "nowhere"}, 404),
        ("steps", {"since": "2026-01-01T00:00:00Z", "until": "2026-01-02T00:00:01Z"}, 400),
        ("steps", {"since": "2026-01-02T00:00:00Z", "until": "2026-01-01T00:00:00Z"}, 400),
        ("steps", {"until": "0001-01-01T00:00:00Z"}, 400),
        ("steps", {"until": "9999-12-31T23:59:59Z"}, 400),
        ("steps", {"cursor": "x"}, 400),
        ("changes", {"cursor": "x"}, 400),
        ("changes", {"since": "0001-01-01T00:00:00Z", "until": "9999-12-31T23:59:59Z"}, 200),
        ("changes", {"vantage": "a\0b"}, 422),
        ("changes", {"endpoint": "x" * 2001}, 422),
    ],
)
@pytest.mark.reads
def test_bad_questions_are_named(world: Api, path: str, query: dict[str, str], status: int) -> None:
    """None of them is answered with nothing, or with an error of ours."""
    given = {"region": "eu-central", **query} if path == "steps" and query else query
    answer = world.viewer.get(f"/v1/health/{path}", params=given)
    assert answer.status_code == status, answer.text
