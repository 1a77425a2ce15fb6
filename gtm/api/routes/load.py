"""What regions report of their load, and the capacity that follows from it."""

from __future__ import annotations

from typing import Any

from fastapi import Request

from gtm.api.context import Ctx, Reporter, Viewer, reply
from gtm.api.query import OnlyRegion, TypedResponse, strict_router
from gtm.api.schemas.base import errors, picked
from gtm.api.schemas.state import LoadSchema, LoadView, RateBoundSchema, RegionCapacityView, ServiceCapacity
from gtm.control.errors import BadRequest, ContentTooLarge, Invalid
from gtm.core.capacity.load import (
    MAX_MODELS,
    MAX_REPORTS,
    MODEL_PATTERN,
    ORCA_MAPS,
    ORCA_SIGNALS,
    SIGNALS,
    SOURCE_PATTERN,
    Freshness,
    json_names,
)
from gtm.core.capacity.supply import CapacityPart, RegionCapacity
from gtm.nesting import ShapeError, read

router = strict_router(prefix="/v1", tags=["load"])

MAX_BODY = 1024 * 1024
"""Bytes of load reports accepted at once."""


def _schema() -> dict[str, Any]:
    """One report as JSON Schema, each field by both of its names."""

    def number(most: float) -> dict[str, Any]:
        return {"type": ["number", "null"], "minimum": 0, "maximum": most}

    fields: dict[str, Any] = {
        "region": {"type": "string"},
        "service": {"type": ["string", "null"], "description": "Left out: the region as a whole."},
        "source": {
            "type": ["string", "null"],
            "pattern": SOURCE_PATTERN,
            "description": "Who reports. Left out: the token's name.",
        },
        "models": {
            "type": ["array", "null"],
            "maxItems": MAX_MODELS,
            "items": {"type": "string", "pattern": MODEL_PATTERN},
        },
        **{name: number(most) for name, most in {**SIGNALS, **ORCA_SIGNALS}.items()},
        **{
            name: {"type": ["object", "null"], "additionalProperties": {"type": "number"}}
            for name in ORCA_MAPS
        },
    }
    both = {name: fields[proto] for proto, camel in json_names() for name in (proto, camel)}
    return {"type": "object", "required": ["region"], "additionalProperties": False, "properties": both}


_LIST = {"type": "array", "minItems": 1, "maxItems": MAX_REPORTS, "items": _schema()}
_BODY = {
    "required": True,
    "content": {
        "application/json": {
            "schema": {
                "anyOf": [
                    _schema(),
                    {
                        "type": "object",
                        "required": ["reports"],
                        "additionalProperties": False,
                        "properties": {"reports": _LIST},
                    },
                ]
            },
            "example": {
                "region": "eu-central",
                "source": "balancer-1",
                "outstanding": 12,
                "limit": 64,
                "queue": 0,
            },
        }
    },
}


@router.post(
    "/load-reports",
    description=f"One report, or up to {MAX_REPORTS} as `reports`. What is malformed, or of another region than "
    "the token is bound to, is dropped and listed in a 422; all the rest counts. Fields of ORCA load reports (xDS) are accepted by their names in the .proto and in JSON.",
    openapi_extra={"requestBody": _BODY},
    responses=errors(413, 415),
)
async def report_load(ctx: Ctx, who: Reporter, request: Request) -> TypedResponse[None]:
    """Report the load of regions."""
    loads = ctx.leading().loads
    body = await request.body()
    if len(body) > MAX_BODY:
        raise ContentTooLarge(f"the body is larger than the {MAX_BODY} bytes accepted: send several")
    try:  # by msgspec, since every region sends some every other second
        found = read(body)
    except ShapeError as error:
        raise BadRequest(f"the body is {error}") from error
    except ValueError as error:
        raise BadRequest(f"the body is not JSON: {str(error).lower()}") from error
    taken, problems = loads.take(ctx.running().policy, found, who.name, who.regions)
    if problems:
        words = f"{taken} report{'' if taken == 1 else 's'} taken in" if taken else "nothing was taken in"
        raise Invalid(f"{words}; what `errors` lists was dropped", problems)
    return TypedResponse(status_code=204)


@router.get("/load")
async def get_load(ctx: Ctx, _: Viewer, region: OnlyRegion = None) -> TypedResponse[LoadView]:
    """Load and usable capacity of every region, by service.

    It also says how the capacity comes about. It is answered from memory, also while the database is down.
    """
    active = ctx.leading()
    if ctx.present.message is None:
        return reply({"at": 0.0, "regions": []})
    if region is not None:
        one, now = await active.loads.assess_region(ctx.present.policy, active.health, region)
        return reply({"at": now, "regions": [] if one is None else [_region(one, now)]})
    assessment, now = await active.loads.assess(ctx.present.policy, active.health)
    return reply({"at": now, "regions": [_region(found, now) for found in assessment.regions.values()]})


def _region(found: RegionCapacity, now: float) -> dict[str, Any]:
    whole, *services = [_part(part, now) for part in found.parts]
    return picked(RegionCapacityView, found, **whole, services=services)


def _part(part: CapacityPart, now: float) -> dict[str, Any]:
    heard = part.load if part.freshness is not Freshness.NEVER else None
    return picked(
        ServiceCapacity,
        part,
        age=heard.age(now) if heard is not None else None,
        load=picked(LoadSchema, heard) if heard is not None else None,
        requests_per_second=picked(RateBoundSchema, part.rate),
    )
