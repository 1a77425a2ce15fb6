"""Plans of viewers: what a dry run of an operator says, worked out apart."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gtm.api.routes.policy import drafts
from tests.api.conftest import CHAT, GDPR, Api, region
from tests.api.test_resources import problem

JSON = {"Content-Type": "application/json"}
PROD = {"GTM-Managed-By": "terraform/prod"}
DRAFTS: dict[str, dict[str, Any]] = {
    "nothing": {"policy": {}, "partial": True},
    "a part": {"policy": {"tenants": [{"name": "clinic", "weight": 2}]}, "partial": True},
    "a whole": {"policy": {"regions": [{"name": "eu-west", **region("eu-west")}]}},
    "a fence opened": {
        "policy": {"residency_rules": [{"name": "gdpr", **GDPR, "allow": {"jurisdictions": ["EEA", "US"]}}]},
        "partial": True,
    },
    "deleted": {"policy": {}, "partial": True, "delete": [{"kind": "residency_rules", "name": "gdpr"}]},
    "only its own": {"policy": {}, "only_own": True},
    "what does not compile": {
        "policy": {"services": [{"name": "chat", **CHAT, "members": [{"region": "nowhere"}]}]},
        "partial": True,
    },
}


@pytest.mark.parametrize("apart", [False, True], ids=["here", "apart"])
def test_a_plan_says_what_a_dry_run_says(world: Api, monkeypatch: pytest.MonkeyPatch, *, apart: bool) -> None:
    """To the letter, whoever asks and wherever it is worked out; only what the rules let somebody force depends on the role."""
    if apart:
        monkeypatch.setattr(drafts, "MAX_SHORT", 0)
    world.must_put("/v1/residency-rules/gdpr", GDPR)
    assert world.operator.put("/v1/tenants/held", json={}, headers=PROD).status_code == 201
    revision = world.revision()
    for name, draft in DRAFTS.items():
        dry = world.operator.post("/v1/policy:apply", json={**draft, "dry_run": True}, headers=PROD)
        for client in (world.operator, world.viewer):
            planned = client.post("/v1/policy:plan", json=draft, headers=PROD)
            assert planned.status_code == dry.status_code, (name, planned.text)
            said, expected = planned.json(), dry.json()
            for one in (said, expected):
                one.pop("instance", None)
                (one.get("safety") or {}).pop("may_force", None)
            assert said == expected, name
        assert world.revision() == revision, name


@pytest.mark.usefixtures("processes")
def test_a_long_plan_is_worked_out_in_another_process(world: Api) -> None:
    """What it comes to is the same."""
    short = DRAFTS["a fence opened"]
    long = {
        "policy": {**short["policy"], "tenants": [{"name": f"t{n:04}"} for n in range(1000)]},
        "partial": True,
    }
    assert len(json.dumps(long)) > drafts.MAX_SHORT
    dry = world.operator.post("/v1/policy:apply", json={**long, "dry_run": True})
    planned = world.operator.post("/v1/policy:plan", json=long)
    assert planned.json() == dry.json()
    assert planned.status_code == dry.status_code


def test_what_a_plan_refuses(world: Api) -> None:
    """A body that is none, fields that are none, `only_own` of nobody, and those that may not read."""
    assert "not JSON" in problem(world.viewer.post("/v1/policy:plan", content=b"{", headers=JSON), 400)
    assert problem(world.viewer.post("/v1/policy:plan", json={"policy": {}, "what": 1}), 422)
    text = problem(world.viewer.post("/v1/policy:plan", json={"policy": {}, "only_own": True}), 400)
    assert "GTM-Managed-By" in text
    problem(world.edge.post("/v1/policy:plan", json={"policy": {}}), 403)
    problem(world.anonymous.post("/v1/policy:plan", json={"policy": {}}), 401)


def test_lists_tell_entity_tags(world: Api) -> None:
    """The same as single resources do, so that what was read in a list is changed under a condition."""
    for path in ("/v1/regions", "/v1/services", "/v1/jurisdictions"):
        page = world.viewer.get(path, params={"limit": 2}).json()
        assert page["etags"].keys() == {one["name"] for one in page["items"]}
        for name, tag in page["etags"].items():
            assert world.viewer.get(f"{path}/{name}").headers["ETag"] == tag


def test_an_apply_tells_the_tags_of_what_it_held(world: Api) -> None:
    """Of what was created, changed, left as it was and deleted; and who was faster, if somebody was."""

    def held(name: str, tag: str) -> dict[str, str]:
        return {"kind": "tenants", "name": name, "tag": tag}

    def apply(policy: dict[str, Any], *tags: dict[str, str], **more: Any) -> Any:
        body = {"policy": policy, "partial": True, "unless_changed": tags, **more}
        return world.operator.post("/v1/policy:apply", json=body, headers=PROD)

    made = apply({"tenants": [{"name": "a"}, {"name": "b"}]}, held("a", ""), held("b", "")).json()
    tags = {one["name"]: one["tag"] for one in made["held"]}
    listed = world.viewer.get("/v1/tenants").json()["etags"]
    assert tags == {name: listed[name] for name in "ab"}
    gone = {"delete": [{"kind": "tenants", "name": "b"}]}
    done = apply(
        {"tenants": [{"name": "a", "weight": 2}]}, held("a", tags["a"]), held("b", tags["b"]), **gone
    )
    after = {one["name"]: one["tag"] for one in done.json()["held"]}
    assert after["b"] == ""
    assert after["a"] == world.viewer.get("/v1/tenants/a").headers["ETag"] != tags["a"]
    late = apply({"tenants": [{"name": "a", "weight": 3}]}, held("a", tags["a"]))
    text = problem(late, 412)
    assert f"revision {done.json()['revision']} " in text
    assert "by `operator-one`" in text
    assert "`terraform/prod` manages it" in text
    taken = apply({"tenants": [{"name": "a"}]}, held("a", ""))
    assert "tenant `a` exists already" in problem(taken, 412)
    assert taken.json()["errors"][0]["code"] == "exists"
    assert "does not exist any more" in problem(apply({}, held("b", tags["b"])), 412)
