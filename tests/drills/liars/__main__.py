"""Prints the table of docs/security.md, and fails where an answer left the fence, but for what the page says is open.

How many worlds each row has, and of which arenas (all). `--in-all`: so many worlds in all rows together, each as many.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from tests.drills.liars.arena import HEAD, Arena, Damage, row, worst_of
from tests.drills.liars.balancer import BalancerArena
from tests.drills.liars.client import ClientArena
from tests.drills.liars.edge import BurstArena, EdgeArena
from tests.drills.liars.location import LocationArena
from tests.drills.liars.people import PersonArena
from tests.drills.liars.server import ServerArena

TRIES = 4
ARENAS: dict[str, Arena[Any, Any, Any]] = {
    "edge": EdgeArena(),
    "burst": BurstArena(),
    "balancer": BalancerArena(),
    "unsheltered": BalancerArena(sheltered=False),
    "server": ServerArena(),
    "client": ClientArena(),
    "location": LocationArena(defaults=True),
    "settings": LocationArena(),
    "operator": PersonArena(admin=False),
    "admin": PersonArena(admin=True),
}


def _found(task: tuple[str, str, int]) -> tuple[Damage, float]:
    """One world of one row, and the processor seconds that it took."""
    logging.disable(logging.CRITICAL)
    name, letters, seed = task
    began = time.process_time()
    return worst_of(ARENAS[name], letters, seed, TRIES), time.process_time() - began


def rows(names: list[str]) -> Iterator[tuple[str, str, str]]:
    """Arena, kinds of lies, and what they are about."""
    for name in names:
        for letters, about in ARENAS[name].rows():
            yield name, letters, about


def main() -> int:
    """Run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("worlds", type=int, nargs="?", default=20, help="of each row")
    parser.add_argument("arenas", nargs="*", metavar="arena", help=f"of {', '.join(ARENAS)}")
    parser.add_argument("--in-all", action="store_true", help="so many worlds in all rows together")
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args()
    unknown = set(options.arenas) - ARENAS.keys()
    if unknown:
        parser.error(f"there is no arena {', '.join(sorted(unknown))}: they are {', '.join(ARENAS)}")
    wanted = list(rows(options.arenas or list(ARENAS)))
    count = -(-options.worlds // len(wanted)) if options.in_all else options.worlds
    print(HEAD)
    outside, seconds = 0, 0.0
    with ProcessPoolExecutor(options.processes) as pool:
        for name, letters, about in wanted:
            found = list(pool.map(_found, [(name, letters, seed) for seed in range(count)], chunksize=1))
            print(row(ARENAS[name].principal, about, [damage for damage, _ in found]), flush=True)
            if ARENAS[name].promised:
                outside += sum(damage.outside for damage, _ in found)
            seconds += sum(took for _, took in found)
    words = f"{count} worlds each, {count * len(wanted)} in all, in {seconds:.0f} s of processor time"
    print(f"\n{words}; {outside} answers outside of the fence", file=sys.stderr)
    return 1 if outside else 0


if __name__ == "__main__":
    sys.exit(main())
