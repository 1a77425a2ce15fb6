"""Signing in by a link that works once.

To open a link asks; its button signs in. So programs that look at links in messages use none up, and nobody is signed in as somebody else by following one:
an attacker could otherwise have people work in the attacker's name.

Law: only a form of a page of ours, which this very browser was shown, signs in. The page leaves a cookie, from which the form's token follows; other sites cannot send it, nor set it over TLS.
"""

from __future__ import annotations

import hmac
import secrets
import time
from contextlib import suppress

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gtm.control.errors import ControlError
from gtm.control.live.sessions import LINK_LASTS, Person
from gtm.dashboard import security
from gtm.dashboard.form_bodies import read_form
from gtm.dashboard.sign_in.pages import MAX_FORM, TOO_OFTEN, begun, failed, form, may_try
from gtm.dashboard.visits import Dashboard, asked_again, plain, visit_of

_NOT_OURS = "this form is from another page, or your browser keeps no cookies: open the link again, and go on from there"


def routes() -> list[Route]:
    """The page, and its button."""
    return [
        Route("/sign-in/{secret}", _ask, methods=["GET"]),
        Route("/sign-in/{secret}", _follow, methods=["POST"]),
    ]


async def _ask(request: Request) -> Response:
    again = asked_again(request)
    if again is not None:
        return again
    dashboard: Dashboard = request.app.state.dashboard
    who = _whom(request, dashboard)
    if who is None:
        return _gone(request)
    cookie, secure = _cookie(request, dashboard)
    kept = security.cookie(request, cookie) or secrets.token_urlsafe(24)
    values = {"who": who, "already": visit_of(request), "csrf": security.csrf_token(kept)}
    answer = plain(request, "sign_in_link.html", 200, values)
    lasts = int(LINK_LASTS)
    answer.set_cookie(cookie, kept, max_age=lasts, path="/", secure=secure, httponly=True, samesite="strict")
    return answer


async def _follow(request: Request) -> Response:
    dashboard: Dashboard = request.app.state.dashboard
    if words := security.elsewhere(request, dashboard.url):
        return form(request, words, 403)
    try:
        fields = await read_form(request, MAX_FORM)
    except HTTPException as error:
        return form(request, error.detail, error.status_code)
    cookie, secure = _cookie(request, dashboard)
    kept, shown = security.cookie(request, cookie), fields.get(security.CSRF, "")
    if not kept or not hmac.compare_digest(
        shown.encode(errors="replace"), security.csrf_token(kept).encode()
    ):
        return form(request, _NOT_OURS, 403)
    who = _whom(request, dashboard)
    if who is None:
        return _gone(request)
    secret = request.path_params["secret"]
    dashboard.context.links.follow(secret)
    answer = await begun(request, who, "/", "link")
    if answer.status_code == 503:
        with suppress(ControlError):  # it has signed nobody in
            dashboard.context.links.make(who, secret)
    else:
        answer.delete_cookie(cookie, path="/", secure=secure, httponly=True, samesite="strict")
    return answer


def _whom(request: Request, dashboard: Dashboard) -> Person | None:
    """Whom the link signs in; None: nobody, any more. One whose token has ended signs in nobody."""
    who = dashboard.context.links.look(request.path_params["secret"])
    if who is not None and who.token and dashboard.context.present.token(who.token, time.time()) is None:
        return None
    return who


def _gone(request: Request) -> Response:
    if not may_try(request):
        return form(request, TOO_OFTEN, 429)
    failed(request, "a link that has been used or has expired")
    words = "this link has been used, or has expired: make another with `gtm dashboard`"
    return form(request, words, 403)


def _cookie(request: Request, dashboard: Dashboard) -> tuple[str, bool]:
    secure = security.is_secure(request, dashboard.url)
    return f"{security.cookie_name(secure=secure)}-link", secure
