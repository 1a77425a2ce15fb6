"""The audit log: every change is in it, with who made it and why, and who reads what of it."""

from __future__ import annotations

import json
from typing import Any

import httpx
import psycopg
import pytest

from gtm.control.live.failed_sign_ins import MOST, FailedSignIns
from gtm.storage.history.audit import WantedEntries
from gtm.storage.session import Database
from tests.api.conftest import TOKENS, Api, Server, region
from tests.api.test_fences import REASON, RULE
from tests.system.harness import eventually

ROUTES_THAT_CHANGE_NOTHING = {
    "create_sign_in_link",  # the session that it begins is written down
    "simulate_policy",
    "plan_policy",
    "explain_route",
    "read_policy",
    "report",
    "report_load",
    "report_balancer",
    "report_room",
    "report_samples",
}


def entries(client: httpx.Client, **query: Any) -> list[dict[str, Any]]:
    """What is found."""
    answer = client.get("/v1/audit", params=query)
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["items"]
    return found


def test_policy(world: Api) -> None:
    """A change has who, what, its revision and reason; one that changes nothing, or is refused, has no entry."""
    applied = entries(world.viewer, action="policy.apply", who="operator")[0]
    assert "region eu-central" in applied["target"]
    assert (applied["revision"], applied["role"], applied["via"]) == (2, "operator", "api")
    why = {"comment": "smoke in the hall"}
    assert world.operator.post("/v1/regions/eu-west:drain", params=why).status_code == 200
    assert world.operator.post("/v1/regions/eu-west:drain").status_code == 200
    [drained] = entries(world.viewer, action="region.drain")
    assert (drained["target"], drained["revision"], drained["forced"]) == ("region eu-west", 3, False)
    assert drained["reason"] == "smoke in the hall"
    assert world.admin.delete(RULE).status_code == 409
    assert entries(world.viewer, target="gdpr", action="residency-rule") == []
    assert world.fence_admin.delete(RULE, params=REASON).status_code == 200
    [forced] = entries(world.viewer, forced=True)
    assert (forced["action"], forced["who"], forced["reason"]) == (
        "residency-rule.delete",
        "fence-admin-one",
        "counsel agreed",
    )
    assert "forced against the safety rules fence" in forced["detail"]
    world.must_put("/v1/regions/eu-west", region("eu-west", lat=50.0))
    body = {"comment": "as it was"}
    rolled = world.fence_admin.post("/v1/revisions/2:rollback", json=body, params=REASON)
    assert rolled.status_code == 200
    found = entries(world.viewer, action="policy.rollback")[0]
    assert found["reason"].startswith("as it was")
    assert [one["action"] for one in entries(world.viewer)][:4] == [
        "policy.rollback",
        "region.put",
        "residency-rule.delete",
        "region.drain",
    ]


def test_what_is_about_people_is_for_admins(world: Api) -> None:
    """Tokens, sessions and approvals are written down; others than admins do not see the first two."""
    made = world.admin.post("/v1/tokens", json={"name": "ci", "role": "viewer"}).json()["token"]
    again = world.admin.post("/v1/tokens/ci:rotate").json()["token"]
    world.admin.delete("/v1/tokens/ci")
    assert world.admin.delete("/v1/tokens/nobody").status_code == 404
    body = {"sha256": "0" * 64, "reason": "case 4711"}
    assert world.fence_admin.post("/v1/fence-approvals", json=body).status_code == 201
    found = entries(world.admin, target="token ci")
    assert [one["action"] for one in found] == ["token.revoke", "token.rotate", "token.create"]
    assert {one["who"] for one in found} == {"admin-one"}
    written = json.dumps(entries(world.admin, limit=1000))
    for text in (made, again):
        assert text.split("_", 2)[2] not in written
    assert entries(world.viewer, target="token ci") == entries(world.operator, action="token") == []
    assert entries(world.admin, target="token ci")
    assert entries(world.admin, target="token ci", public=True) == []
    [approval] = entries(world.viewer, action="fence.approve")
    assert (approval["who"], approval["reason"]) == ("fence-admin-one", "case 4711")
    exported = world.viewer.get("/v1/audit:export").text
    assert "token.create" not in exported
    assert "fence.approve" in exported


def test_sessions(world: Api) -> None:
    """Who signed in, by what, and who ended it; what is done at the dashboard is said to be."""
    with httpx.Client(base_url=world.url, trust_env=False, headers={"User-Agent": "Browser 1"}) as browser:
        browser.post("/sign-in", data={"token": TOKENS[next(iter(TOKENS))]})
        [began] = entries(world.admin, action="session")
        assert (began["who"], began["via"], began["detail"]) == (
            "viewer-one",
            "dashboard",
            "by token; browser Browser 1",
        )
    assert world.admin.delete("/v1/people/viewer-one/sessions").json() == {"ended": 1}
    assert world.admin.delete("/v1/people/viewer-one/sessions").json() == {"ended": 0}
    [ended] = entries(world.admin, action="session.end_all")
    assert (ended["who"], ended["target"], ended["detail"]) == (
        "admin-one",
        "sessions of viewer-one",
        "1 session",
    )


def test_pages_and_lines(world: Api) -> None:
    """Pages follow each other without a gap, either way round; the export is the same as lines."""
    for number in range(5):
        world.must_put(f"/v1/tenants/t{number}", {})
    every = entries(world.admin, limit=1000)
    for oldest_first in (False, True):
        found, cursor = [], None
        while True:
            query: dict[str, Any] = {"limit": 2, "oldest_first": oldest_first}
            page = world.admin.get("/v1/audit", params=query | ({"cursor": cursor} if cursor else {})).json()
            found += page["items"]
            cursor = page["next_cursor"]
            if cursor is None:
                break
        assert found == (every[::-1] if oldest_first else every)
    answer = world.admin.get("/v1/audit:export", params={"action": "tenant.put", "oldest_first": True})
    assert answer.headers["content-type"] == "application/jsonl"
    assert [json.loads(line)["target"] for line in answer.text.splitlines()] == [
        f"tenant t{number}" for number in range(5)
    ]
    assert world.admin.get("/v1/audit", params={"cursor": "x"}).status_code == 400
    for wrong in ({"since": "yesterday"}, {"action": "A"}, {"who": "\0"}, {"target": "x" * 300}):
        assert world.admin.get("/v1/audit", params=wrong).status_code == 422, wrong


def test_the_export_reads_on(world: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is read in pieces, whatever the last has."""
    monkeypatch.setattr("gtm.api.routes.audit.AT_ONCE", 2)
    for number in range(4):
        world.must_put(f"/v1/tenants/t{number}", {})
    answer = world.admin.get("/v1/audit:export", params={"action": "tenant"})
    assert [json.loads(line)["target"] for line in answer.text.splitlines()] == [
        f"tenant t{number}" for number in range(3, -1, -1)
    ]


def test_every_operation_that_changes_is_known(api: Api) -> None:
    """Whoever adds one decides whether it is written down."""
    known = {
        *(f"{verb}_{kind}" for verb in ("put", "patch", "delete") for kind in _kinds()),
        *(
            "apply_policy",
            "rollback_revision",
            "accept_older",
            "drain_region",
            "activate_region",
            "disable_region",
            "put_challenge",
            "delete_challenge",
        ),
        *("create_token", "rotate_token", "revoke_token", "end_session", "end_sessions"),
        *(
            "approve_fence",
            "reassign_managers",
            "roll_dnssec_key",
            "confirm_ds",
            "withdraw_ds",
            "forget_edge",
            "forget_latency",
        ),
    }
    paths = api.server.app.openapi()["paths"]
    changing = {
        operation["operationId"]
        for methods in paths.values()
        for method, operation in methods.items()
        if method != "get"
    }
    assert changing == known | (ROUTES_THAT_CHANGE_NOTHING & changing)


def _kinds() -> list[str]:
    from gtm.core.model.kinds import KINDS

    return list(KINDS)


@pytest.mark.anyio
async def test_failed_sign_ins_are_counted(database_url: str) -> None:
    """Any number of them is one entry of bounded length; none is lost while they are written."""
    database = Database(database_url)
    failed = FailedSignIns(database)
    await failed.write()
    for number in range(5000):
        failed.note(f"192.0.2.{number}", "the token is not known here")
    failed.note("192.0.2.1", "x" * 5000)
    await failed.write()
    await failed.write()
    async with database.transaction() as transaction:
        [entry] = await transaction.audit.list(WantedEntries())
    await database.dispose()
    assert (entry.who, entry.action, entry.count) == ("", "sign-in.failed", 5001)
    assert f"others ({5000 - 1000 - 0} times)" in entry.target
    assert entry.target.count(",") == MOST - 1
    assert len(entry.detail) <= 4000


def test_failed_sign_ins_are_written_at_the_end(prepared_url: str) -> None:
    """Also those that nobody waited for."""
    with Server(prepared_url) as server, httpx.Client(base_url=server.url, trust_env=False) as client:
        for _ in range(3):
            assert client.post("/sign-in", data={"token": "wrong"}).status_code == 401
    with Server(prepared_url) as server:
        headers = {
            "Authorization": f"Bearer {next(text for role, text in TOKENS.items() if role == 'admin')}"
        }
        with httpx.Client(base_url=server.url, trust_env=False, headers=headers) as admin:
            found = entries(admin, action="sign-in.failed")
    assert sum(one["count"] for one in found) == 3
    assert "127.0.0.1" in found[0]["target"]


def test_old_entries_are_forgotten(prepared_url: str) -> None:
    """By the active control, once they are older than the setting says; no others."""
    old = (
        "INSERT INTO audit (at, who, via, action, target, reason, detail, forced, count) "
        "VALUES (now() - interval '{}', 'ann', 'api', 'tenant.put', '{}', '', '', false, 1)"
    )
    with psycopg.connect(prepared_url, autocommit=True) as session:
        session.execute(old.format("49 hours", "gone"))
        session.execute(old.format("47 hours", "kept"))
        with Server(prepared_url, audit_days=2):
            query = "SELECT target FROM audit WHERE action = 'tenant.put'"
            eventually(
                lambda: [target for (target,) in session.execute(query)] == ["kept"], "the old one is gone"
            )
