"""What gtm answers to the questions of the corpus, as bytes, in scenes: one policy under several states of the world."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from gtm.control.errors import ControlError
from gtm.control.policy import simulation
from gtm.control.policy.simulation import Situation
from gtm.core.decision.router import Router
from gtm.core.handoff.verdict import no_higher
from gtm.core.latency.doubt import Doubt, claim_of
from gtm.core.latency.table import LatencyTable
from gtm.core.model.access import Access, Role, TokenGrant
from gtm.core.model.policy import Policy
from gtm.core.model.regions import AdminState
from gtm.core.model.requests import Request
from gtm.core.model.services import PLANNED, Priority
from gtm.core.model.state import NO_PLAN, ClassPlan, EndpointHealth, HealthStatus, Plan, State
from gtm.core.policy.edges import EdgePlace
from gtm.dns.answer.answerer import Answerer
from gtm.documents.folders import load_document
from gtm.documents.jurisdictions import shipped_jurisdictions
from gtm.feed.current import CurrentView
from gtm.feed.wire import AccessMessage, HeartbeatMessage, LatencyMessage, SnapshotMessage, StateMessage
from gtm.geoip.reader import Locator
from gtm.http.app import EdgeApp, EdgeOptions
from gtm.settings import LOOPBACK
from gtm.telemetry import Counts
from tests import worlds

from .questions import SERVICES, TENANTS, TOKENS, Call, Explanation, Packet, Question, questions

HERE = Path(__file__).parent
NOW = 1_800_000_000.0
"""2027-01-15 08:00:00 UTC: 20 s before one rule of the world ends, and 30 s before one begins."""
_ROLES = {"viewer": Role.VIEWER, "admin": Role.ADMIN, "reporter": Role.REPORTER, "old": Role.ADMIN}


_HERE = EdgePlace("DE", "DE")


@dataclass(frozen=True, slots=True)
class Scene:
    """A state of the world.

    `down` and `unknown` tell of an endpoint's place among all; `later` and `silent` are the seconds by which clocks moved
    on and since control was heard.
    """

    name: str
    edge: EdgePlace = _HERE
    down: Callable[[int], bool] = lambda _: False
    unknown: Callable[[int], bool] = lambda _: False
    recovered: bool = False
    draining: tuple[str, ...] = ()
    planned: bool = False
    measured: bool = False
    later: float = 0.0
    silent: float = 0.0
    open_lookups: bool = False


SCENES = (
    Scene("calm", open_lookups=True),
    Scene("measured", measured=True),
    Scene("planned", planned=True, measured=True),
    Scene("broken", down=lambda n: n % 3 == 0, unknown=lambda n: n % 5 == 1, planned=True),
    Scene("recovering", recovered=True, draining=("eu-fra",), open_lookups=True),
    Scene("abroad", edge=EdgePlace("US", "US", "us-iad"), later=60.0),
    Scene("cut-off", silent=700.0, planned=True),
    Scene("dark", down=lambda _: True),
)


class World:
    """One scene, ready to be asked."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.locate = _locator().locate
        self._clock = NOW
        self.policy = _policy(scene)
        self.current = CurrentView(
            lambda: self._clock, edge=scene.edge, boot=lambda: self._clock - NOW + 1000.0
        )
        self.current.apply(SnapshotMessage.of(7, NOW - 3600, self.policy, shipped_jurisdictions()))
        self.current.hear(HeartbeatMessage(NOW))
        if scene.measured:
            self.current.apply(LatencyMessage(_table(self.locate, self.policy)))
        health = _health(scene, self.policy)
        self.current.apply(StateMessage(State(3, "", health)))
        self._clock += max(scene.later, scene.silent)
        if not scene.silent:
            self.current.hear(HeartbeatMessage(self._clock))
        self.current.tick()
        plan = _plan(self.router, self.locate) if scene.planned else NO_PLAN
        self.state = State(4, "", health, plan)
        self.current.apply(StateMessage(self.state))
        grants = [
            TokenGrant(
                sha256(f"gtm_{name}".encode()).hexdigest(), _ROLES[name], NOW - 1 if name == "old" else None
            )
            for name in TOKENS
        ]
        self.current.apply(AccessMessage(Access(tuple(grants))))
        self._answerer = Answerer(self.router, self.locate, Counts(), draw=lambda: 0.5)
        self._affordable = True
        self.draw: Callable[[], float] = random.random
        self._app = EdgeApp(
            self.current,
            self.locate,
            EdgeOptions(open_lookups=scene.open_lookups, trusted_proxies=LOOPBACK),
            Counts(),
            str,
            afford=lambda _quotas: self._affordable,
            clock=lambda: self._clock,
            draw=lambda: self.draw(),  # noqa: PLW0108 - a test gives another later
        )

    @property
    def router(self) -> Router:
        """What decides."""
        assert self.current.router is not None
        return self.current.router

    def answer(self, question: Question) -> bytes:
        """The answer to a question; of HTTP status, headers and body."""
        if isinstance(question, Packet):
            found = self._answerer.answer(
                question.wire, question.client, tcp=question.tcp, draw=question.draw
            )
            return b"dropped" if found is None else found
        if isinstance(question, Call):
            random.seed(question.seed)
            self._affordable = question.seed % 3 != 0
            return asyncio.run(self._call(question))
        return self._explain(question)

    async def _call(self, call: Call) -> bytes:
        sent: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": call.body, "more_body": False}

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        headers = call.headers
        if not any(name == b"host" for name, _ in headers):
            headers = (*headers, (b"host", b"edge.example:8080"))
        scope = {
            "type": "http",
            "method": call.method,
            "path": call.path.decode("latin-1"),
            "raw_path": call.path,
            "query_string": call.query,
            "headers": list(headers),
            "client": (call.peer, 40_000),
        }
        await self._app(scope, receive, send)
        start = sent[0]
        lines = [str(start["status"]).encode(), *(name + b": " + value for name, value in start["headers"])]
        return b"\n".join([*lines, b"", b"".join(item.get("body", b"") for item in sent[1:])])

    def _explain(self, question: Explanation) -> bytes:
        asked = dict(question.request)
        client = asked.pop("client_ip", "192.0.2.77")
        stated = asked.pop("priority", None)
        compiled = self.router.view.snapshot.services.get(asked["service"])
        priority = None if stated is None else no_higher(Priority(stated), compiled)
        request = Request(location=self.locate(client), priority=priority, **asked)
        situation = Situation(self._clock, self.state, table=self.current.table)
        try:
            found = simulation.explanation(situation, self.router.view.snapshot, request, client)
        except ControlError as error:
            return str(error).encode()
        return json.dumps(found).encode()


@cache
def _locator() -> Locator:
    return Locator(overrides=HERE / "overrides.yaml")


def _policy(scene: Scene) -> Policy:
    policy = load_document(HERE / "world.yaml").to_core()
    drained = {"admin_state": AdminState.DRAINING, "draining_since": datetime.fromtimestamp(NOW - 120, UTC)}
    for name in scene.draining:
        policy = worlds.changed(policy, "regions", name, **drained)
    return policy


def _health(scene: Scene, policy: Policy) -> dict[str, dict[str, EndpointHealth]]:
    found: dict[str, dict[str, EndpointHealth]] = {}
    number = 0
    for region in policy.regions:
        for endpoint in region.endpoints:
            if scene.down(number):
                health = EndpointHealth(HealthStatus.DOWN, NOW - 90, "status 503", 12.5)
            elif scene.unknown(number):
                health = EndpointHealth()
            else:
                recovered = scene.recovered and number % 2 == 0
                health = EndpointHealth(HealthStatus.UP, NOW - 7, latency_ms=3.25, recovered=recovered)
            found.setdefault(region.name, {})[endpoint.url] = health
            number += 1
    return found


def _addresses(generator: random.Random, count: int) -> Iterator[str]:
    for _ in range(count):
        yield ".".join(str(generator.randrange(1, 224)) for _ in range(4))


def _table(locate: Callable[[str], Any], policy: Policy) -> LatencyTable:
    """Residuals at every level, and doubts, of networks that the questions are likely to meet."""
    generator = random.Random(11)
    regions = [region.name for region in policy.regions]
    asked = _asked_addresses()

    def row() -> dict[str, tuple[float, float]]:
        return {
            name: (round(generator.uniform(-20, 60), 2), round(generator.uniform(1, 40), 1))
            for name in regions
            if generator.random() < 0.7
        }

    doubts: dict[str, Doubt] = {}
    networks = {}
    for number, address in enumerate(asked):
        location = locate(address)
        claim = claim_of(location)
        if location.network is None or claim is None:
            continue
        if number % 3 == 0:
            networks[location.network] = row()
        if number % 7 == 0:
            doubts[location.network] = Doubt(claim, doubtful=number % 2 == 0, fastest={"us-iad": 2.5})
    countries = {country: row() for country in ("DE", "US", "JP", "BR", "IN", "GB", "CN")}
    places = {f"{lat},{lon}": row() for lat, lon in ((50, 5), (35, -80), (35, 135), (-25, -50))}
    mutual = {
        one: {other: round(generator.uniform(5, 250), 1) for other in regions if other != one}
        for one in regions
    }
    processing = {name: {"": round(generator.uniform(1, 300), 1), "free": 40.0} for name in regions[::2]}
    return LatencyTable(9, mutual, networks, {}, countries, places, processing, doubts)


@cache
def _asked_addresses() -> tuple[str, ...]:
    """Client addresses of some look-ups of the corpus."""
    found = []
    for question in questions(1, 4000):
        if isinstance(question, Explanation) and "client_ip" in question.request:
            found.append(question.request["client_ip"])
        elif isinstance(question, Packet):
            found.append(question.client)
    return tuple(dict.fromkeys(found))[:1200]


def _plan(router: Router, locate: Callable[[str], Any]) -> Plan:
    """A plan that splits, sheds and moves the classes that the questions are likely to meet."""
    generator = random.Random(5)
    planned = {
        name for name, service in router.view.snapshot.services.items() if service.service.steering in PLANNED
    }
    classes: dict[str, ClassPlan] = {}
    for service in SERVICES:
        if service not in planned:
            continue
        for address in _asked_addresses()[:300]:
            for tenant in (None, *TENANTS[:2]):
                ranking = router.ranker.ranking(Request(service, locate(address), tenant))
                key = ranking.group.key
                regions = [name for name in key.split("|")[2].split(">") if name]
                if key in classes or not regions or generator.random() < 0.2:
                    continue
                chosen = regions[: generator.randrange(1, 4)]
                weights = {name: generator.uniform(0.1, 1) for name in chosen}
                total = sum(weights.values())
                shed = generator.choice((0.0, 0.0, 0.1, 0.5))
                classes[key] = ClassPlan(
                    {name: weight / total for name, weight in weights.items()},
                    shed,
                    {"bank": 0.7} if shed and generator.random() < 0.5 else {},
                )
    prices = {"eu-fra": 35.0, "us-iad": 5.0}
    return Plan(NOW - 1, classes, prices, moving={"free": NOW - 2, "gdpr": NOW - 500})


def answered(scene: Scene, seed: int, count: int) -> Iterable[tuple[Question, bytes]]:
    """Questions with their answers."""
    world = World(scene)
    return ((question, world.answer(question)) for question in questions(seed, count))
