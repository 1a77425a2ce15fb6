"""What pages cost that look back: a past for `dashboard_bench`, and their addresses.

A week and a day of the plan's history by region, in an order in which minutes come; and a million entries of the audit log, of which a name stands in ten.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from sqlalchemy import text

from gtm.core.plan.history import RegionMinute
from gtm.storage.session import Database

PLAN = ("/plan/history?over=1h", "/plan/history?over=24h", "/plan/history?over=7d")
AUDIT = (
    "/access/audit",
    "/access/audit?who=rare-person",
    "/access/audit?target=rare-region",
    "/access/audit?who=nobody-at-all",
    "/access/audit?who=team-7",
    "/access/audit?action=region&target=region-77",
)
_PLAN_MINUTES = """
INSERT INTO plan_minutes (minute, region, samples, demand, planned, away, refused, use, price_ms, exhausted)
SELECT minute, 'r' || region, 12, 100 * random(), 90 * random(), 10 * random(), random(), CASE WHEN region % 10 > 0 THEN random() END, 50 * random(), random()
FROM generate_series(CAST(:since AS timestamptz), CAST(:until AS timestamptz), interval '1 minute') AS minute, generate_series(0, :last) AS region
ON CONFLICT DO NOTHING
"""
_ENTRIES = """
INSERT INTO audit (at, who, role, via, action, target, revision, reason, detail, forced, count)
SELECT now() - interval '1 second' * (:rows - n), CASE WHEN n % (:rows / 10) = 77 THEN 'rare-person@example.com' ELSE 'team-' || n % 300 || '@example.com' END,
  'operator', 'api', (ARRAY['policy.apply', 'region.drain', 'region.activate', 'service.put', 'token.rotate'])[1 + n % 5],
  CASE WHEN n % (:rows / 10) = 78 THEN 'region/rare-region-' || n ELSE 'region/region-' || n % 100 || ', service/service-' || n % 1000 END,
  n, 'as agreed', '', n % 100 = 0, 1
FROM generate_series(1, :rows) AS n
"""


async def record_plans(url: str, regions: int) -> None:
    """A week and a day."""
    until = datetime.now(UTC).replace(second=0, microsecond=0) - timedelta(minutes=1)
    since = until - timedelta(days=8)
    database = Database(url)
    async with database.transaction() as tx:
        await tx.plans.record(since, {"r0": RegionMinute(12, 1.0, 1.0, 0.0, 0.0, None, 0.0, 0.0)})
        await tx.connection.execute(
            text(_PLAN_MINUTES), {"since": since, "until": until, "last": regions - 1}
        )
        if hasattr(tx.plans, "sum_up"):  # a version before has no sums
            await tx.plans.sum_up(until)
    async with database.transaction() as tx:
        await tx.connection.execute(text("ANALYZE"))
    await database.dispose()


async def record_audit(url: str, rows: int) -> None:
    """Entries of twelve days, one a second."""
    database = Database(url)
    async with database.transaction() as tx:
        await tx.connection.execute(text(_ENTRIES), {"rows": rows})
    async with database.transaction() as tx:
        await tx.connection.execute(text("ANALYZE audit"))
    await database.dispose()
