"""PATCH of resources (RFC 7396), with what was reported of others' merge patches."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from gtm.documents.patching import patched
from tests.api.conftest import Api
from tests.api.test_resources import problem

_MERGE = {"Content-Type": "application/merge-patch+json"}


@pytest.mark.parametrize(
    ("document", "patch", "result"),
    [  # RFC 7396, appendix A; patches that are no objects are refused
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
        # evanphx/json-patch 132, kubernetes 98080: null was dropped from lists
        ({"a": [1]}, {"a": [None, {"b": None}]}, {"a": [None, {"b": None}]}),
        # javaee/jsonp 77: null in an object within was kept
        ({"a": {"b": 1, "c": 2}}, {"a": {"c": None}}, {"a": {"b": 1}}),
    ],
)
def test_the_examples_of_the_rfc(document: Any, patch: dict[str, Any], result: Any) -> None:
    """What a patch makes of a document, which itself stays as it is."""
    before = repr(document)
    assert patched(document, patch) == result
    assert repr(document) == before


def test_a_patch_changes_what_it_names(world: Api) -> None:
    """All else stays; the answer, its entity tag, revision and audit record are as those of PUT."""
    path = "/v1/regions/eu-west"
    before = world.viewer.get(path).json()

    def patch(given: Any, **headers: str) -> Any:
        done = world.operator.patch(path, json=given, headers=headers, params={"comment": "why"})
        assert done.status_code == 200, done.text
        return done

    # Kong 3458: an object without members was an error. LicenseDb 148: an empty patch answered nulls.
    for nothing in ({}, {"probe": {}}, {"name": "eu-west"}, {"capacity": {"outstanding": None}}):
        same = patch(nothing)
        assert (same.json()["outcome"], same.json()["resource"]) == ("unchanged", before)
    # stig-manager 1614: members left out became defaults. katharsis 50: what had been null stayed so.
    done = patch({"cost_weight": 2, "probe": {"interval": 30}, "operator_country": "US"}, **_MERGE)
    now = before | {
        "cost_weight": 2.0,
        "operator_country": "US",
        "probe": before["probe"] | {"interval": 30.0},
    }
    assert (done.json()["outcome"], done.json()["resource"]) == ("updated", now)
    got = world.viewer.get(path)
    assert (got.json(), got.headers["etag"]) == (now, done.headers["etag"])
    revision = world.viewer.get(f"/v1/revisions/{done.json()['revision']}").json()
    assert revision["comment"] == "patch region eu-west: why"
    record = world.admin.get("/v1/audit", params={"action": "region.patch"}).json()["items"][0]
    assert record["revision"] == done.json()["revision"]
    # spring-data-rest 724: null did nothing. It is the default, in an object within too; what others drained stays drained.
    assert world.operator.post(f"{path}:drain").status_code == 200
    done = patch({"cost_weight": None, "probe": {"interval": None}, "operator_country": None})
    kept = {"admin_state", "draining_since"}
    assert {name: one for name, one in done.json()["resource"].items() if name not in kept} == {
        name: one for name, one in before.items() if name not in kept
    }
    assert done.json()["resource"]["admin_state"] == "draining"
    active = patch({"admin_state": "active"}).json()["resource"]
    assert (active["admin_state"], active["draining_since"]) == ("active", None)


def test_a_patch_that_makes_something_wrong_changes_nothing(world: Api) -> None:
    """It is judged as PUT is: what is missing, unknown or refers to nothing is said with its place."""
    path = "/v1/regions/eu-west"
    before = world.viewer.get(path)
    for patch, words in (
        ({"country": None}, '"path":"regions.eu-west.country","code":"missing"'),
        ({"cost_wieght": 2}, "did you mean `cost_weight`?"),
        (
            {"cost_wieght": None},
            "did you mean `cost_weight`?",
        ),  # by the RFC alone, it would silently do nothing
        ({"probe": {"pth": None}}, '"path":"regions.eu-west.probe.pth","code":"unknown_field"'),
        ({"endpoints": [None]}, "regions.eu-west.endpoints[0]"),
        ({"endpoints": {"url": "https://a.example"}}, "must be a list"),
        ({"probe": "none"}, "must be an object"),
        ({"name": "eu-east"}, "is not the name in the URL"),
        ([{"op": "replace", "path": "/cost_weight", "value": 2}], '"path":"regions.eu-west"'),
    ):
        assert words in problem(world.operator.patch(path, json=patch), 422), patch
    text = problem(world.operator.patch("/v1/services/chat", json={"members": [{"region": "nowhere"}]}), 422)
    assert "services.chat.members[0].region" in text
    twice = world.operator.patch(path, content='{"lat": 1, "lat": 2}', headers=_MERGE)
    assert "has the member `lat` twice" in problem(twice, 400)
    problem(world.operator.patch(path), 422)
    problem(world.operator.patch(path, json=None, headers=_MERGE), 422)
    problem(world.viewer.patch(path, json={}), 403)
    problem(world.operator.patch(path, json={}, params={"dry": "1"}), 422)
    assert "PUT creates one" in problem(world.operator.patch("/v1/tenants/none", json={}), 404)
    assert "choose another name" in problem(world.operator.patch("/v1/jurisdictions/EEA", json={}), 409)
    assert world.viewer.get(path).headers["etag"] == before.headers["etag"]


def test_a_patch_says_what_it_takes(api: Api) -> None:
    """OPTIONS and 415 name it. Of the latter nothing more was said (kubernetes 7214, 61103)."""
    asked = api.anonymous.options("/v1/regions/x")
    assert (asked.status_code, asked.headers["allow"]) == (204, "DELETE, GET, HEAD, PATCH, PUT")
    assert asked.headers["accept-patch"] == "application/merge-patch+json, application/json"
    assert "accept-patch" not in api.anonymous.options("/v1/regions").headers
    problem(api.anonymous.options("/v1/nothing"), 404)
    for kind in ("application/json-patch+json", "application/strategic-merge-patch+json", "text/yaml"):
        refused = api.operator.patch("/v1/regions/x", content=b"[]", headers={"Content-Type": kind})
        assert "`application/merge-patch+json` or `application/json`, not" in problem(refused, 415)
        assert refused.headers["accept-patch"] == asked.headers["accept-patch"]
    wrong = api.put("/v1/tenants/a", {}, **_MERGE)
    assert "must be `application/json`, not" in problem(wrong, 415)


def test_nobodys_change_is_lost(world: Api) -> None:
    """Of two patches at once one was refused or lost (kubernetes 14758). With If-Match, one of an old version is refused."""
    path = "/v1/tenants/clinic"
    tag = world.viewer.get(path).headers["etag"]
    patches = [{"display_name": "Ward"}, {"weight": 3}, {"country": "DE"}]
    with ThreadPoolExecutor(3) as together:
        done = list(together.map(lambda one: world.operator.patch(path, json=one), patches))
    assert [one.status_code for one in done] == [200, 200, 200]
    assert world.viewer.get(path).json() == {
        "name": "clinic",
        "display_name": "Ward",
        "weight": 3.0,
        "country": "DE",
    }
    late = world.operator.patch(path, json={"weight": 4}, headers={"If-Match": tag})
    assert "it has been changed since you read it" in problem(late, 412)
    problem(world.operator.patch(path, json={}, headers={"If-Match": "nonsense"}), 400)
    tag = world.viewer.get(path).headers["etag"]
    again = world.operator.patch(path, json={"weight": 4}, headers={"If-Match": tag, **_MERGE})
    assert again.json()["resource"]["weight"] == 4.0
    # A tool manages it from then on, and others' patches are refused as others' PUTs are.
    tool = {"GTM-Managed-By": "terraform/prod-network"}
    assert (
        world.operator.patch(path, json={}, headers=tool).headers["gtm-managed-by"] == tool["GTM-Managed-By"]
    )
    assert "managed by" in problem(world.operator.patch(path, json={"weight": 5}), 409)


def test_a_patch_opens_no_fence_unforced(world: Api) -> None:
    """A rule that allows more is what it is by PUT: an operator's is refused, and a fence-admin may force it."""
    path = "/v1/residency-rules/" + world.viewer.get("/v1/residency-rules").json()["items"][0]["name"]
    wider = {"allow": {"regions": ["us-east"]}}
    assert "unsafe-change" in problem(world.operator.patch(path, json=wider), 409)
    forced = {"force": True, "force_reason": "the law has changed"}
    problem(world.operator.patch(path, json=wider, params=forced), 403)
    assert world.fence_admin.patch(path, json=wider, params=forced).status_code == 200
