"""Whose word an edge's report is, what of it is kept, and which edges are named when they fall silent."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import msgspec
import psycopg
import pytest

from gtm.control.lead.edges import EdgeView, SyncState, sync_of
from gtm.control.live.tokens import speaks_for
from gtm.core.quota.leases import LeaseUse
from gtm.feed.reports import EdgeReport
from tests import worlds
from tests.api.conftest import Api, region
from tests.worlds.control import WORLD

URL = "http://127.0.1.{}:9000"
REGIONS = ("eu-central", "eu-west", "us-east")


def _client(api: Api, name: str, **more: str) -> httpx.Client:
    """A client with a new token of role `edge`."""
    made = api.admin.post("/v1/tokens", json={"name": name, "role": "edge", **more})
    assert made.status_code == 201, made.text
    assert made.json()["edges"] == more.get("edges", name)
    return httpx.Client(
        base_url=api.url, headers={"Authorization": f"Bearer {made.json()['token']}"}, trust_env=False
    )


def _report(client: httpx.Client, edge: str, instance: str = "", **up: bool) -> httpx.Response:
    """Report regions (underscores for hyphens) up or down."""
    said = {name.replace("_", "-"): well for name, well in up.items()}
    seen = [one for one in WORLD.regions if one.name in said]
    health = worlds.health(seen, (name for name, well in said.items() if not well), since=1.0)
    use = LeaseUse(instance, 1) if instance else None
    body = msgspec.json.encode(EdgeReport("1.0", 2, 1, health, leases=use))
    return client.post(f"/v1/edges/{edge}/report", content=body, headers={"Content-Type": "application/json"})


def _status(api: Api) -> Any:
    return api.viewer.get("/v1/status").json()


def _eventually(check: Any) -> None:
    end = time.monotonic() + 30
    while not check():
        assert time.monotonic() < end, "did not happen within 30 seconds"
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("edges", "spoken_for", "others"),
    [
        ("fra-1", ["fra-1"], ["fra-10", "fra-", "Fra-1", "x-fra-1", "*"]),
        ("fra-*", ["fra-1", "fra-"], ["fra", "xfra-1"]),
        ("*", ["fra-1", "x"], []),
        ("*-1", ["fra-1", "-1"], ["fra-2", "1"]),
        ("a*b*c", ["abc", "axbxc", "abbc"], ["ac", "acb", "xabc"]),
        ("a*a", ["aa", "aba"], ["a"]),
        (None, [], ["fra-1", "None"]),
    ],
)
def test_a_token_speaks_for_the_edges_of_its_pattern(
    edges: str | None, spoken_for: list[str], others: list[str]
) -> None:
    """A name means itself alone; `*` stands for any characters."""
    assert all(speaks_for(edges, name) for name in spoken_for)
    assert not any(speaks_for(edges, name) for name in others)


def test_a_token_speaks_for_its_edge_alone(world: Api) -> None:
    """Another name's report and feed are refused, with what to do; a group's token takes the names of its pattern."""
    with _client(world, "fra-1") as one, _client(world, "london", edges="lon-*") as group:
        assert _report(one, "fra-1", eu_central=True).status_code == 200
        refused = _report(one, "ghost-0", eu_central=False)
        assert (refused.status_code, refused.headers["GTM-Edge-Name"]) == (403, "fra-1")
        assert "gtm token create ghost-0 --role edge" in refused.json()["detail"]
        assert one.get("/v1/feed", params={"edge": "ghost-0"}).status_code == 403
        assert _report(group, "lon-7", eu_central=True).status_code == 200
        assert _report(group, "fra-1", eu_central=True).status_code == 403
    wrong = world.admin.post("/v1/tokens", json={"name": "x", "role": "viewer", "edges": "fra-*"})
    assert wrong.status_code == 422
    assert "only a token of role `edge`" in wrong.text
    assert (
        world.admin.post("/v1/tokens", json={"name": "x", "role": "edge", "edges": "fr a"}).status_code == 422
    )


def test_one_token_has_one_vote(world: Api) -> None:
    """However many names report with one token, they are one voter; an attack on most regions is an alarm."""
    up = {"eu_central": True, "eu_west": True, "us_east": True}
    with (
        _client(world, "fra-1") as one,
        _client(world, "lon-1") as two,
        _client(world, "g", edges="g-*") as ghosts,
    ):
        for number in range(20):
            assert (
                _report(ghosts, f"g-{number}", eu_central=False, eu_west=False, us_east=False).status_code
                == 200
            )
        for client, name in ((one, "fra-1"), (two, "lon-1")):
            assert _report(client, name, **up).status_code == 200
        _eventually(
            lambda: [one["status"] for one in world.viewer.get("/v1/health").json()["regions"]] == ["up"] * 3
        )


def test_an_alarm_is_shown(world: Api) -> None:
    """Where votes would take down most regions, control says so, and who says what; nothing is published of it."""
    with (
        _client(world, "good") as good,
        _client(world, "bad") as bad,
        _client(world, "ugly") as ugly,
    ):
        _report(good, "good", eu_central=True, eu_west=True, us_east=True)
        for name, liar in (("bad", bad), ("ugly", ugly)):
            _report(liar, name, eu_central=False, eu_west=False, us_east=True)
        _eventually(lambda: any("say down: `bad`, `ugly`" in text for text in _status(world)["warnings"]))
        found = world.viewer.get("/v1/health").json()["regions"]
        assert [(one["status"], one["disputed"]) for one in found] == [
            ("down", True),
            ("down", True),
            ("up", False),
        ]
        assert "gtm_control_health_disputed_regions 2.0" in world.anonymous.get("/metrics").text


def _asked(client: httpx.Client, edge: str, rate: float) -> None:
    """Report that so many look-ups a second of clients in Germany were served in Frankfurt."""
    row = "chat\teu-central\tserved\tlookup\tchat|real_time|eu-central|x\tchat|DE|52.5|12.5||||real_time||"
    body = msgspec.json.encode(EdgeReport("1.0", 2, 1, {}, {row: rate}, 1.0))
    headers = {"Content-Type": "application/json"}
    assert client.post(f"/v1/edges/{edge}/report", content=body, headers=headers).status_code == 200


def test_an_edge_that_asks_for_far_too_much_is_named(world: Api) -> None:
    """What it says beyond what is likely does not count, and status says so until its token is revoked."""

    def demand() -> float:
        return float(sum(row["requests_per_second"] for row in world.viewer.get("/v1/demand").json()["rows"]))

    def warned() -> bool:
        return any("edges of token `bad` say that 1,000,000" in text for text in _status(world)["warnings"])

    reports = world.server.app.state.context.replica.active.reports
    reports.elsewhere = 0.0, 20.0
    with _client(world, "good") as good, _client(world, "bad") as bad:
        _asked(good, "good", 30.0)
        _asked(bad, "bad", 1e6)
        _eventually(warned)
        assert world.admin.delete("/v1/tokens/bad").is_success

        def alone() -> bool:
            _asked(good, "good", 30.0)  # an edge that has been silent is not live
            return [one["name"] for one in world.viewer.get("/v1/edges").json()["items"] if one["live"]] == [
                "good"
            ]

        _eventually(alone)
        _eventually(lambda: not warned())
        assert demand() == pytest.approx(30.0, rel=0.5)


def test_what_the_policy_does_not_name_is_neither_kept_nor_published(world: Api) -> None:
    """Unknown endpoints and regions of a report are dropped and counted; the rest counts."""
    health: dict[str, Any] = {
        "eu-central": {URL.format(1): {"status": "up"}, "http://ghost/": {"status": "up"}}
    }
    health |= {
        f"ghost-{number}": {URL.format(1): {"status": "up", "detail": "x" * 900}} for number in range(1000)
    }
    body = {"version": "1", "revision": 2, "epoch": 1, "health": health}
    assert world.edge.post("/v1/edges/edge-one/report", json=body).status_code == 200
    replica = world.server.app.state.context.replica
    _eventually(lambda: replica.now.state.health)
    assert {name: set(table) for name, table in replica.now.state.health.items()} == {
        "eu-central": {URL.format(1)}
    }
    (edge,) = replica.active.reports.vantages.live()
    assert set(edge.report.health) == {"eu-central"}
    assert 'gtm_control_report_dropped_total{part="health"} 1001.0' in world.anonymous.get("/metrics").text
    assert 'gtm_control_report_dropped_total{part="history"} 0.0' in world.anonymous.get("/metrics").text


def test_a_silent_edge_that_had_what_the_database_has_lost_may_answer_by_it() -> None:
    """Its number is later than the one in force, and it leaves that STALE all the same."""
    now = datetime.now(UTC)
    edges = [
        EdgeView(name, "1", "192.0.2.1", of, 1, now, live)
        for name, of, live in (("a", 2, True), ("b", 4, False))
    ]
    assert sync_of(edges, 2, range(3, 6).__contains__).state is SyncState.STALE
    assert sync_of(edges, 2, range(3, 4).__contains__).state is SyncState.IN_SYNC


def test_two_edges_of_one_name_are_said(world: Api) -> None:
    """Status names them, and each is told in the reply to its report."""
    _report(world.edge, "twin", "one", eu_central=True)
    _report(world.edge, "twin", "two", eu_central=True)
    _eventually(lambda: _report(world.edge, "twin", "one", eu_central=True).json()["notice"])
    assert "--name" in _report(world.edge, "twin", "two", eu_central=True).json()["notice"]
    (edge,) = world.viewer.get("/v1/edges").json()["items"]
    assert (edge["name"], edge["instances"], edge["token"]) == ("twin", 2, "edge-one")
    assert any("2 edges named `twin` run" in text for text in _status(world)["warnings"])


def test_silent_edges_are_named_until_they_are_forgotten(world: Api) -> None:
    """An edge with an older revision that fell silent leaves a change STALE, not IN_SYNC; `forget` ends that."""
    _report(world.edge, "live", eu_central=True)
    ago = datetime.now(UTC) - timedelta(minutes=5)
    with psycopg.connect(world.database_url, autocommit=True) as session:
        for name, revision in (("old", 1), ("same", 2)):
            session.execute(
                "INSERT INTO edges VALUES (%s, '1', '192.0.2.1', %s, %s, %s, 1)", (name, ago, ago, revision)
            )
    found = _status(world)
    assert (found["sync"]["state"], found["sync"]["in_sync"]) == ("STALE", ["live"])
    assert [(one["name"], one["revision"]) for one in found["sync"]["silent"]] == [("old", 1), ("same", 2)]
    assert datetime.fromisoformat(found["sync"]["silent"][0]["since"]) == ago
    (warning,) = [text for text in found["warnings"] if "`old`" in text]
    assert "by the fence of revision 1, not 2" in warning
    assert "tokens revoked since" in warning
    assert world.viewer.delete("/v1/edges/old").status_code == 403
    assert world.operator.delete("/v1/edges/live").status_code == 409
    assert world.operator.delete("/v1/edges/old").status_code == 204
    assert world.operator.delete("/v1/edges/old").status_code == 404
    assert _status(world)["sync"]["state"] == "IN_SYNC", (
        "the other had this revision when it was last heard of"
    )
    done = world.must_put("/v1/regions/eu-west", region("eu-west", cost_weight=2)).json()
    assert done["sync"]["state"] == "PENDING"


def test_tokens_of_before_go_on_and_are_said(world: Api) -> None:
    """A token for edges of any name is from before tokens named theirs: it works, with one vote, and status says so."""
    assert any("token `edge-one` speaks for edges of any name" in text for text in _status(world)["warnings"])
