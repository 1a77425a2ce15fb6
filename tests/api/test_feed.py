"""The feed over real HTTP, edges' reports, and life without the database."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import httpx
import msgspec
import psycopg
import pytest
from psycopg import sql

from gtm.core.model.access import Role
from gtm.core.model.state import EndpointHealth, HealthStatus
from gtm.core.policy.edges import NOWHERE, EdgePlace
from gtm.feed.reports import EdgeReport
from gtm.feed.sealing import SealingKey
from gtm.feed.wire import (
    SEALING_KEY,
    AccessMessage,
    HandoffKeysMessage,
    HeartbeatMessage,
    Message,
    SealedKeysMessage,
    SnapshotMessage,
    StateMessage,
    decode,
)
from tests.api.conftest import Api, region
from tests.system.harness import eventually

URL = "http://127.0.1.1:9000"


@contextmanager
def follow(
    api: Api, edge: str = "edge-one", revision: int = 0, *, key: SealingKey | None = None, **more: str
) -> Iterator[Iterator[Message]]:
    """The messages of a feed, with sealed keys opened."""
    params = {"edge": edge, "revision": revision, **more}
    headers = {} if key is None else {SEALING_KEY: key.public}
    token = api.edge.headers["Authorization"].removeprefix("Bearer ")

    def messages(response: httpx.Response) -> Iterator[Message]:
        for line in response.iter_lines():
            message = decode(line.encode())
            assert message is not None
            if isinstance(message, SealedKeysMessage) and key is not None:
                message = key.open(message, edge, token)
            yield message

    with api.edge.stream("GET", "/v1/feed", params=params, headers=headers, timeout=30) as response:
        assert response.status_code == 200
        assert response.headers["content-type"] == "application/x-ndjson"
        yield messages(response)


def until(messages: Iterator[Message], wanted: Callable[[Message], bool]) -> Message:
    """The first message that is wanted."""
    return next(message for message in messages if wanted(message))


def report(api: Api, edge: str, status: HealthStatus, revision: int = 2) -> httpx.Response:
    """Report what an edge sees of Frankfurt."""
    health = {"eu-central": {URL: EndpointHealth(status, 1.0, "", 3.5)}}
    body = msgspec.json.encode(EdgeReport("1.0", revision, 1, health))
    return api.edge.post(
        f"/v1/edges/{edge}/report", content=body, headers={"Content-Type": "application/json"}
    )


@pytest.mark.reads
def test_feed_begins_with_everything(world: Api) -> None:
    """An edge that holds nothing gets snapshot, access and state at once; the snapshot compiles."""
    with follow(world) as messages:
        others = (message for message in messages if not isinstance(message, HandoffKeysMessage))
        snapshot, access, state, beat = (next(others) for _ in range(4))
    assert isinstance(snapshot, SnapshotMessage)
    assert snapshot.revision == 2
    assert set(snapshot.compiled().services) == {"chat"}
    assert isinstance(access, AccessMessage)
    assert {grant.role for grant in access.access.grants} == set(Role) - {Role.ACME}
    assert isinstance(state, StateMessage)
    assert isinstance(beat, HeartbeatMessage)


@pytest.mark.reads
def test_feed_does_not_repeat_what_an_edge_holds(world: Api) -> None:
    """An edge that holds the current revision is not sent it again."""
    with follow(world, revision=2) as messages:
        first = [next(messages) for _ in range(3)]
    assert not any(isinstance(message, SnapshotMessage) for message in first)


@pytest.mark.reads
def test_feed_repeats_a_number_that_means_another_policy(world: Api) -> None:
    """Numbers repeat once a database is restored from a backup: an edge whose revision 2 is another one gets this."""
    with follow(world) as messages:
        snapshot = next(messages)
    assert isinstance(snapshot, SnapshotMessage)
    with follow(world, revision=2, sha256=snapshot.sha256) as messages:
        assert not any(isinstance(next(messages), SnapshotMessage) for _ in range(3))
    with follow(world, revision=2, sha256="0" * 64) as messages:
        assert next(messages) == snapshot


def test_feed_notices_a_database_restored_under_it(world: Api) -> None:
    """A revision of the number in force, but made at another time, is taken in and sent to connected edges."""
    with follow(world) as messages:
        before = next(messages)
        assert isinstance(before, SnapshotMessage)
        with psycopg.connect(world.database_url, autocommit=True) as session:
            session.execute(
                "UPDATE revisions SET created_at = created_at + interval '1 hour', "
                "document = jsonb_set(document, '{services,0,ttl}', '77') WHERE number = 2"
            )
        after = until(messages, lambda m: isinstance(m, SnapshotMessage))
    assert isinstance(after, SnapshotMessage)
    assert (after.revision, after.policy.services[0].ttl) == (before.revision, 77)


def test_an_emptied_database_does_not_empty_connected_edges(world: Api) -> None:
    """If the database loses its revisions under a running control, followers keep the policy they have, until somebody says that going back is meant."""
    with follow(world) as messages:
        until(messages, lambda m: isinstance(m, StateMessage))
        with psycopg.connect(world.database_url, autocommit=True) as session:
            session.execute("DELETE FROM revisions WHERE number > 1")
        assert world.admin.post("/v1/tokens", json={"name": "new", "role": "viewer"}).status_code == 201
        news = until(messages, lambda m: isinstance(m, SnapshotMessage | AccessMessage))
        assert isinstance(news, AccessMessage)
        done = world.must_put("/v1/regions/eu-west", region("eu-west", display_name="Dublin")).json()
        assert snapshots(messages) == []
        assert world.fence_admin.post("/v1/revisions:accept-older", json={}).status_code == 200
        update = until(messages, lambda m: isinstance(m, SnapshotMessage))
    assert isinstance(update, SnapshotMessage)
    assert update.revision == done["revision"] == 3, "no number is given twice"
    assert {item.name for item in update.policy.regions} >= {"eu-central", "eu-west"}


def test_feed_brings_changes(world: Api) -> None:
    """A change of policy reaches a connected edge, as does a new token."""
    with follow(world) as messages:
        until(messages, lambda m: isinstance(m, StateMessage))
        done = world.must_put("/v1/regions/eu-west", region("eu-west", display_name="Dublin")).json()
        update = until(messages, lambda m: isinstance(m, SnapshotMessage))
        assert isinstance(update, SnapshotMessage)
        assert update.revision == done["revision"] == 3
        assert done["sync"]["state"] == "PENDING"
        assert world.admin.post("/v1/tokens", json={"name": "new", "role": "viewer"}).status_code == 201
        access = until(messages, lambda m: isinstance(m, AccessMessage))
    assert isinstance(access, AccessMessage)
    assert len(access.access.grants) == len(Role)  # one more was made; `acme` is none of theirs


def test_feed_ends_with_its_token(world: Api) -> None:
    """Revoking an edge's token ends its feed."""
    with follow(world) as messages:
        next(messages)
        assert world.admin.delete("/v1/tokens/edge-one").status_code == 200
        assert all(message is not None for message in messages)  # ends
    assert world.edge.get("/v1/feed?edge=a").status_code == 401


def test_reports_become_state(world: Api) -> None:
    """What edges report is combined by majority and pushed to every follower, with a growing epoch."""
    with follow(world) as messages:
        first = until(messages, lambda m: isinstance(m, StateMessage))
        assert report(world, "edge-one", HealthStatus.UP).status_code == 200
        up = until(messages, lambda m: isinstance(m, StateMessage))
        for edge in ("edge-two", "edge-three"):
            assert report(world, edge, HealthStatus.DOWN).status_code == 200
        down = until(
            messages,
            lambda m: isinstance(m, StateMessage) and m.state.health["eu-central"][URL].status == "down",
        )
    assert isinstance(first, StateMessage)
    assert isinstance(up, StateMessage)
    assert isinstance(down, StateMessage)
    assert up.state.health["eu-central"][URL].status is HealthStatus.UP
    assert first.state.epoch < up.state.epoch < down.state.epoch
    frankfurt = world.viewer.get("/v1/health").json()["regions"][0]
    assert (frankfurt["region"], frankfurt["status"]) == ("eu-central", "down")
    assert set(frankfurt["endpoints"][0]["vantages"]) == {"edge-one", "edge-two", "edge-three"}


@pytest.mark.reads
def test_an_endless_report_is_ignored(world: Api) -> None:
    """What edges say travels to every other edge, so it is bounded on arrival."""
    health = {"eu-central": {URL: {"status": "down", "detail": "x" * 1001}}}
    body = {"version": "1", "revision": 1, "epoch": 1, "health": health}
    answer = world.edge.post("/v1/edges/edge-one/report", json=body)
    assert answer.status_code == 422
    assert "1000" in answer.json()["errors"][0]["message"]


def test_sync_tells_which_edges_have_a_revision(world: Api) -> None:
    """A revision is PENDING until every live edge reports it."""
    assert world.viewer.get("/v1/status").json()["sync"]["state"] == "PENDING"
    report(world, "edge-one", HealthStatus.UP, revision=2)
    report(world, "edge-two", HealthStatus.UP, revision=1)
    sync = world.viewer.get("/v1/status").json()["sync"]
    assert (sync["state"], sync["in_sync"], sync["pending"]) == ("PENDING", ["edge-one"], ["edge-two"])
    report(world, "edge-two", HealthStatus.UP, revision=2)
    assert world.viewer.get("/v1/status").json()["sync"]["state"] == "IN_SYNC"
    edges = world.viewer.get("/v1/edges").json()["items"]
    assert [(edge["name"], edge["revision"], edge["live"]) for edge in edges] == [
        ("edge-one", 2, True),
        ("edge-two", 2, True),
    ]


def test_edges_say_where_they_stand(world: Api) -> None:
    """Places are listed, also from the database; live edges outside of a rule that binds edges are warned of."""
    rule = {"allow": {"jurisdictions": ["EEA"]}, "match": {"services": ["chat"]}, "edges": "in_fence"}
    world.admin.put("/v1/residency-rules/gdpr", json=rule).raise_for_status()
    for name, place in (("fra", EdgePlace("DE", "US")), ("nyc", EdgePlace("US")), ("who", NOWHERE)):
        told = msgspec.json.encode(EdgeReport("1.0", 3, 1, {}, place=place))
        sent = world.edge.post(
            f"/v1/edges/{name}/report", content=told, headers={"Content-Type": "application/json"}
        )
        assert sent.status_code == 200
    _eventually(lambda: bool(world.viewer.get("/v1/status").json()["warnings"]))
    edges = world.viewer.get("/v1/edges").json()["items"]
    assert [(edge["name"], edge["country"], edge["operator_country"]) for edge in edges] == [
        ("fra", "DE", "US"),
        ("nyc", "US", None),
        ("who", None, None),
    ]
    outside = "outside of residency rules `gdpr`, and refuses what they concern"
    warnings = world.viewer.get("/v1/status").json()["warnings"]
    assert [warning for warning in warnings if warning.startswith("edge ")] == [
        f"edge nyc: stands in US, {outside}",
        f"edge who: stands in an unknown country (`gtm edge --country`), {outside}",
    ]


@pytest.mark.parametrize(
    ("place", "path"),
    [
        (EdgePlace("XX"), "place.country"),
        (EdgePlace("DE", "deutschland"), "place.operator_country"),
        (EdgePlace(region="r" * 64), "place.region"),
    ],
)
@pytest.mark.reads
def test_places_that_are_none(world: Api, place: EdgePlace, path: str) -> None:
    """An edge's word is checked before it is shown or stored."""
    told = msgspec.json.encode(EdgeReport("1.0", 2, 1, {}, place=place))
    sent = world.edge.post("/v1/edges/fra/report", content=told, headers={"Content-Type": "application/json"})
    assert sent.status_code == 422
    assert [item["path"] for item in sent.json()["errors"]] == [path]
    assert world.viewer.get("/v1/edges").json()["items"] == []


def test_an_empty_policy_does_not_replace_a_newer_one(api: Api) -> None:
    """A control whose database was emptied does not take the policy away from an edge that has a later one."""
    with follow(api, revision=57) as messages:
        first = [next(messages) for _ in range(3)]
    assert not any(isinstance(message, SnapshotMessage) for message in first)


def _eventually(check: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not check():
        assert time.monotonic() < end, "did not happen within 30 seconds"
        time.sleep(0.05)


def test_the_feed_survives_the_database(world: Api) -> None:
    """While the database is away, changes get 503, the feed and reports go on; afterwards all is as before."""
    name = psycopg.conninfo.conninfo_to_dict(world.database_url)["dbname"]
    elsewhere = world.database_url.replace(f"/{name}?", "/postgres?")
    allow = sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS {}")
    with psycopg.connect(elsewhere, autocommit=True) as session, follow(world) as messages:
        until(messages, lambda m: isinstance(m, StateMessage))
        session.execute(allow.format(sql.Identifier(str(name)), sql.SQL("false")))
        session.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name,))
        refused = world.put("/v1/regions/eu-west", region("eu-west", cost_weight=2))
        assert refused.status_code == 503
        assert refused.headers["content-type"] == "application/problem+json"
        assert world.viewer.get("/readyz").status_code == 503
        assert world.viewer.get("/v1/status").json()["database"] == "down"
        assert report(world, "edge-one", HealthStatus.UP).status_code == 200
        state = until(messages, lambda m: isinstance(m, StateMessage))
        assert isinstance(state, StateMessage)
        assert state.state.health["eu-central"][URL].status is HealthStatus.UP
        with follow(world, edge="edge-two") as other:
            assert isinstance(next(other), SnapshotMessage)
        session.execute(allow.format(sql.Identifier(str(name)), sql.SQL("true")))
        _eventually(lambda: world.viewer.get("/readyz").status_code == 200)
        done = world.must_put("/v1/regions/eu-west", region("eu-west", cost_weight=2)).json()
        update = until(messages, lambda m: isinstance(m, SnapshotMessage))
    assert isinstance(update, SnapshotMessage)
    assert update.revision == done["revision"] == 3


def snapshots(messages: Iterator[Message]) -> list[int]:
    """The revisions that come before a heartbeat of a later moment than this: a slow reader has older ones waiting for it."""
    asked = time.time()
    found: list[int] = []
    for message in messages:
        if isinstance(message, SnapshotMessage):
            found.append(message.revision)
        elif isinstance(message, HeartbeatMessage) and message.now > asked:
            break
    return found


def synced(world: Api) -> tuple[str, list[str], list[str], list[str]]:
    """How far the policy in force has got: the state, and the edges that have it, that wait for it, and that keep what is lost."""
    sync = world.viewer.get("/v1/status").json()["sync"]
    return sync["state"], sync["in_sync"], sync["pending"], sync["lost"]


def noticed(world: Api) -> bool:
    """Whether control knows that revisions are lost, and what is in force without them, which it learns a moment later."""
    status = world.viewer.get("/v1/status")
    return "revisions up to 5" in status.text and status.json()["sync"]["revision"] == 2


@pytest.mark.parametrize("under", [True, False], ids=["a control that runs", "edges that come back"])
def test_what_a_restored_database_has_lost_is_kept_until_somebody_says_so(world: Api, under: bool) -> None:
    """Who holds a revision that the database has lost is sent none of it, its number is not given again, and people are told."""
    if under:
        for name in ("one", "two", "three"):
            world.must_put(f"/v1/tenants/{name}", {})
        with psycopg.connect(world.database_url, autocommit=True) as session:
            session.execute("DELETE FROM revisions WHERE number > 2")
            session.execute("DELETE FROM tenants WHERE name IN ('one', 'two', 'three')")
        eventually(lambda: noticed(world), "control has noticed, and has the policy of before")
    with follow(world, "first", revision=5) as messages, follow(world, "second", revision=4) as others:
        assert snapshots(messages) == []
        assert snapshots(others) == [], "it missed one, and what it has is lost, too"
        (warning,) = (text for text in world.viewer.get("/v1/status").json()["warnings"] if "backup" in text)
        assert "hold revisions up to 5, and this database had none after 2" in warning
        assert "gtm_control_revisions_lost 3.0" in world.viewer.get("/metrics").text
        report(world, "first", HealthStatus.UP, revision=5)
        assert synced(world) == ("STALE", [], [], ["first"])
        report(world, "third", HealthStatus.UP)
        assert synced(world) == ("STALE", ["third"], [], ["first"]), "going on from there is not waited for"
        assert world.operator.put("/v1/tenants/later", json={}).json()["revision"] == 6
        with follow(world, "third", revision=2) as third:
            assert snapshots(third) == [6], "whoever has lost nothing goes on"
        assert snapshots(messages) == snapshots(others) == []
        assert world.operator.post("/v1/revisions:accept-older", json={}).status_code == 403
        done = world.fence_admin.post("/v1/revisions:accept-older", json={"reason": "a disk died"})
        assert done.json() == {"lost": [{"after": 2, "up_to": 5}]}
        assert snapshots(messages) == snapshots(others) == [6]
        assert synced(world)[0] == "PENDING"
        for edge in ("first", "third"):
            report(world, edge, HealthStatus.UP, revision=6)
        assert synced(world) == ("IN_SYNC", ["first", "third"], [], [])
    assert not [text for text in world.viewer.get("/v1/status").json()["warnings"] if "backup" in text]
    assert world.fence_admin.post("/v1/revisions:accept-older", json={}).status_code == 409
    [entry] = world.viewer.get("/v1/audit", params={"action": "revisions.accept-older"}).json()["items"]
    assert (entry["target"], entry["reason"]) == ("revisions 3 to 5", "a disk died")
    diff = world.viewer.get("/v1/revisions/6/diff").json()
    assert (diff["against"], [change["name"] for change in diff["changes"]]) == (2, ["later"])


def test_who_holds_a_number_that_nobody_gives_is_not_believed(world: Api) -> None:
    """It is sent the policy in force, and no number is skipped for it."""
    with follow(world, revision=2 + 1_000_001) as messages:
        assert snapshots(messages) == [2]
    assert world.operator.put("/v1/tenants/later", json={}).json()["revision"] == 3
