"""A region of the demo as an inference server: slots that serve one request each, and a bounded queue before them.

Laws:
  1. First come, first served. No request starts while as many are served as there are slots.
  2. Fewer slots end no request: those that are served finish, and the next start once there is a slot.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from http import HTTPStatus
from math import exp, log
from random import Random
from statistics import NormalDist
from typing import Any

from gtm.demo.http import Answer, Request, problem

QUEUE_PER_SLOT = 4
"""Requests that may wait for each slot; one more is turned away (503)."""
SERVICE_TIME_MS = 400.0
"""Mean service time; lognormal, because a few answers are long."""
SPREAD = 0.3
"""The standard deviation of the service time's logarithm."""
_GOLDEN = (5**0.5 - 1) / 2
MAX_SERVICE_TIME_MS = 60_000.0
WINDOW = 5.0
"""Seconds over which waits and rates are reported."""
SAMPLES = 200
"""Requests over which the service time is reported; of fewer than a quarter it is not known yet."""
DEFAULT_SLOTS = 100
"""Of a region whose policy states no capacity."""
MAX_SLOTS = 10_000
MAX_SERVICES = 50
"""Services told apart in reports; requests for any beyond count for the region alone."""


class QueueFullError(Exception):
    """As many requests wait as may."""


class Slots:
    """So many at once, the others in a line."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.busy = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def queued(self) -> int:
        """How many wait."""
        return len(self._waiting)

    async def take(self) -> None:
        """Wait for a slot.

        Raises:
            QueueFullError: too many wait already.
        """
        if self.busy < self.limit and not self._waiting:
            self.busy += 1
            return
        if len(self._waiting) >= QUEUE_PER_SLOT * self.limit:
            raise QueueFullError
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.give_back()  # the slot came at the moment of giving up
            else:
                self._waiting.remove(turn)
            raise

    def give_back(self) -> None:
        """Give a slot back: to whoever has waited longest, if anybody does."""
        self.busy -= 1
        self._advance()

    def resize(self, limit: int) -> None:
        """Have so many slots from now on."""
        self.limit = limit
        self._advance()

    def _advance(self) -> None:
        while self._waiting and self.busy < self.limit:
            self.busy += 1
            self._waiting.popleft().set_result(None)


class _Tally:
    """What is known of a region's requests, or of one of its services': how many are served now, and the latest."""

    def __init__(self, random: Random) -> None:
        self.busy = 0
        self._begun: deque[tuple[float, float]] = deque()
        self._times: deque[float] = deque(maxlen=SAMPLES)
        self._place = random.random()

    def draw(self) -> float:
        """A service time in ms.

        The places in the distribution are a golden-ratio sequence (Kronecker's), so that the mean of some is close to
        the mean of all: equal regions are to report equal times.
        """
        self._place = (self._place + _GOLDEN) % 1
        place = min(max(self._place, 1e-9), 1 - 1e-9)
        mean_log = log(SERVICE_TIME_MS) - SPREAD**2 / 2
        return exp(NormalDist(mean_log, SPREAD).inv_cdf(place))

    def began(self, now: float, wait: float) -> None:
        """A request got its slot after a wait in ms."""
        self.busy += 1
        self._begun.append((now, wait))

    def served(self, ms: float) -> None:
        """A request was served in so many ms."""
        self._times.append(ms)

    def signals(self, now: float, seconds: float) -> dict[str, float]:
        """Rate, wait and service time, of the last seconds; what is not known is left out."""
        while self._begun and self._begun[0][0] < now - seconds:
            self._begun.popleft()
        found = {"requests_per_second": round(len(self._begun) / seconds, 2)}
        if self._begun:
            found["queue_wait_ms"] = round(sum(wait for _, wait in self._begun) / len(self._begun), 1)
        if len(self._times) >= SAMPLES / 4:
            found["service_time_ms"] = round(sum(self._times) / len(self._times), 1)
        return found


class InferenceServer:
    """One region.

    Args:
        region: its name.
        slots: how many requests it serves at once.
        random: draws service times.
        clock: monotonic seconds.
    """

    def __init__(
        self, region: str, slots: int, random: Random, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.region = region
        self.slots = Slots(slots)
        self._random = random
        self._clock = clock
        self._since = clock()
        self._tallies = {"": _Tally(random)}

    async def answer(self, request: Request) -> Answer:
        """Serve a request: after a wait for a slot, and a service time.

        The query may state the `service` (a Host such as `chat.demo.test` does too) and the `service_time_ms`.
        """
        if request.path == "/healthz":
            return Answer(HTTPStatus.OK, {"status": "ok", "region": self.region})
        service = service_of(request)
        tallies = self._tallies_of(service)
        try:
            stated = _stated_time(request)
        except ValueError as error:
            return problem(HTTPStatus.BAD_REQUEST, str(error))
        arrived = self._clock()
        try:
            await self.slots.take()
        except QueueFullError:
            text = f"region {self.region} serves {self.slots.busy} requests, and {self.slots.queued} wait: try again"
            return problem(HTTPStatus.SERVICE_UNAVAILABLE, text, {"Retry-After": "1"})
        started = self._clock()
        wait = 1000 * (started - arrived)
        for tally in tallies:
            tally.began(started, wait)
        try:
            await asyncio.sleep((tallies[-1].draw() if stated is None else stated) / 1000)
        finally:
            self.slots.give_back()
            for tally in tallies:
                tally.busy -= 1
        served = 1000 * (self._clock() - started)
        for tally in tallies:
            tally.served(served)
        said = {
            "region": self.region,
            "service": service or None,
            "method": request.method,
            "path": request.target,
            "host": request.headers.get("host"),
            "queue_wait_ms": round(wait, 1),
            "service_time_ms": round(served, 1),
        }
        return Answer(HTTPStatus.OK, said)

    def state(self) -> dict[str, int]:
        """Slots, requests served and waiting now."""
        return {"slots": self.slots.limit, "outstanding": self.slots.busy, "queue": self.slots.queued}

    def reports(self) -> list[dict[str, Any]]:
        """Load reports: the region as a whole, and each service it has been asked for.

        The queue is the region's, whatever the service; so its wait is reported for the region alone.
        """
        now = self._clock()
        seconds = max(min(WINDOW, now - self._since), 1.0)
        found = []
        for name, tally in self._tallies.items():
            report: dict[str, Any] = {"region": self.region, "outstanding": tally.busy}
            report |= tally.signals(now, seconds)
            if name:
                report.pop("queue_wait_ms", None)
                report["service"] = name
            else:
                report |= {"queue": self.slots.queued, "limit": self.slots.limit}
            found.append(report)
        return found

    def _tallies_of(self, service: str) -> list[_Tally]:
        """Where a request counts: for the region (the empty name), and for its service."""
        if service not in self._tallies and len(self._tallies) <= MAX_SERVICES:
            self._tallies[service] = _Tally(self._random)
        names = dict.fromkeys(("", service))
        return [self._tallies[name] for name in names if name in self._tallies]


def _stated_time(request: Request) -> float | None:
    """The service time that the query states, in ms.

    Raises:
        ValueError: what it states is none.
    """
    text = request.query.get("service_time_ms")
    if text is None:
        return None
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= MAX_SERVICE_TIME_MS:
        raise ValueError(f"`service_time_ms` must be a number from 0 to {MAX_SERVICE_TIME_MS:g}")
    return value


def service_of(request: Request) -> str:
    """The service that a request is for: stated in the query, or the first label of a host name; empty if neither."""
    stated = request.query.get("service") or request.headers.get("host", "").partition(".")[0]
    plain = stated.replace("-", "")
    return stated if plain.isascii() and plain.isalnum() and not plain.isdigit() and len(stated) <= 63 else ""
