"""Several writers on one policy: random worlds against the API and a real Postgres, beside a model made from docs/managers.md alone."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from tests.api.conftest import Api, api, region  # noqa: F401 - fixtures
from tests.effort import examples

WRITERS = (None, "terraform/a", "terraform/b", "gtm-apply/ci")
NAMES = ("tenants/t0", "tenants/t1", "tenants/t2", "tenants/t3", "regions/eu-west")
STEPS = 40


@dataclass
class World:
    """What docs/managers.md says that there is: content and manager of each resource by name, and what revisions held.

    Content is a number; the region's admin state stands apart, as nobody's.
    """

    content: dict[str, int] = field(default_factory=dict)
    manager: dict[str, str] = field(default_factory=dict)
    revisions: list[dict[str, int]] = field(default_factory=list)

    def write(
        self, by: str | None, mode: str | None, wanted: dict[str, int], written: set[str] | None
    ) -> tuple[int, set[str]]:
        """A change: what it is answered, and what of it others manage. `written` None: what it creates or updates."""
        changed = {one for one in {*wanted, *self.content} if wanted.get(one) != self.content.get(one)}
        said = {one for one in changed if one in wanted} if written is None else written
        touched = changed | (said if by else set())
        others = {one for one in touched if self.manager.get(one) not in (None, by)}
        if mode == "take_over" and by is None:
            return 400, others
        if others and mode is None:
            return 409, others
        self.manager = {one: held for one, held in self.manager.items() if one in wanted}
        if by:
            self.manager |= {one: by for one in said if one not in others or mode == "take_over"}
        if changed:
            self.revisions.append(wanted)
        self.content = dict(wanted)
        return 200, others


def document(name: str, value: int) -> dict[str, Any]:
    """A resource of some content."""
    kind, _, called = name.partition("/")
    if kind == "regions":
        return {"name": called, **region(called, cost_weight=value)}
    return {"name": called, "weight": value}


def policy(content: dict[str, int]) -> dict[str, Any]:
    """Resources by kind."""
    made: dict[str, Any] = {"regions": [], "tenants": []}
    for name, value in content.items():
        made[name.partition("/")[0]].append(document(name, value))
    return made


class Writers:
    """The real thing, and the model; every step is taken by both."""

    def __init__(self, client: httpx.Client, draw: random.Random) -> None:
        self.client = client
        self.draw = draw
        self.world = World()
        self.first = 1
        self.state = "active"
        self.overruled: list[str] = []

    def subset(self) -> dict[str, int]:
        """Some resources, often as they are."""
        names = self.draw.sample(NAMES, self.draw.randrange(len(NAMES) + 1))
        return {
            one: self.world.content[one]
            if one in self.world.content and self.draw.random() < 0.4
            else self.draw.randint(1, 4)
            for one in names
        }

    def ask(
        self, method: str, path: str, by: str | None, mode: str | None, body: Any = None
    ) -> httpx.Response:
        """A change over HTTP."""
        query = {"force": "true", "force_reason": "test"}
        if mode is not None:
            query |= {"on_managed": mode, "managed_reason": f"why {len(self.overruled)}"}
        headers = {"GTM-Managed-By": by} if by else {}
        return self.client.request(method, path, params=query, headers=headers, json=body)

    def step(self) -> None:
        """Something that somebody does."""
        before, owned = dict(self.world.content), dict(self.world.manager)
        by, mode = self.draw.choice(WRITERS), self.draw.choice((None, None, None, "override", "take_over"))
        act = self.draw.choice((self.put, self.put, self.delete, self.whole, self.part, self.own, self.back))
        act(by, mode)
        # Not the model's: whatever it thinks, what another managed is as it was where nobody said otherwise.
        if mode is None:
            now = self.read()[0]
            for name, held in owned.items():
                if held != by:
                    assert now.get(name) == before[name], (act.__name__, by, name)

    def put(self, by: str | None, mode: str | None) -> None:
        name = self.draw.choice(NAMES)
        value = self.world.content.get(name, 1) if self.draw.random() < 0.4 else self.draw.randint(1, 4)
        answer = self.ask("PUT", f"/v1/{name}", by, mode, document(name, value))
        self.compare(answer, by, mode, {**self.world.content, name: value}, {name})

    def delete(self, by: str | None, mode: str | None) -> None:
        name = self.draw.choice(NAMES)
        answer = self.ask("DELETE", f"/v1/{name}", by, mode)
        if name not in self.world.content and not (mode == "take_over" and by is None):
            assert answer.status_code == 404, answer.text
            return
        left = {one: value for one, value in self.world.content.items() if one != name}
        self.compare(answer, by, mode, left, set())

    def whole(self, by: str | None, mode: str | None) -> None:
        wanted = self.subset()
        answer = self.ask("POST", "/v1/policy:apply", by, mode, {"policy": policy(wanted)})
        self.compare(answer, by, mode, wanted, set(wanted))

    def part(self, by: str | None, mode: str | None) -> None:
        wanted = self.subset()
        gone = [one for one in self.draw.sample(NAMES, 2) if one not in wanted]
        named = [{"kind": one.partition("/")[0], "name": one.partition("/")[2]} for one in gone]
        body = {"policy": policy(wanted), "partial": True, "delete": named}
        answer = self.ask("POST", "/v1/policy:apply", by, mode, body)
        left = {one: value for one, value in self.world.content.items() if one not in gone}
        self.compare(answer, by, mode, {**left, **wanted}, set(wanted))

    def own(self, by: str | None, mode: str | None) -> None:
        wanted = self.subset()
        body = {"policy": policy(wanted), "only_own": True}
        answer = self.ask("POST", "/v1/policy:apply", by, mode, body)
        if by is None:
            assert answer.status_code == 400, answer.text
            return
        left = {one: value for one, value in self.world.content.items() if self.world.manager.get(one) != by}
        self.compare(answer, by, mode, {**left, **wanted}, set(wanted))

    def back(self, by: str | None, mode: str | None) -> None:
        if not self.world.revisions:
            return
        place = self.draw.randrange(len(self.world.revisions))
        answer = self.ask("POST", f"/v1/revisions/{self.first + 1 + place}:rollback", by, mode)
        self.compare(answer, by, mode, self.world.revisions[place], None)

    def compare(
        self,
        answer: httpx.Response,
        by: str | None,
        mode: str | None,
        wanted: dict[str, int],
        written: set[str] | None,
    ) -> None:
        """An answer with the model's."""
        changed = wanted != self.world.content
        taken = mode == "take_over"
        status, others = self.world.write(by, mode, wanted, written)
        got = 200 if answer.status_code == 201 else answer.status_code
        assert got == status, (answer.text, by, mode, others)
        if status == 409:
            assert answer.json()["code"] == "managed_by_another"
            assert {f"{one['kind']}/{one['name']}" for one in answer.json()["managed"]} == others
        elif status == 200 and others and (changed or taken):
            self.overruled.append(f"why {len(self.overruled)}")

    def reassign(self) -> None:
        """Let go, or hand over."""
        draw, held = self.draw, self.world.manager
        manager = draw.choice(WRITERS[1:])
        to = draw.choice(WRITERS)
        names = None if draw.random() < 0.5 else draw.sample(NAMES, draw.randint(1, 2))
        body: dict[str, Any] = {"manager": manager, "to": to, "reason": "test"}
        if names is not None:
            body["resources"] = [
                {"kind": one.partition("/")[0], "name": one.partition("/")[2]} for one in names
            ]
        answer = self.client.post("/v1/managers:reassign", json=body)
        own = {one for one, has in held.items() if has == manager}
        if not own:
            assert answer.status_code == 404
        elif names is not None and not own.issuperset(names):
            assert answer.status_code == 409
        else:
            assert answer.status_code == 200, answer.text
            for one in own if names is None else names:
                held.pop(one)
                if to is not None:
                    held[one] = to

    def drain(self) -> None:
        """Switch the region, as somebody without a tool or a flag does."""
        verb, self.state = self.draw.choice(
            (("drain", "draining"), ("disable", "disabled"), ("activate", "active"))
        )
        answer = self.ask("POST", f"/v1/regions/eu-west:{verb}", None, None)
        there = "regions/eu-west" in self.world.content
        assert answer.status_code == (200 if there else 404), answer.text

    def read(self) -> tuple[dict[str, int], dict[str, str]]:
        """What is really there."""
        content, managers = {}, {}
        for kind, part in (("tenants", "weight"), ("regions", "cost_weight")):
            page = self.client.get(f"/v1/{kind}").json()
            content |= {f"{kind}/{one['name']}": int(one[part]) for one in page["items"]}
            managers |= {f"{kind}/{name}": one["manager"] for name, one in page["managed_by"].items()}
        return content, managers

    def check(self) -> None:
        """What is there is what the model says, by every way of reading."""
        content, managers = self.read()
        assert content == self.world.content
        assert managers == self.world.manager
        if self.draw.random() > 0.1:
            return
        listed = self.client.get("/v1/managers").json()["items"]
        owned = {one["manager"]: sum(one["resources"].values()) for one in listed}
        assert owned == {one: list(managers.values()).count(one) for one in set(managers.values())}
        for manager in WRITERS[1:]:
            found = self.client.get("/v1/resources", params={"managed_by": manager}).json()["items"]
            own = {f"{one['kind']}/{one['name']}" for one in found}
            assert own == {one for one, held in managers.items() if held == manager}


@pytest.mark.drill
@pytest.mark.endurance
@pytest.mark.parametrize("seed", range(examples(36, least=6)))
def test_random_writers(api: Api, seed: int) -> None:  # noqa: F811 - the fixture
    """No name has two owners, nobody's write passes another's unsaid, nothing is left of what is gone; every overruling is written down."""
    draw = random.Random(seed)
    writers = Writers(api.fence_admin, draw)
    revision = api.viewer.get("/v1/revisions").json()["items"][0]["number"]
    assert revision == writers.first
    for _ in range(STEPS):
        chance = draw.random()
        if chance < 0.1:
            writers.reassign()
        elif chance < 0.2:
            known = len(writers.world.revisions)
            writers.drain()
            latest = api.viewer.get("/v1/revisions").json()["items"][0]["number"]
            # A drain is a revision of the same content.
            writers.world.revisions += [dict(writers.world.content)] * (latest - writers.first - known)
        else:
            writers.step()
        writers.check()
    entries = api.viewer.get("/v1/audit", params={"action": "managed", "limit": 1000}).json()["items"]
    reasons = {one["reason"] for one in entries if one["action"] in ("managed.override", "managed.take_over")}
    assert reasons == set(writers.overruled)
