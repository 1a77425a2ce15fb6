"""The loop that looks after a region's backends, and tells picker and admission what it finds."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import httpx

from gtm.balancer.config import BalancerDocument
from gtm.balancer.picking import PoolPicker
from gtm.balancer.queueing import QueueAdmission
from gtm.core.balance.health import BackendHealth, Check
from gtm.core.health.verdicts import ProbeResult
from gtm.transport import context_for

_EVERY = 0.1
_CHECK_EVERY = 1.0
_TIMEOUT = 0.8


class HealthLoop:
    """See above.

    Args:
        health: of the backends.
        picker: is told of conditions.
        admission: is told of slots.
        ca_file: certificates to trust besides the public ones.
    """

    def __init__(
        self, health: BackendHealth, picker: PoolPicker, admission: QueueAdmission, ca_file: Path | None
    ) -> None:
        self.health = health
        self._picker = picker
        self._admission = admission
        self._ca_file = ca_file
        self._urls: tuple[str, ...] = ()
        self._checked = asyncio.Event()
        self._slots: int | None = -1

    def configure(self, document: BalancerDocument) -> None:
        """Look after these backends."""
        self._urls = tuple(one.url for one in document.backends)

    async def run(self) -> None:
        """Until cancelled."""
        looking = asyncio.ensure_future(self._check())
        loop = asyncio.get_running_loop()
        try:
            while True:
                await asyncio.sleep(_EVERY)
                self._tell(loop.time())
        finally:
            looking.cancel()

    def _tell(self, now: float) -> None:
        found = self.health.tick(now)
        if found:
            self._picker.conditions(found)
        slots = self._picker.slots()
        if slots != self._slots:
            self._slots = slots
            self._admission.resize(slots)

    async def _check(self) -> None:
        loop = asyncio.get_running_loop()
        async with httpx.AsyncClient(
            timeout=_TIMEOUT, trust_env=False, verify=context_for("https://", self._ca_file, direct=True)
        ) as client:

            async def one(url: str) -> None:
                began = loop.time()
                try:
                    answer = await client.get(f"{url}/health")
                    ok, detail = answer.status_code == httpx.codes.OK, f"status {answer.status_code}"
                except httpx.HTTPError as error:
                    ok, detail = False, str(error) or type(error).__name__
                took = (loop.time() - began) * 1000
                self.health.checked(
                    url, Check.HEALTH, ProbeResult(ok, time.time(), detail, took), loop.time()
                )

            while True:
                await asyncio.gather(*(one(url) for url in self._urls))
                self._checked.set()
                await asyncio.sleep(_CHECK_EVERY)

    async def first_round(self, patience: float) -> None:
        """Wait until every backend was looked at once, for so many seconds at most."""
        try:
            await asyncio.wait_for(self._checked.wait(), patience)
        except TimeoutError:
            return
        self._tell(asyncio.get_running_loop().time())

    async def close(self) -> None:
        """End."""

    def memory(self) -> float | None:
        """The mean of the backends' used memory, 0 to 1; None: nobody says."""
        known = [
            one.condition.memory for one in self._picker.pool.candidates if one.condition.memory is not None
        ]
        return sum(known) / len(known) if known else None
