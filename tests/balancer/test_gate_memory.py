"""The gate's memory: at any moment a request is judged as a gate judges it that remembers nothing."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256
from ipaddress import ip_network
from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gtm.balancer.decide.gate import HandoffReader, LawGate, Says
from gtm.core.handoff.claims import Claims, client_network, hash_of
from gtm.core.handoff.keys import PublicKey, PublicKeys, key_text
from gtm.core.model.requests import Location, Request
from gtm.core.model.services import Priority
from gtm.core.model.state import State
from gtm.documents.jurisdictions import shipped_jurisdictions
from gtm.feed.current import CurrentView
from gtm.feed.wire import HandoffKeysMessage, SnapshotMessage, StateMessage
from gtm.geoip.client import ClientFinder
from gtm.handoff.jwt import HandoffSigner, made
from tests import worlds
from tests.balancer.test_gate import PROXY, _Asked, _asked
from tests.core.strategies import quick
from tests.system.balancers import BERLIN, HOST, MOUNTAIN_VIEW, policy

NOW = int(2e9)
_POLICY = policy({"fra": 1001, "iad": 1002})
SERVICE = replace(_POLICY.services[0], priority=Priority.NEAR_REAL_TIME)
LAW = replace(_POLICY, services=(SERVICE,))
TENANT = min(one.name for one in LAW.tenants)
LAWS = (
    LAW,
    replace(LAW, services=(replace(SERVICE, members=SERVICE.members[:1]),)),
    replace(LAW, residency_rules=()),
    replace(LAW, services=(replace(SERVICE, priority=Priority.BATCH),)),
)
SIGNERS = {name: made() for name in ("fra-1", "edge-1")}
SAYS = (
    Says(),
    Says(service=SERVICE.name),
    Says(keys={sha256(b"sk-one").hexdigest(): TENANT}, priorities={TENANT: Priority.REAL_TIME}),
    Says(keys={sha256(b"sk-two").hexdigest(): TENANT}, other_tenants=Priority.BATCH),
    Says(priority_from=(ip_network("10.0.0.0/8"),)),
)


class Moment:
    """All that a verdict follows from, and gates that are asked: one that remembers, and others that begin now."""

    def __init__(self, region: str) -> None:
        self.now = float(NOW)
        self.revision = self.keys = self.epoch = 1
        self.places = {BERLIN: "DE", MOUNTAIN_VIEW: "US"}
        self.says = Says()
        self.region = region
        self.current = CurrentView(lambda: self.now, boot=lambda: self.now - NOW + 100.0)
        self.law(LAW)
        self.health(())
        self.gate = self.fresh()

    def fresh(self) -> LawGate:
        """A gate that remembers nothing."""
        finder = ClientFinder((ip_network("10.0.0.0/8"),))
        handoffs = HandoffReader(self.current, self.locate)
        return LawGate(
            self.current, self.region, self.locate, finder, handoffs, says=self.says, draw=lambda: 0.5
        )

    def locate(self, packed: object) -> Location:
        """Where an address is by the data of now."""
        text = ".".join(map(str, packed)) if isinstance(packed, bytes) else str(packed)
        return Location(self.places.get(text))

    def law(self, law: Any) -> None:
        """Another revision is in force."""
        self.revision += 1
        self.current.apply(
            SnapshotMessage.of(self.revision, float(self.revision), law, shipped_jurisdictions())
        )

    def health(self, down: tuple[str, ...]) -> None:
        """These regions are down."""
        self.epoch += 1
        health = worlds.health(LAW.regions, since=1.0, down=down)
        self.current.apply(StateMessage(State(self.epoch, "", health)))

    def publish(self, names: frozenset[str]) -> None:
        """The keys of these issuers are published, and no others."""
        self.keys += 1
        known = tuple(PublicKey(name, key_text(SIGNERS[name].public)) for name in sorted(names))
        self.current.apply(HandoffKeysMessage(PublicKeys(known, self.keys)))

    def says_now(self, says: Says) -> None:
        """The balancer's file says something else."""
        self.says = says
        self.gate.configure(says)

    def moved(self, country: str) -> None:
        """The location data put Berlin into another country."""
        self.places = {**self.places, BERLIN: country}
        self.gate.forget()

    def later(self, seconds: float) -> None:
        """Time goes by."""
        self.now += seconds
        self.current.tick()

    def handoff(self, issuer: str, peer: str, lasts: int, tenant: str | None, *, carried: bool) -> bytes:
        """What an issuer signs now, of a client that it sends on or carries for."""
        router = self.current.router
        assert router is not None
        country = self.places[peer]
        allowed = router.ranker.ranking(Request(SERVICE.name, Location(country), tenant)).within.allowed
        snapshot = router.view.snapshot
        network = client_network(bytes(map(int, peer.split("."))))
        claims = Claims(
            issuer,
            self.region,
            SERVICE.name,
            int(self.now) - 5,
            int(self.now) + lasts,
            "n",
            hash_of(snapshot, allowed),
            snapshot.revision,
            tenant=tenant,
            client=network,
            pushed=network if carried else None,
        )
        return HandoffSigner(SIGNERS[issuer]).sign(claims)


def _found(gate: LawGate, asked: tuple[str | None, list[tuple[bytes, bytes]], bytes]) -> object:
    peer, headers, host = asked
    status, one = _asked(gate, peer, *headers, host=host)
    assert isinstance(one, _Asked)
    verdict = one.verdict
    if verdict is None or verdict.routing is None:
        return status, verdict and verdict.code
    routing = verdict.routing
    request = routing.request
    return (
        status,
        verdict.code,
        verdict.region,
        verdict.flaws,
        verdict.believed,
        (request.service, request.tenant, request.priority, request.location),
        (routing.ranking.group.key, routing.ranking.within.allowed, routing.ranking.group.priority),
        routing.choice.weights,
    )


MORE: tuple[list[tuple[bytes, bytes]], ...] = (
    [],
    [(b"authorization", b"Bearer sk-one")],
    [(b"authorization", b"Bearer sk-two"), (b"gtm-priority", b"real-time")],
    [(b"x-api-key", b"sk-one")],
    [(b"api-key", b"sk-two")],
    [(b"api-key", b"sk-two"), (b"x-api-key", b"sk-one")],
    [(b"gtm-priority", b"real-time")],
    [(b"gtm-priority", b"batch")],
    [(b"x-forwarded-for", MOUNTAIN_VIEW.encode())],
    [(b"x-forwarded-for", BERLIN.encode()), (b"gtm-priority", b"real-time")],
)


@quick(150)
@given(st.sampled_from(("fra", "iad")), st.integers(0, 1 << 30))
def test_whatever_is_read_again_counts_at_once(region: str, seed: int) -> None:
    """Policies, health, keys, the file, location data and time change between requests of a few clients."""
    moment, random, aside = Moment(region), Random(seed), Random(f"{seed} carried")
    tokens: list[bytes] = []
    recent: list[tuple[str | None, list[tuple[bytes, bytes]], bytes]] = []  # most clients come again
    for step in range(600):
        if step % 10 == 0:
            moment.later(
                1.0
            )  # what is not believed has a bound a second, which no gate that begins now knows of
        change = random.randrange(20)
        if change == 0:
            moment.law(random.choice(LAWS))
        elif change == 1:
            moment.health(random.choice(((), ("fra",), ("iad",), ("fra", "iad"))))
        elif change == 2:
            moment.publish(frozenset(random.sample(sorted(SIGNERS), random.randrange(3))))
        elif change == 3:
            moment.says_now(random.choice(SAYS))
        elif change == 4:
            moment.moved(random.choice(("DE", "US", "FR")))
        elif change in (5, 7, 8):
            moment.later(random.choice((1.0, 10.0, 40.0)))
        elif change == 6:
            peer, tenant = random.choice((BERLIN, MOUNTAIN_VIEW)), random.choice((None, TENANT))
            issuer, lasts = random.choice(sorted(SIGNERS)), random.choice((5, 30, 300))
            carried = aside.random() < 0.4
            tokens = [moment.handoff(issuer, peer, lasts, tenant, carried=carried), *tokens[:3]]
            moment.publish(frozenset((issuer,)))
            shown = [(b"gtm-handoff", tokens[0])]
            recent = [(peer, shown, HOST.encode()), *recent[:4]]
            if carried:  # by an edge anywhere, which says so
                edge = aside.choice((BERLIN, MOUNTAIN_VIEW, PROXY, None))
                recent = [(edge, [*shown, (b"gtm-push", b"1")], HOST.encode()), *recent]
        if not recent or random.random() < 0.3:
            headers = list(random.choice(MORE))
            if tokens and random.random() < 0.7:
                headers.append((b"gtm-handoff", random.choice(tokens)))
            host = random.choice((HOST.encode(), HOST.encode(), b"other.example"))
            peer = random.choice((BERLIN, BERLIN, MOUNTAIN_VIEW, PROXY, None))
            # The same client through the proxy, whose word on priorities may count for more.
            told = [*headers, (b"x-forwarded-for", (peer or BERLIN).encode())]
            plain = [one for one in headers if one[0] != b"authorization"]
            key = random.choice(
                ((b"authorization", b"Bearer sk-two"), (b"x-api-key", b"sk-two"), (b"api-key", b"sk-one"))
            )
            shown = [*(one for one in plain if one[0] != key[0]), key]  # and with a tenant's key, or without
            recent = [
                (peer, headers, host),
                (PROXY, told, host),
                (peer, plain, host),
                (peer, shown, host),
                *recent[:3],
            ]
        asked = random.choice(recent)
        for _ in range(2):  # made, and remembered
            assert _found(moment.gate, asked) == _found(moment.fresh(), asked)
