"""Shares earned: the table of docs/quotas.md against real edges and a real balancer's gate, in random worlds.

The model counts in fractions what the page says that each request earns, and where it is kept.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, cast
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gtm.balancer.decide import gate as gate_module
from gtm.balancer.decide.gate import HandoffReader, LawGate, Says
from gtm.balancer.plane.exchange import Exchange
from gtm.balancer.wire.heads import read_head
from gtm.core.balance.spill.edge import counted_at, owed, ways
from gtm.core.handoff.claims import Issuer
from gtm.core.handoff.keys import PublicKey, PublicKeys, key_text
from gtm.core.model.policy import Policy, SpilloverRule
from gtm.core.model.requests import Request
from gtm.core.model.services import Handoff, HttpAnswer
from gtm.core.model.state import ClassPlan, Plan, State
from gtm.core.policy.edges import EdgePlace
from gtm.core.quota.earned import DEPTH, ShareBucket
from gtm.core.quota.leases import LeaseParts
from gtm.core.quota.names import QuotaText
from gtm.feed.current import CurrentView
from gtm.feed.wire import HandoffKeysMessage, SnapshotMessage, StateMessage
from gtm.geoip.client import ClientFinder
from gtm.handoff.jwt import HandoffSigner, made, parsed
from gtm.http.answers.quotas import QuotaGate
from gtm.http.answers.routes import CarriedRequest
from gtm.http.app import EdgeOptions
from gtm.http.requests.incoming import Incoming
from tests import worlds
from tests.core.strategies import quick
from tests.http.world import NOW, Edge, health, locate, policy

KEY, OTHER = made(), made()
CLIENT, HOME = "198.51.100.7", "us-east"
DIRECT, NAMED = b"us-east-1.test:9000", b"web.demo.test"
"""Hosts: the endpoint's own, and the service's."""
OUT = QuotaText("share:out")
SHARE = 0.375
NOTHING = LeaseParts(0, 0.0, {})


def _policy(handoff: Handoff) -> Policy:
    """Of what is at home in us-east, three in eight may go; of `web`, which edges carry or redirect."""
    rule = SpilloverRule("out", HOME, ("eu-west", "eu-central"), max_share=SHARE)
    carried = worlds.changed(policy(), "services", "web", handoff=handoff, answer=HttpAnswer.CARRY)
    return replace(carried, spillover_rules=(rule,))


@dataclass
class Bucket:
    """The page's: a process saves up to 2 tokens, and starts with none."""

    level: float = 0.0
    earned: float = 0.0
    spent: int = 0

    def earn(self, tokens: float) -> float:
        over = max(0.0, self.level + tokens - 2)
        self.level += tokens - over
        self.earned += tokens - over
        return over


@dataclass
class World:
    """Edges, and the home's balancer; `seen` counts requests as the page does, `budget` is what they earned at the most."""

    away: float
    handoff: Handoff
    edges: list[tuple[Edge, QuotaGate, Bucket]] = field(default_factory=list)
    budget: float = 0.0

    def __post_init__(self) -> None:
        plan = Plan(NOW, {}, {})
        for _ in range(2):
            gate = QuotaGate(NOTHING, lambda: 1.0)
            edge = Edge(EdgeOptions(open_lookups=True), EdgePlace("US"), afford=gate.afford, earn=gate.earn)
            edge.current.apply(SnapshotMessage.of(7, NOW, _policy(self.handoff), ()))
            edge.current.apply(StateMessage(health(("us-east", "eu-west", "eu-central"))))
            edge.sign(KEY)
            self.edges.append((edge, gate, Bucket()))
        router = self.edges[0][0].current.router
        assert router is not None
        self.current = CurrentView(lambda: NOW, boot=lambda: 100.0)
        self.current.apply(SnapshotMessage.of(7, NOW, _policy(self.handoff), ()))
        self.current.apply(StateMessage(health(("us-east", "eu-west", "eu-central"))))
        keys = PublicKeys(
            (
                PublicKey("fra-1", key_text(KEY.public)),
                PublicKey("iad-b", key_text(OTHER.public), Issuer.BALANCER),
            ),
            1,
        )
        self.current.apply(HandoffKeysMessage(keys))
        if self.away:
            self._send_away(plan)
        self.gate = QuotaGate(NOTHING, lambda: 1.0)
        self.bucket = Bucket()
        self.law = LawGate(
            self.current,
            HOME,
            locate,
            ClientFinder(()),
            HandoffReader(self.current, locate),
            says=Says(service="web"),
            earn=self.gate.earn,
        )
        self.looked_up: list[bytes] = []
        self.links: list[bytes] = []

    def _send_away(self, plan: Plan) -> None:
        """A part of all goes to eu-west."""
        router = self.current.router
        assert router is not None
        key = router.routing(Request("web", locate(bytes([198, 51, 100, 7])))).ranking.group.key
        weights = {HOME: 1 - self.away, "eu-west": self.away}
        state = replace(
            health(("us-east", "eu-west", "eu-central")),
            epoch=2,
            plan=replace(plan, classes={key: ClassPlan(weights)}),
        )
        for current in (self.current, *(edge.current for edge, _, _ in self.edges)):
            current.apply(StateMessage(cast("State", state)))

    # --- what happens ---

    def ask(self, number: int, *, once: bool) -> tuple[bytes | None, str]:
        """An edge answers: it earns the share, and spends a token where it sends the request away."""
        edge, _, bucket = self.edges[number]
        self.budget += SHARE
        over = bucket.earn(SHARE)
        if once:
            found = edge.app.answer_head("GET", b"/r/web/x", [(b"host", b"edge.test")], CLIENT, "1.1")
            assert found is not None
            headers = dict(found.head.headers)
            region = headers[b"x-gtm-region"].decode()
            query = urlsplit(headers[b"location"].decode()).query
            token = query.removeprefix("gtm_handoff=").encode() or None
        else:
            path = f"/v1/route?service=web&client_ip={CLIENT}".encode()
            found = edge.app.answer_head("GET", path, [(b"host", b"x")], "127.0.0.1", "1.1")
            assert found is not None
            document = json.loads(found.body)
            region = document["region"]
            said = document.get("handoff")
            token = None if said is None else said.encode()
        self._spilled(bucket, region)
        assert (token is not None) is (self.handoff is Handoff.SIGN)
        if token is not None:
            credit = dict(parsed(token).claims.credit)
            told = over if region == HOME else 0.0
            assert credit.get(OUT, 0.0) == pytest.approx(told, abs=1e-4)
        return token, region

    @staticmethod
    def _spilled(bucket: Bucket, region: str | None) -> None:
        if region != HOME:
            assert bucket.level >= 1 - 1e-9, "spilled without a token"
            bucket.level -= 1
            bucket.spent += 1

    def carry(self, number: int, times: int) -> None:
        """An edge carries requests of one client: each earns the share there, and what it could not save goes to nobody."""
        edge, _, bucket = self.edges[number]
        for _ in range(times):
            incoming = Incoming("GET", b"/r/web/x", (), CLIENT, "1.1")
            incoming.headers = {b"host": b"edge.test"}
            self.budget += SHARE
            bucket.earn(SHARE)
            found, _ = edge.app.carried(incoming)
            assert isinstance(found, CarriedRequest)
            self._spilled(bucket, found.option.region)
            if found.option.region != HOME:
                continue
            way = found.resolved.routing, found.option
            token, new = (
                edge.handoffs.of_carried(*way, found.route.handoffs),
                edge.handoffs.of_carried(*way, {}),
            )
            assert token is not None
            assert new is not None
            assert not parsed(new).claims.credit
            self.arrive(token, DIRECT, (b"gtm-push", b"1"))

    def arrive(self, token: bytes | None, host: bytes, *more: tuple[bytes, bytes]) -> None:
        """A request comes to the home's balancer."""
        headers = [*more] if token is None else [(b"gtm-handoff", token), *more]
        head = read_head(b"GET", b"/x", "1.1", [(b"host", host), *headers], keep_alive=True)

        class _Client:
            peer, secure = CLIENT, False

        class _Asked:
            client, verdict, began = _Client(), None, 0.0

        asked: Any = _Asked()
        asked.head = head
        assert self.law.judge(cast("Exchange", asked), 0.0) is None
        self.check()

    def told(self, worth: float) -> None:
        """The page says that the balancer earns so much."""
        self.budget += worth
        self.bucket.earn(worth)

    def push(self) -> None:
        """A push that owes the quota."""
        may = self.bucket.level >= 1 - 1e-3
        surely = self.bucket.level >= 1 + 1e-3
        did = self.gate.afford((OUT,))
        assert did <= may
        assert did >= surely
        if did:
            self.bucket.level = max(0.0, self.bucket.level - 1)
            self.bucket.spent += 1

    @property
    def left(self) -> float:
        """What the plan leaves of a share."""
        return max(0.0, min(SHARE, (SHARE - self.away) / (1 - self.away)))

    def check(self) -> None:
        """Never more than what was seen earned."""
        spent = self.bucket.spent + sum(bucket.spent for _, _, bucket in self.edges)
        assert spent <= self.budget + 1e-6


def _forged(token: bytes, credit: float, key: Any, **changes: Any) -> bytes:
    claims = replace(
        parsed(token).claims, credit={OUT: credit}, nonce=str(changes.pop("nonce", "x")), **changes
    )
    return HandoffSigner(key).sign(claims)


def _through_an_edge(world: World, random: Random, *, once: bool) -> None:
    token, region = world.ask(random.randrange(2), once=once)
    if region != HOME or random.random() < 0.1:  # or the client goes nowhere
        return
    credit = 0.0 if token is None else parsed(token).claims.credit.get(OUT, 0.0)
    world.budget -= credit  # it was counted at the edge
    world.told(credit)
    world.arrive(token, DIRECT)
    if token is not None:
        (world.links if once else world.looked_up).append(token)


def _without(world: World, random: Random) -> None:
    """By DNS, or by an old link."""
    host = random.choice([NAMED, DIRECT])
    world.told(world.left if host == NAMED or world.handoff is Handoff.SIGN else 0.0)
    world.arrive(None, host)


def _by_a_handoff(world: World, random: Random) -> None:
    """One that came before, that nobody signed, that an edge signed which lies, and a balancer's."""
    if world.looked_up and random.random() < 0.5:
        world.told(world.left)
        world.arrive(random.choice(world.looked_up), DIRECT)
    if not world.links:
        return
    link, nonce = random.choice(world.links), random.random()
    match random.choice(["replayed", "forged", "lying", "sent on"]):
        case "replayed":
            world.arrive(link, random.choice([DIRECT, NAMED]))
        case "forged":
            world.arrive(_forged(link, 1.0, made()), NAMED)
        case "lying":
            world.told(SHARE)
            world.arrive(_forged(link, 1.0, KEY, nonce=nonce), DIRECT)
        case "sent on":
            world.arrive(_forged(link, 1.0, OTHER, nonce=nonce, issuer="iad-b", hop=1), DIRECT)


@given(st.randoms(use_true_random=False), st.sampled_from([0.0, 0.25, 0.375]), st.sampled_from(list(Handoff)))
@quick(60)
def test_each_request_earns_once_and_no_more_than_its_share(
    random: Random, away: float, handoff: Handoff
) -> None:
    """Edges and a balancer in any order: what is spilled is at most the share of the requests seen, and what may be, is."""
    world = World(away, handoff)
    for _ in range(random.randint(5, 60)):
        kind = random.randrange(6)
        if kind == 5:
            world.carry(random.randrange(2), random.randint(1, 4))
        elif kind < 3:
            _through_an_edge(world, random, once=kind < 2)
        elif kind == 3:
            _without(world, random)
        else:
            _by_a_handoff(world, random)
        if random.random() < 0.5:
            world.push()
        world.check()


@pytest.mark.parametrize("handoff", Handoff)
def test_what_an_edge_carries_has_earned_at_the_edge(handoff: Handoff) -> None:
    """And nothing at its home, however many come with the same handoff: nothing can be pushed there for it."""
    world = World(0.0, handoff)
    world.carry(0, 8)
    world.push()
    assert world.bucket.spent == 0


def test_what_choices_leave_is_kept_of_some(monkeypatch: pytest.MonkeyPatch) -> None:
    """A router starts anew when clients of too many kinds came: its choices are others then, and the old ones must go."""
    monkeypatch.setattr(gate_module, "MOST_CHOICES", 4)
    world = World(0.0, Handoff.SIGN)
    router = world.current.router
    assert router is not None
    for number in range(1, 12):
        # As a router and a law do once more clients came than a test can bring.
        router.choices.clear()
        world.law.forget()
        world.arrive(None, NAMED)
        assert len(world.law._left) == (number - 1) % 4 + 1  # noqa: SLF001 - nobody else can tell


@given(st.lists(st.booleans(), max_size=200), st.floats(0.0, 1.0))
@quick(200)
def test_any_stretch_spends_what_it_earned_and_two(events: list[bool], share: float) -> None:
    """Whatever came before: the law of the page, of one process."""
    bucket, earned, spent, balance = ShareBucket(), 0.0, 0, [0.0]
    for ask in events:
        if ask and bucket.ready():
            bucket.spend()
            spent += 1
        elif not ask:
            earned += share - bucket.earn(share)
        balance.append(earned - spent)
    assert min(balance) >= -1e-6
    assert max(balance) - min(balance) <= DEPTH + 1e-6


def test_a_region_of_dns_clients_alone_earns_for_its_pushes() -> None:
    """No edge, no control, no lease: of eight requests three may be pushed."""
    world, pushed = World(0.0, Handoff.NONE), Counter[bool]()
    for _ in range(8):
        world.told(SHARE)
        world.arrive(None, b"web.demo.test")
        pushed[world.gate.afford((OUT,))] += 1
    assert pushed[True] == 3


def test_only_the_home_s_balancer_earns() -> None:
    """A request of another region's own earns nothing here, however it came."""
    world, gate = World(0.0, Handoff.SIGN), QuotaGate(NOTHING, lambda: 1.0)
    world.law = LawGate(
        world.current,
        "eu-west",
        locate,
        ClientFinder(()),
        HandoffReader(world.current, locate),
        says=Says(service="web"),
        earn=gate.earn,
    )
    for _ in range(8):
        world.arrive(None, NAMED)
    assert not gate.afford((OUT,))


def test_a_push_pays_what_the_request_does_not_count_against_yet() -> None:
    """From home all quotas of the way; from a region that the rule leads to none but the peer's own; home is free."""
    world = World(0.0, Handoff.NONE)
    router = world.current.router
    assert router is not None
    view = router.view
    group = router.routing(Request("web", locate(bytes([198, 51, 100, 7])))).ranking.group
    numbers = view.snapshot.region_numbers
    every = ways(view, group, "x")
    found = {
        here: {
            view.snapshot.regions[way.number].name: owed(
                way.quotas, counted_at(view, group, every, numbers[here])
            )
            for way in every
        }
        for here in (HOME, "eu-west")
    }
    assert found[HOME] == {HOME: (), "eu-west": (OUT,), "eu-central": (OUT,)}
    assert found["eu-west"] == {HOME: (), "eu-west": (), "eu-central": ()}
