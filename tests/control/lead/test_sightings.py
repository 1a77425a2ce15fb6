"""Which edges are written down, for the other control replicas and the next start."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import psycopg
import pytest

from gtm.control.lead import edges
from gtm.control.lead.vantages import Vantages
from gtm.feed.reports import EdgeReport
from gtm.storage.session import Database


class _Looked(Vantages):
    """Counts how often somebody asked which edges there are."""

    looks = 0

    def all(self) -> list[edges.LiveEdge]:
        self.looks += 1
        return super().all()


def test_an_edge_that_fell_silent_is_written_once(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """After its last report its row stays as it is, however often control looks."""
    monkeypatch.setattr(edges, "RECORD_EVERY", 0.01)
    now = [2e9]
    vantages = _Looked(lambda: now[0], lambda: now[0])

    def row() -> tuple[object, ...] | None:
        url = database_url.replace("postgresql+psycopg", "postgresql")
        with psycopg.connect(url) as session:
            return session.execute("SELECT last_seen, xmin FROM edges").fetchone()

    async def looked() -> None:
        before = vantages.looks
        while vantages.looks < before + 3:  # noqa: ASYNC110 - what was begun before is written then
            await asyncio.sleep(0.001)

    async def main() -> None:
        database = Database(database_url)
        task = asyncio.create_task(edges.Sightings(database, vantages).run())
        found = []
        for _ in range(3):
            now[0] += 5
            vantages.take("t", "fra-1", "192.0.2.1", EdgeReport("1", 1, 1, {}))
            await looked()
            found.append(row())
        await looked()
        assert row() == found[-1]
        assert len(set(found)) == 3
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        await database.dispose()

    asyncio.run(main())
