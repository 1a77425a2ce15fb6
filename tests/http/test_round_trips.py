"""Round trips that browsers and balancers post, over real HTTP."""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import Callable
from ipaddress import ip_address, ip_network
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gtm.core.latency.aggregates import Aggregates
from gtm.core.latency.estimator import Estimator
from gtm.core.latency.samples import Delta, Level, SampleMethod
from gtm.core.latency.table import EMPTY_TABLE, LatencyTable
from gtm.core.model.access import Role
from gtm.core.model.policy import Policy
from gtm.core.model.regions import Probe, ProbeType
from gtm.core.model.requests import UNKNOWN_LOCATION, Location
from gtm.core.policy.compile import compile_policy
from gtm.demo.policy import demo_policy
from gtm.geoip.reader import Locator
from gtm.http.problems import ProblemError
from gtm.http.requests.callers import Reporter
from gtm.http.samples.beacons import PREFLIGHT, target_url
from gtm.http.samples.intake import (
    MAX_BEACON_BYTES,
    MAX_BEACON_SAMPLES,
    MAX_SAMPLES,
    Intake,
    Posted,
    parse_beacon,
    parse_samples,
    source_of,
)
from tests.effort import examples
from tests.http.world import NOW, TOKENS, Edge, regions

BERLIN = "81.2.69.142"
DEMO_CLIENTS = (
    "81.2.69.142",
    "91.198.174.192",
    "133.11.0.1",
    "8.8.8.8",
    "200.160.2.3",
    "196.25.1.1",
    "127.0.0.1",
)
NAMES = [region.name for region in regions()]


@pytest.fixture
def edge(run_edge: Callable[..., Edge]) -> Edge:
    """An edge behind a proxy on loopback."""
    return run_edge(trusted_proxies=(ip_network("127.0.0.0/8"),))


def sample(region: str = "eu-central", rtt_ms: object = 30.0, **more: object) -> dict[str, object]:
    """One sample as posted."""
    return {**more, "region": region, "rtt_ms": rtt_ms}


def beacon(edge: Edge, *samples: object, client: str = BERLIN, **options: Any) -> httpx.Response:
    """Post a beacon as a browser at an address."""
    headers = {"X-Forwarded-For": client, **options.pop("headers", {})}
    with edge.client() as http:
        return http.post("/v1/beacons", json={"samples": samples}, headers=headers, **options)


def post(edge: Edge, *samples: object, role: Role | None = Role.REPORTER) -> httpx.Response:
    """Post samples as a balancer."""
    headers = {} if role is None else {"Authorization": f"Bearer {TOKENS[role]}"}
    with edge.client() as http:
        return http.post("/v1/latency-samples", json={"samples": samples}, headers=headers)


def learned(edge: Edge, kind: SampleMethod = SampleMethod.BEACON) -> list[Delta]:
    """What the edge hands on."""
    return edge.app.intake.end_interval(kind).deltas


def test_a_beacon_counts_for_the_place_of_its_caller(edge: Edge) -> None:
    """A page's samples go to the caller's network, operator, country and place; nothing names the caller."""
    answer = beacon(edge, sample(), sample("us-east", 95.0))
    assert (answer.status_code, answer.json()) == (200, {"accepted": 2, "refused": {}})
    assert answer.headers["access-control-allow-origin"] == "*"
    deltas = learned(edge)
    keys = {
        (Level.NETWORK, "81.2.69.0/24"),
        (Level.ASN, "3320|DE"),
        (Level.COUNTRY, "DE"),
        (Level.PLACE, "52,13"),
    }
    assert {(delta.level, delta.key) for delta in deltas} == keys
    assert {delta.region for delta in deltas} == {"eu-central", "us-east"}
    assert all(not delta.trusted and delta.samples == 1 and delta.at == NOW for delta in deltas)
    assert BERLIN not in repr(deltas)
    assert learned(edge) == []


def test_a_beacon_may_be_sent_by_any_page(edge: Edge) -> None:
    """A browser may ask first, and send text as `navigator.sendBeacon` does."""
    with edge.client() as http:
        asked = http.options(
            "/v1/beacons", headers={"Origin": "https://example.com", "Access-Control-Request-Method": "POST"}
        )
        assert asked.status_code == PREFLIGHT.head.status == 204
        assert asked.headers["access-control-allow-origin"] == "*"
        assert asked.headers["access-control-allow-headers"] == "content-type"
        text = json.dumps({"samples": [sample()]})
        sent = http.post(
            "/v1/beacons",
            content=text,
            headers={"Content-Type": "text/plain;charset=UTF-8", "X-Forwarded-For": BERLIN},
        )
    assert sent.json() == {"accepted": 1, "refused": {}}


def test_what_cannot_be_is_counted_and_changes_nothing(edge: Edge) -> None:
    """Samples quicker than light, of no region, or from nowhere are told apart in the answer, and forgotten."""
    answer = beacon(edge, sample(rtt_ms=0.4), sample(rtt_ms=1e9), sample(rtt_ms=-3), sample("atlantis"))
    assert answer.json() == {"accepted": 0, "refused": {"implausible": 3, "unknown_region": 1}}
    assert beacon(edge, sample(), client="192.0.2.1").json()["refused"] == {"unknown_location": 1}
    assert edge.counts["gtm_latency_samples_total\tbeacon\timplausible"] == 3
    assert learned(edge) == []


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        (b"", 400, "not valid json"),
        (b"[]", 400, "samples"),
        (b'{"samples": {}}', 400, "samples"),
        (b'{"samples": [], "client": "192.0.2.1"}', 400, "samples"),
        (b'{"samples": [1]}', 400, "`samples[0]` must be"),
        (b'{"samples": [{"region": "a", "rtt_ms": 1, "client": "192.0.2.1"}]}', 400, "`region`, `rtt_ms`"),
        (b'{"samples": [{"region": 1, "rtt_ms": 1}]}', 400, "`samples[0].region`"),
        (b'{"samples": [{"region": "a", "rtt_ms": "1"}]}', 400, "`samples[0].rtt_ms`"),
        (b'{"samples": [{"region": "a", "rtt_ms": true}]}', 400, "`samples[0].rtt_ms`"),
        (b"[" * 5000, 400, "the body is nested deeper than 100"),
        (b" " * (MAX_BEACON_BYTES + 1), 413, "bytes accepted"),
        (b'{"samples": [%s]}' % b",".join([b"1"] * (MAX_BEACON_SAMPLES + 1)), 413, "most accepted"),
    ],
)
def test_a_beacon_that_is_none_is_refused(edge: Edge, body: bytes, status: int, says: str) -> None:
    """A body that is not understood completely gets an error that pages can read, and loses nothing."""
    with edge.client() as http:
        answer = http.post("/v1/beacons", content=body, headers={"Content-Type": "text/plain"})
    assert answer.status_code == status
    assert says in answer.json()["detail"]
    assert answer.headers["access-control-allow-origin"] == "*"


def test_methods_and_content_types(edge: Edge) -> None:
    """Other methods and content types are told what is taken."""
    with edge.client() as http:
        got = http.get("/v1/beacons")
        assert (got.status_code, got.headers["allow"]) == (405, "POST, OPTIONS")
        form = http.post("/v1/beacons", data={"samples": "1"})
        assert form.status_code == 415
        packed = http.post(
            "/v1/beacons", content=b"x", headers={"Content-Type": "text/plain", "Content-Encoding": "gzip"}
        )
        assert packed.status_code == 415
        headers = {"Authorization": f"Bearer {TOKENS[Role.REPORTER]}", "Content-Type": "text/plain"}
        assert http.post("/v1/latency-samples", content=b"{}", headers=headers).status_code == 415


def test_a_balancer_speaks_for_its_clients(edge: Edge) -> None:
    """Samples of a balancer count for the clients that they name, and as trusted."""
    clients = [f"198.51.100.{number}" for number in range(1, 4)]
    answer = post(edge, *(sample("us-east", 60.0, client=client) for client in clients))
    assert answer.json() == {"accepted": 3, "refused": {}}
    deltas = learned(edge, SampleMethod.BALANCER)
    assert all(delta.trusted and delta.samples == 3 for delta in deltas)
    assert {delta.key for delta in deltas} == {"198.51.100.0/24", "US", "34,-119"}
    assert learned(edge) == []


def test_a_balancer_speaks_of_its_region_alone(edge: Edge) -> None:
    """Of a token that is bound to regions, samples of others are refused; made-up regions are as unknown as ever."""
    names = ("us-east", "eu-central", "nowhere", "eu-west")
    samples = [sample(name, 60.0, client="198.51.100.1") for name in names]
    answer = post(edge, *samples, role=Role.BALANCER)
    assert answer.json() == {"accepted": 1, "refused": {"other_region": 2, "unknown_region": 1}}
    assert {delta.region for delta in learned(edge, SampleMethod.BALANCER)} == {"eu-central"}


@settings(max_examples=examples(60), deadline=None)
@given(
    st.sampled_from([None, "*", "eu-*", "*-1", "eu-central", "us-*"]),
    st.lists(st.sampled_from([*NAMES, "gone"]), max_size=12),
)
def test_samples_count_where_the_token_may_speak(bound: str | None, posted: list[str]) -> None:
    """A sample is taken in exactly if its region is known, and the token is bound to nothing or to that region."""

    def fits(name: str) -> bool:
        return bound is None or re.fullmatch(bound.replace("*", ".*"), name) is not None

    snapshot = compile_policy(Policy(regions=regions()), ())
    near = Location("DE", None, "EU", 50.1, 8.7, 3320, "81.2.0.0/16", 16, "geoip")
    intake = Intake(lambda: snapshot, lambda _: near, lambda: NOW)
    items = [Posted(ip_address(f"81.2.{number}.1"), name, 90.0) for number, name in enumerate(posted)]
    verdicts = asyncio.run(intake.take_in(items, None, SampleMethod.BALANCER, Reporter("one", bound)))
    known = [name for name in posted if name != "gone"]
    assert verdicts == Counter(
        unknown_region=len(posted) - len(known),
        other_region=sum(not fits(name) for name in known),
        accepted=sum(fits(name) for name in known),
    )
    deltas = intake.end_interval(SampleMethod.BALANCER).deltas
    assert {delta.region for delta in deltas} == {name for name in known if fits(name)}


@pytest.mark.parametrize(
    ("role", "status"),
    [(None, 401), (Role.VIEWER, 403), (Role.OPERATOR, 403), (Role.ADMIN, 403), (Role.EDGE, 403)],
)
def test_others_send_no_samples(edge: Edge, role: Role | None, status: int) -> None:
    """Only who may report sends samples, also where look-ups are open to all."""
    answer = post(edge, sample(client=BERLIN), role=role)
    assert answer.status_code == status
    assert "reporter" in answer.json()["detail"]
    assert learned(edge, SampleMethod.BALANCER) == []


def test_a_balancer_is_told_what_is_wrong(edge: Edge) -> None:
    """A sample without an address is named; too many at once are refused."""
    answer = post(edge, sample(client=BERLIN), sample(client="here"))
    assert answer.status_code == 400
    assert "`samples[1].client`" in answer.json()["detail"]
    assert post(edge, *([1] * (MAX_SAMPLES + 1))).status_code == 413
    assert learned(edge, SampleMethod.BALANCER) == []


def test_beacons_can_be_turned_off(run_edge: Callable[..., Edge]) -> None:
    """Without beacons there is no such path; balancers go on."""
    edge = run_edge(beacons=False)
    assert beacon(edge, sample()).status_code == 404
    assert edge.get("/v1/beacon.js").status_code == 404
    assert edge.get("/v1/beacon-targets?service=web").status_code == 404
    assert post(edge, sample(client=BERLIN)).status_code == 200


def test_targets_stay_inside_the_fence(edge: Edge) -> None:
    """A page measures only where its visitor may be sent now, and nothing that is down."""

    def targets(service: str) -> dict[str, str]:
        answer = edge.get(f"/v1/beacon-targets?service={service}", headers={"X-Forwarded-For": BERLIN})
        assert answer.headers["access-control-allow-origin"] == "*"
        return {item["region"]: item["url"] for item in answer.json()["targets"]}

    assert set(targets("web")) == {"eu-central", "eu-west", "us-east"}
    assert set(targets("chat")) == {"eu-central", "eu-west"}
    assert targets("nowhere") == {}
    assert targets("chat")["eu-west"] == "http://eu-west-1.test:9000/healthz"
    edge.load(up=["eu-west", "us-east"])
    assert set(targets("chat")) == {"eu-west"}


@pytest.mark.parametrize(
    ("query", "status"), [("", 400), ("service=", 400), ("service=web&tenant=a", 400), ("service=wbe", 404)]
)
def test_targets_of_a_known_service_only(edge: Edge, query: str, status: int) -> None:
    """Anything but the name of a service is an error that pages can read."""
    answer = edge.get(f"/v1/beacon-targets?{query}")
    assert answer.status_code == status
    assert answer.headers["access-control-allow-origin"] == "*"


def test_what_is_fetched_is_the_health_check() -> None:
    """Where clients come in, the path of the health check is measured; elsewhere the endpoint itself."""
    endpoint = regions()[0].endpoints[0]
    assert target_url(endpoint, Probe(path="/up?x=1")) == "http://eu-central-1.test:9000/up?x=1"
    for probe in (Probe(port=9001), Probe(type=ProbeType.TCP), Probe(type=ProbeType.HTTPS)):
        assert target_url(endpoint, probe) == endpoint.url


def test_the_script_is_served_to_any_page(edge: Edge) -> None:
    """The script may be kept for an hour, and be used by pages of other origins."""
    answer = edge.get("/v1/beacon.js")
    assert answer.headers["content-type"] == "text/javascript; charset=utf-8"
    assert answer.headers["cross-origin-resource-policy"] == "cross-origin"
    assert "max-age" in answer.headers["cache-control"]
    assert "sendBeacon" in answer.text


def test_loopback_beacons_change_nothing() -> None:
    """In the demo all regions are on loopback. What browsers measure there changes the order of no client's regions."""
    demo = compile_policy(Policy(regions=demo_policy().regions), ())
    names = [region.name for region in demo.regions]
    locator = Locator()
    intake = Intake(lambda: demo, locator.locate, lambda: NOW)
    aggregates = Aggregates()
    clients = [ip_address(address) for address in DEMO_CLIENTS]
    for client in clients:
        for ms in (0.0, 0.05, 0.3, 0.8):
            posted = [Posted(client, name, ms) for name in names]
            asyncio.run(intake.take_in(posted, None, SampleMethod.BALANCER))
    aggregates.merge(intake.end_interval(SampleMethod.BALANCER).deltas, NOW)
    table = aggregates.table(EMPTY_TABLE, NOW, names)
    before, after = Estimator(demo.regions), Estimator(demo.regions, table)
    for client in clients:
        orders = []
        for estimator in (before, after):
            paths = estimator.paths(locator.locate(client), range(len(names)))
            orders.append(sorted(paths, key=lambda number: paths[number].estimate_ms))
        assert orders[0] == orders[1]


@pytest.mark.drill
def test_a_hostile_source_moves_nothing(edge: Edge) -> None:
    """One network that lies all day, beside a few honest ones, hardly moves their country's estimate."""
    honest = [f"81.2.{number}.9" for number in range(60, 64)]

    def place(packed: bytes) -> Location:
        near = ip_address(packed) in ip_network("81.2.0.0/16")
        return (
            Location("DE", None, "EU", 52.5, 13.4, 3320, "81.2.0.0/16", 16, "geoip")
            if near
            else UNKNOWN_LOCATION
        )

    edge.app.intake = Intake(lambda: edge.current.snapshot, place, lambda: now)
    aggregates, table, estimates = Aggregates(), EMPTY_TABLE, []
    for liar in (False, True):
        for minute in range(240):
            now = NOW + minute * 60.0
            if minute % 10 == 0:
                for client in honest:
                    assert beacon(edge, sample(rtt_ms=40.0), client=client).status_code == 200
            if liar:
                for number in range(3):
                    beacon(edge, *[sample(rtt_ms=2900.0)] * 20, client=f"81.2.69.{number}")
            aggregates.merge(learned(edge), now)
            table = aggregates.table(table, now, NAMES)
        estimates.append(row(table))
    assert abs(estimates[0] - estimates[1]) < 10


def row(table: LatencyTable) -> float:
    """The residual of Frankfurt in Germany."""
    return table.countries["DE"]["eu-central"][0]


def test_a_source_has_a_budget(edge: Edge) -> None:
    """However many intervals there are, a network says only so much in an hour; another may still speak."""
    accepted = 0
    for _ in range(12):
        accepted += beacon(edge, *[sample()] * 4).json()["accepted"]
        learned(edge)
    assert accepted == 16
    assert beacon(edge, sample()).json()["refused"] == {"capped": 1}
    assert beacon(edge, sample(), client="2001:db8::1").json()["accepted"] == 1


def test_a_new_policy_keeps_what_was_said(edge: Edge) -> None:
    """What was measured before the policy changed is handed on."""
    beacon(edge, sample())
    edge.load()
    beacon(edge, sample())
    assert sum(delta.level is Level.COUNTRY for delta in learned(edge)) == 2


def test_sources_are_networks() -> None:
    """One person has few sources, whatever the number of addresses in his network."""
    assert source_of(ip_address("81.2.69.1")) == source_of(ip_address("81.2.69.200"))
    assert source_of(ip_address("2001:db8:1::1")) == source_of(ip_address("2001:db8:1:ffff::9"))
    assert source_of(ip_address("2001:db8:1::1")) != source_of(ip_address("2001:db8:2::1"))


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["samples", "region", "rtt_ms", "client", "x"]), inner, max_size=4)
    ),
    max_leaves=12,
)
_ITEMS = st.fixed_dictionaries(
    {"region": st.sampled_from([*NAMES, "", "x"]), "rtt_ms": st.floats() | st.integers() | _JSON},
    optional={"client": st.sampled_from([BERLIN, "::1", "x", None])},
)
_BODIES = st.binary(max_size=60) | (
    _JSON | st.lists(_ITEMS, max_size=4).map(lambda items: {"samples": items})
).map(lambda value: json.dumps(value).encode("utf-8", "replace"))


@settings(max_examples=examples(400), deadline=None)
@given(_BODIES)
def test_any_body_is_samples_or_a_problem(body: bytes) -> None:
    """Whatever is posted is understood completely, or refused as a problem of the client's."""
    for parse in (parse_beacon, parse_samples):
        try:
            found = parse(body)
        except ProblemError as error:
            code = error.code
        else:
            code = "invalid_request"
            assert all(type(one.rtt_ms) is float for one in found)
        assert code in {"invalid_request", "content_too_large"}
