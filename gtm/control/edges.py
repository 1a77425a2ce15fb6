"""Which edges answer from which revision: PENDING until every edge that is alive has the current one."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from gtm.control.publish import MAX_AGE, FeedHub
from gtm.storage.errors import StorageUnavailable
from gtm.storage.session import Database


class SyncState(StrEnum):
    """Whether a revision is in force everywhere. Without any live edge it is in force nowhere, hence pending."""

    PENDING = "PENDING"
    IN_SYNC = "IN_SYNC"


@dataclass(frozen=True, slots=True)
class EdgeView:
    """An edge. `live`: heard of within the last 10 seconds, by any control replica."""

    name: str
    version: str
    address: str
    revision: int
    epoch: int
    last_seen: datetime
    live: bool


@dataclass(frozen=True, slots=True)
class Sync:
    """How far a revision has got: names of live edges that have it, of those that do not yet, and of those unheard of."""

    revision: int
    state: SyncState
    in_sync: tuple[str, ...]
    pending: tuple[str, ...]
    unreachable: tuple[str, ...]


async def list_all(database: Database, hub: FeedHub, now: datetime) -> list[EdgeView]:
    """Every edge known, by name; from memory alone while the database is down."""
    found: dict[str, EdgeView] = {}
    try:
        async with database.transaction() as transaction:
            stored = await transaction.edges.list()
    except StorageUnavailable:
        stored = []
    for edge in stored:
        live = now - edge.last_seen <= timedelta(seconds=MAX_AGE)
        found[edge.name] = EdgeView(
            edge.name,
            edge.version,
            edge.address,
            edge.revision_applied,
            edge.epoch_applied,
            edge.last_seen,
            live,
        )
    for name, heard in hub.edges().items():
        known = found.get(name)
        if known is None or known.last_seen <= heard.seen_at:
            report = heard.report
            found[name] = EdgeView(
                name, report.version, heard.address, report.revision, report.epoch, heard.seen_at, live=True
            )
    return [found[name] for name in sorted(found)]


async def sync(database: Database, hub: FeedHub, revision: int) -> Sync:
    """How far a revision has got. An edge that already has a later one counts as having it."""
    edges = await list_all(database, hub, datetime.now(UTC))
    live = [edge for edge in edges if edge.live]
    having = tuple(edge.name for edge in live if edge.revision >= revision)
    lacking = tuple(edge.name for edge in live if edge.revision < revision)
    state = SyncState.IN_SYNC if having and not lacking else SyncState.PENDING
    return Sync(revision, state, having, lacking, tuple(edge.name for edge in edges if not edge.live))
