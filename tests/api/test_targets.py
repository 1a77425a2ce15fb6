"""What monitors and scanners ask: HEAD wherever GET is, and request lines that no client of ours sends."""

from __future__ import annotations

import time

import httpx
import psycopg
import pytest
from fastapi.routing import APIRoute
from psycopg import conninfo, sql

from gtm.core.model.access import Role
from gtm.storage.connecting import LOCK_TIMEOUT
from tests import request_lines
from tests.api.conftest import TOKENS, UNBOUNDED, Api
from tests.worlds.control import region

_VARYING = {"date", "content-length"}
"""Fields that the moment decides; the length is that of what GET sends then."""


def test_head_is_wherever_get_is(world: Api) -> None:
    """With the same status and fields and no body, whatever GET would say; streams do not begin, and end.

    Sources: Augustas11/macprovider issue 521 and mozilla-it/ctms-api issue 165 (monitors that ask by HEAD take a live
    service for dead); RFC 9110 §9.1, §9.3.2.
    """
    paths = {
        route.path.replace("{name:segment}", "eu-west").replace("{name}", "eu-west")
        for route in world.server.app.routes
        if isinstance(route, APIRoute) and "GET" in (route.methods or ())
    }
    assert {"/healthz", "/readyz", "/metrics", "/v1/status"} < paths
    with httpx.Client(base_url=world.viewer.base_url, timeout=UNBOUNDED) as client:
        # An admin may ask for all but feeds; of others' refusals one does.
        theirs = {path for path in paths if "feed" in path} | {"/v1/tokens"}
        for role, more, asking in (
            (Role.ADMIN, "", paths),
            (Role.EDGE, "?edge=edge-one", theirs),
            (Role.BALANCER, "", theirs),
        ):
            client.headers["Authorization"] = f"Bearer {TOKENS[role]}"
            for path in sorted(asking):
                asked = path + (more if path == "/v1/feed" else "")
                head = client.head(asked)
                with client.stream("GET", asked) as got:
                    assert head.status_code == got.status_code, asked
                    assert head.content == b""
                    for name in {*head.headers, *got.headers} - _VARYING - {"transfer-encoding", "etag"}:
                        assert head.headers.get(name) == got.headers.get(name), (asked, name)
                    assert ("content-length" in head.headers) or "content-length" not in got.headers, asked


def test_methods_that_are_allowed_are_told(world: Api) -> None:
    """Allow names HEAD where GET is, and not where it is not."""
    with httpx.Client(base_url=world.viewer.base_url) as client:
        assert client.request("TRACE", "/healthz").headers["allow"] == "GET, HEAD, OPTIONS"
        assert client.request("TRACE", "/v1/status").headers["allow"] == "GET, HEAD"
        assert client.request("TRACE", "/v1/policy:plan").headers["allow"] == "POST"
        assert client.head("/v1/policy:plan").status_code == 405


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
def test_monitors(world: Api, path: str) -> None:
    """A number against caches changes nothing, and no cache keeps the answer; HAProxy asks by OPTIONS unless it is told otherwise.

    Sources: standardnotes/server issue 1038 (OPTIONS), mosamlife/wpmgr issue 291 and SecureBananaLabs/bug-bounty issue 7179 (caches).
    """
    with httpx.Client(base_url=world.viewer.base_url) as client:
        plain = client.get(path)
        assert plain.headers["cache-control"] == "no-store"
        for method, asked in (
            ("GET", "?_=1695"),
            ("HEAD", "?_=1695"),
            ("OPTIONS", ""),
            ("OPTIONS", "?a&a=b&status=down"),
        ):
            answer = client.request(method, path + asked)
            assert (answer.status_code, answer.headers["cache-control"]) == (200, "no-store"), (method, asked)
            assert answer.content == (b"" if method == "HEAD" else plain.content)
        assert (
            client.get(
                "/v1/status?_=1695", headers={"Authorization": f"Bearer {TOKENS[Role.ADMIN]}"}
            ).status_code
            == 422
        )


def test_odd_request_lines(world: Api) -> None:
    """Each is answered or refused, and none is taken for a mistake of gtm's: scanners would fill the log with them."""
    url = httpx.URL(world.url)
    assert request_lines.wrong((str(url.host), int(url.port or 0))) == {}


@pytest.mark.parametrize("setting", ["default_transaction_read_only"])
def test_a_database_that_is_read_only(world: Api, setting: str) -> None:
    """Control is not ready and says why; changes get 503 with the remedy, reading goes on; and all is well as soon as it is over.

    Sources: windmill-labs/windmill pull request 9722, fleetdm/fleet pull request 39841.
    """
    name = str(conninfo.conninfo_to_dict(world.database_url)["dbname"])
    elsewhere = world.database_url.replace(f"/{name}?", "/postgres?")
    own = sql.Identifier(name), sql.Identifier(setting)
    with psycopg.connect(elsewhere, autocommit=True) as session:
        session.execute(sql.SQL("ALTER DATABASE {} SET {} = on").format(*own))
        session.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name,))
        refused = world.put("/v1/regions/eu-west", region("eu-west", cost_weight=2))
        assert (refused.status_code, refused.json()["code"]) == (503, "unavailable")
        assert (
            "the database is read-only: nothing was changed; edges go on answering, try again (name the primary"
            in refused.json()["detail"]
        )
        not_ready = world.viewer.get("/readyz")
        assert not_ready.status_code == 503
        assert (
            "not ready for writes: the database is read-only: name the primary" in not_ready.json()["detail"]
        )
        assert world.viewer.get("/v1/status").json()["database"] == "read_only"
        assert world.viewer.get("/v1/regions/eu-west").status_code == 200
        assert "gtm_control_database_up 0.0" in world.viewer.get("/metrics").text
        session.execute(sql.SQL("ALTER DATABASE {} RESET {}").format(*own))
        end = time.monotonic() + 30
        while world.viewer.get("/readyz").status_code != 200:
            assert time.monotonic() < end
            time.sleep(0.1)
        world.must_put("/v1/regions/eu-west", region("eu-west", cost_weight=2))


def test_a_right_that_is_missing(world: Api) -> None:
    """A table that the role may not read any more is a 503 with the remedy, and no mistake of gtm's."""
    with psycopg.connect(world.database_url, autocommit=True) as session:
        session.execute("ALTER TABLE audit RENAME TO audit_of_before")
    refused = world.viewer.get("/v1/audit")
    assert refused.status_code == 503
    assert "is not as gtm needs it" in refused.json()["detail"]


@pytest.mark.drill
def test_a_locked_table_holds_nobody_for_long(world: Api) -> None:
    """Who reads what somebody keeps locked is told so after a while, with the way to find out who it is."""
    with psycopg.connect(world.database_url) as other:
        other.execute("LOCK TABLE audit")
        began = time.monotonic()
        refused = world.viewer.get("/v1/audit")
        waited = time.monotonic() - began
    assert refused.status_code == 503
    assert "is busy with others' work" in refused.json()["detail"]
    assert waited > LOCK_TIMEOUT
