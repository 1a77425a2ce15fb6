"""The demo world's process: `python -m gtm.runtime.serve.demo_world`, started by `gtm serve --demo` only."""

from __future__ import annotations

import asyncio
import signal
import socket
from dataclasses import dataclass

import uvloop

from gtm.demo.reporter import report
from gtm.demo.world import World
from gtm.runtime.process import lifeline
from gtm.runtime.process.handed import received
from gtm.runtime.process.logs import configure


@dataclass(frozen=True, slots=True)
class WorldSettings:
    """What the world is handed.

    `switch` is the descriptor of the listening socket of the block's switch address, which the parent holds too. `slots`
    are regions with theirs. They report their load to `control_url`, with `token` (role `reporter`).
    """

    block: int
    switch: int
    slots: tuple[tuple[str, int], ...]
    control_url: str
    token: str


async def run(settings: WorldSettings) -> None:
    """Run a world until the parent is gone or says so."""
    world = World(settings.block, dict(settings.slots))
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    lifeline.watch(stop.set)
    await world.start(socket.socket(fileno=settings.switch))
    reporting = asyncio.create_task(report(settings.control_url, settings.token, world.reports))
    await stop.wait()
    reporting.cancel()


def main() -> None:
    """Run the world that this process was handed."""
    configure("info", "demo")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run(received(WorldSettings)))


if __name__ == "__main__":
    main()
