"""People who are signed in at the dashboard: links that sign somebody in, who is, and ending that."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from fastapi import Path

from gtm.api.context import Admin, Ctx, Viewer, reply
from gtm.api.query import TypedResponse, strict_router
from gtm.api.schemas.base import Schema, errors, picked
from gtm.control.live import sessions
from gtm.control.live.sessions import LINK_LASTS, Person
from gtm.core.model.access import Role, permits
from gtm.storage.sessions import Session

router = strict_router(prefix="/v1", tags=["sessions"])


class LinkView(Schema):
    """A link that signs somebody in once."""

    path: str
    """The path of the link, to be appended to this control's address."""
    url: str | None
    """The whole address, if control knows where people find it (`GTM_DASHBOARD_URL`)."""
    expires_in: float
    """Seconds."""


class SessionView(Schema, of=Session, without=("sha256", "token")):
    """A browser in which somebody is signed in."""


class SessionList(Schema):
    """All of them."""

    items: list[SessionView]


@router.post("/sign-in-links", status_code=201, responses=errors(409))
async def create_sign_in_link(ctx: Ctx, who: Viewer) -> TypedResponse[LinkView]:
    """Make a link that signs in at the dashboard.

    It works once, within five minutes, at the control that made it, for whoever holds the token.
    """
    secret = ctx.links.make(Person(who.name, who.role, who.sha256))
    path = f"/sign-in/{secret}"
    dashboard = ctx.settings.dashboard_url
    url = None if dashboard is None else dashboard.rstrip("/") + path
    content = {"path": path, "url": url, "expires_in": LINK_LASTS}
    return reply(content, 201, {"Cache-Control": "no-store"})


@router.get("/sessions")
async def list_sessions(ctx: Ctx, who: Viewer) -> TypedResponse[SessionList]:
    """List who is signed in at the dashboard.

    An admin sees all sessions, others their own.
    """
    now = datetime.now().astimezone().timestamp()
    found = []
    for digest in ctx.present.sessions:
        held = ctx.present.session(digest, now)
        if held is not None and (held[0].name == who.name or permits(who.role, Role.ADMIN)):
            one, role = held
            found.append(picked(SessionView, one, role=role))
    return reply({"items": found})


@router.delete("/sessions/{session:segment}", responses=errors(404))
async def end_session(
    ctx: Ctx,
    who: Viewer,
    session: Annotated[str, Path(pattern="^[0-9a-f]{16}$", description="The session's id.")],
) -> TypedResponse[None]:
    """Sign a browser out.

    An admin may end any session, others their own.
    """
    await sessions.end(ctx.database, session, by=who.actor)
    await ctx.replica.watch.refresh()
    return TypedResponse(status_code=204)


class Ended(Schema):
    """The number of sessions that have ended."""

    ended: int


@router.delete("/people/{name:segment}/sessions", responses=errors(404))
async def end_sessions(
    ctx: Ctx,
    who: Admin,
    name: Annotated[
        str, Path(pattern="^[!-.0-9;-~]{1,253}$", description="What they are called in the list of sessions.")
    ],
) -> TypedResponse[Ended]:
    """Sign somebody out everywhere.

    End all sessions of one name.
    """
    ended = await sessions.end_all(ctx.database, name, by=who.actor)
    await ctx.replica.watch.refresh()
    return reply({"ended": ended})
