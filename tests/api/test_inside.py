"""The inside of a region: model servers and tenants, as its balancers show them."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from gtm.feed.reports import MAX_SHOWN, MAX_SHOWN_NAMES, MAX_SHOWN_TEXT
from tests.api.conftest import Api

SERVER = {"url": "http://10.0.0.1:8000", "state": "up", "in_flight": 3, "outstanding": 4.5, "slots": 8}
TENANT = {"name": "acme", "weight": 2.0, "running": 3, "waiting": 1, "requests_per_second": 1.5}


def show(
    world: Api, name: str = "fra-1", region: str = "eu-central", **inside: list[dict[str, Any]]
) -> httpx.Response:
    """Let a balancer show these servers and tenants."""
    body = {"region": region, "inside": inside}
    return world.balancer.post(f"/v1/balancers/{name}/report", json=body)


def shown(world: Api, **query: str) -> list[dict[str, Any]]:
    """What anybody who may read is shown."""
    items: list[dict[str, Any]] = world.viewer.get("/v1/balancers/inside", params=query).json()["items"]
    return items


def test_servers_and_tenants_are_shown_as_each_balancer_sees_them(world: Api) -> None:
    """By region and name; a report without news leaves what there is, and what is not told is null."""
    assert shown(world) == []
    ejected = {"url": "http://10.0.0.2:8000", "state": "ejected", "why": "5 failures in a row"}
    told = {**ejected, "usable": False, "models": ["m"], "memory": 0.25, "ejections": 2}
    assert show(world, "fra-2", servers=[SERVER]).status_code == 200
    assert show(world, servers=[told, SERVER], tenants=[TENANT]).status_code == 200
    assert world.balancer.post("/v1/balancers/fra-1/report", json={"region": "eu-central"}).status_code == 200
    first, second = shown(world)
    assert (first["name"], first["region"], first["token"]) == ("fra-1", "eu-central", "balancer-one")
    assert [one["state"] for one in first["servers"]] == ["ejected", "up"]
    assert told.items() <= first["servers"][0].items()
    assert first["servers"][0]["adapters"] is None
    assert TENANT.items() <= first["tenants"][0].items()
    assert [one["url"] for one in second["servers"]] == [SERVER["url"]]
    assert [one["name"] for one in shown(world, region="eu-central")] == ["fra-1", "fra-2"]
    assert shown(world, region="us-east") == []


@pytest.mark.parametrize(
    ("inside", "path"),
    [
        ({"servers": [SERVER] * (MAX_SHOWN + 1)}, "inside.servers"),
        ({"tenants": [TENANT] * (MAX_SHOWN + 1)}, "inside.tenants"),
        ({"servers": [{**SERVER, "why": "x" * (MAX_SHOWN_TEXT + 1)}]}, "inside.servers[0].why"),
        ({"servers": [{**SERVER, "models": ["m"] * (MAX_SHOWN_NAMES + 1)}]}, "inside.servers[0].models"),
        ({"servers": [{**SERVER, "models": ["m" * 301]}]}, "inside.servers[0].models"),
        ({"servers": [{**SERVER, "in_flight": -1}]}, "inside.servers[0].in_flight"),
        ({"servers": [{**SERVER, "work_s": 1e13}]}, "inside.servers[0].work_s"),
        ({"servers": [{**SERVER, "models": ["m" * 300] * 16}] * MAX_SHOWN}, "inside"),
        ({"tenants": [{**TENANT, "refused_per_second": -0.1}]}, "inside.tenants[0].refused_per_second"),
    ],
)
def test_more_than_a_region_can_have_is_refused(world: Api, inside: dict[str, Any], path: str) -> None:
    """Whole, with what is wrong; what was shown before stays."""
    assert show(world, servers=[SERVER]).status_code == 200
    answer = show(world, **inside)
    assert answer.status_code == 422
    assert path in {one["path"] for one in answer.json()["errors"]}
    assert [len(one["servers"]) for one in shown(world)] == [1]


def test_nobody_shows_another_region(world: Api) -> None:
    """The token says whose inside it is: not another's, and not nobody's."""
    answer = show(world, region="us-east", servers=[SERVER])
    assert answer.status_code == 403
    assert show(world, region="", servers=[SERVER]).status_code == 422
    assert shown(world) == []
