"""Who looks at a page: from the cookie to what they may do, and what a page is answered with."""

from __future__ import annotations

import asyncio
import hmac
import json
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeVar
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from gtm.api.context import Context, Principal
from gtm.api.query import without_stream
from gtm.control.live import sessions
from gtm.control.live.present import Present
from gtm.control.live.sessions import NOTED, digest
from gtm.core.model.access import UNKNOWN_HANDS, Hands, Role, permits
from gtm.dashboard import security
from gtm.dashboard.form_bodies import MAX_FORM, MAX_UPLOAD, read_form
from gtm.dashboard.inside import ApiProblem, Inside
from gtm.dashboard.live import Live, Render, Stream
from gtm.dashboard.rendering import rendered
from gtm.dashboard.security import PERSONAL, Attempts
from gtm.dashboard.sign_in.identity import Identity
from gtm.storage.errors import StorageUnavailable
from gtm.storage.history.audit import Via
from gtm.storage.sessions import Session

STRANGERS = 16
"""Forms of those who are not signed in that are read at once: each takes as much memory as one may have, for as long as it comes."""


@dataclass(frozen=True, slots=True)
class Dashboard:
    """What all pages of a process share.

    `api` answers what they ask, `url` is where people find them if that is known, `identity` the provider by which they sign in
    if there is one, `live` renders what moves, `strangers` bounds what is kept for those who are not signed in.
    """

    api: ASGIApp
    context: Context
    live: Live
    url: str | None = None
    identity: Identity | None = None
    attempts: Attempts = field(default_factory=lambda: Attempts(time.monotonic))
    strangers: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(STRANGERS))
    tasks: set[asyncio.Task[None]] = field(default_factory=set)
    keys: dict[str, bytes] = field(default_factory=dict)
    """The secrets of control's that were read from the database, by name."""


@dataclass(frozen=True, slots=True)
class Visit:
    """One request by somebody who is signed in."""

    dashboard: Dashboard
    request: Request
    session: Session
    role: Role
    secret: str
    api: Inside

    @property
    def csrf(self) -> str:
        """The text that forms of this visit must show (against forged requests)."""
        return security.csrf_token(self.secret)

    @property
    def partial(self) -> bool:
        """Whether a part of a page is asked for, by htmx."""
        return self.request.headers.get("hx-request") == "true"

    def may(self, role: str) -> bool:
        """Whether they may do what a role may."""
        return permits(self.role, Role(role))

    def query(self, name: str) -> str | None:
        """A parameter of the address; None if it is left out or empty."""
        return self.request.query_params.get(name, "").strip() or None

    def part(self, name: str) -> str:
        """A variable part of the page's path."""
        return str(self.request.path_params[name])

    async def form(self) -> dict[str, str]:
        """What was filled in: the last of each name.

        Raises:
            HTTPException: it is no form, or too large.
        """
        kept: dict[str, str] | None = getattr(self.request.state, "form", None)
        if kept is not None:
            return kept
        files: bool = self.request.state.files
        return await read_form(self.request, MAX_UPLOAD if files else MAX_FORM, files=files)

    def render(self, template: str, status: int = 200, **values: Any) -> Response:
        """A page."""
        return HTMLResponse(self.fragment(template, **values), status, PERSONAL)

    def stream(self, render: Render, *key: Any) -> Response:
        """What moves on a page, as long as the session goes on; rendered once for all with the same `key`, of JSON values."""

        def signed_in() -> bool:
            return self.dashboard.context.present.session(self.session.sha256.hex(), time.time()) is not None

        headers = {**PERSONAL, "X-Accel-Buffering": "no"}
        events = self.dashboard.live.stream(json.dumps(key), render, signed_in, self.session.name)
        return Stream(events, media_type="text/event-stream", headers=headers)

    def fragment(self, template: str, **values: Any) -> str:
        """The text of a template."""
        return rendered(template, {"visit": self, "now": time.time(), **values})

    def problem(self, found: ApiProblem) -> Response:
        """What the API refused, as a page or as a part of one."""
        return self.render(
            "problem_part.html" if self.partial else "problem.html", found.status, problem=found.document
        )

    def go(self, path: str) -> Response:
        """On to another page, after something was done."""
        if self.partial:
            return Response(status_code=204, headers={**PERSONAL, "HX-Redirect": path})
        return RedirectResponse(path, 303, PERSONAL)


Handler = TypeVar("Handler", bound=Callable[[Visit], Awaitable[Response]])


def visit_of(request: Request) -> Visit | None:
    """Who is signed in, if anybody is."""
    dashboard: Dashboard = request.app.state.dashboard
    present = dashboard.context.present
    name = security.cookie_name(secure=security.is_secure(request, dashboard.url))
    secret = security.cookie(request, name)
    if secret is None:
        return None
    held = present.session(digest(secret).hex(), time.time())
    if held is None:
        return None
    session, role = held
    return Visit(
        dashboard, request, session, role, secret, Inside(dashboard.api, _principal(present, session, role))
    )


def _principal(present: Present, session: Session, role: Role) -> Principal:
    """Who is signed in, as the API knows them: by the token that they came with, or else by themselves."""
    token = present.tokens.get(session.token) if session.token else None
    own = UNKNOWN_HANDS if session.token else Hands(session.name)
    return Principal(
        session.name,
        role,
        session.token,
        token.edges if token else None,
        token.regions if token else None,
        Via.DASHBOARD,
        credential=f"session {session.id}" if token is None else f"token {token.id}",
        hands=own if token is None else token.hands,
    )


PAGES: list[Route] = []
"""The pages that are declared."""


def page(
    path: str, *, methods: Sequence[str] = ("GET",), role: Role = Role.VIEWER, files: bool = False
) -> Callable[[Handler], Handler]:
    """Make of a function a page for people who are signed in and may do what a role may.

    Whoever is not signed in is asked to; a form without its token, or from another site, does nothing. `files`: its form may have some.
    """

    def declare(handler: Handler) -> Handler:
        async def endpoint(request: Request) -> Response:
            request.state.files = files
            visit = visit_of(request)
            if visit is None:
                return await _interrupted(request) or _unknown(request)
            if request.method not in ("GET", "HEAD") and not await _ours(visit):
                return await _interrupted(request, visit) or _not_ours(visit)
            if not permits(visit.role, role):
                words = f"this needs role `{role.value}`; yours is `{visit.role.value}`"
                return visit.problem(ApiProblem(403, {"title": "forbidden", "detail": words}))
            _note(visit)
            try:
                return without_stream(request, await handler(visit))
            except ApiProblem as found:
                return visit.problem(found)

        PAGES.append(Route(path, endpoint, methods=list(methods)))
        return handler

    return declare


async def _ours(visit: Visit) -> bool:
    """Whether a page of ours sent a form. A form's body is kept, so that the handler reads it again."""
    if not security.is_same_origin(visit.request, visit.dashboard.url):
        return False
    shown = visit.request.headers.get("x-csrf-token")
    if shown is None:
        fields = await visit.form()
        shown = fields.get(security.CSRF, "")
        visit.request.state.form = fields
    return hmac.compare_digest(shown.encode(errors="replace"), visit.csrf.encode())


def _not_ours(visit: Visit) -> Response:
    elsewhere = security.elsewhere(visit.request, visit.dashboard.url)
    words = (
        f"{elsewhere or 'this form is from another page or has expired'}. Load the page again, then repeat it"
    )
    return visit.problem(ApiProblem(403, {"title": "forbidden", "detail": words}))


async def _interrupted(request: Request, visit: Visit | None = None) -> Response | None:
    """A form of ours whose session has ended since it was opened: nothing is done, and nothing that was typed is lost.

    Args:
        request: with the form.
        visit: whoever is signed in now; None: nobody.

    Returns:
        None: it is no such form. Where a browser does not say whose page has sent it, it may be anybody's.
    """
    told = "origin" in request.headers or "sec-fetch-site" in request.headers
    dashboard: Dashboard = request.app.state.dashboard
    if request.method != "POST" or request.url.path == "/sign-out" or not told:
        return None
    if not security.is_same_origin(request, dashboard.url):
        return None
    if request.headers.get("hx-request") == "true":
        return plain(request, "again_part.html", 403 if visit else 401, {"visit": visit})
    kind = request.headers.get("content-type", "").lower()
    if visit is None and kind.startswith("multipart/"):
        return None  # files are large, and whoever has one has it still
    if visit is not None:
        fields = await visit.form()
    elif dashboard.strangers.locked():
        return None
    else:
        async with dashboard.strangers:
            fields = await read_form(request)
    kept = {name: text for name, text in fields.items() if name != security.CSRF}
    return plain(request, "again.html", 403 if visit else 401, {"visit": visit, "kept": kept})


def asked_again(request: Request) -> Response | None:
    """A page that asks for itself once more, if it was followed from elsewhere: then it comes without the cookie (`SameSite=Strict`), and has it the second time."""
    if request.method != "GET" or request.headers.get("sec-fetch-site") != "cross-site":
        return None
    text = '<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0"><title>gtm</title>'
    return HTMLResponse(text, 200, PERSONAL)


def _unknown(request: Request) -> Response:
    """Where somebody goes who is not signed in."""
    again = asked_again(request)
    if again is not None:
        return again
    path = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    to = "/sign-in" if request.method != "GET" or path == "/" else f"/sign-in?next={quote(path, safe='')}"
    if request.headers.get("hx-request") == "true":
        return Response(status_code=401, headers={**PERSONAL, "HX-Redirect": to})
    return RedirectResponse(to, 303, PERSONAL)


def _note(visit: Visit) -> None:
    """Remember that a session was used, now and then."""
    now = datetime.now(UTC)
    if now - visit.session.seen_at < NOTED:
        return

    async def noted() -> None:
        try:
            await sessions.seen(visit.dashboard.context.database, visit.session, now)
        except StorageUnavailable:
            return

    task = asyncio.ensure_future(noted())
    visit.dashboard.tasks.add(task)
    task.add_done_callback(visit.dashboard.tasks.discard)


def plain(
    request: Request, template: str, status: int = 200, values: Mapping[str, Any] | None = None
) -> Response:
    """A page for somebody who is not signed in."""
    text = rendered(template, {"visit": None, "now": time.time(), "request": request, **(values or {})})
    return HTMLResponse(text, status, PERSONAL)
