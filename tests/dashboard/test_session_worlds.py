"""Random histories of signing in and out against the model of the documentation: with time, restarts, and the database away."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import Any

import httpx
import psycopg
import pytest

from gtm.core.model.access import Role
from gtm.dashboard.sign_in.identity import Identity
from gtm.dashboard.sign_in.oidc import CALLBACK, Attempt, OidcError
from tests.api.conftest import TOKENS, Server
from tests.dashboard.conftest import HTML, follow
from tests.dashboard.session_model import HOUR, LINK_LASTS, Browser, Link, Model, Text
from tests.effort import examples

STEPS = 35
ADMIN = {"Authorization": f"Bearer {TOKENS[Role.ADMIN]}"}


class Provider:
    """Says of whoever comes that they are ann: what providers say and what is believed of it are other tests' matter."""

    issuer = "https://login.example.com"

    async def begin(self) -> Attempt:
        return Attempt(f"{self.issuer}/auth", "state", "nonce", "verifier")

    async def finish(self, code: str, *_: object, **_more: object) -> dict[str, Any]:
        if code != "good":
            raise OidcError("no")
        return {"sub": "7", "email": "ann@example.com", "email_verified": True, "groups": ["ops"]}


def identity(_: str) -> Identity:
    """Who says who people are."""
    return Identity(Provider(), (("operator", "group", "ops"),))  # type: ignore[arg-type]


class World:
    """Control as it runs, its database, browsers; and the model beside them."""

    def __init__(self, url: str, seed: int) -> None:
        self.random = random.Random(seed)
        self.url = url
        self.model = Model()
        self.clients: list[tuple[httpx.Client, Browser]] = []
        self.texts: list[tuple[Text, str]] = []
        self.paths: list[tuple[Link, str]] = []
        self.names = 0
        self.away = False
        self.stack = ExitStack()
        self.start()

    def start(self) -> None:
        """Control, anew: links that are open are known to nobody any more."""
        self.stack.close()
        for link, _ in self.paths:
            link.used = True
        self.started = Link("local-admin", None, self.model.passed + LINK_LASTS)
        secret = f"started{self.random.random()}"
        self.paths.append((self.started, f"/sign-in/{secret}"))
        self.server = self.stack.enter_context(Server(self.url, identity=identity, sign_in=secret))
        before = self.model.passed
        links = self.server.app.state.context.links
        links.clock = lambda: time.monotonic() + self.model.passed - before
        self.admin = self.stack.enter_context(self.client(ADMIN))
        for client, _ in self.clients:
            client.base_url = httpx.URL(self.server.url)

    def client(self, headers: dict[str, str] | None = None) -> httpx.Client:
        return httpx.Client(base_url=self.server.url, trust_env=False, timeout=60, headers=headers or HTML)

    def close(self) -> None:
        self.stack.close()
        for client, _ in self.clients:
            client.close()

    # What happens

    def token(self) -> None:
        """Somebody gets a token, perhaps for an hour."""
        self.names += 1
        body: dict[str, Any] = {"name": f"t{self.names}", "role": self.random.choice(["viewer", "operator"])}
        text = Text(str(body["name"]))
        if self.random.random() < 0.4:
            ends = datetime.now(UTC).timestamp() + HOUR
            body["expires_at"] = datetime.fromtimestamp(ends, UTC).isoformat()
            text.ends = self.model.now + HOUR
        made = self.admin.post("/v1/tokens", json=body)
        assert made.status_code == 201, made.text
        self.texts.append((text, made.json()["token"]))

    def by_token(self) -> None:
        if not self.texts:
            return self.token()
        text, secret = self.random.choice(self.texts)
        client = self.client()
        answer = client.post("/sign-in", data={"token": secret})
        if self.model.works(text):
            self.has_begun(client, answer, text.name, text)
        else:
            self.is_refused(client, answer, 401, 429)
        return None

    def by_provider(self) -> None:
        client = self.client()
        client.get("/sign-in/oidc")
        answer = client.get(CALLBACK, params={"state": "state", "code": "good"})
        if answer.status_code == 429:  # so many have tried from this address in a minute
            return
        self.has_begun(client, answer, "ann@example.com", None)

    def link(self) -> None:
        """Somebody whose token counts makes a link; one whose token does not gets none."""
        if not self.texts:
            return
        text, secret = self.random.choice(self.texts)
        made = self.admin.post("/v1/sign-in-links", headers={"Authorization": f"Bearer {secret}"})
        assert made.status_code == (201 if self.model.works(text) else 401), made.text
        if made.status_code == 201:
            self.paths.append((Link(text.name, text, self.model.passed + LINK_LASTS), made.json()["path"]))

    def look(self) -> None:
        """A program looks at what a link shows, and sends what it can: nobody is signed in, and the link is as good as it was."""
        link, path = self.random.choice(self.paths)
        client = self.client()
        statuses = (200,) if self.model.good(link) else (403, 429)
        assert client.get(path).status_code in statuses
        assert client.head(path).status_code in statuses
        other = self.client()
        for sender in (other, client):
            assert sender.post(path, data={"csrf": "0" * 64}).status_code == 403
            assert "gtm" not in sender.cookies
            sender.close()

    def follow(self) -> None:
        link, path = self.random.choice(self.paths)
        client = self.client()
        answer = follow(client, path)
        if self.model.follow(link):
            self.has_begun(client, answer, link.name, link.text)
        else:
            self.is_refused(client, answer, 403, 429)

    def in_vain(self) -> None:
        """Any number of wrong tokens: nobody is let in, nobody else is kept out."""
        client = self.client()
        for _ in range(self.random.choice([1, 12])):
            answer = client.post("/sign-in", data={"token": "gtm_0_wrong"})
            assert answer.status_code in (401, 429)
        client.close()

    def sign_out(self) -> None:
        if self.clients:
            client, one = self.random.choice(self.clients)
            if self.model.signed_in(one):
                answer = client.post("/sign-out", data={"csrf": self.csrf(client)})
                assert answer.status_code == 303
                assert "gtm" not in client.cookies
                by_provider = "@" in one.name
                assert answer.headers["location"] == f"/sign-in{'?out=provider' if by_provider else ''}"
                text = client.get(answer.headers["location"]).text
                assert ("sign out there, too" in text) is by_provider
            one.ended = True

    def end_one(self) -> None:
        """An admin ends the session of some browser."""
        sessions = self.admin.get("/v1/sessions").json()["items"]
        going_on = [one for one in self.model.browsers if self.model.signed_in(one)]
        assert sorted(one["name"] for one in sessions) == sorted(one.name for one in going_on)
        if sessions:
            name = self.random.choice(sessions)["name"]
            ended = self.admin.delete(f"/v1/people/{name}/sessions").json()["ended"]
            assert ended == self.model.end_all(name)

    def revoke(self) -> None:
        if self.texts:
            name = self.random.choice(self.texts)[0].name
            assert self.admin.delete(f"/v1/tokens/{name}").status_code == 200
            for text, _ in self.texts:
                if text.name == name and self.model.works(text):
                    text.ends = self.model.now

    def rotate(self) -> None:
        """A new text; the old ones end after the grace at the latest."""
        if not self.texts:
            return
        chosen = self.random.choice(self.texts)[0]
        grace = self.random.choice([0.0, 600.0])
        mine = [text for text, _ in self.texts if text.name == chosen.name]
        newest = mine[-1]
        answer = self.admin.post(f"/v1/tokens/{chosen.name}:rotate", json={"grace_seconds": grace})
        if answer.status_code == 404:
            assert not any(map(self.model.works, mine)) or newest.ends is not None
            return
        assert answer.status_code == 201, answer.text
        kept = newest.ends
        for text in mine:
            if self.model.works(text):
                until = self.model.now + grace
                text.ends = until if text.ends is None else min(text.ends, until)
        self.texts.append((Text(chosen.name, kept), answer.json()["token"]))

    def pass_time(self) -> None:
        """Seconds or hours; sometimes the clock on the wall steps back."""
        gone = self.random.choice([30.0, 200.0, 400.0, 1800.0, 5 * HOUR, 7 * HOUR])
        back = self.random.choice([0.0, 0.0, 0.0, 60.0, 2 * HOUR])
        self.model.passed += gone
        self.model.now += gone - back
        with psycopg.connect(self.url, autocommit=True) as database:
            for table, columns in (
                ("sessions", ("created_at", "seen_at", "expires_at")),
                ("tokens", ("created_at", "expires_at", "revoked_at")),
            ):
                moved = ", ".join(f"{one} = {one} - make_interval(secs => {gone - back})" for one in columns)
                database.execute(f"UPDATE {table} SET {moved}")  # type: ignore[arg-type]  # noqa: S608
        self.refresh()

    def refresh(self) -> None:
        """Have control look at its database."""
        assert self.admin.delete("/v1/people/nobody/sessions").json() == {"ended": 0}

    def restart(self) -> None:
        self.start()

    def database_away(self) -> None:
        """Who is signed in stays so; nobody signs in; whoever signs out does in their browser; a link is not used up by it."""
        name = httpx.URL(self.url).path[1:]
        with psycopg.connect(self.url.replace(f"/{name}?", "/postgres?"), autocommit=True) as other:
            other.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")  # type: ignore[arg-type]
            other.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [name])
            try:
                self.check()
                working = [secret for text, secret in self.texts if self.model.works(text)]
                if working:
                    answer = self.client().post("/sign-in", data={"token": working[-1]})
                    assert answer.status_code == 503, answer.text
                    assert "set-cookie" not in answer.headers
                open_links = [(link, path) for link, path in self.paths if self.model.good(link)]
                for link, path in open_links[:1]:
                    assert follow(self.client(), path).status_code == 503
                    link.ends = self.model.passed + LINK_LASTS
                signed_in = [(client, one) for client, one in self.clients if self.model.signed_in(one)]
                for client, one in signed_in[:1]:
                    answer = client.post("/sign-out", data={"csrf": self.csrf(client)})
                    assert answer.status_code == 503
                    assert "signed out in this browser" in answer.text
                    assert "gtm" not in client.cookies
                    self.clients.remove((client, one))
                    client.close()
            finally:
                other.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")  # type: ignore[arg-type]
        while self.admin.delete("/v1/people/nobody/sessions").status_code != 200:
            pass

    # What is seen

    def csrf(self, client: httpx.Client) -> str:
        text = client.get("/access").text
        return text.split('name="csrf" value="', 1)[1].split('"', 1)[0]

    def has_begun(self, client: httpx.Client, answer: httpx.Response, name: str, text: Text | None) -> None:
        assert answer.status_code == 303, answer.text
        assert "gtm" in client.cookies
        self.clients.append((client, self.model.begin(name, text)))

    def is_refused(self, client: httpx.Client, answer: httpx.Response, *statuses: int) -> None:
        assert answer.status_code in statuses, answer.text
        assert "gtm" not in client.cookies
        client.close()

    def check(self) -> None:
        """Each browser is signed in just if the model says so."""
        for client, one in self.clients:
            status = client.get("/access").status_code
            assert status == (200 if self.model.signed_in(one) else 303), (one, self.model.now)

    def steps(self) -> list[Callable[[], None]]:
        often = [
            self.token,
            self.by_token,
            self.by_token,
            self.by_provider,
            self.link,
            self.look,
            self.follow,
        ]
        return [
            *often,
            *(self.sign_out, self.end_one, self.revoke, self.rotate, self.pass_time, self.pass_time),
            *(self.in_vain, self.restart, self.database_away),
        ]


@pytest.fixture
def worlds(prepared_url: str) -> Iterator[Callable[[int], World]]:
    """Worlds by seed."""
    made: list[World] = []

    def of(seed: int) -> World:
        made.append(World(prepared_url, seed))
        return made[-1]

    yield of
    for one in made:
        one.close()


@pytest.mark.drill
@pytest.mark.endurance
@pytest.mark.parametrize("seed", range(examples(24, 3)))
def test_who_is_signed_in(worlds: Callable[[int], World], seed: int) -> None:
    """After any history, just those whom the documentation says."""
    world = worlds(seed)
    done = []
    for _ in range(STEPS):
        step = world.random.choice(world.steps())
        done.append(step.__name__)
        try:
            step()
            world.check()
        except AssertionError as error:
            raise AssertionError(f"after {done}: {error}") from error


def test_nobody_crowds_others_out(worlds: Callable[[int], World]) -> None:
    """Who signs in again and again ends sessions of their own."""
    world = worlds(0)
    world.by_provider()
    world.token()
    for _ in range(25):
        world.by_token()
    world.check()
    assert sum(world.model.signed_in(one) for _, one in world.clients) == 21
    found = world.admin.get("/v1/audit", params={"action": "session.end"}).json()["items"]
    assert len(found) == 5
    assert {one["who"] for one in found} == {"t1"}
