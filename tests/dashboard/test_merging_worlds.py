"""Two editors at the dashboard: one with a draft, the other with the API, on random fields of a service, in whole and partial drafts."""

from __future__ import annotations

import random
from copy import deepcopy
from typing import Any

import pytest

from gtm.core.model.access import Role
from gtm.documents import yamls
from tests.api.conftest import CHAT, REGIONS, Api, region
from tests.dashboard.conftest import People
from tests.dashboard.test_policy_drafts import begun, carried, go
from tests.effort import examples

Edit = tuple[tuple[str, ...], Any]
EDITS: tuple[Edit, ...] = (
    (("ttl",), 77),
    (("ttl",), 88),
    (("display_name",), "Chat: 'a' <b> # c"),
    (("display_name",), "true"),
    (("https_record",), {"alpn": ["h2"]}),
    (("https_record",), {"alpn": ["h3", "h2"]}),
    (("https_record",), None),
    (("refusal", "ipv4"), ["127.0.1.2"]),
    (("cors",), {"origins": ["*"], "methods": [], "fields": [], "credentials": False}),
    (("families",), "separate"),
    (("max_answers",), 3),
    (("max_answers",), None),
    (("priority",), "batch"),
)
"""Fields, and what people make of them."""


def edited(document: dict[str, Any], edits: list[Edit]) -> dict[str, Any]:
    """A service after edits."""
    made = deepcopy(document)
    for path, value in edits:
        within = made
        for part in path[:-1]:
            within = within[part]
        within[path[-1]] = value
    return made


def service(api: Api) -> dict[str, Any]:
    """As it is in force."""
    found: dict[str, Any] = api.viewer.get("/v1/services/chat").json()
    return found


@pytest.mark.endurance
@pytest.mark.parametrize("seed", range(examples(60, 8)))
def test_two_editors(world: Api, people: People, seed: int) -> None:
    """Other fields: both are in force afterwards, and nothing else has changed. The same field: somebody is asked."""
    chosen = random.Random(seed)
    operator = people(Role.OPERATOR)
    for number, name in enumerate(REGIONS, 1):  # HTTPS records want endpoints that speak it
        endpoint = {"url": f"https://r{number}.example", "ipv4": [f"127.0.1.{number}"]}
        world.must_put(f"/v1/regions/{name}", region(name, endpoints=[endpoint]))
    begin = [edit for edit in EDITS if chosen.random() < 0.3]
    world.must_put("/v1/services/chat", edited({"refusal": {}, **CHAT}, begin))
    was = service(world)
    whole = chosen.random() < 0.4
    draft = begun(operator, "/policy/edit" if whole else "/policy/services/chat/edit?as=yaml")
    policy = yamls.load(draft["text"])[0]
    mine, theirs = (chosen.sample(EDITS, chosen.randint(1, 3)) for _ in range(2))
    [document] = policy["services"]
    policy["services"] = [edited({"refusal": {}, **document}, mine)]
    draft["text"] = yamls.dump(policy)
    world.must_put("/v1/services/chat", edited({"refusal": {}, **writable(was)}, theirs))
    if chosen.random() < 0.5:
        world.must_put("/v1/tenants/another", {"weight": 3})
    now, wanted = service(world), edited(was, mine)
    same = {path for path, _ in mine} & {path for path, _ in theirs}
    clash = [path for path in same if len({repr(at(one, path)) for one in (was, now, wanted)}) == 3]
    meant = [(path, at(wanted, path)) for path, _ in mine if at(wanted, path) != at(was, path)]
    shown = go(operator, draft)
    assert (shown.status_code == 409) == bool(clash), (mine, theirs, shown.text[-3000:])
    if clash:
        assert service(world) == now
        return
    done = go(operator, carried(shown.text), "apply", reason="x", force_reason="y")
    found = service(world)
    assert {**found, "sync": 0} == {**edited(now, meant), "sync": 0}, done.text
    if world.viewer.get("/v1/tenants/another").status_code == 200:
        assert world.viewer.get("/v1/tenants/another").json()["weight"] == 3
    assert world.viewer.get("/v1/tenants/clinic").status_code == 200


@pytest.mark.parametrize("weight", [2, 5])
def test_a_new_one_that_somebody_else_has_made_meanwhile(world: Api, people: People, weight: float) -> None:
    """It is not overwritten unasked, though the draft knew of none; what both made alike is no conflict."""
    operator = people(Role.OPERATOR)
    draft = begun(operator, "/policy/tenants/new")
    draft["text"] = "tenants:\n- name: another\n  weight: 2\n"
    world.must_put("/v1/tenants/another", {"weight": weight})
    shown = go(operator, draft, "apply", reason="x")
    if weight == 2:
        assert shown.status_code == 200
    else:
        assert shown.status_code == 409
        assert "both changed it" in shown.text
    assert world.viewer.get("/v1/tenants/another").json()["weight"] == weight


def writable(document: dict[str, Any]) -> dict[str, Any]:
    """What PUT takes of what GET answers."""
    return {key: value for key, value in document.items() if key in {*CHAT, *(path[0] for path, _ in EDITS)}}


def at(document: dict[str, Any], path: tuple[str, ...]) -> Any:
    """What stands at a path."""
    found: Any = document
    for part in path:
        found = found.get(part)
    return found
