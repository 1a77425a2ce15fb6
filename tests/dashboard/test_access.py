"""Access over HTTP: tokens, people, roles and the audit log; what a role may not do is not offered, and refused."""

from __future__ import annotations

import html
import json
import re
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from gtm.core.model.access import Role
from gtm.dashboard.pages.access import state_of
from tests.api.conftest import TOKENS, Api
from tests.api.test_fences import REASON, RULE
from tests.dashboard.conftest import People, assert_inert, sign_in

HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>\u202eabc"


def test_a_token_is_made_and_shown_once(people: People, world: Api) -> None:
    """Its text works, is on that one answer, and in no log; the same name again is refused with the form as it was filled in."""
    admin = people(Role.ADMIN)
    answer = admin.post("/access/tokens", {"name": "ci", "role": "operator", "lasts": "30"})
    assert answer.status_code == 201
    assert answer.headers["cache-control"] == "no-store"
    assert_inert(answer.text)
    text = re.findall(r"gtm_[0-9a-f]{10}_[\w-]+", answer.text)[0]
    assert "gtm token create ci --role operator --expires 30d" in answer.text
    assert sign_in(world.url, text).page("/")
    assert text not in admin.page("/access")
    assert text not in admin.page("/access/tokens/ci")
    assert text.split("_", 2)[2] not in admin.get("/access/audit.jsonl").text
    again = admin.post("/access/tokens", {"name": "ci", "role": "operator", "lasts": "90"})
    assert again.status_code == 409
    assert "there is a token named <code>ci</code> already" in html.unescape(again.text)
    assert '<option value="90" selected>' in again.text
    for wrong in ({"name": "Ci!"}, {"role": "king"}, {"name": ""}, {"role": "balancer"}, {"name": HOSTILE}):
        refused = admin.post("/access/tokens", {"name": "other", "role": "viewer", **wrong})
        assert refused.status_code == 422, wrong
        assert_inert(refused.text)


def test_whose_tokens_are(people: People, world: Api) -> None:
    """Said when one is made or replaced, shown in the list and on its page, and looked for; hostile texts do nothing."""
    admin = people(Role.ADMIN)
    hostile = HOSTILE.replace(" ", "").encode("ascii", "ignore").decode()
    made = admin.post("/access/tokens", {"name": "ci", "role": "operator", "owner": hostile})
    assert made.status_code == 201
    assert_inert(made.text)
    assert "--owner" in made.text
    refused = admin.post("/access/tokens", {"name": "cj", "role": "operator", "owner": "Ann Smith"})
    assert (refused.status_code, 'value="Ann Smith"' in refused.text) == (422, True)
    for path in ("/access", "/access?q=script", "/access/tokens/ci"):
        page = admin.page(path)
        assert_inert(page)
        assert html.escape(hostile)[:15] in page
    assert 'href="/access/tokens/ci"' not in admin.page("/access?q=somebody-else")
    assert "what else is in the hands of" in admin.page("/access/tokens/ci")
    answer = admin.post("/access/tokens/ci/rotate", {"grace": "3600", "owner": "ann@example.com"})
    assert answer.status_code == 201
    assert "gtm token rotate ci --grace 1h --owner ann@example.com" in answer.text
    assert "<bdi>ann@example.com</bdi> or <bdi>admin-one</bdi>" in admin.page("/access/tokens/ci")
    assert admin.post("/access/tokens/ci/rotate", {"grace": "3600", "owner": "*"}).status_code == 422
    assert world.viewer.get("/v1/tokens").status_code == 403


def test_a_token_is_replaced_and_revoked(people: People, world: Api) -> None:
    """The new text works at once, the old one within its grace; revoked, neither does."""
    admin = people(Role.ADMIN)
    old = world.admin.post("/v1/tokens", json={"name": "ci", "role": "viewer"}).json()["token"]
    browser = sign_in(world.url, old)
    page = admin.page("/access/tokens/ci")
    assert "1 browser at the dashboard" in page
    assert_inert(page)
    answer = admin.post("/access/tokens/ci/rotate", {"grace": "3600"})
    assert answer.status_code == 201
    assert "gtm token rotate ci --grace 1h" in answer.text
    new = re.findall(r"gtm_[0-9a-f]{10}_[\w-]+", answer.text)[0]
    assert new != old
    assert sign_in(world.url, new).page("/")
    assert browser.page("/")
    assert "replaced" in admin.page("/access/tokens/ci")
    assert admin.post("/access/tokens/ci/rotate", {"grace": "soon"}).status_code == 422
    assert admin.post("/access/tokens/ci/revoke").url.path == "/access"
    assert browser.get("/").url.path == "/sign-in"
    assert browser.get("/dashboard").url.path == "/sign-in"  # by the front page
    assert 'href="/access/tokens/ci"' not in admin.page("/access")
    assert 'href="/access/tokens/ci"' in admin.page("/access?ended=1")
    assert 'href="/access/tokens/ci"' not in admin.page("/access?ended=1&q=edge")
    assert "revoked" in admin.page("/access/tokens/ci")
    assert "/rotate" not in admin.page("/access/tokens/ci")
    for gone in ("nobody", "a%2Fb", "%00"):
        assert admin.get(f"/access/tokens/{gone}").status_code == 404
    assert admin.post("/access/tokens/nobody/revoke").status_code == 404
    assert admin.post("/access/tokens/nobody/rotate", {"grace": "0"}).status_code == 404


@pytest.mark.parametrize("role", [Role.VIEWER, Role.OPERATOR, Role.FENCE_ADMIN])
@pytest.mark.reads
def test_others_see_their_own_sessions(people: People, role: Role) -> None:
    """No token, nobody else, no button for what they may not; by hand it is refused."""
    person = people(role)
    people(Role.ADMIN)
    page = person.page("/access")
    assert_inert(page)
    assert f"{role.value}-one" in page
    assert ">admin-one" not in page
    assert "/access/tokens" not in page
    assert "/access/people" not in page
    for path in (
        "/access/tokens",
        "/access/tokens/x/rotate",
        "/access/tokens/x/revoke",
        "/access/people/end",
    ):
        assert person.post(path, {"name": "admin-one", "role": "admin"}).status_code == 403
    assert person.get("/access/tokens/admin-one").status_code == 403


def test_sessions_are_ended(people: People, world: Api) -> None:
    """One by whoever it is of, or an admin; all of somebody's by an admin."""
    admin, viewer = people(Role.ADMIN), people(Role.VIEWER)
    other, agent = sign_in(world.url, TOKENS[Role.VIEWER]), HOSTILE.encode("ascii", "replace").decode()
    viewer.client.headers["User-Agent"] = agent
    viewer.client.post("/sign-in", data={"token": TOKENS[Role.VIEWER]})
    page = admin.page("/access")
    assert_inert(page)
    assert html.escape(agent, quote=False)[:20] in page
    of = {one["id"]: one["name"] for one in world.admin.get("/v1/sessions").json()["items"]}
    theirs = next(one for one, name in of.items() if name == "admin-one")
    assert other.post("/access/sessions/end", {"session": theirs}).status_code == 403
    for wrong in ("", "x", "../tokens/x", HOSTILE):
        assert other.post("/access/sessions/end", {"session": wrong}).status_code in (404, 422)
    mine = next(one["id"] for one in world.viewer.get("/v1/sessions").json()["items"])
    assert admin.post("/access/sessions/end", {"session": mine}).url.path == "/access"
    assert admin.post("/access/people/end", {"name": "viewer-one"}).url.path == "/access"
    assert other.get("/").url.path == "/sign-in"
    assert viewer.get("/").url.path == "/sign-in"
    page = admin.page("/access")
    # Its link, its name, its owner, and that as a suggestion for others.
    assert page.count("viewer-one") == page.count("/access/tokens/viewer-one") * 4


def test_the_audit_log_is_searched(people: People, world: Api) -> None:
    """By who, what, target and day; narrowed down it can be shared, and exported as it is."""
    admin, viewer = people(Role.ADMIN), people(Role.VIEWER)
    why = {**REASON, "force_reason": HOSTILE}
    assert world.fence_admin.delete(RULE, params=why).status_code == 200
    page = admin.page("/access/audit?action=residency-rule&who=FENCE&forced=true")
    assert_inert(page)
    assert "residency-rule.delete" in page
    assert html.escape(HOSTILE)[:20] in page.replace("&#39;", "&#x27;")
    assert "token.install" not in page
    assert "gtm audit --who FENCE --action residency-rule --forced" in html.unescape(page)
    today = datetime.now(UTC).date()
    assert "residency-rule.delete" in admin.page(f"/access/audit?since={today}&until={today}")
    gone = (today - timedelta(days=3)).isoformat()
    assert "Nothing was done that fits" in admin.page(f"/access/audit?until={gone}")
    assert "session.begin" in admin.page("/access/audit")
    assert "session.begin" not in viewer.page("/access/audit")
    assert "only admins see" in viewer.page("/access/audit")
    for wrong in (
        "since=soon",
        "until=9999-12-31",
        "action=%3Cscript%3E",
        "cursor=x",
        "forced=maybe",
        "who=%00",
    ):
        answer = admin.get(f"/access/audit?{wrong}")
        assert answer.status_code in (200, 400, 422), wrong
        assert_inert(answer.text)
    answer = admin.get("/access/audit.jsonl?action=residency-rule")
    assert answer.headers["content-type"] == "application/jsonl"
    assert "attachment" in answer.headers["content-disposition"]
    [line] = answer.text.splitlines()
    assert json.loads(line)["reason"] == HOSTILE
    assert "token.install" not in viewer.get("/access/audit.jsonl").text
    assert admin.get("/access/audit.jsonl?since=soon").status_code == 422


def test_the_audit_log_has_pages(people: People, world: Api) -> None:
    """The newest first, older ones behind a link."""
    world.must_put("/v1/tenants/t0", {})
    with psycopg.connect(world.database_url, autocommit=True) as session:  # sixty changes would take seconds
        session.execute(
            "INSERT INTO audit (who, role, via, action, target, reason, detail, forced, count) "
            "SELECT who, role, via, action, replace(target, 't0', 't' || n), reason, detail, forced, count "
            "FROM audit, generate_series(1, 59) AS n WHERE target LIKE '%t0' ORDER BY n"
        )
    viewer = people(Role.VIEWER)
    first = viewer.page("/access/audit?action=tenant")
    assert "tenant t59" in first
    assert "tenant t5<" not in first
    older = re.search(r'href="(/access/audit\?[^"]*cursor=[^"]*)"', first)
    assert older is not None
    second = viewer.page(html.unescape(older[1]))
    assert "tenant t5<" in second
    assert "tenant t59" not in second
    assert len(viewer.get("/access/audit.jsonl?action=tenant").text.splitlines()) == 60


@pytest.mark.parametrize(
    ("revoked", "expires", "state", "works", "soon"),
    [
        (None, None, "works", True, False),
        (None, 20, "works", True, False),
        (None, 2, "works", True, True),
        (None, -1, "expired", False, False),
        (1, None, "replaced", True, True),
        (-1, None, "revoked", False, False),
        (-1, -2, "revoked", False, False),
        (1, -2, "expired", False, False),
    ],
)
def test_states_of_tokens(
    revoked: int | None, expires: int | None, state: str, works: bool, soon: bool
) -> None:
    """By days from now."""
    now = datetime(2026, 1, 1, tzinfo=UTC)
    ends = {
        key: None if days is None else (now + timedelta(days=days)).isoformat()
        for key, days in (("revoked_at", revoked), ("expires_at", expires))
    }
    found = state_of(ends, now)
    assert (found["state"], found["works"], found["soon"]) == (state, works, soon)
