"""Whose a token is, and who counts as one with whom: each promise of docs/operations.md, with the words of the refusal."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import psycopg
import pytest

from gtm.control.live import tokens
from gtm.core.model.access import Role
from gtm.dashboard.sign_in.identity import account_of
from gtm.storage.session import Database
from tests.api.conftest import GDPR, TOKENS, Api, Server
from tests.api.test_fences import REASON, RULE, careful  # noqa: F401 - the fixture
from tests.api.test_resources import problem
from tests.dashboard.conftest import follow


class Office:
    """People with tokens, before the change that deletes a rule."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self.texts = {"admin-one": TOKENS[Role.ADMIN], "fence-admin-one": TOKENS[Role.FENCE_ADMIN]}

    def ask(self, who: str, method: str, path: str, **given: Any) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self.texts[who]}"}
        return self.api.anonymous.request(method, path, headers=headers, **given)

    def make(self, by: str, name: str, owner: str | None = None, role: str = "admin") -> dict[str, Any]:
        """Somebody makes a token."""
        body = {"name": name, "role": role} | ({"owner": owner} if owner else {})
        made = self.ask(by, "POST", "/v1/tokens", json=body)
        assert made.status_code == 201, made.text
        self.texts[name] = made.json()["token"]
        found: dict[str, Any] = made.json()
        return found

    def rotate(self, by: str, name: str, **body: Any) -> dict[str, Any]:
        made = self.ask(by, "POST", f"/v1/tokens/{name}:rotate", json={"grace_seconds": 0, **body})
        assert made.status_code == 201, made.text
        self.texts[name] = made.json()["token"]
        found: dict[str, Any] = made.json()
        return found

    def delete(self, by: str) -> httpx.Response:
        return self.ask(by, "DELETE", RULE, params=REASON)

    def refused(self, author: str, approver: str) -> str:
        """One approves, and the other's change is refused all the same; why."""
        body = {"sha256": self.delete(author).json()["fingerprint"], "reason": "case 4711"}
        assert self.ask(approver, "POST", "/v1/fence-approvals", json=body).status_code == 201
        said = problem(self.delete(author), 409)
        listed = self.ask(author, "GET", "/v1/fence-approvals").json()["items"]
        against = next(one["objection"] for one in listed if one["approver"] == approver)
        assert f"the approval by `{approver}` does not count: {against}; " in said
        assert "; a second person signs in by an identity provider, or has a token that no other made" in said
        return str(against)

    def passes(self, author: str, approver: str) -> None:
        body = {"sha256": self.delete(author).json()["fingerprint"], "reason": "case 4711"}
        assert self.ask(approver, "POST", "/v1/fence-approvals", json=body).status_code == 201
        done = self.delete(author)
        assert done.status_code == 200, done.text


@pytest.fixture
def office(careful: Api) -> Office:  # noqa: F811 - the fixture
    """Where `admin-one` and `fence-admin-one` are two."""
    return Office(careful)


def test_who_counts_as_one(office: Office) -> None:
    """One owner, who made whom, chains of it, and a third who made both: each is told as such."""
    office.make("admin-one", "mine")
    office.make("admin-one", "bob", "bob@example.com")
    office.make("bob", "carl", "Carl@example.com")
    office.make("admin-one", "dora", "dora@example.com")
    office.make("admin-one", "second", "bob@example.com")
    assert (
        office.refused("admin-one", "mine") == "`mine` counts as one with `admin-one`: both are `admin-one`'s"
    )
    assert (
        office.refused("bob", "second") == "`second` counts as one with `bob`: both are `bob@example.com`'s"
    )
    made = "made `bob`, or what that was made with"
    assert (
        office.refused("admin-one", "bob")
        == f"`bob` counts as one with `admin-one`: the owner of `admin-one` (`admin-one`) {made}"
    )
    assert (
        office.refused("bob", "admin-one")
        == f"`admin-one` counts as one with `bob`: the owner of `admin-one` (`admin-one`) {made}"
    )
    assert "the owner of `admin-one` (`admin-one`) made `carl`, or what that" in office.refused(
        "admin-one", "carl"
    ), "a chain"
    assert "the owner of `bob` (`bob@example.com`) made `carl`, or what that" in office.refused("carl", "bob")
    assert "`admin-one` made both, or what they were made with" in office.refused("dora", "carl")
    assert office.ask("admin-one", "DELETE", "/v1/tokens/bob").status_code == 200
    assert "`bob@example.com` made both" not in office.refused("dora", "carl")
    assert "(`admin-one`) made `carl`" in office.refused("admin-one", "carl"), (
        "although the one between is revoked"
    )
    office.passes("carl", "fence-admin-one")
    (newest,) = office.ask("dora", "GET", "/v1/revisions?limit=1").json()["items"]
    assert newest["comment"].endswith("approved by fence-admin-one: case 4711")


def test_naming_another_owner_parts_nobody(office: Office) -> None:
    """Who makes a token has it in hand, whoever it is said to be; what is said of it is shown."""
    made = office.make("admin-one", "stranger", "stranger@example.com")
    assert (made["owner"], made["makers"]) == ("stranger@example.com", ["admin-one"])
    assert "made `stranger`" in office.refused("admin-one", "stranger")
    made = office.make("stranger", "puppet")
    assert (made["owner"], made["makers"]) == ("stranger@example.com", ["admin-one", "stranger@example.com"])
    assert "made `puppet`" in office.refused("admin-one", "puppet")
    listed = {one["name"]: one for one in office.ask("admin-one", "GET", "/v1/tokens").json()["items"]}
    assert listed["puppet"]["makers"] == made["makers"]
    entries = office.ask("admin-one", "GET", "/v1/audit?action=token.create").json()["items"]
    assert "owner stranger@example.com" in entries[0]["detail"]
    for wrong in ("", "*", "*x", "a b", "\u00e9", "x" * 401, 7):
        body = {"name": "wrong", "role": "admin", "owner": wrong}
        problem(office.ask("admin-one", "POST", "/v1/tokens", json=body), 422)
        problem(office.ask("admin-one", "POST", "/v1/tokens/puppet:rotate", json={"owner": wrong}), 422)


def test_a_new_text_is_in_new_hands(office: Office) -> None:
    """Who rotates a token has it; who made the text before has it no longer, and their approvals by it end with it."""
    office.make("admin-one", "root")
    office.make("admin-one", "bob", "bob@example.com")
    _install(office, "eve-admin", "eve@example.com")
    office.refused("admin-one", "bob")
    made = office.rotate("eve-admin", "bob")
    assert (made["owner"], made["makers"]) == ("bob@example.com", ["eve@example.com"])
    assert office.delete("admin-one").status_code == 409, "what was approved by the old text"
    office.passes("admin-one", "bob")
    _restore(office)
    assert "(`eve@example.com`) made `bob`" in office.refused("eve-admin", "bob")
    made = office.rotate("admin-one", "bob", owner="dora@example.com")
    assert (made["owner"], made["makers"]) == ("dora@example.com", ["admin-one"])
    assert "(`admin-one`) made `bob`" in office.refused("admin-one", "bob")
    detail = office.ask("admin-one", "GET", "/v1/audit?action=token.rotate").json()["items"][0]["detail"]
    assert "owner dora@example.com" in detail


def test_what_nobody_wrote_down_counts_as_one_with_everybody(office: Office) -> None:
    """A token from before, and what is made with it, approve of nothing and get nothing approved, until it is written down."""
    _install(office, "old", None)
    made = office.make("old", "child", "child@example.com")
    assert (made["owner"], made["makers"]) == ("child@example.com", ["*"])
    listed = {one["name"]: one for one in office.ask("admin-one", "GET", "/v1/tokens").json()["items"]}
    assert listed["old"]["owner"] is None
    assert "`old` counts as one with everybody: in whose hands it is was not written down" in office.refused(
        "fence-admin-one", "old"
    )
    warned = office.ask("admin-one", "GET", "/v1/status").json()["warnings"]
    assert [
        one
        for one in warned
        if one.startswith("nobody wrote down in whose hands these tokens are: `child`, `old`. ")
    ]
    assert "`child` counts as one with everybody" in office.refused("admin-one", "child")
    assert "`old` counts as one with everybody" in office.refused("old", "fence-admin-one")
    assert office.rotate("admin-one", "old")["owner"] is None, "a rotation alone says nothing of the owner"
    office.rotate("admin-one", "old", owner="ann@example.com")
    office.passes("fence-admin-one", "old")


def test_an_approval_ends_with_its_text(office: Office) -> None:
    """Not with its name: another text of the same token goes on, and what was approved by the one that is revoked ends."""
    _install(office, "bob", "bob@example.com")
    made = office.rotate("bob", "bob", grace_seconds=600)
    body = {"sha256": office.delete("admin-one").json()["fingerprint"], "reason": "x"}
    assert office.ask("bob", "POST", "/v1/fence-approvals", json=body).status_code == 201
    assert office.ask("admin-one", "DELETE", f"/v1/tokens/{made['id']}").status_code == 200
    assert problem(office.delete("admin-one"), 409).count("does not count") == 0, (
        "it has ended, and is not spoken of"
    )


def test_accounts_are_written_unlike() -> None:
    """Whatever a provider's subjects hold, no two are one account."""
    subjects = ["a", "a#b", "a%23b", "a/b", "a b", "a%20b", "\ud800", "\u00e9", "A"]
    issuers = ["https://x.example", "https://x.example/realms/a"]
    found = {account_of({"sub": subject}, issuer) for subject in subjects for issuer in issuers}
    assert len(found) == len(subjects) * len(issuers)
    assert all(one.isascii() and one.isprintable() for one in found)


def test_the_first_token_and_the_link_of_serve_are_one(database_url: str) -> None:
    """Whoever started it all has both, and is nobody else's second person."""

    async def first() -> str:
        database = Database(database_url)
        made = await tokens.bootstrap(database)
        await database.dispose()
        assert made is not None
        assert (made.token.owner, made.token.makers) == ("local-admin", ())
        return made.text

    text = asyncio.run(first())
    with (
        Server(database_url, sign_in="started", fence_approvals=1) as server,
        httpx.Client(base_url=server.url, trust_env=False, headers={"Accept": "text/html"}) as browser,
    ):
        follow(browser, "/sign-in/started")
        page = browser.get("/access").text
        csrf = page.split('name="csrf" value="', 1)[1].split('"', 1)[0]
        form = {"csrf": csrf, "name": "made", "role": "admin"}
        assert browser.post("/access/tokens", data=form).status_code == 201
        headers = {"Authorization": f"Bearer {text}"}
        found = httpx.get(f"{server.url}/v1/tokens", headers=headers, trust_env=False).json()["items"]
        assert {(one["name"], one["owner"], tuple(one["makers"])) for one in found} == {
            ("admin", "local-admin", ()),
            ("made", "local-admin", ("local-admin",)),
        }


def _install(office: Office, name: str, owner: str | None) -> None:
    """A token that no other made; without an owner one from before owners were written down."""
    office.make("admin-one", name)
    with psycopg.connect(office.api.database_url, autocommit=True) as database:
        database.execute("UPDATE tokens SET owner = %s, makers = '{}' WHERE name = %s", [owner, name])
    assert (
        office.api.admin.delete("/v1/people/nobody/sessions").status_code == 200
    )  # control looks at its database


def _restore(office: Office) -> None:
    """The rule as it was."""
    assert office.api.operator.put(RULE, json=GDPR).status_code in (200, 201)
