"""Record sets of a zone that ACME clients write one by one: answers to DNS-01 challenges."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import Path, Query
from pydantic import Field, StrictStr

from gtm.api.context import Acme, AcmeOrViewer, Ctx, Principal, reply
from gtm.api.query import TypedResponse, strict_router
from gtm.api.routes.policy.resources import changed
from gtm.api.schemas.base import Changed, Schema, SyncSchema, errors, picked
from gtm.control.errors import Forbidden
from gtm.control.live.tokens import certifies
from gtm.control.policy import challenges
from gtm.documents import fields
from gtm.documents.resources import Document

router = strict_router(prefix="/v1/zones/{zone:segment}/records/{name:segment}", tags=["zones"])

_Value = Annotated[StrictStr, Field(pattern=r"^[!#-\[\]-~]{1,255}$")]
ZoneName = Annotated[fields.HostName, Path(description="The zone's name.")]
ChallengeName = Annotated[
    str,
    Path(
        pattern=r"^[A-Za-z0-9_.-]{1,254}$",
        description="`_acme-challenge` or `_acme-challenge.NAME`, whole or within the zone.",
    ),
]


class ChallengePut(Document):
    """What is to be at the name of a challenge."""

    values: Annotated[tuple[_Value, ...], Field(min_length=1, max_length=challenges.MAX_VALUES)]
    """Texts without spaces, quotes and backslashes, each of a TXT record."""
    type: Literal["TXT"] = "TXT"
    """Challenges have no other."""
    ttl: fields.Ttl = challenges.TTL
    """How long resolvers keep them, in seconds."""
    add: fields.Flag = False
    """Whether the values that are there stay; otherwise these replace them."""


class ChallengeView(Schema):
    """What is at the name of a challenge."""

    zone: str
    name: str
    """Written out."""
    type: str
    values: list[str]
    ttl: int
    """How long resolvers keep them, in seconds."""
    revision: int
    """The revision in force."""
    sync: SyncSchema
    """Whether all edges answer from it."""


def _require(who: Principal, zone: str, name: str) -> None:
    """Look whether a token is for a challenge's name; one of a role that writes the policy is for all.

    Raises:
        Forbidden: it is for others.
        BadRequest: it is no name of a challenge.
    """
    domain = challenges.full_name(zone, name).partition(".")[2]
    if who.names is not None and not certifies(who.names, domain):
        raise Forbidden(
            f"your token is for certificates of `{who.names}`, not of `{domain}` "
            f"(gtm token create NAME --role acme --names {domain})"
        )


async def _view(ctx: Ctx, found: challenges.Challenge, revision: int) -> TypedResponse[ChallengeView]:
    sync = await ctx.sync(revision)
    return reply(picked(ChallengeView, found, type="TXT", revision=revision, sync=sync))


@router.get("", responses=errors(400, 404))
async def get_challenge(
    ctx: Ctx, who: AcmeOrViewer, zone: ZoneName, name: ChallengeName
) -> TypedResponse[ChallengeView]:
    """Get a challenge's records.

    What is there, and whether all edges answer so.
    """
    _require(who, zone, name)
    return await _view(ctx, *await challenges.get(ctx.database, zone, name))


@router.put("", responses=errors(400, 404, 409, 413, 415))
async def put_challenge(
    ctx: Ctx, who: Acme, zone: ZoneName, name: ChallengeName, body: ChallengePut
) -> TypedResponse[ChallengeView]:
    """Write a challenge's records.

    For ACME clients (DNS-01, RFC 8555 §8.4). Idempotent. Whole writes of the zone, by whomever, leave challenges as they are, and nobody's
    management of the zone stands against them. The edges answer with it once `sync` says `IN_SYNC`.
    """
    _require(who, zone, name)
    written, outcome = await challenges.put(
        ctx.database, zone, name, body.values, body.ttl, add=body.add, by=who.actor
    )
    await changed(ctx, outcome)
    return await _view(ctx, written, outcome.revision)


@router.delete("", responses=errors(400, 404))
async def delete_challenge(
    ctx: Ctx,
    who: Acme,
    zone: ZoneName,
    name: ChallengeName,
    value: Annotated[str | None, Query(max_length=255, description="Only this one; left out: all.")] = None,
) -> TypedResponse[Changed]:
    """Delete a challenge's records.

    What is not there is deleted all the same: clients clean up more than once.
    """
    _require(who, zone, name)
    outcome = await challenges.delete(ctx.database, zone, name, value, by=who.actor)
    return reply(await changed(ctx, outcome))
