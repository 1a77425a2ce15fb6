"""Round trips that browsers and balancers measured: what they post, and where it goes.

Laws:
  1. A body is understood completely or rejected. A sample that is understood but not believed is counted in the
     answer, and changes nothing.
  2. No client's address is kept: a sample goes into sums of networks, operators, countries and places, and what is
     remembered of its source is its /24 or /48, for an hour.
  3. Look-ups and redirects share nothing with this but the thread.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gtm.core.latency.doubt import Doubt
from gtm.core.latency.samples import (
    Interval,
    RoundTripSample,
    SampleAggregator,
    SampleMethod,
    SampleVerdict,
    SourceBudget,
)
from gtm.core.model.access import matches
from gtm.core.model.requests import UNKNOWN_LOCATION, Location
from gtm.core.policy.snapshot import Snapshot
from gtm.geoip.address import Address, parse_address
from gtm.http.answers.routes import Routes
from gtm.http.problems import Headers, ProblemError, Response, json_response
from gtm.http.requests.callers import Callers, Reporter
from gtm.http.requests.incoming import Incoming, Page, Receive, Send
from gtm.http.requests.lookup import Lookup, items_of
from gtm.http.samples import beacons
from gtm.telemetry import Counts

MAX_BEACON_BYTES = 16 * 1024
MAX_BEACON_SAMPLES = 64
MAX_SAMPLES_BYTES = 1024 * 1024
MAX_SAMPLES = 5000
MAX_PAIRS = 5000
"""Pairs of source and region that a worker remembers within an interval."""

_BURST = 100
"""Samples taken in one go, before other requests get their turn."""
_MAX_NAME = 256
_ANYBODY = Reporter("")
"""Browsers, which have no token."""


@dataclass(frozen=True, slots=True)
class Posted:
    """One sample as posted. `client` is None in a beacon, whose client is the caller."""

    client: Address | None
    region: str
    rtt_ms: float


@dataclass(eq=False, repr=False)
class Intake:
    """Where one worker's samples gather.

    Args:
        snapshot: the policy in force, None before the first.
        locate: where an address is.
        clock: POSIX seconds.
        doubts: the networks whose locations are disputed.
    """

    snapshot: Callable[[], Snapshot | None]
    locate: Callable[[bytes], Location]
    clock: Callable[[], float]
    doubts: Callable[[], Mapping[str, Doubt]] = dict

    def __post_init__(self) -> None:
        self._budget = SourceBudget()
        self._changing = threading.Lock()
        self._known: Snapshot | None = None
        self._open = {method: SampleAggregator(()) for method in (SampleMethod.BEACON, SampleMethod.BALANCER)}
        self._ended: dict[SampleMethod, list[SampleAggregator]] = {method: [] for method in self._open}

    async def take_in(
        self,
        samples: Iterable[Posted],
        caller: Address | None,
        method: SampleMethod,
        reporter: Reporter = _ANYBODY,
    ) -> Counter[SampleVerdict]:
        """Take samples in, and count what became of them.

        Args:
            samples: what was posted.
            caller: the client of samples that name none.
            method: who measured.
            reporter: of a balancer's samples, the token that they came with.
        """
        self._follow()
        verdicts: Counter[SampleVerdict] = Counter()
        for number, sample in enumerate(samples):
            if number % _BURST == _BURST - 1:
                await asyncio.sleep(0)
            client = caller if sample.client is None else sample.client
            verdicts[self._add(sample, client, method, reporter)] += 1
        return verdicts

    def end_interval(self, method: SampleMethod) -> Interval:
        """What those who measure that way have said since the last call (from any thread)."""
        fresh = self._fresh()
        with self._changing:
            ended, self._ended[method] = [*self._ended[method], self._open[method]], []
            self._open[method] = fresh
        parts = [aggregator.take() for aggregator in ended]
        return Interval(
            [delta for part in parts for delta in part.deltas],
            [witness for part in parts for witness in part.witnesses],
        )

    def _add(
        self, posted: Posted, client: Address | None, method: SampleMethod, reporter: Reporter
    ) -> SampleVerdict:
        location = UNKNOWN_LOCATION if client is None else self.locate(client.packed)
        now = self.clock()
        source = "" if client is None else source_of(client)
        sample = RoundTripSample(location, posted.region, posted.rtt_ms, now, source, method, reporter.name)
        if self._known is None or posted.region not in self._known.region_numbers:
            return SampleVerdict.UNKNOWN_REGION  # before a made-up name takes a place in the budget
        if reporter.regions is not None and not matches(reporter.regions, posted.region):
            return SampleVerdict.OTHER_REGION
        if method is SampleMethod.BEACON and not self._budget.spend(source, posted.region, now):
            return SampleVerdict.CAPPED
        with self._changing:
            return self._open[method].add(sample)

    def _follow(self) -> None:
        """Measure against the regions of the policy in force: what they are called, and where."""
        if self.snapshot() is self._known:
            return
        fresh = {method: self._fresh() for method in self._open}
        with self._changing:
            for method, aggregator in self._open.items():
                self._ended[method].append(aggregator)
            self._open = fresh

    def _fresh(self) -> SampleAggregator:
        self._known = self.snapshot()
        regions = () if self._known is None else self._known.regions
        return SampleAggregator(regions, doubts=self.doubts(), limit=MAX_PAIRS)


def source_of(client: Address) -> str:
    """A client's name for the caps: its /24 or /48, of which one person has few."""
    return client.packed[: 3 if client.version == 4 else 6].hex()


def parse_beacon(body: bytes) -> list[Posted]:
    """The samples of a beacon.

    Raises:
        ProblemError: the body is not `{"samples": [{"region": …, "rtt_ms": …}, …]}`, or holds too many.
    """
    return [
        Posted(None, *_measured(item, f"samples[{number}]", ("region", "rtt_ms")))
        for number, item in enumerate(items_of(body, "samples", MAX_BEACON_SAMPLES))
    ]


def parse_samples(body: bytes) -> list[Posted]:
    """The samples of a balancer.

    Raises:
        ProblemError: the body is not `{"samples": [{"client": …, "region": …, "rtt_ms": …}, …]}`, or holds too many.
    """
    found = []
    for number, item in enumerate(items_of(body, "samples", MAX_SAMPLES)):
        path = f"samples[{number}]"
        region, rtt_ms = _measured(item, path, ("client", "region", "rtt_ms"))
        client = item["client"]
        try:
            address = parse_address(client) if isinstance(client, str) else None
        except ValueError:
            address = None
        if address is None:
            raise ProblemError("invalid_request", f"`{path}.client` is not an ipv4 or ipv6 address")
        found.append(Posted(address, region, rtt_ms))
    return found


def _measured(item: Any, path: str, fields: tuple[str, ...]) -> tuple[str, float]:
    """The region and the round trip of a sample that has exactly these fields."""
    if not isinstance(item, dict) or set(item) != set(fields):
        names = ", ".join(f"`{name}`" for name in fields)
        raise ProblemError("invalid_request", f"`{path}` must be a json object of {names}")
    region, rtt_ms = item["region"], item["rtt_ms"]
    if not isinstance(region, str) or not 0 < len(region) <= _MAX_NAME:
        raise ProblemError("invalid_request", f"`{path}.region` must be the name of a region")
    if isinstance(rtt_ms, bool) or not isinstance(rtt_ms, int | float):
        raise ProblemError("invalid_request", f"`{path}.rtt_ms` must be a number of milliseconds")
    try:
        return region, float(rtt_ms)
    except OverflowError as error:
        raise ProblemError("invalid_request", f"`{path}.rtt_ms` is no round trip") from error


class SamplePages:
    """The pages by which round trips come in.

    Args:
        intake: where they gather now.
        callers: tells those who call apart.
        counts: where verdicts are counted.
    """

    def __init__(self, intake: Callable[[], Intake], callers: Callers, counts: Counts) -> None:
        self._intake = intake
        self._callers = callers
        self._counts = counts

    def pages(self, *, open_to_all: bool) -> dict[str, Page]:
        """By path: what reporters call, and what browsers do where it is open to all.

        Browsers call from pages of any origin: these read the errors too.
        """
        reporters = {
            "/v1/latency-samples": Page("latency_samples", take=self._take_samples, methods=("POST",)),
        }
        if not open_to_all:
            return reporters
        return reporters | {
            "/v1/beacon.js": Page("beacon_script", lambda _incoming, _routes: beacons.SCRIPT),
            "/v1/beacon-targets": Page("beacon_targets", self._targets, error_headers=beacons.OPEN),
            "/v1/beacons": Page(
                "beacons",
                take=self._take_beacons,
                methods=("POST", "OPTIONS"),
                preflight=beacons.PREFLIGHT,
                error_headers=beacons.OPEN,
            ),
        }

    def _targets(self, incoming: Incoming, routes: Routes) -> Response:
        service = beacons.parse_service(incoming.query)
        caller = self._callers.client(incoming.peer, self._callers.forwarded(incoming))
        return beacons.targets(routes.resolve(Lookup(service), caller, "/v1/beacon-targets"))

    async def _take_beacons(self, incoming: Incoming, receive: Receive, _: Send) -> Response | None:
        """Take round trips in that browsers measured, from everybody. None if the client went away."""
        # `navigator.sendBeacon` sends text as text/plain, which takes no preflight.
        incoming.require_json("text/plain")
        body = await incoming.body(receive, MAX_BEACON_BYTES)
        if body is None:
            return None
        caller = self._callers.address(incoming.peer, self._callers.forwarded(incoming))
        return await self._learn(
            parse_beacon(body), caller, SampleMethod.BEACON, _ANYBODY, headers=beacons.OPEN
        )

    async def _take_samples(self, incoming: Incoming, receive: Receive, _: Send) -> Response | None:
        """Take round trips in that balancers measured, with a reporter's token. None if the client went away."""
        reporter = self._callers.reporter(incoming)
        incoming.require_json()
        body = await incoming.body(receive, MAX_SAMPLES_BYTES)
        if body is None:
            return None
        return await self._learn(parse_samples(body), None, SampleMethod.BALANCER, reporter, headers=())

    async def _learn(
        self,
        samples: Sequence[Posted],
        caller: Address | None,
        method: SampleMethod,
        reporter: Reporter,
        *,
        headers: Headers,
    ) -> Response:
        """Let round trips count, and say how many did."""
        verdicts = await self._intake().take_in(samples, caller, method, reporter)
        for verdict, count in verdicts.items():
            self._counts.add(f"gtm_latency_samples_total\t{method}\t{verdict}", count)
        accepted = verdicts.pop(SampleVerdict.ACCEPTED, 0)
        document = {"accepted": accepted, "refused": dict(sorted(verdicts.items()))}
        return json_response(200, document, headers)
