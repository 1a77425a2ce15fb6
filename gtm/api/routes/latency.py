"""What was measured of round trips, and what is estimated from it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import Query
from pydantic import Field

from gtm.api.context import Context, Ctx, Operator, Viewer, reply
from gtm.api.query import TypedResponse, strict_router
from gtm.api.schemas.base import Schema, errors, picked
from gtm.control.errors import BadRequest, NotFound
from gtm.control.lead.latency import LatencyBook, Measured, RegionEstimate
from gtm.core.latency.doubt import Disputed
from gtm.core.latency.samples import Level
from gtm.core.latency.squares import Source
from gtm.core.model.requests import Location
from gtm.documents import fields
from gtm.geoip.centres import country_centres

router = strict_router(prefix="/v1", tags=["latency"])


class MeasuredSchema(Schema):
    """What was measured of one region at one level of the client's location."""

    level: Level
    key: str
    """The network, the operator and country, the country, or the place (whole degrees)."""
    residual_ms: float
    """Measured less what the geographic model says."""
    spread_ms: float
    samples: float
    """As they count now: older ones count less."""
    sources: int
    """How many different networks they came from, at least (at most 63 are told apart)."""
    published: bool
    """Whether the edges estimate with it; it takes some samples and sources to be."""


class EstimateSchema(Schema, of=RegionEstimate):
    """The round trip to one region; null where the client has no coordinates."""

    source: Source | None
    """The finest level of knowledge in the estimate."""
    measured: list[MeasuredSchema]


class ClientLocationSchema(Schema):
    """The client's location, as the location database has it."""

    country: str | None
    lat: float | None
    lon: float | None
    asn: int | None
    network: str | None
    doubtful: bool
    """Measured round trips contradict it: the client is somewhere else."""


class EstimatesSchema(Schema):
    """Estimates for one client, nearest first."""

    location: ClientLocationSchema
    regions: list[EstimateSchema]


class RowsSchema(Schema):
    """Rows of the table, by level: `region` counts pairs of regions that measured each other."""

    region: int
    network: int
    asn: int
    country: int
    place: int


class DisputedSchema(Schema):
    """A network that is not where the location database claims, by the round trips that balancers measured."""

    network: str
    country: str | None
    """The country that its reporters claim."""
    place: str
    """The place that its reporters claim, in whole degrees."""
    doubtful: bool
    """By enough votes: rules and estimates no longer believe the location."""
    reporters: list[str]
    """Whose votes count: the first 16 hexadecimal digits of the SHA-256 of their tokens."""
    edges: list[str]
    """Through whose tokens they came."""
    fastest_ms: dict[str, float]
    """The quickest round trip to each region that light could not have made from the claimed place."""


class DoubtsSchema(Schema):
    """Claimed locations that measurements contradict."""

    votes: int
    """The number of reporters that have to agree."""
    doubtful: int
    disputed: list[DisputedSchema]
    """The doubtful ones first."""
    set_aside: list[str]
    """Reporters that dispute too much to have a vote."""


class LatencyView(Schema):
    """The table of measured round trips that the edges estimate with."""

    version: int
    """It grows with every change; 0: nothing was measured yet."""
    half_life: float
    """Seconds after which a sample counts half."""
    rows: RowsSchema
    doubts: DoubtsSchema
    estimates: EstimatesSchema | None
    """Only if a client, a country or coordinates are given."""


@router.get("/latency")
async def get_latency(
    ctx: Ctx,
    _: Viewer,
    client: Annotated[str | None, Query(max_length=64, description="An IP address.")] = None,
    country: Annotated[
        str | None, Query(pattern="^[A-Z]{2}$", description="ISO 3166-1 alpha-2; its middle stands for it.")
    ] = None,
    lat: Annotated[float | None, Query(ge=-90, le=90, description="Degrees; with `lon`.")] = None,
    lon: Annotated[float | None, Query(ge=-180, le=180, description="Degrees; with `lat`.")] = None,
) -> TypedResponse[LatencyView]:
    """Measured round trips, and estimates for a client.

    For the client at an address, in a country, or at coordinates: the estimated round trip to every region, what it rests on, and what was
    measured. Answered from memory, also while the database is down.
    """
    book, table = ctx.leading().latency, ctx.present.table
    location = await asyncio.to_thread(_location, ctx, client, country, lat, lon)
    estimates = None
    if location is not None:
        found = await asyncio.to_thread(book.estimates, ctx.present.policy.regions, table, location)
        found.sort(key=lambda one: (one.rtt_ms is None, one.rtt_ms or 0.0, one.region))
        doubtful = table.doubt(location) is not None
        estimates = {
            "location": picked(ClientLocationSchema, location, doubtful=doubtful),
            "regions": [
                picked(EstimateSchema, one, measured=[*map(_measured, one.measured)]) for one in found
            ],
        }
    return reply(
        {
            "version": table.version,
            "half_life": book.settings.half_life,
            "rows": {
                "region": sum(map(len, table.mutual.values())),
                "network": len(table.networks),
                "asn": len(table.asns),
                "country": len(table.countries),
                "place": len(table.places),
            },
            "doubts": _doubts(book, {token.id: token.name for token in ctx.present.tokens.values()}),
            "estimates": estimates,
        }
    )


class ForgetSchema(Schema):
    """The token whose word is no longer believed."""

    token: str = Field(pattern=fields.NAME_PATTERN)
    """The name of a token of role `edge`, `balancer` or `reporter`."""


@router.post("/latency:forget", responses=errors(404))
async def forget_latency(ctx: Ctx, who: Operator, body: ForgetSchema) -> TypedResponse[None]:
    """Forget what a token taught of round trips.

    What its edges or balancers measured, and the locations that they dispute, leave the next table. A token that is revoked is forgotten by
    itself; this is for one that goes on, because it was wrong for a while.
    """
    book = ctx.leading().latency
    ids = {token.id for token in ctx.present.tokens.values() if token.name == body.token}
    if not ids:
        raise NotFound(f"there is no token `{body.token}`")
    async with ctx.database.transaction() as transaction:
        await transaction.audit.add(who.actor, "latency.forget", f"token {body.token}")
    await book.forget(ids)
    return TypedResponse(status_code=204)


def _location(
    ctx: Context, client: str | None, country: str | None, lat: float | None, lon: float | None
) -> Location | None:
    """Where the client asked about is; None if none is.

    Raises:
        BadRequest: the parameters say nothing, or too much.
    """
    if (lat is None) is not (lon is None):
        raise BadRequest("`lat` and `lon` belong together")
    if client is not None:
        if country is not None or lat is not None:
            raise BadRequest("`client` says where the client is: leave out `country`, `lat` and `lon`")
        try:
            return ctx.locate(client)
        except ValueError as error:
            raise BadRequest(f"`client`: {error}") from error
    if country is not None and lat is None:
        centre = country_centres().get(country)
        if centre is None:
            raise BadRequest(f"`country`: `{country}` is not an ISO 3166-1 alpha-2 code")
        lat, lon = centre
    return None if lat is None else Location(country=country, lat=lat, lon=lon)


def _doubts(book: LatencyBook, names: Mapping[str, str]) -> dict[str, Any]:
    return {
        "votes": book.doubt_settings.votes,
        "doubtful": sum(one.doubt.doubtful for one in book.disputed),
        "disputed": [_disputed(one, names) for one in book.disputed],
        "set_aside": sorted(book.set_aside),
    }


def _disputed(found: Disputed, names: Mapping[str, str]) -> dict[str, Any]:
    country, _, place = found.doubt.claim.partition("|")
    return {
        "network": found.network,
        "country": country or None,
        "place": place,
        "doubtful": found.doubt.doubtful,
        "reporters": sorted(found.reporters),
        "edges": sorted(names.get(token, token) for token in found.edges),
        "fastest_ms": dict(sorted(found.doubt.fastest.items())),
    }


def _measured(found: Measured) -> dict[str, Any]:
    return {
        "level": found.sum.level,
        "key": found.sum.key,
        "residual_ms": round(found.sum.mean, 1),
        "spread_ms": round(found.sum.spread, 1),
        "samples": round(found.sum.weight, 1),
        "sources": found.sum.sources.bit_count(),
        "published": found.published,
    }
