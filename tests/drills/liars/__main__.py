"""Prints the table of docs/security.md: how many worlds, and which arenas (all)."""

from __future__ import annotations

import logging
import random
import sys
from typing import Any

from tests.drills.liars.arena import HEAD, Arena, row, table
from tests.drills.liars.balancer import BalancerArena
from tests.drills.liars.client import ClientArena
from tests.drills.liars.edge import EdgeArena, burst
from tests.drills.liars.server import ServerArena

TRIES = 4
ARENAS: dict[str, Arena[Any, Any, Any]] = {
    "edge": EdgeArena(),
    "balancer": BalancerArena(),
    "unsheltered": BalancerArena(sheltered=False),
    "server": ServerArena(),
    "client": ClientArena(),
}

if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    print(HEAD)
    for name in sys.argv[2:] or ARENAS:
        table(ARENAS[name], count, TRIES, print)
        if name == "edge":
            arena = ARENAS["edge"]
            bursts = [burst(arena.setting(random.Random(f"d {seed}"))) for seed in range(count)]
            print(row(arena.principal, "nothing: its clients ask 8 times as often", bursts))
