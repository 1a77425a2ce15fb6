"""What each edge last reported: the source of the in-sync view."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import select

from gtm.storage import tables
from gtm.storage.repository import Repository, upsert


@dataclass(frozen=True, slots=True)
class EdgeSighting:
    """One edge's word of itself at `seen_at`, as control heard it."""

    name: str
    version: str
    address: str
    revision_applied: int
    epoch_applied: int
    seen_at: datetime
    country: str | None = None
    operator_country: str | None = None
    handoff_keys: tuple[str, ...] = ()
    handoff_token: str = ""


@dataclass(frozen=True, slots=True)
class StoredEdge:
    """An edge as last heard of by any control replica."""

    name: str
    version: str
    address: str
    first_seen: datetime
    last_seen: datetime
    revision_applied: int
    epoch_applied: int
    country: str | None
    operator_country: str | None
    handoff_keys: list[str]
    handoff_token: str


class EdgeRepository(Repository):
    """Edges by name."""

    async def record(self, sightings: Iterable[EdgeSighting]) -> None:
        """Store sightings, the latest of each edge; one that is older than what is stored changes nothing."""
        latest: dict[str, EdgeSighting] = {}
        for sighting in sightings:
            known = latest.get(sighting.name)
            if known is None or known.seen_at <= sighting.seen_at:
                latest[sighting.name] = sighting
        # By name, so that two replicas that write the same edges never wait for each other in a circle.
        changing = (c.name for c in tables.edges.columns if c.name not in {"name", "first_seen"})
        query = upsert(tables.edges, *changing, newer="last_seen")
        await self._write(query, [_row(latest[name]) for name in sorted(latest)])

    async def list(self) -> list[StoredEdge]:
        """Every edge by name."""
        query = select(tables.edges).order_by(tables.edges.c.name)
        return [StoredEdge(**row) for row in await self._rows(query)]

    async def forget(self, name: str) -> None:
        """Delete an edge, if it is there."""
        await self._execute(tables.edges.delete().where(tables.edges.c.name == name))


def _row(sighting: EdgeSighting) -> dict[str, Any]:
    row = asdict(sighting)
    seen_at = row.pop("seen_at")
    return {**row, "handoff_keys": list(sighting.handoff_keys), "first_seen": seen_at, "last_seen": seen_at}
