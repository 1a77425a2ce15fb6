"""What looks after a region's backends, and tells picker and admission what it finds."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, replace

from gtm.balancer.config import BalancerDocument
from gtm.balancer.decide.picking import PoolPicker
from gtm.balancer.decide.queueing import QueueAdmission
from gtm.balancer.health.check_settings import CheckSettings
from gtm.balancer.health.checks import Checks
from gtm.core.balance.health import BackendHealth, Settings

EVERY = 0.1
"""Seconds between looks at what time alone changes."""


def health_settings(document: BalancerDocument) -> Settings:
    """The settings of backends' health by the file."""
    found = Settings(checks=document.checks.thresholds())
    return found if document.ejection.latency else replace(found, latency_factor=None)


@dataclass(eq=False, repr=False)
class HealthLoop:
    """See above.

    Args:
        health: of the backends.
        picker: is told of conditions.
        admission: is told of slots.
        http2: what https backends must show to checks by gRPC.
        share: what of the region's slots may be filled here.
        not_made: called for each check that could not be made for want of room here.
    """

    health: BackendHealth
    picker: PoolPicker
    admission: QueueAdmission
    http2: Callable[[], ssl.SSLContext]
    _: KW_ONLY
    share: Callable[[int | None], int | None] = lambda slots: slots
    not_made: Callable[[], None] = lambda: None

    def __post_init__(self) -> None:
        self._settings: CheckSettings | None = None
        self._checks: Checks | None = None
        self._slots: tuple[int | None, bool] = (-1, False)
        self._drained: set[str] = set()

    async def configure(self, document: BalancerDocument) -> None:
        """Look after these backends; the picker knows them already."""
        settings = document.checks.model_copy(update={"orca": None})  # by which no check goes
        if self._checks is None or settings != self._settings:
            if self._checks is not None:
                await self._checks.stop()
            self._settings = settings
            picker = self.picker
            self._checks = Checks(
                settings,
                self.health,
                self._tell,
                picker.flights,
                self.http2,
                cached=picker.cached,
                not_made=self.not_made,
            )
        routes = {route.url: route for route in self.picker.routes()}
        self._checks.update(((one, routes[one.name]) for one in document.servers()), document.own_checks())
        now = asyncio.get_running_loop().time()
        drained = {one.url for one in document.backends if one.draining}
        for name in drained - self._drained:
            self.health.drain(name, now)
        for name in self._drained - drained:
            self.health.undrain(name)
        self._drained = drained
        self._tell()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(EVERY)
            self._tell()

    def _tell(self) -> None:
        found = self.health.tick(asyncio.get_running_loop().time())
        if found:
            self.picker.conditions(found)
        self.resize()

    def resize(self) -> None:
        """Look how many slots may be filled here."""
        slots = self.picker.slots()
        here = (self.share(slots), slots != 0)
        if here != self._slots:
            self._slots = here
            self.admission.resize(*here)

    async def first_round(self, patience: float) -> None:
        """Wait until every backend was looked at once, for so many seconds at most."""
        if self._checks is not None:
            await self._checks.first_round(patience)
        self._tell()

    async def close(self) -> None:
        """End."""
        if self._checks is not None:
            await self._checks.stop()

    def problems(self) -> dict[str, dict[str, str]]:
        """Backend → what was asked of it → what is wrong, in words."""
        return {} if self._checks is None else self._checks.problems()

    def signals(self) -> dict[str, Mapping[str, float]]:
        """Backend → what its metrics say of its load."""
        return {} if self._checks is None else self._checks.signals(Settings().lasts)

    def memory(self) -> float | None:
        """The mean of the backends' used memory, 0 to 1; None: nobody says."""
        known = [
            one.condition.memory for one in self.picker.pool.candidates if one.condition.memory is not None
        ]
        return sum(known) / len(known) if known else None
