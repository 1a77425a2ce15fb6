"""Reading jurisdictions: the shipped ones, the operators' own, and every country."""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Annotated

import msgspec
from fastapi import Query

from gtm.api.context import Ctx, OnlyManagedBy, Viewer, managed_headers, reply
from gtm.api.paging import Cursor, IfNoneMatch, Limit, decode_cursor, encode_cursor, not_modified
from gtm.api.query import TypedResponse, strict_router
from gtm.api.routes.policy.resources import READ
from gtm.api.schemas.base import ResourcePage, errors
from gtm.api.schemas.policy import JurisdictionView
from gtm.control.errors import NotFound
from gtm.control.policy import resources
from gtm.core.model.countries import COUNTRIES
from gtm.core.model.policy import Jurisdiction
from gtm.core.policy.jurisdictions import countries_at, resolve
from gtm.documents.fields import JurisdictionName
from gtm.documents.jurisdictions import (
    AdequacyDecision,
    LawNote,
    PastMembership,
    adequacy_decisions,
    law_notes,
    past_memberships,
    shipped_jurisdictions,
)
from gtm.documents.parts import derived_tag
from gtm.storage.resources import Managed
from gtm.storage.session import Database

router = strict_router(prefix="/v1/jurisdictions", tags=["jurisdictions"])


@dataclass(frozen=True, slots=True, kw_only=True)
class _View(Jurisdiction):
    """A jurisdiction with what `JurisdictionView` says beside it."""

    origin: str
    countries: tuple[str, ...]
    decisions: tuple[AdequacyDecision, ...]
    past: tuple[PastMembership, ...]
    laws: tuple[LawNote, ...]


async def _all(database: Database) -> dict[str, tuple[_View, str, Managed | None]]:
    """Name → view, entity tag and who manages it, countries included."""
    async with database.transaction() as transaction:
        stored = await transaction.jurisdictions.all()
    operators = [item.value for item in stored]
    membership, _ = resolve(shipped_jurisdictions(), operators)
    now = datetime.now(UTC).timestamp()
    members = {name: countries_at(periods, now) for name, periods in membership.items()}
    found: dict[str, tuple[_View, str, Managed | None]] = {
        code: (_view(Jurisdiction(code, members=(code,)), "country", frozenset({code})), '"shipped"', None)
        for code in COUNTRIES
    }
    for item in shipped_jurisdictions():
        found[item.name] = _view(item, "shipped", members[item.name]), '"shipped"', None
    for row in stored:
        view = _view(row.value, "operator", members[row.value.name])
        found[row.value.name] = view, resources.tag(row), row.managed
    return dict(sorted(found.items()))


def _view(item: Jurisdiction, origin: str, countries: frozenset[str]) -> _View:
    return _View(
        **{one.name: getattr(item, one.name) for one in fields(item)},
        origin=origin,
        countries=tuple(sorted(countries)),
        decisions=adequacy_decisions().get(item.name, ()) if origin == "shipped" else (),
        past=past_memberships().get(item.name, ()) if origin == "shipped" else (),
        laws=law_notes().get(item.name, ()) if origin == "country" else (),
    )


def _tag(view: _View, tag: str) -> str:
    return derived_tag(tag, msgspec.json.encode(view))


@router.get("", responses=errors(400))
async def list_jurisdictions(
    *,
    ctx: Ctx,
    _: Viewer,
    limit: Limit = 100,
    cursor: Cursor = None,
    countries: Annotated[bool, Query(description="Also every country, with notes on its law.")] = False,
    managed_by: OnlyManagedBy = None,
) -> TypedResponse[ResourcePage[JurisdictionView]]:
    """List jurisdictions, by name.

    The shipped ones (read-only) and the operators' own; every country code too, if asked for.
    """
    after = decode_cursor(cursor)
    rest = [
        (view, tag, managed)
        for view, tag, managed in (await _all(ctx.database)).values()
        if (countries or view.origin != "country")
        and (after is None or view.name > after)
        and (managed_by is None or (managed is not None and managed.manager == managed_by))
    ]
    more = encode_cursor(rest[limit - 1][0].name) if len(rest) > limit else None
    page = rest[:limit]
    managed = {view.name: held for view, _, held in page if held is not None}
    tags = {view.name: _tag(view, tag) for view, tag, _ in page}
    items = [view for view, _, _ in page]
    return reply({"items": items, "managed_by": managed, "etags": tags, "next_cursor": more})


@router.get(
    "/{name:segment}",
    responses={
        200: {"headers": READ},
        304: {"description": "It still has (one of) the entity tags in If-None-Match."},
        **errors(404),
    },
)
async def get_jurisdictions(
    ctx: Ctx, _: Viewer, name: JurisdictionName, if_none_match: IfNoneMatch = None
) -> TypedResponse[JurisdictionView]:
    """Get a jurisdiction or country.

    A jurisdiction with its members, past memberships and sources; a country counts as one.
    """
    found = (await _all(ctx.database)).get(name)
    if found is None:
        raise NotFound(f"there is no jurisdiction `{name}`")
    view, tag, managed = found
    tag, headers = _tag(view, tag), managed_headers(managed)
    return not_modified(if_none_match, tag, headers) or reply(view, headers={"ETag": tag, **headers})
