"""Deletions that wait until nothing keeps them, for tools that make their changes one by one (docs/api.md, "Deletions that wait")."""

from __future__ import annotations

from typing import Any

import httpx

from tests.api.conftest import CHAT, GDPR, Api, region
from tests.api.test_fences import REASON, RULE, rules
from tests.api.test_resources import problem

BY = {"GTM-Managed-By": "terraform/prod"}
REGION = {"kind": "regions", "name": "us-east"}
GDPR_RULE = {"kind": "residency_rules", "name": "gdpr"}
SMALLER = {**CHAT, "members": [{"region": "eu-central"}, {"region": "eu-west"}]}


def delete(client: httpx.Client, *resources: dict[str, str], **body: Any) -> httpx.Response:
    """A part of a policy that deletes by name, as a tool does it."""
    sent = {"policy": {}, "partial": True, "delete": resources, **body}
    return client.post("/v1/policy:apply", json=sent, headers=BY)


def waiting(api: Api) -> list[str]:
    """What status says of deletions that wait."""
    said = api.viewer.get("/v1/status").json()["warnings"]
    return [one for one in said if "is to be deleted since" in one]


def there(api: Api, path: str) -> bool:
    """Whether a resource is."""
    return api.viewer.get(path).status_code == 200


def test_a_region_goes_with_the_change_that_lets_go_of_it(world: Api) -> None:
    """Without `defer` it is refused; with it the region stays, status says what names it, and the service's change takes it along."""
    assert "services.chat.members[2].region" in problem(delete(world.operator, REGION), 422)
    before = world.viewer.get("/v1/policy").json()["revision"]
    done = delete(world.operator, REGION, defer=True).json()
    assert done["revision"] == before, "nothing has changed yet"
    (kept,) = done["deferred"]
    assert (kept["kind"], kept["name"], kept["manager"]) == ("regions", "us-east", "terraform/prod")
    assert kept["why"] == "services.chat.members[2].region names it"
    assert there(world, "/v1/regions/us-east")
    (said,) = waiting(world)
    assert "region `us-east` is to be deleted since" in said
    assert "as `terraform/prod` asked, and waits: services.chat.members[2].region names it" in said
    assert world.operator.put("/v1/tenants/more", json={}).status_code == 201, "others' changes go on"
    assert there(world, "/v1/regions/us-east")
    assert world.operator.put("/v1/services/chat", json=SMALLER).status_code == 200
    assert not there(world, "/v1/regions/us-east")
    assert waiting(world) == []
    newest = world.viewer.get("/v1/revisions?limit=1").json()["items"][0]
    assert newest["summary"] == {"regions": {"deleted": 1}, "services": {"updated": 1}}
    assert "deletes region us-east, as terraform/prod asked earlier" in newest["comment"]
    asked = world.admin.get("/v1/audit", params={"action": "policy.defer"}).json()["items"]
    assert [one["target"] for one in asked] == ["region us-east"]


def test_what_goes_together_goes_at_once(world: Api) -> None:
    """A region, its service and its rule in any order of three changes, the last of which finds nothing in its way."""
    service = {"kind": "services", "name": "chat"}
    for one in (REGION, service):
        assert delete(world.fence_admin, one, defer=True).status_code == 200
    assert len(waiting(world)) == 2
    gone = delete(world.fence_admin, GDPR_RULE, defer=True).json()
    assert gone["deferred"] == []
    assert {(one["kind"], one["action"]) for one in gone["changes"]} == {
        (kind, "deleted") for kind in ("regions", "services", "residency_rules")
    }


def test_a_rule_goes_once_another_is_in_its_place(world: Api) -> None:
    """Alone its deletion opens a fence, and it stays in force; a rule like it lets it go, and no other change does."""
    (kept,) = delete(world.operator, GDPR_RULE, defer=True).json()["deferred"]
    assert "rule `gdpr` (deleted) would no longer keep service `chat`" in kept["why"]
    assert rules(delete(world.operator, GDPR_RULE)) == ["fence"]
    assert world.operator.put("/v1/tenants/more", json={}).status_code == 201
    assert delete(world.operator, REGION, defer=True).status_code == 200
    assert world.operator.put("/v1/services/chat", json=SMALLER).status_code == 200
    assert there(world, RULE)
    assert not there(world, "/v1/regions/us-east"), "the rule keeps no other deletion waiting"
    assert world.operator.put("/v1/residency-rules/twin", json=GDPR).status_code == 201
    assert not there(world, RULE)
    assert waiting(world) == []


def test_force_takes_no_deletion_of_others_along(world: Api) -> None:
    """The reason was given for another change."""
    assert delete(world.operator, GDPR_RULE, defer=True).status_code == 200
    moved = {**region("us-east"), "country": "FR"}
    assert world.fence_admin.put("/v1/regions/us-east", json=moved, params=REASON).status_code == 200
    assert there(world, RULE)
    assert len(waiting(world)) == 1


def test_what_is_written_anew_waits_no_more(world: Api) -> None:
    """By whatever way; to who had it deleted there is none, so that a tool may make it again."""
    assert delete(world.operator, REGION, defer=True).status_code == 200
    again = {"policy": {"regions": [{"name": "us-east", **region("us-east", lat=39.5)}]}, "partial": True}
    held = [{**REGION, "tag": ""}]
    made = world.operator.post("/v1/policy:apply", json={**again, "unless_changed": held}, headers=BY)
    assert made.status_code == 200, made.text
    assert waiting(world) == []
    assert world.operator.put("/v1/services/chat", json=SMALLER, headers=BY).status_code == 200
    assert there(world, "/v1/regions/us-east")
    assert delete(world.operator, REGION).status_code == 200


def test_a_region_that_is_to_go_may_be_drained(world: Api) -> None:
    """Its admin state is an operator's, who says nothing of whether it goes; to write it as it is says that it stays."""
    assert delete(world.operator, REGION, defer=True).status_code == 200
    drained = world.operator.post(
        "/v1/regions/us-east:drain", params={"force": True, "force_reason": "it goes"}
    )
    assert drained.status_code == 200, drained.text
    assert len(waiting(world)) == 1
    as_it_is = world.viewer.get("/v1/regions/us-east").json()
    for name in ("name", "admin_state", "draining_since", "managed_by"):
        as_it_is.pop(name, None)
    assert world.operator.put("/v1/regions/us-east", json=as_it_is).status_code == 200
    assert waiting(world) == []


def test_nobody_s_tool_defers_for_another(world: Api) -> None:
    """What another tool manages is refused as ever, whether it may wait or not."""
    other = {"GTM-Managed-By": "pulumi/other"}
    assert world.operator.put("/v1/regions/us-east", json=region("us-east"), headers=other).status_code == 200
    assert "pulumi/other" in problem(delete(world.operator, REGION, defer=True), 409)
    assert waiting(world) == []
