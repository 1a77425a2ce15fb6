"""What edges and balancers say in a handoff."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from ipaddress import ip_address

import pytest
from hypothesis import example
from hypothesis import given as given_inputs
from hypothesis import strategies as st

from gtm.core.decision.decide import routed
from gtm.core.decision.router import Router
from gtm.core.decision.view import Window, view_of
from gtm.core.handoff.claims import LONGEST, Claims, client_network, fence_hash, handed, is_client_network
from gtm.core.handoff.judge import judge, onward
from gtm.core.handoff.verdict import Code, Presented, Reuse, Seen
from gtm.core.model.policy import Places, ResidencyRule, SpilloverRule, Tenant
from gtm.core.model.requests import Location, Request
from gtm.core.model.services import Service, Steering
from gtm.core.model.state import ClassPlan, Plan
from gtm.core.policy.compile import compile_policy
from tests import worlds

NOW = Window(1000.5, 1000.5)
GERMAN = bytes((10, 1, 2, 3))
IN_GERMANY = Location("DE", source="geoip", accuracy_km=5.0)
SERVICE = worlds.service("chat", "fra dub iad", steering=Steering.FAILOVER, ttl=30)


def world(*rules: ResidencyRule, service: Service = SERVICE, tenants: str = "acme") -> Router:
    """Frankfurt, Dublin and Ashburn, all up."""
    policy = worlds.policy(*worlds.regions("fra dub iad"), service, *rules, *map(Tenant, tenants.split()))
    return Router(worlds.view(policy, now=NOW.now, shipped=()))


AT_HOME = worlds.rule("home", "fra dub", client_countries="DE")


def given(router: Router, region: str = "fra", **changes: object) -> Claims:
    """What an edge says of a German client."""
    routing = routed(router.view, Request("chat", IN_GERMANY, tenant="acme"), GERMAN)
    found = handed(routing, routing.pick(0.0), "edge-1", NOW, "n", once=True)
    assert found is not None
    return replace(found, region=region, **changes)  # type: ignore[arg-type]


def test_an_edge_says_what_it_decided_by() -> None:
    """An edge says what it decided by."""
    routing = routed(world(AT_HOME).view, Request("chat", IN_GERMANY, tenant="acme"), GERMAN)
    found = handed(routing, routing.pick(0.0), "edge-1", NOW, "n", once=False)
    assert found == Claims(
        issuer="edge-1",
        region="fra",
        service="chat",
        issued=1000,
        expires=1030,
        nonce="n",
        fence=fence_hash(["dub", "fra"]),
        revision=7,
        tenant="acme",
        priority=SERVICE.priority,
        client="10.1.2.0/24",
    )


@pytest.mark.parametrize("ttl", [0, 1, 300, 86_400])
def test_of_a_request_that_it_carries_an_edge_says_whom_it_saw(ttl: int) -> None:
    """Both places are the client's network. It holds for a minute, whatever the TTL is, for any number of requests; and brings no credit."""
    service = replace(SERVICE, ttl=ttl, min_ttl=min(ttl, 5))
    routing = routed(world(AT_HOME, service=service).view, Request("chat", IN_GERMANY, tenant="acme"), GERMAN)
    found = handed(routing, routing.pick(0.0), "edge-1", NOW, "n", once=False, carried=True)
    assert found is not None
    assert (found.client, found.pushed, found.hop, found.once) == ("10.1.2.0/24", "10.1.2.0/24", 0, False)
    assert found.carried
    assert not found.is_push
    assert (found.issued, found.expires) == (1000, 1060)
    assert found.fence == fence_hash(["dub", "fra"])
    unknown = routed(routing.view, Request("chat"))
    said = handed(unknown, unknown.pick(0.0), "edge-1", NOW, "n", once=False, carried=True)
    assert said is not None
    assert (said.client, said.pushed, said.carried) == ("", "", True)


@pytest.mark.parametrize(
    ("left", "lasts"), [(0.4, None), (1.0, None), (1.5, 1), (2.5, 2), (40.0, 32), (64.5, 60), (1e6, 60)]
)
def test_no_handoff_of_a_carried_request_outlives_the_law(left: float, lasts: int | None) -> None:
    """Though answers about the service are kept for a second only, so that no View has a bound for it."""
    end = datetime.fromtimestamp(NOW.latest + left, UTC)
    rules = replace(AT_HOME, effective_until=end), worlds.rule("then", "fra dub", effective_from=end)
    for rule in rules:
        view = world(rule, service=replace(SERVICE, ttl=1, min_ttl=1)).view
        routing = routed(view, Request("chat", IN_GERMANY), GERMAN)
        found = handed(routing, routing.pick(0.0), "edge-1", NOW, "n", once=False, carried=True)
        assert (None if found is None else found.expires - found.issued) == lasts


@pytest.mark.parametrize("place", ["DE", "US"])
def test_a_balancer_may_push_what_an_edge_carries_once_more(place: str) -> None:
    """The client's place is the handoff's at both, wherever the edge and the balancer stand; after that it goes nowhere."""
    router = world(AT_HOME, service=replace(SERVICE, ttl=300))
    routing = routed(router.view, Request("chat", IN_GERMANY, tenant="acme"), GERMAN)
    found = handed(routing, routing.pick(0.0), "edge-1", NOW, "n", once=False, carried=True)
    assert found is not None
    edge = Seen(Location(place), b"\x08\x08\x08\x08", "chat")
    verdict = judge(
        router,
        "fra",
        NOW,
        seen=edge,
        presented=Presented(found, IN_GERMANY, IN_GERMANY),
        used=lambda _: Reuse.USED,
    )
    assert (verdict.code, verdict.flaws) == (Code.SERVE, ())
    assert router.view.snapshot.names(verdict.reach) == ("fra", "dub")
    assert verdict.routing is not None
    assert (verdict.routing.request.tenant, verdict.routing.client) == ("acme", b"\x0a\x01\x02\x00")
    assert (
        onward(verdict, "iad", NOW, issuer="b", nonce="m", client=verdict.routing.client, push=True) is None
    )
    pushed = onward(verdict, "dub", NOW, issuer="b", nonce="m", client=verdict.routing.client, push=True)
    assert pushed is not None
    assert pushed.is_push
    assert (pushed.pushed, pushed.client, pushed.tenant) == ("10.1.2.0/24", "10.1.2.0/24", "acme")
    assert pushed.expires <= found.expires
    there = judge(
        router,
        "dub",
        NOW,
        seen=edge,
        presented=Presented(pushed, IN_GERMANY, IN_GERMANY),
        used=lambda _: Reuse.NEW,
    )
    assert (there.code, there.flaws) == (Code.SERVE, ())
    assert onward(there, "fra", NOW, issuer="c", nonce="m", client=GERMAN, push=True) is None


def test_fences_agree_by_what_an_edge_was_told() -> None:
    """A key says the tenant at the balancer alone: the hash is of what the handoff states, and the request may be pushed."""
    router = world(worlds.rule("other", "fra", tenants="other"), tenants="acme other")
    routing = routed(router.view, Request("chat", IN_GERMANY), GERMAN)
    found = handed(routing, routing.pick(0.0), "edge-1", NOW, "n", once=False, carried=True)
    assert found is not None
    assert found.fence == fence_hash(["fra"])
    verdict = judge(
        router,
        "fra",
        NOW,
        seen=Seen(Location("US"), b"\x08\x08\x08\x08", "chat", tenant="acme"),
        presented=Presented(found, IN_GERMANY, IN_GERMANY),
        used=lambda _: Reuse.USED,
    )
    assert (verdict.code, verdict.flaws) == (Code.SERVE, ())
    assert router.view.snapshot.names(verdict.reach) == ("fra", "dub", "iad")


def test_a_refusal_is_handed_to_nobody() -> None:
    """A refusal is handed to nobody."""
    nowhere = replace(AT_HOME, allow=Places(jurisdictions=("SG",)), acknowledge_empty_fence=True)
    routing = routed(world(nowhere).view, Request("chat", IN_GERMANY), GERMAN)
    assert handed(routing, routing.pick(0.0), "edge-1", NOW, "n", once=True) is None


def test_what_may_not_be_kept_is_not_handed() -> None:
    """What may not be kept is not handed."""
    routing = routed(world(service=replace(SERVICE, ttl=0, min_ttl=0)).view, Request("chat"), GERMAN)
    assert handed(routing, routing.pick(0.0), "edge-1", NOW, "n", once=True) is None


def test_an_hour_at_the_most() -> None:
    """An hour at the most."""
    routing = routed(world(service=replace(SERVICE, ttl=86_400)).view, Request("chat"), GERMAN)
    found = handed(routing, routing.pick(0.0), "edge-1", NOW, "n", once=True)
    assert found is not None
    assert found.expires - found.issued == LONGEST == 3600


@pytest.mark.parametrize(
    ("address", "network"),
    [("192.0.2.77", "192.0.2.0/24"), ("2001:db8:1:2::3", "2001:db8:1::/48"), ("::1", "::/48")],
)
def test_clients_are_named_by_their_network_alone(address: str, network: str) -> None:
    """Clients are named by their network alone."""
    assert client_network(ip_address(address).packed) == network
    assert is_client_network(network)


@pytest.mark.parametrize(
    "text", ["192.0.2.77/24", "192.0.2.0/25", "192.0.2.0", "2001:db8::/47", "x", "192.0.2.0/24 "]
)
def test_nothing_else_names_a_client(text: str) -> None:
    """Nothing else names a client."""
    assert not is_client_network(text)


def test_unknown_clients_have_no_network() -> None:
    """Unknown clients have no network."""
    assert client_network(b"") == ""
    assert is_client_network("")


def test_the_hash_is_of_names_whatever_their_order() -> None:
    """The hash is of names whatever their order."""
    assert fence_hash(["fra", "dub"]) == fence_hash(["dub", "fra"]) != fence_hash(["fra"])
    assert len(fence_hash([])) == 16


def test_a_push_says_where_the_edge_saw_the_client() -> None:
    """A push says where the edge saw the client."""
    router = world(AT_HOME)
    verdict = judge(
        router,
        "fra",
        Window(1020.0, 1020.0),
        seen=Seen(IN_GERMANY, b"\x0a\x09\x09\x09", "chat"),
        presented=Presented(given(router), IN_GERMANY),
        used=lambda _: Reuse.NEW,
    )
    assert verdict.code is Code.SERVE
    pushed = onward(
        verdict, "dub", Window(1020.0, 1020.0), issuer="fra-b1", nonce="m", client=b"\x0a\x09\x09\x09"
    )
    assert pushed is not None
    assert (pushed.hop, pushed.once, pushed.issuer, pushed.region) == (1, True, "fra-b1", "dub")
    assert pushed.client == "10.1.2.0/24"
    assert pushed.tenant is None, "it was stated for another network"
    assert pushed.expires == 1030, "no longer than what it follows from"
    outside = onward(verdict, "iad", NOW, issuer="fra-b1", nonce="m", client=GERMAN)
    assert outside is None


@pytest.mark.parametrize("edge", [True, False])
def test_a_push_that_is_carried_is_judged_by_whom_the_balancer_saw(edge: bool) -> None:
    """Not by the address of the balancer that carries it, with or without an edge's word; for a minute at most."""
    router = world(AT_HOME, service=replace(SERVICE, ttl=300))
    presented = Presented(given(router), IN_GERMANY) if edge else None
    here = Seen(Location("IE"), b"\x0a\x09\x09\x09", "chat", tenant="acme")
    verdict = judge(
        router,
        "dub",
        NOW,
        seen=here,
        presented=presented and replace(presented, claims=replace(presented.claims, region="dub")),
        used=lambda _: Reuse.NEW,
    )
    assert verdict.code is Code.SERVE
    pushed = onward(verdict, "fra", NOW, issuer="dub-b1", nonce="m", client=here.client, push=True)
    assert pushed is not None
    assert pushed.carried
    assert (pushed.pushed, pushed.client) == ("10.9.9.0/24", "10.1.2.0/24" if edge else "10.9.9.0/24")
    assert pushed.expires - pushed.issued == 60
    carrier = Seen(Location("US"), b"\x08\x08\x08\x08", "chat")
    places = (IN_GERMANY if edge else Location("IE")), Location("IE")
    for region, code in (("fra", Code.SERVE), ("iad", Code.WRONG_REGION_AGAIN if edge else Code.SERVE)):
        there = judge(
            router,
            region,
            NOW,
            seen=carrier,
            presented=Presented(replace(pushed, region=region), *places),
            used=lambda _: Reuse.NEW,
        )
        assert there.code is code
        assert there.flaws == ()
        assert there.routing is not None
        assert there.routing.request.tenant == "acme", "the balancer found it"
        assert there.routing.client == b"\x0a\x09\x09\x00"
        assert there.reach.bit_count() <= 1, "one hop"


def test_one_hop_only() -> None:
    """One hop only."""
    router = world(AT_HOME)
    presented = Presented(given(router, hop=1), IN_GERMANY)
    seen = Seen(IN_GERMANY, GERMAN, "chat")
    verdict = judge(router, "fra", NOW, seen=seen, presented=presented, used=lambda _: Reuse.NEW)
    assert verdict.code is Code.SERVE
    assert onward(verdict, "dub", NOW, issuer="fra-b1", nonce="m", client=GERMAN) is None
    presented = Presented(given(router, "iad", hop=1), IN_GERMANY)
    verdict = judge(router, "iad", NOW, seen=seen, presented=presented, used=lambda _: Reuse.NEW)
    assert (verdict.code, verdict.region) == (Code.WRONG_REGION_AGAIN, None)
    assert onward(verdict, "dub", NOW, issuer="iad-b1", nonce="m", client=GERMAN) is None


def test_who_is_sent_on_by_421_may_take_a_handoff_along() -> None:
    """Who is sent on by 421 may take a handoff along."""
    router = world(AT_HOME)
    seen = Seen(IN_GERMANY, GERMAN, "chat")
    verdict = judge(router, "iad", NOW, seen=seen, presented=None, used=lambda _: Reuse.NEW)
    assert (verdict.code, verdict.region) == (Code.WRONG_REGION, "fra")
    sent = onward(verdict, "fra", NOW, issuer="iad-b1", nonce="m", client=GERMAN)
    assert sent is not None
    assert (sent.client, sent.hop) == ("10.1.2.0/24", 1)
    assert onward(verdict, "iad", NOW, issuer="iad-b1", nonce="m", client=GERMAN) is None


def test_the_memory_is_asked_of_what_is_believed_otherwise() -> None:
    """Whoever has many handoffs for other regions fills no memory."""
    router = world(AT_HOME)
    asked: list[Claims] = []

    def used(claims: Claims) -> Reuse:
        asked.append(claims)
        return Reuse.NEW

    seen = Seen(IN_GERMANY, GERMAN, "chat")
    for claims in (given(router, "dub"), given(router, once=False), given(router, expires=1000)):
        judge(router, "fra", NOW, seen=seen, presented=Presented(claims, IN_GERMANY), used=used)
    assert not asked
    judge(router, "fra", NOW, seen=seen, presented=Presented(given(router), IN_GERMANY), used=used)
    assert len(asked) == 1


@pytest.mark.parametrize("code", list(Code))
def test_every_code_has_status_and_words(code: Code) -> None:
    """Every code has status and words."""
    assert code.status in {200, 404, 421, 451, 503}
    assert code.words


@pytest.mark.parametrize("shed", [0.0, 1.0])
def test_who_is_sent_on_is_neither_shed_nor_counted_against_a_quota(shed: float) -> None:
    """A 421 names the home region inside the fence: the next balancer admits, and its quotas are not spent here."""
    plan_of: dict[str, ClassPlan] = {}
    spill = SpilloverRule("over", "fra", ("dub",), max_requests_per_second=1.0)
    before = world(AT_HOME).view
    policy = replace(before.snapshot.policy, spillover_rules=(spill,))
    service = replace(SERVICE, steering=Steering.GEO)
    snapshot = compile_policy(replace(policy, services=(service,)), (), revision=7)
    request = Request("chat", IN_GERMANY._replace(lat=0.0, lon=0.0))
    plan_of[routed(view_of(snapshot, before.state, NOW), request).ranking.group.key] = ClassPlan(
        {"fra": 0.0, "dub": 1.0}, shed=shed
    )
    state = replace(before.state, plan=Plan(made=1000.0, classes=plan_of, prices={"fra": 1.0, "dub": 0.0}))
    view = view_of(snapshot, state, NOW)
    seen = Seen(request.location, GERMAN, "chat")
    planned = routed(view, request)
    assert planned.pick(0.5).region == (None if shed else "dub")
    verdict = judge(Router(view), "iad", NOW, seen=seen, presented=None, used=lambda _: Reuse.NEW, draw=0.5)
    assert verdict.code is Code.WRONG_REGION
    assert verdict.region == "fra"


@given_inputs(
    hop=st.sampled_from([0, 1]),
    carried=st.booleans(),
    once=st.booleans(),
    ahead=st.integers(-4000, 40),
    life=st.integers(-4000, 10_000) | st.sampled_from([59, 60, 61, 3599, 3600, 3601]),
)
@example(hop=1, carried=True, once=True, ahead=0, life=61)
@example(hop=0, carried=True, once=False, ahead=0, life=61)
@example(hop=1, carried=False, once=True, ahead=0, life=61)
@example(hop=0, carried=False, once=False, ahead=0, life=3601)
def test_nothing_is_believed_for_longer_than_the_page_says(
    *, hop: int, carried: bool, once: bool, ahead: int, life: int
) -> None:
    """Of every kind and issuer, a handoff is believed for an hour at the most, of a push for a minute, and half a minute of clocks apart."""
    router = world(AT_HOME)
    claims = given(router, hop=hop, once=once, issued=1000 + ahead, expires=1000 + ahead + life)
    if carried:  # by an edge or a balancer, whose is for one request
        claims = replace(claims, once=hop == 1, pushed=claims.client)
    most = 60 if carried else 3600
    verdict = judge(
        router,
        "fra",
        Window(1000.0, 1000.0),
        seen=Seen(IN_GERMANY, GERMAN, "chat"),
        presented=Presented(claims, IN_GERMANY, IN_GERMANY),
        used=lambda _: Reuse.NEW,
    )
    believed = verdict.believed is not None
    assert believed is (ahead + life > 0 and ahead <= 30 and life <= most)
    assert not believed or claims.expires <= 1000 + 30 + most
