"""What edges sign: redirects and look-ups of services that ask for it, verified as a balancer would."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import cast
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gtm.core.handoff.claims import Claims, fence_hash
from gtm.core.handoff.judge import judge
from gtm.core.handoff.keys import PublicKey, PublicKeys, key_text
from gtm.core.handoff.verdict import Code, Flaw, Presented, Seen
from gtm.core.model.policy import Policy
from gtm.core.model.services import Handoff, HttpAnswer, Priority
from gtm.feed.wire import HandoffKeysMessage
from gtm.geoip.address import parse_address
from gtm.geoip.networks import Locate, locate_network
from gtm.handoff import jwks
from gtm.handoff.carried import split
from gtm.handoff.jwt import made
from gtm.handoff.verifier import Nonces, Verifier
from gtm.http.app import EdgeOptions
from tests import worlds
from tests.handoff.published import keys_in
from tests.http.test_redirect import ask
from tests.http.world import NOW, Edge, locate

KEY = made()
X = key_text(KEY.public)
PUBLISHED = PublicKeys((PublicKey("fra-1", X),), 1)
GERMAN = "192.0.2.77"


def signing(*names: str) -> Callable[[Policy], Policy]:
    """A change of a policy by which some services ask for handoffs."""

    def change(policy: Policy) -> Policy:
        for name in names:
            policy = worlds.changed(policy, "services", name, handoff=Handoff.SIGN)
        return policy

    return change


@pytest.fixture
def app() -> Edge:
    """An edge that has a key, and two services that ask for handoffs."""
    edge = Edge(EdgeOptions(open_lookups=True))
    edge.load(change=signing("web", "chat", "nowhere"))
    edge.handoffs.use("fra-1", KEY, (X,))
    return edge


def claims_of(token: bytes) -> Claims:
    """What a handoff says, verified by the edge's key."""
    found = Verifier(PUBLISHED).verify(token)
    assert isinstance(found, Claims), found
    return found


def look_up(edge: Edge, query: str) -> dict[str, object]:
    """The JSON of a look-up, straight from the application."""
    response = edge.app.answer_head(
        "GET", f"/v1/route?{query}".encode(), [(b"host", b"x")], "127.0.0.1", "1.1"
    )
    assert response is not None
    found: dict[str, object] = json.loads(response.body)
    return found


def test_a_redirect_carries_one_handoff_for_one_request(app: Edge) -> None:
    """Behind the client's own query; what the client sent by its name is taken out; each has another nonce."""
    nonces = set()
    for _ in range(3):
        status, headers = ask(app, b"/a%20b", b"x=1&gtm_handoff=forged&y=&gtm_handoff")
        assert status == 307
        rest, tokens = split(urlsplit(headers["location"]).query.encode())
        assert rest == b"x=1&y="
        assert len(tokens) == 1
        claims = claims_of(tokens[0])
        assert (claims.once, claims.hop, claims.issuer) == (True, 0, "fra-1")
        assert claims.region == headers["x-gtm-region"]
        assert (claims.issued, claims.expires) == (int(NOW), int(NOW) + 30)
        nonces.add(claims.nonce)
    assert len(nonces) == 3


def test_a_redirect_without_a_query_has_the_handoff_alone(app: Edge) -> None:
    """As its only parameter."""
    _, headers = ask(app, b"/")
    rest, tokens = split(urlsplit(headers["location"]).query.encode())
    assert (rest, len(tokens)) == (b"", 1)


def test_services_that_do_not_ask_are_answered_as_ever() -> None:
    """Byte for byte, a parameter of that name included, whether the edge has a key or not."""
    plain, keyed = Edge(EdgeOptions(open_lookups=True)), Edge(EdgeOptions(open_lookups=True))
    for edge in (plain, keyed):
        edge.load()
    keyed.handoffs.use("fra-1", KEY, (X,))
    query = b"x=1&gtm_handoff=mine"
    assert ask(plain, b"/a", query) == ask(keyed, b"/a", query)
    assert ask(keyed, b"/a", query)[1]["location"].endswith("?x=1&gtm_handoff=mine")
    assert "handoff" not in look_up(keyed, f"service=chat&client_ip={GERMAN}")


def test_an_edge_without_a_key_answers_unsigned() -> None:
    """Steering does not wait for signing."""
    edge = Edge(EdgeOptions(open_lookups=True))
    edge.load(change=signing("web"))
    status, headers = ask(edge, b"/a", b"x=1&gtm_handoff=forged")
    assert status == 307
    assert headers["location"].endswith("/a?x=1")
    assert "handoff" not in look_up(edge, f"service=web&client_ip={GERMAN}")


@pytest.mark.parametrize("explain", ["", "&explain=1"])
def test_a_look_up_has_a_handoff_for_all_requests_until_it_ends(app: Edge, explain: str) -> None:
    """Made anew for each answer, remembered or not, with what the request stated and its client's network."""
    query = f"service=chat&client_ip={GERMAN}&tenant=clinic&data_class=health&priority=batch{explain}"
    tokens = [str(look_up(app, query)["handoff"]) for _ in range(4)]
    assert len(set(tokens)) == 4
    document = look_up(app, query)
    claims = claims_of(tokens[0].encode())
    assert claims.region == document["region"]
    assert not claims.once
    assert (claims.tenant, claims.data_class, claims.priority) == ("clinic", "health", "batch")
    assert claims.client == "192.0.2.0/24"
    assert claims.revision == 7
    assert list(document)[-1] == "handoff"


@pytest.mark.parametrize("own", Priority)
def test_a_stated_priority_lowers_and_never_raises(own: Priority) -> None:
    """Whoever states it, by parameter or by header: priorities take capacity from others, and edges know nobody's key."""
    app = Edge(EdgeOptions(open_lookups=True))
    app.load(change=lambda policy: worlds.changed(signing("web")(policy), "services", "web", priority=own))
    app.handoffs.use("fra-1", KEY, (X,))
    order = [*Priority]
    for stated in Priority:
        counts = max(own, stated, key=order.index)
        token = str(look_up(app, f"service=web&client_ip={GERMAN}&priority={stated}")["handoff"])
        assert claims_of(token.encode()).priority == counts
        response = app.app.answer_head(
            "GET", b"/r/web/", [(b"host", b"x"), (b"x-gtm-priority", stated.encode())], "127.0.0.1", "1.1"
        )
        assert response is not None
        _, tokens = split(urlsplit(dict(response.head.headers)[b"location"].decode()).query.encode())
        assert claims_of(tokens[0]).priority == counts


def test_a_batch_has_one_for_each_answer(edge: Edge) -> None:
    """Over HTTP, as bodies are."""
    edge.load(change=signing("chat"))
    edge.handoffs.use("fra-1", KEY, (X,))
    items = [{"service": "chat"}, {"service": "web"}]
    with edge.client() as client:
        found = client.post("/v1/route:batch", json={"requests": items}).json()["results"]
    assert claims_of(found[0]["handoff"].encode()).service == "chat"
    assert "handoff" not in found[1]


def test_a_refusal_hands_nobody_over(app: Edge) -> None:
    """There is no region to hand over to."""
    document = look_up(app, f"service=nowhere&client_ip={GERMAN}")
    assert document["status"] == 451
    assert "handoff" not in document


def test_what_an_edge_signs_is_served_by_the_region_it_names(app: Edge) -> None:
    """And by no other, and a second time it counts as none: one round from decision to judgement."""
    router = app.current.router
    assert router is not None
    address = parse_address(GERMAN)
    token = str(look_up(app, f"service=chat&client_ip={GERMAN}&tenant=clinic")["handoff"]).encode()
    claims = claims_of(token)
    where = locate_network(parse_address("192.0.2.0").packed, 24, cast("Locate", locate))
    nonces = Nonces()
    seen = Seen(locate(address.packed), address.packed, None)
    for region in (claims.region, "us-east"):
        verdict = judge(
            router,
            region,
            app.current.window,
            seen=seen,
            presented=Presented(claims, where),
            used=lambda one: nonces.use(one, NOW),
        )
        if region == claims.region:
            assert verdict.code is Code.SERVE
            assert not verdict.flaws
            allowed = router.view.snapshot.names(verdict.allowed)
            assert claims.fence == fence_hash(allowed)
        else:
            assert verdict.code is Code.UNKNOWN_SERVICE, (
                "for another region it says nothing, not even the service"
            )
            assert verdict.flaws == (Flaw.WRONG_REGION,)


def test_the_keys_of_all_edges_are_published(edge: Edge) -> None:
    """Those on the feed, and this edge's own, for everybody."""
    other = key_text(made().public)
    edge.load()
    assert keys_in(edge.get(jwks.PATH).content) == []
    edge.handoffs.use("fra-1", KEY, (X,))
    edge.current.apply(HandoffKeysMessage(PublicKeys((PublicKey("lon-1", other),), 2)))
    answer = edge.get(jwks.PATH)
    assert set(keys_in(answer.content)) == {X, other}
    assert answer.headers["content-type"] == "application/jwk-set+json"
    assert answer.headers["cache-control"] == "public, max-age=60"
    assert KEY.private.hex() not in answer.text
    assert "lon-1" not in answer.text


def test_an_edge_that_is_to_carry_awaits_its_key_before_it_is_ready() -> None:
    """Ten seconds at the most, for there may be no control; one that carries nothing does not wait, nor one that may not.

    envoyproxy/envoy issue 14556 and istio/istio issue 42202: ready, and each request refused, since keys were not there yet. cozystack/cozystack pull
    request 2745: a start that waits for keys without a bound.
    """

    def carried(policy: Policy) -> Policy:
        return worlds.changed(policy, "services", "web", answer=HttpAnswer.CARRY)

    def ready(edge: Edge) -> int:
        response = edge.app.answer_head("GET", b"/readyz", [(b"host", b"x")], "127.0.0.1", "1.1")
        assert response is not None
        assert (
            response.head.status == 200 or b"balancers have not heard of this edge's key yet" in response.body
        )
        return response.head.status

    def edge(options: EdgeOptions, change: Callable[[Policy], Policy]) -> Edge:
        made = Edge(options, boot=lambda: now[0])
        made.load(change=change)
        return made

    now = [1e6]
    idle, barred = edge(EdgeOptions(), lambda same: same), edge(EdgeOptions(carry=False), carried)
    keyed, alone = edge(EdgeOptions(), carried), edge(EdgeOptions(), carried)
    assert [ready(one) for one in (idle, barred, keyed, alone)] == [200, 200, 503, 503]
    now[0] += 9.9
    keyed.sign(KEY)
    assert [ready(keyed), ready(alone)] == [200, 503]
    now[0] += 0.2
    assert ready(alone) == 200


def _published(edge: Edge, ago: float, *keys: PublicKey) -> None:
    """The edge hears that these are the keys which were published so many seconds ago."""
    edge.current.handoff_keys = PublicKeys(keys, int(1000 * (NOW - ago)))
    edge.handoffs.hear()


@pytest.mark.parametrize(
    ("before", "ago", "at_once"),
    [
        (None, 0.0, False),
        (None, 0.9, False),
        (None, -5.0, False),
        (None, 1.1, True),
        (None, 1e9, True),
        (90.0, 70.0, False),
        (5.0, 0.0, False),
    ],
)
def test_a_key_that_was_published_this_moment_is_not_used_to_carry(
    before: float | None, ago: float, at_once: bool
) -> None:
    """Some balancer may not have heard of it for a second: a key is new where keys were heard of without it, or the first ones with it are of this moment."""
    now = [1e6]
    edge = Edge(EdgeOptions(), boot=lambda: now[0])
    edge.load()
    edge.handoffs.use("fra-1", KEY, (X,))
    assert not edge.handoffs.believed
    other = PublicKey("fra-2", key_text(made().public))
    if before is not None:
        _published(edge, before, other)
    mine = PublicKey("fra-1", X)
    for _ in range(2):
        _published(edge, ago, mine)
        now[0] += 0.9
        assert edge.handoffs.believed is at_once
        _published(edge, ago - 10, mine, other)
        edge.handoffs.use("fra-1", KEY, (X,))
        now[0] += 0.2
        assert edge.handoffs.believed
        _published(edge, ago - 20, other)
        assert not edge.handoffs.believed
        at_once = False  # it comes back, and others may have dropped it meanwhile


def test_a_key_that_follows_another_is_used_at_once() -> None:
    """It was published an hour before it signs, whatever key of another edge was published this moment."""
    edge = Edge(EdgeOptions())
    edge.load()
    following = made()
    both = PublicKey("fra-1", X), PublicKey("fra-1", key_text(following.public))
    edge.handoffs.use("fra-1", KEY, (X,))
    _published(edge, 5.0, *both)
    assert edge.handoffs.believed
    _published(edge, 0.0, *both, PublicKey("fra-2", key_text(made().public)))
    edge.handoffs.use("fra-1", following, (key_text(following.public), X))
    assert edge.handoffs.believed


@given(
    st.lists(
        st.tuples(st.sampled_from(["wait", "with", "without", "again", "roll"]), st.floats(0, 3)), max_size=25
    )
)
def test_a_key_is_used_to_carry_as_the_page_says(steps: list[tuple[str, float]]) -> None:
    """docs/handoff.md, Keys: a second after the edge heard of its first key, or of one that came back; at once of one that was published before, or that follows another."""
    now, ring = [0.0], [KEY, made()]
    edge = Edge(EdgeOptions(), boot=lambda: now[0])
    edge.load()
    edge.handoffs.use("fra-1", ring[0], (X,))
    heard, absent, usable_at = False, False, 0.0  # the model
    for what, amount in steps:
        if what == "wait":
            now[0] += amount
        elif what == "again":  # workers are told of the same key more than once
            edge.handoffs.use("fra-1", ring[0], (key_text(ring[0].public),))
        elif what == "roll":
            if heard:  # the next key signs once it has been seen on the feed for an hour
                ring.reverse()
                edge.handoffs.use("fra-1", ring[0], (key_text(ring[0].public),))
                absent, usable_at = False, 0.0
        else:
            keys = [PublicKey("fra-1", key_text(one.public)) for one in ring] if what == "with" else []
            clock = edge.current.window.now
            published = int(1000 * (clock - amount))
            edge.current.handoff_keys = PublicKeys(tuple(keys), published)
            edge.handoffs.hear()
            if what == "with" and not heard:
                usable_at = now[0] + 1.0 if absent or published / 1000 > clock - 1.0 else 0.0
            heard, absent = what == "with", absent or what == "without"
        assert edge.handoffs.believed is (heard and now[0] >= usable_at), steps
