"""A balancer's load, told control each second: what it has in flight, what waits, what it can take."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypedDict

import httpx

from gtm.balancer.decide.picking import PoolPicker
from gtm.balancer.decide.queueing import QueueAdmission
from gtm.balancer.plane.proxy import Proxy
from gtm.core.capacity.load import MAX_MODELS, MODEL_PATTERN
from gtm.runtime.balancer.health import HealthLoop
from gtm.secret import said
from gtm.settings import BalancerSettings
from gtm.transport import context_for

logger = logging.getLogger(__name__)

EVERY = 1.0
"""Seconds between reports."""
_WHOLE = 1_000_000
_Sum = Literal[
    "tokens_per_second", "input_tokens_per_second", "gpu_memory_used_bytes", "gpu_memory_total_bytes"
]
_SUMS: tuple[_Sum, ...] = (
    "tokens_per_second",
    "input_tokens_per_second",
    "gpu_memory_used_bytes",
    "gpu_memory_total_bytes",
)
"""Of what backends say of themselves, what adds up to the region's."""
_TIMEOUT = 2.0
_MODEL = re.compile(MODEL_PATTERN)


class Report(TypedDict, total=False):
    """What a load report of ours may have (docs/capacity.md). `gtm.runtime.balancer.workers.merging` says of each how several become one."""

    region: str
    source: str
    outstanding: int
    queue: int
    limit: int
    requests_per_second: float
    service_time_ms: float
    queue_wait_ms: float
    tokens_per_second: float
    input_tokens_per_second: float
    gpu_memory_used_bytes: float
    gpu_memory_total_bytes: float
    kv_cache_usage: float
    models: list[str]


class Reporter:
    """Sends reports until cancelled. While control is away they are lost: the next is a second later.

    Args:
        settings: whose they are.
        report: makes the next.
    """

    def __init__(self, settings: BalancerSettings, report: Callable[[], Mapping[str, Any]]) -> None:
        self._settings = settings
        self._report = report

    async def run(self) -> None:
        """See above."""
        settings = self._settings
        headers = {"Authorization": f"Bearer {settings.token}"}
        verify = context_for(settings.control_url, settings.ca_file, direct=True)
        url = f"{settings.control_url.rstrip('/')}/v1/load-reports"
        failing = False
        async with httpx.AsyncClient(
            headers=headers, timeout=_TIMEOUT, trust_env=False, verify=verify
        ) as client:
            while True:
                problem, report = "", self._report()
                try:
                    sent = await client.post(url, json=report)
                    if sent.status_code != httpx.codes.NO_CONTENT:
                        problem = f"status {sent.status_code}: {sent.text[:300]}"
                except httpx.HTTPError as error:
                    problem = said(error)
                if problem and not failing:
                    logger.warning("control does not take the load report: %s", problem)
                failing = bool(problem)
                await asyncio.sleep(EVERY)


class Figures:
    """The load of one process.

    Args:
        settings: whose it is.
        proxy: counts requests.
        picker: knows the backends.
        admission: knows what waits.
        health: knows what backends say of themselves.
        part: what of the region's slots is this process's to report.
    """

    def __init__(
        self,
        *,
        settings: BalancerSettings,
        proxy: Proxy,
        picker: PoolPicker,
        admission: QueueAdmission,
        health: HealthLoop,
        part: Callable[[int], int] = lambda slots: slots,
    ) -> None:
        self._settings = settings
        self._proxy = proxy
        self._picker = picker
        self._admission = admission
        self._health = health
        self._part = part
        self._before = (0, 0.0, 0.0)

    def report(self) -> Report:
        """The load now, and since the last report."""
        snapshot = self._admission.admission.snapshot()
        before, self._before = self._before, self._proxy.stats.served()
        count, seconds, waited = (now - then for now, then in zip(self._before, before, strict=True))
        slots = self._picker.slots()
        models = self._models()
        found: Report = {
            "region": self._settings.region,
            "source": self._settings.name,
            "outstanding": sum(tier.running for tier in snapshot.tiers.values()),
            "queue": sum(tier.waiting for tier in snapshot.tiers.values()),
            "requests_per_second": count / EVERY,
        }
        if slots is not None:
            found["limit"] = self._part(slots)
        if count:
            # Apart: what waits takes no slot, and a region that counted it as service would look slower the fuller it is.
            found["service_time_ms"] = max(0.0, seconds) / count * 1000
            found["queue_wait_ms"] = max(0.0, waited) / count * 1000
        self._say(found, self._part(_WHOLE) / _WHOLE)
        memory = self._health.memory()
        if memory is not None:
            found["kv_cache_usage"] = memory
        if models:
            found["models"] = models
        return found

    def _say(self, report: Report, part: float) -> None:
        """What the backends say of tokens and memory, in sums: this process's part of it, as it has of the slots, for others report theirs."""
        said = self._health.signals().values()
        for name in _SUMS:
            values = [one[name] for one in said if name in one]
            if values:
                report[name] = part * sum(values)

    def _models(self) -> list[str]:
        """The models that are loaded: as backends say, as the file says of those that do not. Names that reports cannot carry are left out."""
        loaded: set[str] = set()
        for one in self._picker.pool.candidates:
            condition = one.condition
            loaded |= one.backend.models if condition.models is None else condition.models
            loaded |= condition.adapters or frozenset()
        return sorted(name for name in loaded if _MODEL.fullmatch(name))[:MAX_MODELS]
