"""Random worlds of edges and balancers that differ in all that they can: policy, clock, health, what clients do."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network
from random import Random
from typing import Any

from gtm.core.decision.decide import routed
from gtm.core.decision.router import Router
from gtm.core.decision.view import Window, view_of
from gtm.core.handoff.claims import Claims, client_network, fence_hash, handed
from gtm.core.handoff.judge import judge
from gtm.core.handoff.verdict import Presented, Reuse, Seen, Verdict
from gtm.core.model.policy import Policy
from gtm.core.model.regions import AdminState
from gtm.core.model.requests import UNKNOWN_LOCATION, Location, Request, location_facts, spanning
from gtm.core.model.state import EndpointHealth, HealthStatus, State
from gtm.core.policy.compile import compile_policy
from tests.core.handoff.model import Case, Map, Page
from tests.core.reference import Reference
from tests.core.strategies import DATA_CLASSES, MODELS, TENANTS
from tests.drills.fence_worlds import DAY, SHIPPED, SPACE, random_atlas, random_policy

REQUESTS = 8
"""In each world."""
_MAPS = 16
"""Worlds that have a map in common: it takes long to read."""


@lru_cache(maxsize=1)
def _map(number: int) -> Map:
    return Map(random_atlas(Random(number)))


def _policy(rng: Random) -> Policy:
    policy = random_policy(rng)
    states = [AdminState.ACTIVE] * 5 + [AdminState.DRAINING, AdminState.DISABLED]
    regions = tuple(
        replace(
            region,
            models=tuple(model for model in MODELS if rng.random() < 0.6),
            admin_state=rng.choice(states),
        )
        for region in policy.regions
    )
    return replace(policy, regions=regions)


def _older(rng: Random, policy: Policy) -> Policy:
    """The policy before: rules that were added since are missing, or all is as now."""
    rules = tuple(rule for rule in policy.residency_rules if rng.random() < 0.7)
    return replace(policy, residency_rules=rules) if rng.random() < 0.5 else policy


def _state(rng: Random, policy: Policy) -> State:
    up, down = HealthStatus.UP, HealthStatus.DOWN
    return State(
        epoch=1,
        health={
            region.name: {item.url: EndpointHealth(rng.choice([up, up, down])) for item in region.endpoints}
            for region in policy.regions
        },
    )


class World:
    """A balancer of each region with one View, edges with perhaps another, and clients that do what they like."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = Random(seed)
        self.aside = Random(f"{seed} carried")
        self.map = _map(seed // _MAPS)
        policy = _policy(rng)
        now = rng.randrange(0, 7) * DAY + rng.choice([-1.5, -1, 0, 0.5, 1, 50])
        self.window = Window(now, now + rng.choice([0, 0, 3, DAY]))
        state = _state(rng, policy)
        self.view = view_of(compile_policy(policy, SHIPPED, revision=7), state, self.window)
        self.router = Router(self.view)
        self.page = Page(Reference(policy, SHIPPED, state, self.window), self.map)
        apart = rng.choice([0, 0, 0, 5, -5, 60, -60, DAY, -DAY])
        self.edge_window = Window(now + apart, now + apart)
        before = _older(rng, policy)
        compiled = compile_policy(before, SHIPPED, revision=rng.choice([6, 7]))
        self.edge_view = view_of(compiled, _state(rng, policy), self.edge_window)
        self.edge_law = Reference(before, SHIPPED, state, self.edge_window)
        self.regions = [region.name for region in policy.regions]
        self.services = [service.name for service in policy.services]
        self.handoffs: list[tuple[IPv4Address | None, Claims]] = []

    def address(self, rng: Random | None = None) -> IPv4Address | None:
        """One of a few clients, so that they meet; or one that nobody knows."""
        rng = rng or self.rng
        if rng.random() < 0.05:
            return None
        block = rng.randrange(4)
        return IPv4Address(int(SPACE.network_address) + (block << 8) + rng.choice([1, 7, 130, 200]))

    def located(self, network: str) -> Location:
        """Where a network is, for the code."""
        if not network:
            return UNKNOWN_LOCATION
        whole = IPv4Network(network)
        parts = self.map.parts(whole)
        facts = {location_facts(part) for part in parts} or None
        return spanning(self.map.at(whole.network_address), network, facts)

    def outlived(self, claims: Claims, request: Request) -> bool:
        """Whether a handoff holds on when the law that it was given under has changed for its request."""
        law, fence = self.edge_law, self.edge_law.fence(request)
        moments = (at.timestamp() for at in law.changes)
        return any(
            law.at(Window(at, at)).fence(request) != fence
            for at in moments
            if self.edge_window.latest < at < claims.expires
        )

    def asked(self) -> tuple[IPv4Address | None, Claims | None]:
        """Somebody asks the edge, perhaps for a network that is not theirs (a forged subnet), and what it hands out."""
        rng, address = self.rng, self.address()
        told = address if rng.random() < 0.8 else self.address()
        location = UNKNOWN_LOCATION if told is None else self.map.at(told)
        model = rng.choice([None, None, *sorted(self.page.models)])
        request = Request(
            rng.choice(self.services),
            location,
            rng.choice([None, *TENANTS]),
            rng.choice([None, *DATA_CLASSES]),
            model,
        )
        routing = routed(self.edge_view, request, b"" if told is None else told.packed)
        option = routing.pick(rng.random())
        once, carried = rng.random() < 0.6, self.aside.random() < 0.2
        nonce = f"n{rng.randrange(10**9)}"
        claims = handed(
            routing, option, "edge", self.edge_window, nonce, once=once and not carried, carried=carried
        )
        if claims is not None:
            longest = 60 if carried else self.edge_view.ttl_of(routing.ranking.group.service)
            assert claims.expires - claims.issued <= longest
            assert not self.outlived(claims, request), claims
        return address, claims

    def pushed(self, claims: Claims, client: IPv4Address | None) -> Claims:
        """What a balancer could say of a request that it carries: whom it saw, what an edge saw, what it found itself."""
        rng = self.rng
        network = client_network(b"" if client is None else client.packed)
        return replace(
            claims,
            hop=1,
            once=True,
            pushed=network,
            client=rng.choice([network, network, claims.client, ""]),
            fence=fence_hash(rng.sample(self.regions, rng.randrange(len(self.regions) + 1))),
        )

    def changed(self, claims: Claims) -> Claims:
        """What another edge could have signed, or one of another version."""
        rng, latest = self.rng, int(self.window.latest)
        early = latest + rng.choice([29, 30, 31, 32, 40])
        changes: list[dict[str, Any]] = [
            {"region": rng.choice(self.regions)},
            {"expires": claims.issued + rng.choice([1, 29, 60, 61, 3600, 3601, 10_000])},
            {"issued": early, "expires": early + 30},
            {"expires": latest + rng.choice([-1, 0, 1, 2])},
            {"tenant": rng.choice([None, "nobody", *TENANTS])},
            {"data_class": rng.choice([None, "nothing", *DATA_CLASSES])},
            {"service": rng.choice(["gone", *self.services])},
            {"model": rng.choice([None, "unheard-of", *MODELS])},
            {"fence": "0" * 16},
        ]
        if claims.pushed is None or claims.hop:  # else it has no form that can be read
            changes += [{"hop": 1}, {"client": ""}]
        return replace(claims, **rng.choice(changes))

    def case(self) -> Case:
        """A request at some balancer: the client that was sent there, another that stole the link, an old one, none."""
        rng = self.rng
        address, claims = self.asked()
        if claims is not None:
            self.handoffs.append((address, claims))
            if rng.random() < 0.35:
                # In the present of the balancer, whatever the clocks.
                at = int(self.window.latest) - rng.choice([0, 1, 10])
                claims = replace(claims, issued=at, expires=at + claims.expires - claims.issued)
        if self.handoffs and rng.random() < 0.3:
            address, claims = rng.choice(self.handoffs)
        if rng.random() < 0.2:
            address = self.address()  # it was stolen
        if claims is not None and claims.pushed is not None:
            address = self.address(self.aside)  # the edge's
        if claims is not None and rng.random() < 0.2:
            claims, address = self.pushed(claims, address), self.address()  # a balancer somewhere carries it
        if claims is not None and rng.random() < 0.3:
            claims = self.changed(claims)
        by_host = rng.random() < 0.5 or claims is None
        here = claims.region if claims is not None and rng.random() < 0.8 else rng.choice(self.regions)
        return Case(
            here=here if rng.random() < 0.97 else "gone",
            address=address,
            service=None
            if not by_host and rng.random() < 0.9
            else (claims.service if claims is not None and rng.random() < 0.9 else rng.choice(self.services)),
            tenant=rng.choice([None, None, None, None, "nobody", *TENANTS]),
            data_class=rng.choice([None, None, None, None, "nothing", *DATA_CLASSES]),
            model=rng.choice([None, None, None, *MODELS]),
            claims=claims,
            used=rng.choice([False, False, False, True, None]),
        )

    def judged(self, case: Case) -> Verdict:
        """What the code makes of it."""
        memory = {False: Reuse.NEW, True: Reuse.USED, None: Reuse.FULL}[case.used]
        packed = b"" if case.address is None else case.address.packed
        location = UNKNOWN_LOCATION if case.address is None else self.map.at(case.address)
        seen = Seen(location, packed, case.service, case.tenant, case.data_class, case.model)
        presented = None
        if case.claims is not None:
            places = self.located(case.claims.client), self.located(case.claims.pushed or "")
            presented = Presented(case.claims, *places)
        return judge(
            self.router,
            case.here,
            self.window,
            seen=seen,
            presented=presented,
            used=lambda _: memory,
            draw=self.rng.random(),
        )
