"""The demo world's process: `python -m gtm.runtime.serve.demo_world BLOCK FD REGION=SLOTS…`.

FD is the listening socket of the block's switch address, which the parent holds too. `GTM_CONTROL_URL` and `GTM_TOKEN`
(role `reporter`) say where the regions report their load, and as whom.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys

import uvloop

from gtm.demo.reporter import report
from gtm.demo.world import World
from gtm.runtime.process import lifeline
from gtm.runtime.process.logs import configure


async def run(world: World, switch: socket.socket) -> None:
    """Run a world until the parent is gone or says so."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    lifeline.watch(stop.set)
    await world.start(switch)
    reporting = asyncio.create_task(
        report(os.environ["GTM_CONTROL_URL"], os.environ["GTM_TOKEN"], world.reports)
    )
    await stop.wait()
    reporting.cancel()


def main() -> None:
    """Run the world that the arguments describe."""
    configure("info", "demo")
    block, descriptor, *regions = sys.argv[1:]
    pairs = (text.partition("=") for text in regions)
    slots = {name: int(count) for name, _, count in pairs}
    switch = socket.socket(fileno=int(descriptor))

    async def work() -> None:
        await run(World(int(block), slots), switch)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(work())


if __name__ == "__main__":
    main()
