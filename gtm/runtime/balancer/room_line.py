"""The line on which a balancer says how many slots its region has free: a report when that changes, a beat every 0.1 s.

One request whose body goes on; before control's servers would take it for too slow it ends, and another begins. Its end without a
goodbye, by this process's death say, is how control hears of that at once.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from http import HTTPStatus
from urllib.parse import quote

import msgspec

from gtm.core.balance.spill.room import Slots, next_report
from gtm.feed.wire import RoomReport
from gtm.runtime.balancer.reporting import Posting
from gtm.settings import BalancerSettings

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
