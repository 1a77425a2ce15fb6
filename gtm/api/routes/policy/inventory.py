"""All resources of the policy in force at once: searched, counted, and who refers to whom. From memory."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from fastapi import Query

from gtm.api.context import Ctx, Once, OnlyManagedBy, Viewer, reply
from gtm.api.paging import NO_CURSOR, Cursor, Limit, decode_cursor, encode_cursor
from gtm.api.query import TypedResponse, strict_router
from gtm.api.schemas.base import ManagedSchema, Schema, errors, picked
from gtm.control.errors import BadRequest
from gtm.core.model.kinds import KINDS
from gtm.core.model.policy import Policy
from gtm.documents.parts import KindName
from gtm.documents.referrers import Reference, Referrers, referrers

router = strict_router(prefix="/v1", tags=["policy"])

MOST_REFERENCES = 1000
"""References that an answer lists."""
_ORDER = {kind: place for place, kind in enumerate(KINDS)}


class InventoryItem(Schema):
    """One resource."""

    kind: str
    name: str
    resource: dict[str, Any]
    """The resource's document."""
    managed_by: ManagedSchema | None
    """Who manages it; null: no tool."""


class Inventory(Schema):
    """Resources of the policy in force, by kind and name."""

    revision: int
    """The revision in force."""
    counts: dict[str, int]
    """Kind → how many there are."""
    matching: dict[str, int]
    """Kind → how many of them are found by the search."""
    items: list[InventoryItem]
    next_cursor: str | None


class RegionNamed(Schema):
    """A region, and where it is."""

    name: str
    display_name: str
    country: str | None
    lat: float
    lon: float


class Names(Schema):
    """What requests may name, by name; of each kind the first so many."""

    revision: int
    """The revision in force."""
    services: list[str]
    tenants: list[str]
    data_classes: list[str]
    models: list[str]
    """Those that some region serves."""
    regions: list[RegionNamed]
    left_out: dict[str, int]
    """Kind → how many are not listed."""


class ReferenceSchema(Schema, of=Reference):
    """A resource that refers to the one asked about."""


class References(Schema):
    """The resources that refer to a resource."""

    revision: int
    items: list[ReferenceSchema]
    left_out: int
    """References beyond the most that are listed."""


def _texts(policy: Policy) -> Sequence[tuple[str, str, str]]:
    """A policy as it is searched: each resource's kind, name, and all its text in small letters. It takes some 5 µs for each."""
    return [
        (kind, item.name, msgspec.json.encode(item).decode().casefold())
        for kind in KINDS
        for item in sorted(getattr(policy, kind), key=lambda one: one.name)
    ]


_searched: Once[Policy, Sequence[tuple[str, str, str]]] = Once(_texts)
_referring: Once[Policy, Referrers] = Once(referrers)
"""All references of a policy, which take some 4 µs for each rule."""


def ready(policy: Policy) -> None:
    """Have what is asked of a policy most."""
    _searched.of(policy)
    _referring.of(policy)


def _found(policy: Policy, search: str) -> list[tuple[str, str]]:
    words = search.casefold().split()
    return [(kind, name) for kind, name, text in _searched.of(policy) if all(word in text for word in words)]


def _behind(cursor: str | None) -> tuple[int, str]:
    """Place of the kind, and name, behind which a page begins."""
    text = decode_cursor(cursor)
    if text is None:
        return -1, ""
    kind, _, name = text.partition("/")
    if kind not in _ORDER:
        raise BadRequest(NO_CURSOR)
    return _ORDER[kind], name


@router.get("/resources", responses=errors(400))
async def search_resources(
    *,
    ctx: Ctx,
    _: Viewer,
    kind: Annotated[KindName | None, Query(description="Only of this kind.")] = None,
    search: Annotated[str, Query(max_length=200, description="Words, in any order and case.")] = "",
    managed_by: OnlyManagedBy = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> TypedResponse[Inventory]:
    """Search resources of all kinds.

    By kind, then by name. Those are found whose documents hold every word of `search`, in whatever field.
    """
    policy, revision = ctx.running().policy, ctx.present.revision
    behind = _behind(cursor)
    found = await asyncio.to_thread(_found, policy, search)
    managed = ctx.present.managed
    if managed_by is not None:
        found = [key for key in found if key in managed and managed[key].manager == managed_by]
    rest = [(one, name) for one, name in found if kind in (None, one) and (_ORDER[one], name) > behind]
    values = {
        (one, item.name): item for one in {one for one, _ in rest[:limit]} for item in getattr(policy, one)
    }
    more = encode_cursor("/".join(rest[limit - 1])) if len(rest) > limit else None
    matching = Counter(one for one, _ in found)
    return reply(
        {
            "revision": revision,
            "counts": {one: len(getattr(policy, one)) for one in KINDS},
            "matching": {one: matching[one] for one in KINDS},
            "items": [
                {
                    "kind": one,
                    "name": name,
                    "resource": values[one, name],
                    "managed_by": managed.get((one, name)),
                }
                for one, name in rest[:limit]
            ],
            "next_cursor": more,
        }
    )


@router.get("/names")
async def list_names(*, ctx: Ctx, _: Viewer, limit: Limit = 1000) -> TypedResponse[Names]:
    """What requests may name.

    Names alone, from memory: to choose from. Where regions are, for maps.
    """
    policy, revision = ctx.running().policy, ctx.present.revision
    found: dict[str, list[str]] = {
        "services": sorted(one.name for one in policy.services),
        "tenants": sorted(one.name for one in policy.tenants),
        "data_classes": sorted(one.name for one in policy.data_classes),
        "models": sorted({model for one in policy.regions for model in one.models}),
    }
    regions = sorted(policy.regions, key=lambda one: one.name)
    return reply(
        {
            "revision": revision,
            **{kind: names[:limit] for kind, names in found.items()},
            "regions": [picked(RegionNamed, one) for one in regions[:limit]],
            "left_out": {
                "regions": max(0, len(regions) - limit),
                **{kind: max(0, len(names) - limit) for kind, names in found.items()},
            },
        }
    )


@router.get("/references")
async def list_references(
    *, ctx: Ctx, _: Viewer, kind: KindName, name: Annotated[str, Query(min_length=1, max_length=253)]
) -> TypedResponse[References]:
    """What refers to a resource.

    It is answered by the policy in force, in which nothing refers to a resource that does not exist.
    """
    policy, revision = ctx.running().policy, ctx.present.revision
    found = (await asyncio.to_thread(_referring.of, policy)).get((kind, name), ())
    items = found[:MOST_REFERENCES]
    return reply({"revision": revision, "items": items, "left_out": len(found) - len(items)})
