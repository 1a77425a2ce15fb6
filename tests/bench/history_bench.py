"""What the history of health costs: control's time for reports, the database's for writing and reading, and its size.

    python -m tests.bench.history_bench [REGIONS [EDGES]]

100 regions with 3 endpoints each, probed every 5 s by 20 edges that report once a second.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path

import psycopg

from gtm.control.lead.history import health as health_history
from gtm.control.lead.history.health import HealthRecorder
from gtm.core.health.history import STEP, History, Probed
from gtm.core.model.state import EndpointHealth, HealthStatus
from gtm.storage import migrate
from gtm.storage.embedded import EmbeddedPostgres
from gtm.storage.history.health import WantedChanges
from gtm.storage.session import Database

ENDPOINTS = 3
INTERVAL = 5
START = 1_800_000_000.0
CHANGES = 0.001
"""Of probes, those that change a verdict."""


def main() -> None:
    """Measure, and print."""
    regions, edges = (int(text) for text in (*sys.argv[1:], "100", "20")[:2])
    print(f"{regions} regions × {ENDPOINTS} endpoints, {edges} edges; load {os.getloadavg()[0]:.1f}")
    with (
        tempfile.TemporaryDirectory(prefix="gtm-history-") as directory,
        EmbeddedPostgres(Path(directory)) as server,
    ):
        migrate.upgrade(server.url)
        asyncio.run(_measure(server.url, regions, edges))


async def _measure(url: str, regions: int, edges: int) -> None:
    chance = random.Random(1)
    history, database = History(), Database(url)
    recorder = HealthRecorder(database, history, "bench", timedelta(days=7))
    await recorder.write(START)
    urls = [
        (f"region-{n}", f"https://region-{n}.example.com/e{e}")
        for n in range(regions)
        for e in range(ENDPOINTS)
    ]
    health: list[dict[str, dict[str, EndpointHealth]]] = [{} for _ in range(edges)]
    for table in health:
        for region, at in urls:
            table.setdefault(region, {})[at] = EndpointHealth(HealthStatus.UP, START)
    taken, writing, steps = 0.0, 0.0, 3
    for second in range(round(steps * STEP)):
        now = START + second
        for edge, table in enumerate(health):
            probed = []
            for region, at in urls[second % INTERVAL :: INTERVAL]:
                if chance.random() < CHANGES:
                    down = table[region][at].status is HealthStatus.UP
                    table[region][at] = EndpointHealth(HealthStatus.DOWN if down else HealthStatus.UP, now)
                probed.append(Probed(region, at, 5 + 20 * chance.random(), 200, ""))
            began = time.process_time()
            history.heard(f"edge-{edge}", f"edge-{edge}", table, probed, now)
            taken += time.process_time() - began
        if second % 2 == 0:
            recorder.collect(now)
            began = time.perf_counter()
            await recorder.write(now)
            writing += time.perf_counter() - began
    recorder.collect(START + steps * STEP)
    await recorder.write(START + steps * STEP)
    print(
        f"control: {1000 * taken / (steps * STEP):.1f} ms of a second of reports ({1e3 * taken / steps / STEP / edges:.2f} ms a report)"
    )
    print(f"writing: {writing / steps:.2f} s in five minutes")
    with psycopg.connect(url) as session:
        session.execute("ANALYZE")
        for name in ("health_steps", "health_changes"):
            row = session.execute(
                f"SELECT count(*), pg_total_relation_size('{name}') FROM {name}"  # noqa: S608 - names of ours
            ).fetchone()
            assert row is not None
            a_day = row[1] * 86_400 / (steps * STEP)
            print(f"{name}: {row[0] * 3600 / steps / STEP:.0f} rows an hour, {a_day / 1e6:.0f} MB a day")
    for what, asked in (
        ("steps", health_history.steps(database, None, "region-7", START, START + 86_400)),
        ("changes", health_history.changes(database, None, WantedChanges("region-7"), None, 20)),
    ):
        began = time.perf_counter()
        await asked
        print(f"reading {what} of a region: {1000 * (time.perf_counter() - began):.1f} ms")
    await database.dispose()


if __name__ == "__main__":
    main()
