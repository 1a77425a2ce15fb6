"""Random worlds of people, tokens, makers and approvals against the API, beside the model of the documentation; and one hand alone, which never opens a fence."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from html import unescape
from itertools import count
from typing import Any

import httpx
import psycopg
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DataObject

from gtm.core.model.access import Role
from gtm.dashboard.sign_in.identity import Identity
from gtm.dashboard.sign_in.oidc import CALLBACK, Attempt
from tests.api.conftest import GDPR, POLICY, TOKENS, Server
from tests.api.hands_model import Credential, Model
from tests.api.test_fences import REASON, RULE
from tests.dashboard.conftest import follow
from tests.effort import examples

HTML = {"Accept": "text/html"}
_numbers = count()


class Provider:
    """Says of whoever comes what the code says: their subject and address. How providers are believed is other tests' matter."""

    issuer = "https://login.example.com"

    async def begin(self) -> Attempt:
        return Attempt(f"{self.issuer}/auth", "state", "nonce", "verifier")

    async def finish(self, code: str, *_: object, **_more: object) -> dict[str, Any]:
        subject, _, address = code.partition("|")
        return {"sub": subject, "email": address, "email_verified": True, "groups": ["ops"]}


def identity(_: str) -> Identity:
    """Who says who people are."""
    return Identity(Provider(), (("admin", "group", "ops"),))  # type: ignore[arg-type]


@pytest.fixture
def server(prepared_url: str) -> Iterator[Server]:
    """Control where somebody else has to approve of what opens a fence, with a rule."""
    with Server(prepared_url, identity=identity, fence_approvals=1) as running:
        with httpx.Client(base_url=running.url, headers=_bearer(TOKENS[Role.OPERATOR])) as client:
            done = client.post("/v1/policy:apply", json={"policy": POLICY})
            assert done.status_code == 200, done.text
        yield running


def _bearer(text: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {text}"}


class World:
    """The real thing, what is known of it, and the model: each step is taken by both."""

    def __init__(self, server: Server, url: str, data: DataObject) -> None:
        self.server, self.url, self.data = server, url, data
        self.mark = next(_numbers)
        self.model = Model()
        self.api = httpx.Client(base_url=server.url, trust_env=False, timeout=60)
        self.operator = _bearer(TOKENS[Role.OPERATOR])
        self.number = count()
        first = Credential("admin-one", "admin-one")
        self.texts: dict[Credential, str] = {first: TOKENS[Role.ADMIN]}
        """Credential → a token's text."""
        self.browsers: dict[Credential, list[httpx.Client]] = {}
        """Credential → who is signed in with it, or as it."""
        self.people: list[Credential] = []
        with psycopg.connect(url, autocommit=True) as database:
            database.execute("DELETE FROM fence_approvals")
            database.execute("DELETE FROM sessions")
            database.execute("DELETE FROM accounts")
            database.execute("DELETE FROM tokens WHERE name LIKE 't%'")
        self.refresh()

    def close(self) -> None:
        for one in (self.api, *(one for several in self.browsers.values() for one in several)):
            one.close()

    def refresh(self) -> None:
        """Have control look at its database."""
        headers = _bearer(TOKENS[Role.ADMIN])
        assert self.api.delete("/v1/people/nobody/sessions", headers=headers).status_code == 200

    # What is drawn

    def draw(self, strategy: st.SearchStrategy[Any]) -> Any:
        return self.data.draw(strategy)

    def owner(self) -> str | None:
        """Whom somebody names as an owner: people by any of their names, in any case."""
        known = ["ci", "bob", "Ann@example.com", "ann@new.example", "bob@example.com", "local-admin"]
        found: str | None = self.draw(st.sampled_from([None, *known]))
        return found

    def one(self, *, admin: bool = False, known: Callable[[Credential], bool] = lambda _: True) -> Credential:
        """Something that works, to do a thing with."""
        able = [one for one in (*self.texts, *self.people) if one.works and known(one)]
        found: Credential = self.draw(
            st.sampled_from([one for one in able if not admin or one.role == "admin"])
        )
        return found

    def ways(self, one: Credential) -> tuple[str, httpx.Client | None]:
        """How a credential is used: at the API by its text, or in a browser that signed in with it."""
        browsers: list[httpx.Client | None] = list(self.browsers.get(one, []))
        chosen = self.draw(st.sampled_from([None, *browsers] if one in self.texts else browsers))
        return self.texts.get(one, ""), chosen

    # What happens: tokens

    def token(self, maker: Credential | None = None) -> Credential:
        """Somebody makes a token, perhaps for another."""
        maker = maker or self.one(admin=True)
        name, owner = f"t{self.mark}-{next(self.number)}", self.owner()
        body = {"name": name, "role": self.draw(st.sampled_from(["admin", "fence-admin"]))}
        text = self.text(maker, "/v1/tokens", "/access/tokens", body | ({"owner": owner} if owner else {}))
        return self.keep(Credential(name, owner or maker.owner, maker, role=body["role"]), text)

    def rotate(self, maker: Credential | None = None) -> None:
        """Somebody replaces a text: at once, or with a grace in which the old one works yet."""
        mine = [one for one in self.texts if one.works and one.name.startswith("t")]
        if not mine:
            return
        maker = maker or self.one(admin=True)
        old: Credential = self.draw(st.sampled_from(mine))
        newest = [one for one in mine if one.name == old.name][-1]
        owner, grace = self.owner(), self.draw(st.sampled_from([0, 3600]))
        body = {"grace_seconds": grace} | ({"owner": owner} if owner else {})
        form = {"grace": str(grace)} | ({"owner": owner} if owner else {})
        path = f"/{old.name}"
        text = self.text(maker, f"/v1/tokens{path}:rotate", f"/access/tokens{path}/rotate", body, form)
        if grace == 0:
            self.ended(old.name)
        made = Credential(old.name, owner or newest.owner, maker, role=newest.role)
        self.keep(made, text)

    def text(
        self,
        maker: Credential,
        path: str,
        page: str,
        body: dict[str, Any],
        form: dict[str, str] | None = None,
    ) -> str:
        """What a token is made with says its text."""
        secret, browser = self.ways(maker)
        if browser is None:
            made = self.api.post(path, json=body, headers=_bearer(secret))
            assert made.status_code == 201, made.text
            return str(made.json()["token"])
        made = browser.post(page, data={"csrf": self.csrf(browser), **(form or body)})
        assert made.status_code == 201, made.text
        return re.findall(r"gtm_[0-9a-f]{10}_[\w-]+", made.text)[0]

    def keep(self, made: Credential, text: str) -> Credential:
        self.texts[made] = text
        return made

    def beside(self, *, known: bool = False) -> None:
        """A token that no other made: beside the database or, unless it is `known` whose, before owners were written down."""
        made = self.token(self.one(admin=True, known=lambda one: one.name == "admin-one"))
        old = not known and self.draw(st.booleans())
        with psycopg.connect(self.url, autocommit=True) as database:
            owner = None if old else made.owner
            database.execute(
                "UPDATE tokens SET owner = %s, makers = '{}' WHERE name = %s", [owner, made.name]
            )
        self.refresh()
        made.owner, made.made_with = (None if old else made.owner), None

    def revoke(self) -> None:
        """All of a name, or one text by its id, which ends what was approved with it."""
        mine = [one for one in self.texts if one.works and one.name.startswith("t")]
        if mine:
            one: Credential = self.draw(st.sampled_from(mine))
            whole = self.draw(st.booleans())
            target = one.name if whole else self.texts[one].split("_")[1]
            headers = _bearer(TOKENS[Role.ADMIN])
            assert self.api.delete(f"/v1/tokens/{target}", headers=headers).status_code == 200
            if whole:
                self.ended(one.name)
            else:
                one.works = False

    def ended(self, name: str) -> None:
        for one in self.texts:
            if one.name == name:
                one.works = False

    # People

    def sign_in(self) -> None:
        """Somebody comes by the provider, as they are called there now: addresses change, and are given to others."""
        subject = self.draw(st.sampled_from(["7", "8", "a b/#"]))
        address = self.draw(st.sampled_from(["ann@example.com", "ann@new.example", "bob@example.com"]))
        client = httpx.Client(base_url=self.server.url, trust_env=False, timeout=60, headers=HTML)
        client.get("/sign-in/oidc")
        answer = client.get(CALLBACK, params={"state": "state", "code": f"{subject}|{address}"})
        assert answer.status_code == 303, answer.text
        made = self.model.signs_in(address, subject)
        self.people.append(made)
        self.browsers[made] = [client]

    def sign_in_by_token(self, one: Credential | None = None) -> None:
        """With a token's text, or by a link."""
        one = one or self.draw(st.sampled_from([one for one in self.texts if one.works]))
        client = httpx.Client(base_url=self.server.url, trust_env=False, timeout=60, headers=HTML)
        if self.draw(st.booleans()):
            answer = client.post("/sign-in", data={"token": self.texts[one]})
        else:
            made = self.api.post("/v1/sign-in-links", headers=_bearer(self.texts[one])).json()
            answer = follow(client, made["path"])
        assert answer.status_code == 303, answer.text
        self.browsers.setdefault(one, []).append(client)

    def sign_out(self) -> None:
        """Of who came without a token, what they approved of ends with that session."""
        mine = [one for one in self.people if one.works]
        if mine:
            one: Credential = self.draw(st.sampled_from(mine))
            [browser] = self.browsers[one]
            assert browser.post("/sign-out", data={"csrf": self.csrf(browser)}).status_code == 303
            one.works = False

    def csrf(self, browser: httpx.Client) -> str:
        return re.findall(r'name="csrf" value="([0-9a-f]+)"', browser.get("/access").text)[0]

    # Approvals

    def fingerprint(self) -> str:
        """What the change goes by that everybody tries."""
        answer = self.api.delete(RULE, headers=self.operator)
        assert answer.status_code == 409, answer.text
        return str(answer.json()["fingerprint"])

    def approve(self, by: Credential | None = None) -> None:
        by = by or self.one()
        body = {"sha256": self.fingerprint(), "reason": "case 4711"}
        secret, browser = self.ways(by)
        if browser is None:
            done = self.api.post("/v1/fence-approvals", json=body, headers=_bearer(secret))
            assert done.status_code == 201, done.text
            assert (done.json()["owner"], done.json()["objection"] is None) == (by.owner, False)
        else:
            draft = self.draft(browser)
            given = {"fingerprint": body["sha256"], "approval": "case 4711"}
            done = browser.post("/policy/draft", data={**draft, "do": "approve", **given})
            assert done.status_code == 303, done.text
        self.model.approve(by)

    def draft(self, browser: httpx.Client) -> dict[str, str]:
        text = browser.get("/policy/residency-rules/gdpr/delete").text
        found = re.search(r'name="draft" value="([^"]*)"', text)
        assert found, text
        return {"draft": unescape(found[1]), "text": "", "csrf": self.csrf(browser)}

    def try_it(self, author: Credential | None = None) -> bool:
        """Somebody makes the change: it passes just if the model says so. Then all is as before, but for the revision."""
        author = author or self.one()
        expected = self.model.passes(author)
        event(f"passes: {expected}")
        if not expected and any(
            one.by.works and one.round == self.model.round for one in self.model.approvals.values()
        ):
            event("refused though approved")
        secret, browser = self.ways(author)
        if browser is None:
            self.said(author, secret)
            done = self.api.delete(RULE, params=REASON, headers=_bearer(secret))
            assert done.status_code == (200 if expected else 409), (author, done.text)
        else:
            forced = {"reason": "it ended", "force_reason": "counsel agreed"}
            done = browser.post("/policy/draft", data={**self.draft(browser), "do": "apply", **forced})
            assert done.status_code == (303 if expected else 409), (author, done.text)
        if expected:
            back = self.api.put(RULE, json=GDPR, headers=self.operator)
            assert back.status_code in (200, 201), back.text
            self.model.round += 1
        return expected

    def said(self, author: Credential, secret: str) -> None:
        """The list says of each approval what counts for this author, whether it stands or not."""
        items = self.api.get("/v1/fence-approvals", headers=_bearer(secret)).json()["items"]
        latest = {item["approver"]: item for item in reversed(items)}
        for name, consent in self.model.approvals.items():
            against = self.model.one_hand(author, consent.by)
            assert (latest[name]["objection"] is not None) is against, (author, latest[name])

    def steps(self) -> list[Callable[[], object]]:
        return [
            *(self.token, self.token, self.rotate, self.beside, self.revoke),
            *(self.sign_in, self.sign_in_by_token, self.sign_out),
            *(self.approve, self.approve, self.approve, self.try_it, self.try_it, self.try_it),
        ]


LOOSE = settings(
    max_examples=examples(60, 6),
    deadline=None,
    suppress_health_check=[
        HealthCheck.function_scoped_fixture,
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
    ],
)


@LOOSE
@given(data=st.data())
def test_just_what_nobody_has_in_both_hands_passes(
    server: Server, prepared_url: str, data: DataObject
) -> None:
    """After any history of tokens, people and approvals, an approval counts for a change just if the documentation says so."""
    world = World(server, prepared_url, data)
    try:
        for _ in range(data.draw(st.integers(4, 25))):
            data.draw(st.sampled_from(world.steps()))()
    finally:
        world.close()


@pytest.mark.drill
@LOOSE
@given(data=st.data())
def test_whatever_people_are_called(server: Server, prepared_url: str, data: DataObject) -> None:
    """Accounts that come by several names, names that several accounts come by, and tokens of these names: who is one stays one."""
    world = World(server, prepared_url, data)
    try:
        for _ in range(2):
            world.beside(known=True)
        for _ in range(data.draw(st.integers(2, 4))):
            world.sign_in()
        able = [*world.people, *(one for one in world.texts if one.name != "admin-one")]
        for _ in range(4):
            by, author = (data.draw(st.sampled_from(able)) for _ in range(2))
            world.approve(by)
            world.try_it(author)
    finally:
        world.close()


@LOOSE
@given(data=st.data())
def test_one_hand_never_opens_a_fence(server: Server, prepared_url: str, data: DataObject) -> None:
    """Who begins with one admin token, makes, takes over and uses whatever that gives them, never opens a fence alone."""
    world = World(server, prepared_url, data)
    try:
        world.beside()
        other = next(one for one in world.texts if one.name != "admin-one")
        mine = {one for one in world.texts if one is not other}

        def any_of_mine(*, admin: bool = False) -> Credential:
            return world.one(admin=admin, known=lambda one: one in mine)

        for _ in range(data.draw(st.integers(4, 20))):
            step = data.draw(
                st.sampled_from(["token", "rotate", "sign_in", "approve", "approve", "try", "try"])
            )
            held = set(world.texts)
            if step == "token":
                world.token(any_of_mine(admin=True))
            elif step == "rotate":
                world.rotate(any_of_mine(admin=True))
            elif step == "sign_in":
                world.sign_in_by_token(any_of_mine())
            elif step == "approve":
                world.approve(any_of_mine())
            else:
                assert not world.try_it(any_of_mine())
            mine |= set(world.texts) - held
        able = [one for one in world.texts if one in mine and one.works]  # in the same order each time
        for one in able:
            world.approve(one)
        for one in able:
            assert not world.try_it(one)
    finally:
        world.close()


def test_a_new_address_makes_nobody_two(server: Server, prepared_url: str) -> None:
    """Who comes by another name is the same account; a name that others have come by since is theirs too, and nobody's less."""
    admin = httpx.Client(base_url=server.url, trust_env=False, headers=_bearer(TOKENS[Role.ADMIN]))
    made = admin.post("/v1/tokens", json={"name": "ann", "role": "admin", "owner": "ANN@example.com"}).json()
    with psycopg.connect(prepared_url, autocommit=True) as database:
        database.execute("UPDATE tokens SET makers = '{}' WHERE name = 'ann'")
    token = httpx.Client(base_url=server.url, trust_env=False, headers=_bearer(made["token"]))
    browser = httpx.Client(base_url=server.url, trust_env=False, timeout=60, headers=HTML)

    def comes(subject: str, address: str) -> None:
        browser.get("/sign-in/oidc")
        answer = browser.get(CALLBACK, params={"state": "state", "code": f"{subject}|{address}"})
        assert answer.status_code == 303, answer.text

    def refused() -> str:
        """What is said against what the browser approves of, as a change by the token."""
        named = token.delete(RULE, params=REASON).json()["fingerprint"]
        text = browser.get("/policy/residency-rules/gdpr/delete").text
        fields = {name: re.findall(f'name="{name}" value="([^"]*)"', text)[0] for name in ("csrf", "draft")}
        fields["draft"] = unescape(fields["draft"])
        given = {"text": "", "do": "approve", "fingerprint": named, "approval": "case 4711"}
        assert browser.post("/policy/draft", data={**fields, **given}).status_code == 303
        answer = token.delete(RULE, params=REASON)
        return "" if answer.status_code == 200 else str(answer.json()["detail"])

    comes("7", "ann@example.com")
    assert "both are `ann@example.com`'s" in refused()
    comes("7", "ann@new.example")
    assert "`ann@new.example` counts as one with `ann`: both are `ann@new.example`'s" in refused()
    comes("8", "ann@example.com")
    comes("7", "ann@new.example")
    assert "`ann@new.example` counts as one with `ann`" in refused()
    comes("9", "bob@example.com")
    assert refused() == ""
    for one in (admin, token, browser):
        one.close()
