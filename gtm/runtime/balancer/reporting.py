"""What a balancer tells control: its load each second, and whatever else it posts there again and again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Annotated, Any, Self, TypedDict, cast, get_type_hints

import httpx

from gtm.core.capacity.load import MAX_MODELS
from gtm.secret import said
from gtm.settings import BalancerSettings
from gtm.transport import context_for

logger = logging.getLogger(__name__)

EVERY = 1.0
"""Seconds between reports."""


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
