"""People who are signed in at the dashboard: links that sign somebody in, who is, and ending that."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from fastapi import Path, Response

from gtm.api.context import Admin, Ctx, Viewer, reply
from gtm.api.query import strict_router
from gtm.api.schemas.base import Schema, errors
from gtm.control.live import sessions
from gtm.control.live.sessions import LINK_LASTS, Person
from gtm.core.model.access import Role, permits

router = strict_router(prefix="/v1", tags=["sessions"])


class LinkView(Schema):
    """A link that signs somebody in once."""

    path: str
    """The path of the link, to be appended to this control's address."""
    url: str | None
    """The whole address, if control knows where people find it (`GTM_DASHBOARD_URL`)."""
    expires_in: float
    """Seconds."""


class SessionView(Schema):
    """A browser in which somebody is signed in."""

    id: str
    name: str
    role: Role
    agent: str
    """The name that the browser gives itself (`User-Agent`)."""
    created_at: datetime
    seen_at: datetime
    """When it was used last, to a minute."""
    expires_at: datetime


class SessionList(Schema):
    """All of them."""

    items: list[SessionView]


@router.post(
    "/sign-in-links",
    status_code=201,
    operation_id="create_sign_in_link",
    summary="Make a link that signs in at the dashboard",
    description="It works once, within five minutes, at the control that made it, for whoever holds the token.",
    response_model=LinkView,
    responses=errors(409),
)
async def link(ctx: Ctx, who: Viewer) -> Response:
    """Make a link for whoever asks."""
    secret = ctx.links.make(Person(who.name, who.role, who.sha256))
    path = f"/sign-in/{secret}"
    url = None if ctx.dashboard_url is None else ctx.dashboard_url.rstrip("/") + path
    content = {"path": path, "url": url, "expires_in": LINK_LASTS}
    return reply(content, 201, {"Cache-Control": "no-store"})


@router.get(
    "/sessions",
    operation_id="list_sessions",
    summary="List who is signed in at the dashboard",
    description="An admin sees all sessions, others their own.",
    response_model=SessionList,
    responses=errors(),
)
async def list_(ctx: Ctx, who: Viewer) -> Response:
    """From memory: those that count now, the latest used first."""
    now = datetime.now().astimezone().timestamp()
    found = []
    for digest in ctx.present.sessions:
        held = ctx.present.session(digest, now)
        if held is not None and (held[0].name == who.name or permits(who.role, Role.ADMIN)):
            one, role = held
            found.append(
                {
                    "id": one.id,
                    "name": one.name,
                    "role": role,
                    "agent": one.agent,
                    "created_at": one.created_at,
                    "seen_at": one.seen_at,
                    "expires_at": one.expires_at,
                }
            )
    return reply({"items": found})


@router.delete(
    "/sessions/{session:segment}",
    status_code=204,
    operation_id="end_session",
    summary="Sign a browser out",
    description="An admin may end any session, others their own.",
    responses=errors(404),
)
async def end(
    ctx: Ctx, who: Viewer, session: Annotated[str, Path(pattern="^[0-9a-f]{16}$", description="Its id.")]
) -> Response:
    """End one; it stops working here at once, and at other controls within seconds."""
    await sessions.end(ctx.database, session, by=who.actor)
    await ctx.replica.watch.refresh()
    return Response(status_code=204)


class Ended(Schema):
    """The number of sessions that have ended."""

    ended: int


@router.delete(
    "/people/{name:segment}/sessions",
    operation_id="end_sessions",
    summary="Sign somebody out everywhere",
    response_model=Ended,
    responses=errors(404),
)
async def end_all(
    ctx: Ctx,
    who: Admin,
    name: Annotated[
        str, Path(pattern="^[!-.0-9;-~]{1,253}$", description="What they are called in the list of sessions.")
    ],
) -> Response:
    """End all sessions of one name."""
    ended = await sessions.end_all(ctx.database, name, by=who.actor)
    await ctx.replica.watch.refresh()
    return reply({"ended": ended})
