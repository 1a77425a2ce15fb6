"""Who manages a resource: claims, refusals, edits on purpose, letting go; over real HTTP."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.api.conftest import GDPR, POLICY, REGIONS, Api, region
from tests.api.test_fences import policy as policy_of
from tests.api.test_resources import problem

PROD, LAB, CI = "terraform/prod", "terraform/lab", "gtm-apply/ci"
BY = "GTM-Managed-By"
PURPOSE = {"on_managed": "override", "managed_reason": "incident 42"}
TAKE = {"on_managed": "take_over", "managed_reason": "moved to CI"}


def put(
    api: Api, path: str, body: dict[str, Any], manager: str | None = None, **query: str
) -> httpx.Response:
    """PUT as a tool's operator, or as a person."""
    headers = {BY: manager} if manager else {}
    return api.operator.put(path, json=body, headers=headers, params=query)


def apply(
    api: Api,
    policy: dict[str, Any],
    manager: str | None = None,
    query: dict[str, str] | None = None,
    **body: Any,
) -> httpx.Response:
    """`policy:apply`, likewise."""
    headers = {BY: manager} if manager else {}
    return api.operator.post(
        "/v1/policy:apply", json={"policy": policy, **body}, headers=headers, params=query or {}
    )


def manager(api: Api, path: str) -> str | None:
    """Who manages a resource."""
    found: str | None = api.viewer.get(path).headers.get(BY)
    return found


def audited(api: Api, action: str) -> list[dict[str, Any]]:
    """What the audit log has of managers."""
    found: list[dict[str, Any]] = api.viewer.get("/v1/audit", params={"action": action}).json()["items"]
    return found


def test_a_write_claims_and_reads_say_so(world: Api) -> None:
    """The header claims, also where nothing differs; every read says who manages what, and lists narrow down to it."""
    before = world.viewer.get("/v1/regions/eu-west")
    same = put(world, "/v1/regions/eu-west", before.json(), PROD)
    assert (same.json()["outcome"], same.json()["revision"]) == ("unchanged", 2)
    assert same.json()["managed_by"]["manager"] == same.headers[BY] == PROD
    made = put(world, "/v1/tenants/acme", {}, PROD)
    assert made.status_code == 201
    assert made.json()["managed_by"] == {
        "manager": PROD,
        "since": made.headers["GTM-Managed-Since"].replace("+00:00", "Z"),
    }
    read = world.viewer.get("/v1/regions/eu-west")
    assert read.headers[BY] == PROD
    assert read.headers["etag"] == before.headers["etag"]
    assert read.json() == before.json()
    again = world.viewer.get("/v1/regions/eu-west", headers={"If-None-Match": read.headers["etag"]})
    assert (again.status_code, again.headers[BY]) == (304, PROD)
    page = world.viewer.get("/v1/regions").json()
    assert len(page["items"]) == 3
    assert list(page["managed_by"]) == ["eu-west"]
    own = world.viewer.get("/v1/regions", params={"managed_by": PROD}).json()
    assert [one["name"] for one in own["items"]] == ["eu-west"]
    assert world.viewer.get("/v1/regions", params={"managed_by": LAB}).json()["items"] == []
    found = world.viewer.get("/v1/resources", params={"managed_by": PROD}).json()
    assert [(one["kind"], one["name"], one["managed_by"]["manager"]) for one in found["items"]] == [
        ("regions", "eu-west", PROD),
        ("tenants", "acme", PROD),
    ]
    assert found["matching"]["regions"] == 1
    [listed] = world.viewer.get("/v1/managers").json()["items"]
    assert (listed["manager"], listed["resources"]) == (PROD, {"regions": 1, "tenants": 1})
    assert [one["target"] for one in audited(world, "managed.claim")] == ["tenant acme", "region eu-west"]
    own_jurisdiction = put(world, "/v1/jurisdictions/DACH", {"members": ["DE", "AT"]}, PROD)
    assert own_jurisdiction.headers[BY] == manager(world, "/v1/jurisdictions/DACH") == PROD
    assert manager(world, "/v1/jurisdictions/EEA") is None
    listed = world.viewer.get("/v1/jurisdictions", params={"managed_by": PROD}).json()
    assert ([one["name"] for one in listed["items"]], list(listed["managed_by"])) == (["DACH"], ["DACH"])


def test_it_is_no_policy(world: Api) -> None:
    """Claims change no revision, no checksum, no export; the row's end is theirs."""
    before = world.viewer.get("/v1/revisions/2").json()["sha256"]
    exported = world.viewer.get("/v1/policy", headers={"Accept": "application/yaml"}).text
    assert apply(world, policy_of(world), CI).json()["revision"] == 2
    assert world.viewer.get("/v1/policy", headers={"Accept": "application/yaml"}).text == exported
    assert world.viewer.get("/v1/revisions/2").json()["sha256"] == before
    assert put(world, "/v1/tenants/clinic", {"display_name": "Clinic"}, CI).status_code == 200
    assert manager(world, "/v1/tenants/clinic") == CI
    assert world.operator.delete("/v1/tenants/clinic", headers={BY: CI}).status_code == 200
    assert put(world, "/v1/tenants/clinic", {}).status_code == 201
    assert manager(world, "/v1/tenants/clinic") is None


def test_what_another_manages_is_refused(world: Api) -> None:
    """By a person, by another workspace; written, deleted, applied, rolled back: 409 that names who, since when, and the way on."""
    put(world, "/v1/tenants/clinic", {}, PROD)
    for by in (None, LAB, CI):
        refused = put(world, "/v1/tenants/clinic", {"display_name": "x"}, by)
        text = problem(refused, 409)
        assert "tenant `clinic` is managed by `terraform/prod` since 20" in text
        assert "on_managed=override" in text
        assert refused.json()["type"] == "urn:gtm:problem:managed-by-another"
        [one] = refused.json()["managed"]
        assert (one["kind"], one["name"], one["manager"]) == ("tenants", "clinic", PROD)
        problem(world.operator.delete("/v1/tenants/clinic", headers={BY: by} if by else {}), 409)
    policy = policy_of(world)
    assert apply(world, policy).json()["changes"] == []
    assert "managed by `terraform/prod`" in problem(apply(world, {**policy, "tenants": []}), 409)
    changed = {"tenants": [{"name": "clinic", "weight": 2}]}
    assert "managed by `terraform/prod`" in problem(apply(world, changed, partial=True), 409)
    gone = [{"kind": "tenants", "name": "clinic"}]
    assert "managed by `terraform/prod`" in problem(apply(world, {}, partial=True, delete=gone), 409)
    assert put(world, "/v1/tenants/clinic", {"weight": 3}, PROD).status_code == 200
    assert "managed by `terraform/prod`" in problem(world.operator.post("/v1/revisions/2:rollback"), 409)
    assert world.viewer.get("/v1/tenants/clinic").json()["weight"] == 3
    tried = apply(world, changed, partial=True, dry_run=True).json()
    assert [(one["kind"], one["name"], one["manager"]) for one in tried["managed"]] == [
        ("tenants", "clinic", PROD)
    ]
    tried = world.operator.post("/v1/revisions/2:rollback", json={"dry_run": True}).json()
    assert [one["name"] for one in tried["managed"]] == ["clinic"]
    # Also where only ownership would change.
    problem(put(world, "/v1/tenants/clinic", {"weight": 3}, LAB), 409)
    problem(apply(world, policy_of(world), CI), 409)
    assert manager(world, "/v1/tenants/clinic") == PROD


def test_a_change_on_purpose(world: Api) -> None:
    """Once: the manager stays. Taken over: it does not. With a reason, in the revision and the audit log."""
    put(world, "/v1/tenants/clinic", {}, PROD)
    done = put(world, "/v1/tenants/clinic", {"weight": 2}, **PURPOSE)
    assert done.headers[BY] == PROD
    latest = world.viewer.get("/v1/revisions").json()["items"][0]
    assert latest["comment"] == "put tenant clinic; overrides terraform/prod: incident 42"
    [entry] = audited(world, "managed.override")
    assert (entry["target"], entry["reason"], entry["revision"]) == (
        "tenant clinic",
        "incident 42",
        done.json()["revision"],
    )
    taken = put(world, "/v1/tenants/clinic", {"weight": 2}, CI, **TAKE)
    assert (taken.json()["outcome"], taken.headers[BY]) == ("unchanged", CI)
    [entry] = audited(world, "managed.take_over")
    assert entry["detail"] == "from terraform/prod to gtm-apply/ci"
    problem(put(world, "/v1/tenants/clinic", {"weight": 4}, PROD), 409)
    # Another tool's override leaves the manager, too.
    assert put(world, "/v1/tenants/clinic", {"weight": 5}, PROD, **PURPOSE).headers[BY] == CI
    assert world.operator.delete("/v1/tenants/clinic", params=PURPOSE).status_code == 200
    assert world.viewer.get("/v1/managers").json()["items"] == []


@pytest.mark.parametrize(
    ("query", "by", "says"),
    [
        ({"on_managed": "override"}, None, "needs a reason"),
        ({"on_managed": "override", "managed_reason": "  "}, None, "needs a reason"),
        ({"managed_reason": "x"}, None, "means nothing"),
        (TAKE, None, "needs the header"),
        ({"on_managed": "steal", "managed_reason": "x"}, None, "on_managed"),
        ({}, "terraform", "such as `terraform/prod-network`"),
        ({}, "Terraform/prod", "such as `terraform/prod-network`"),
        ({}, "terraform/" + "x" * 201, "at most 2"),
        ({}, "terraform/ prod", "such as `terraform/prod-network`"),
        ({}, "", "such as"),
    ],
)
@pytest.mark.reads
def test_what_is_wrong_is_said(world: Api, query: dict[str, str], by: str | None, says: str) -> None:
    """And nothing is written."""
    headers = {BY: by} if by is not None else {}
    for method, path in (
        ("PUT", "/v1/tenants/new"),
        ("DELETE", "/v1/tenants/clinic"),
        ("POST", "/v1/policy:apply"),
    ):
        body = None if method == "DELETE" else {} if method == "PUT" else {"policy": {}}
        answer = world.operator.request(method, path, params=query, headers=headers, json=body)
        assert answer.status_code in (400, 422), answer.text
        assert says in problem(answer, answer.status_code)
    assert [one["name"] for one in world.viewer.get("/v1/tenants").json()["items"]] == ["clinic"]


def test_draining_is_never_harder(world: Api) -> None:
    """A region's admin state is operators': whoever manages the region, no flag, by whatever way; the tool's next write keeps it."""
    document = world.viewer.get("/v1/regions/eu-west").json()
    put(world, "/v1/regions/eu-west", {**document, "admin_state": None}, PROD)
    for verb in ("drain", "disable", "activate", "drain"):
        done = world.operator.post(
            f"/v1/regions/eu-west:{verb}", params={"force": "true", "force_reason": "test"}
        )
        assert (done.status_code, done.headers[BY]) == (200, PROD), done.text
    forced = {"force": "true", "force_reason": "test"}
    assert (
        put(world, "/v1/regions/eu-west", {**document, "admin_state": "active"}, **forced).status_code == 200
    )
    regions = [{"name": name, **region(name)} for name in REGIONS]
    regions[1]["admin_state"] = "draining"
    tried = apply(world, {**policy_of(world), "regions": regions}, query=forced)
    assert (tried.status_code, tried.json()["managed"]) == (200, [])
    put(world, "/v1/regions/eu-west", {**region("eu-west"), "cost_weight": 2}, PROD)
    assert world.viewer.get("/v1/regions/eu-west").json()["admin_state"] == "draining"
    both = {**region("eu-west"), "cost_weight": 3, "admin_state": "active"}
    problem(put(world, "/v1/regions/eu-west", both, **forced), 409)


def test_what_comes_back_comes_back_unmanaged(world: Api) -> None:
    """A roll back keeps managers of what stays; what a person brings back has none, what a tool brings back is its own."""
    put(world, "/v1/tenants/clinic", {}, PROD)
    put(world, "/v1/tenants/clinic", {"weight": 2}, PROD)
    world.operator.delete("/v1/tenants/clinic", headers={BY: PROD})
    back = world.operator.post("/v1/revisions/2:rollback", headers={})
    assert back.status_code == 200, back.text
    assert manager(world, "/v1/tenants/clinic") is None
    world.operator.delete("/v1/tenants/clinic")
    assert world.operator.post("/v1/revisions/2:rollback", headers={BY: PROD}).status_code == 200
    assert manager(world, "/v1/tenants/clinic") == PROD
    assert manager(world, "/v1/services/chat") is None
    put(world, "/v1/tenants/clinic", {"weight": 2}, PROD)
    back = world.operator.post("/v1/revisions/2:rollback", params=PURPOSE)
    assert [one["manager"] for one in back.json()["managed"]] == [PROD]
    assert manager(world, "/v1/tenants/clinic") == PROD
    assert world.viewer.get("/v1/tenants/clinic").json()["weight"] == 1


def test_a_folder_leaves_others_alone(world: Api) -> None:
    """`only_own` deletes what is the tool's and the document lacks, and nothing else."""
    put(world, "/v1/tenants/clinic", {}, PROD)
    part = {"tenants": [{"name": "a"}, {"name": "b"}]}
    problem(apply(world, part, only_own=True), 400)
    assert len(apply(world, part, CI, only_own=True).json()["changes"]) == 2
    done = apply(world, {"tenants": [{"name": "a", "weight": 2}]}, CI, only_own=True).json()
    assert [(one["name"], one["action"]) for one in done["changes"]] == [("a", "updated"), ("b", "deleted")]
    assert [one["name"] for one in world.viewer.get("/v1/tenants").json()["items"]] == ["a", "clinic"]
    assert len(world.viewer.get("/v1/regions").json()["items"]) == 3
    assert apply(world, {}, CI, only_own=True, dry_run=True).json()["changes"][0]["action"] == "deleted"
    problem(apply(world, {"tenants": [{"name": "clinic", "weight": 3}]}, CI, only_own=True), 409)


def test_letting_go(world: Api) -> None:
    """Released or handed over, all of it or some; compared with who manages it now."""
    apply(world, {"tenants": [{"name": name} for name in "abc"]}, PROD, partial=True)

    def reassign(**body: Any) -> httpx.Response:
        return world.operator.post("/v1/managers:reassign", json={"manager": PROD, "reason": "gone", **body})

    one = [{"kind": "tenants", "name": "a"}]
    assert reassign(resources=one).json()["resources"] == one
    assert manager(world, "/v1/tenants/a") is None
    assert "managed by no tool" in problem(reassign(resources=one), 409)
    assert reassign(resources=[{"kind": "tenants", "name": "b"}], to=CI).status_code == 200
    assert "managed by `gtm-apply/ci`" in problem(reassign(resources=[{"kind": "tenants", "name": "b"}]), 409)
    assert [one["name"] for one in reassign().json()["resources"]] == ["c"]
    assert "manages nothing" in problem(reassign(), 404)
    problem(reassign(reason=" "), 422)
    assert [entry["action"] for entry in audited(world, "managed")][:3] == [
        "managed.release",
        "managed.hand_over",
        "managed.release",
    ]
    assert world.viewer.get("/v1/resources", params={"managed_by": CI}).json()["items"][0]["name"] == "b"


def test_an_approval_is_no_permission(api: Api) -> None:
    """What a second person approves of is the change, not that a tool's resource is taken from it."""
    assert apply(api, POLICY, PROD).status_code == 200
    forced = {"force": "true", "force_reason": "case 1"}
    wider = {**GDPR, "allow": {"jurisdictions": ["EEA", "US"]}}
    refused = api.fence_admin.put("/v1/residency-rules/gdpr", json=wider, params=forced)
    assert refused.json()["code"] == "managed_by_another"
    done = api.fence_admin.put("/v1/residency-rules/gdpr", json=wider, params={**forced, **PURPOSE})
    assert done.status_code == 200, done.text
    latest = api.viewer.get("/v1/revisions").json()["items"][0]["comment"]
    assert "overrides terraform/prod: incident 42; forced against the safety rules fence: case 1" in latest


def test_a_lost_update_says_whose(world: Api) -> None:
    """412 names the revision that wrote the resource last, its author, and who manages it; a write names why."""
    tag = world.viewer.get("/v1/tenants/clinic").headers["etag"]
    done = put(world, "/v1/tenants/clinic", {"weight": 2}, PROD, comment="run-7 of prod")
    latest = world.viewer.get("/v1/revisions").json()["items"][0]
    assert latest["comment"] == "put tenant clinic: run-7 of prod; for terraform/prod"
    stale = world.operator.put("/v1/tenants/clinic", json={}, headers={"If-Match": tag})
    text = problem(stale, 412)
    assert f"revision {done.json()['revision']} of " in text
    assert "by `operator-one`, wrote it last; `terraform/prod` manages it" in text
    assert (stale.json()["revision"], stale.json()["author"]) == (done.json()["revision"], "operator-one")
    there = world.operator.put("/v1/tenants/clinic", json={}, headers={"If-None-Match": "*"})
    assert "it exists already; revision" in problem(there, 412)
    assert there.json()["managed_by"]["manager"] == PROD


def test_two_claims_at_once(world: Api) -> None:
    """However they meet, one of them has each name, whole: nothing is written by whoever was refused."""

    def claim(who: str) -> list[int]:
        made = []
        for number in range(6):
            body = {"tenants": [{"name": f"t{number}", "display_name": who}]}
            status = 503
            while (
                status == 503
            ):  # others have the turn for longer than control waits: whoever asks again gets it
                status = apply(world, body, who, partial=True).status_code
            made.append(status)
        return made

    with ThreadPoolExecutor(4) as pool:
        found = dict(zip((PROD, LAB, CI), pool.map(claim, (PROD, LAB, CI)), strict=True))
    for number, statuses in enumerate(zip(*found.values(), strict=True)):
        assert sorted(statuses) == [200, 409, 409]
        owner = manager(world, f"/v1/tenants/t{number}")
        assert world.viewer.get(f"/v1/tenants/t{number}").json()["display_name"] == owner
        assert found[str(owner)][number] == 200


def test_the_document_says_it(api: Api) -> None:
    """The OpenAPI document has the header, so that clients made from it can send it."""
    text = json.dumps(api.viewer.get("/openapi.json").json()["paths"]["/v1/tenants/{name}"])
    assert text.count(BY) >= 4
