"""Who a request is from and for, as the gate finds it, by a real View; what it remembers and what it tells backends."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256
from ipaddress import ip_network
from typing import Any, cast

import pytest

from gtm.balancer.decide.gate import HandoffReader, LawGate, Says
from gtm.balancer.plane.exchange import Exchange
from gtm.balancer.wire.heads import HeadError, read_head
from gtm.core.handoff.claims import Claims, client_network, hash_of
from gtm.core.handoff.keys import PublicKey, PublicKeys, key_text
from gtm.core.handoff.verdict import Verdict
from gtm.core.model.policy import Policy, Tenant
from gtm.core.model.requests import Location, Request
from gtm.core.model.services import Priority
from gtm.core.model.state import State
from gtm.documents.jurisdictions import shipped_jurisdictions
from gtm.feed.current import CurrentView
from gtm.feed.wire import HandoffKeysMessage, SnapshotMessage, StateMessage
from gtm.geoip.client import ClientFinder
from gtm.handoff.jwt import HandoffSigner, made, parsed
from tests import worlds
from tests.system.balancers import BERLIN, HOST, MOUNTAIN_VIEW, policy

PLACES = {BERLIN: "DE", MOUNTAIN_VIEW: "US"}
PROXY = "10.0.0.1"
REAL_TIME, NEAR, BATCH = Priority
KEY = b"sk-acme"


def _locate(packed: object) -> Location:
    text = ".".join(map(str, packed)) if isinstance(packed, bytes) else str(packed)
    return Location(PLACES.get(text))


def _gate(region: str, **more: Any) -> tuple[LawGate, CurrentView]:
    current = CurrentView(lambda: 2e9, boot=lambda: 100.0)
    law = policy({"fra": 1001, "iad": 1002})
    current.apply(SnapshotMessage.of(1, 1.0, law, shipped_jurisdictions()))
    current.apply(StateMessage(State(1, "", worlds.health(law.regions, since=1.0))))
    finder = ClientFinder((ip_network("10.0.0.0/8"),))
    gate = LawGate(current, region, _locate, finder, HandoffReader(current, _locate), says=Says(**more))
    return gate, current


class _Client:
    def __init__(self, peer: str | None) -> None:
        self.peer = peer
        self.secure = False


class _Asked:
    """What the gate looks at of an exchange."""

    def __init__(self, peer: str | None, *headers: tuple[bytes, bytes], host: bytes = HOST.encode()) -> None:
        self.client = _Client(peer)
        self.head = read_head(b"GET", b"/v1/models", "1.1", [(b"host", host), *headers], keep_alive=True)
        self.verdict: Verdict | None = None
        self.began = 0.0


def _asked(gate: LawGate, *args: Any, **more: Any) -> tuple[int, _Asked]:
    """The status (200: it may be served here), and what was found."""
    asked = _Asked(*args, **more)
    refusal = gate.judge(cast("Exchange", asked), 0.0)
    return (200 if refusal is None else refusal.status), asked


def _tenant(asked: _Asked) -> str | None:
    assert asked.verdict is not None
    assert asked.verdict.routing is not None
    return asked.verdict.routing.request.tenant


@pytest.mark.parametrize(
    ("peer", "told", "status"),
    [
        (BERLIN, None, 421),
        (MOUNTAIN_VIEW, None, 200),
        (PROXY, MOUNTAIN_VIEW, 200),
        (PROXY, BERLIN, 421),
        (PROXY, None, 421),  # unknown: whatever rule there is may be meant
        (BERLIN, MOUNTAIN_VIEW, 421),  # anybody writes headers
        (None, None, 421),
        (None, MOUNTAIN_VIEW, 421),  # nor does one of whom a proxy does not say who he is
    ],
)
def test_the_client_is_who_the_peer_or_a_trusted_proxy_says(
    peer: str | None, told: str | None, status: int
) -> None:
    """At Ashburn: Americans are served, Europeans and unknown clients are sent where they belong."""
    gate, _ = _gate("iad")
    headers = [] if told is None else [(b"X-Forwarded-For", told.encode())]
    assert _asked(gate, peer, *headers)[0] == status


@pytest.mark.parametrize(
    ("peer", "chain"), [(MOUNTAIN_VIEW, b"8.8.8.8"), (PROXY, b"203.0.113.9, 10.0.0.1"), (None, b"unknown")]
)
def test_a_backend_is_told_what_can_be_believed(peer: str | None, chain: bytes) -> None:
    """What an untrusted client says of those before it goes no further."""
    gate, _ = _gate("fra")
    asked = _Asked(peer, (b"X-Forwarded-For", b"203.0.113.9"))
    gate.judge(cast("Exchange", asked), 0.0)
    more = gate.more_headers(cast("Exchange", asked))
    assert b"x-forwarded-for: %b\r\n" % chain in more
    assert all(b"x-forwarded" not in line.lower() for line in asked.head.lines)


def test_a_service_is_named_by_its_host_or_by_default() -> None:
    """What is for nothing known is refused: by which law would it be served?"""
    gate, _ = _gate("iad")
    assert _asked(gate, MOUNTAIN_VIEW, host=b"other.example")[0] == 404
    by_default, _ = _gate("iad", service="chat")
    assert _asked(by_default, MOUNTAIN_VIEW, host=b"other.example")[0] == 200


def test_a_tenant_is_shown_by_a_key() -> None:
    """A header that names one is nobody's word; a key that is nobody's shows nobody."""
    gate, _ = _gate("iad", keys={sha256(KEY).hexdigest(): "acme"})
    _, shown = _asked(gate, MOUNTAIN_VIEW, (b"Authorization", b"Bearer " + KEY))
    assert _tenant(shown) == "acme"
    assert b"gtm-tenant: acme\r\n" in gate.more_headers(cast("Exchange", shown))
    for header in ((b"Authorization", b"Bearer sk-other"), (b"gtm-tenant", b"acme"), (b"Authorization", KEY)):
        _, other = _asked(gate, MOUNTAIN_VIEW, header)
        assert _tenant(other) is None
        assert b"gtm-tenant" not in gate.more_headers(cast("Exchange", other))


def test_keys_of_anthropic_s_and_azure_s_clients() -> None:
    """sxueck/llm-gateway#5, raullenchai/Rapid-MLX#262: they show their key in a field of its own, and no limit of a tenant applied."""
    keys = {
        sha256(KEY).hexdigest(): "acme",
        sha256(b"sk-2").hexdigest(): "acme",
        sha256(b"sk-3").hexdigest(): "other",
    }
    gate, _ = _gate("iad", keys=keys)
    bearer, ours, azure = (b"Authorization", b"Bearer " + KEY), (b"X-Api-Key", KEY), (b"api-key", KEY)
    shown: list[tuple[tuple[tuple[bytes, bytes], ...], str | None]] = [
        ((ours,), "acme"),
        ((azure,), "acme"),
        ((bearer, ours, azure), "acme"),
        ((bearer, (b"x-api-key", b"sk-2")), "acme"),
        # langfuse/langfuse#17781: what is there beside a good key and is none (a proxy's Basic, a server's own key) must not take it away.
        (((b"Authorization", b"Basic abc"), ours), "acme"),
        (((b"Authorization", b"Bearer sk-of-the-server"), ours), "acme"),
        ((bearer, (b"x-api-key", b"sk-3")), None),
        ((ours, (b"api-key", b"sk-3")), None),
        (((b"x-api-key", b"sk-none"),), None),
        (((b"x-api-key", b"Bearer " + KEY),), None),
        (((b"x_api_key", KEY),), None),
    ]
    for _ in range(2):  # made, and remembered
        for headers, tenant in shown:
            assert _tenant(_asked(gate, MOUNTAIN_VIEW, *headers)[1]) == tenant, headers
    with pytest.raises(HeadError, match="there twice"):
        _asked(gate, MOUNTAIN_VIEW, ours, (b"x-api-key", b"sk-3"))


def _law_with(gate: CurrentView, priority: Priority) -> None:
    ports = policy({"fra": 1001, "iad": 1002})
    (service,) = ports.services
    other = replace(ports, services=(replace(service, priority=priority),))
    gate.apply(SnapshotMessage.of(2, 2.0, other, shipped_jurisdictions()))


def _priority(asked: _Asked) -> Priority:
    assert asked.verdict is not None
    assert asked.verdict.routing is not None
    return asked.verdict.routing.ranking.group.priority


def test_who_may_claim_what_priority() -> None:
    """A header lowers. It raises for who shows the key of a tenant that has more, and from networks that are listed: each by itself."""
    gate, current = _gate(
        "iad",
        keys={sha256(KEY).hexdigest(): "acme"},
        priorities={"acme": REAL_TIME, None: BATCH},
        priority_from=(ip_network("10.0.0.0/8"),),
    )
    _law_with(current, NEAR)
    urgent, modest = (b"gtm-priority", b"real-time"), (b"gtm-priority", b"batch")
    key = (b"authorization", b"Bearer " + KEY)
    told = (b"x-forwarded-for", MOUNTAIN_VIEW.encode())
    expected: list[tuple[str, tuple[tuple[bytes, bytes], ...], Priority]] = [
        (MOUNTAIN_VIEW, (urgent,), BATCH),
        (MOUNTAIN_VIEW, (), BATCH),
        (MOUNTAIN_VIEW, (urgent, (b"authorization", b"Bearer sk-none")), BATCH),
        (MOUNTAIN_VIEW, (key,), REAL_TIME),
        (MOUNTAIN_VIEW, (urgent, key), REAL_TIME),
        (MOUNTAIN_VIEW, (modest, key), BATCH),
        (PROXY, (urgent, told), REAL_TIME),
        (PROXY, (told,), BATCH),
        (MOUNTAIN_VIEW, (urgent, told), BATCH),
    ]
    for _ in range(2):  # made, and remembered
        for peer, headers, priority in expected:
            assert _priority(_asked(gate, peer, *headers)[1]) is priority, (peer, headers)
    gate.configure(Says(keys={sha256(KEY).hexdigest(): "acme"}))
    assert _priority(_asked(gate, MOUNTAIN_VIEW, urgent, key)[1]) is NEAR


def test_what_an_edge_signs_is_what_its_client_states() -> None:
    """A stranger has a look-up answered for another priority: at the balancer that is worth no more than a header."""
    gate, current = _gate("iad")
    _law_with(current, NEAR)
    router = current.router
    assert router is not None
    key, snapshot = made(), router.view.snapshot
    allowed = router.ranker.ranking(Request("chat", Location("US"))).within.allowed
    client = client_network(bytes(map(int, MOUNTAIN_VIEW.split("."))))
    current.apply(HandoffKeysMessage(PublicKeys((PublicKey("edge-1", key_text(key.public)),), 1)))
    issued = int(2e9) - 5
    claims = Claims(
        "edge-1", "iad", "chat", issued, issued + 300, "n", hash_of(snapshot, allowed), 2, client=client
    )
    for signed, counts in ((REAL_TIME, NEAR), (NEAR, NEAR), (BATCH, BATCH)):
        shown = (b"gtm-handoff", HandoffSigner(key).sign(replace(claims, priority=signed)))
        _, asked = _asked(gate, MOUNTAIN_VIEW, shown)
        assert asked.verdict is not None
        assert asked.verdict.believed is not None
        assert _priority(asked) is counts


def test_another_file_counts_at_once() -> None:
    """A key that is revoked shows nobody from then on, a new one its tenant, whatever was remembered."""
    gate, _ = _gate("iad", keys={sha256(KEY).hexdigest(): "acme"})
    old, new = (b"Authorization", b"Bearer " + KEY), (b"Authorization", b"Bearer sk-new")
    for _ in range(2):
        assert [_tenant(_asked(gate, MOUNTAIN_VIEW, one)[1]) for one in (old, new)] == ["acme", None]
    gate.configure(Says(service="chat", keys={sha256(b"sk-new").hexdigest(): "acme"}))
    for _ in range(2):
        assert [_tenant(_asked(gate, MOUNTAIN_VIEW, one)[1]) for one in (old, new)] == [None, "acme"]
    assert _asked(gate, MOUNTAIN_VIEW, host=b"other.example")[0] == 200


def test_what_is_remembered_is_of_one_view() -> None:
    """A region that may serve no more does so from the next View on, for a client that was served before too."""
    gate, current = _gate("iad")
    for _ in range(2):
        assert _asked(gate, MOUNTAIN_VIEW)[0] == 200
    ports = policy({"fra": 1001, "iad": 1002})
    (service,) = ports.services
    fewer = replace(ports, services=(replace(service, members=service.members[:1]),))
    current.apply(SnapshotMessage.of(2, 2.0, fewer, shipped_jurisdictions()))
    assert _asked(gate, MOUNTAIN_VIEW)[0] == 421


def test_what_is_remembered_is_of_one_sender() -> None:
    """Requests of one head: each client is judged by its own place, is told of by its own address, and by the law of now."""
    gate, current = _gate("iad")
    head = _Asked(None).head
    asked = {peer: _Asked(peer) for peer in (MOUNTAIN_VIEW, BERLIN, None)}
    for one in asked.values():
        one.head = head

    def status(peer: str | None) -> int:
        refusal = gate.judge(cast("Exchange", asked[peer]), 0.0)
        if refusal is None:
            told = gate.more_headers(cast("Exchange", asked[peer]))
            assert b"x-forwarded-for: %b\r\n" % str(peer).encode() in told
            assert (b"proto: https" in told) is asked[peer].client.secure
        return 200 if refusal is None else refusal.status

    for _ in range(2):
        assert [status(peer) for peer in asked] == [200, 421, 421]
    asked[MOUNTAIN_VIEW].client.secure = True
    assert [status(MOUNTAIN_VIEW) for _ in range(2)] == [200, 200]
    ports = policy({"fra": 1001, "iad": 1002})
    (service,) = ports.services
    fewer = replace(ports, services=(replace(service, members=service.members[:1]),))
    current.apply(SnapshotMessage.of(2, 2.0, fewer, shipped_jurisdictions()))
    assert [status(peer) for peer in asked] == [421, 421, 421]


def test_a_withdrawn_key_is_believed_no_more() -> None:
    """Nor is a verdict remembered that rests on it; the View is the same."""
    gate, current = _gate("fra")
    router = current.router
    assert router is not None
    key, snapshot = made(), router.view.snapshot
    tenant = min(snapshot.tenants)
    allowed = router.ranker.ranking(Request("chat", Location("DE"), tenant, None)).within.allowed
    client = client_network(bytes(map(int, BERLIN.split("."))))
    claims = Claims(
        "fra-1",
        "fra",
        "chat",
        int(2e9) - 5,
        int(2e9) + 300,
        "n",
        hash_of(snapshot, allowed),
        1,
        tenant=tenant,
        client=client,
    )
    shown = (b"gtm-handoff", HandoffSigner(key).sign(claims))
    for keys, believed in (((PublicKey("fra-1", key_text(key.public)),), tenant), ((), None)):
        current.apply(HandoffKeysMessage(PublicKeys(keys, len(keys))))
        for _ in range(2):
            assert _tenant(_asked(gate, BERLIN, shown)[1]) == believed


def test_handoffs_that_are_not_believed_cost_little() -> None:
    """A stranger's are verified 50 times a second, whatever is wrong with them; those of others are believed meanwhile, and its own in the next second."""
    gate, current = _gate("fra")
    router = current.router
    assert router is not None
    key, snapshot = made(), router.view.snapshot
    tenant = min(snapshot.tenants)
    allowed = router.ranker.ranking(Request("chat", Location("DE"), tenant, None)).within.allowed
    current.apply(HandoffKeysMessage(PublicKeys((PublicKey("fra-1", key_text(key.public)),), 1)))
    stranger, neighbour = "203.0.113.9", "203.0.113.77"
    issued = int(2e9) - 5

    def shown(peer: str, nonce: str, **more: Any) -> bytes:
        network = client_network(bytes(map(int, peer.split("."))))
        fence = hash_of(snapshot, allowed)
        claims = Claims(
            "fra-1", "fra", "chat", issued, issued + 300, nonce, fence, 1, tenant=tenant, client=network
        )
        return HandoffSigner(key).sign(replace(claims, **more))

    once = shown(stranger, "n", once=True)
    forged = once[:-4] + (b"AAAA" if once[-4:] != b"AAAA" else b"BBBB")
    for _ in range(40):
        _asked(gate, stranger, (b"gtm-handoff", forged))
    for _ in range(200):  # a good one, again and again
        _asked(gate, stranger, (b"gtm-handoff", once))
    assert gate.flaws["handoff_bad_signature"] + gate.flaws["handoff_replayed"] == 50
    assert gate.flaws["handoff_unverified"] == 240 - 50 - 1
    for number in range(200):  # whose are believed may send as many as they like
        assert _tenant(_asked(gate, BERLIN, (b"gtm-handoff", shown(BERLIN, f"b{number}")))[1]) == tenant
    assert _tenant(_asked(gate, neighbour, (b"gtm-handoff", shown(neighbour, "c")))[1]) is None
    current.boot = lambda: 101.0
    assert _tenant(_asked(gate, neighbour, (b"gtm-handoff", shown(neighbour, "c")))[1]) == tenant


def test_a_process_that_slept_looks_at_the_clock_first() -> None:
    """The View may be over."""
    gate, current = _gate("iad")
    ticks: list[None] = []
    current.tick = lambda: ticks.append(None)  # type: ignore[method-assign]
    current.deadline = 99.0
    _asked(gate, MOUNTAIN_VIEW)
    assert ticks == [None]


@pytest.mark.parametrize(
    ("header", "code"),
    [(b"nonsense", "handoff_malformed"), (b"a.b.c", "handoff_malformed")],
)
def test_a_bad_handoff_counts_as_none(header: bytes, code: str) -> None:
    """The request is judged without it, and the answer says why it was not believed."""
    gate, _ = _gate("iad")
    status, asked = _asked(gate, MOUNTAIN_VIEW, (b"gtm-handoff", header))
    assert status == 200
    assert gate.flaws == {code: 1}
    assert all(b"handoff" not in line.lower() for line in asked.head.lines)
    refusal = gate.judge(cast("Exchange", _Asked(BERLIN, (b"gtm-handoff", header))), 0.0)
    assert refusal is not None
    assert code in refusal.detail
    assert refusal.location == b"http://127.0.0.1:1001/v1/models"


# --- Requests that an edge carries: their client is whom the edge's handoff says, never the edge. ---


EDGES = {"203.0.113": "DE", "192.0.2": "US", "10.0.0": "US"}
"""Networks that edges carry from, and where they are; the last is one of trusted proxies."""
PUSH = (b"gtm-push", b"1")
ISSUED = int(2e9) - 5


class _Carrier:
    """An edge whose key is published, and a region's balancer."""

    def __init__(self, region: str, *, change: Any = lambda same: same, **says: Any) -> None:
        self.gate, self.current = _gate(region, **says)
        law = change(policy({"fra": 1001, "iad": 1002}))
        self.current.apply(SnapshotMessage.of(2, 2.0, law, shipped_jurisdictions()))
        self.gate.locate = self.locate
        self.gate.handoffs = HandoffReader(self.current, self.locate)
        self.region, self.key = region, made()
        self.publish("edge-1")

    def publish(self, *names: str) -> None:
        """These names have the edge's key published."""
        keys = tuple(PublicKey(name, key_text(self.key.public)) for name in names)
        self.current.apply(HandoffKeysMessage(PublicKeys(keys, self.current.handoff_keys.version + 1)))

    @staticmethod
    def locate(packed: Any) -> Location:
        """Where a /24 is."""
        network = ".".join(map(str, packed[:3]))
        places = {"95.90.1": "DE", "8.8.8": "US", **EDGES}
        return Location(places.get(network), network=f"{network}.0/24", prefix_length=24)

    def token(self, client: str | None, *, carried: bool = True, **changes: Any) -> bytes:
        """What the edge says of a client; by default, that it carries for him."""
        router = self.current.router
        assert router is not None
        packed = b"" if client is None else bytes(map(int, client.split(".")))
        place = Location() if client is None else self.locate(packed)
        allowed = router.ranker.ranking(Request("chat", place, changes.get("tenant"))).within.allowed
        network = client_network(packed)
        claims = Claims(
            "edge-1",
            self.region,
            "chat",
            ISSUED,
            ISSUED + 60,
            "n",
            hash_of(router.view.snapshot, allowed),
            2,
            client=network,
            pushed=network if carried else None,
        )
        return HandoffSigner(self.key).sign(replace(claims, **changes))

    def asks(self, edge: str | None, token: bytes | None, *more: tuple[bytes, bytes], **host: Any) -> Any:
        """A request that the edge carries: its refusal's code, or nothing, and what was found."""
        shown = () if token is None else ((b"gtm-handoff", token),)
        asked = _Asked(edge, *shown, *more, **host)
        refusal = self.gate.judge(cast("Exchange", asked), 0.0)
        return ("" if refusal is None else refusal.code), asked, refusal


@pytest.mark.parametrize("edge", [*(f"{network}.9" for network in EDGES), None])
@pytest.mark.parametrize(
    ("region", "client", "code"),
    [
        ("iad", MOUNTAIN_VIEW, ""),
        ("iad", BERLIN, "wrong_region"),
        ("iad", None, "wrong_region"),
        ("fra", BERLIN, ""),
        ("fra", MOUNTAIN_VIEW, ""),
    ],
)
@pytest.mark.parametrize("told", [(), ((b"x-forwarded-for", b"8.8.8.8"),)])
def test_whom_an_edge_carries_for_is_whom_its_handoff_says(
    edge: str | None, region: str, client: str | None, code: str, told: tuple[tuple[bytes, bytes], ...]
) -> None:
    """Wherever the edge stands, and whatever stands in X-Forwarded-For; made, and remembered."""
    world = _Carrier(region)
    token = world.token(client)
    for _ in range(2):
        found, asked, refusal = world.asks(edge, token, PUSH, *told)
        assert found == code
        routing = asked.verdict.routing
        assert asked.verdict.flaws == ()
        assert routing.client == (b"" if client is None else bytes(map(int, client.split(".")[:3])) + b"\0")
        assert routing.request.location.country == {BERLIN: "DE", MOUNTAIN_VIEW: "US", None: None}[client]
        if code:
            assert refusal.location == b"http://127.0.0.1:1001/v1/models"


def test_what_an_edge_states_of_whom_it_carries_for_counts() -> None:
    """The tenant is that of the handoff where neither host name nor key says one; a key that says another makes it a contradiction."""
    keys = {sha256(KEY).hexdigest(): "acme", sha256(b"sk-2").hexdigest(): "other"}
    world = _Carrier("iad", keys=keys, change=_with_other)
    token = world.token(MOUNTAIN_VIEW, tenant="acme")
    for header, code, tenant in (
        ((), "", "acme"),
        (((b"x-api-key", KEY),), "", "acme"),
        (((b"x-api-key", b"sk-2"),), "push_not_believed", "other"),
    ):
        for _ in range(2):
            found, asked, _ = world.asks("203.0.113.9", token, PUSH, *header)
            assert (found, _tenant(asked)) == (code, tenant)


@pytest.mark.parametrize("carried", [True, False])
def test_a_handoff_fills_no_limits_of_a_tenant_whose_key_is_not_shown(*, carried: bool) -> None:
    """BerriAI/litellm#32779: a header names whose budget it is. An edge signs it as it was stated; the law goes by it, limits and the backend do not."""
    keyed = _Carrier("iad", keys={sha256(KEY).hexdigest(): "acme"}, change=_with_other)
    more = (PUSH,) if carried else ()
    for world, tenant, header, payer in (
        (keyed, "acme", (), None),
        (keyed, "acme", ((b"x-api-key", b"sk-none"),), None),
        (keyed, "acme", ((b"x-api-key", KEY),), "acme"),
        (keyed, "other", (), "other"),
        (_Carrier("iad", change=_with_other), "acme", (), "acme"),
    ):
        token = world.token(MOUNTAIN_VIEW, carried=carried, tenant=tenant)
        for _ in range(2):  # made, and remembered
            code, asked, _ = world.asks(MOUNTAIN_VIEW, token, *more, *header)
            assert (code, _tenant(asked), asked.verdict.payer) == ("", tenant, payer)
            told = world.gate.more_headers(cast("Exchange", asked))
            assert (b"gtm-tenant: " in told) is (payer is not None)


def test_the_handoff_of_a_carried_request_says_the_service_before_the_file_does() -> None:
    """What comes by `/r/NAME` has the host name of no service. Who comes itself does not choose another service than the file's."""

    def change(law: Policy) -> Policy:
        (chat,) = law.services
        return replace(law, services=(chat, replace(chat, name="other", hostnames=())))

    world = _Carrier("iad", change=change, service="other")
    for token, more, service in (
        (world.token(MOUNTAIN_VIEW), (PUSH,), "chat"),
        (world.token(MOUNTAIN_VIEW, carried=False), (), "other"),
        (None, (), "other"),
        (b"a.b.c", (), "other"),
    ):
        for _ in range(2):
            _, asked, _ = world.asks(MOUNTAIN_VIEW, token, *more, host=b"127.0.0.1:1002")
            assert asked.verdict.routing.request.service == service


def test_a_request_that_says_that_it_is_carried_needs_a_handoff_that_is_believed() -> None:
    """Else it is refused: its carrier's place says nothing, and may open nothing. The same without the field is judged by who is seen."""
    world = _Carrier("iad")
    good = world.token(MOUNTAIN_VIEW)
    forged = HandoffSigner(made()).sign(parsed(good).claims)
    cases: list[tuple[bytes | None, str]] = [
        (None, "there is none"),
        (b"nonsense", "handoff_malformed"),
        (forged, "handoff_unknown_key"),
        (world.token(MOUNTAIN_VIEW, issuer="edge-2"), "handoff_wrong_issuer"),
        (world.token(MOUNTAIN_VIEW, hop=1, once=True), "handoff_wrong_issuer"),
        (world.token(MOUNTAIN_VIEW, region="fra"), "handoff_wrong_region"),
        (world.token(MOUNTAIN_VIEW, expires=ISSUED + 5), "handoff_expired"),
        (world.token(MOUNTAIN_VIEW, expires=ISSUED + 61), "handoff_too_long"),
        (world.token(MOUNTAIN_VIEW, pushed="95.90.1.0/24"), "handoff_malformed"),
        (world.token(MOUNTAIN_VIEW, model="unheard-of"), "handoff_unknown_name"),
        (world.token(MOUNTAIN_VIEW, carried=False), "handoff_elsewhere"),  # a link, or a look-up's
    ]
    for token, why in cases:
        for _ in range(2):
            code, _, refusal = world.asks("192.0.2.9", token, PUSH)
            assert (code, refusal.status) == ("push_not_believed", 421)
            assert why in refusal.detail
        assert world.asks("192.0.2.9", token)[0] == ""
        assert world.asks("203.0.113.9", token)[0] == "wrong_region"
    assert world.asks("192.0.2.9", good, PUSH)[0] == ""
    world.publish()
    assert world.asks("192.0.2.9", good, PUSH)[0] == "push_not_believed", "its key is withdrawn"


def test_an_edge_that_carries_raises_no_priority() -> None:
    """Neither by its handoff nor by its client's header, also where it connects from a network that may claim any."""

    def change(law: Policy) -> Policy:
        return replace(law, services=(replace(law.services[0], priority=NEAR),))

    world = _Carrier("iad", change=change, priority_from=(ip_network("192.0.2.0/24"),))
    urgent, modest = (b"gtm-priority", b"real-time"), (b"gtm-priority", b"batch")
    for signed, header, counts in (
        (REAL_TIME, (), NEAR),
        (BATCH, (), BATCH),
        (NEAR, (urgent,), NEAR),
        (REAL_TIME, (urgent,), NEAR),
        (NEAR, (modest,), BATCH),
    ):
        token = world.token(MOUNTAIN_VIEW, priority=signed)
        for _ in range(2):
            code, asked, _ = world.asks("192.0.2.9", token, PUSH, *header)
            assert (code, _priority(asked)) == ("", counts)


def test_what_one_client_states_costs_an_edges_others_nothing() -> None:
    """All of an edge's clients come from its address: one whose key and statements differ has none of theirs left unverified."""
    world = _Carrier("iad", keys={sha256(KEY).hexdigest(): "acme"}, change=_with_other)
    edge, late = "192.0.2.9", world.token(MOUNTAIN_VIEW, nonce="late")
    differing = world.token(MOUNTAIN_VIEW, tenant="other")
    for _ in range(200):
        assert world.asks(edge, differing, PUSH, (b"x-api-key", KEY))[0] == "push_not_believed"
    assert world.gate.flaws == {"handoff_mismatch": 200}
    assert world.asks(edge, late, PUSH)[0] == ""
    # A neighbour in its network that forges costs those alone whose handoffs are new.
    for number in range(60):
        world.asks("192.0.2.66", b"%d.b.c" % number)
    assert world.asks(edge, late, PUSH)[0] == ""
    assert world.asks(edge, late, PUSH, (b"gtm-priority", b"batch"))[0] == "", "judged anew, and not verified"
    assert world.asks(edge, world.token(MOUNTAIN_VIEW, nonce="new"), PUSH)[0] == "push_not_believed"


def _with_other(law: Policy) -> Policy:
    return replace(law, tenants=(*law.tenants, Tenant("other")))
