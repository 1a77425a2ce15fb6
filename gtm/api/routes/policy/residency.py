"""Who may be served where, by which rules: now, as time goes by, and had rules that only watch been enforced."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from itertools import islice
from typing import Annotated, Any

from fastapi import Query

from gtm.api.context import Ctx, Once, Viewer, reply
from gtm.api.paging import Cursor, decode_cursor, encode_cursor
from gtm.api.query import (
    Since,
    TypedResponse,
    strict_router,
)
from gtm.api.schemas.base import Schema, errors, picked
from gtm.api.schemas.policy import AdequacySchema
from gtm.control.errors import BadRequest, NotFound
from gtm.control.policy.traffic import since_now, watched
from gtm.core.demand.cells import Cell
from gtm.core.findings.calendar import Cause, Event, FenceChange, What, causes, coming
from gtm.core.findings.coverage import UNKNOWN
from gtm.core.findings.matrix import (
    Column,
    Inquiry,
    Matrix,
    MatrixPart,
    clients_named,
    column,
    columns,
    unruled,
)
from gtm.core.findings.monitored import Watched, monitored, watching
from gtm.core.model.policy import RuleMode
from gtm.core.model.requests import Request
from gtm.core.policy.snapshot import CompiledService, Snapshot
from gtm.documents import fields
from gtm.documents.jurisdictions import adequacy_decisions


class ClientsKind(StrEnum):
    """The kind of clients that a column of the matrix is about."""

    JURISDICTION = "jurisdiction"
    OTHERS = "others"
    UNKNOWN = "unknown"


class ClientsSchema(Schema):
    """A column: clients of a jurisdiction, of all countries that no other column has, or such as nobody can locate."""

    kind: ClientsKind
    name: str | None
    """The jurisdiction's, or the country's."""
    countries: list[str]


class CellPart(Schema):
    """Clients of a column that are alike."""

    countries: list[str] | None
    """Null: all of the column."""
    regions: list[str]
    """Those that may serve them; none: they are refused."""
    rules: list[str]
    """Enforced rules that concern them; none: any of the service's regions may serve them."""
    rules_left_out: int


class MatrixRow(Schema):
    """A service."""

    service: str
    members: list[str]
    """All its regions."""
    cells: list[list[CellPart]]
    """One for each column, in their order."""


class UnruledService(Schema):
    """A service that no enforced rule concerns."""

    service: str
    monitored: bool
    """Rules in monitor mode watch it."""


class UnruledSchema(Schema):
    """All of them: the first by the policy's order."""

    count: int
    services: list[UnruledService]


class MatrixView(Schema):
    """The regions in which each kind of clients may be served."""

    revision: int
    at: float
    """The time that the matrix is of, in POSIX seconds."""
    tenant: str | None
    data_class: str | None
    clients: list[ClientsSchema]
    clients_left_out: int
    """Jurisdictions that rules name beyond these: ask for one by `client`."""
    items: list[MatrixRow]
    services: int
    """How many there are, on all pages."""
    next_cursor: str | None
    unruled: UnruledSchema


class CauseSchema(Schema, of=Cause):
    """A rule, a membership or an adequacy decision that begins or ends."""

    rules_left_out: int
    decisions: list[AdequacySchema]
    """The adequacy decisions that lapse."""


class ChangeSchema(Schema):
    """What it changes for clients in some countries."""

    services: list[str]
    countries: list[str]
    unknown: bool
    """For clients that nobody can locate, too."""
    before: list[str]
    after: list[str]
    """Regions that may serve them from then on; none: they are refused."""


class EventSchema(Schema, of=Event):
    """A moment."""

    at: datetime
    changes: list[ChangeSchema]


class CalendarView(Schema):
    """What begins and ends by itself, the next first."""

    revision: int
    at: float
    """POSIX seconds, after which it comes."""
    items: list[EventSchema]
    left_out: int
    """Moments beyond the limit."""


class RefusedCountry(Schema):
    """Requests that a rule would have refused; a country of null: of unknown location, or of subnets in several."""

    country: str | None
    refused: float


class MonitoredRule(Schema):
    """A rule in monitor mode. Counts are of requests."""

    rule: str
    legal_basis: str
    effective_from: datetime | None
    effective_until: datetime | None
    concerned: float
    narrowed: float
    """Would have lost some of the regions that other rules leave them."""
    refused: float
    """Would have lost all."""
    countries: list[RefusedCountry]
    """Whose requests would have been refused, the most first."""


class MonitoredView(Schema):
    """Rules in monitor mode."""

    revision: int
    since: datetime
    seconds: float
    """How long demand was recorded since then; 0: never, and nothing is known."""
    requests: float
    items: list[MonitoredRule]


router = strict_router(prefix="/v1/residency", tags=["residency"])

MOST_RULES = 20
"""Rules that a cell names."""
MOST_COLUMNS = 8
MOST_UNRULED = 100
"""Services without a rule that are named."""
MOST_SERVICES = 10
"""Of a moment, the services whose fences are compared."""
_FAR = timedelta(days=36_525)
_SLACK = timedelta(minutes=1)
"""A moment just past is now, by another clock."""

_causes = Once(causes)
_named = Once(clients_named)
_monitors: Once[Snapshot, bool] = Once(
    lambda snapshot: any(rule.mode is RuleMode.MONITOR for rule in snapshot.policy.residency_rules)
)


def ready(snapshot: Snapshot) -> None:
    """Have what takes long of a policy with many rules."""
    for part in (_causes, _named, _monitors):
        part.of(snapshot)


At = Annotated[fields.Moment | None, Query(description="When: now (left out), or later.")]
Tenant = Annotated[
    fields.Name | None,
    Query(description="What requests state; left out: none, so that every rule about tenants counts."),
]
DataClass = Annotated[
    fields.Name | None,
    Query(
        description="The data class that requests state; left out: none, so that every rule about data classes counts."
    ),
]


@router.get(
    "",
    description="By the enforced rules of the policy in force, for clients whose country is certain. Columns are the jurisdictions "
    f"that rules name for their clients ({MOST_COLUMNS} at most, those that most rules name first), or the one asked for; then all other countries, and clients that nobody can locate. "
    "Which of these regions is up or has room is no matter of this.",
    responses=errors(404),
)
async def get_residency(
    *,
    ctx: Ctx,
    _: Viewer,
    at: At = None,
    tenant: Tenant = None,
    data_class: DataClass = None,
    client: Annotated[
        fields.JurisdictionName | None, Query(description="A jurisdiction or country: the only column.")
    ] = None,
    service: Annotated[
        str | None, Query(max_length=63, description="Only services whose names begin so.")
    ] = None,
    limit: Annotated[int, Query(ge=1, le=100, description="Most services in the answer.")] = 20,
    cursor: Cursor = None,
) -> TypedResponse[MatrixView]:
    """Services by jurisdictions of clients: who may serve them, and by which rules."""
    snapshot = ctx.running()
    asked = _asked(snapshot, at, tenant, data_class)
    if client is not None and client not in snapshot.jurisdictions:
        raise NotFound(f"there is no jurisdiction or country `{client}`")
    names = sorted(name for name in snapshot.services if name.startswith(service or ""))
    after = decode_cursor(cursor)
    rest = [name for name in names if after is None or name > after]
    found = await asyncio.to_thread(_matrix, snapshot, asked, client, rest[:limit])
    more = encode_cursor(rest[limit - 1]) if len(rest) > limit else None
    return reply({**found, "services": len(names), "next_cursor": more})


@router.get(
    "/calendar",
    description=f"The next first. At each, the fences of up to {MOST_SERVICES} services just before and from then on are compared. "
    "Memberships are those of all jurisdictions, also such as no rule names.",
    responses=errors(404),
)
async def get_residency_calendar(
    *,
    ctx: Ctx,
    _: Viewer,
    at: At = None,
    tenant: Tenant = None,
    data_class: DataClass = None,
    limit: Annotated[int, Query(ge=1, le=100, description="Most moments in the answer.")] = 20,
) -> TypedResponse[CalendarView]:
    """Rules and memberships that begin or end, and what each such moment changes."""
    snapshot = ctx.running()
    asked = _asked(snapshot, at, tenant, data_class)
    events, left = await asyncio.to_thread(
        lambda: coming(snapshot, _causes.of(snapshot), asked, most=limit, services=MOST_SERVICES)
    )
    items = [_event(snapshot, one) for one in events]
    return reply({"revision": snapshot.revision, "at": asked.now, "items": items, "left_out": left})


@router.get("/monitored")
async def get_monitored_rules(
    *,
    ctx: Ctx,
    _: Viewer,
    since: Since = None,
) -> TypedResponse[MonitoredView]:
    """Rules in monitor mode, and what each would have refused.

    Recorded demand, judged by the policy in force as of now, with each of the rules enforced by itself. A request is narrowed if it would
    have lost some of its regions, and refused if it would have lost all. Rules that would have been about nothing are there too.
    """
    snapshot, now = ctx.running(), time.time()
    begin, end = since_now(since, now)
    if not timedelta(0) < end - begin <= timedelta(days=3660):
        raise BadRequest("`since` must be in the past, by ten years at most")
    cells, seconds, requests = dict[str, float](), 0.0, 0.0
    if _monitors.of(snapshot):
        cells, seconds, requests = await watched(ctx.database, begin, end, watching(snapshot, now))
    found = await asyncio.to_thread(lambda: monitored(snapshot, now, _requests(cells)))
    return reply(
        {
            "revision": snapshot.revision,
            "since": begin,
            "seconds": seconds,
            "requests": requests,
            "items": [_watched(one) for one in found],
        }
    )


def _asked(snapshot: Snapshot, at: datetime | None, tenant: str | None, data_class: str | None) -> Inquiry:
    now = datetime.now(UTC)
    if at is not None and at < now - _SLACK:
        raise BadRequest(
            "`at` must not be in the past: the policy in force does not hold the law of past days; ask "
            "POST /v1/route:explain with `at` (gtm explain --at) about one request then"
        )
    if at is not None and at > now + _FAR:
        raise BadRequest("`at` is more than a hundred years away: nobody knows the law of then")
    for what, name, known in (
        ("tenant", tenant, snapshot.tenants),
        ("data class", data_class, snapshot.data_classes),
    ):
        if name is not None and name not in known:
            raise NotFound(f"there is no {what} `{name}`")
    return Inquiry((now if at is None else at).timestamp(), tenant, data_class)


def _matrix(snapshot: Snapshot, asked: Inquiry, client: str | None, names: Iterable[str]) -> dict[str, Any]:
    if client is None:
        clients, left_out = columns(snapshot, _named.of(snapshot), asked.now, MOST_COLUMNS)
    else:
        clients, left_out = [column(snapshot, client, asked.now)], 0
    matrix = Matrix(asked)
    free = list(unruled(snapshot, asked.now))
    return {
        "revision": snapshot.revision,
        "at": asked.now,
        "tenant": asked.tenant,
        "data_class": asked.data_class,
        "clients": [_clients(one) for one in clients],
        "clients_left_out": left_out,
        "items": [_row(snapshot, matrix, snapshot.services[name], clients) for name in names],
        "unruled": {
            "count": len(free),
            "services": [{"service": name, "monitored": watched} for name, watched in free[:MOST_UNRULED]],
        },
    }


def _clients(one: Column) -> dict[str, Any]:
    kind = "jurisdiction" if one.name else "unknown" if UNKNOWN in one.countries else "others"
    return {"kind": kind, "name": one.name or None, "countries": _countries(one.countries)}


def _row(
    snapshot: Snapshot, matrix: Matrix, service: CompiledService, clients: Iterable[Column]
) -> dict[str, Any]:
    return {
        "service": service.service.name,
        "members": snapshot.names(service.mask),
        "cells": [[_part(snapshot, part, one) for part in matrix.cell(service, one)] for one in clients],
    }


def _part(snapshot: Snapshot, part: MatrixPart, clients: Column) -> dict[str, Any]:
    return {
        "countries": None if part.countries == clients.countries else _countries(part.countries),
        "regions": snapshot.names(part.allowed),
        "rules": part.rules[:MOST_RULES],
        "rules_left_out": max(0, len(part.rules) - MOST_RULES),
    }


def _countries(countries: Iterable[str]) -> list[str]:
    return sorted(country for country in countries if country != UNKNOWN)


def _event(snapshot: Snapshot, event: Event) -> dict[str, Any]:
    return {
        "at": datetime.fromtimestamp(event.at, UTC),
        "causes": [_cause(event.at, one) for one in event.causes],
        "changes": [_change(snapshot, one) for one in event.changes],
        "left_out": event.left_out,
    }


def _cause(moment: float, cause: Cause) -> dict[str, Any]:
    decisions = []
    if cause.what is What.MEMBERSHIP_ENDS:
        day = datetime.fromtimestamp(moment, UTC).date().isoformat()
        decisions = [
            one
            for one in adequacy_decisions().get(cause.name, ())
            if one.country in cause.countries and str(one.until) == day
        ]
    left_out = max(0, len(cause.rules) - MOST_RULES)
    return picked(
        CauseSchema, cause, rules=cause.rules[:MOST_RULES], rules_left_out=left_out, decisions=decisions
    )


def _change(snapshot: Snapshot, change: FenceChange) -> dict[str, Any]:
    return {
        "services": change.services,
        "countries": _countries(change.countries),
        "unknown": UNKNOWN in change.countries,
        "before": snapshot.names(change.before),
        "after": snapshot.names(change.after),
    }


def _requests(cells: Mapping[str, float]) -> Iterator[tuple[Request, float]]:
    for text, count in cells.items():
        with suppress(ValueError):  # no cell any more
            yield Cell.parse(text).request, count


def _watched(one: Watched) -> dict[str, Any]:
    rule = one.rule
    largest: Mapping[str, float] = dict(
        islice(sorted(one.countries.items(), key=lambda pair: (-pair[1], pair[0])), 20)
    )
    countries = [{"country": country or None, "refused": count} for country, count in largest.items()]
    lasting = {name: getattr(rule, name) for name in ("legal_basis", "effective_from", "effective_until")}
    return picked(MonitoredRule, one, rule=rule.name, countries=countries, **lasting)
