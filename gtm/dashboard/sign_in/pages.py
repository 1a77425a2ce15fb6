"""Signing in with a token, and out; what all ways to sign in have in common."""

from __future__ import annotations

import time
from datetime import UTC, datetime

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from gtm.api.context import authenticate
from gtm.control.errors import ControlError
from gtm.control.live import sessions
from gtm.control.live.sessions import LASTS, Person, digest
from gtm.core.model.access import Role, permits
from gtm.dashboard import security
from gtm.dashboard.form_bodies import read_form
from gtm.dashboard.inside import ApiProblem
from gtm.dashboard.security import PERSONAL
from gtm.dashboard.visits import Dashboard, Visit, page, plain, visit_of
from gtm.storage.errors import StorageUnavailable

MAX_FORM = 64 * 1024
"""Bytes of a form that nobody has signed: a token, and an address to go on to."""
TOO_OFTEN = "too many attempts: wait a minute, then try again"
"""Said to whoever tries again and again in vain."""


def routes() -> list[Route]:
    """The page that asks who it is."""
    return [
        Route("/sign-in", _ask, methods=["GET"]),
        Route("/sign-in", _token, methods=["POST"]),
    ]


def inside(path: str | None) -> str:
    """A path of ours to go on to: nobody is sent elsewhere."""
    if path is None or not path.startswith("/") or path.startswith(("//", "/\\")) or not path.isprintable():
        return "/"
    return path


async def _ask(request: Request) -> Response:
    if visit_of(request) is not None:
        return RedirectResponse(inside(request.query_params.get("next")), 303, PERSONAL)
    return form(request)


def form(request: Request, problem: str = "", status: int = 200, to: str | None = None) -> Response:
    """The page that asks who it is, perhaps with what was wrong."""
    dashboard: Dashboard = request.app.state.dashboard
    host = request.url.hostname or ""
    open_line = not security.is_secure(request, dashboard.url) and host not in (
        "127.0.0.1",
        "localhost",
        "::1",
    )
    following = inside(request.query_params.get("next") if to is None else to)
    values = {
        "problem": problem,
        "next": following,
        "open_line": open_line,
        "provider": dashboard.identity and dashboard.identity.host,
        "signed_out": request.query_params.get("out") == "provider",
    }
    return plain(request, "sign_in.html", status, values)


async def _token(request: Request) -> Response:
    dashboard: Dashboard = request.app.state.dashboard
    if words := security.elsewhere(request, dashboard.url):
        return form(request, words, 403)
    try:
        fields = await read_form(request, MAX_FORM)
    except HTTPException as error:
        return form(request, error.detail, error.status_code)
    to = inside(fields.get("next"))
    text = fields.get("token", "").strip()
    if not _known(dashboard, text) and not may_try(request):
        return form(request, TOO_OFTEN, 429, to)
    try:
        who = await authenticate(dashboard.context, text)
    except ControlError as error:
        if error.status == 401:
            failed(request, error.detail)
        return form(request, error.detail, error.status, to)
    if not permits(who.role, Role.VIEWER):
        words = f"this token's role is `{who.role.value}`, which is for programs: sign in with one of role viewer, operator, fence-admin or admin"
        failed(request, f"a token of role {who.role.value}")
        return form(request, words, 403, to)
    return await begun(request, Person(who.name, who.role, who.sha256), to, "token")


def _known(dashboard: Dashboard, text: str) -> bool:
    """Whether a token is one that counts, as far as memory says: who has it need not wait for those who guess."""
    return dashboard.context.present.token(digest(text).hex(), time.time()) is not None


def may_try(request: Request) -> bool:
    """Whether one more attempt from an address may be looked at: each may ask the database."""
    dashboard: Dashboard = request.app.state.dashboard
    return dashboard.attempts.take(request.client.host if request.client else "")


def failed(request: Request, reason: str) -> None:
    """Count it for the audit log."""
    dashboard: Dashboard = request.app.state.dashboard
    dashboard.context.failed.note(request.client.host if request.client else "", reason)


async def begun(request: Request, who: Person, to: str, how: str) -> Response:
    """Signed in: hand out the cookie."""
    dashboard: Dashboard = request.app.state.dashboard
    try:
        agent = request.headers.get("user-agent", "")
        _, secret = await sessions.begin(dashboard.context.database, who, agent, datetime.now(UTC), how)
        await dashboard.context.replica.watch.refresh()
    except StorageUnavailable:
        words = "the database cannot be reached, so nobody can sign in: try again. Who is signed in, stays so"
        return form(request, words, 503, to)
    answer = RedirectResponse(to, 303, PERSONAL)
    secure = security.is_secure(request, dashboard.url)
    security.set_cookie(answer, secret, secure=secure, lasts=int(LASTS.total_seconds()))
    return answer


@page("/sign-out", methods=["POST"])
async def _out(visit: Visit) -> Response:
    """Signed out: the browser forgets its session in any case."""
    by_provider = visit.dashboard.identity is not None and "@" in visit.session.name
    answer: Response = RedirectResponse(f"/sign-in{'?out=provider' if by_provider else ''}", 303, PERSONAL)
    try:
        await visit.api.end_session(visit.session.id)
    except ApiProblem as found:
        if found.status == 503:
            words = (
                "you are signed out in this browser; the database cannot be reached, so the session itself ends "
                "only by itself, or by an admin"
            )
            answer = form(visit.request, words, 503)
        elif found.status != 404:  # ended elsewhere a moment ago
            raise
    security.clear_cookie(answer, secure=security.is_secure(visit.request, visit.dashboard.url))
    return answer
