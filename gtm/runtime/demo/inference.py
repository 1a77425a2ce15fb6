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
from dataclasses import dataclass, field
from http import HTTPStatus
from math import log
from random import Random
from typing import Any

from gtm.runtime.demo.http import Answer, Request, problem

QUEUE_PER_SLOT = 4
"""Requests that may wait for each slot; one more is turned away (503)."""
SERVICE_TIME_MS = 400.0
"""Mean service time; lognormal, because a few answers are long."""
SPREAD = 0.5
"""The standard deviation of the service time's logarithm."""
MAX_SERVICE_TIME_MS = 60_000.0
WINDOW = 5.0
"""Seconds over which times and rates are reported."""
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
        """Free a slot."""
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


@dataclass(slots=True)
class _Recent:
    """How many requests are served now, and the last seconds' requests.

    `arrivals` are their times; `served` holds when each was finished, its wait and its service time in ms.
    """

    busy: int = 0
    arrivals: deque[float] = field(default_factory=deque)
    served: deque[tuple[float, float, float]] = field(default_factory=deque)

    def trim(self, since: float) -> None:
        while self.arrivals and self.arrivals[0] < since:
            self.arrivals.popleft()
        while self.served and self.served[0][0] < since:
            self.served.popleft()


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
        self._recent: dict[str, _Recent] = {}

    async def answer(self, request: Request) -> Answer:
        """Serve a request: after a wait for a slot, and a service time.

        The query may state the `service` (a Host such as `chat.demo.test` does too) and the `service_time_ms`.
        """
        if request.path == "/healthz":
            return Answer(HTTPStatus.OK, {"status": "ok", "region": self.region})
        wanted = self._service_time(request)
        if wanted is None:
            return problem(
                HTTPStatus.BAD_REQUEST,
                f"`service_time_ms` must be a number from 0 to {MAX_SERVICE_TIME_MS:g}",
            )
        service = service_of(request)
        counted = self._counted(service)
        arrived = self._clock()
        try:
            await self.slots.take()
        except QueueFullError:
            text = f"region {self.region} serves {self.slots.busy} requests, and {self.slots.queued} wait: try again"
            return problem(HTTPStatus.SERVICE_UNAVAILABLE, text, {"Retry-After": "1"})
        started = self._clock()
        try:
            for recent in counted:
                recent.arrivals.append(arrived)
                recent.busy += 1
            await asyncio.sleep(wanted / 1000)
        finally:
            self.slots.give_back()
            for recent in counted:
                recent.busy -= 1
        wait, served = 1000 * (started - arrived), 1000 * (self._clock() - started)
        for recent in counted:
            recent.served.append((self._clock(), wait, served))
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
        """Load reports: the region as a whole, and each service it has served lately."""
        now = self._clock()
        found = []
        for name, recent in self._recent.items():
            recent.trim(now - WINDOW)
            report: dict[str, Any] = {"region": self.region, **self._times(recent, now)}
            if name:
                found.append({**report, "service": name, "outstanding": recent.busy})
        whole = self._recent.get("")
        return [
            {
                "region": self.region,
                "outstanding": self.slots.busy,
                "queue": self.slots.queued,
                "limit": self.slots.limit,
                **({"requests_per_second": 0.0} if whole is None else self._times(whole, now)),
            },
            *found,
        ]

    def _times(self, recent: _Recent, now: float) -> dict[str, float]:
        seconds = max(min(WINDOW, now - self._since), 1.0)
        times = {"requests_per_second": round(len(recent.arrivals) / seconds, 2)}
        if recent.served:
            count = len(recent.served)
            times["queue_wait_ms"] = round(sum(wait for _, wait, _ in recent.served) / count, 1)
            times["service_time_ms"] = round(sum(served for _, _, served in recent.served) / count, 1)
        return times

    def _counted(self, service: str) -> list[_Recent]:
        """Where a request counts: for the region (the empty name), and for its service."""
        for name in ("", service):
            if name not in self._recent and len(self._recent) <= MAX_SERVICES:
                self._recent[name] = _Recent()
        return [self._recent[name] for name in dict.fromkeys(("", service)) if name in self._recent]

    def _service_time(self, request: Request) -> float | None:
        """In ms; None if what the query states is none."""
        stated = request.query.get("service_time_ms")
        if stated is None:
            return self._random.lognormvariate(log(SERVICE_TIME_MS) - SPREAD**2 / 2, SPREAD)
        try:
            value = float(stated)
        except ValueError:
            return None
        return value if 0 <= value <= MAX_SERVICE_TIME_MS else None


def service_of(request: Request) -> str:
    """The service that a request is for: stated in the query, or the first label of a host name; empty if neither."""
    stated = request.query.get("service") or request.headers.get("host", "").partition(".")[0]
    plain = stated.replace("-", "")
    return stated if plain.isascii() and plain.isalnum() and not plain.isdigit() and len(stated) <= 63 else ""
