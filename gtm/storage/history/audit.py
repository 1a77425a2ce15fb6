"""The audit log: who did what, when, by what, and why.

Law: entries are added, and forgotten once they are too old; nothing changes one. The database holds to that too: a trigger refuses every
update, and to delete what is younger than a day (migration 0013).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import ColumnElement, Executable, Select, Text, delete, func, insert, or_, select
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.engine import RowMapping

from gtm.core.model.access import Hands, Role
from gtm.storage import tables
from gtm.storage.repository import Repository

_LONGEST = 4000
"""Characters of a text that are kept."""
_PIECE = 3
"""Letters of a piece (migration 0019)."""
NEAR = 20_000
"""Entries that are looked through before the index is asked."""


class Via(StrEnum):
    """The way on which somebody did something: API, dashboard, command line."""

    API = "api"
    """The API, as commands use it."""
    DASHBOARD = "dashboard"
    DIRECT = "direct"
    """A command that works on the database itself (`--direct`)."""
    CONTROL = "control"
    """Control did it by itself."""


@dataclass(frozen=True, slots=True)
class Actor:
    """Who does something: a token's name or a person, their role (None: none that control knows of), and by what.

    `credential` is what they do it with (`token ID` or `session ID`), `hands` in whose that is; None: there is none.
    """

    name: str
    role: Role | None
    via: Via
    credential: str = ""
    hands: Hands | None = None


CONTROL = Actor("gtm", None, Via.CONTROL)
"""Control itself."""


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of the audit log."""

    id: int
    at: datetime
    who: str
    """A token's name, a person, or `gtm`: control itself. Empty: nobody knows."""
    role: Role | None
    via: Via
    """`api` (commands too), `dashboard`, `direct` (a command on the database itself), or `control` by itself."""
    action: str
    """A family and a verb: `policy.apply`, `region.drain`, `token.revoke`."""
    target: str
    """The thing that it was done to: a resource's kind and name, or a token."""
    revision: int | None
    """The one that it made, if it made one."""
    reason: str
    """What whoever did it gave as such."""
    detail: str
    """What else is worth knowing, in words."""
    forced: bool
    """Whether safety rules were overruled."""
    count: int
    """How often it happened: more than 1 of failed sign-ins alone."""


@dataclass(frozen=True, slots=True)
class WantedEntries:
    """Which entries are looked for; None: all.

    `who` and `target` are parts of those texts in any case, `action` is an action or a family of them. `since` is within, `until` without.
    `hidden` are families that are left out.
    """

    who: str | None = None
    action: str | None = None
    target: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    forced: bool | None = None
    hidden: Sequence[str] = ()


class AuditRepository(Repository):
    """Entries by number, which grows."""

    async def add(
        self,
        by: Actor,
        action: str,
        target: str,
        *,
        revision: int | None = None,
        reason: str = "",
        detail: str = "",
        forced: bool = False,
        count: int = 1,
    ) -> None:
        """Write down what is done in this transaction; see `Entry`. Texts that are too long are cut."""
        values = {
            "who": _cut(by.name),
            "role": by.role and by.role.value,
            "via": by.via.value,
            "action": action,
            "target": _cut(target),
            "revision": revision,
            "reason": _cut(reason),
            "detail": _cut(detail),
            "forced": forced,
            "count": count,
        }
        await self._execute(insert(tables.audit).values(values))

    async def _entries(self, query: Executable) -> list[Entry]:
        return [_entry(row) for row in await self._rows(query)]

    async def list(
        self, wanted: WantedEntries, after: int | None = None, limit: int = 100, *, oldest_first: bool = False
    ) -> list[Entry]:
        """At most `limit` entries, the newest first unless told otherwise, starting behind the number `after`."""
        number = tables.audit.c.id
        query = selected(wanted).order_by(number.asc() if oldest_first else number.desc())
        if after is not None:
            query = query.where(number > after if oldest_first else number < after)
        pieces = pieces_of(wanted)
        if not pieces:
            return await self._entries(query.limit(limit))
        # What is frequent stands among the next entries, which are looked through; what is rare is found by the index, which would take long
        # for what is frequent. The database cannot tell which is which: it takes three letters for independent of the next.
        if after is None:
            edge = select(func.min(number) if oldest_first else func.max(number))
            after = (await self._execute(edge)).scalar_one() or 0
        bound = after + NEAR if oldest_first else after - NEAR
        near = query.where(number <= bound if oldest_first else number >= bound)
        found = await self._entries(near.limit(limit))
        if len(found) < limit:
            further = query.where(number > bound if oldest_first else number < bound, *pieces)
            found += await self._entries(further.limit(limit - len(found)))
        return found

    async def forget(self, before: datetime) -> int:
        """Delete what is older; how many entries were."""
        table = tables.audit
        return (await self._execute(delete(table).where(table.c.at < before))).rowcount


def selected(wanted: WantedEntries) -> Select[Any]:
    """All of what is looked for."""
    table = tables.audit
    query = select(table)
    if wanted.who is not None:
        query = query.where(table.c.who.icontains(wanted.who, autoescape=True))
    if wanted.target is not None:
        query = query.where(table.c.target.icontains(wanted.target, autoescape=True))
    if wanted.action is not None:
        family = table.c.action.startswith(f"{wanted.action}.", autoescape=True)
        query = query.where(or_(table.c.action == wanted.action, family))
    if wanted.since is not None:
        query = query.where(table.c.at >= wanted.since)
    if wanted.until is not None:
        query = query.where(table.c.at < wanted.until)
    if wanted.forced is not None:
        query = query.where(table.c.forced == wanted.forced)
    if wanted.hidden:
        query = query.where(func.split_part(table.c.action, ".", 1).not_in(wanted.hidden))
    return query


def pieces_of(wanted: WantedEntries) -> Sequence[ColumnElement[bool]]:
    """What holds of every entry that is looked for by parts of names, and can be found by an index. Of a part of two letters, nothing."""
    parts = ((tables.audit.c.who, wanted.who), (tables.audit.c.target, wanted.target))
    return [
        func.audit_pieces(column, type_=ARRAY(Text)).contains(func.audit_pieces(part, type_=ARRAY(Text)))
        for column, part in parts
        if part is not None and len(part) >= _PIECE
    ]


def _cut(text: str) -> str:
    """What Postgres can hold of a text, and a person read."""
    clean = text.replace("\0", "").encode(errors="replace").decode()
    return clean if len(clean) <= _LONGEST else f"{clean[: _LONGEST - 1]}…"


def _entry(row: RowMapping) -> Entry:
    role = row["role"]
    return Entry(**{**row, "role": role and Role(role), "via": Via(row["via"])})
