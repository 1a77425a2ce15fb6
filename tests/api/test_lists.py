"""Lists of regions for proxies: `GET /v1/lists`."""

from __future__ import annotations

from typing import Any

import pytest

from gtm.feed.reports import EdgeReport
from tests import worlds
from tests.api.conftest import GDPR, Api
from tests.api.test_resources import problem
from tests.worlds.control import WORLD


def _seen(api: Api, *down: str) -> None:
    """An edge says which regions are down."""
    active = api.server.app.state.context.replica.active
    health = worlds.health(WORLD.regions, down, since=1.0)

    def told() -> None:
        active.reports.take("edge-1", "127.0.0.1", EdgeReport("1", 2, 1, health))
        active.verdicts.judge()

    api.server.do(told)


@pytest.fixture
def seen(world: Api) -> Api:
    """A world where every region is up, and two classes of data."""
    world.must_put("/v1/data-classes/health", {})
    world.must_put("/v1/data-classes/public", {})
    _seen(world)
    return world


def _lists(api: Api, **asked: str) -> dict[tuple[str, str | None], list[dict[str, Any]]]:
    answer = api.viewer.get("/v1/lists", params=asked)
    assert answer.status_code == 200, answer.text
    return {(one["service"], one["data_class"]): one["regions"] for one in answer.json()["lists"]}


def _names(regions: list[dict[str, Any]]) -> list[str]:
    return [one["region"] for one in regions]


def test_each_service_and_class_has_a_list(seen: Api) -> None:
    """And all classes together one, which holds the intersection; clients of a place are not bound by rules about others."""
    rule = {
        "match": {"data_classes": ["health"]},
        "allow": {"jurisdictions": ["DE"]},
        "legal_basis": "§ 203 StGB",
    }
    seen.must_put("/v1/residency-rules/clinics", rule)
    found = {key: set(_names(regions)) for key, regions in _lists(seen, service="chat").items()}
    assert found == {
        ("chat", None): {"eu-central"},
        ("chat", "health"): {"eu-central"},
        ("chat", "public"): {"eu-central", "eu-west"},
    }
    assert set(_names(_lists(seen, country="DE")["chat", "public"])) == {"eu-central", "eu-west"}
    assert _names(_lists(seen, country="US")["chat", "public"]) == ["us-east", "eu-west", "eu-central"]


def test_a_region_that_fails_is_out_at_once(seen: Api) -> None:
    """And one that drains takes no new clients. Nothing is known of unknown services."""
    before = _lists(seen)["chat", None]
    assert sum(one["share"] for one in before) == pytest.approx(1.0)
    (endpoint,) = before[0]["endpoints"]
    assert set(endpoint) == {"url", "ipv4", "ipv6"}
    _seen(seen, "eu-central")
    assert "eu-central" not in _names(_lists(seen)["chat", None])
    _seen(seen)
    drained = seen.operator.post("/v1/regions/eu-west:drain")
    assert drained.status_code == 200, drained.text
    assert "eu-west" not in _names(_lists(seen)["chat", None])
    assert _lists(seen, service="nothing") == {}
    problem(seen.viewer.get("/v1/lists", params={"country": "XX"}), 422)


def test_a_list_says_for_how_long_it_holds(seen: Api) -> None:
    """No longer than a rule accepts a policy that control has not confirmed."""
    (first, *_) = seen.viewer.get("/v1/lists").json()["lists"]
    assert first["holds_for"] is None
    seen.must_put("/v1/residency-rules/gdpr", {**GDPR, "max_policy_age": 600})
    (first, *_) = seen.viewer.get("/v1/lists").json()["lists"]
    assert first["holds_for"] == 600.0


def test_without_word_of_health_there_is_no_list(world: Api) -> None:
    """One without a region would stop what goes on, for want of an edge."""
    problem(world.viewer.get("/v1/lists"), 503)
