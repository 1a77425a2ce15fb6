"""Replay every known attack on the two promises: `python -m tests.drills.attack [ITEM …]`.

Prints a table, and ends with 1 unless all held.
"""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import sys
import tempfile
import time
from pathlib import Path

from tests.drills import attacks
from tests.drills.arena import ATTACKS, Arena, Attack, Broken
from tests.warden import Warden


def known() -> list[Attack]:
    """Every attack of `tests/drills/attacks`, by item."""
    for module in pkgutil.iter_modules(attacks.__path__):
        importlib.import_module(f"{attacks.__name__}.{module.name}")
    return sorted(ATTACKS, key=lambda found: (found.item, found.title))


def main() -> int:
    """Run those asked for, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("items", nargs="*", help="as in A1 B3; none: all")
    wanted = {item.upper() for item in parser.parse_args().items}
    chosen = [found for found in known() if not wanted or found.item in wanted]
    missing = wanted - {found.item for found in chosen}
    if missing:
        parser.error(f"no attack on {', '.join(sorted(missing))}")
    broken = 0
    with tempfile.TemporaryDirectory(prefix="gtm-attack-") as directory:
        Path(directory).chmod(0o755)  # an embedded Postgres that root starts runs as another user
        Warden(Path(directory))
        arena = Arena(Path(directory))
        try:
            for one in chosen:
                verdict, seen, seconds = _run(one, arena)
                broken += verdict != "held"
                print(f"{one.item:3} {verdict:7} {seconds:6.1f} s  {one.title}: {seen}", flush=True)
        finally:
            arena.close()
    print(f"{len(chosen) - broken} of {len(chosen)} held")
    return 1 if broken else 0


def _run(one: Attack, arena: Arena) -> tuple[str, str, float]:
    began = time.monotonic()
    try:
        seen = one.run(arena)
    except Broken as error:
        return "BROKEN", str(error), time.monotonic() - began
    except Exception as error:  # what fails for another reason has not shown that anything held
        return "FAILED", f"{type(error).__name__}: {error}", time.monotonic() - began
    return "held", seen, time.monotonic() - began


if __name__ == "__main__":
    sys.exit(main())
