"""CRUD, entity tags, pages, revisions, tokens and every error, over real HTTP."""

from __future__ import annotations

import re
import socket
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gtm.core.model.access import Role
from tests.api.conftest import CHAT, GDPR, Api, region
from tests.misspelling import wrong_documents


def problem(response: Any, status: int) -> str:
    """The text of a problem document, which every error has to be."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    assert response.json()["status"] == status
    return str(response.text)


def test_put_is_idempotent(api: Api) -> None:
    """The first PUT creates, an equal one changes nothing, another replaces; each answer has the entity tag."""
    first = api.put("/v1/regions/eu-west", region("eu-west"))
    same = api.put("/v1/regions/eu-west", {"name": "eu-west", **region("eu-west")})
    other = api.put("/v1/regions/eu-west", region("eu-west", cost_weight=3))
    assert [first.status_code, same.status_code, other.status_code] == [201, 200, 200]
    assert [r.json()["outcome"] for r in (first, same, other)] == ["created", "unchanged", "updated"]
    assert [r.json()["revision"] for r in (first, same, other)] == [2, 2, 3]
    assert first.headers["etag"] == same.headers["etag"] != other.headers["etag"]
    got = api.viewer.get("/v1/regions/eu-west")
    assert got.headers["etag"] == other.headers["etag"]
    assert api.put("/v1/regions/eu-west", got.json()).json()["outcome"] == "unchanged"


def test_records_are_checked_under_the_name_in_the_url(api: Api) -> None:
    """What a zone's records mean depends on its name, also where only the URL has that."""
    zone = {"primary_ns": "ns.example.net", "hostmaster": "hostmaster.example.net"}
    good = {"name": "www", "type": "CNAME", "data": ["chat"]}
    put = api.put("/v1/zones/x.test", {**zone, "records": [good]})
    assert put.status_code == 201, put.text
    assert api.viewer.get("/v1/zones/x.test").json()["records"] == [{**good, "ttl": None}]
    twice = {"name": "www.x.test.", "type": "CNAME", "data": ["chat.x.test."]}
    for name in ({}, {"name": "x.test"}):
        text = problem(api.put("/v1/zones/x.test", {**zone, **name, "records": [good, twice]}), 422)
        assert "it is the same as `chat`" in text
    outside = {"name": "www.y.test.", "type": "A", "data": ["192.0.2.1"]}
    text = problem(api.put("/v1/zones/x.test", {**zone, "records": [outside]}), 422)
    assert "zones.x.test.records[0].name" in text


def test_a_lost_update_is_refused(world: Api) -> None:
    """Who writes on the strength of an old entity tag gets 412, and nothing changes."""
    tag = world.viewer.get("/v1/regions/eu-west").headers["etag"]
    mine = {**region("eu-west"), "cost_weight": 2}
    assert world.put("/v1/regions/eu-west", mine, **{"If-Match": tag}).status_code == 200
    theirs = world.put("/v1/regions/eu-west", region("eu-west", cost_weight=9), **{"If-Match": tag})
    assert "it has been changed since you read it" in problem(theirs, 412)
    assert world.viewer.get("/v1/regions/eu-west").json()["cost_weight"] == 2
    problem(world.operator.delete("/v1/tenants/clinic", headers={"If-Match": '"0"'}), 412)
    problem(world.put("/v1/tenants/clinic", {}, **{"If-None-Match": "*"}), 412)
    problem(world.put("/v1/tenants/none", {}, **{"If-Match": "*"}), 412)
    problem(world.put("/v1/tenants/none", {}, **{"If-Match": "nonsense"}), 400)
    tag = world.viewer.get("/v1/regions/eu-west").headers["etag"]
    assert world.viewer.get("/v1/regions/eu-west", headers={"If-None-Match": tag}).status_code == 304


def test_deleting_what_is_needed_is_refused(world: Api) -> None:
    """A region that a service refers to stays, and the answer says who needs it."""
    text = problem(world.operator.delete("/v1/regions/eu-west"), 409)
    assert "services.chat.members[1].region" in text
    assert world.operator.delete("/v1/tenants/clinic").status_code == 200
    problem(world.operator.delete("/v1/tenants/clinic"), 404)


def test_pages_hold_everything_once(api: Api) -> None:
    """Following the cursors yields every resource once, in order; a cursor of another's is refused."""
    names = [f"tenant-{number:02}" for number in range(7)]
    policy = {"tenants": [{"name": name} for name in reversed(names)]}
    assert api.operator.post("/v1/policy:apply", json={"policy": policy}).status_code == 200
    found: list[str] = []
    cursor = None
    while True:
        params = {"limit": "3"} | ({"cursor": cursor} if cursor else {})
        page = api.viewer.get("/v1/tenants", params=params).json()
        found += [item["name"] for item in page["items"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert found == names
    problem(api.viewer.get("/v1/tenants?cursor=nonsense"), 400)
    assert "unknown field" in problem(api.viewer.get("/v1/tenants?cursr=x"), 422)


def test_regions_keep_their_admin_state(world: Api) -> None:
    """A drained region stays drained through PUT, apply and rollback, until it is activated."""
    drained = world.operator.post("/v1/regions/eu-west:drain")
    assert drained.json()["resource"]["admin_state"] == "draining"
    since = drained.json()["resource"]["draining_since"]
    assert abs(datetime.fromisoformat(since) - datetime.now(UTC)) < timedelta(minutes=10)
    assert world.operator.post("/v1/regions/eu-west:drain").json()["outcome"] == "unchanged"
    world.must_put("/v1/regions/eu-west", region("eu-west", cost_weight=2))
    exported = world.viewer.get("/v1/policy").json()["policy"]
    assert not {"admin_state", "draining_since"} & set().union(*exported["regions"])
    applied = world.operator.post("/v1/policy:apply", json={"policy": exported}).json()
    assert applied["changes"] == []
    rolled = world.operator.post("/v1/revisions/2:rollback", json={"comment": "back"})
    assert rolled.status_code == 200
    now = world.viewer.get("/v1/regions/eu-west").json()
    assert (now["admin_state"], now["draining_since"], now["cost_weight"]) == ("draining", since, 1.0)
    activated = world.operator.post("/v1/regions/eu-west:activate").json()["resource"]
    assert (activated["admin_state"], activated["draining_since"]) == ("active", None)
    again = {"policy": {**exported, "regions": [{**exported["regions"][1], "admin_state": "draining"}]}}
    again["policy"] |= {"services": [], "residency_rules": []}
    planned = world.operator.post("/v1/policy:apply", json={**again, "dry_run": True}).json()
    fields = next(change["fields"] for change in planned["changes"] if change["action"] == "updated")
    assert [field["path"] for field in fields] == ["cost_weight", "admin_state", "draining_since"]
    problem(world.operator.post("/v1/regions/nowhere:drain"), 404)


def test_why_a_region_is_drained_is_kept(world: Api) -> None:
    """With the revision, if anything was said; a line that is none is refused."""
    drained = world.operator.post(
        "/v1/regions/eu-west:drain", params={"comment": "cooling is out <b>"}
    ).json()
    revision = world.viewer.get(f"/v1/revisions/{drained['revision']}").json()
    assert revision["comment"] == "set region eu-west draining: cooling is out <b>"
    problem(world.operator.post("/v1/regions/eu-west:activate", params={"comment": "a\nb"}), 422)
    problem(world.operator.post("/v1/regions/eu-west:activate", params={"comment": "x" * 1001}), 422)
    activated = world.operator.post("/v1/regions/eu-west:activate", params={"comment": " "}).json()
    revision = world.viewer.get(f"/v1/revisions/{activated['revision']}").json()
    assert revision["comment"] == "set region eu-west active"


def test_revisions_tell_what_changed(world: Api) -> None:
    """Each change is a revision with its author, comment and difference; a dry run is none."""
    policy = world.viewer.get("/v1/policy").json()["policy"]
    policy["services"][0]["ttl"] = 60
    body = {"policy": policy, "dry_run": True, "comment": "slower"}
    planned = world.operator.post("/v1/policy:apply", json=body).json()
    assert planned["revision"] == 2
    assert planned["changes"] == [
        {
            "kind": "services",
            "name": "chat",
            "action": "updated",
            "fields": [{"path": "ttl", "before": 30, "after": 60}],
        }
    ]
    tag = world.viewer.get("/v1/policy").headers["etag"]
    done = world.operator.post(
        "/v1/policy:apply", json={**body, "dry_run": False}, headers={"If-Match": tag}
    ).json()
    assert (done["revision"], done["changes"]) == (3, planned["changes"])
    stale = world.operator.post("/v1/policy:apply", json={"policy": {}}, headers={"If-Match": tag})
    problem(stale, 412)
    newest = world.viewer.get("/v1/revisions?limit=1").json()["items"][0]
    assert (newest["number"], newest["author"], newest["comment"]) == (3, "operator-one", "slower")
    assert newest["summary"] == {"services": {"updated": 1}}
    assert world.viewer.get("/v1/revisions/3/diff").json()["changes"] == planned["changes"]
    assert world.viewer.get("/v1/revisions/2/diff?against=2").json()["changes"] == []
    assert world.viewer.get("/v1/revisions/2").json()["policy"]["services"][0]["ttl"] == 30
    problem(world.viewer.get("/v1/revisions/99"), 404)
    text = world.viewer.get("/v1/policy", headers={"Accept": "application/yaml"})
    assert text.headers["content-type"].startswith("application/yaml")
    assert "ttl: 60" in text.text


def test_dry_runs_find_what_is_probably_not_meant(world: Api) -> None:
    """A dry run has findings with path and code; the change itself is made all the same, and does not look for them."""
    policy = world.viewer.get("/v1/policy").json()["policy"]
    policy["residency_rules"][0]["effective_until"] = "2020-01-01T00:00:00Z"
    planned = world.operator.post("/v1/policy:apply", json={"policy": policy, "dry_run": True}).json()
    name = policy["residency_rules"][0]["name"]
    assert [(item["path"], item["code"]) for item in planned["findings"]] == [
        (f"residency_rules.{name}.effective_until", "rule_over"),
        ("services.chat", "no_rule"),
    ]
    assert planned["findings"][0]["message"]
    forced = {"force": True, "force_reason": "to see what an apply says"}  # it ends the rule
    done = world.fence_admin.post("/v1/policy:apply", json={"policy": policy}, params=forced).json()
    assert (done["revision"], done["findings"]) == (planned["revision"] + 1, [])


def test_jurisdictions_show_the_shipped_ones(api: Api) -> None:
    """Shipped jurisdictions are listed with the operators' own, and cannot be changed; countries are there too."""
    api.must_put("/v1/jurisdictions/DACH", {"members": ["DE", "AT", "CH"]})
    items = {item["name"]: item for item in api.viewer.get("/v1/jurisdictions").json()["items"]}
    assert (items["EU"]["origin"], items["DACH"]["origin"]) == ("shipped", "operator")
    assert items["DACH"]["countries"] == ["AT", "CH", "DE"]
    adequate = items["GDPR-ADEQUATE"]
    decisions = {decision["country"]: decision for decision in adequate["decisions"]}
    assert decisions["JP"]["article"].endswith("Art. 45(3)")
    assert decisions["GB"]["until"] == "2031-12-27"
    assert [(term["member"], term["effective_until"]) for term in adequate["terms"]] == [
        ("GB", "2031-12-27T00:00:00Z")
    ]
    gone = {"members": ["DE", "US"], "terms": [{"member": "US", "effective_until": "2020-01-01T00:00:00Z"}]}
    assert (
        api.must_put("/v1/jurisdictions/SAFE", gone).json()["resource"]["terms"][0]["effective_from"] is None
    )
    assert api.viewer.get("/v1/jurisdictions/SAFE").json()["countries"] == ["DE"]
    assert api.viewer.get("/v1/jurisdictions/CN").json()["laws"]
    assert "comes with gtm" in problem(api.put("/v1/jurisdictions/EU", {"members": ["DE"]}), 409)
    problem(api.operator.delete("/v1/jurisdictions/DE"), 409)
    problem(api.viewer.get("/v1/jurisdictions/NOWHERE"), 404)


def test_what_is_shown_of_a_jurisdiction_has_a_tag_of_its_own(api: Api) -> None:
    """It changes with other jurisdictions that it names, without a write to it; a write asks for what the resource itself says."""
    api.must_put("/v1/jurisdictions/INNER", {"members": ["DE"]})
    api.must_put("/v1/jurisdictions/OUTER", {"members": ["INNER", "FR"]})
    first = api.viewer.get("/v1/jurisdictions/OUTER")
    tag = {"If-None-Match": first.headers["etag"]}
    assert api.viewer.get("/v1/jurisdictions/OUTER", headers=tag).status_code == 304
    api.must_put("/v1/jurisdictions/INNER", {"members": ["DE", "AT"]})
    second = api.viewer.get("/v1/jurisdictions/OUTER", headers=tag)
    assert (second.status_code, second.json()["countries"]) == (200, ["AT", "DE", "FR"])
    assert second.headers["etag"] != first.headers["etag"]
    matched = {"If-Match": first.headers["etag"]}  # nobody wrote to it since
    changed = api.operator.put("/v1/jurisdictions/OUTER", json={"members": ["INNER"]}, headers=matched)
    assert changed.status_code == 200
    problem(api.operator.put("/v1/jurisdictions/OUTER", json={"members": ["FR"]}, headers=matched), 412)


BAD: list[tuple[str, dict[str, Any], str]] = [
    ("/v1/services/chat", {**CHAT, "members": [{"region": "nowhere"}]}, "there is no region `nowhere`"),
    ("/v1/services/chat", {**CHAT, "members": [{"region": "eu-west"}] * 2}, "`eu-west` is listed twice"),
    ("/v1/services/chat", {**CHAT, "hostnames": ["chat.other.test"]}, "is not inside the zone `demo.test`"),
    ("/v1/services/more", CHAT, "`chat.demo.test` is a host name of service `chat` too"),
    ("/v1/services/a", CHAT, "`chat.demo.test` is a host name of service `chat` too"),
    ("/v1/services/chat", {**CHAT, "on_unusabel": "refuse"}, "did you mean `on_unusable`?"),
    ("/v1/services/chat", {**CHAT, "members": [{"regoin": "eu-west"}]}, "did you mean `region`?"),
    ("/v1/services/chat", {**CHAT, "ttl": "30"}, "in quotes is text: remove the quotes"),
    ("/v1/services/chat", {**CHAT, "refusal": {}}, "a refusal needs an ipv4 address"),
    ("/v1/services/chat", {**CHAT, "ttl": 0}, "services.chat.ttl"),
    ("/v1/services/chat", {**CHAT, "name": "other"}, "is not the name in the URL"),
    ("/v1/regions/eu-west", {"lat": 91, "lon": 0, "country": "IE", "endpoints": []}, "regions.eu-west.lat"),
    ("/v1/regions/eu-west", region("eu-west", capacity={"outstanding": -1}), "capacity.outstanding"),
    ("/v1/regions/eu-west", region("eu-west", probe={"body_regex": "(a)\\1"}), "is not an RE2 pattern"),
    ("/v1/regions/eu-west", region("eu-west", probe={"timeout": 30}), "must not exceed the interval"),
    ("/v1/residency-rules/gdpr", {**GDPR, "allow": {"jurisdictions": ["CN"]}}, "acknowledge_empty_fence"),
    ("/v1/residency-rules/gdpr", {**GDPR, "deny": {"jurisdictions": ["EEA"]}}, "is both allowed and denied"),
    ("/v1/residency-rules/gdpr", {"match": {"tenants": ["nobody"]}}, "there is no tenant `nobody`"),
    (
        "/v1/spillover-rules/a",
        {"from_region": "eu-west", "to_regions": ["eu-west"]},
        "cannot spill to itself",
    ),
    ("/v1/jurisdictions/XA", {"members": ["XB"]}, "`XB` is neither a country code"),
]


@pytest.mark.parametrize(("path", "body", "message"), BAD, ids=[str(number) for number in range(len(BAD))])
@pytest.mark.reads
def test_bad_policy_changes_nothing(world: Api, path: str, body: dict[str, Any], message: str) -> None:
    """Every kind of mistake in policy is named with its path, and no revision is made."""
    assert message in problem(world.put(path, body), 422)
    assert world.viewer.get("/v1/policy").json()["revision"] == 2


@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.reads
def test_every_field_misspelt(world: Api, alone: bool) -> None:
    """Whatever field of whatever object is written wrong, in a resource or in a whole policy, is told with the one that was meant."""
    for kind, document, wrong in wrong_documents():
        if alone:
            answer = world.put(f"/v1/{kind.replace('_', '-')}/n", document)
        else:
            body = {"policy": {kind: [{"name": "n", **document}]}, "partial": True}
            answer = world.admin.post("/v1/policy:apply", json=body)
        problem(answer, 422)
        told = {item["path"]: item["message"] for item in answer.json()["errors"]}
        wanted = {f"{kind}.n.{path}": f"; did you mean `{meant}`?" for path, meant in wrong}
        assert not {
            path: (told.get(path), meant) for path, meant in wanted.items() if meant not in told.get(path, "")
        }


def test_an_acknowledged_empty_fence_is_a_warning(world: Api) -> None:
    """An author who means it may leave a service nowhere to go."""
    body = {**GDPR, "deny": {"jurisdictions": ["DE", "IE"]}, "acknowledge_empty_fence": True}
    assert "; acknowledged" in world.must_put("/v1/residency-rules/gdpr", body).text


def test_bodies_are_bounded(api: Api) -> None:
    """Bodies too large (announced or not), of another type, or not JSON are refused before anything reads them."""
    put = api.operator.put
    json_type = {"Content-Type": "application/json"}
    problem(put("/v1/tenants/a", content=b" " * (10 * 2**20 + 1), headers=json_type), 413)
    chunks = (b" " * 2**20 for _ in range(11))
    problem(put("/v1/tenants/a", content=chunks, headers=json_type), 413)
    problem(put("/v1/tenants/a", content=b"a: 1", headers={"Content-Type": "text/yaml"}), 415)
    problem(put("/v1/tenants/a", content=b"{"), 415)
    assert "not JSON" in problem(put("/v1/tenants/a", content=b"{", headers=json_type), 400)
    deep = problem(put("/v1/tenants/a", content=b"[" * 100_000, headers=json_type), 400)
    assert "the body is nested deeper than 100" in deep
    problem(put("/v1/tenants/a", content=b"\xff", headers=json_type), 400)
    problem(put("/v1/tenants/a", content=b'{"display_name": NaN}', headers=json_type), 422)
    problem(put("/v1/tenants/a", content=b"1" * 10_000, headers=json_type), 400)


def test_unknown_routes_and_methods(api: Api) -> None:
    """They are problems like any other, and say what is allowed."""
    problem(api.viewer.get("/v1/nothing"), 404)
    refused = api.viewer.post("/v1/regions/x")
    problem(refused, 405)
    assert refused.headers["allow"] == "DELETE, GET, HEAD, PATCH, PUT"


def test_roles_are_held(world: Api) -> None:
    """Viewers read, operators change policy, admins manage tokens, edges and reporters do neither; nobody without a token."""
    refused = world.anonymous.get("/v1/regions")
    assert "bearer token is needed" in problem(refused, 401)
    assert refused.headers["www-authenticate"].startswith("Bearer")
    problem(world.viewer.put("/v1/tenants/a", json={}), 403)
    problem(world.operator.get("/v1/tokens"), 403)
    problem(world.edge.get("/v1/regions"), 403)
    problem(world.admin.get("/v1/feed?edge=a"), 403)
    made = world.admin.post("/v1/tokens", json={"name": "balancer", "role": "reporter"}).json()
    reporter = {"Authorization": f"Bearer {made['token']}"}
    problem(world.anonymous.get("/v1/regions", headers=reporter), 403)
    problem(world.anonymous.get("/v1/feed?edge=a", headers=reporter), 403)
    assert world.admin.put("/v1/tenants/a", json={}).status_code == 201


def test_tokens_end(api: Api) -> None:
    """Forged, revoked and expired tokens are refused; a token's text is shown once."""

    def use(text: str) -> Any:
        return api.anonymous.get("/v1/regions", headers={"Authorization": f"Bearer {text}"})

    made = api.admin.post("/v1/tokens", json={"name": "ci", "role": "viewer"})
    assert made.status_code == 201
    text = made.json()["token"]
    assert re.fullmatch(r"gtm_[0-9a-f]{10}_[\w-]{43}", text)
    assert use(text).status_code == 200
    assert text not in api.admin.get("/v1/tokens").text
    problem(api.admin.post("/v1/tokens", json={"name": "ci", "role": "viewer"}), 409)
    assert "not known" in problem(use(text[:-1]), 401)
    assert "not known" in problem(use("gtm_x"), 401)
    assert api.admin.delete(f"/v1/tokens/{made.json()['id']}").status_code == 200
    assert "revoked" in problem(use(text), 401)
    past = (datetime.now(UTC) - timedelta(seconds=1)).isoformat()
    problem(api.admin.post("/v1/tokens", json={"name": "old", "role": "viewer", "expires_at": past}), 422)
    soon = (datetime.now(UTC) + timedelta(seconds=1)).isoformat()
    brief = api.admin.post("/v1/tokens", json={"name": "brief", "role": "viewer", "expires_at": soon})
    answer = use(brief.json()["token"])
    while answer.status_code == 200:
        answer = use(brief.json()["token"])
    assert "expired" in problem(answer, 401)


def test_operations_need_no_token(world: Api) -> None:
    """Liveness, readiness and metrics answer machines; the docs load nothing from elsewhere."""
    assert world.anonymous.get("/healthz").json() == {"status": "ok"}
    assert world.anonymous.get("/readyz").json() == {"status": "ready", "revision": 2}
    world.viewer.get("/v1/regions/eu-west")
    metrics = world.anonymous.get("/metrics").text
    assert 'gtm_control_requests_total{method="GET",route="/v1/regions/{name}",status="200"}' in metrics
    assert "gtm_control_revision 2.0" in metrics
    proxied = {"X-Forwarded-For": "127.0.0.1"}
    assert world.anonymous.get("/metrics", headers=proxied).status_code == 401
    assert world.edge.get("/metrics", headers=proxied).status_code == 403
    assert world.viewer.get("/metrics", headers=proxied).status_code == 200
    rebound = {"Host": "evil.example"}
    refused = world.anonymous.get("/metrics", headers=rebound)
    assert (refused.status_code, refused.json()["code"]) == (421, "foreign_host")
    assert world.edge.get("/metrics", headers=rebound).status_code == 403
    assert world.viewer.get("/metrics", headers=rebound).status_code == 200
    assert world.anonymous.get("/readyz", headers=rebound).status_code == 200
    assert world.anonymous.get("/").json()["documentation"].endswith("/docs")
    browser = world.anonymous.get("/", headers={"Accept": "text/html,*/*"})
    assert (browser.status_code, browser.headers["location"]) == (303, "/sign-in")
    page = world.anonymous.get("/docs")
    assert "default-src 'none'" in page.headers["content-security-policy"]
    for path in re.findall(r'(?:src|href)="([^"]+)"', page.text):
        assert path.startswith("/docs/")
        assert world.anonymous.get(path).status_code == 200
    assert "http" not in page.text.replace("https://", "http", 0).split("<body>")[1]


def test_the_server_says_nothing_of_itself_on_garbage(api: Api) -> None:
    """Bytes that are not HTTP end the connection without a stack trace."""
    host, port = api.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(b"\x00\x01garbage\r\n\r\n")
        assert b"Traceback" not in connection.recv(4096)


def test_every_role_is_covered() -> None:
    """The tests above speak of every role there is."""
    assert {role.value for role in Role} == {
        *("viewer", "operator", "fence-admin", "admin", "edge", "reporter", "balancer", "acme")
    }
