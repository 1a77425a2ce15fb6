"""Lists of regions for proxies of other makes (`gtm export --for`)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import replace
from math import isinf
from time import time
from typing import Annotated, Any

from fastapi import Query
from pydantic.json_schema import SkipJsonSchema

from gtm.api.context import Ctx, Viewer, reply
from gtm.api.query import TypedResponse, strict_router
from gtm.api.schemas.base import Schema
from gtm.control.errors import Unavailable
from gtm.core.decision.lists import EVERYWHERE, listed
from gtm.core.decision.ranking import RankingClass
from gtm.core.decision.router import Router
from gtm.core.decision.view import View, Window, law_lasts, view_of
from gtm.core.model.lists import ListedRegion
from gtm.core.model.requests import Location, Request
from gtm.documents import fields
from gtm.documents.places import stated_location

router = strict_router(prefix="/v1", tags=["plan"])


class ListedEndpoint(Schema):
    """An endpoint that is up."""

    url: str
    ipv4: list[str]
    """Of its addresses, those that are up."""
    ipv6: list[str]


class ListedRegionSchema(Schema, of=ListedRegion):
    """A region that such requests may be sent to now."""

    endpoints: list[ListedEndpoint]


class ListSchema(Schema):
    """Where requests of a service and data class may go."""

    service: str
    data_class: str | None
    """Null: requests of all classes, so that their fence is the intersection of those of all."""
    holds_for: float | None
    """For how many seconds it may be gone by while control says nothing newer: until a rule begins to restrict, or the policy is older
    than a rule accepts. Null: no rule bounds it."""
    regions: list[ListedRegionSchema]
    """In order of preference; none: all such requests are refused."""


class ListsView(Schema):
    """Where requests may go, by service and data class."""

    revision: int
    epoch: int
    lists: list[ListSchema]


@router.get("/lists")
async def get_lists(
    ctx: Ctx,
    _: Viewer,
    service: Annotated[
        fields.Name | SkipJsonSchema[None], Query(description="Only this service; left out: all.")
    ] = None,
    country: Annotated[
        fields.CountryCode | SkipJsonSchema[None],
        Query(
            description="Where the clients are; left out: anywhere, so that the fence is the intersection of those of all places."
        ),
    ] = None,
) -> TypedResponse[ListsView]:
    """The regions that requests may be sent to, for proxies that choose by themselves.

    What a decision could answer for such requests, by the same function, with health and plan as they are now: never a region outside of
    the fence. For each service a list of each data class, and one of requests of all of them. 503: no edge says what is up.
    """
    snapshot, present, active = ctx.running(), ctx.present, ctx.leading()
    if not active.reports.vantages.live():
        # Else a list would be empty, and stop what goes on, where nothing but word of health is missing.
        raise Unavailable("no edge has reported the health of regions within the last seconds: try again")
    state, now = replace(present.state, health=active.health), time()
    where = EVERYWHERE if country is None else stated_location(country, None, None)

    def made() -> dict[str, Any]:
        view = view_of(snapshot, state, Window(now, now), present.table)
        names = [name for name in snapshot.services if service in (None, name)]
        return {
            "revision": snapshot.revision,
            "epoch": state.epoch,
            "lists": list(_lists(view, names, where)),
        }

    return reply(await asyncio.to_thread(made))


def _lists(view: View, services: Iterable[str], where: Location) -> Iterator[dict[str, Any]]:
    deciding = Router(view)
    for service in services:
        left = law_lasts(view.snapshot, service, view.window, endings=False)
        known: dict[RankingClass, list[dict[str, Any]]] = {}  # most data classes are ranked alike
        for data_class in (None, *sorted(view.snapshot.data_classes)):
            routing = deciding.routing(Request(service, where, data_class=data_class))
            group = routing.ranking.group
            if group not in known:
                known[group] = list(map(_region, listed(routing)))
            yield {
                "service": service,
                "data_class": data_class,
                "holds_for": None if isinf(left) else left,
                "regions": known[group],
            }


def _region(one: ListedRegion) -> dict[str, Any]:
    endpoints = [{"url": end.url, "ipv4": list(end.ipv4), "ipv6": list(end.ipv6)} for end in one.endpoints]
    return {"region": one.region, "share": one.share, "standby": one.standby, "endpoints": endpoints}
