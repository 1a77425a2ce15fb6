"""What a balancer tells control: its load each second, its free slots as they change, and whatever else it posts there again and again."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Annotated, Any, Self, TypedDict, cast, get_type_hints
from urllib.parse import quote

import httpx
import msgspec

from gtm.core.balance.spill.room import Slots, next_report
from gtm.core.capacity.load import MAX_MODELS
from gtm.feed.wire import RoomReport
from gtm.secret import said
from gtm.settings import BalancerSettings
from gtm.transport import context_for

logger = logging.getLogger(__name__)

EVERY = 1.0
"""Seconds between reports."""
BEAT = 0.1
"""Seconds between two beats."""
LASTS = 45.0
"""Seconds for which one body goes on."""
_AGAIN = 0.5
"""Seconds until the next try after a failure."""
_ENCODER = msgspec.json.Encoder()


class Posting:
    """The way to one of control's resources, for what is posted there while this lasts. The log says once that it is not taken.

    Args:
        settings: whose it is.
        path: of the resource.
        refused: what the log says when control does not take it, with a place for why.
        takes: the status by which it does.
        timeout: seconds.
    """

    def __init__(
        self, settings: BalancerSettings, path: str, refused: str, takes: HTTPStatus, timeout: float = 2.0
    ) -> None:
        self._url = settings.control_url.rstrip("/") + path
        self._refused = refused
        self._takes = takes
        self._client = httpx.AsyncClient(
            headers={"Authorization": f"Bearer {settings.token}", "Content-Type": "application/json"},
            timeout=timeout,
            trust_env=False,
            verify=context_for(settings.control_url, settings.ca_file, direct=True),
        )
        self.failing = False
        """Whether control did not take the last."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.aclose()

    async def post(self, read: Callable[[bytes], None] = lambda _: None, **given: Any) -> None:
        """Post once.

        Args:
            read: called with the answer; it may raise ValueError.
            given: the request, in httpx's words.
        """
        problem = ""
        try:
            sent = await self._client.post(self._url, **given)
            if sent.status_code == self._takes:
                read(sent.content)
            else:
                problem = f"status {sent.status_code}: {sent.text[:300]}"
        except (httpx.HTTPError, ValueError) as error:
            problem = said(error)
        if problem and not self.failing:
            logger.warning(self._refused, problem)
        self.failing = bool(problem)


Reports = Sequence[Mapping[str, Any]]


def _sum(name: str, reports: Reports) -> float:
    """Of what each has for itself, or has the part of that is its own to report."""
    total: float = sum(report[name] for report in reports)
    return total


def _weighted(name: str, reports: Reports) -> float:
    """Of a mean over requests: each report's by its requests."""
    weights = [float(report.get("requests_per_second", 1.0)) for report in reports]
    total: float = sum(report[name] * weight for report, weight in zip(reports, weights, strict=True))
    return total / (sum(weights) or 1.0)


def _mean(name: str, reports: Reports) -> float:
    """Of what all see of the same backends."""
    return _sum(name, reports) / len(reports)


def _joined(name: str, reports: Reports) -> list[str]:
    """All that are in a list of any, as many as a report may have."""
    return sorted({one for report in reports for one in report[name]})[:MAX_MODELS]


def _first(name: str, reports: Reports) -> Any:
    """Of what is the same in all."""
    return reports[0][name]


class Report(TypedDict, total=False):
    """What a load report of ours may have (docs/capacity.md), and how those of several workers become one."""

    region: Annotated[str, _first]
    source: Annotated[str, _first]
    outstanding: Annotated[int, _sum]
    queue: Annotated[int, _sum]
    limit: Annotated[int, _sum]
    requests_per_second: Annotated[float, _sum]
    service_time_ms: Annotated[float, _weighted]
    queue_wait_ms: Annotated[float, _weighted]
    tokens_per_second: Annotated[float, _sum]
    input_tokens_per_second: Annotated[float, _sum]
    gpu_memory_used_bytes: Annotated[float, _sum]
    gpu_memory_total_bytes: Annotated[float, _sum]
    kv_cache_usage: Annotated[float, _mean]
    models: Annotated[list[str], _joined]


_FIELDS = {name: kind.__metadata__[0] for name, kind in get_type_hints(Report, include_extras=True).items()}


def merged_report(reports: Sequence[Report]) -> Report:
    """The load of all."""
    having = {name: [report for report in reports if name in report] for name in _FIELDS}
    return cast("Report", {name: _FIELDS[name](name, some) for name, some in having.items() if some})


async def report_load(settings: BalancerSettings, report: Callable[[], Report]) -> None:
    """Tell control of the load until cancelled. While control is away reports are lost: the next is a second later."""
    refused = "control does not take the load report: %s"
    async with Posting(settings, "/v1/load-reports", refused, HTTPStatus.NO_CONTENT) as posting:
        while True:
            await posting.post(json=report())
            await asyncio.sleep(EVERY)


class RoomLine:
    """The line on which a balancer says how many slots its region has free: a report when that changes, a beat every 0.1 s.

    One request whose body goes on; before control's servers would take it for too slow it ends, and another begins. Its end without a
    goodbye, by this process's death say, is how control hears of that at once.

    Args:
        settings: whose it is.
        slots: what there is now; None: nobody knows, and only beats are sent.
    """

    def __init__(self, settings: BalancerSettings, slots: Callable[[], Slots | None]) -> None:
        self._settings = settings
        self._slots = slots
        self._started = time.time()
        self._sequence = 0
        self._ending = False

    def end(self) -> None:
        """Say goodbye: this process ends as it should."""
        self._ending = True

    async def run(self) -> None:
        """Hold the line until cancelled, or until goodbye was said."""
        settings = self._settings
        path = f"/v1/balancers/{quote(settings.name, safe='')}/room"
        refused = "control does not take what is said of free slots: %s"
        async with Posting(settings, path, refused, HTTPStatus.NO_CONTENT, 5.0) as posting:
            while not self._ending:
                await posting.post(params={"region": settings.region}, content=self._lines())
                if posting.failing:
                    await asyncio.sleep(_AGAIN)

    async def _lines(self) -> AsyncIterator[bytes]:
        loop = asyncio.get_running_loop()
        until = loop.time() + LASTS
        told: Slots | None = None
        told_at = 0.0
        while not self._ending and loop.time() < until:
            now, slots = loop.time(), self._slots()
            line = b"\n"
            if slots is not None and next_report(told, slots, now - told_at) <= 0:
                told, told_at = slots, now
                self._sequence += 1
                report = RoomReport(self._settings.name, self._started, self._sequence, 0.0, slots)
                line = _ENCODER.encode(report) + b"\n"
            yield line
            await asyncio.sleep(BEAT)
        yield b"{}\n"
