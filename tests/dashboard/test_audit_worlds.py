"""The audit log against docs/operations.md: each change leaves one entry that says who, by what, what and why; without it nothing changes."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import psycopg
import pytest

from gtm.core.model.access import Role
from tests.api.conftest import TOKENS, Api
from tests.dashboard.conftest import HTML, Person, sign_in
from tests.dashboard.test_policy_drafts import begun, carried, go
from tests.effort import examples

STEPS = 14
KEPT = [
    "regions",
    "services",
    "residency_rules",
    "tenants",
    "revisions",
    "tokens",
    "fence_approvals",
    "sessions",
]


@dataclass
class Deed:
    """What was done: by whom and by what, what it is called, to what, and why. `secrets` are texts that nobody may read in the log."""

    who: str
    via: str
    action: str
    target: str = ""
    reason: str = ""
    forced: bool = False
    secrets: tuple[str, ...] = ()


class World:
    """Somebody at the API and somebody at the dashboard, who do random things."""

    def __init__(self, api: Api, seed: int) -> None:
        self.random = random.Random(seed)
        self.api = api
        self.admin = sign_in(api.url, TOKENS[Role.ADMIN])
        self.number = 0
        self.skipped = 0
        """Entries of what a step does beside what it is about."""

    def called(self, begins: str) -> str:
        self.number += 1
        return f"{begins}{self.number}"

    # Each does one thing, or fails; the deed is what it is if it is done

    def put(self) -> tuple[httpx.Response, Deed]:
        name = self.called("t")
        found = self.api.operator.put(f"/v1/tenants/{name}", json={"weight": 2})
        return found, Deed("operator-one", "api", "tenant.put", f"tenant {name}")

    def drain(self) -> tuple[httpx.Response, Deed]:
        name = self.random.choice(["eu-west", "us-east"])
        state = self.api.viewer.get(f"/v1/regions/{name}").json()["admin_state"]
        verb = "activate" if state == "draining" else "drain"
        found = self.api.operator.post(f"/v1/regions/{name}:{verb}", params={"comment": "for repairs"})
        return found, Deed("operator-one", "api", f"region.{verb}", f"region {name}", "for repairs")

    def fence(self) -> tuple[httpx.Response, Deed]:
        rule = self.api.viewer.get("/v1/residency-rules/gdpr").json()
        mode = "enforce" if rule["mode"] == "monitor" else "monitor"
        body = {key: rule[key] for key in ("match", "allow", "legal_basis")}
        opens = mode == "monitor"
        asked = {"force": "true", "force_reason": "counsel agreed"} if opens else {}
        found = self.api.fence_admin.put(
            "/v1/residency-rules/gdpr", json={**body, "mode": mode}, params=asked
        )
        reason = "counsel agreed" if opens else ""
        return found, Deed("fence-admin-one", "api", "residency-rule.put", "gdpr", reason, forced=opens)

    def apply_draft(self) -> tuple[httpx.Response, Deed]:
        draft = begun(self.admin, "/policy/services/chat/edit?as=yaml")
        ttl = self.random.randint(31, 3000)
        lines = [line for line in draft["text"].splitlines() if not line.startswith("  ttl:")]
        draft["text"] = "\n".join([*lines, f"  ttl: {ttl}", ""])
        shown = go(self.admin, draft)
        found = go(self.admin, carried(shown.text), "apply", reason="the reason", force_reason="")
        return found, Deed("admin-one", "dashboard", "policy.apply", "service chat", "the reason")

    def roll_back(self) -> tuple[httpx.Response, Deed]:
        name = self.called("t")
        made = self.api.operator.put(f"/v1/tenants/{name}", json={})
        if made.status_code != 201:
            return made, Deed("operator-one", "api", "tenant.put")
        number = made.json()["revision"]
        before = self.api.viewer.get(f"/v1/revisions/{number - 1}")
        assert before.status_code == 200
        self.skipped = 1
        asked = {"comment": "back", "dry_run": False}
        found = self.api.operator.post(f"/v1/revisions/{number - 1}:rollback", json=asked)
        return found, Deed("operator-one", "api", "policy.rollback", f"tenant {name}", "back")

    def token(self) -> tuple[httpx.Response, Deed]:
        name = self.called("k")
        found = self.api.admin.post("/v1/tokens", json={"name": name, "role": "viewer"})
        secrets = (found.json()["token"],) if found.status_code == 201 else ()
        return found, Deed("admin-one", "api", "token.create", f"token {name}", secrets=secrets)

    def token_by_page(self) -> tuple[httpx.Response, Deed]:
        name = self.called("k")
        found = self.admin.post("/access/tokens", {"name": name, "role": "viewer", "lasts": "1"})
        return found, Deed("admin-one", "dashboard", "token.create", f"token {name}")

    def rotate(self) -> tuple[httpx.Response, Deed]:
        found = self.api.admin.post("/v1/tokens/reporter-one:rotate", json={"grace_seconds": 60})
        secrets = (found.json()["token"],) if found.status_code == 201 else ()
        return found, Deed("admin-one", "api", "token.rotate", "token reporter-one", secrets=secrets)

    def sign_in(self) -> tuple[httpx.Response, Deed]:
        with httpx.Client(base_url=self.api.url, trust_env=False, timeout=60, headers=HTML) as client:
            found = client.post("/sign-in", data={"token": TOKENS[Role.VIEWER]})
            secrets = (client.cookies.get("gtm", "-" * 40), TOKENS[Role.VIEWER])
        return found, Deed("viewer-one", "dashboard", "session.begin", "session ", secrets=secrets)

    def sign_all_out(self) -> tuple[httpx.Response, Deed]:
        person = sign_in(self.api.url, TOKENS[Role.OPERATOR])
        person.client.close()
        self.skipped = 1
        found = self.api.admin.delete("/v1/people/operator-one/sessions")
        return found, Deed("admin-one", "api", "session.end_all", "sessions of operator-one")

    def approve(self) -> tuple[httpx.Response, Deed]:
        sha = f"{self.random.getrandbits(256):064x}"
        found = self.api.fence_admin.post("/v1/fence-approvals", json={"sha256": sha, "reason": "case 1"})
        return found, Deed("fence-admin-one", "api", "fence.approve", f"change {sha}", "case 1")

    # What changes nothing

    def refused(self) -> tuple[httpx.Response, None]:
        return self.random.choice(
            [
                lambda: self.api.viewer.put("/v1/tenants/x", json={}),
                lambda: self.api.operator.put("/v1/tenants/x", json={"weight": -1}),
                lambda: self.api.operator.delete("/v1/tenants/nobody"),
                lambda: self.api.operator.delete(
                    "/v1/residency-rules/gdpr", params={"force": "true", "force_reason": "x"}
                ),
                lambda: self.api.admin.delete("/v1/tokens/nobody"),
                lambda: self.api.admin.post("/v1/tokens", json={"name": "admin-one", "role": "viewer"}),
                lambda: self.api.operator.post("/v1/tokens", json={"name": "mine", "role": "admin"}),
                lambda: self.api.admin.delete("/v1/sessions/0123456789abcdef"),
                lambda: self.api.operator.post(
                    "/v1/fence-approvals", json={"sha256": "0" * 64, "reason": "x"}
                ),
                lambda: self.admin.client.post(
                    "/access/tokens", data={"name": "x", "role": "admin"}, headers=HTML
                ),
            ]
        )(), None

    def again(self) -> tuple[httpx.Response, None]:
        """The same once more: what does not change is no change."""
        found = self.api.viewer.get("/v1/services/chat").json()
        asked = {"members": found["members"], "hostnames": found["hostnames"], "zone": found["zone"]}
        asked |= {"refusal": found["refusal"], "ttl": found["ttl"]}
        return self.api.operator.put("/v1/services/chat", json=asked), None

    def steps(self) -> list[Callable[[], tuple[httpx.Response, Deed | None]]]:
        policy = [self.put, self.drain, self.fence, self.apply_draft, self.roll_back]
        access = [self.token, self.token_by_page, self.rotate, self.sign_in, self.sign_all_out, self.approve]
        return [*policy, *access, self.refused, self.again]

    # What is seen

    def entries(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.api.admin.get("/v1/audit", params={"limit": 1000}).json()["items"]
        return found

    def held(self) -> dict[str, str]:
        """What the database holds, but for when sessions were used."""
        with psycopg.connect(self.api.database_url, autocommit=True) as database:
            known = {name for (name,) in database.execute("SELECT tablename FROM pg_tables")}
            assert known.issuperset(KEPT)
            return {
                table: str(
                    database.execute(
                        f"SELECT string_agg(md5((to_jsonb(t) - 'seen_at')::text), '' ORDER BY to_jsonb(t)::text) FROM {table} t"  # type: ignore[arg-type]  # noqa: S608
                    ).fetchone()
                )
                for table in KEPT
            }


@contextmanager
def unwritable(url: str) -> Iterator[None]:
    """The audit log takes no entry."""
    with psycopg.connect(url, autocommit=True) as database:
        database.execute(
            "CREATE FUNCTION no_entry() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no'; END $$"
        )
        database.execute(
            "CREATE TRIGGER no_entry BEFORE INSERT ON audit FOR EACH ROW EXECUTE FUNCTION no_entry()"
        )
        try:
            yield
        finally:
            database.execute("DROP TRIGGER no_entry ON audit")
            database.execute("DROP FUNCTION no_entry")


@pytest.fixture
def made(world: Api) -> Iterator[Callable[[int], World]]:
    """Worlds by seed."""
    people: list[Person] = []

    def of(seed: int) -> World:
        found = World(world, seed)
        people.append(found.admin)
        return found

    yield of
    for one in people:
        one.client.close()


@pytest.mark.drill
@pytest.mark.endurance
@pytest.mark.parametrize("seed", range(examples(18, 3)))
def test_one_entry_for_each_change(made: Callable[[int], World], seed: int) -> None:
    """Who, by what, what, to what and why; none for what was refused or changed nothing; no secret in any."""
    world = made(seed)
    for step in world.random.sample(world.steps() * 2, STEPS):
        before, held, world.skipped = world.entries(), world.held(), 0
        answer, deed = step()
        new = world.entries()[: -len(before)]
        if deed is None or answer.status_code >= 400:
            assert not new, (step.__name__, answer.text, new)
            assert world.held() == held, step.__name__
            continue
        assert len(new) == 1 + world.skipped, (step.__name__, new)
        entry = new[0]
        said = {name: entry[name] for name in ("who", "via", "action", "reason", "forced")}
        assert said == {name: getattr(deed, name) for name in said}, step.__name__
        assert deed.target in entry["target"]
        assert entry["role"] in deed.who or deed.who == "viewer-one"
        assert not any(secret in str(world.entries()) for secret in deed.secrets)
        assert world.skipped or world.held() != held


def test_what_cannot_be_written_down_is_not_done(made: Callable[[int], World]) -> None:
    """Each way to change something, while the log takes no entry: it fails, and nothing has changed."""
    world = made(0)
    world.skipped = 0
    for step in world.steps():
        if step in (world.refused, world.again, world.sign_all_out, world.apply_draft):
            continue
        held = world.held()
        with unwritable(world.api.database_url):
            try:
                answer, _ = step()
            except httpx.HTTPError:
                pass
            else:
                assert answer.status_code >= 500, (step.__name__, answer.text)
        assert world.held() == held, step.__name__
