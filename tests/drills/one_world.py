"""One world, all ways: `python -m tests.drills.one_world --cases 100000 [--seed N] [--seconds S]`.

Random clients, tenants and data classes ask for services of random policies in six ways: by a look-up, a redirect, an edge that carries, NGINX and Envoy with
the very files of docs/proxies.md in front of an edge, and DNS with the whole address as the client subnet, by host names that state tenant and data
class. All is real: control, two edges (one carries, one redirects), the proxies, and a server a region, which tells what arrived. Places of clients come
from databases and overrides (`tests/drills/fence_worlds.py`).

The readable model (`tests/core/reference.py`) is told the same. An *escape* is a request that arrived where, or through an edge by which, the model does not let it, or an answer that names such a
region. A case *differs* if some way does not end as the model has it, or as the others: the same status and code of a refusal, the same region, or one of those that
`explain` gives a share where there are several, each as often as its share. Meanwhile policies change, in between and under way; control is stopped until a rule with `max_policy_age` refuses;
and the edge behind the proxies is killed, during which nothing may arrive. What is asked while something changes may end by the law of before or of after, but by no other.

Prints what it did and the first of each, and ends with 1 if there was one.

Mutants that it was tried on (ten batches of 250, seed 46; where marked, of 100 by an earlier version):

| mutant | escapes | differ |
|---|---|---|
| the file for NGINX fails open (100) | 1,000 | 538 |
| the file for Envoy fails open (100) | 1,005 | 411 |
| what proxies are answered is remembered without tenant and data class (100) | 116 | 31 |
| a proxy's question loses its data class | 0 | 65 |
| a proxy's question without a data class is of one | 116 | 29 |
| an edge carries wherever it stands | 66 | 33 |
| by DNS an unstated tenant is one (100) | 2 | 2 |
| by DNS the data class that a host name states is lost | 0 | 80 |
| by DNS the client is whoever asks | 206 | 678 |
| `max_policy_age` does not bind | the drill waits for a refusal that never comes | |
| a proxy's question draws nothing: always the first region | 0 | 0: draws 3.5 standard deviations off, of 228; more are needed |

Not in it: plans, quotas and free slots (no region has a capacity), IPv6, regions that are down.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from ipaddress import IPv4Address
from math import inf, sqrt
from pathlib import Path
from random import Random
from typing import NamedTuple

import dns.message
import dns.query
import httpx

from gtm.core.decision.view import Window
from gtm.core.model.policy import EdgeScope, Policy
from gtm.core.model.regions import Endpoint, Probe, Region
from gtm.core.model.requests import Location, Request
from gtm.core.model.services import HostName, HttpAnswer, RecordSet, RefusalAddress, Service, Zone
from gtm.core.model.state import State
from gtm.core.policy.edges import EdgePlace
from gtm.documents.jurisdictions import shipped_jurisdictions
from gtm.documents.schema import concise_policy
from tests import worlds
from tests.adapters.test_balancers import _running
from tests.core.reference import EdgeAnswer, EdgeReference, Reference
from tests.core.strategies import COUNTRIES, DATA_CLASSES, TENANTS
from tests.drills.fence_worlds import SHIPPED, random_atlas, random_clients, random_policy, write_atlas
from tests.drills.one_world_ways import READERS, REFUSAL, WAYS, Asker, Question, Told, Upstream, address, host
from tests.http.proxies import command, on_page, with_ports
from tests.ports import free_port
from tests.system.harness import Process, System, eventually, kill_remains, system
from tests.system.test_edge import edge_token, start_edge
from tests.warden import Warden

REGIONS = tuple(f"r{number}" for number in range(7))
SERVICES = ("s0", "s1")
"""With a proxy of each kind each; some policies have no `s1`."""
CANARY = "fresh"
"""A service by which edges show that they hear control."""
UNKNOWN = "nobody"
"""A tenant of no policy."""
AGE = 10
"""`max_policy_age` of the rules that have one."""
CLIENTS = 60
CONNECTIONS = 8
"""Cases that are asked at once."""
BATCH = 400
"""Cases with one policy, or from one to the next."""
EVENTS = ("in between",) * 3 + ("under way",) * 4 + ("control stopped", "edge killed", "edge killed")
"""What happens in as many batches, in any order."""
_CHANGING = ("not_ready", "no_handoff", "law_changed")
"""Refusals of what an edge would sign, in the last second before the law changes, or is about to send; look-ups and redirects go on."""
_NO_ACCIDENT = 5.0
"""Standard deviations: one in two million."""
DARK = 2.0
"""Seconds without the edge."""


@dataclass
class Span:
    """From when till when something was, by the clock of this machine that never steps."""

    since: float
    until: float = inf

    def overlaps(self, since: float, until: float) -> bool:
        """Whether something else was meanwhile."""
        return self.since <= until and since <= self.until


class Places(NamedTuple):
    """Where the edges stand: the one that carries, behind which the proxies are, and the one that redirects."""

    carries: EdgePlace
    redirects: EdgePlace


class Law(Span):
    """What the model lets a request do for a while: by a policy that is in force, and heard of or not."""

    def __init__(
        self, policy: Policy, places: Places, locations: dict[str, Location], *, stale: bool
    ) -> None:
        super().__init__(time.monotonic())
        state = State(health=worlds.health(policy.regions))
        window = Window(time.time(), time.time(), inf if stale else 0.0)
        self.policy, self.stale = policy, stale
        self.services = {one.name for one in policy.services}
        self.world = Reference(policy, tuple(shipped_jurisdictions()), state, window)
        self._carries, self._redirects = (EdgeReference(self.world, place) for place in places)
        self._locations = locations
        self._known: dict[tuple[Question, bool], tuple[EdgeAnswer, set[str]]] = {}
        self.odds: dict[Question, dict[str, float]] = {}

    def answer(self, question: Question, way: str) -> tuple[EdgeAnswer, set[str]]:
        """How a request ends at the edge that a way leads through, and the regions inside its fence; of what the policy does not know, `unknown`."""
        key = question, way == "redirect"
        if key not in self._known:
            self._known[key] = self._answer(question, self._redirects if key[1] else self._carries)
        return self._known[key]

    def _answer(self, question: Question, edge: EdgeReference) -> tuple[EdgeAnswer, set[str]]:
        if question.tenant == UNKNOWN or question.service not in self.services:
            return EdgeAnswer("unknown"), set()
        located = self._locations[question.client]
        request = Request(question.service, located, question.tenant, question.data_class)
        return edge.answer(request, (located,)), self.world.fence(request, (located,))

    def lets(self, question: Question, way: str, region: str | None) -> bool:
        """Whether a request may be told to go, or arrive, at a region by some way."""
        answer, fence = self.answer(question, way)
        read = way != "carry" or answer.how == "carried"
        return region in fence and answer.how != "421" and read

    def fits(self, question: Question, way: str, told: Told) -> bool:
        """Whether a request ends as it should."""
        answer, _ = self.answer(question, way)
        if answer.how == "unknown":
            return told.how in ("404", "422")
        if answer.regions:
            ended = "redirected" if way == "carry" and answer.how == "redirected" else "goes"
            return told.how == ended and told.region in (self.odds.get(question) or answer.regions)
        if way == "DNS" and answer.how != "421":
            return told.how == "refused"
        return told.how == answer.how


@dataclass
class Drawn:
    """How often one of several regions was drawn, and how often it should have been."""

    count: int = 0
    excess: float = 0.0
    variance: float = 0.0

    def add(self, odds: dict[str, float], region: str | None) -> None:
        """One more draw."""
        first = min(odds)
        self.count += 1
        self.excess += (region == first) - odds[first]
        self.variance += odds[first] * (1 - odds[first])

    @property
    def deviation(self) -> float:
        """How far it is off, in standard deviations."""
        return self.excess / sqrt(self.variance) if self.variance else 0.0


@dataclass
class Result:
    """What came of it."""

    agreed: int = 0
    changing: int = 0
    """Cases during a change, that ended by the law of before or of after."""
    away: int = 0
    """Cases in which the edge was killed."""
    one_choice: int = 0
    """Cases that agreed on a region, and had no other."""
    escapes: int = 0
    differences: int = 0
    arrived: int = 0
    dark: int = 0
    """Requests to proxies, and to be carried, without an edge; all were refused."""
    asked: Counter[str] = field(default_factory=Counter)
    ended: Counter[str] = field(default_factory=Counter)
    events: Counter[str] = field(default_factory=Counter)
    drawn: dict[str, Drawn] = field(default_factory=lambda: {way: Drawn() for way in WAYS})
    seconds: float = 0.0
    first: dict[str, str] = field(default_factory=dict)

    @property
    def cases(self) -> int:
        """Those that an edge answered."""
        return self.agreed + self.changing + self.differences

    @property
    def odd(self) -> list[str]:
        """The ways whose draws are no accident."""
        return [way for way, drawn in self.drawn.items() if abs(drawn.deviation) > _NO_ACCIDENT]

    @property
    def held(self) -> bool:
        """Whether all is as it should be."""
        return not (self.escapes or self.differences or self.odd)

    def __str__(self) -> str:
        def counted(found: Counter[str]) -> str:
            return ", ".join(f"{count:,} {name}" for name, count in found.most_common())

        drawn = ", ".join(f"{way} {one.deviation:+.1f} of {one.count:,}" for way, one in self.drawn.items())
        return "\n".join(
            (
                (
                    f"{self.cases:,} cases in {self.seconds:.0f} s: {self.escapes} escapes, {self.differences} differ; {self.agreed:,} agreed "
                    f"({self.one_choice:,} on a region that had no other), {self.changing:,} while something changed, {self.away:,} while the edge was away (not counted)"
                ),
                f"asked: {counted(self.asked)}; {self.arrived:,} arrived at a region; {self.dark:,} without an edge, refused",
                f"ended: {counted(self.ended)}",
                f"events: {counted(self.events)}",
                f"draws, in standard deviations from the odds: {drawn}",
                *self.first.values(),
            )
        )


class World:
    """All that runs, the laws that were in force, and the questions that were asked.

    Args:
        seed: makes policies, places and questions.
        folder: for all files.
    """

    def __init__(self, seed: int, folder: Path) -> None:
        self.rng = Random(seed)
        """Of what happens, in an order that does not hang on how quickly things are asked."""
        self._asking = Random(f"{seed} asking")
        self.folder = folder
        self.result = Result()
        atlas = random_atlas(self.rng)
        clients = [one.subnet.network_address for one in random_clients(self.rng, atlas, CLIENTS)]
        self.locations = {str(one): atlas.at(IPv4Address(one)) for one in clients}
        self.places = Places(*(EdgePlace(self.rng.choice(COUNTRIES)) for _ in range(2)))
        files = zip(("db", "anonymous-db", "overrides"), write_atlas(atlas, folder), strict=True)
        self.options = [
            *(word for name, path in files if path is not None for word in (f"--geoip-{name}", str(path))),
            *("--trusted-proxies", "127.0.0.0/8", "--probe-allow", "127.0.0.0/8"),
        ]
        self.laws: list[Law] = []
        self.away: list[Span] = []
        self.dark: list[Span] = []
        """When nothing of the edge ran."""
        self.asked: dict[int, tuple[Question, float]] = {}
        self.ports = {name: free_port() for name in (*REGIONS, "carry", "DNS")}
        self.ports["look-up"] = self.ports["carry"]
        self.regions = {address(number): name for number, name in enumerate(REGIONS)}
        self.number = 0
        self.revision = 0

    # What runs.

    @contextmanager
    def running(self) -> Iterator[None]:
        """All of it."""
        with ExitStack() as stack:
            arguments = (*self.options, "--no-carry", "--open-lookups", *_standing(self.places.redirects))
            self.system: System = stack.enter_context(system(self.folder / "data", *arguments))
            self.ports["redirect"] = int(self.system.edge.rpartition(":")[2])
            self.token = edge_token(self.system)
            stack.callback(kill_remains, self.folder / "edge")
            self._apply()
            self._start()
            self._settle()
            for name in ("nginx", "envoy"):
                for service in SERVICES:
                    stack.enter_context(self._proxy(name, service))
            yield

    def _start(self) -> None:
        ports = ("--edge-port", str(self.ports["carry"]), "--dns-bind", f"127.0.0.1:{self.ports['DNS']}")
        arguments = (*self.options, *ports, *_standing(self.places.carries))
        self.edge: Process = start_edge(self.folder / "edge", self.system.control, self.token, *arguments)

    @contextmanager
    def _proxy(self, name: str, service: str) -> Iterator[None]:
        """A proxy with the page's file, for a service, and for as many regions as there are."""
        port, title = free_port(), {"nginx": "NGINX", "envoy": "Envoy"}[name]
        ports = {8081: self.ports["carry"], 10000: port, 10001: port}
        ports |= {9001 + number: self.ports[region] for number, region in enumerate(REGIONS)}
        folder = self.folder / f"{name}-{service}"
        folder.mkdir()

        def filled(heading: str, language: str) -> str:
            text = on_page(heading, language).replace("chat", service).replace("eu-central", REGIONS[0])
            return with_ports(_OF_A_REGION.sub(_of_each, text), ports)

        with _running(command(name, folder, filled), port):
            self.ports[f"{title} {service}"] = port
            yield

    # What happens.

    def _apply(self) -> None:
        """Put another policy in force."""
        self.number += 1
        policy = _policy(self.rng, self.number, self.ports)
        self._judge(policy)
        body = {"policy": concise_policy(policy)}
        applied = self.system.api("POST", "/v1/policy:apply?force=true&force_reason=drill", json=body)
        assert applied.status_code == 200, applied.text
        self.revision = applied.json()["revision"]

    def _judge(self, policy: Policy, *, stale: bool = False) -> None:
        """Another law may be gone by from now on."""
        self.laws.append(Law(policy, self.places, self.locations, stale=stale))

    def _settle(self) -> None:
        """Wait until both edges go by the last law, and it alone."""
        for port in (self.ports["redirect"], self.ports["carry"]):
            eventually(
                partial(self._goes_by, port), f"port {port} goes by the last policy", 120.0, of=[self.edge]
            )
        eventually(self._resolves, "DNS goes by the last policy", 120.0, of=[self.edge])
        for law in self.laws[-2:-1]:
            law.until = min(law.until, time.monotonic())

    def _goes_by(self, port: int) -> bool:
        url, head = f"http://127.0.0.1:{port}", {"x-forwarded-for": "192.0.2.1"}
        get = partial(httpx.get, headers=head, trust_env=False, timeout=10)
        found = get(f"{url}/v1/route?service={CANARY}&explain=1").json()
        health = {point["health"] for one in found.get("candidates", ()) for point in one["endpoints"]}
        served = found.get("outcome") == "served" and health == {"up"}
        signs = get(f"{url}/v1/authorize?service={CANARY}").status_code == (200 if served else 451)
        ready = found.get("revision") == self.revision and signs
        return ready and (found.get("outcome") != "served" if self.laws[-1].stale else served)

    def _resolves(self) -> bool:
        def asked(name: str, kind: str) -> str:
            reply = dns.query.udp(dns.message.make_query(name, kind), "127.0.0.1", 5, self.ports["DNS"])
            return " ".join(item.to_text() for one in reply.answer for item in one)

        refused = asked(f"{CANARY}.one.test", "A") == REFUSAL
        return asked("number.one.test", "TXT") == f'"{self.number}"' and refused == self.laws[-1].stale

    def change(self) -> None:
        """Another policy is in force."""
        self._apply()
        self._settle()

    def stop_control(self) -> None:
        """Control falls silent until rules with an age refuse, and is heard again."""
        (control,) = self.system.processes("gtm.runtime.serve.control")
        for stale in (True, False):
            self._judge(self.laws[-1].policy, stale=stale)
            os.kill(control, signal.SIGSTOP if stale else signal.SIGCONT)
            try:
                self._settle()
                time.sleep(DARK)
            except BaseException:
                os.kill(control, signal.SIGCONT)
                raise

    def kill_edge(self) -> None:
        """The edge behind the proxies dies with all its workers, and is started again after a while, somewhere else."""
        away = Span(time.monotonic())
        self.away.append(away)
        kill_remains(self.folder / "edge")
        self.edge.popen.wait()
        dark = Span(time.monotonic())
        self.dark.append(dark)
        time.sleep(DARK)
        dark.until = time.monotonic()
        self.places = self.places._replace(carries=EdgePlace(self.rng.choice(COUNTRIES)))
        self._judge(self.laws[-1].policy)
        self._start()
        self._settle()
        away.until = time.monotonic()

    # What is asked.

    def _question(self) -> Question:
        rng = self._asking
        tenant = rng.choice((None, *TENANTS)) if rng.random() > 0.02 else UNKNOWN
        service, client = rng.choice(SERVICES), rng.choice(list(self.locations))
        if service not in self.laws[-1].services and rng.random() < 0.9:
            service = SERVICES[0]
        return Question(service, client, tenant, rng.choice((None, *DATA_CLASSES)))

    def _between(self, since: float, until: float) -> list[Law]:
        return [law for law in self.laws[-6:] if law.overlaps(since, until)]

    def arrived(self, region: str, way: str, number: int) -> None:
        """A request has come to a region."""
        question, since = self.asked[number]
        self.result.arrived += 1
        laws = self._between(since, time.monotonic())
        if not any(law.lets(question, way, region) for law in laws):
            self._escape(f"{way} brought it to {region}", question, laws)
        if any(dark.since < since for dark in self.dark[-1:] if dark.until == inf):
            self._escape(f"{way} brought it to {region} without an edge", question, laws)

    async def case(self, asker: Asker) -> None:
        """Ask one thing in all ways, and compare."""
        number, question = len(self.asked) + 1, self._question()
        since = time.monotonic()
        self.asked[number] = question, since
        await self._find_odds(asker, question)
        ways = [way for way in WAYS if way != "DNS" or question.tenant != UNKNOWN]
        self._asking.shuffle(ways)
        told, post = {}, self._asking.random() < 0.2
        for way in ways:
            began = time.monotonic()
            told[way] = await asker.ask(way, question, number, post=post and way in READERS)
            self.result.asked[way] += 1
            self.result.ended[f"{way}: {told[way].how}"] += 1
            if way in READERS and told[way].how == "none":
                self.result.dark += any(one.since < began and one.until == inf for one in self.dark[-1:])
        self._compare(question, told, since, time.monotonic())
        if told["look-up"].how == "none":
            await asyncio.sleep(0.1)  # what nobody answers is asked quickly

    async def _find_odds(self, asker: Asker, question: Question) -> None:
        """What has a share, asked once of each law: as long as it is the only one."""
        since = time.monotonic()
        laws = self._between(since, since)
        if len(laws) == 1 and question not in laws[0].odds and laws[0].answer(question, "look-up")[0].regions:
            odds = await asker.odds(question)
            if odds is not None and self._between(since, time.monotonic()) == laws:
                laws[0].odds[question] = odds

    def _compare(self, question: Question, told: dict[str, Told], since: float, until: float) -> None:
        laws, result = self._between(since, until), self.result
        away = any(span.overlaps(since, until) for span in self.away[-2:])
        for way, one in told.items():
            if one.region is not None and not any(
                law.lets(question, _named(way, one), one.region) for law in laws
            ):
                self._escape(f"{way} told {one}", question, laws)

        def fits(way: str, one: Told) -> bool:
            missing = away and one.region is None and way != "redirect"
            changing = len(laws) > 1 and one.code in _CHANGING
            return missing or changing or any(law.fits(question, way, one) for law in laws)

        wrong = {way: one for way, one in told.items() if not fits(way, one)}
        codes = {(one.how, one.code) for one in told.values() if one.code}
        if wrong or (len(laws) == 1 and not away and len(codes) > len({how for how, _ in codes})):
            result.differences += 1
            self._note("difference", f"{wrong or codes}; all: {told}", question, laws)
        elif away:
            result.away += 1
        elif len(laws) > 1:
            result.changing += 1
        else:
            result.agreed += 1
            odds = laws[0].odds.get(question, {})
            result.one_choice += len(odds) == 1
            for way, one in told.items() if len(odds) > 1 else ():
                result.drawn[way].add(odds, one.region)

    def _escape(self, what: str, question: Question, laws: list[Law]) -> None:
        self.result.escapes += 1
        self._note("escape", what, question, laws)

    def _note(self, kind: str, what: str, question: Question, laws: list[Law]) -> None:
        """Keep the first story of a kind, readable."""
        if kind in self.result.first:
            return
        text = f"first {kind}: {what}\n  {question} in {self.locations[question.client]}, {self.places}"
        for law in laws:
            rules = "\n".join(f"    {rule}" for rule in law.policy.residency_rules)
            countries = ", ".join(
                f"{one.name} {one.country}/{one.operator_country}" for one in law.policy.regions
            )
            text += f"\n  model: {law.answer(question, WAYS[0])}, stale: {law.stale}, odds {law.odds.get(question)}\n{rules}\n  {countries}"
        self.result.first[kind] = text

    async def play(self, cases: int, batch: int, seconds: float = inf) -> None:
        """Ask at least as many things, in batches, while things happen."""
        loop = asyncio.get_running_loop()
        for region in REGIONS:
            server = partial(Upstream, region, self.arrived)
            await loop.create_server(server, "0.0.0.0", self.ports[region])
        happens: dict[str, Callable[[], None]] = {
            "in between": self.change,
            "under way": self.change,
            "control stopped": self.stop_control,
            "edge killed": self.kill_edge,
        }
        with ExitStack() as stack:
            await asyncio.to_thread(stack.enter_context, self.running())
            began, todo = time.monotonic(), list[str]()
            for _ in range(-(-cases // batch)):
                if time.monotonic() - began > seconds:
                    break
                todo = todo or self.rng.sample(EVENTS, len(EVENTS))
                event = todo.pop()
                self.result.events[event] += 1
                if event == "in between":
                    await asyncio.to_thread(self.change)
                under_way = event != "in between"
                await self._batch(batch, happens[event] if under_way else None)
            self.result.seconds = time.monotonic() - began

    async def _batch(self, cases: int, event: Callable[[], None] | None) -> None:
        """Cases, and something that happens once a part of them is asked: they go on until it is over."""
        end = self.result.cases + cases
        begins = self.result.cases + self.rng.randrange(1 + cases // 2)
        task = None if event else asyncio.ensure_future(asyncio.sleep(0))

        async def ask() -> None:
            nonlocal task
            asker = Asker(self.ports, self.regions)
            while self.result.cases < end or task is None or not task.done():
                if task is None and self.result.cases >= begins:
                    assert event is not None
                    task = asyncio.ensure_future(asyncio.to_thread(event))
                await self.case(asker)
            await asker.close()

        await asyncio.gather(*(ask() for _ in range(CONNECTIONS)))
        assert task is not None
        await task


def _named(way: str, told: Told) -> str:
    """The way by which an answer leads somewhere: what was to be carried, and is redirected, only tells of it."""
    return "look-up" if told.how == "redirected" else way


_OF_A_REGION = re.compile(
    r"^.*- (?:\{match.*us-east|name: us-east).*\n(?:.*(?:us-east|STATIC).*\n)*", re.MULTILINE
)
"""What the page's file for Envoy says of its second region: a route, and a cluster."""


def _of_each(block: re.Match[str]) -> str:
    """The same of all regions but the first."""
    return "".join(
        block[0].replace("us-east", region).replace("9002", str(9001 + number))
        for number, region in enumerate(REGIONS)
        if number
    )


def _standing(place: EdgePlace) -> tuple[str, ...]:
    """An edge's options of where it stands."""
    return "--country", str(place.country)


def _policy(rng: Random, number: int, ports: dict[str, int]) -> Policy:
    """A random policy of these regions, whose services are carried and have host names, beside the canary's."""
    drawn = random_policy(rng)
    known = {one.name: one for one in drawn.regions}
    regions = tuple(
        replace(
            known.get(name) or Region(name, 0.0, 0.0, "DE", ()),
            endpoints=(Endpoint(f"http://127.0.0.1:{ports[name]}", (address(place),)),),
            probe=Probe(interval=5.0, timeout=5.0, up_threshold=1, down_threshold=5),
            slow_start=0.0,
        )
        for place, name in enumerate(REGIONS)
    )
    services = tuple(replace(_named_in_dns(one), answer=HttpAnswer.CARRY) for one in drawn.services)
    names = tuple(one.name for one in services)
    rules = tuple(
        replace(
            one,
            match=replace(
                one.match,
                services=one.match.services or names,  # but the canary's
                data_classes=one.match.data_classes or rng.choice(((), *((name,) for name in DATA_CLASSES))),
            ),
            edges=rng.choice(_SCOPES),
            max_policy_age=one.max_policy_age and AGE,
        )
        for one in drawn.residency_rules
    )
    canary = worlds.service(CANARY, " ".join(REGIONS), hostnames=(f"{CANARY}.one.test",), refusal=_REFUSAL)
    records = (RecordSet("number", "TXT", (f'"{number}"',)),)
    shipped = {one.name for one in shipped_jurisdictions()}
    own = (replace(one, members=one.members or ("AQ",)) for one in SHIPPED if one.name not in shipped)
    return replace(
        drawn,
        regions=regions,
        zones=(Zone("one.test", "ns.one.test", "hostmaster.one.test", records=records),),
        services=(*services, replace(canary, zone="one.test")),
        residency_rules=(*rules, worlds.rule(CANARY, " ".join(REGIONS), services=CANARY, max_policy_age=AGE)),
        jurisdictions=(*drawn.jurisdictions, *own),
    )


_REFUSAL = RefusalAddress((REFUSAL,))
_SCOPES = tuple(EdgeScope)


def _named_in_dns(service: Service) -> Service:
    """The same with a host name for each tenant and data class, stated or not."""
    hosts = tuple(
        HostName(host(service.name, tenant, data_class), tenant, data_class)
        for tenant in (None, *TENANTS)
        for data_class in (None, *DATA_CLASSES)
    )
    return replace(service, hostnames=hosts, zone="one.test", refusal=_REFUSAL)


def run(folder: Path, cases: int, seed: int, batch: int = BATCH, seconds: float = inf) -> Result:
    """Ask at least as many things of a world, in batches of so many; fewer, if that takes longer.

    Args:
        folder: for all files, empty.
        cases: how many.
        seed: makes the world.
        batch: how many from one event to the next.
        seconds: the batch in which they are over is the last.
    """
    world = World(seed, folder)
    asyncio.run(world.play(cases, batch, seconds))
    return world.result


def main() -> int:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cases", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--seconds", type=float, default=inf, help="end after the batch in which they are over"
    )
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gtm-one-world-") as name:
        folder = Path(name)
        folder.chmod(0o755)  # an embedded Postgres that root starts runs as another user
        Warden(folder)
        result = run(folder, arguments.cases, arguments.seed, seconds=arguments.seconds)
    print(result)
    return 0 if result.held else 1


if __name__ == "__main__":
    sys.exit(main())
