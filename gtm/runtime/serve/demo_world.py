"""The demo world's process: `python -m gtm.runtime.serve.demo_world`, started by `gtm serve --demo` only."""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import InitVar, dataclass, replace
from typing import Any

import msgspec
import uvloop

from gtm.balancer.wire.endpoints import INFERENCE
from gtm.core.model.access import Access
from gtm.core.model.policy import Policy
from gtm.core.model.regions import Region
from gtm.demo.block import PORT, address, server_addresses
from gtm.demo.policy import demo_policy, moved
from gtm.demo.servers import ModelServers
from gtm.demo.world import World
from gtm.documents.jurisdictions import shipped_jurisdictions
from gtm.feed import lastgood
from gtm.feed.wire import AccessMessage, SnapshotMessage
from gtm.files import write_whole
from gtm.geoip.reader import Locator
from gtm.runtime.balancer.balancer import Balancer
from gtm.runtime.balancer.carrier import RequestCounts
from gtm.runtime.balancer.ownership import balancer_home
from gtm.runtime.following.following import LAST_GOOD
from gtm.runtime.process import lifeline, signals
from gtm.runtime.process.connections import raise_descriptor_limit
from gtm.runtime.process.handed import received
from gtm.runtime.process.logs import configure
from gtm.runtime.serve.handed import WorldSettings, region_token
from gtm.settings import LOOPBACK, BalancerSettings

# --- A region of the demo world: a real balancer before simulated model servers, in the event loop of all regions. ---


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


# --- The demo world's process: `python -m gtm.runtime.serve.demo_world`, started by `gtm serve --demo` only. ---


_SLOTS = 100
"""Of a region whose policy states no capacity."""


def _balancer(settings: WorldSettings, region: Region, number: int) -> BalancerSettings:
    return BalancerSettings(
        data_dir=settings.data_dir,
        bind=(address(settings.block, number),),
        geoip_db=None,
        geoip_overrides=None,
        metrics_allow=LOOPBACK,
        probe_allow=LOOPBACK,
        log_level="info",
        control_url=settings.control_url,
        token=region_token(settings.secret, region.name),
        name=f"{region.name}-1",
        region=region.name,
        backend=(),
        file=None,
        service=None,
        balancer_port=PORT,
        admin_port=0,
        trusted_proxies=LOOPBACK,  # whoever is on this machine says who its simulated client is
        ca_file=None,
        drain_time=0.0,
        user=None,
    )


def _keep_policy(settings: WorldSettings, demo: Policy) -> None:
    """Let balancers that never ran find the demo's policy where they keep the last good one.

    So regions listen before control does, and no edge finds them down at first, after which it would bring them back slowly. Control's
    own word replaces it within seconds: it is of a later revision.
    """
    snapshot = None
    for region in demo.regions:
        path = balancer_home(settings.data_dir, region.name) / LAST_GOOD
        if path.exists():
            continue
        if snapshot is None:
            policy = moved(demo, settings.block)
            snapshot = SnapshotMessage.of(1, 1.0, policy, shipped_jurisdictions())
        path.parent.mkdir(parents=True, exist_ok=True)
        lastgood.save(path, [AccessMessage(Access()), snapshot])


async def run(settings: WorldSettings) -> int:
    """Run a world until the parent is gone or says so.

    Returns:
        The exit code: 1 if something ended by itself.
    """
    stop = asyncio.Event()
    failures: list[bool] = []

    def failed() -> None:
        failures.append(True)
        stop.set()

    signals.heed(stop.set, lambda: None)
    lifeline.watch(stop.set)
    with closing(Locator()) as locator:
        demo = demo_policy()
        regions = {
            one.name: DemoRegion(
                _balancer(settings, one, number),
                ModelServers(
                    server_addresses(settings.block, number), one.capacity.outstanding or _SLOTS, PORT
                ),
                locator,
                failed,
            )
            for number, one in enumerate(demo.regions, 1)
        }
        await World(settings.block, regions).start(socket.socket(fileno=settings.switch))
        await asyncio.to_thread(_keep_policy, settings, demo)
        await asyncio.gather(*(region.start() for region in regions.values()))
        await stop.wait()
        await asyncio.gather(*(region.kill() for region in regions.values()))
    return 1 if failures else 0


def main() -> None:
    """Run the world that this process was handed."""
    configure("info", "demo")
    # Seven of everything: neither what goes as it should nor that control is away, which control says itself, is worth a line each.
    for chatty in ("gtm.runtime.balancer", "gtm.runtime.following"):
        logging.getLogger(chatty).setLevel(logging.ERROR)
    raise_descriptor_limit()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        code = runner.run(run(received(WorldSettings)))
    sys.exit(code)


if __name__ == "__main__":
    main()
