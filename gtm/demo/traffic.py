"""Clients from all over the world, on this machine: each asks gtm where to go, and goes there.

Over HTTP a client asks the edge for a redirect (`/r/SERVICE/…`), with its address in X-Forwarded-For; over DNS its
country's caching resolver asks with the client's subnet. Then it really sends its request to the region that it was
given. The network in between is loopback: its round trip is estimated from geography, told apart, and not waited for.

Redirects lose the service's host name, so the request states its service in the query; behind DNS it is in the Host.
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
from gtm.demo.clients import Client, countries, pick
from gtm.demo.fetch import FetchError, Pool, Reply, get, once
from gtm.demo.profiles import Demand, rates
from gtm.demo.resolver import ResolveError, Resolver, edge
from gtm.demo.summary import End, Result, Summary
from gtm.geoip.centres import country_centres
from gtm.geoip.reader import Locator

SERVICES = {"chat": 0.7, "web": 0.3}
"""What clients ask for, and how often."""
ZONE = "demo.test"
PATH = "/v1/generate"
MAX_IN_FLIGHT = 5_000
"""Requests open at once; what would be beyond is counted as not sent."""
_TICK = 0.02


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


class Traffic:
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
        task = asyncio.create_task(self._request(client, service, over_dns=over_dns))
        self._open.add(task)
        task.add_done_callback(self._open.discard)

    async def _request(self, client: Client, service: str, *, over_dns: bool) -> None:
        ask = self._over_dns if over_dns else self._over_http
        result = await ask(client, service)
        self.summary.add(result, self._clock())

    async def _over_dns(self, client: Client, service: str) -> Result:
        began = self._clock()
        lost = Result(End.NO_DECISION, "dns", client.country)
        name = f"{service}.{ZONE}"
        try:
            addresses = await self._resolvers[client.country].resolve(name, client.subnet)
        except ResolveError:
            return lost
        decided = replace(lost, decision_ms=1000 * (self._clock() - began))
        request = get(name, f"{PATH}?service={service}", {})
        return await self._to_region(client, addresses[0], request, decided)

    async def _over_http(self, client: Client, service: str) -> Result:
        began = self._clock()
        lost = Result(End.NO_DECISION, "redirect", client.country)
        target = f"/r/{service}{PATH}?service={service}"
        host = f"{self._target.edge[0]}:{self._target.edge[1]}"
        try:
            reply = await self._edge.fetch(get(host, target, {"X-Forwarded-For": str(client.address)}))
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
        request = get(parts.netloc, f"{parts.path}?{parts.query}", {})
        return await self._to_region(client, parts.hostname or "", request, decided)

    async def _to_region(self, client: Client, address: str, request: bytes, decided: Result) -> Result:
        region = self._target.regions.get(address, "")
        gone = replace(decided, region=region, end=End.REGION_GONE)
        try:
            reply = await once(address, self._target.port, request)
        except FetchError:
            return gone
        if reply.status == 451:
            return replace(decided, end=End.REFUSED_RESIDENCY)
        if reply.status != 200:
            return replace(gone, end=End.REGION_FULL if reply.status == 503 else End.REGION_GONE)
        return replace(
            gone,
            end=End.SERVED,
            first_byte_ms=1000 * reply.first_byte,
            wait_ms=_wait(reply.body),
            network_ms=self._distance(str(client.subnet.network_address), region),
        )


def refusal(reply: Reply) -> End:
    """How a request ended that the edge answered with something else than a redirect."""
    try:
        return End(json.loads(reply.body)["code"])
    except (ValueError, KeyError, TypeError):
        return End.NO_DECISION


def _wait(body: bytes) -> float:
    """The time in the queue that a region states."""
    try:
        return float(json.loads(body)["queue_wait_ms"])
    except (ValueError, KeyError, TypeError):
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
