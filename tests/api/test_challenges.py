"""Answers to certificate authorities: written one by one by ACME clients, and left alone by all that write zones."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from gtm.control.policy.challenges import MAX_CHALLENGES, MAX_VALUES, TTL
from tests.api.conftest import POLICY, ZONE, Api
from tests.api.test_managers import BY, CI, PROD, PURPOSE, apply, put
from tests.api.test_resources import problem

NAME = "demo.test"
ZONE_PATH = f"/v1/zones/{NAME}"
FIRST, SECOND = "LoqXcYV8q5ONbJQxbmR7SCTNo3tiAXDfowyjxAjEuX0", "9jg46WB3rR_AHD-EBXdN7cBkH1WOu0tA3M9fm21mqTI"


def path(name: str) -> str:
    """Where the challenge at a name is."""
    return f"{ZONE_PATH}/records/{name}"


def write(api: Api, name: str, *values: str, **more: Any) -> httpx.Response:
    """PUT it."""
    return api.operator.put(path(name), json={"values": values, **more})


def test_a_hook_writes_and_cleans_up(world: Api) -> None:
    """As certbot, lego and acme.sh do: a value for each name of a certificate, by whole names or within the zone."""
    whole = f"_acme-challenge.new.{NAME}"
    made = write(world, whole, FIRST, add=True)
    assert made.status_code == 200, made.text
    document = made.json()
    assert (document["name"], document["values"], document["ttl"]) == (whole, [FIRST], TTL)
    assert document["sync"]["state"] in ("PENDING", "IN_SYNC", "NO_EDGES"), document
    again = write(world, "_acme-challenge.new", FIRST, add=True).json()
    assert again["revision"] == document["revision"] == world.revision(), "nothing new makes no revision"
    assert world.viewer.get(path(f"{whole.upper()}.")).json()["values"] == [FIRST]
    assert write(world, "_acme-challenge.new", SECOND).json()["values"] == [SECOND]
    assert write(world, "_acme-challenge.new", FIRST, add=True).json()["values"] == [SECOND, FIRST]
    for _ in range(2):
        assert world.operator.delete(path(whole), params={"value": FIRST}).status_code == 200
    assert world.viewer.get(path(whole)).json()["values"] == [SECOND]
    assert world.operator.delete(path(whole)).status_code == 200
    assert "there is no challenge" in problem(world.viewer.get(path(whole)), 404)
    assert "challenges" not in world.viewer.get("/v1/policy").json()["policy"]["zones"][0]


def test_a_name_and_its_wildcard(world: Api) -> None:
    """acme-dns/acme-dns#331: a certificate of a name and its wildcard has two values at one name, and the second took the first's place."""
    write(world, "_acme-challenge", FIRST, add=True)
    write(world, "_acme-challenge", SECOND, add=True)
    assert world.viewer.get(path("_acme-challenge")).json()["values"] == [FIRST, SECOND]


def test_no_whole_write_deletes_one(world: Api) -> None:
    """octodns/octodns#352: what puts a zone's records in force from files deleted the challenges between them."""
    world.must_put(ZONE_PATH, ZONE)
    before = world.viewer.get("/v1/policy").json()["policy"]
    revision = world.revision()
    assert write(world, "_acme-challenge.x", FIRST).status_code == 200
    held = world.viewer.get(ZONE_PATH).json()["challenges"]
    assert [one["data"] for one in held] == [[f'"{FIRST}"']]
    assert world.viewer.get("/v1/policy").json()["policy"] == before, (
        "a folder that was exported shows no drift"
    )
    for policy in (POLICY, before):
        tried = apply(world, policy, dry_run=True).json()
        assert [one for one in tried["changes"] if one["kind"] == "zones"] == []
        assert apply(world, policy).status_code == 200
        assert world.viewer.get(ZONE_PATH).json()["challenges"] == held
    world.must_put(ZONE_PATH, {**ZONE, "minimum": 61})
    assert world.operator.post(f"/v1/revisions/{revision}:rollback").status_code == 200
    assert world.viewer.get(ZONE_PATH).json()["challenges"] == held
    world.must_put(ZONE_PATH, {**ZONE, "challenges": []})
    assert world.viewer.get(ZONE_PATH).json()["challenges"] == []


def test_a_name_has_so_many_values(world: Api) -> None:
    """Values that are there count once, one too many is refused whole, and other ones in their place are none too many."""
    values = [f"v{number}" for number in range(MAX_VALUES)]
    assert write(world, "_acme-challenge.v", *values[:-1]).status_code == 200
    assert write(world, "_acme-challenge.v", values[-1], add=True).json()["values"] == values
    assert write(world, "_acme-challenge.v", values[0], add=True).json()["values"] == values, (
        "nothing is added"
    )
    refused = problem(write(world, "_acme-challenge.v", "more", add=True), 409)
    assert f"`_acme-challenge.v.{NAME}` has {MAX_VALUES} values: delete old ones" in refused
    assert problem(write(world, "_acme-challenge.v", *values, "more"), 422)
    assert world.viewer.get(path("_acme-challenge.v")).json()["values"] == values
    assert write(world, "_acme-challenge.v", "more").json()["values"] == ["more"]
    world.must_put(ZONE_PATH, {**ZONE, "challenges": []})


def test_a_zone_has_challenges_at_so_many_names(world: Api) -> None:
    """The one that is too many is refused and changes nothing; those that are there can be written, and one deleted makes room."""
    held = [
        {"name": f"_acme-challenge.n{number}", "type": "TXT", "data": ['"x"']}
        for number in range(MAX_CHALLENGES - 1)
    ]
    world.must_put(ZONE_PATH, {**ZONE, "challenges": held})
    assert write(world, "_acme-challenge.last", FIRST).status_code == 200
    revision = world.revision()
    refused = problem(write(world, "_acme-challenge.more", FIRST), 409)
    assert f"zone `{NAME}` has challenges at {MAX_CHALLENGES} names: delete old ones" in refused
    assert world.revision() == revision
    assert write(world, "_acme-challenge.last", SECOND, add=True).json()["values"] == [FIRST, SECOND]
    assert world.operator.delete(path("_acme-challenge.n0")).status_code == 200
    assert write(world, "_acme-challenge.more", FIRST).status_code == 200
    world.must_put(ZONE_PATH, {**ZONE, "challenges": []})


def test_nobodys_management_stands_against_one(world: Api) -> None:
    """A zone that Terraform manages goes on to be Terraform's, and is as it was."""
    assert put(world, ZONE_PATH, ZONE, PROD).status_code in (200, 201)
    assert write(world, "_acme-challenge.m", FIRST).status_code == 200
    assert world.viewer.get(ZONE_PATH).headers[BY] == PROD
    assert put(world, ZONE_PATH, {**ZONE, "minimum": 62}, CI).status_code == 409
    assert put(world, ZONE_PATH, ZONE, CI, **PURPOSE).status_code == 200
    assert world.viewer.get(path("_acme-challenge.m")).json()["values"] == [FIRST]


@pytest.mark.parametrize(
    ("name", "body", "status", "says"),
    [
        ("www", {"values": ["x"]}, 400, "no name of a challenge"),
        ("x._acme-challenge", {"values": ["x"]}, 400, "no name of a challenge"),
        ("_acme-challengex", {"values": ["x"]}, 400, "no name of a challenge"),
        ("_acme-challenge.example.org.", {"values": ["x"]}, 400, "no name of a challenge"),
        ("_acme-challenge", {"values": ['a"b']}, 422, "values"),
        ("_acme-challenge", {"values": ["a b"]}, 422, "values"),
        ("_acme-challenge", {"values": []}, 422, "values"),
        ("_acme-challenge", {"values": ["x"], "type": "A"}, 422, "type"),
    ],
)
def test_nothing_else_is_written(world: Api, name: str, body: dict[str, Any], status: int, says: str) -> None:
    """Other names, types and texts are refused, and change nothing."""
    revision = world.revision()
    refused = world.operator.put(path(name), json=body)
    assert refused.status_code in {status, 422}, refused.text
    assert says in refused.text
    assert world.revision() == revision
    missing = world.operator.put("/v1/zones/none.test/records/_acme-challenge", json={"values": ["x"]})
    assert "there is no zone" in problem(missing, 404)


def test_no_other_answer_changes(world: Api) -> None:
    """A challenge below a name for which a wildcard answers would take it from the wildcard; the wildcard's own takes nothing."""
    wild = {"name": "*.apps", "type": "A", "data": ["192.0.2.7"]}
    alias = {"name": "_acme-challenge.cname", "type": "CNAME", "data": ["x.acme.example.net."]}
    world.must_put(ZONE_PATH, {**ZONE, "records": [*ZONE.get("records", ()), wild, alias]})
    refused = problem(write(world, "_acme-challenge.one.apps", FIRST), 409)
    assert f"`one.apps.{NAME}` would exist" in refused
    assert write(world, "_acme-challenge.apps", FIRST).status_code == 200
    world.must_put(ZONE_PATH, {**ZONE, "challenges": []})


def test_an_alias_says_where_the_challenge_goes(world: Api) -> None:
    """cert-manager/cert-manager#8095: at a name that is an alias for another, the challenge was written beside it, where nobody asks."""
    records = [
        {"name": "_acme-challenge.away", "type": "CNAME", "data": ["x.acme.example.net."]},
        {"name": f"_ACME-challenge.here.{NAME}.", "type": "CNAME", "data": ["_acme-challenge.certs"]},
    ]
    world.must_put(ZONE_PATH, {**ZONE, "records": [*ZONE.get("records", ()), *records]})
    for name, target in (("away", "x.acme.example.net"), ("here", f"_acme-challenge.certs.{NAME}")):
        refused = problem(write(world, f"_acme-challenge.{name}", FIRST), 409)
        assert (
            f"is an alias (CNAME) for `{target}`, where authorities ask then: write the challenge there"
            in refused
        )
    assert write(world, target, FIRST).status_code == 200
    world.must_put(ZONE_PATH, {**ZONE, "challenges": []})


def test_beside_a_text_of_the_zones_own(world: Api) -> None:
    """acmesh-official/acme.sh#1848, #333: a text that an old client left at the name, with a TTL of its own, kept new challenges out.

    Whichever comes first, both are answered, with the TTL of the zone's own records.
    """
    left = {"name": "_acme-challenge.old", "type": "TXT", "data": ['"left"'], "ttl": 3600}
    world.must_put(ZONE_PATH, {**ZONE, "records": [*ZONE.get("records", ()), left]})
    assert write(world, "_acme-challenge.old", FIRST).status_code == 200
    assert write(world, "_acme-challenge.later", FIRST).status_code == 200
    later = {**left, "name": f"_acme-challenge.later.{NAME}."}
    world.must_put(ZONE_PATH, {**ZONE, "records": [*ZONE.get("records", ()), left, later]})
    for name in ("old", "later"):
        assert world.viewer.get(path(f"_acme-challenge.{name}")).json()["values"] == [FIRST]
    world.must_put(ZONE_PATH, {**ZONE, "challenges": []})


def test_a_token_of_certain_names(world: Api) -> None:
    """A token of role `acme` writes the challenges of its names, and does nothing else; one of a zone's has the zone's own name, too."""

    def client(names: str) -> httpx.Client:
        name = f"acme-{names.strip('*.').replace('.', '-')}-{'*' in names:d}"
        body = {"name": name, "role": "acme", "names": names}
        made = world.admin.post("/v1/tokens", json=body)
        assert made.status_code == 201, made.text
        headers = {"Authorization": f"Bearer {made.json()['token']}"}
        return httpx.Client(base_url=world.url, headers=headers, trust_env=False, timeout=60)

    body = {"values": [FIRST]}
    with client(f"*.{NAME}") as zone, client(f"chat.{NAME}") as one, client("*.other.test") as other:
        for name in ("_acme-challenge", "_acme-challenge.chat", f"_ACME-Challenge.a.b.{NAME}."):
            assert zone.put(path(name), json=body).status_code == 200
            assert zone.get(path(name)).status_code == 200
            assert "your token is for certificates of" in problem(other.put(path(name), json=body), 403)
            assert problem(other.get(path(name)), 403)
            assert problem(other.delete(path(name)), 403)
            allowed = one.put(path(name), json=body).status_code == 200
            assert allowed is (name == "_acme-challenge.chat")
        assert problem(one.put(path("_acme-challenge.xchat"), json=body), 403)
        assert problem(one.put(path("_acme-challenge.x.chat"), json=body), 403)
        assert problem(zone.put(ZONE_PATH, json=ZONE), 403)
        assert problem(zone.get(ZONE_PATH), 403)
        assert zone.put(path("www"), json=body).status_code >= 400
        assert zone.delete(path("_acme-challenge.chat")).status_code == 200
    for wrong, says in (
        ({"role": "acme"}, "needs the name"),
        ({"role": "acme", "names": "A B"}, "names"),
        ({"role": "viewer", "names": "a.test"}, "only a token of role `acme`"),
    ):
        assert says in world.admin.post("/v1/tokens", json={"name": "wrong", **wrong}).text
    world.must_put(ZONE_PATH, {**ZONE, "challenges": []})
