"""The history of how much is asked of edges, in Postgres."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

from gtm.control.lead.peaks import PeakKeeper
from gtm.core.demand.belief import HOUR, HOURS, WORLD, PeakBook
from gtm.core.demand.rows import Row
from gtm.storage.session import Database

NOW = 1_700_000_000.0
THIS = int(NOW // HOUR)
ROW = Row("chat", "de", "served", "lookup", "chat|real_time|de|x", "chat|DE|52.5|12.5||||real_time||")


def started(database: Database, **heirs: str) -> tuple[PeakKeeper, Any]:
    """A control process's keeper, and the book that it keeps."""
    reports: Any = SimpleNamespace(peaks=PeakBook(), successors=heirs)
    return PeakKeeper(database, reports, lambda: NOW), reports.peaks


def test_the_next_control_knows_the_last_day(database_url: str) -> None:
    """Of what two processes write the higher counts; what is older than a day goes, and what revoked tokens did."""

    async def run() -> None:
        database = Database(database_url)
        try:
            one, book = started(database, a="a", b="b")
            await one.load()
            book.add({("a", THIS): 5.0, ("b", THIS): 7.0, (WORLD, THIS): 12.0, ("a", THIS - HOURS - 2): 99.0})
            await one.save()
            other, later = started(database, a="a")
            await other.load()
            assert later.peaks() == {("a", THIS): 5.0, ("b", THIS): 7.0, (WORLD, THIS): 12.0}
            later.add({("a", THIS): 6.0})
            await other.save()
            book.add({("a", THIS - 1): 1.0})
            await one.save()
            last, found = started(database)
            await last.load()
            assert found.peaks() == {("a", THIS): 6.0, ("a", THIS - 1): 1.0, (WORLD, THIS): 12.0}
        finally:
            await database.dispose()

    asyncio.run(run())


def test_a_database_from_before_tells_what_all_asked_for(database_url: str) -> None:
    """From recorded demand: the busiest minute of each hour, over all that recorded it."""

    async def run() -> dict[tuple[str, int], float]:
        database = Database(database_url)
        try:
            async with database.transaction() as transaction:
                for minute, source, count in ((0, "x", 600.0), (0, "y", 300.0), (60, "x", 60.0)):
                    at = datetime.fromtimestamp(THIS * HOUR + minute, UTC)
                    await transaction.demand.record(at, source, {ROW: count})
            keeper, book = started(database)
            await keeper.load()
            return dict(book.peaks())
        finally:
            await database.dispose()

    assert asyncio.run(run()) == {(WORLD, THIS): 15.0}
