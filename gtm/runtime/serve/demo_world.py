"""The demo world's process: `python -m gtm.runtime.serve.demo_world`, started by `gtm serve --demo` only."""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
from contextlib import closing

import uvloop

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
from gtm.geoip.reader import Locator
from gtm.runtime.balancer.ownership import balancer_home
from gtm.runtime.following.following import LAST_GOOD
from gtm.runtime.process import lifeline, signals
from gtm.runtime.process.connections import raise_descriptor_limit
from gtm.runtime.process.handed import received
from gtm.runtime.process.logs import configure
from gtm.runtime.serve.demo_region import DemoRegion
from gtm.runtime.serve.handed import WorldSettings, region_token
from gtm.settings import LOOPBACK, BalancerSettings

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
