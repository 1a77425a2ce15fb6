"""Who may do what at control, as one table; and what a balancer's token is worth to whoever steals it."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import msgspec
import pytest
from fastapi.routing import APIRoute

from gtm.core.model.access import Role
from gtm.core.model.state import EndpointHealth, HealthStatus
from gtm.feed.client import BalancerFeedClient, TokenRefused
from gtm.feed.current import CurrentView
from gtm.feed.reports import EdgeReport
from gtm.feed.sealing import SealingKey
from gtm.feed.wire import (
    SEALING_KEY,
    HeartbeatMessage,
    KeysMessage,
    Message,
    SealedKeysMessage,
    SnapshotMessage,
    StateMessage,
    decode,
)
from tests.api.conftest import ZONE, Api, region
from tests.api.test_feed import report
from tests.api.test_resources import problem
from tests.system.harness import eventually

KINDS = "regions|zones|services|residency-rules|spillover-rules|jurisdictions|tenants|data-classes"
TABLE = rf"""
                                              viewer operator fence-admin admin edge balancer reporter acme
GET    /v1/({KINDS})                             x       x         x        x     .      .        .        .
GET    /v1/({KINDS})/x                           x       x         x        x     .      .        .        .
GET    /v1/(resources|references|names)          x       x         x        x     .      .        .        .
GET    /v1/residency(/calendar|/monitored)?      x       x         x        x     .      .        .        .
GET    /v1/(policy|demand(/(recorded|timeline|answers|times|spillover))?) x       x         x        x     .      .        .        .
GET    /v1/(revisions|revisions/1(/diff)?)       x       x         x        x     .      .        .        .
GET    /v1/(edges|status|health|load|latency)    x       x         x        x     .      .        .        .
GET    /v1/(edges/x|health/(steps|changes))      x       x         x        x     .      .        .        .
GET    /v1/(balancers(/inside)?|lists)           x       x         x        x     .      .        .        .
GET    /v1/(plan(/history)?|top|dnssec(/x)?)     x       x         x        x     .      .        .        .
GET    /v1/(fence-approvals|managers)            x       x         x        x     .      .        .        .
GET    /v1/audit(:export)?                       x       x         x        x     .      .        .        .
GET    /v1/sessions                              x       x         x        x     .      .        .        .
POST   /v1/sign-in-links                         x       x         x        x     .      .        .        .
DELETE /v1/sessions/x                            x       x         x        x     .      .        .        .
DELETE /v1/people/x/sessions                     .       .         .        x     .      .        .        .
POST   /v1/(policy:(simulate|read|plan)|route:explain)  x       x         x        x     .      .        .        .
PUT    /v1/({KINDS})/x                           .       x         x        x     .      .        .        .
PATCH  /v1/({KINDS})/x                           .       x         x        x     .      .        .        .
DELETE /v1/({KINDS})/x                           .       x         x        x     .      .        .        .
GET    /v1/zones/x/records/x                     x       x         x        x     .      .        .        x
PUT    /v1/zones/x/records/x                     .       x         x        x     .      .        .        x
DELETE /v1/zones/x/records/x                     .       x         x        x     .      .        .        x
POST   /v1/regions/x:(drain|activate|disable)    .       x         x        x     .      .        .        .
POST   /v1/(policy:apply|revisions/1:rollback)   .       x         x        x     .      .        .        .
POST   /v1/managers:reassign                     .       x         x        x     .      .        .        .
POST   /v1/dnssec/x/(roll|ds-seen|withdraw)      .       x         x        x     .      .        .        .
DELETE /v1/edges/x                               .       x         x        x     .      .        .        .
POST   /v1/latency:forget                        .       x         x        x     .      .        .        .
POST   /v1/fence-approvals                       .       .         x        x     .      .        .        .
POST   /v1/revisions:accept-older                .       .         x        x     .      .        .        .
GET    /v1/tokens                                .       .         .        x     .      .        .        .
POST   /v1/(tokens|tokens/x:rotate)              .       .         .        x     .      .        .        .
DELETE /v1/tokens/x                              .       .         .        x     .      .        .        .
GET    /v1/feed                                  .       .         .        .     x      .        .        .
POST   /v1/edges/x/report                        .       .         .        .     x      .        .        .
GET    /v1/balancers/x/feed                      .       .         .        .     .      x        .        .
POST   /v1/balancers/x/(room|report)             .       .         .        .     .      x        .        .
POST   /v1/load-reports                          .       .         .        .     .      x        x        .
"""
"""Routes × roles: x may, . is refused. Names in paths are `x`, numbers 1."""
OPEN = {"/healthz", "/readyz", "/metrics", "/v1/handoff/jwks.json"}
"""What answers without a token (the metrics, near control)."""

KEY = SealingKey(b"\7" * 32)
URL = "http://127.0.1.1:9000"


def _rows() -> Iterator[tuple[str, re.Pattern[str], set[str]]]:
    roles, *rows = (line.split() for line in TABLE.strip().splitlines())
    for method, path, *marks in rows:
        assert len(marks) == len(roles)
        yield method, re.compile(path), {role for role, mark in zip(roles, marks, strict=True) if mark == "x"}


def _routes(api: Api) -> Iterator[tuple[str, str]]:
    """Every method and path of the application that the description has, with names in paths."""
    for route in api.server.app.routes:
        if isinstance(route, APIRoute) and route.include_in_schema and route.path not in OPEN:
            path = re.sub(r"\{number(:\w+)?\}", "1", route.path)
            yield from ((method, re.sub(r"\{[^}]*\}", "x", path)) for method in route.methods or ())


def _status(client: httpx.Client, method: str, path: str) -> int:
    """What a call without anything in it is answered; of a feed, what it begins with."""
    query = {"edge": "x"} if path == "/v1/feed" else {}
    body: dict[str, Any] | None = {} if method in ("POST", "PUT") else None
    with client.stream(method, path, params=query, json=body) as response:
        return response.status_code


def test_each_role_may_do_what_the_table_says(world: Api) -> None:
    """Every route has one row, and lets through those who have an x there, and nobody else."""
    clients = {role.value: getattr(world, role.value.replace("-", "_")) for role in Role}
    rows, used = list(_rows()), set()
    for method, path in _routes(world):
        matching = [row for row in rows if row[0] == method and row[1].fullmatch(path)]
        assert len(matching) == 1, f"{method} {path} has {len(matching)} rows"
        used.add(matching[0][:2])
        allowed = {
            name for name, client in clients.items() if _status(client, method, path) not in (401, 403)
        }
        assert allowed == matching[0][2], f"{method} {path}"
        assert _status(world.anonymous, method, path) == 401, f"{method} {path}"
    assert len(used) == len(rows), "a row is of no route"


@contextmanager
def _follow(api: Api, name: str = "fra-1", **headers: str) -> Iterator[Iterator[Message]]:
    """The messages that a balancer is sent."""
    path = f"/v1/balancers/{name}/feed"

    def messages(response: httpx.Response) -> Iterator[Message]:
        for line in response.iter_lines():
            message = decode(line.encode())
            assert message is not None
            yield message

    with api.balancer.stream("GET", path, headers=headers, timeout=30) as response:
        assert response.status_code == 200
        assert response.headers["content-type"] == "application/x-ndjson"
        yield messages(response)


def test_a_balancer_follows(world: Api) -> None:
    """It is sent the policy, tokens and state, then changes; it can make a View of that."""
    token = world.balancer.headers["Authorization"].removeprefix("Bearer ")

    async def follow() -> CurrentView:
        current = CurrentView(time.time)
        async with BalancerFeedClient(world.url, token, "fra-1") as client:
            async for message in client.messages(None):
                if isinstance(message, HeartbeatMessage):
                    return current
                current.apply(message)
        raise AssertionError("the feed ended")

    current = asyncio.run(follow())
    assert current.snapshot is not None
    assert set(current.snapshot.services) == {"chat"}
    assert {grant.regions for grant in current.access.grants if grant.role is Role.BALANCER} == {"eu-central"}
    with _follow(world) as messages:
        next(message for message in messages if isinstance(message, StateMessage))
        world.must_put("/v1/regions/eu-west", region("eu-west", display_name="Dublin"))
        update = next(message for message in messages if isinstance(message, SnapshotMessage))
    assert update.revision == 3
    held = {"revision": "3", "sha256": update.sha256}
    with world.balancer.stream("GET", "/v1/balancers/fra-1/feed", params=held) as response:
        lines = response.iter_lines()
        assert not any('"snapshot"' in next(lines) for _ in range(3))


def test_another_roles_token_does_not_follow_as_a_balancer(world: Api) -> None:
    """An edge's is refused, and what to do is said."""

    async def follow() -> None:
        async with BalancerFeedClient(world.url, "gtm_test_edge", "fra-1") as client:
            await anext(client.messages(None))

    with pytest.raises(
        TokenRefused, match=r"balancer's token \(HTTP 403\).*--role balancer --regions REGION"
    ):
        asyncio.run(follow())


def test_a_balancers_feed_ends_with_its_token(world: Api) -> None:
    """Revoked, the feed ends, and no other begins."""
    with _follow(world) as messages:
        next(messages)
        assert world.admin.delete("/v1/tokens/balancer-one").status_code == 200
        assert all(message is not None for message in messages)  # ends
    assert world.balancer.get("/v1/balancers/fra-1/feed").status_code == 401


def test_a_balancer_is_sent_no_keys(world: Api) -> None:
    """Neither sealed nor in clear, whatever it asks, calls itself or has sent before; nor while keys change."""
    world.must_put("/v1/zones/demo.test", {**ZONE, "dnssec": True})
    (zone,) = world.server.app.state.context.replica.dnssec.keys.zones
    found: list[Message] = []
    with _follow(world, "edge-one", **{SEALING_KEY: KEY.public}) as messages:
        found += _until_state(messages)
        before = world.server.app.state.context.present.keys
        rolled = world.operator.post("/v1/dnssec/demo.test/roll", json={"role": "zsk", "urgent": True})
        assert rolled.status_code == 200, rolled.text
        world.must_put("/v1/regions/eu-west", region("eu-west", display_name="Dublin"))
        found += _until_revision(messages, 4)
        status = world.viewer.get("/v1/status").json()
    assert world.server.app.state.context.present.keys is not before
    kinds = {type(message) for message in found}
    assert SnapshotMessage in kinds
    assert kinds.isdisjoint({KeysMessage, SealedKeysMessage})
    assert zone.private.hex() not in repr(found)
    assert not any("edge-one follows" in text for text in status["warnings"]), "nobody takes it for the edge"


def _until_state(messages: Iterator[Message]) -> list[Message]:
    found = []
    for message in messages:
        found.append(message)
        if isinstance(message, StateMessage):
            break
    return found


def _until_revision(messages: Iterator[Message], revision: int) -> list[Message]:
    found = []
    for message in messages:
        found.append(message)
        if isinstance(message, SnapshotMessage) and message.revision >= revision:
            break
    return found


def test_a_balancer_is_no_vantage(world: Api) -> None:
    """It is no edge, IN_SYNC does not wait for it, and it cannot report health, under whatever name."""
    down = EdgeReport("1.0", 2, 1, {"eu-central": {URL: EndpointHealth(HealthStatus.DOWN, 1.0)}})
    json = {"Content-Type": "application/json"}
    with _follow(world) as messages:
        next(messages)
        assert report(world, "edge-one", HealthStatus.UP).status_code == 200
        for name in ("edge-one", "fra-1", "balancer-one", "eu-central"):
            sent = world.balancer.post(
                f"/v1/edges/{name}/report", content=msgspec.json.encode(down), headers=json
            )
            assert "role `edge`" in problem(sent, 403)
            assert problem(world.balancer.get("/v1/feed", params={"edge": name}), 403)
        sync = world.viewer.get("/v1/status").json()["sync"]
        assert (sync["state"], sync["in_sync"], sync["pending"]) == ("IN_SYNC", ["edge-one"], [])
        assert [edge["name"] for edge in world.viewer.get("/v1/edges").json()["items"]] == ["edge-one"]
        metrics = world.anonymous.get("/metrics").text
        assert "gtm_control_feed_balancers 1.0" in metrics
        assert "gtm_control_feed_subscribers 0.0" in metrics

    def voters() -> tuple[str, set[str]]:
        (frankfurt, *_) = world.viewer.get("/v1/health").json()["regions"]
        return frankfurt["status"], set(frankfurt["endpoints"][0]["vantages"])

    eventually(
        lambda: "gtm_control_feed_balancers 0.0" in world.anonymous.get("/metrics").text, "it is gone again"
    )
    eventually(lambda: voters() == ("up", {"edge-one"}), "the edge's word alone is what counts")


def _load(api: Api) -> dict[str, Any]:
    """What is known of each region's load."""
    items = api.viewer.get("/v1/load").json()["regions"]
    return {item["region"]: item["load"] and item["load"]["outstanding"] for item in items}


def test_a_balancer_reports_its_region_alone(world: Api) -> None:
    """Of other regions' reports each is dropped and named, with what to do; its own count."""
    reports = [{"region": name, "outstanding": 7} for name in ("eu-west", "eu-central", "us-east")]
    answer = world.balancer.post("/v1/load-reports", json={"reports": reports})
    assert "1 report taken in" in problem(answer, 422)
    errors = answer.json()["errors"]
    assert [(one["path"], one["code"]) for one in errors] == [
        ("reports[0].region", "not_allowed"),
        ("reports[2].region", "not_allowed"),
    ]
    assert "`balancer-one` is for `eu-central`, not for region `eu-west`" in errors[0]["message"]
    assert "gtm token create NAME --role reporter --regions eu-west" in errors[0]["message"]
    assert _load(world) == {"eu-central": 7.0, "eu-west": None, "us-east": None}
    forged = {"region": "us-east", "source": "reporter-one", "outstanding": 1}
    assert "nothing was taken in" in problem(world.balancer.post("/v1/load-reports", json=forged), 422)


def _make(api: Api, **body: str) -> httpx.Response:
    return api.admin.post("/v1/tokens", json={"name": "new", **body})


def test_what_tokens_are_bound_to(world: Api) -> None:
    """A balancer's to regions always, a reporter's if it is wanted, and others' never; patterns, too, and texts to come."""
    made = _make(world, role="reporter", regions="eu-*").json()
    assert (made["regions"], made["edges"]) == ("eu-*", None)
    rotated = world.admin.post("/v1/tokens/new:rotate").json()
    assert rotated["regions"] == "eu-*"
    for text in (made["token"], rotated["token"]):
        own = {"Authorization": f"Bearer {text}"}
        reports = [{"region": name, "outstanding": 3} for name in ("eu-west", "eu-central", "us-east")]
        answer = world.anonymous.post("/v1/load-reports", json={"reports": reports}, headers=own)
        assert "2 reports taken in" in problem(answer, 422)
    assert _load(world) == {"eu-central": 3.0, "eu-west": 3.0, "us-east": None}
    assert world.reporter.post("/v1/load-reports", json={"reports": reports}).status_code == 204
    assert "needs the region" in problem(_make(world, role="balancer"), 422)
    for role in ("viewer", "operator", "fence-admin", "admin", "edge"):
        assert "bound to regions" in problem(_make(world, role=role, regions="eu-west"), 422)
    assert "role `edge`" in problem(_make(world, role="balancer", edges="x", regions="eu-west"), 422)
    for wrong in ("", "EU", "eu.", "-eu", "x" * 64):
        problem(_make(world, role="balancer", regions=wrong), 422)


def test_bindings_that_bind_nothing_are_said(world: Api) -> None:
    """A balancer's token for every region, and one for none that there is, are warnings."""

    def about_bindings() -> list[str]:
        return [text for text in world.viewer.get("/v1/status").json()["warnings"] if "is for" in text]

    assert about_bindings() == []
    world.admin.post(
        "/v1/tokens", json={"name": "all", "role": "balancer", "regions": "*"}
    ).raise_for_status()
    world.admin.post(
        "/v1/tokens", json={"name": "lost", "role": "reporter", "regions": "eu-wst"}
    ).raise_for_status()
    assert [text.split(":")[0] for text in about_bindings()] == [
        "token `all` is for balancers of any region, so whoever has it can lie about the load of all",
        "token `lost` is for `eu-wst`, and no region has such a name",
    ]
