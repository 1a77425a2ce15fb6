"""What the keys of many signed zones cost control: `python tests/bench/keys_bench.py [--zones 1000] [--json]`.

On an embedded Postgres: making the keys, a look when nothing is due, and signing all zones anew; each with the longest time
that the event loop was held up, since feeds' heartbeats wait for that. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from pathlib import Path

from gtm.control.dnssec.keys import KeyBook
from gtm.core.model.services import Zone
from gtm.feed.wire import KeysMessage, encode
from gtm.settings import DnssecSettings
from gtm.storage import migrate
from gtm.storage.embedded import EmbeddedPostgres
from gtm.storage.session import Database

STEPS = (("make", 0.0), ("look", 60.0), ("sign anew", 86_400.0))
"""What is measured, and the seconds that pass before it."""


async def held_up(longest: list[float]) -> None:
    """Keep the longest time for which the event loop did not come round."""
    while True:
        began = time.perf_counter()
        await asyncio.sleep(0.005)
        longest[0] = max(longest[0], time.perf_counter() - began - 0.005)


async def measure(url: str, key_file: Path, zones: int) -> dict[str, object]:
    """Seconds of each step, and bytes on the feed."""
    database = Database(url)
    now = 1_800_000_000.0
    async with database.transaction() as transaction:
        for number in range(zones):
            name = f"z{number}.test"
            await transaction.resources("zones").put(Zone(name, f"ns.{name}", f"h.{name}", dnssec=True))
    book = KeyBook(database, lambda: now, DnssecSettings(key_file))
    longest = [0.0]
    watching = asyncio.create_task(held_up(longest))
    found: dict[str, object] = {"zones": zones}
    for what, passed in STEPS:
        now += passed
        longest[0], began = 0.0, time.perf_counter()
        await book.settle()
        seconds = time.perf_counter() - began
        await asyncio.sleep(0.02)
        found[what] = {"seconds": round(seconds, 3), "held_up": round(longest[0], 3)}
    found["bytes"] = round(len(encode(KeysMessage(book.keys))) / zones)
    watching.cancel()
    await database.dispose()
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--zones", type=int, default=1000)
    parser.add_argument("--json", action="store_true", help="only the last line")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gtm-keys-") as directory:
        home = Path(directory)
        with EmbeddedPostgres(home / "postgres") as server:
            migrate.upgrade(server.url)
            found = asyncio.run(measure(server.url, home / "dnssec-key", given.zones))
    if not given.json:
        for what, _ in STEPS:
            print(f"{what:10} {found[what]}")
        print(f"{found['bytes']} bytes a zone on the feed")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
