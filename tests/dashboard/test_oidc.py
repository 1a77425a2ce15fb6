"""Signing in by a real OpenID Connect provider (npm's oidc-provider): who gets in, as whom, and what they may do."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from gtm.core.model.access import Role
from tests.api.conftest import POLICY, TOKENS, Server
from tests.api.test_fences import REASON
from tests.conftest import fresh_database
from tests.dashboard.conftest import HTML, assert_inert
from tests.dashboard.identity_provider import consent, with_identity

pytestmark = pytest.mark.drill


@pytest.fixture(scope="module")
def world(postgres: Any, prepared_template: str) -> Iterator[tuple[Server, str]]:
    """Control with a provider, for all tests of this file."""
    with fresh_database(postgres, prepared_template) as url, with_identity(url) as found:
        yield found


@contextmanager
def browser(server: Server) -> Iterator[httpx.Client]:
    """Somebody's, that follows nothing by itself."""
    with httpx.Client(base_url=server.url, trust_env=False, timeout=60, headers=HTML) as client:
        yield client


def signed_in(server: Server, client: httpx.Client, name: str, to: str = "/") -> httpx.Response:
    """What the way back is answered."""
    began = client.get("/sign-in/oidc", params={"next": to})
    assert began.status_code == 303, began.text
    back = consent(client, client.get(began.headers["location"]), name)
    return client.get(back.headers["location"])


def test_a_person_signs_in(world: tuple[Server, str]) -> None:
    """As their verified address, in the highest role of their groups; the log says how; they go where they wanted."""
    server, _ = world
    with browser(server) as client:
        page = client.get("/sign-in")
        assert "Sign in by 127.0.0.1" in page.text
        assert_inert(page.text)
        answer = signed_in(server, client, "ann", "/access")
        assert (answer.status_code, answer.headers["location"]) == (303, "/access")
        cookies = answer.headers.get_list("set-cookie")
        assert any("gtm=" in one and "SameSite=strict" in one and "HttpOnly" in one for one in cookies)
        assert any("gtm-oidc=" in one and "Max-Age=0" in one for one in cookies)
        shown = client.get("/access").text
        assert "ann@example.com" in shown
        assert "role <b>admin</b>" in shown
        assert_inert(shown)
        log = client.get("/access/audit?action=session&who=ann%40example.com").text
        assert "by OpenID Connect" in log


def test_a_person_signs_out_at_the_provider_too(world: tuple[Server, str]) -> None:
    """Here at once; there where it says, without what would tell it of the session here."""
    server, issuer = world
    with browser(server) as client:
        assert signed_in(server, client, "bob").status_code == 303
        out = client.post("/sign-out", data={"csrf": csrf(client)})
        assert out.headers["location"] == "/sign-in?out=provider"
        page = client.get(out.headers["location"]).text
        assert 'href="/sign-in/oidc/out"' in page
        assert_inert(page)
        there = client.get("/sign-in/oidc/out").headers["location"]
        assert there.startswith(f"{issuer}/session/end?client_id=gtm")
        assert client.get(there).status_code == 200
        assert client.get("/access").status_code == 303


def test_others_are_who_nobody_else_can_be(world: tuple[Server, str]) -> None:
    """An address that the provider has not verified names nobody: eve is not ann."""
    server, _ = world
    with browser(server) as client:
        assert signed_in(server, client, "eve").status_code == 303
        shown = client.get("/access").text
        assert "eve@127.0.0.1" in shown
        assert "role <b>fence-admin</b>" in shown
        assert "ann@example.com" not in shown


def test_who_has_no_role_is_told_so(world: tuple[Server, str]) -> None:
    """In words, by name, without a session; it is counted."""
    server, _ = world
    with browser(server) as client:
        answer = signed_in(server, client, "nobody")
        assert answer.status_code == 403
        assert "you are nobody@example.com at the identity provider, but nothing" in html.unescape(
            answer.text
        )
        assert_inert(answer.text)
        assert client.get("/").status_code == 303


def test_answers_of_other_attempts_do_nothing(world: tuple[Server, str]) -> None:
    """Without the cookie, with another state, a second time, with another's code, with what the provider refused."""
    server, _ = world
    with browser(server) as victim, browser(server) as attacker:
        began = attacker.get("/sign-in/oidc")
        back = consent(attacker, attacker.get(began.headers["location"]), "bob").headers["location"]
        answer = victim.get(back)
        assert answer.status_code == 403
        assert "not begun in this browser" in answer.text
        victim.get("/sign-in/oidc")
        assert victim.get(back).status_code == 403
        assert attacker.get(back).status_code == 303
        assert attacker.get(back).status_code == 403, "a code and a state work once"
        mine = victim.get("/sign-in/oidc").headers["location"]
        state = httpx.URL(mine).params["state"]
        hostile = "<script>alert(1)</script>"
        for query in (
            {"state": state, "error": "access_denied", "error_description": hostile},
            {"state": state},
            {"state": state, "code": "x" * 5000},
            {"state": "\u00e9", "code": "x"},
            {},
        ):
            victim.get("/sign-in/oidc")
            answer = victim.get("/sign-in/oidc/callback", params=query)
            assert answer.status_code in (403, 429)
            assert_inert(answer.text)
        assert victim.get("/").status_code == 303


def test_a_stolen_code_is_worth_nothing(prepared_url: str) -> None:
    """In another attempt its verifier (PKCE) is another: the provider refuses."""
    with with_identity(prepared_url) as (server, _), browser(server) as victim, browser(server) as thief:
        began = victim.get("/sign-in/oidc").headers["location"]
        stolen = httpx.URL(consent(victim, victim.get(began), "ann").headers["location"]).params
        state = httpx.URL(thief.get("/sign-in/oidc").headers["location"]).params["state"]
        query = {"code": stolen["code"], "iss": stolen["iss"], "state": state}
        answer = thief.get("/sign-in/oidc/callback", params=query)
        assert answer.status_code == 403
        assert "the provider refuses" in answer.text


@pytest.mark.parametrize("mode", ["post", "inside"])
def test_providers_differ(prepared_url: str, mode: str) -> None:
    """In how they are shown the secret, and where they put claims."""
    with with_identity(prepared_url, mode) as (server, _), browser(server) as client:
        assert signed_in(server, client, "bob").status_code == 303
        assert "bob@example.com" in client.get("/access").text


def test_a_person_approves_as_a_second(prepared_url: str) -> None:
    """Of what somebody else does by a token, and while they are signed in; of what they do themselves they do not."""
    with (
        with_identity(prepared_url, fence_approvals=1) as (server, _),
        browser(server) as eve,
        browser(server) as ann,
    ):
        admin = httpx.Client(
            base_url=server.url, trust_env=False, headers={"Authorization": f"Bearer {TOKENS[Role.ADMIN]}"}
        )
        assert admin.post("/v1/policy:apply", json={"policy": POLICY}).status_code == 200

        def change() -> httpx.Response:
            return admin.delete("/v1/residency-rules/gdpr", params=REASON)

        assert signed_in(server, eve, "eve").status_code == 303
        assert signed_in(server, ann, "ann").status_code == 303
        named = change().json()["fingerprint"]
        approve(eve, named)
        eve.post("/sign-out", data={"csrf": csrf(eve)})
        assert change().status_code == 409, "eve has signed out"
        approve(ann, named)
        done = change()
        assert done.status_code == 200, done.text
        newest = admin.get("/v1/revisions", params={"limit": 1}).json()["items"][0]
        assert newest["comment"].endswith("approved by ann@example.com: case 4711")
        admin.close()


def csrf(client: httpx.Client) -> str:
    """What forms of a page show."""
    return re.findall(r'name="csrf" value="([0-9a-f]+)"', client.get("/access").text)[0]


def approve(client: httpx.Client, sha256: str) -> None:
    """By the page of the draft."""
    text = client.get("/policy/residency-rules/gdpr/delete").text
    [draft] = set(re.findall(r'name="draft" value="([^"]*)"', text))
    fields = {"draft": html.unescape(draft), "text": "", "fingerprint": sha256, "approval": "case 4711"}
    answer = client.post("/policy/draft", data={"csrf": csrf(client), "do": "approve", **fields})
    assert answer.status_code == 303, answer.text
