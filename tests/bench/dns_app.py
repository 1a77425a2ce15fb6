"""The name server, one process and one UDP socket, as a worker runs it.

`python tests/bench/dns_app.py PORT [--world large] [--networks N] [--seed S] [--swaps] [--signed]`
"""

from __future__ import annotations

import argparse
import random
import sys
import threading
import time
from dataclasses import replace
from itertools import count
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(1, str(Path(__file__).parents[2]))

import dns_world

from gtm.dns.answer.answerer import Answerer
from gtm.dns.io.limiter import Limiter, RateLimits
from gtm.dns.zone.dnssec import ZoneSigner
from gtm.feed.current import CurrentView
from gtm.feed.wire import StateMessage
from gtm.geoip.reader import Locator
from gtm.runtime.process import pauses
from gtm.telemetry import Counts
from tests.dns.serving import BoundServer
from tests.dns.zone.signing import keys


class Worker:
    """What a worker does with its View: an Answerer for each, and the last one goes on answering meanwhile."""

    def __init__(self, current: CurrentView, *, signed: bool) -> None:
        self.current = current
        self.counts = Counts()
        self._locate = Locator().locate
        self._signer = ZoneSigner(keys([dns_world.ZONE], now=time.time()), time.time) if signed else None
        self.answerer = self._next(None)

    def _next(self, predecessor: Answerer | None) -> Answerer:
        router = self.current.router
        assert router is not None
        return Answerer(router, self._locate, self.counts, predecessor, self._signer, draw=random.random)

    def take(self, message: StateMessage) -> None:
        """Take in a State."""
        self.current.apply(message)
        self.answerer = self._next(self.answerer)

    def respond(self, packet: bytes, client: str, tcp: bool) -> bytes | None:
        """The reply to a packet."""
        answerer = self.answerer
        if tcp:
            return answerer.answer(packet, client, tcp=True, draw=random.random())
        return answerer.udp(packet, client)

    def swap(self, name: str, nets: list[int]) -> None:
        """A State with another plan each second, as edges get them."""
        plans = [dns_world.plan_of(name, nets, 0.9 - 0.01 * step) for step in range(5)]
        epoch = self.current.state.epoch
        while True:
            time.sleep(1)
            epoch += 1
            plan = replace(plans[epoch % len(plans)], made=float(epoch))
            self.take(StateMessage(replace(self.current.state, epoch=epoch, plan=plan)))


def _beat(limiter: Limiter, counts: Counts) -> None:
    """What a worker does each second, but for new plans."""
    for beats in count(1):
        time.sleep(1)
        limiter.turn()
        counts.take()
        pauses.spare_collector(beats)


def main() -> None:
    """Serve until the process is ended."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("port", type=int)
    parser.add_argument("--world", choices=("demo", "large"), default="demo")
    parser.add_argument("--networks", type=int, default=10_000, help="for which there are plans")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--swaps", action="store_true", help="a new plan each second")
    parser.add_argument("--signed", action="store_true")
    options = parser.parse_args()
    nets = dns_world.networks(options.networks, random.Random(options.seed))
    worker = Worker(dns_world.world(options.world), signed=options.signed)
    if options.world == "large":
        plan = dns_world.plan_of(options.world, nets)
        worker.take(StateMessage(replace(worker.current.state, epoch=2, plan=plan)))
    if options.swaps:
        threading.Thread(target=worker.swap, args=(options.world, nets), daemon=True).start()
    limiter = Limiter(RateLimits(), None, worker.counts)
    server = BoundServer(
        [("127.0.0.1", options.port)],
        worker.respond,
        counts=worker.counts,
        limiter=limiter,
    )
    pauses.shorten()
    threading.Thread(target=_beat, args=(limiter, worker.counts), daemon=True).start()
    server.serve()


if __name__ == "__main__":
    main()
