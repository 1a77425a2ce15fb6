"""What regions' balancers follow. They report by `gtm.api.routes.load`.

Law: a balancer has no vote on health and no zone-signing keys. Nobody waits for the revision that it holds.
"""

from __future__ import annotations

from time import time
from typing import Annotated

from fastapi import Path, Query
from fastapi.responses import StreamingResponse

from gtm.api.context import Balancer, Ctx, reply_lines
from gtm.api.query import strict_router
from gtm.api.schemas.base import errors
from gtm.core.model.access import Role
from gtm.feed.wire import CONTENT_TYPE

router = strict_router(prefix="/v1/balancers", tags=["balancers"])

_NAME = r"^[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?$"
_MAX_REVISION = 2**63 - 1


@router.get(
    "/{name:segment}/feed",
    operation_id="balancer_feed",
    summary="Follow the policy, health, load and tokens, as a balancer",
    description="The stream that edges follow, without zone-signing keys: JSON messages, one a line. It ends with the "
    "connection, and with the token.",
    response_class=StreamingResponse,
    responses={
        200: {"description": "The stream.", "content": {CONTENT_TYPE: {"schema": {"type": "string"}}}},
        **errors(),
    },
)
async def balancer_feed(
    ctx: Ctx,
    who: Balancer,
    name: Annotated[str, Path(pattern=_NAME, description="The balancer's name, for people.")],
    revision: Annotated[
        int, Query(ge=0, le=_MAX_REVISION, description="The revision it holds; 0: none.")
    ] = 0,
    sha256: Annotated[
        str | None,
        Query(
            pattern="^[0-9a-f]{64}$",
            description="The checksum of that revision: numbers repeat once a database is restored from a backup.",
        ),
    ] = None,
) -> StreamingResponse:
    """Stream until the balancer goes, its token ends or the server stops."""

    def still_allowed() -> bool:
        held = ctx.present.token(who.sha256, time())
        return held is not None and held.role is Role.BALANCER

    ctx.leading()
    lines = ctx.replica.subscribers.stream_to_balancer(name, revision, sha256, still_allowed)
    return reply_lines(lines)
