"""How long clients wait for their first token where model servers stand still for a moment, with `hedge` and without: `python tests/bench/hedge_bench.py [--rounds 3]`.

Three servers of two processes each (`frozen_server.py`), behind one `gtm balancer` at a time, under the load of `frozen_bench.py` (16 streamed chats a second). After `BEFORE`
seconds, in which it is learned when one is late, each `EACH` seconds the next server is stopped (SIGSTOP of both processes) for `STILL` seconds: too short for its checks to judge it.

A row has the median, p99 and the longest wait for a first token of those that came after `BEFORE`, what became of second servers, and the load of the machine. With and without take turns.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import statistics
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx

sys.path.insert(0, str(Path(__file__).parent))

from frozen_bench import Balancer, Chat, Server, gtm, load, server

BEFORE, EACH, STILL, STOPS = 15.0, 20.0, 2.0, 3
"""Seconds, and how often a server is stopped."""


async def trial(balancer: Balancer, servers: Sequence[Server]) -> list[float]:
    """One load; the waits of those that came after `BEFORE`."""
    chats: list[Chat] = []
    draws = random.Random(1)
    tasks = await load(balancer.port, BEFORE, draws, chats)
    first = len(chats)
    for number in range(STOPS):
        suffers = servers[number % len(servers)]
        suffers.suffer(signal.SIGSTOP, whole=True)
        tasks += await load(balancer.port, STILL, draws, chats)
        suffers.suffer(signal.SIGCONT, whole=True)
        tasks += await load(balancer.port, EACH - STILL, draws, chats)
    await asyncio.gather(*tasks)
    return [(one.waited_until or 0.0) - one.sent for one in chats[first:]]


def tried(hedge: dict[str, float] | None) -> dict[str, Any]:
    """One trial, with servers and a balancer of its own."""
    with ExitStack() as stack:
        servers = [stack.enter_context(server()) for _ in range(3)]
        home = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        start = gtm(hedge=hedge) if hedge else gtm()
        running = stack.enter_context(start([one.port for one in servers], home, True))
        waits = asyncio.run(trial(running, servers))
        text = httpx.get(f"http://127.0.0.1:{running.admin}/metrics", trust_env=False).text
    found = [
        line.partition("outcome=")[2]
        for line in text.splitlines()
        if line.startswith("gtm_balancer_hedges_total{")
    ]
    return {
        "hedge": hedge,
        "requests": len(waits),
        "p50": round(statistics.median(waits), 2),
        "p99": round(statistics.quantiles(waits, n=100)[98], 2),
        "longest": round(max(waits), 2),
        "hedges": found,
        "load": round(os.getloadavg()[0], 1),
    }


def main() -> None:
    """Measure, and print a row for each trial; JSON on the last line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--percent", type=float, default=5.0)
    options = parser.parse_args()
    rows = []
    for _ in range(options.rounds):
        for hedge in (None, {"percent": options.percent}):
            rows.append(tried(hedge))
            print(rows[-1], flush=True)
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
