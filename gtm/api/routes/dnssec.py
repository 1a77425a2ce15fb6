"""DNSSEC keys of signed zones: what they are at, and rolling them by hand."""

from __future__ import annotations

import logging
from typing import Annotated

from fastapi import Path

from gtm.api.context import Context, Ctx, Operator, Principal, Viewer, reply
from gtm.api.query import TypedResponse, strict_router
from gtm.api.schemas.base import Schema, errors
from gtm.control.dnssec.signing import KeyStatus, ZoneStatus, zone_status
from gtm.control.errors import NotFound
from gtm.core.signing.rollover import KeyRole
from gtm.documents import fields
from gtm.documents.resources import Document

logger = logging.getLogger(__name__)

router = strict_router(prefix="/v1/dnssec", tags=["dnssec"])

ZoneName = Annotated[fields.HostName, Path(description="The zone's name.")]


class KeySchema(Schema, of=KeyStatus):
    """A key of a zone."""


class ZoneKeysSchema(Schema, of=ZoneStatus):
    """The keys of a zone, and what they wait for."""


class ZoneKeysList(Schema):
    """All zones with keys."""

    items: list[ZoneKeysSchema]
    problem: str
    """Why keys cannot be made, rolled or read now, as in each of the items; empty if they can."""


class RollRequest(Document):
    """The key that is to be replaced."""

    role: KeyRole
    urgent: fields.Flag = False
    """Wait for edges in reach alone: those that have lost control for an hour break."""


class WithdrawRequest(Document):
    """Whether the parent is to drop its DS records."""

    withdrawing: fields.Flag = True


@router.get("")
async def list_dnssec(ctx: Ctx, _: Viewer) -> TypedResponse[ZoneKeysList]:
    """Keys of all signed zones, by zone.

    Every zone that has keys, also one that the policy no longer has signed, and why keys cannot be made now, if so.
    """
    zones = await _statuses(ctx)
    return reply({"items": list(zones.values()), "problem": ctx.replica.dnssec.problem})


@router.get("/{zone:segment}", responses=errors(404))
async def get_dnssec(ctx: Ctx, _: Viewer, zone: ZoneName) -> TypedResponse[ZoneKeysSchema]:
    """Keys of a zone.

    Their states and next steps, and the DS records that the parent should have.
    """
    return await _status(ctx, zone)


@router.post("/{zone:segment}/roll", responses=errors(404, 409, 413, 415))
async def roll_dnssec_key(
    ctx: Ctx, who: Operator, zone: ZoneName, body: RollRequest
) -> TypedResponse[ZoneKeysSchema]:
    """Replace a key.

    Begins the replacement, or makes one under way urgent; the steps follow by themselves, but for the DS record of a new key-signing key.
    """
    await ctx.replica.dnssec.roll(zone, body.role, urgent=body.urgent, by=who.actor)
    urgently = ", urgently" if body.urgent else ""
    return await _changed(ctx, who, zone, f"replaces the {body.role.name}{urgently}")


@router.post("/{zone:segment}/ds-seen", responses=errors(404, 409))
async def confirm_ds(ctx: Ctx, who: Operator, zone: ZoneName) -> TypedResponse[ZoneKeysSchema]:
    """Confirm that the parent has the DS record.

    It is the record of the newest key-signing key. Where control has a resolver (`GTM_DNSSEC_RESOLVER`) it sees that itself.
    """
    await ctx.replica.dnssec.ds_seen(zone, by=who.actor)
    return await _changed(ctx, who, zone, "has seen the DS record")


@router.post("/{zone:segment}/withdraw", responses=errors(404, 413, 415))
async def withdraw_ds(
    ctx: Ctx, who: Operator, zone: ZoneName, body: WithdrawRequest
) -> TypedResponse[ZoneKeysSchema]:
    """Ask the parent to drop its DS records.

    Publishes the CDS and CDNSKEY records for that (RFC 8078), before DNSSEC is switched off; with `withdrawing` false, the usual ones
    again.
    """
    await ctx.replica.dnssec.withdraw(zone, withdrawing=body.withdrawing, by=who.actor)
    return await _changed(ctx, who, zone, "withdraws it" if body.withdrawing else "no longer withdraws it")


async def _changed(ctx: Context, who: Principal, zone: str, what: str) -> TypedResponse[ZoneKeysSchema]:
    logger.info("dnssec of `%s`: %s %s", zone, who.name, what)
    return await _status(ctx, zone)


async def _status(ctx: Context, zone: str) -> TypedResponse[ZoneKeysSchema]:
    found = (await _statuses(ctx)).get(zone)
    if found is None:
        raise NotFound(f"`{zone}` has no keys: set `dnssec: true` in its policy first")
    return reply(found)


async def _statuses(ctx: Context) -> dict[str, ZoneStatus]:
    book = ctx.replica.dnssec
    asks = book.settings.resolver is not None
    stored = await book.zones()
    return {
        name: zone_status(zone, book.times, asks=asks, problem=book.problem) for name, zone in stored.items()
    }
