"""A region of the demo world: a real balancer before simulated model servers, in the event loop of all regions."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import InitVar, dataclass, replace
from typing import Any

import msgspec

from gtm.balancer.wire.endpoints import INFERENCE
from gtm.demo.servers import ModelServers
from gtm.files import write_whole
from gtm.geoip.reader import Locator
from gtm.runtime.balancer.balancer import Balancer
from gtm.runtime.balancer.carrier import RequestCounts
from gtm.runtime.balancer.ownership import balancer_home
from gtm.settings import BalancerSettings

logger = logging.getLogger(__name__)

SERVICE = "chat"
"""What requests are for whose host name is none of a service: of the demo's services for all, that with the strictest law."""
QUEUE_PER_SLOT = 4
"""Requests that may wait for each slot; one more is turned away (503)."""
_STARTS = 5.0
"""Longest wait in seconds until a region that is restored listens."""


@dataclass(eq=False, repr=False)
class DemoRegion:
    """See above.

    Args:
        settings: of its balancer, but for the file of backends, which stands in the data directory.
        servers: its model servers.
        locator: knows where addresses are.
        failed: called when the balancer has ended by itself, which it never should.
    """

    settings: InitVar[BalancerSettings]
    servers: ModelServers
    locator: Locator
    failed: Callable[[], None]

    def __post_init__(self, settings: BalancerSettings) -> None:
        self._settings = replace(
            settings, file=balancer_home(settings.data_dir, settings.region) / "backends.yaml"
        )
        self._killed = False
        self._balancer: Balancer | None = None
        self._serving: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Come to life, unless it is alive; wait until it listens, for some seconds at most.

        Raises:
            OSError: an address is taken.
        """
        if self._serving is not None:
            return
        await self.servers.start()
        self._write()
        self._balancer = Balancer(self._settings)
        listening = asyncio.Event()
        self._serving = asyncio.ensure_future(self._balancer.serve(self.locator, ready=listening.set))
        self._serving.add_done_callback(self._ended)
        waiting = asyncio.ensure_future(listening.wait())
        await asyncio.wait((waiting, self._serving), timeout=_STARTS, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()

    async def kill(self) -> None:
        """Die, as when the lights go out: no stream is finished, and nobody is told."""
        self._killed = True
        serving, self._serving, self._balancer = self._serving, None, None
        if serving is not None:
            serving.cancel()
            await asyncio.wait((serving,))
            self.servers.stop()

    def resize(self, slots: int) -> None:
        """Have so many slots: the model servers at once, the balancer as soon as it has read its file again."""
        self.servers.resize(slots)
        self._write()

    def state(self) -> dict[str, Any]:
        """How it stands; `backends` are its model servers, and what the balancer has at each."""
        balancer = self._balancer
        counts = RequestCounts() if balancer is None else balancer.counts()
        up = balancer is not None and balancer.listening
        return {
            "state": "up" if up else ("failed" if self._killed and balancer is None else "starting"),
            "slots": sum(self.servers.slots),
            "outstanding": counts.running,
            "queue": counts.waiting,
            "admin": balancer.admin_url() if balancer is not None else "",
            "backends": [
                {"url": url, "slots": slots, "outstanding": counts.backends.get(url, 0)}
                for url, slots in zip(self.servers.urls, self.servers.slots, strict=True)
            ],
        }

    def _write(self) -> None:
        """Tell the balancer of its backends, as its operators would."""
        file = self._settings.file
        assert file is not None  # noqa: S101 - see above
        file.parent.mkdir(parents=True, exist_ok=True)
        document = {
            "service": SERVICE,
            "paths": [INFERENCE],
            "backends": [
                {"url": url, "slots": slots}
                for url, slots in zip(self.servers.urls, self.servers.slots, strict=True)
                if slots
            ],
            "checks": {
                "models": {"interval": 10.0},
                "scrape": {"interval": 5.0},
            },  # fourteen servers on a laptop
            "admission": {"queue_length": QUEUE_PER_SLOT * sum(self.servers.slots)},
        }
        write_whole(file, msgspec.json.format(msgspec.json.encode(document)) + b"\n")  # JSON is YAML

    def _ended(self, serving: asyncio.Task[None]) -> None:
        if serving is not self._serving:
            return
        error = None if serving.cancelled() else serving.exception()
        logger.critical("the balancer of %s ended: %s", self._settings.region, error, exc_info=error)
        self.failed()
