"""Changes that open a fence or delete much, and who may make them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from gtm.api.paging import encode_cursor
from tests.api.conftest import CHAT, GDPR, POLICY, TOKENS, ZONE, Api, Server, region
from tests.api.test_resources import problem

REASON = {"force": True, "force_reason": "counsel agreed"}
RULE = "/v1/residency-rules/gdpr"


def rules(response: httpx.Response) -> list[str]:
    """The safety rules that a refusal names."""
    assert response.status_code == 409, response.text
    return [breach["rule"] for breach in response.json()["breaches"]]


def policy(api: Api) -> dict[str, Any]:
    """The policy in force."""
    document: dict[str, Any] = api.viewer.get("/v1/policy").json()["policy"]
    return document


def apply(client: httpx.Client, document: dict[str, Any], **parameters: Any) -> httpx.Response:
    """Apply a policy."""
    return client.post("/v1/policy:apply", json={"policy": document}, params=parameters)


def test_no_way_to_change_policy_opens_a_fence(world: Api) -> None:
    """DELETE, PUT, apply and roll-back of what a rule keeps are refused without any demand or health, and told by a dry run."""
    looser = {**GDPR, "mode": "monitor"}
    wider = {**GDPR, "allow": {"jurisdictions": ["EEA", "US"]}}
    for done in (
        world.admin.delete(RULE),
        world.admin.put(RULE, json=looser),
        world.admin.put(RULE, json=wider),
        world.admin.put("/v1/regions/us-east", json=region("us-east", country="FR")),
        apply(world.admin, {**policy(world), "residency_rules": []}),
    ):
        assert "fence" in rules(done)
    text = problem(world.operator.delete(RULE), 409)
    assert "rule `gdpr` (deleted) would no longer keep service `chat`, for clients in AT, AX, BE" in text
    assert "from `us-east` and regions to come in " in text
    body = {"policy": {**policy(world), "residency_rules": []}, "dry_run": True}
    dry = world.operator.post("/v1/policy:apply", json=body).json()["safety"]
    assert [breach["rule"] for breach in dry["breaches"]] == ["fence"]
    assert dry["fingerprint"] is None, "nobody else is asked"
    assert (dry["may_force"], world.operator.delete(RULE).json()["may_force"]) == (False, False), (
        "an operator"
    )
    assert world.fence_admin.delete(RULE).json()["may_force"]
    assert world.viewer.get(RULE).json()["mode"] == "enforce"
    assert world.operator.put(RULE, json={**GDPR, "allow": {"jurisdictions": ["DE"]}}).status_code == 200
    assert rules(world.admin.post("/v1/revisions/2:rollback")) == ["fence"], "the rule was wider then"


def test_what_a_host_name_states_is_fenced(world: Api) -> None:
    """To state a tenant of those who come by a name lets them out of the others' rules: refused. A new name is nobody's yet."""

    def named(*hosts: str | dict[str, str]) -> httpx.Response:
        return world.operator.put("/v1/services/chat", json={**CHAT, "hostnames": hosts})

    def said(tenant: str, name: str = "chat.demo.test") -> dict[str, str]:
        return {"name": name, "tenant": tenant}

    world.must_put("/v1/tenants/bank", {})
    clinic = {"match": {"services": ["chat"], "tenants": ["clinic"]}, "allow": {"jurisdictions": ["DE"]}}
    made = world.operator.put("/v1/residency-rules/clinic", json=clinic, params=REASON)
    assert made.status_code in (200, 201), made.text
    refused = named(said("bank"))
    assert rules(refused) == ["fence"]
    assert (
        "rule `clinic` (the same, but what it is about has changed) would no longer keep service `chat`, asked for by host "
        "name `chat.demo.test`, for any client, from `eu-west`" in problem(refused, 409)
    )
    problem(
        world.operator.put("/v1/services/chat", json={**CHAT, "hostnames": [said("bank")]}, params=REASON),
        403,
    )
    assert named("chat.demo.test", said("bank", "bank.demo.test")).status_code == 200
    assert named(said("clinic"), said("bank", "bank.demo.test")).status_code == 200
    assert rules(named(said("bank"), said("bank", "bank.demo.test"))) == ["fence"]
    assert named(said("clinic"), said("clinic", "bank.demo.test")).status_code == 200
    assert named("chat.demo.test", "*.demo.test").status_code == 200
    assert rules(named("chat.demo.test", "*.demo.test", said("bank", "bank.demo.test"))) == ["fence"]


def with_record(*records: dict[str, Any]) -> dict[str, Any]:
    """The zone with records."""
    return {**ZONE, "records": list(records)}


def a_record(*addresses: str, name: str = "chat") -> dict[str, Any]:
    """Addresses at a name."""
    return {"name": name, "type": "A", "data": list(addresses)}


ELSEWHERE = {**CHAT, "hostnames": ["elsewhere.demo.test"]}
FREE = {**CHAT, "members": [{"region": "us-east"}], "hostnames": ["chat.demo.test"]}
"""A service that no rule names."""


def test_records_open_no_fence(world: Api) -> None:
    """A name that was a host name may lead to a region inside its fence by a record, and to no other place; nor later."""
    zone = "/v1/zones/demo.test"
    assert world.operator.put("/v1/services/chat", json=ELSEWHERE).status_code == 200
    assert rules(world.operator.put(zone, json=with_record(a_record("127.0.1.3")))) == ["fence"]
    text = problem(world.operator.put(zone, json=with_record(a_record("203.0.113.9"))), 409)
    assert "asked for by host name `chat.demo.test`" in text
    assert (
        "from whatever stands outside of the policy (records, refusal addresses or name servers lead there"
        in text
    )
    assert rules(world.operator.put(zone, json=with_record(a_record("127.0.1.3", name="a.chat")))) == [
        "fence"
    ]
    assert world.operator.put(zone, json=with_record(a_record("127.0.1.1"))).status_code == 200
    assert rules(world.operator.put(zone, json=with_record(a_record("127.0.1.3")))) == ["fence"]
    assert world.operator.put(zone, json=ZONE).status_code == 200
    assert rules(world.operator.put("/v1/services/free", json=FREE)) == ["fence"]
    body = {"policy": {"services": [{"name": "free", **FREE}]}, "partial": True}
    for path, more in (("apply", {"dry_run": True}), ("plan", {})):
        planned = world.operator.post(f"/v1/policy:{path}", json={**body, **more}).json()
        assert [breach["rule"] for breach in planned["safety"]["breaches"]] == ["fence"]


def test_a_zone_is_handed_to_nobody_outside(world: Api) -> None:
    """Whoever runs a name server answers for the fenced names of its zone, those that are gone included; inside the fence one may stand."""
    zone = "/v1/zones/demo.test"

    def served_by(name: str, country: str | None = None) -> dict[str, Any]:
        server = {"name": name} if country is None else {"name": name, "country": country}
        return {**ZONE, "name_servers": [server]}

    def by_plan(document: dict[str, Any]) -> set[str]:
        body = {"policy": {"zones": [{"name": "demo.test", **document}]}, "partial": True}
        planned = world.operator.post("/v1/policy:plan", json=body).json()
        return {breach["rule"] for breach in planned["safety"]["breaches"]}

    assert "name servers lead there" in problem(
        world.operator.put(zone, json=served_by("ns.evil.example")), 409
    )
    text = problem(world.operator.put(zone, json=served_by("ns.evil.example", "US")), 409)
    assert "from `ns.evil.example in US`" in text
    assert world.operator.put(zone, json=served_by("ns2.example.com", "DE")).status_code == 200
    assert world.operator.put("/v1/services/chat", json=ELSEWHERE).status_code == 200
    moved = {**ELSEWHERE, "hostnames": []}
    moved.pop("refusal")
    assert world.operator.put("/v1/services/chat", json={**moved, "zone": None}).status_code == 200
    wrong = served_by("ns.evil.example")
    assert by_plan(wrong) == {"fence"}
    assert set(rules(world.operator.put(zone, json=wrong))) == {"fence"}
    assert by_plan(served_by("ns3.example.com", "DE")) == set()


def test_what_was_deleted_with_its_rules_keeps_them(world: Api) -> None:
    """Service and rule go in one change; the name and the service come back in a later one, and are fenced as they were."""
    gone = {**policy(world), "services": [], "residency_rules": []}
    assert apply(world.fence_admin, gone, **REASON).status_code == 200
    assert rules(world.operator.put("/v1/services/free", json=FREE)) == ["fence"]
    assert rules(world.operator.put("/v1/services/chat", json={**FREE, "hostnames": []})) == ["fence"]
    assert world.fence_admin.put("/v1/services/free", json=FREE, params=REASON).status_code == 201
    assert world.operator.delete("/v1/services/free").status_code == 200
    assert world.operator.put("/v1/services/free", json=FREE).status_code == 201, (
        "somebody who may has released it"
    )


def test_an_address_stays_that_of_the_region_that_had_it(world: Api) -> None:
    """It is given up in one change and taken over in a later one; a region inside the fence may have it, and none from outside."""
    regions = {one["name"]: one for one in policy(world)["regions"]}

    def put(name: str, address: str) -> httpx.Response:
        body = {
            key: value
            for key, value in regions[name].items()
            if key not in ("name", "admin_state", "draining_since")
        }
        body["endpoints"] = [{"url": f"http://{address}:9000", "ipv4": [address]}]
        return world.operator.put(f"/v1/regions/{name}", json=body)

    had = regions["us-east"]["endpoints"][0]["ipv4"][0]
    assert rules(put("eu-west", had)) == ["fence"]
    assert put("us-east", "127.0.9.1").status_code == 200
    text = problem(put("eu-west", had), 409)
    assert "endpoints of `eu-west` are, or lead to, those of `us-east`" in text
    assert put("eu-west", "127.0.9.2").status_code == 200
    assert put("eu-central", regions["eu-west"]["endpoints"][0]["ipv4"][0]).status_code == 200


def test_only_those_who_may_open_a_fence(world: Api) -> None:
    """An operator's force is not enough, and the refusal says whose is; the reason is kept."""
    refused = world.operator.delete(RULE, params=REASON)
    text = problem(refused, 403)
    assert "takes a token of role `fence-admin`; yours is `operator`" in text
    assert [error["path"] for error in refused.json()["errors"]] == ["fence"]
    assert "role `fence-admin`" in problem(world.operator.delete(RULE), 409)
    assert world.fence_admin.delete(RULE, params=REASON).status_code == 200
    (newest,) = world.viewer.get("/v1/revisions?limit=1").json()["items"]
    assert (
        newest["comment"]
        == "delete residency rule gdpr; forced against the safety rules fence: counsel agreed"
    )
    problem(world.fence_admin.get("/v1/tokens"), 403)


def test_a_wrong_folder_is_not_applied(world: Api) -> None:
    """What deletes a zone, or much, says what it would delete, and is for a fence-admin to force."""
    done = apply(world.operator, {})
    assert rules(done) == ["deletion"], "without services nobody is served, wherever"
    text = problem(done, 409)
    assert "this would delete 3 regions, 1 zone, 1 service, 1 residency rule and 1 tenant" in text
    assert "(among them zone `demo.test`; that is 3 of 3 regions)" in text
    problem(apply(world.operator, {}, **REASON), 403)
    service = {**CHAT, "hostnames": [], "zone": None}
    service.pop("refusal")
    world.must_put("/v1/services/chat", service)
    assert rules(world.operator.delete("/v1/zones/demo.test")) == ["deletion"]
    world.must_put("/v1/zones/other.test", {**ZONE, "primary_ns": "ns1.other.test"})
    assert world.fence_admin.delete("/v1/zones/demo.test", params=REASON).status_code == 200
    assert world.operator.delete("/v1/tenants/clinic").status_code == 200, "one thing at a time"


@pytest.fixture
def careful(prepared_url: str) -> Iterator[Api]:
    """A control tier where somebody else has to approve of what opens a fence, with a rule."""
    with Server(prepared_url, fence_approvals=1) as server:
        clients = {
            role.value.replace("-", "_"): httpx.Client(
                base_url=server.url,
                headers={"Authorization": f"Bearer {text}"},
                trust_env=False,
                timeout=60,
            )
            for role, text in TOKENS.items()
        }
        anonymous = httpx.Client(base_url=server.url, trust_env=False)
        found = Api(server=server, anonymous=anonymous, database_url=prepared_url, **clients)
        assert apply(found.operator, POLICY).status_code == 200, "the first policy opens nothing"
        yield found
        for client in (anonymous, *clients.values()):
            client.close()


def test_a_second_person_approves(careful: Api) -> None:
    """Somebody else's approval of just this change lets it pass, for a time; one's own does not."""

    def approve(client: httpx.Client, sha256: str) -> httpx.Response:
        return client.post("/v1/fence-approvals", json={"sha256": sha256, "reason": "case 4711"})

    def delete() -> httpx.Response:
        return careful.fence_admin.delete(RULE, params=REASON)

    refused = delete()
    assert rules(refused) == ["fence"]
    named = refused.json()["fingerprint"]
    assert f"gtm fence approve {named}" in refused.json()["detail"]
    problem(approve(careful.operator, named), 403)
    assert approve(careful.fence_admin, named).status_code == 201
    assert delete().status_code == 409, "one's own"
    assert approve(careful.admin, "0" * 64).status_code == 201
    assert delete().status_code == 409, "another change's"
    assert approve(careful.admin, named).status_code == 201
    problem(careful.fence_admin.put(RULE, json={**GDPR, "mode": "monitor"}, params=REASON), 409)
    careful.must_put("/v1/tenants/more", {})
    refused = delete()
    assert refused.status_code == 409, "of another revision"
    assert refused.json()["fingerprint"] != named
    assert approve(careful.admin, refused.json()["fingerprint"]).status_code == 201
    problem(careful.fence_admin.delete(RULE), 409)
    assert delete().status_code == 200
    (newest,) = careful.viewer.get("/v1/revisions?limit=1").json()["items"]
    assert newest["comment"].endswith("fence: counsel agreed; approved by admin-one: case 4711")
    listed = careful.viewer.get("/v1/fence-approvals").json()["items"]
    assert [(item["approver"], item["reason"]) for item in listed[:1]] == [("admin-one", "case 4711")]


def test_approvals_end(careful: Api) -> None:
    """An approval holds for a time only, and says why it was given."""
    body = {"sha256": "ab" * 32, "reason": "x"}
    for wrong in (
        {"expires_at": "2020-01-01T00:00:00Z"},
        {"expires_at": "2999-01-01T00:00:00Z"},
        {"reason": "  "},
        {"sha256": "x"},
    ):
        problem(careful.admin.post("/v1/fence-approvals", json={**body, **wrong}), 422)
    dry = {"policy": {**policy(careful), "residency_rules": []}, "dry_run": True}
    named = careful.operator.post("/v1/policy:apply", json=dry).json()["safety"]["fingerprint"]
    soon = (datetime.now(UTC) + timedelta(seconds=1)).isoformat()
    body = {"sha256": named, "reason": "brief", "expires_at": soon}
    assert careful.admin.post("/v1/fence-approvals", json=body).status_code == 201
    while datetime.now(UTC).isoformat() <= soon:
        pass
    document = dry["policy"]
    assert apply(careful.fence_admin, document, **REASON).status_code == 409
    body = {"sha256": named, "reason": "again"}
    assert careful.admin.post("/v1/fence-approvals", json=body).status_code == 201
    assert apply(careful.fence_admin, document, **REASON).status_code == 200, (
        "the dry run named the same change"
    )


def test_an_approval_ends_with_its_approver(careful: Api) -> None:
    """Of a token that was revoked, or replaced because it leaked, no approval is left, whoever has its name next."""

    def approve(text: str) -> None:
        given = careful.anonymous.post(
            "/v1/fence-approvals",
            json={"sha256": delete().json()["fingerprint"], "reason": "mine"},
            headers={"Authorization": f"Bearer {text}"},
        )
        assert given.status_code == 201

    def made(path: str, body: dict[str, Any]) -> str:
        text: str = careful.admin.post(f"/v1/tokens{path}", json=body).json()["token"]
        return text

    def delete() -> httpx.Response:
        return careful.fence_admin.delete(RULE, params=REASON)

    approve(made("", {"name": "second", "role": "fence-admin"}))
    careful.admin.delete("/v1/tokens/second")
    assert delete().status_code == 409, "revoked"
    text = made("", {"name": "second", "role": "fence-admin"})
    assert delete().status_code == 409, "somebody else's"
    approve(text)
    made("/second:rotate", {"grace_seconds": 0})
    assert delete().status_code == 409, "replaced at once"
    approve(made("/second:rotate", {"grace_seconds": 0}))
    made("/second:rotate", {"grace_seconds": 60})
    assert delete().status_code == 200, "replaced with a grace, in which both are the same one's"


def test_tokens_are_replaced(api: Api) -> None:
    """A new text keeps name, role and expiry; the old one ends after its grace, or at once when the name is revoked."""

    def use(text: str) -> int:
        return api.anonymous.get("/v1/regions", headers={"Authorization": f"Bearer {text}"}).status_code

    def rotate(**body: Any) -> dict[str, Any]:
        done = api.admin.post("/v1/tokens/ci:rotate", json=body)
        assert done.status_code == 201, done.text
        found: dict[str, Any] = done.json()
        return found

    until = (datetime.now(UTC) + timedelta(days=3)).isoformat()
    first = api.admin.post("/v1/tokens", json={"name": "ci", "role": "viewer", "expires_at": until}).json()
    second = rotate(grace_seconds=3600)
    assert (second["role"], second["expires_at"], second["revoked_at"]) == (
        "viewer",
        first["expires_at"],
        None,
    )
    assert second["id"] != first["id"]
    assert [use(one["token"]) for one in (first, second)] == [200, 200]
    problem(api.admin.post("/v1/tokens", json={"name": "ci", "role": "viewer"}), 409)
    third = rotate(grace_seconds=1)
    while use(second["token"]) == 200:
        pass
    assert use(first["token"]) == 401, "a later grace does not prolong an earlier one"
    assert use(third["token"]) == 200
    fourth = rotate()
    assert api.admin.delete("/v1/tokens/ci").json()["id"] == fourth["id"]
    assert [use(one["token"]) for one in (third, fourth)] == [401, 401]
    problem(api.admin.post("/v1/tokens/ci:rotate"), 404)
    problem(api.admin.post("/v1/tokens/nobody:rotate"), 404)
    problem(api.operator.post("/v1/tokens/edge-one:rotate"), 403)
    again = api.admin.post("/v1/tokens", json={"name": "ci", "role": "operator"})
    assert (again.status_code, use(again.json()["token"])) == (201, 200)
    history = [item for item in api.admin.get("/v1/tokens").json()["items"] if item["name"] == "ci"]
    assert len(history) == 5
    assert [item["revoked_at"] is None for item in history] == [True, False, False, False, False]


def test_tokens_come_page_by_page(api: Api) -> None:
    """In order of names, the latest of each first, none twice and none left out; another list's cursor is none here."""
    for _ in range(3):
        for name in ("b", "a"):
            assert api.admin.post("/v1/tokens", json={"name": name, "role": "viewer"}).status_code == 201
            assert api.admin.delete(f"/v1/tokens/{name}").status_code == 200
    whole = api.admin.get("/v1/tokens").json()
    assert whole["next_cursor"] is None
    places = [(item["name"], item["created_at"]) for item in whole["items"]]
    assert [name for name, _ in places] == sorted(name for name, _ in places)
    assert [at for name, at in places if name == "b"] == sorted(
        (at for name, at in places if name == "b"), reverse=True
    )
    found, cursor = [], None
    while True:
        page = api.admin.get("/v1/tokens", params={"limit": 2, **({"cursor": cursor} if cursor else {})})
        assert len(page.json()["items"]) <= 2
        found += page.json()["items"]
        cursor = page.json()["next_cursor"]
        if cursor is None:
            break
    assert found == whole["items"]
    problem(api.admin.get("/v1/tokens", params={"cursor": encode_cursor("chat")}), 400)


def test_the_name_of_an_expired_token_is_free(api: Api) -> None:
    """One that has ended by itself stands in nobody's way."""
    soon = (datetime.now(UTC) + timedelta(seconds=1)).isoformat()
    body = {"name": "brief", "role": "viewer"}
    assert api.admin.post("/v1/tokens", json={**body, "expires_at": soon}).status_code == 201
    answer = api.admin.post("/v1/tokens", json=body)
    while answer.status_code == 409:
        answer = api.admin.post("/v1/tokens", json=body)
    assert answer.status_code == 201


def test_an_alias_that_leads_back_is_refused(world: Api) -> None:
    """By a change and by a dry run, with its place; nothing was changed, and what is right goes on."""
    refusal = {"ipv4": ["127.0.1.8"], "ipv6": ["::1"]}
    both = {**CHAT, "refusal": refusal}
    assert world.fence_admin.put("/v1/services/chat", json=both, params=REASON).status_code == 200
    before = world.revision()
    looping = region("eu-central", endpoints=[{"url": "http://127.0.1.1:9000", "cname": "chat.demo.test"}])
    told = world.fence_admin.put("/v1/regions/eu-central", json=looping, params=REASON)
    (one,) = told.json()["errors"]
    assert (told.status_code, one["path"], one["code"]) == (
        422,
        "regions.eu-central.endpoints[0].cname",
        "alias_loop",
    )
    changed = [{"name": "eu-central", **looping}, *policy(world)["regions"][1:]]
    body = {"policy": {**policy(world), "regions": changed}, "dry_run": True}
    assert "leads here again" in problem(world.operator.post("/v1/policy:apply", json=body), 422)
    assert world.revision() == before
    looping["endpoints"][0]["cname"] = "lb.example.net"
    assert world.fence_admin.put("/v1/regions/eu-central", json=looping, params=REASON).status_code == 200
