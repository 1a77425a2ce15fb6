"""Edges' corrections by free slots, through the application, against a readable model of docs/spill-back.md in random worlds."""

from __future__ import annotations

import ast
import asyncio
import base64
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from ipaddress import ip_address
from random import Random
from typing import Any
from urllib.parse import urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gtm.core.balance.spill.room import Slots
from gtm.core.decision.choice import pick
from gtm.core.decision.decide import Routing
from gtm.core.decision.options import Option
from gtm.core.decision.view import View
from gtm.core.model.access import Access
from gtm.core.model.outcomes import Outcome, Reason
from gtm.core.model.policy import Policy, SpilloverRule
from gtm.core.model.regions import AdminState, Endpoint, Region, SpillIn
from gtm.core.model.requests import Location, Request
from gtm.core.model.services import Affinity, Handoff, Member, OnUnusable, Steering
from gtm.core.model.state import ClassPlan, HealthStatus, Plan, State
from gtm.core.quota.names import QuotaText
from gtm.feed.wire import AccessMessage, RoomMessage, RoomReport, SnapshotMessage, StateMessage
from gtm.handoff.jwt import made
from gtm.http.app import EdgeOptions
from tests import worlds
from tests.core.balance.spill import model
from tests.core.strategies import quick
from tests.docs.blocks import ROOT
from tests.http.world import NOW, Edge, locate
from tests.sources import parsed

NAMES = ("de", "ie", "fr", "us")
GERMAN, AMERICAN = "81.2.69.142", "198.51.100.7"
FENCE = {"de", "ie"}
"""Where Germans' chats may go; the model's own copy of the rule below."""
STEERED = ("chat", "web", "small")
"""Services that may be corrected. `split`, `order` and `sticky` may not."""
STARTED = 100.0


class Clock:
    """The edge's."""

    now = STARTED

    def __call__(self) -> float:
        return self.now


@dataclass
class Tokens:
    """Tokens of quotas, and what was taken."""

    left: dict[str, int]
    taken: list[tuple[str, ...]] = field(default_factory=list)

    def afford(self, quotas: tuple[QuotaText, ...]) -> bool:
        """One of each, or none."""
        assert len(set(quotas)) == len(quotas)
        if not all(self.left.get(quota, 0) >= 1 for quota in quotas):
            return False
        for quota in quotas:
            self.left[quota] -= 1
        self.taken.append(quotas)
        return True


def regions_of(
    order: Iterable[str], states: Mapping[str, AdminState] = {}, bounded: Iterable[str] = ()
) -> tuple[Region, ...]:
    """Four regions, in any order; `us` and `de` have the small model, `bounded` ones limit what they take in."""
    bounds = set(bounded)
    return tuple(
        worlds.region(
            name,
            Endpoint(f"http://{name}.test", ("192.0.2.1",)),
            models=("llama",) if name in ("us", "de") else (),
            admin_state=states.get(name, AdminState.ACTIVE),
            spill_in=SpillIn(max_requests_per_second=5.0) if name in bounds else SpillIn(),
        )
        for name in order
    )


def policy_of(regions: tuple[Region, ...], rules: tuple[SpilloverRule, ...] = ()) -> Policy:
    """Services of each steering; Germans' chats stay in Germany and Ireland."""
    everywhere = " ".join(NAMES)
    return worlds.policy(
        *regions,
        worlds.service("chat", everywhere),
        worlds.service("web", everywhere, steering=Steering.GEO, exploration=0.2),
        worlds.service("small", everywhere, model="llama"),
        worlds.service("split", everywhere, steering=Steering.WEIGHTED),
        worlds.service("order", everywhere, steering=Steering.FAILOVER),
        worlds.service("sticky", everywhere, affinity=Affinity.CLIENT_NETWORK),
        worlds.rule("gdpr", "DE IE", services="chat", client_countries="DE"),
        *rules,
    )


healthy = partial(worlds.health, since=NOW - 1)


def edge_of(
    policy: Policy,
    state: State,
    clock: Callable[[], float],
    tokens: Tokens | None = None,
    siblings: int = 1,
) -> Edge:
    """An edge that answers from this."""
    edge = Edge(
        EdgeOptions(open_lookups=True),
        boot=clock,
        siblings=siblings,
        afford=None if tokens is None else tokens.afford,
    )
    edge.current.apply(SnapshotMessage.of(7, NOW, policy, ()))
    edge.current.apply(StateMessage(state))
    edge.current.apply(AccessMessage(Access()))
    return edge


def report(free: float, limit: float, waiting: float = 0, age: float = 0.0, **parts: Slots) -> RoomReport:
    """What a balancer said."""
    return RoomReport("x", 1.0, 1, age, Slots(free, limit, waiting), parts)


def say(edge: Edge, senders: int = 1, /, **rooms: RoomReport) -> None:
    """Let regions report."""
    named = {name: (replace(one, source=f"{name}-1"),) for name, one in rooms.items()}
    edge.current.apply(RoomMessage(named, senders))


def redirect(edge: Edge, service: str, client: str) -> tuple[int, str | None, str]:
    """Status, region and reason of a redirect."""
    response = edge.app.answer_head(
        "GET", f"/r/{service}/x".encode(), [(b"host", b"edge.test")], client, "1.1"
    )
    assert response is not None
    headers = dict(response.head.headers)
    if response.head.status == 307:
        region = headers[b"x-gtm-region"].decode()
        assert headers[b"location"] == f"http://{region}.test/x".encode()
        return 307, region, headers[b"x-gtm-reason"].decode()
    return response.head.status, None, json.loads(response.body)["reason"]


def look_up(edge: Edge, service: str, client: str, **more: str) -> dict[str, Any]:
    """The document of a look-up."""
    query = urlencode({"service": service, "client_ip": client, **more})
    response = edge.app.answer_head(
        "GET", f"/v1/route?{query}".encode(), [(b"host", b"edge.test")], "127.0.0.1", "1.1"
    )
    assert response is not None
    found: dict[str, Any] = json.loads(response.body)
    return found


def batch(edge: Edge, items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The documents of a batch."""
    body = json.dumps({"requests": items}).encode()
    sent: list[bytes] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message.get("body", b""))

    headers = [(b"host", b"edge.test"), (b"content-type", b"application/json")]
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/v1/route:batch",
        "raw_path": b"/v1/route:batch",
        "query_string": b"",
        "headers": headers,
        "client": ("127.0.0.1", 1),
        "http_version": "1.1",
    }
    asyncio.run(edge.app(scope, receive, send))
    found: list[dict[str, Any]] = json.loads(b"".join(sent))["results"]
    return found


# --- the model ---


@dataclass
class Known(model.World):
    """The page's world, where a request takes slots of several parts: the least open counts, the whole where none has its own."""

    parts: tuple[str, ...] = ()

    def open(self, region: int, part: str, now: float) -> float | None:
        counting = self.counting(region, now)
        named = [one for one in self.parts if any(one in said.parts for said in counting)]
        found = [super(Known, self).open(region, one, now) for one in named or [part]]
        return min((one for one in found if one is not None), default=None)


def ways_of(view: View, routing: Routing, service: str, client: str) -> list[tuple[int, tuple[str, ...]]]:
    """Where a request may go, nearest first, with the quotas owed, from the policy as it was written."""
    policy, group = view.snapshot.policy, routing.ranking.group
    usable = [
        number
        for number in group.order
        if (region := policy.regions[number]).admin_state is AdminState.ACTIVE
        and view.state.health[region.name][region.endpoints[0].url].status is HealthStatus.UP
        and not (service == "chat" and client == GERMAN and region.name not in FENCE)
        and not (service == "small" and "llama" not in region.models)
    ]
    if service not in STEERED or not usable:
        return []
    home = policy.regions[usable[0]].name
    rules = [rule for rule in policy.spillover_rules if rule.from_region == home]
    found = []
    for number in usable:
        region = policy.regions[number]
        leading = [rule for rule in rules if region.name in rule.to_regions]
        back = any(one.recovered for one in view.state.health[region.name].values())
        if back or (region.name != home and rules and not leading):
            continue
        quotas: tuple[str, ...] = ()
        if region.name != home:
            quotas = tuple(f"share:{rule.name}" for rule in leading if rule.max_share is not None)
            if region.spill_in.max_requests_per_second is not None:
                quotas = (*quotas, f"spill_in:{region.name}")
        found.append((number, quotas))
    if not found or group.service.service.steering is not Steering.GEO or not group.located:
        return found
    first = policy.regions[usable[0]]
    from_home = view.basis.estimator.paths(Location(lat=first.lat, lon=first.lon), range(len(policy.regions)))
    return sorted(found, key=lambda way: 0.0 if way[0] == usable[0] else from_home[way[0]].estimate_ms)


CORRECTABLE = {"lowest_latency", "nearest", "spillover", "exploration", "quota_exhausted", "shed"}


# --- random worlds: from one drawn seed, since worlds of hypothesis's own are mostly alike ---

_FULL = ((0.0, 4.0, 0.0), (1.0, 4.0, 1.0), (2.0, 4.0, 3.0), (0.0, 0.0, 0.0))
_OPEN = ((1.0, 4.0, 0.0), (2.0, 4.0, 0.0), (6.0, 6.0, 1.0), (9.0, 20.0, 0.0))
_PARTS = ((), (), (), ("web",), ("llama",), ("llama", "small"), ("other",))

Reports = dict[str, list[tuple[float, model.Said]]]
"""By region, balancers' reports with their age."""


def some_said(random: Random) -> Reports:
    """Of most regions something, about half of them full."""
    found: Reports = {}
    for name in NAMES:
        for _ in range(random.choice([0, 1, 1, 1, 1, 2])):
            slots = [random.choice(random.choice([_FULL, _OPEN])) for _ in range(3)]
            parts = dict(zip(random.choice(_PARTS), slots, strict=False))
            age = random.choice([0.0, 0.0, 0.1, 0.1, 0.5, 1.9, 2.1])
            said = model.Said(1.0, random.randint(1, 9), 0.0, slots[2], parts)
            found.setdefault(name, []).append((age, said))
    return found


def some_world(random: Random) -> tuple[Policy, Any]:
    """A policy, and health: in most, all is up and active, and no spillover rule leaves homes with few ways."""
    states = {name: random.choice([AdminState.ACTIVE] * 9 + [AdminState.DRAINING]) for name in NAMES}
    bounded = [name for name in NAMES if random.random() < 0.2]
    regions = regions_of(random.sample(NAMES, 4), states, bounded)
    rules = []
    for number in range(random.choice([0, 0, 1, 2, 3])):
        home = random.choice(["de", "us"])
        to = tuple(name for name in random.sample(NAMES, 3) if name != home)
        rules.append(SpilloverRule(f"rule{number}", home, to, max_share=random.choice([None, 0.5, 0.5])))
    down = random.choice([(), (), (), ("de",), ("us",)])
    recovered = random.choice([(), (), ("ie",), ("fr",), ("us",)])
    return policy_of(regions, tuple(rules)), healthy(regions, down, recovered)


def some_plan(random: Random) -> tuple[list[float], float] | None:
    """None, or the regions' weights and what is shed."""
    if random.random() < 0.4:
        return None
    weights = [random.choice([0.0, 0.5, 1.0]) for _ in NAMES]
    return (weights if any(weights) else [1.0] * 4), random.choice([0.0, 0.0, 0.6])


Asked = tuple[str, str, str, float, float]
"""Service, client, how it is asked, the draw, and the seconds that pass before."""


def some_asked(random: Random) -> Asked:
    """One request."""
    return (
        random.choice(["chat", "chat", "web", "web", "small", "small", "split", "order", "sticky"]),
        random.choice([GERMAN, AMERICAN]),
        random.choice(["redirect", "lookup", "explained", "batch"]),
        random.random(),
        random.choice([0.0, 0.0, 0.0, 0.02, 0.3]),
    )


class Checked:
    """An edge, and beside it the page's model of what it knows."""

    def __init__(self, policy: Policy, health: Any, tokens: dict[str, int], siblings: int) -> None:
        self.clock = Clock()
        self.tokens = Tokens(dict(tokens))
        self.edge = edge_of(policy, State(1, health=health), self.clock, self.tokens, siblings)
        self.siblings, self.senders = siblings, 1
        self.spoken: list[tuple[float, model.Said]] | None = None
        self.share = 1.0 / siblings
        self.model = Known({}, [], dict(tokens))
        self.clock.now += 1.0  # so that reports may be older than the edge

    def plan(self, plan: tuple[list[float], float] | None) -> None:
        """Let a plan spread and shed every class."""
        router = self.edge.current.router
        assert router is not None
        if plan is not None:
            weights, shed = plan
            spread = dict(zip(NAMES, [one / sum(weights) for one in weights], strict=True))
            classes = {
                router.routing(
                    Request(service, locate(ip_address(client).packed))
                ).ranking.group.key: ClassPlan(spread, shed)
                for service in STEERED
                for client in (GERMAN, AMERICAN)
            }
            state = replace(self.edge.current.state, epoch=2, plan=Plan(NOW, classes))
            self.edge.current.apply(StateMessage(state))

    def say(self, said: Reports, senders: int) -> None:
        """Let regions report, to both."""
        rooms = {
            name: tuple(
                RoomReport(
                    f"{name}-{place}",
                    one.started,
                    one.number,
                    age,
                    Slots(*one.whole),
                    {part: Slots(*slots) for part, slots in one.parts.items()},
                )
                for place, (age, one) in enumerate(several)
            )
            for name, several in said.items()
        }
        self.edge.current.apply(RoomMessage(rooms, senders))
        self.senders = senders
        self.spoken = [(self.clock.now - age, one) for several in said.values() for age, one in several]
        snapshot = self.edge.current.snapshot
        assert snapshot is not None
        self.model.heard = {
            snapshot.region_numbers[name]: {
                f"{place}": [replace(one, at=self.clock.now - age)]
                for place, (age, one) in enumerate(several)
                if self.clock.now - age >= STARTED
            }
            for name, several in said.items()
        }

    def ask(self, service: str, client: str, how: str, draw: float) -> None:
        """Ask the edge; its answer must be one that the page allows."""
        router = self.edge.current.router
        assert router is not None
        routing = router.routing(Request(service, locate(ip_address(client).packed)))
        if self.spoken is not None:  # it hears them when it is asked next
            free = [one.whole[0] - one.whole[2] for at, one in self.spoken if self.clock.now - at <= 2.0]
            wanting = max(1, self.senders - sum(slots >= 1 for slots in free))
            self.share, self.spoken = 1 / (wanting * self.siblings), None
        plain = Tokens(dict(self.tokens.left))
        drawn = pick(routing.choice, routing.request, draw, plain.afford)
        region, reason = self._answer(service, client, how)
        paid = plain.taken
        self.model.tokens = dict(plain.left)
        endings = self._endings(router.view, routing, service, client, drawn)
        number = None if region is None else router.view.snapshot.region_numbers[region]
        if reason == Reason.FREE_SLOTS:
            assert number is not None
            assert (number, "moved") in endings
            assert number != drawn.number
            ways = dict(ways_of(router.view, routing, service, client))
            owed = tuple(quota for quota in ways[number] if quota not in drawn.quotas)
            assert self.tokens.taken == [*paid, *([owed] if owed else [])]
            self.model.sent.append((number, self.clock.now))
        else:
            assert (region, reason) == (drawn.region, drawn.reason)
            assert any(moved is None for moved, _ in endings), endings
            assert self.tokens.taken == paid
        assert all(left >= 0 for left in self.tokens.left.values())
        self.tokens.taken.clear()
        if service == "chat" and client == GERMAN:
            assert region is None or region in FENCE

    def _endings(
        self, view: View, routing: Routing, service: str, client: str, drawn: Option
    ) -> set[model.Ending]:
        ways = ways_of(view, routing, service, client)
        if drawn.reason.value not in CORRECTABLE or not ways:
            return {(None, "not asked")}
        self.model.parts = (service, *(("llama",) if service == "small" else ()))
        number = None if drawn.outcome is not Outcome.SERVED else drawn.number
        return model.corrections(self.model, number, ways, drawn.quotas, "", self.clock.now, self.share)

    def _answer(self, service: str, client: str, how: str) -> tuple[str | None, str]:
        if how == "redirect":
            return redirect(self.edge, service, client)[1:]
        if how == "batch":
            (found,) = batch(self.edge, [{"service": service, "client_ip": client}])
        else:
            found = look_up(self.edge, service, client, **({"explain": "1"} if how == "explained" else {}))
        return found["region"], found["reason"]


@pytest.mark.endurance
@quick(1500)
@given(st.integers(0, 1 << 40))
def test_every_answer_is_one_that_the_page_allows(seed: int) -> None:
    """0 outside the fence, 0 beyond quotas, unknown is never room, one correction a request; else the plan's answer."""
    random = Random(seed)
    quotas = ["share:rule0", "share:rule1", "share:rule2", *(f"spill_in:{name}" for name in NAMES)]
    tokens = {quota: random.choice([0, 1, 3]) for quota in quotas}
    checked = Checked(*some_world(random), tokens, random.choice([1, 1, 3]))
    checked.plan(some_plan(random))
    for _ in range(3):
        checked.say(some_said(random), random.choice([1, 1, 2, 5]))
        for _ in range(8):
            service, client, how, draw, passes = some_asked(random)
            checked.clock.now += passes
            checked.edge.draw = lambda draw=draw: draw  # type: ignore[misc]
            checked.ask(service, client, how, draw)


@quick(100)
@given(st.integers(0, 1 << 40))
def test_what_is_not_corrected_is_byte_for_byte_the_plan_s(seed: int) -> None:
    """Nothing said; or everywhere room; or nothing known of the region: status, headers and body as if nobody had reported."""
    random = Random(seed)
    world, plan, said = some_world(random), some_plan(random), some_said(random)
    several = [some_asked(random) for _ in range(8)]
    free = {name: [(0.0, model.Said(1.0, 1, 0.0, (9e5, 9e5, 0.0)))] for name in NAMES}
    old = {name: [(5.0, one) for _, one in reports] for name, reports in said.items()}
    edges = [Checked(*world, {}, 1) for _ in range(3)]
    for checked in edges:
        checked.plan(plan)
        checked.edge.draw = lambda: 0.3
    edges[1].say(free, 1)
    edges[2].say(old, 1)
    query = [f"/r/{service}/x".encode() for service, *_ in several]
    query += [f"/v1/route?service={service}&client_ip={client}".encode() for service, client, *_ in several]
    for path in query * 2:
        found = [
            one.edge.app.answer_head("GET", path, [(b"host", b"edge.test")], GERMAN, "1.1") for one in edges
        ]
        shed = found[0] is not None and b'"shed"' in found[0].body
        told = [one and (one.head, one.body) for one in found]
        assert told[2] == told[0]
        if not shed:  # what the plan refuses may go where there is room
            assert told[1] == told[0]


# --- by example ---


def simple(clock: Clock, **changes: Any) -> Edge:
    """Everything up, no plan, no rules."""
    regions = regions_of(NAMES)
    policy = worlds.changed(policy_of(regions), "services", "web", **{"exploration": 0.0, **changes})
    return edge_of(policy, State(1, health=healthy(regions)), clock)


def test_a_full_region_s_requests_go_to_the_next_best() -> None:
    """An American's go to France while Ashburn is full; a German's chat stays inside its fence, full as it is."""
    clock = Clock()
    edge = simple(clock)
    full, free = report(0, 4, 2), report(50, 50)
    say(edge, us=full, de=full, ie=full, fr=free)
    assert redirect(edge, "chat", AMERICAN) == (307, "fr", "free_slots")
    assert redirect(edge, "chat", GERMAN) == (307, "de", "lowest_latency")
    say(edge, us=full, de=full, ie=free, fr=free)
    assert redirect(edge, "chat", AMERICAN) == (307, "fr", "free_slots")
    assert redirect(edge, "chat", GERMAN) == (307, "ie", "free_slots")
    say(edge, us=free, de=free, ie=free, fr=free)
    assert redirect(edge, "chat", AMERICAN) == (307, "us", "lowest_latency")


def test_a_report_is_forgotten_when_it_is_old() -> None:
    """After 2 s nothing is known, though nothing new was heard either."""
    clock = Clock()
    edge = simple(clock)
    say(edge, us=report(0, 4, 2), ie=report(50, 50))
    assert redirect(edge, "web", AMERICAN)[1:] == ("ie", "free_slots")
    clock.now += 1.9
    assert redirect(edge, "web", AMERICAN)[1:] == ("ie", "free_slots")
    clock.now += 0.2
    assert redirect(edge, "web", AMERICAN)[1:] == ("us", "nearest")


def test_by_one_report_a_worker_sends_no_more_than_its_part() -> None:
    """Of 13 open slots, one of 3 senders that want to, with 2 workers each, sends 2; all six send 13, in the mean."""
    moved = []
    for sequence in range(300):
        clock = Clock()
        edge = edge_of(
            policy_of(regions_of(NAMES)), State(1, health=healthy(regions_of(NAMES))), clock, None, 2
        )
        room = replace(report(13, 20, 0), sequence=sequence)
        say(edge, 4, us=report(0, 4), ie=room)  # the one with the room wants none
        several = [redirect(edge, "chat", AMERICAN)[1] for _ in range(5)]
        assert several == sorted(several, key=str)  # what is left over stays, once it does
        moved.append(several.count("ie"))
        if sequence > 20:
            break
    assert set(moved) == {2, 3}
    assert 2.0 < sum(moved) / len(moved) < 2.5


def test_a_look_up_by_free_slots_is_kept_for_min_ttl() -> None:
    """The next moment may say otherwise; the plan's own answer keeps its ttl."""
    edge = simple(Clock(), ttl=60, min_ttl=3)
    assert look_up(edge, "web", AMERICAN)["ttl"] == 60
    say(edge, us=report(0, 4), ie=report(9, 9))
    found = look_up(edge, "web", AMERICAN)
    assert (found["region"], found["reason"], found["ttl"]) == ("ie", "free_slots", 3)
    assert (
        found["reasons"][0]
        == "ie: chosen, it has free slots now, and what the plan chose for this request has none"
    )


def test_an_explanation_says_what_is_known_and_what_came_of_it() -> None:
    """In words and numbers, for each way that it may end."""
    clock = Clock()
    edge = simple(clock)
    assert "free_slots" not in look_up(edge, "web", AMERICAN, explain="1")

    def said(service: str = "web", **rooms: RoomReport) -> tuple[str | None, str | None, str]:
        say(edge, **rooms)
        found = look_up(edge, service, AMERICAN, explain="1")["free_slots"]
        assert {one["region"] for one in found["regions"]} == set(rooms)
        return found["drawn"], found["why"], found["text"]

    full, free = report(1, 4, 2), report(3, 4)
    assert said(us=full, ie=free) == (
        "us",
        "moved",
        "us, which the plan chose, has no slot open; ie has one, and takes the request",
    )
    assert said(us=free) == ("us", "room_here", "us, which the plan chose, has a slot open")
    assert said(ie=free)[1:] == (
        "unknown_here",
        "nothing is known of free slots in us, which the plan chose: the plan's choice stands",
    )
    assert said(us=full, ie=full)[1] == "no_room"
    assert said("split", us=free)[1:] == (
        None,
        "free slots are not asked for: requests that end by `weighted`, of a service with this steering and affinity, stay",
    )
    say(edge, us=free, ie=free)
    push = look_up(edge, "web", AMERICAN, explain="1")["free_slots"]["push"]
    assert (push["how"], push["to"]) == ("carry", ["ie"])
    assert push["text"] == (
        "a request that finds no slot in us is carried to ie by its balancer, if it gains by that and tokens suffice"
    )
    say(edge, us=free, ie=full)
    assert look_up(edge, "web", AMERICAN, explain="1")["free_slots"]["push"]["to"] == []
    say(edge, us=full)
    clock.now += 0.25
    regions = look_up(edge, "web", AMERICAN, explain="1")["free_slots"]["regions"]
    assert regions == [{"region": "us", "open": 0.0, "limit": 4.0, "waiting": 2.0, "age": 0.25}]


def test_what_the_plan_sheds_goes_where_there_is_room() -> None:
    """The second of the plan is over, and there is room now; without room it is refused as the plan says."""
    clock = Clock()
    checked = Checked(policy_of(regions_of(NAMES)), healthy(regions_of(NAMES)), {}, 1)
    checked.plan(([0.0, 0.0, 0.0, 1.0], 1.0))
    edge = checked.edge
    say(edge, us=report(0, 4))
    assert redirect(edge, "chat", AMERICAN) == (503, None, "shed")
    say(edge, us=report(2, 4))
    assert redirect(edge, "chat", AMERICAN) == (307, "us", "free_slots")
    clock.now += 1
    found = look_up(edge, "chat", AMERICAN, explain="1")
    assert (
        found["free_slots"]["text"]
        == "the plan refuses the request for want of capacity; us has one, and takes the request"
    )
    assert redirect(edge, "chat", AMERICAN) == (503, None, "shed")


def test_what_was_corrected_is_counted() -> None:
    """By the region that the plan chose, the one that took the request, and why; as decisions of the latter."""
    edge = simple(Clock())
    say(edge, us=report(0, 4), ie=report(1, 9))
    for _ in range(3):
        redirect(edge, "web", AMERICAN)
    counts = edge.counts.take()
    assert counts["gtm_edge_corrections_total\tus\tie\tmoved"] == 1
    assert counts["gtm_edge_corrections_total\tus\t\tno_room"] == 2
    rows = {key.split("\t")[2]: count for key, count in counts.items() if key.startswith("demand\tweb\t")}
    assert rows == {"ie": 1, "us": 2}


def test_a_worker_whose_regions_change_does_not_know_what_it_sent() -> None:
    """Another policy numbers regions otherwise: reports measured before are unknown, later ones count in full."""
    clock = Clock()
    edge = simple(clock)
    full, room = report(0, 4), report(1, 9)
    say(edge, us=full, ie=room)
    assert redirect(edge, "web", AMERICAN)[1] == "ie"
    clock.now += 1
    snapshot = edge.current.snapshot
    assert snapshot is not None
    policy = replace(snapshot.policy, regions=regions_of(reversed(NAMES)))
    edge.current.apply(SnapshotMessage.of(8, NOW, policy, ()))
    say(edge, us=replace(full, age=0.2), ie=replace(room, age=0.2))
    assert redirect(edge, "web", AMERICAN)[1:] == ("us", "nearest")
    say(edge, us=full, ie=room)
    assert redirect(edge, "web", AMERICAN)[1:] == ("ie", "free_slots")
    assert redirect(edge, "web", AMERICAN)[1:] == ("us", "nearest")


def test_a_state_that_changes_forgets_nothing_that_was_sent() -> None:
    """Plan and health come anew each second: by the same report no more is sent for that."""
    edge = simple(Clock())
    say(edge, us=report(0, 4), ie=report(1, 9))
    assert redirect(edge, "web", AMERICAN)[1] == "ie"
    edge.current.apply(StateMessage(replace(edge.current.state, epoch=9)))
    assert redirect(edge, "web", AMERICAN)[1] == "us"
    say(edge, us=report(0, 4), ie=report(1, 9))
    assert redirect(edge, "web", AMERICAN)[1] == "us"


def test_how_many_send_may_change() -> None:
    """One more or less: what was sent by a report stays sent."""
    clock = Clock()
    edge = simple(clock)
    say(edge, 2, us=report(0, 4), ie=report(2, 9))
    assert redirect(edge, "web", AMERICAN)[1] == "ie"
    clock.now += 0.1
    say(edge, 1, us=report(0, 4, 0, 0.1), ie=report(2, 9, 0, 0.1))
    assert [redirect(edge, "web", AMERICAN)[1] for _ in range(3)] == ["ie", "us", "us"]
    clock.now += 0.1
    say(edge, 1, us=report(0, 4), ie=report(1, 9))
    assert [redirect(edge, "web", AMERICAN)[1] for _ in range(3)] == ["ie", "us", "us"]


def test_a_quota_is_paid_once() -> None:
    """The plan's own spillover has paid for the rule; another region under the same rule owes nothing more."""
    rules = (SpilloverRule("abroad", "de", ("ie", "fr"), max_share=0.1),)
    checked = Checked(policy_of(regions_of(NAMES), rules), healthy(regions_of(NAMES)), {"share:abroad": 1}, 1)
    checked.plan(_TO_IRELAND)
    say(checked.edge, ie=report(0, 4), de=report(0, 4), fr=report(4, 4))
    checked.edge.draw = lambda: 0.1
    assert redirect(checked.edge, "web", GERMAN)[1:] == ("fr", "free_slots")
    assert checked.tokens.taken == [("share:abroad",)]


def test_a_handoff_names_the_region_that_takes_the_request() -> None:
    """Not the one that the plan chose."""
    edge = simple(Clock(), handoff=Handoff.SIGN)
    edge.handoffs.use("edge-1", made(), ())
    say(edge, us=report(0, 4), ie=report(3, 9))
    found = look_up(edge, "web", AMERICAN)
    payload = found["handoff"].split(".")[1]
    claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    assert claims["aud"] == found["region"] == "ie"


UNKNOWN = "203.0.113.9"


def _changed(name: str, **changes: Any) -> Policy:
    return worlds.changed(policy_of(regions_of(NAMES)), "services", name, **changes)


_RULES = (
    SpilloverRule("narrow", "de", ("ie",), max_share=0.1),
    SpilloverRule("wide", "de", ("fr",), max_share=0.1),
)
_TO_IRELAND = ([0.0, 1.0, 0.0, 0.0], 0.0)
_CANARY = tuple(Member(name, share=0.5) if name == "ie" else Member(name) for name in NAMES)


@dataclass(frozen=True)
class Case:
    """A choice of the plan: where it sends a request, and where that goes if all but `free` are full."""

    reason: str
    service: str
    drawn: str
    moved: str | None
    client: str = GERMAN
    free: str = "fr"
    draw: float = 0.5
    policy: Policy = field(default_factory=lambda: policy_of(regions_of(NAMES)))
    plan: tuple[list[float], float] | None = None
    tokens: dict[str, int] = field(default_factory=dict)
    down: tuple[str, ...] = ()
    recovered: tuple[str, ...] = ()


CASES = (
    Case("lowest_latency", "small", "de", "us", free="us"),
    Case("nearest", "web", "de", "fr"),
    Case("exploration", "web", "ie", "fr", draw=0.9),
    Case("spillover", "web", "ie", "fr", draw=0.1, plan=_TO_IRELAND),
    Case(
        "quota_exhausted",
        "web",
        "de",
        "fr",
        draw=0.1,
        policy=policy_of(regions_of(NAMES), _RULES),
        plan=_TO_IRELAND,
        tokens={"share:wide": 1},
    ),
    Case("location_unknown", "small", "de", None, client=UNKNOWN, free="us"),
    Case("weighted", "split", "ie", None, draw=0.3),
    Case("failover_order", "order", "de", None),
    Case("lowest_latency", "sticky", "de", None),
    Case("slow_start", "web", "fr", None, draw=0.7, free="ie", recovered=("de",)),
    Case("canary", "web", "ie", None, draw=0.99, policy=_changed("web", members=_CANARY, exploration=0.0)),
    Case(
        "health_ignored",
        "web",
        "de",
        None,
        policy=_changed("web", on_unusable=OnUnusable.IGNORE_HEALTH),
        down=NAMES,
    ),
)


@pytest.mark.parametrize("case", CASES, ids=[f"{case.reason} of {case.service}" for case in CASES])
def test_which_choices_are_corrected(case: Case) -> None:
    """Those that steering or plan made; not those by weights, an order, a session, a client's share, a ramp, or for want of facts."""
    health = healthy(case.policy.regions, case.down, case.recovered)
    checked = Checked(case.policy, health, case.tokens, 1)
    checked.edge.draw = lambda: case.draw
    checked.plan(case.plan)
    assert redirect(checked.edge, case.service, case.client)[1:] == (case.drawn, case.reason)
    say(checked.edge, **{name: report(0, 4) for name in NAMES} | {case.free: report(4, 4)})
    wanted = (case.drawn, case.reason) if case.moved is None else (case.moved, "free_slots")
    assert redirect(checked.edge, case.service, case.client)[1:] == wanted


@pytest.mark.parametrize(
    ("service", "asked", "parts", "is_full"),
    [
        ("small", {}, {}, False),
        ("small", {}, {"small": 0, "llama": 2}, True),
        ("small", {}, {"small": 2, "llama": 0}, True),
        ("small", {}, {"small": 2, "llama": 2}, False),
        ("chat", {"model": "llama"}, {"llama": 0}, True),
        ("chat", {}, {"llama": 0}, False),
        ("chat", {}, {"chat": 0}, True),
        ("chat", {}, {"web": 0}, False),
    ],
)
def test_a_request_takes_slots_of_its_service_and_models(
    service: str, asked: dict[str, str], parts: dict[str, float], is_full: bool
) -> None:
    """Where both have slots of their own, the least open counts; other services' and models' slots do not."""
    edge = simple(Clock())
    room = report(9, 9, **{name: Slots(free, 2) for name, free in parts.items()})
    say(edge, us=room, de=report(9, 9))
    wanted = "de" if is_full else "us"
    assert look_up(edge, service, AMERICAN, **asked)["region"] == wanted


def test_a_service_whose_models_differ_is_asked_about_each() -> None:
    """One class of requests, two models, of which one region has no slots left for the one."""
    edge = simple(Clock())
    say(edge, us=report(9, 9, llama=Slots(0, 2)), de=report(9, 9))
    for _ in range(2):
        assert look_up(edge, "small", AMERICAN)["region"] == "de"
        assert look_up(edge, "web", AMERICAN)["region"] == "us"
        assert look_up(edge, "web", AMERICAN, model="llama")["region"] == "de"


def test_nobody_but_the_edge_s_http_tier_asks_an_edge_s_corrections() -> None:
    """DNS answers are cached for everyone, and simulations, checks and control's explanations know nothing of free slots."""
    users = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "gtm").rglob("*.py")
        if re.search("corrector|spill|corrections", path.read_text())
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.ImportFrom)
        and node.module
        in ("gtm.core.balance.spill.corrector", "gtm.core.balance.spill.edge", "gtm.http.answers.corrections")
        and not {"Way", "counted_at", "owed", "ways"}.issuperset(one.name for one in node.names)
    }
    assert {user for user in users if not user.startswith("gtm/core/balance/spill/")} == {
        "gtm/http/app.py",
        "gtm/http/answers/corrections.py",
        "gtm/http/answers/routes.py",
        "gtm/runtime/edge/worker/__main__.py",
    }
