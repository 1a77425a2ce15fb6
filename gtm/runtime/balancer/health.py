"""The loop that looks after a region's backends, and tells picker and admission what it finds."""

from __future__ import annotations

import asyncio
from pathlib import Path

from gtm.balancer.config import BalancerDocument
from gtm.balancer.picking import PoolPicker
from gtm.balancer.queueing import QueueAdmission


class HealthLoop:
    """See above.

    Args:
        picker: is told of conditions.
        admission: is told of slots.
        ca_file: certificates to trust besides the public ones.
    """

    def __init__(self, picker: PoolPicker, admission: QueueAdmission, ca_file: Path | None) -> None:
        self._picker = picker
        self._admission = admission
        self._ca_file = ca_file

    def configure(self, document: BalancerDocument) -> None:
        """Look after these backends."""

    async def run(self) -> None:
        """Until cancelled."""
        await asyncio.Event().wait()

    async def first_round(self, patience: float) -> None:
        """Wait until every backend was looked at once, for so many seconds at most."""

    async def close(self) -> None:
        """End."""

    def memory(self) -> float | None:
        """The mean of the backends' used memory, 0 to 1; None: nobody says."""
        return None
