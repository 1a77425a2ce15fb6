"""Look-ups: `GET /v1/route` and `POST /v1/route:batch`."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from ipaddress import ip_network

import httpx
import pytest

from gtm.core.model.access import Role
from gtm.core.model.policy import Policy
from gtm.core.model.services import Member, OnUnusable
from gtm.telemetry import metric_key
from tests import worlds
from tests.http.world import ALL_UP, TOKENS, Edge

GERMAN = "81.2.69.142"
AMERICAN = "198.51.100.7"


def problem(response: httpx.Response, status: int, code: str) -> dict[str, object]:
    """The problem document of a response, after checking its form (RFC 9457)."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    assert response.headers["cache-control"] == "no-store"
    document: dict[str, object] = response.json()
    assert document["type"] == f"urn:gtm:problem:{code.replace('_', '-')}"
    assert document["status"] == status
    assert document["code"] == code
    assert document["title"]
    assert document["instance"]
    return document


def test_answer_names_region_endpoint_and_reasons(edge: Edge) -> None:
    """An answer says where to go, for how long, on what policy, and why."""
    response = edge.route(service="chat", client_ip=GERMAN)
    assert response.status_code == 200
    assert response.headers["content-type"] == "application/json"
    answer = response.json()
    assert answer["endpoint"]["url"].startswith("http://eu-central-")
    assert answer["endpoint"]["ipv4"] in (["192.0.2.1"], ["192.0.2.2"])
    assert answer["client"] == {
        "ip": GERMAN,
        "country": "DE",
        "network": "81.2.69.0/24",
        "source": "geoip",
    }
    assert answer["reasons"] == [
        "eu-central: chosen, lowest estimated round trip of the usable regions inside the fence (26 ms)"
    ]
    assert answer["rules"] == [{"name": "gdpr", "mode": "enforce"}]
    expected = {
        "service": "chat",
        "outcome": "served",
        "region": "eu-central",
        "ttl": 30,
        "reason": "lowest_latency",
        "revision": 7,
        "epoch": 1,
    }
    assert {key: answer[key] for key in expected} == expected


def test_explain_adds_every_candidate_and_rule(edge: Edge) -> None:
    """`explain=1` tells what became of every member, what the law says, and how the request was understood."""
    answer = edge.route(service="chat", client_ip=GERMAN, explain="1").json()
    assert [item["region"] for item in answer["candidates"]] == ["eu-central", "eu-west", "us-east"]
    assert [item["share"] for item in answer["candidates"]] == [1, 0, 0]
    last = answer["candidates"][-1]
    assert last["excluded"] == "residency"
    assert last["why"] == "us-east: excluded by residency rule gdpr (client country DE)"
    assert last["endpoints"][0]["health"] == "up"
    assert answer["rules"] == [
        {"name": "gdpr", "mode": "enforce", "legal_basis": "GDPR Art. 44", "because": ["client country DE"]}
    ]
    assert answer["request"]["location"]["asn"] == 3320
    assert answer["request"]["location"]["anonymous"] is False
    assert answer["request"]["location"]["accuracy_km"] is None
    assert "candidates" not in edge.route(service="chat", client_ip=GERMAN).json()


def test_a_monitored_rule_is_named_but_does_not_bind(edge: Edge) -> None:
    """A rule in monitor mode only says what it would have done."""
    answer = edge.route(service="web", client_ip=AMERICAN).json()
    assert answer["region"] == "us-east"
    assert answer["rules"] == [{"name": "watch", "mode": "monitor"}]
    assert answer["reasons"][0].endswith(
        "; would be excluded by residency rule watch (every request) if enforced"
    )


def test_without_client_ip_the_answer_is_about_the_caller(edge: Edge) -> None:
    """Who names no client asks about itself."""
    answer = edge.route(service="web").json()
    assert answer["client"]["ip"] == "127.0.0.1"
    assert answer["client"]["source"] == "override"


def test_an_ipv4_address_in_ipv6_clothes_is_that_ipv4_address(edge: Edge) -> None:
    """Dual-stack sockets write IPv4 addresses as IPv6 ones."""
    assert edge.route(service="web", client_ip=f"::ffff:{GERMAN}").json()["client"]["ip"] == GERMAN


def test_an_unhealthy_region_is_passed_over_at_the_next_request(edge: Edge) -> None:
    """A new state changes the answers to look-ups that were answered before."""
    assert edge.route(service="chat", client_ip=GERMAN).json()["region"] == "eu-central"
    edge.load(up=("eu-west", "us-east"))
    answer = edge.route(service="chat", client_ip=GERMAN).json()
    assert answer["region"] == "eu-west"
    assert answer["reasons"][1] == "eu-central: no endpoint is up"


def test_the_law_refuses_with_451_and_may_be_retried(edge: Edge) -> None:
    """Nothing usable inside the fence, but outside: refused by law, for now."""
    edge.load(up=("us-east",))
    response = edge.route(service="chat", client_ip=GERMAN)
    document = problem(response, 451, "refused_residency")
    assert response.headers["retry-after"] == "10"
    assert document["reason"] == "fence_unusable"
    assert document["rules"] == [{"name": "gdpr", "mode": "enforce"}]
    assert document["revision"] == 7
    assert document["endpoint"] is None
    assert "us-east: excluded by residency rule gdpr (client country DE)" in document["reasons"]
    assert edge.route(service="chat", client_ip=AMERICAN).json()["region"] == "us-east"


def test_an_empty_fence_is_refused_for_good(run_edge: Callable[..., Edge]) -> None:
    """No region at all is allowed: 451 without Retry-After."""
    edge = run_edge(open_lookups=True)
    response = edge.route(service="nowhere", client_ip=GERMAN)
    assert problem(response, 451, "refused_residency")["reason"] == "fence_empty"
    assert "retry-after" not in response.headers


def test_nothing_usable_is_503(edge: Edge) -> None:
    """No region is up: unavailable, whatever the law says."""
    edge.load(up=())
    response = edge.route(service="web", client_ip=GERMAN)
    assert problem(response, 503, "refused_unavailable")["reason"] == "none_usable"
    assert int(response.headers["retry-after"]) > 0


def test_a_service_may_ignore_health(edge: Edge) -> None:
    """Where the service says so, a region that is down is handed out, endpoint and all, inside the fence."""
    edge.load(
        up=(),
        change=lambda law: worlds.changed(law, "services", "chat", on_unusable=OnUnusable.IGNORE_HEALTH),
    )
    answer = edge.route(service="chat", client_ip=GERMAN).json()
    assert (answer["region"], answer["reason"]) == ("eu-central", "health_ignored")
    assert answer["endpoint"]["url"].startswith("http://eu-central-")


def test_a_model_that_no_fenced_region_serves_is_said(edge: Edge) -> None:
    """The model asked for narrows the candidates, and the reasons name it."""
    assert edge.route(service="web", client_ip=GERMAN, model="llama").json()["region"] == "us-east"
    reasons = edge.route(service="chat", client_ip=GERMAN, model="llama").json()["reasons"]
    assert "eu-west: does not serve the model `llama`" in reasons


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("", "parameter `service` is missing"),
        ("service=", "`service` is empty; leave it out if it is not known"),
        ("service=web&service=chat", "parameter `service` is given twice"),
        ("service=web&tennant=clinic", "unknown parameter `tennant`; known are service,"),
        ("service=web&client_ip=81.2.69", "`client_ip` is `81.2.69`, which is not an ipv4 or ipv6 address"),
        ("service=web&client_ip=", "`client_ip` is empty"),
        ("service=web&client_ip=fe80::1%25eth0", "which is not an ipv4 or ipv6 address"),
        ("service=web&client_ip=1.2.3.4/8", "which is not an ipv4 or ipv6 address"),
        ("service=web&explain=yes", "`explain` is `yes`; it can be 1 or 0"),
        ("service=%ff", "the query is not valid utf-8 after percent-decoding"),
        ("service=web&affinity=" + "x" * 257, "`affinity` has 257 characters; the most accepted is 256"),
        ("&".join(f"x{n}=1" for n in range(50)), "the query has too many parameters"),
    ],
)
def test_a_query_that_cannot_be_understood_is_400(edge: Edge, query: str, says: str) -> None:
    """What is wrong is said in words."""
    assert says in str(problem(edge.get(f"/v1/route?{query}"), 400, "invalid_request")["detail"])


def test_unknown_names_are_errors(edge: Edge) -> None:
    """A misspelt name must not slip through a fence: 404 for the service, 422 for what describes the request."""
    assert (
        problem(edge.route(service="chatt"), 404, "unknown_service")["detail"]
        == "there is no service `chatt`"
    )
    problem(edge.route(service="chat", tenant="clinik"), 422, "unknown_tenant")
    problem(edge.route(service="chat", data_class="helth"), 422, "unknown_data_class")
    problem(edge.route(service="chat", model="lama"), 422, "unknown_model")


def test_a_tenant_that_a_rule_does_not_name_is_free_and_an_unstated_one_is_not(edge: Edge) -> None:
    """Saying less never opens a fence."""
    assert edge.route(service="records", client_ip=AMERICAN, tenant="shop").json()["region"] == "us-east"
    assert edge.route(service="records", client_ip=AMERICAN, tenant="clinic").json()["region"] == "eu-central"
    assert edge.route(service="records", client_ip=AMERICAN).json()["region"] == "eu-central"


def test_an_overlong_query_is_414(edge: Edge) -> None:
    """Beyond 16 KiB nothing is parsed."""
    problem(edge.get("/v1/route?service=" + "x" * 17_000), 414, "uri_too_long")


def test_weights_are_honoured_from_memory(edge: Edge) -> None:
    """The same look-up is drawn for anew each time."""
    with edge.client() as client:
        url = f"/v1/route?service=split&client_ip={GERMAN}"
        seen = [client.get(url).json()["region"] for _ in range(100)]
    assert set(seen) == {"eu-central", "us-east"}  # all the same: 1 in 2^99


def test_an_affinity_key_ties_a_client(edge: Edge) -> None:
    """One key, one region; many keys, all regions."""
    with edge.client() as client:

        def region(key: int) -> str:
            answer = client.get("/v1/route", params={"service": "sticky", "affinity": f"user-{key}"})
            return str(answer.json()["region"])

        first = [region(key) for key in range(40)]
        assert [region(key) for key in range(40)] == first
        assert set(first) == {"eu-central", "us-east"}


def test_clients_of_one_network_share_an_endpoint_and_networks_spread(edge: Edge) -> None:
    """A /24 sticks to one endpoint of its region; many /24s use them all."""
    requests = [{"service": "web", "client_ip": f"81.2.69.{n}"} for n in (1, 77, 254)]
    requests += [{"service": "records", "client_ip": f"10.0.{n}.1", "tenant": "clinic"} for n in range(40)]
    with edge.client() as client:
        results = client.post("/v1/route:batch", json={"requests": requests}).json()["results"]
    urls = [result["endpoint"]["url"] for result in results]
    assert len(set(urls[:3])) == 1
    assert len(set(urls[3:])) == 2


def test_looking_up_others_takes_a_token(run_edge: Callable[..., Edge]) -> None:
    """Anybody may ask about itself; about others only who may read."""
    edge = run_edge()
    assert edge.route(service="web").status_code == 200
    assert edge.route(service="web", client_ip="127.0.0.1").status_code == 200
    response = edge.route(service="web", client_ip=GERMAN)
    problem(response, 401, "unauthorized")
    assert response.headers["www-authenticate"] == "Bearer"

    def ask(authorization: str) -> httpx.Response:
        url = f"/v1/route?service=web&client_ip={GERMAN}"
        return edge.get(url, headers={"authorization": authorization})

    for role in (Role.VIEWER, Role.OPERATOR, Role.ADMIN):
        assert ask(f"bearer {TOKENS[role]}").json()["region"] == "eu-central"
    for role in (Role.EDGE, Role.BALANCER, Role.REPORTER, Role.ACME):
        response = ask(f"Bearer {TOKENS[role]}")
        problem(response, 403, "forbidden")
        assert "insufficient_scope" in response.headers["www-authenticate"]
    for wrong in (
        "Bearer gtm_old_secret",
        "Bearer nonsense",
        "Bearer",
        "Basic dXNlcjpwYXNz",
        "Bearer " + "x" * 600,
    ):
        response = ask(wrong)
        problem(response, 401, "unauthorized")
        assert "invalid_token" in response.headers["www-authenticate"]


def test_a_remembered_answer_is_not_given_to_who_may_not_ask(run_edge: Callable[..., Edge]) -> None:
    """Memory does not leak past the token check."""
    edge = run_edge()
    url = f"/v1/route?service=web&client_ip={GERMAN}"
    assert edge.get(url, headers={"authorization": f"Bearer {TOKENS[Role.ADMIN]}"}).status_code == 200
    assert edge.get(url).status_code == 401


def test_methods_and_head(edge: Edge) -> None:
    """HEAD is GET without a body; other methods are told what is allowed."""
    with edge.client() as client:
        head = client.head("/v1/route?service=web")
        get = client.get("/v1/route?service=web")
        assert (head.status_code, head.content) == (200, b"")
        assert head.headers["content-length"] == get.headers["content-length"]
        response = client.post("/v1/route?service=web")
        problem(response, 405, "method_not_allowed")
        assert response.headers["allow"] == "GET, HEAD"
        for path in ("/healthz", "/readyz?_=1695"):  # of monitors: standardnotes/server issue 1038
            assert client.options(path).status_code == client.get(path).status_code == 200
        response = client.get("/v1/route:batch")
        problem(response, 405, "method_not_allowed")
        assert response.headers["allow"] == "POST"


def test_unknown_paths_are_404(edge: Edge) -> None:
    """What is not there is said to be missing, also where the path is no URI."""
    document = problem(edge.get("/nowhere/%zz?x=1"), 404, "not_found")
    assert document["instance"] == "/nowhere/%25zz"


def test_batch_answers_each_item_in_order(edge: Edge) -> None:
    """Good items are answered, bad ones get their own problem, and one view answers all."""
    items: list[object] = [
        {"service": "chat", "client_ip": GERMAN},
        {"service": "chat", "client_ip": "nonsense"},
        {"service": "web", "client_ip": AMERICAN, "tenant": None, "explain": True},
        {"service": "nowhere", "client_ip": GERMAN},
        {"service": 5},
        {"service": "web", "explain": "yes"},
        {"service": "web", "colour": "red"},
        "web",
        {"service": "nope"},
    ]
    with edge.client() as client:
        response = client.post("/v1/route:batch", json={"requests": items})
    assert response.status_code == 200
    results = response.json()["results"]
    assert [result.get("status", 200) for result in results] == [200, 400, 200, 451, 400, 400, 400, 400, 404]
    assert results[0]["region"] == "eu-central"
    assert len(results[2]["candidates"]) == 3
    assert results[3]["instance"] == "/v1/route:batch#/requests/3"
    assert results[4]["detail"] == "`service` must be a string"
    assert results[7]["detail"] == "a request must be a json object"


def test_batch_of_a_thousand_and_no_more(edge: Edge) -> None:
    """A thousand look-ups come in order; one more is too large."""
    items = [{"service": "chat", "client_ip": f"81.2.69.{n % 256}", "explain": True} for n in range(1000)]
    with edge.client() as client:
        results = client.post("/v1/route:batch", json={"requests": items}).json()["results"]
        assert [result["client"]["ip"] for result in results] == [item["client_ip"] for item in items]
        problem(client.post("/v1/route:batch", json={"requests": [*items, {}]}), 413, "content_too_large")
        assert client.post("/v1/route:batch", json={"requests": []}).json() == {"results": []}


def test_batch_bodies_that_are_rejected(edge: Edge) -> None:
    """Wrong type, encoding, size or form: said so, and the connection goes on."""
    json_type = {"content-type": "application/json; charset=utf-8"}
    with edge.client() as client:

        def post(body: bytes, headers: dict[str, str] = json_type) -> httpx.Response:
            return client.post("/v1/route:batch", content=body, headers=headers)

        problem(post(b"{}", {"content-type": "text/plain"}), 415, "unsupported_media_type")
        problem(post(b"{}", {}), 415, "unsupported_media_type")
        problem(post(b"{}", {**json_type, "content-encoding": "gzip"}), 415, "unsupported_media_type")
        problem(post(b" " * (10 * 1024 * 1024)), 413, "content_too_large")
        chunks = iter([b" " * 65536] * 40)
        response = client.post("/v1/route:batch", content=chunks, headers=json_type)
        problem(response, 413, "content_too_large")
        item = b'{"service": "chat", "tenant": "bank", "tenant": "shop"}'
        detail = problem(post(b'{"requests": [%b]}' % item), 400, "invalid_request")["detail"]
        assert "the member `tenant` twice" in str(detail)
        item = b'{"service": "chat", "tenant": "\\ud800"}'
        problem(post(b'{"requests": [%b]}' % item), 400, "invalid_request")
        detail = problem(post(b'{"requests": [}'), 400, "invalid_request")["detail"]
        assert "char 14" in str(detail)
        for body in (b"", b"[]", b'{"requests": {}}', b'{"requests": [], "x": 1}', b"[" * 100_000, b'"\xff"'):
            problem(post(body), 400, "invalid_request")
        assert post(b'{"requests": [{"service": "web"}]}').status_code == 200


def test_batch_checks_tokens_by_item(run_edge: Callable[..., Edge]) -> None:
    """In a batch too, only look-ups about others take a token."""
    edge = run_edge()
    items = {"requests": [{"service": "web"}, {"service": "web", "client_ip": GERMAN}]}
    with edge.client() as client:
        results = client.post("/v1/route:batch", json=items).json()["results"]
        assert [result.get("status") for result in results] == [None, 401]
        headers = {"authorization": f"Bearer {TOKENS[Role.VIEWER]}"}
        results = client.post("/v1/route:batch", json=items, headers=headers).json()["results"]
        assert [result.get("status") for result in results] == [None, None]


def test_health_readiness_and_metrics(run_edge: Callable[..., Edge]) -> None:
    """Alive at once; ready only with a policy, and while the edge's other kind of worker listens too."""
    edge = run_edge(load=False)
    assert edge.get("/healthz").json() == {"status": "ok"}
    assert problem(edge.get("/readyz"), 503, "not_ready")["detail"] == "no policy has been loaded yet"
    problem(edge.route(service="web"), 503, "not_ready")
    edge.load()
    assert edge.get("/readyz").json() == {"status": "ready", "revision": 7, "epoch": 1}
    edge.silent = ("dns", "http")
    assert problem(edge.get("/readyz"), 503, "not_ready")["detail"] == "no worker listens for dns"
    edge.silent = ("http",)
    assert edge.get("/readyz").status_code == 200
    metrics = edge.get("/metrics")
    assert metrics.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert metrics.text.startswith("# HELP")


def test_metrics_are_for_those_near_and_for_viewers(run_edge: Callable[..., Edge]) -> None:
    """From elsewhere, and through a proxy that nobody named, they take a token that may read."""
    near, far = run_edge(), run_edge(metrics_allow=())
    named = run_edge(
        trusted_proxies=(ip_network("127.0.0.0/8"),), metrics_allow=(ip_network("198.51.100.0/24"),)
    )
    assert near.get("/metrics").status_code == 200
    problem(far.get("/metrics"), 401, "unauthorized")
    for header in ({"X-Forwarded-For": "127.0.0.1"}, {"Forwarded": "for=127.0.0.1"}):
        problem(near.get("/metrics", headers=header), 401, "unauthorized")
        problem(named.get("/metrics", headers=header), 401, "unauthorized")
    for header in ({"X-Forwarded-For": "198.51.100.7"}, {"Forwarded": "for=198.51.100.7"}):
        assert named.get("/metrics", headers=header).status_code == 200
    for role in Role:
        status = 403 if role in (Role.EDGE, Role.BALANCER, Role.REPORTER, Role.ACME) else 200
        token = {"Authorization": f"Bearer {TOKENS[role]}"}
        assert far.get("/metrics", headers=token).status_code == status


def test_this_machine_asks_for_others_by_its_own_names(run_edge: Callable[..., Edge]) -> None:
    """A page that lets its name lead to the loopback reads no look-up there, whatever it says of proxies; whoever shows a token does."""
    proxies = (ip_network("127.0.0.0/8"),)
    edge = run_edge(near_lookups=True, names=frozenset(("edge.example",)), trusted_proxies=proxies)
    batch = {"requests": [{"service": "chat", "client_ip": GERMAN}]}
    evil, token = {"host": "evil.example"}, {"Authorization": f"Bearer {TOKENS[Role.VIEWER]}"}
    for path in (f"/v1/route?service=chat&client_ip={GERMAN}", "/v1/route?service=chat"):
        for more in (
            {},
            {"X-Forwarded-For": GERMAN},
            {"Forwarded": "for=127.0.0.1"},
            {"Authorization": "Bearer x"},
        ):
            problem(edge.get(path, headers=evil | more), 421, "foreign_host")
        assert edge.get(path, headers=evil | token).status_code == 200
        for host in ("127.0.0.1", "localhost.", "[::1]:1", "edge.example"):
            assert edge.get(path, headers={"host": host}).status_code == 200
    with edge.client() as client:
        refused = client.post("/v1/route:batch", json=batch, headers=evil)
        problem(refused, 421, "foreign_host")
        assert client.post("/v1/route:batch", json=batch).status_code == 200
    public = run_edge()
    assert public.get("/v1/route?service=chat", headers=evil).status_code == 200, "anybody may"
    assert public.get("/readyz", headers=evil).status_code == 200


def test_this_machine_reads_metrics_by_its_own_names(run_edge: Callable[..., Edge]) -> None:
    """Nor does such a page read metrics, as itself or for a client that a proxy here could name."""
    evil, token = {"host": "evil.example"}, {"Authorization": f"Bearer {TOKENS[Role.VIEWER]}"}
    near = run_edge(names=frozenset(("edge.example",)))
    named = run_edge(
        trusted_proxies=(ip_network("127.0.0.0/8"),), metrics_allow=(ip_network("198.51.100.0/24"),)
    )
    problem(near.get("/metrics", headers=evil), 421, "foreign_host")
    problem(near.get("/metrics", headers=evil | {"Authorization": "Bearer x"}), 421, "foreign_host")
    problem(named.get("/metrics", headers=evil | {"X-Forwarded-For": "198.51.100.7"}), 421, "foreign_host")
    for edge in (near, named):
        assert edge.get("/metrics", headers=evil | token).status_code == 200
    assert near.get("/metrics", headers={"host": "edge.example"}).status_code == 200


def test_requests_and_decisions_are_counted(edge: Edge) -> None:
    """Every answer is counted once, with labels from closed sets."""
    with edge.client() as client:
        for _ in range(3):
            client.get(f"/v1/route?service=chat&client_ip={GERMAN}")
        client.get("/v1/route?service=nope")
        client.get("/somewhere")
        client.get("/x", headers={"host": "web.demo.test"})
        items = [{"service": "chat", "client_ip": GERMAN}]
        client.post("/v1/route:batch", json={"requests": items})
    assert {metric_key(key): count for key, count in edge.counts.items()} == {
        "gtm_http_requests_total\tlookup\t200": 3,
        "gtm_http_requests_total\tlookup\t404": 1,
        "gtm_http_requests_total\tother\t404": 1,
        "gtm_http_requests_total\tredirect\t307": 1,
        "gtm_http_requests_total\tbatch\t200": 1,
        "gtm_decisions_total\tchat\teu-central\tserved\tlookup": 4,
        "gtm_decisions_total\tweb\tus-east\tserved\tredirect": 1,
    }


def test_a_long_list_of_reasons_is_cut(edge: Edge) -> None:
    """A refusal over many regions stays readable; the explanation has them all."""

    def many(before: Policy) -> Policy:
        extra = tuple(replace(before.regions[0], name=f"extra-{n}") for n in range(50))
        members = tuple(Member(region.name) for region in extra)
        services = (*before.services, replace(before.services[4], name="huge", members=members))
        return replace(before, regions=(*before.regions, *extra), services=services)

    edge.load(ALL_UP, many)
    document = json.loads(edge.route(service="huge", client_ip=GERMAN, explain="1").text)
    assert document["status"] == 503
    assert len(document["reasons"]) == 20
    assert document["reasons"][-1] == "32 more regions are not listed; a full explanation has them all"
    assert len(document["candidates"]) == 50
