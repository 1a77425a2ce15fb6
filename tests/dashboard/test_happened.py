"""What happened, and how a service's requests were answered: from what was recorded, whoever looks, and whatever the address says."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from html import unescape
from typing import Any

import pytest

from gtm.client.objects import as_answered
from gtm.core.model.access import Role
from gtm.dashboard.pages.happened import PAGE, merged
from gtm.dashboard.pages.service_answers import curves_of
from tests.api.conftest import Api
from tests.api.test_drafts import BERLIN, BOSTON, live, record, row  # noqa: F401 - fixture
from tests.dashboard.conftest import People, assert_inert
from tests.dashboard.test_region_charts import drawn, went_down
from tests.dashboard.test_regions import HOSTILE

REFUSED = replace(row(BOSTON, ""), outcome="refused_overload")


def _recorded(world: Api) -> datetime:
    """Requests of three minutes, of which some were refused in two; the first of these minutes."""
    start = datetime.now(UTC).replace(second=0, microsecond=0) - timedelta(minutes=10)
    served = replace(row(BERLIN, "eu-central"), via="carry")
    minutes: dict[datetime, Any] = {
        start: {served: 60.0, REFUSED: 30.0},
        start + timedelta(minutes=1): {served: 120.0, REFUSED: 60.0},
        start + timedelta(minutes=2): {served: 60.0},
    }
    record(world, minutes)
    return start


def rows(text: str) -> list[str]:
    """What the list says, as text."""
    found = re.findall(r'<tr role="row"><td.*?</tr>', text, re.DOTALL)
    return [" ".join(unescape(re.sub(r"<[^>]+>", " ", one)).split()) for one in found]


def test_the_api_tells_how_requests_were_answered(live: Api) -> None:  # noqa: F811 - the fixture
    """By service, tier, region and outcome: per second of what was watched, as long as the times."""
    start = _recorded(live)
    since = (start - timedelta(minutes=20)).isoformat()
    found = live.viewer.get("/v1/demand/answers", params={"since": since, "service": "chat"}).json()
    assert found["times"] == [start.timestamp() + 60 * minute for minute in range(3)]
    assert (found["step_seconds"], found["left_out"]) == (60.0, 0)
    assert [(one["via"], one["region"], one["outcome"], one["requests"]) for one in found["series"]] == [
        ("carry", "eu-central", "served", 240.0),
        (REFUSED.via, None, "refused_overload", 90.0),
    ]
    assert [one["rates"] for one in found["series"]] == [[1.0, 2.0, 1.0], [0.5, 1.0, 0.0]]
    assert live.viewer.get("/v1/demand/answers", params={"service": "web"}).json()["series"] == []
    bad = {"since": since, "until": since}
    assert live.viewer.get("/v1/demand/answers", params=bad).status_code == 400


def test_a_service_shows_how_its_requests_were_answered(live: Api, people: People) -> None:  # noqa: F811
    """By outcome, region and way, as curves and tables; of one that nobody asked for, a sentence."""
    _recorded(live)
    text = people(Role.VIEWER).page("/services/chat/answers?over=1h")
    assert_inert(text)
    found = drawn(text)
    assert [*found] == ["By outcome", "By region", "By way"]
    series = {one["name"]: one["values"] for one in found["By region"]["series"]}
    assert series == {"eu-central": [1.0, 2.0, 1.0], "refused": [0.5, 1.0, 0.0]}
    assert [one["name"] for one in found["By outcome"]["series"]] == ["served", "refused overload"]
    assert "73%" in text
    assert "No request is recorded" in people(Role.VIEWER).page("/services/nobody/answers")
    assert "/services/chat/answers" in people(Role.VIEWER).page("/policy/services/chat")


def test_of_many_regions_those_with_most_have_curves() -> None:
    """The others are one: nothing is left out of the sum."""
    series = [{"region": f"r{number}", "rates": [float(number)]} for number in range(20)]
    found = curves_of(as_answered({"times": [0.0], "series": series}), lambda one: one.region or "")
    assert [*found][:2] == ["r19", "r18"]
    assert len(found) == 8
    assert sum(values[0] for values in found.values()) == sum(range(20))


def test_it_tells_changes_verdicts_and_refusals(world: Api, people: People) -> None:
    """The newest first; each kind alone, and what is of a region or a service."""
    _recorded(world)
    went_down(world, HOSTILE[0])
    assert world.operator.post("/v1/regions/eu-west:drain", params={"comment": HOSTILE[0]}).is_success
    viewer = people(Role.VIEWER)
    text = viewer.page("/happened?over=1h")
    assert_inert(text)
    told = rows(text)
    assert "region.drain region eu-west" in told[0]
    assert any("✕ down" in one and "eu-central" in one for one in told)
    (refusal,) = (one for one in told if "refused overload" in one)
    assert "service chat" in refusal
    assert "up to 1/s" in refusal
    assert all("refused overload" in one for one in rows(viewer.page("/happened?kind=refusal&over=1h")))
    assert rows(viewer.page("/happened?kind=alarm")) == []
    verdicts = rows(viewer.page("/happened?kind=verdict&region=eu-central"))
    assert verdicts
    assert all("all edges together" in one for one in verdicts)
    assert any("saw it" in one for one in rows(viewer.page("/happened?kind=verdict&edges=true")))
    assert rows(viewer.page("/happened?service=nobody")) == []
    assert {
        one.split("UTC")[1].split()[0] for one in rows(viewer.page("/happened?region=eu-west&kind=change"))
    } <= {
        "region.drain",
        "region.put",
        "policy.apply",
    }


@pytest.mark.parametrize(
    "query",
    ["before=nan", "before=1e99", "before=x", "kind=x&over=x", "region=nobody", f"service={'x' * 300}"],
)
def test_any_address_opens(world: Api, people: People, query: str) -> None:
    """What means nothing is left out, or named as not told."""
    assert world.operator.post("/v1/regions/eu-west:drain").is_success
    assert "What happened" in people(Role.VIEWER).page(f"/happened?{query}")


def test_pages_leave_nothing_out_and_tell_nothing_twice() -> None:
    """What is of one moment stands on one page; the next goes on before it."""
    told = {
        "change": [{"at": float(at), "kind": "change"} for at in range(100, 100 - PAGE - 1, -1)],
        "verdict": [{"at": 100.0 - PAGE // 2, "kind": "verdict"}] * 40,
        "refusal": None,
    }
    first = merged(told)
    assert first["older"] == 100.0 - PAGE // 2
    assert len(first["items"]) == PAGE // 2 + 1 + 40
    rest = {
        kind: [one for one in several or [] if one["at"] < first["older"]] for kind, several in told.items()
    }
    assert len(merged(rest)["items"]) == PAGE // 2
    assert merged(rest)["older"] is None


def test_alarms_are_told_once() -> None:
    """They are in the audit log, and so among all that was done."""
    alarm = {"at": 1.0, "kind": "alarm"}
    assert json.dumps(merged({"change": [alarm], "alarm": [alarm]})["items"]) == json.dumps([alarm])
