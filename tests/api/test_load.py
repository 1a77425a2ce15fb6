"""Load reports and the capacity that follows from them, over real HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from gtm.api.routes.load import MAX_BODY
from gtm.core.model.access import Role, permits
from gtm.feed.reports import EdgeReport
from tests import worlds
from tests.api.conftest import Api, region
from tests.api.test_resources import problem
from tests.worlds.control import WORLD

PATH = "/v1/load-reports"
REPORT = {"region": "eu-west", "source": "balancer-1", "outstanding": 12, "queue": 3, "limit": 40}


@pytest.fixture
def loaded(world: Api) -> Api:
    """A world where eu-west holds 100 requests, and every region is up."""
    world.must_put("/v1/regions/eu-west", region("eu-west", capacity={"outstanding": 100}, reserve=0.1))
    seen = worlds.health(WORLD.regions, since=1.0)
    active = world.server.app.state.context.replica.active
    active.reports.take("edge-1", "127.0.0.1", EdgeReport("1", 2, 1, seen))
    active.verdicts.judge()
    return world


def _west(api: Api) -> dict[str, Any]:
    regions = {item["region"]: item for item in api.viewer.get("/v1/load").json()["regions"]}
    assert set(regions) == {"eu-central", "eu-west", "us-east"}
    found: dict[str, Any] = regions["eu-west"]
    return found


def test_capacity_follows_reports(loaded: Api) -> None:
    """Before any report the declared capacity counts, less the reserve; then the lesser limit, and the backlog."""
    before = _west(loaded)
    assert (before["freshness"], before["age"], before["load"]) == ("never", None, None)
    assert before["slots"] == {"declared": 100.0, "reported": None, "usable": 90.0}
    times = {"service": "chat", "region": "eu-west", "service_time_ms": 1000}
    assert loaded.reporter.post(PATH, json={"reports": [REPORT, times]}).status_code == 204
    after = _west(loaded)
    assert (after["freshness"], after["load"]["sources"], after["load"]["queue"]) == ("fresh", 1, 3.0)
    assert after["slots"] == {"declared": 100.0, "reported": 40.0, "usable": pytest.approx(35.73)}
    (chat,) = after["services"]
    assert (chat["service"], chat["service_time_ms"], chat["service_time_source"]) == (
        *("chat", 1000.0),
        "reported",
    )
    assert (after["health"], after["slow_start"], after["reserve"], after["backlog"]) == (1.0, 1.0, 0.1, 3.0)
    (alone,) = loaded.viewer.get("/v1/load", params={"region": "eu-west"}).json()["regions"]
    assert (alone["load"], alone["slots"]["reported"], alone["backlog"]) == (after["load"], 40.0, 3.0)
    assert loaded.viewer.get("/v1/load", params={"region": "nowhere"}).json()["regions"] == []
    (seen,) = loaded.viewer.get("/v1/health", params={"region": "eu-west"}).json()["regions"]
    assert (seen["region"], seen["status"]) == ("eu-west", "up")
    problem(loaded.viewer.get("/v1/health", params={"region": "<"}), 422)
    loaded.operator.post("/v1/regions/eu-west:drain")
    drained = _west(loaded)
    assert (drained["admin_state"], drained["slots"]["usable"]) == ("draining", 0.0)


def test_orca_reports_are_understood(loaded: Api) -> None:
    """An ORCA report in protobuf's JSON, with a region beside, is a load report; the token names its source."""
    orca = {"cpuUtilization": 0.5, "rpsFractional": 12.5, "namedMetrics": {"vllm:num_requests_running": 7}}
    assert loaded.reporter.post(PATH, json={"region": "eu-west", **orca}).status_code == 204
    load = _west(loaded)["load"]
    assert (load["utilization"], load["requests_per_second"], load["outstanding"]) == (0.5, 12.5, 7.0)


def test_what_is_malformed_is_dropped_and_named(loaded: Api) -> None:
    """The rest of the report counts, and so do the others of the request."""
    bad = {**REPORT, "queue": -1}
    lost = {"region": "eu-wst", "outstanding": 1}
    answer = loaded.reporter.post(PATH, json={"reports": [bad, lost, {**REPORT, "source": "b"}]})
    text = problem(answer, 422)
    assert "2 reports taken in; what `errors` lists was dropped" in text
    assert [item["path"] for item in answer.json()["errors"]] == ["reports[0].queue", "reports[1].region"]
    assert "did you mean `eu-west`?" in text
    assert (_west(loaded)["load"]["sources"], _west(loaded)["load"]["queue"]) == (2, 3.0)
    assert "nothing was taken in" in problem(loaded.reporter.post(PATH, json=lost), 422)


def test_bodies_that_are_no_reports(world: Api) -> None:
    """Each ends as what it is, and nothing is taken in."""
    json = {"Content-Type": "application/json"}
    problem(world.reporter.post(PATH, content=b"{", headers=json), 400)
    problem(world.reporter.post(PATH, content=b"", headers=json), 400)
    problem(world.reporter.post(PATH, content=b"[" * 100_000, headers=json), 400)
    problem(world.reporter.post(PATH, content=b" " * (MAX_BODY + 1), headers=json), 413)
    problem(world.reporter.post(PATH, content=b"region=x"), 415)
    problem(world.reporter.post(PATH, json=[]), 422)
    assert _west(world)["freshness"] == "never"


def test_reports_take_a_reporters_token(world: Api) -> None:
    """Reporters send them, and read nothing by that; nobody else sends any, an edge neither."""
    assert world.reporter.post(PATH, json=REPORT).status_code == 204
    problem(world.reporter.get("/v1/load"), 403)
    for other in (world.viewer, world.operator, world.admin, world.edge):
        assert "role `reporter`" in problem(other.post(PATH, json=REPORT), 403)
    problem(world.anonymous.post(PATH, json=REPORT), 401)
    problem(world.reporter.get("/v1/feed?edge=x"), 403)
    made = world.admin.post("/v1/tokens", json={"name": "balancer-7", "role": "reporter"}).json()
    own = {"Authorization": f"Bearer {made['token']}"}
    assert world.anonymous.post(PATH, json=REPORT, headers=own).status_code == 204


def test_a_region_that_goes_takes_its_load_with_it(loaded: Api) -> None:
    """A region of the same name that comes later has reported nothing."""
    assert loaded.reporter.post(PATH, json=REPORT).status_code == 204
    assert _west(loaded)["load"]["limit"] == 40.0
    policy = loaded.viewer.get("/v1/policy").json()["policy"]
    without = {
        **policy,
        "regions": [item for item in policy["regions"] if item["name"] != "eu-west"],
        "services": [
            {**item, "members": [part for part in item["members"] if part["region"] != "eu-west"]}
            for item in policy["services"]
        ],
    }
    for wanted in (without, policy):
        body = {"policy": wanted}
        assert loaded.operator.post("/v1/policy:apply", json=body).status_code == 200
        loaded.viewer.get("/v1/load")
    assert _west(loaded)["freshness"] == "never"


def test_roles_include_what_they_should() -> None:
    """Viewer < operator < fence-admin < admin; balancers do what a reporter does, operators what `acme` does; nothing else includes anything."""
    order = [Role.VIEWER, Role.OPERATOR, Role.FENCE_ADMIN, Role.ADMIN]
    for held in Role:
        for needed in Role:
            reports = held is Role.BALANCER and needed is Role.REPORTER
            expected = held is needed or reports
            if needed is Role.ACME and held in order:
                expected = held is not Role.VIEWER
            if held in order and needed in order:
                expected = order.index(held) >= order.index(needed)
            assert permits(held, needed) is expected
