"""The line on which a balancer says how many slots its region has free: a report when that changes, a beat every 0.1 s.

One request whose body goes on; before control's servers would take it for too slow it ends, and another begins. Its end without a
goodbye, by this process's death say, is how control hears of that at once.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from urllib.parse import quote

import httpx
import msgspec

from gtm.core.balance.spill.room import Slots, next_report
from gtm.feed.wire import RoomReport
from gtm.secret import said
from gtm.settings import BalancerSettings
from gtm.transport import context_for

logger = logging.getLogger(__name__)

BEAT = 0.1
"""Seconds between two beats."""
LASTS = 45.0
"""Seconds for which one body goes on."""
_AGAIN = 0.5
"""Seconds until the next try after a failure."""
_ENCODER = msgspec.json.Encoder()


class RoomLine:
    """See above.

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
        url = f"{settings.control_url.rstrip('/')}/v1/balancers/{quote(settings.name, safe='')}/room"
        headers = {"Authorization": f"Bearer {settings.token}", "Content-Type": "application/json"}
        verify = context_for(settings.control_url, settings.ca_file, direct=True)
        failing = False
        async with httpx.AsyncClient(headers=headers, timeout=5.0, trust_env=False, verify=verify) as client:
            while not self._ending:
                problem = ""
                try:
                    sent = await client.post(url, params={"region": settings.region}, content=self._lines())
                    if sent.status_code != httpx.codes.NO_CONTENT:
                        problem = f"status {sent.status_code}: {sent.text[:300]}"
                except httpx.HTTPError as error:
                    problem = said(error)
                if problem:
                    if not failing:
                        logger.warning("control does not take what is said of free slots: %s", problem)
                    await asyncio.sleep(_AGAIN)
                failing = bool(problem)

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
