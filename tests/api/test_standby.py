"""Two controls on one database: one is active, the other stands by and takes over."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import httpx
import msgspec
import psycopg
import pytest

from gtm.core.quota.leases import LeaseUse
from gtm.feed.reports import EdgeReply, EdgeReport
from gtm.storage.locks import Lock
from tests.api.conftest import TOKENS, Server, region


def _eventually(check: Callable[[], object]) -> None:
    end = time.monotonic() + 30
    while not check():
        assert time.monotonic() < end, "did not happen within 30 seconds"
        time.sleep(0.05)


@pytest.fixture
def clients() -> dict[str, Any]:
    """The tokens' texts, by role."""
    return {role.value: text for role, text in TOKENS.items()}


def _call(server: Server, token: str, method: str, path: str, **more: Any) -> httpx.Response:
    return httpx.request(
        method,
        server.url + path,
        headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
        timeout=20,
        trust_env=False,
        **more,
    )


def _report(server: Server, token: str) -> httpx.Response:
    body = msgspec.json.encode(EdgeReport("1", 1, 1, {}, leases=LeaseUse("i", 1)))
    return _call(server, token, "POST", "/v1/edges/edge/report", content=body)


def _standing(server: Server, token: str) -> str:
    found: str = _call(server, token, "GET", "/v1/status").json()["control"]
    return found


def _cut(prepared_url: str) -> None:
    """End the connection that holds the lock, as a network or a restart of Postgres does."""
    with psycopg.connect(prepared_url, autocommit=True) as session:
        session.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND objid = %s "
            "AND database = (SELECT oid FROM pg_database WHERE datname = current_database())",
            (int(Lock.ACTIVE),),
        )


def test_the_second_stands_by_and_takes_over(prepared_url: str, clients: dict[str, str]) -> None:
    """What needs live edges is refused there, with who is active; reads go on; when the first ends it is active."""
    with ExitStack() as running:
        first = Server(prepared_url)
        ending = running.enter_context(ExitStack())
        ending.enter_context(first)
        assert _standing(first, clients["viewer"]) == "active"
        with Server(prepared_url) as second:
            assert _standing(second, clients["viewer"]) == "standby"
            assert httpx.get(f"{first.url}/readyz").status_code == 200
            refused = httpx.get(f"{second.url}/readyz")
            assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
            assert "stands by" in refused.json()["detail"]
            for answer in (
                _report(second, clients["edge"]),
                _call(second, clients["edge"], "GET", "/v1/feed?edge=edge"),
                _call(second, clients["viewer"], "GET", "/v1/top"),
                _call(second, clients["viewer"], "GET", "/v1/health"),
                _call(second, clients["viewer"], "GET", "/v1/latency"),
                _call(second, clients["operator"], "DELETE", "/v1/edges/edge"),
                _call(second, clients["operator"], "PUT", "/v1/regions/eu-west", json=region("eu-west")),
            ):
                assert answer.status_code == 503, answer.text
                assert "stands by" in answer.json()["detail"]
            assert _call(second, clients["viewer"], "GET", "/v1/regions").status_code == 200
            assert "gtm_control_active 0.0" in _call(second, clients["viewer"], "GET", "/metrics").text
            assert _call(
                second, clients["admin"], "POST", "/v1/tokens", json={"name": "n", "role": "viewer"}
            ).is_success
            assert _report(first, clients["edge"]).status_code == 200
            _eventually(lambda: _call(first, clients["viewer"], "GET", "/v1/status").json()["standbys"] == 1)
            ending.close()
            _eventually(lambda: _standing(second, clients["viewer"]) == "active")
            _eventually(lambda: httpx.get(f"{second.url}/readyz").status_code == 200)
            assert _report(second, clients["edge"]).status_code == 200
            assert _call(
                second, clients["operator"], "PUT", "/v1/regions/eu-west", json=region("eu-west")
            ).is_success


def test_who_loses_the_lock_leases_nothing(prepared_url: str, clients: dict[str, str]) -> None:
    """At no time do two lease: the one that was cut off finds another in its place, refuses, and asks to be ended."""
    with Server(prepared_url) as first, Server(prepared_url) as second:
        _eventually(lambda: _call(first, clients["viewer"], "GET", "/v1/status").json()["standbys"] == 1)

        def leasing() -> list[Server]:
            """Those that would lease right now."""
            found = []
            for server in (first, second):
                answer = _report(server, clients["edge"])
                if (
                    answer.is_success
                    and msgspec.json.decode(answer.content, type=EdgeReply).leases is not None
                ):
                    found.append(server)
            return found

        assert leasing() == [first]
        # One of the two gets the lock anew, whichever looks first.
        leads = [server.app.state.context.replica.election for server in (first, second)]
        _cut(prepared_url)
        _eventually(
            lambda: (
                sum(lead.terms for lead in leads) == 2
                and sorted(lead.standing for lead in leads) == ["active", "standby"]
            )
        )
        assert len(leasing()) == 1


def test_a_control_alone_goes_on_without_the_database(prepared_url: str, clients: dict[str, str]) -> None:
    """Nobody stands by: losing the lock's connection, and the database with it, ends neither feeds nor leases."""
    name = psycopg.conninfo.conninfo_to_dict(prepared_url)["dbname"]
    elsewhere = prepared_url.replace(f"/{name}?", "/postgres?")
    with Server(prepared_url) as server, psycopg.connect(elsewhere, autocommit=True) as session:
        session.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
        session.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name,))
        _eventually(
            lambda: _call(server, clients["viewer"], "GET", "/v1/status").json()["database"] == "down"
        )
        for _ in range(3):
            assert _report(server, clients["edge"]).json()["leases"] is not None
            time.sleep(0.6)  # more than a look at the lock
        assert _standing(server, clients["viewer"]) == "active"
        session.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")
        _eventually(lambda: httpx.get(f"{server.url}/readyz").status_code == 200)
        assert _standing(server, clients["viewer"]) == "active"
