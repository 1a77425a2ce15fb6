"""What requests took and where they went instead of home: what balancers tell, what control records, and what it tells of it."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from gtm.core.capacity.durations import BOUNDS, MOST_TOLD, OTHER, Took
from gtm.core.demand.rows import Row
from gtm.feed.reports import MAX_TIMED, BalancerReport
from gtm.storage.history.requests import RequestMinute
from gtm.storage.session import Database
from tests.api.conftest import Api
from tests.api.test_drafts import BERLIN
from tests.api.test_drafts import record as record_demand

TIMES = {"service": "chat", "model": "m", "first_byte": [[40, 1]], "end": [[60, 2]]}
MS_60 = 1000 * (BOUNDS[59] + BOUNDS[60]) / 2


def tell(
    world: Api, *times: dict[str, Any], name: str = "fra-1", region: str = "eu-central", **report: Any
) -> httpx.Response:
    """Let a balancer tell this."""
    body = {"region": region, "times": times, "run": "r", "number": 1, **report}
    return world.balancer.post(f"/v1/balancers/{name}/report", json=body)


class Written(list[BalancerReport]):
    """What control would write down: the reports of which something counts."""

    @property
    def requests(self) -> dict[tuple[str, str], int]:
        """How many, by region and service."""
        found: dict[tuple[str, str], int] = {}
        for report in self:
            for one in report.times:
                key = report.region, one.service
                found[key] = found.get(key, 0) + sum(count for _, count in one.end)
        return found


@pytest.fixture
def written(world: Api) -> Written:
    """What this control writes down from now on."""
    found = Written()
    world.server.app.state.context.replica.active.balancers.record = found.append
    return found


def record(world: Api, minutes: dict[datetime, RequestMinute]) -> None:
    """Let control have recorded these."""

    async def work() -> None:
        database = Database(world.database_url)
        async with database.transaction() as tx:
            for start, told in minutes.items():
                await tx.requests.record(start, "a", told)
        await database.dispose()

    asyncio.run(work())


def start_of(minutes: int) -> datetime:
    """The beginning of the minute so many minutes ago."""
    return datetime.now(UTC).replace(second=0, microsecond=0) - timedelta(minutes=minutes)


def test_a_report_that_comes_again_counts_once(world: Api, written: Written) -> None:
    """As one that is lost counts never; balancers add up, and so do runs of one that replaces itself, whose numbers begin again (volcano-sh/kthena#1486)."""
    for number in (1, 2, 2, 1):
        assert tell(world, TIMES, number=number).status_code == 200
    assert tell(world, TIMES, number=4).status_code == 200
    assert written.requests == {("eu-central", "chat"): 6}
    assert tell(world, TIMES, name="fra-2").status_code == 200
    assert tell(world, TIMES, run="next").status_code == 200
    assert tell(world, TIMES, number=4).status_code == 200
    assert written.requests == {("eu-central", "chat"): 10}


def test_times_are_its_own_region_s_and_of_services_that_there_are(world: Api, written: Written) -> None:
    """Whoever has a balancer's token draws on its own region's page, and on no other."""
    answer = tell(world, TIMES, region="us-east")
    assert answer.status_code == 422
    assert {one["path"] for one in answer.json()["errors"]} == {"times"}
    assert tell(world, TIMES, {**TIMES, "service": "made-up"}).status_code == 200
    assert written.requests == {("eu-central", "chat"): 2}


@pytest.mark.parametrize(
    ("times", "path"),
    [
        ([{**TIMES, "model": str(number)} for number in range(MOST_TOLD + 1)], "times"),
        ([TIMES, TIMES], "times"),
        ([{**TIMES, "service": ""}], "times[0]"),
        ([{**TIMES, "model": "two\nlines"}], "times[0]"),
        ([{**TIMES, "model": "x" * 301}], "times[0].model"),
        ([{**TIMES, "end": [[len(BOUNDS) + 1, 1]]}], "times[0].end"),
        ([{**TIMES, "end": [[-1, 1]]}], "times[0].end"),
        ([{**TIMES, "end": [[3, 0]]}], "times[0].end"),
        ([{**TIMES, "end": [[3, -5]]}], "times[0].end"),
        ([{**TIMES, "first_byte": [[3, MAX_TIMED + 1]]}], "times[0].first_byte"),
        ([{**TIMES, "first_byte": [[3, 1], [3, 1]]}], "times[0].first_byte"),
        ([{**TIMES, "first_byte": [[3, 1]] * (len(BOUNDS) + 2)}], "times[0].first_byte"),
    ],
)
def test_what_no_balancer_counts_is_refused(
    world: Api, written: Written, times: list[dict[str, Any]], path: str
) -> None:
    """The report whole, with what is wrong."""
    answer = tell(world, *times)
    assert answer.status_code == 422
    assert path in {one["path"] for one in answer.json()["errors"]}
    assert tell(world, TIMES, number=0).status_code == 422
    assert written.requests == {}


def test_percentiles_are_told_by_step(world: Api) -> None:
    """From counts that were added up; where no request ended, nothing; models are told apart where that is asked."""
    start = start_of(10)
    quick, slow = Took({40: 990}, {60: 990}), Took({}, {120: 10})
    record(
        world,
        {
            start: RequestMinute(
                {"eu-central": {("chat", "m"): quick, ("chat", OTHER): slow}, "us-east": {("web", ""): slow}},
                {},
            ),
            start + timedelta(minutes=2): RequestMinute({"us-east": {("web", ""): slow}}, {}),
        },
    )
    since = (start - timedelta(minutes=20)).isoformat()
    found = world.viewer.get("/v1/demand/times", params={"since": since}).json()
    assert (found["step_seconds"], found["left_out"]) == (60.0, 0)
    assert found["times"] == [start.timestamp(), start.timestamp() + 120]
    chat, web = found["series"]
    assert (chat["region"], chat["service"], chat["model"]) == ("eu-central", "chat", None)
    assert chat["requests"] == [1000, None]
    assert chat["p50_ms"] == [pytest.approx(MS_60, rel=0.1), None]
    assert chat["p99_ms"][0] < 1000 * BOUNDS[60]
    assert chat["first_byte_p99_ms"][1] is None
    assert (web["requests"], web["first_byte_p50_ms"]) == ([10, 10], [None, None])
    assert web["whole"]["requests"] == 20
    assert web["whole"]["p99_ms"] == pytest.approx(1000 * BOUNDS[120], rel=0.13)
    models = world.viewer.get("/v1/demand/times", params={"since": since, "service": "chat", "models": True})
    assert [(one["model"], one["whole"]["requests"]) for one in models.json()["series"]] == [
        ("m", 990),
        (OTHER, 10),
    ]
    only = world.viewer.get("/v1/demand/times", params={"since": since, "region": "us-east"}).json()
    assert [one["service"] for one in only["series"]] == ["web"]
    bad = world.viewer.get("/v1/demand/times", params={"since": since, "until": since})
    assert bad.status_code == 400


def test_spillover_is_told_as_it_was_counted(world: Api) -> None:
    """By edges, where a class's requests went elsewhere than it likes best; by balancers, less what came home; per second of what was watched."""
    start = start_of(10)
    home = "chat|real_time|eu-central>eu-west|0"
    rows = {
        Row("chat", "eu-west", "served", "carry", home, BERLIN): 60.0,
        Row("chat", "eu-central", "served", "carry", home, BERLIN): 600.0,
        Row("chat", "", "refused_overload", "carry", home, BERLIN): 6.0,
        Row("chat", "eu-west", "served", "carry", "chat|real_time||0", BERLIN): 6.0,
    }
    record_demand(world, {start: rows, start + timedelta(minutes=1): {}})
    record(
        world,
        {
            start: RequestMinute({}, {("eu-central", "chat", "us-east"): 30.0}),
            start + timedelta(minutes=1): RequestMinute({}, {("eu-central", "chat", "us-east"): -6.0}),
        },
    )
    asked = {"since": (start - timedelta(minutes=20)).isoformat(), "service": "chat"}
    found = world.viewer.get("/v1/demand/spillover", params=asked).json()
    assert found["times"] == [start.timestamp(), start.timestamp() + 60]
    assert found["series"] == [
        {
            "service": "chat",
            "from": "eu-central",
            "to": "eu-west",
            "by": "edges",
            "requests": 60.0,
            "rates": [1.0, 0.0],
        },
        {
            "service": "chat",
            "from": "eu-central",
            "to": "us-east",
            "by": "balancers",
            "requests": 24.0,
            "rates": [0.5, 0.0],
        },
    ]
    assert world.viewer.get("/v1/demand/spillover", params={**asked, "service": "web"}).json()["series"] == []
