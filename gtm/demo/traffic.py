"""Clients from all over the world, on this machine: each asks gtm where to go, and goes there.

Over HTTP a client asks the edge for a redirect (`/r/SERVICE/…`), with its address in X-Forwarded-For; over DNS its
country's caching resolver asks with the client's subnet. Then it really sends its request to the region that it was
given: a chat completion, at the region's balancer, which judges the law by X-Forwarded-For and by the service's name in the Host (a
client that follows a redirect would lose that name: these keep it; what else the Location holds, a handoff say, goes along). The
network in between is loopback: its round trip is estimated from geography, told apart, and not waited for.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from math import inf
from random import Random
from urllib.parse import urlsplit

from gtm.core.latency.geographic import Terminal, model_ms, point_at
from gtm.demo.clients import Demand, DemoClient, countries, pick, rates
from gtm.demo.fetch import FetchError, FetchReply, Pool, once, post
from gtm.demo.resolver import ResolveError, Resolver, edge
from gtm.demo.servers import MODEL, answer_tokens
from gtm.demo.summary import End, Result, Summary
from gtm.geoip.centres import country_centres
from gtm.geoip.reader import Locator
from gtm.nesting import loads

SERVICES = {"chat": 0.7, "web": 0.3}
"""What clients ask for, and how often."""
ZONE = "demo.test"
PATH = "/v1/chat/completions"
PROMPT = "Say something about the sea."
MAX_IN_FLIGHT = 5_000
"""Requests open at once; what would be beyond is counted as not sent."""
_TICK = 0.02
_GOLDEN = (5**0.5 - 1) / 2
_ENDS = {
    421: End.WRONG_REGION,
    429: End.OVER_FAIR_SHARE,
    451: End.REFUSED_RESIDENCY,
    503: End.REGION_FULL,
    504: End.REGION_FULL,
}
"""How a request ended by a region's status; any other than 200: as if the region were gone."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where gtm and the demo's regions are. `regions` maps an address to a region, `terminals` a region to its place."""

    edge: tuple[str, int]
    dns: tuple[str, int]
    port: int
    regions: Mapping[str, str]
    terminals: Mapping[str, Terminal]


@dataclass(frozen=True, slots=True)
class Course:
    """What to send: how much, what share (0–1) of clients over DNS, for how many seconds (None: until stopped)."""

    demand: Demand
    dns_share: float = 0.3
    seconds: float | None = None


class DemoTraffic:
    """One run.

    Args:
        target: whom to ask, and where regions are.
        course: what to send.
        random: draws clients and moments; with the same seed the same clients come at the same moments.
        clock: monotonic seconds.
    """

    def __init__(
        self, target: Target, course: Course, random: Random, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self.summary = Summary()
        self._target = target
        self._course = course
        self._random = random
        self._clock = clock
        self._countries = countries()
        self._longitudes = {code: lon for code, (_, lon) in country_centres().items()}
        self._edge = Pool(*target.edge)
        ask = edge(*target.dns)
        self._resolvers: defaultdict[str, Resolver] = defaultdict(lambda: Resolver(ask))
        self._distance = _distances(target.terminals)
        # Lengths of answers are places in their distribution along a golden-ratio sequence (Kronecker's), so that the mean of some
        # is close to the mean of all: equal regions are to look equal.
        self._place = random.random()
        self._open: set[asyncio.Task[None]] = set()
        self._began = clock()

    @property
    def seconds(self) -> float:
        """Since the start."""
        return self._clock() - self._began

    @property
    def in_flight(self) -> int:
        """Requests that have not ended yet."""
        return len(self._open)

    def line(self) -> str:
        """What goes on, as one line."""
        return self.summary.line(self.seconds, self.in_flight, self._clock())

    async def run(self, stop: asyncio.Event) -> None:
        """Send requests until the course is over or `stop` is set; then wait for the answers, unless `stop` is set."""
        self._began = self._clock()
        end = inf if self._course.seconds is None else self._course.seconds
        due = 0.0
        while not stop.is_set():
            now = self.seconds
            while due <= min(now, end):
                weights = rates(self._course.demand, self._countries, self._longitudes, due)
                self._send(weights)
                due += self._random.expovariate(sum(weights))
            if now >= end:
                break
            await asyncio.sleep(_TICK)
        answers = asyncio.gather(*self._open, return_exceptions=True)
        stopped = asyncio.ensure_future(stop.wait())
        await asyncio.wait((answers, stopped), return_when=asyncio.FIRST_COMPLETED)
        for pending in (*self._open, stopped):
            pending.cancel()
        await asyncio.gather(answers, stopped, return_exceptions=True)
        await self._edge.close()

    def _send(self, weights: list[float]) -> None:
        random = self._random
        client = pick(self._countries, weights, random)
        (service,) = random.choices(list(SERVICES), list(SERVICES.values()))
        over_dns = random.random() < self._course.dns_share
        if len(self._open) >= MAX_IN_FLIGHT:
            self.summary.not_sent += 1
            return
        self._place = (self._place + _GOLDEN) % 1
        asked = _Asked(client, service, completion(answer_tokens(self._place)))
        task = asyncio.create_task(self._request(asked, over_dns=over_dns))
        self._open.add(task)
        task.add_done_callback(self._open.discard)

    async def _request(self, asked: _Asked, *, over_dns: bool) -> None:
        ask = self._over_dns if over_dns else self._over_http
        result = await ask(asked)
        self.summary.add(result, self._clock())

    async def _over_dns(self, asked: _Asked) -> Result:
        began = self._clock()
        client = asked.client
        lost = Result(End.NO_DECISION, "dns", client.country)
        try:
            addresses = await self._resolvers[client.country].resolve(asked.host, client.subnet)
        except ResolveError:
            return lost
        decided = replace(lost, decision_ms=1000 * (self._clock() - began))
        return await self._to_region(asked, addresses[0], PATH, decided)

    async def _over_http(self, asked: _Asked) -> Result:
        began = self._clock()
        lost = Result(End.NO_DECISION, "redirect", asked.client.country)
        host = f"{self._target.edge[0]}:{self._target.edge[1]}"
        try:
            reply = await self._edge.fetch(asked.request(host, f"/r/{asked.service}{PATH}"))
        except FetchError:
            return lost
        decided = replace(
            lost,
            decision_ms=1000 * (self._clock() - began),
            reason=reply.headers.get("x-gtm-reason", ""),
        )
        if reply.status != 307:
            return replace(decided, end=refusal(reply))
        parts = urlsplit(reply.headers.get("location", ""))
        target = f"{parts.path}?{parts.query}" if parts.query else parts.path
        return await self._to_region(asked, parts.hostname or "", target, decided)

    async def _to_region(self, asked: _Asked, address: str, target: str, decided: Result) -> Result:
        region = self._target.regions.get(address, "")
        ended = replace(decided, region=region, end=End.REGION_GONE)
        try:
            reply = await once(address, self._target.port, asked.request(asked.host, target))
        except FetchError:
            return ended
        if reply.status != 200:
            return replace(ended, end=_ENDS.get(reply.status, End.REGION_GONE))
        return replace(
            ended,
            end=End.SERVED,
            first_byte_ms=1000 * reply.first_byte,
            wait_ms=queue_wait(reply),
            network_ms=self._distance(str(asked.client.subnet.network_address), region),
        )


@dataclass(frozen=True, slots=True)
class _Asked:
    """What a client wants of a service."""

    client: DemoClient
    service: str
    body: bytes

    @property
    def host(self) -> str:
        """The service's name."""
        return f"{self.service}.{ZONE}"

    def request(self, host: str, target: str) -> bytes:
        """The request as bytes, from the client as a proxy would say."""
        return post(host, target, {"X-Forwarded-For": str(self.client.address)}, self.body)


def completion(tokens: int) -> bytes:
    """A request for a chat completion of so many tokens, as OpenAI's API has it."""
    messages = [{"role": "user", "content": PROMPT}]
    return json.dumps({"model": MODEL, "messages": messages, "max_tokens": tokens}).encode()


def refusal(reply: FetchReply) -> End:
    """How a request ended that the edge answered with something else than a redirect."""
    try:
        return End(loads(reply.body)["code"])
    except (ValueError, KeyError, TypeError):
        return End.NO_DECISION


def queue_wait(reply: FetchReply) -> float:
    """The time in the queue, in ms, that a region's balancer states (W3C Server Timing); 0 if it states none."""
    for metric in reply.headers.get("server-timing", "").split(","):
        name, _, rest = metric.strip().partition(";")
        key, _, value = rest.strip().partition("=")
        if (name, key) == ("queue", "dur"):
            try:
                return float(value)
            except ValueError:
                return 0.0
    return 0.0


def _distances(terminals: Mapping[str, Terminal]) -> Callable[[str, str], float | None]:
    """The estimated network round trip, in ms, from an address to a region; None where either's place is unknown."""
    locator = Locator()

    @lru_cache(maxsize=65_536)
    def distance(address: str, region: str) -> float | None:
        place, terminal = locator.locate(address), terminals.get(region)
        if place.lat is None or place.lon is None or terminal is None:
            return None
        return model_ms(point_at(place.lat, place.lon), terminal)

    return distance
