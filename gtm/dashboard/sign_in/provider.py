"""Signing in by the identity provider: there, and back again.

What an attempt needs is kept in the browser that began it, in a cookie of ten minutes: so any control of several goes on with it, and nobody can have another's
browser sign in as them. It is sealed: what this control did not begin goes nowhere, and least of all to the provider. The cookie comes with the way back from the provider's site (`SameSite=Lax`), which the session's would not.
"""

from __future__ import annotations

import hmac
import time
from dataclasses import dataclass

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from gtm.api.context import whose
from gtm.control.live.sessions import Person
from gtm.dashboard import security
from gtm.dashboard.security import PERSONAL
from gtm.dashboard.sign_in.identity import account_of, name_of, role_of
from gtm.dashboard.sign_in.oidc import CALLBACK, OidcError
from gtm.dashboard.sign_in.pages import TOO_OFTEN, begun, failed, form, inside, may_try
from gtm.dashboard.visits import Dashboard
from gtm.storage.errors import StorageUnavailable

_NONE = "no identity provider is set (GTM_OIDC_ISSUER)"
_LASTS = 600
_KEY = "sign-in attempts"
"""The secret of control's that seals cookies, under this name (`gtm.storage.secrets`)."""
_AWAY = "the database cannot be reached, so nobody can sign in: try again. Who is signed in, stays so"
_LONGEST = 3000


class _Kept(msgspec.Struct):
    """The content of the cookie that a sign-in begins with."""

    state: str
    nonce: str
    verifier: str
    to: str
    until: float
    """POSIX seconds."""


@dataclass(frozen=True, slots=True)
class _Refused(Exception):  # noqa: N818 - it names what is so
    """Why nobody is signed in, and the status for it."""

    words: str
    status: int = 403


def routes() -> list[Route]:
    """There, back, and out."""
    return [
        Route("/sign-in/oidc", _there, methods=["GET"]),
        Route(CALLBACK, _back, methods=["GET"]),
        Route("/sign-in/oidc/out", _out, methods=["GET"]),
    ]


def _cookie(request: Request, dashboard: Dashboard) -> tuple[str, bool]:
    secure = security.is_secure(request, dashboard.url)
    return f"{security.cookie_name(secure=secure)}-oidc", secure


async def _there(request: Request) -> Response:
    dashboard: Dashboard = request.app.state.dashboard
    to = inside(request.query_params.get("next"))[:1000]
    if dashboard.identity is None:
        return form(request, _NONE, 404, to)
    try:
        key = await _key(dashboard)
        attempt = await dashboard.identity.provider.begin()
    except StorageUnavailable:
        return form(request, _AWAY, 503, to)
    except OidcError as error:
        return form(request, str(error), 502, to)
    answer = RedirectResponse(attempt.url, 303, PERSONAL)
    name, secure = _cookie(request, dashboard)
    kept = _Kept(attempt.state, attempt.nonce, attempt.verifier, to, time.time() + _LASTS)
    answer.set_cookie(
        name,
        _sealed(msgspec.json.encode(kept), key).hex(),
        max_age=_LASTS,
        path="/",
        secure=secure,
        httponly=True,
        samesite="lax",
    )
    return answer


async def _back(request: Request) -> Response:
    dashboard: Dashboard = request.app.state.dashboard
    name, secure = _cookie(request, dashboard)
    try:
        kept = _read(security.cookie(request, name) or "", await _key(dashboard))
    except StorageUnavailable:
        return form(request, _AWAY, 503)
    to = "/" if kept is None else inside(kept.to)
    try:
        person = await _person(request, dashboard, kept)
    except _Refused as refused:
        answer = form(request, refused.words, refused.status, to)
    else:
        answer = await begun(request, person, to, "OpenID Connect")
    answer.delete_cookie(name, path="/", secure=secure, httponly=True, samesite="lax")
    return answer


async def _out(request: Request) -> Response:
    """Where one signs out at the provider, who would otherwise sign in whoever sits there next."""
    dashboard: Dashboard = request.app.state.dashboard
    if dashboard.identity is None:
        return form(request, _NONE, 404)
    try:
        url = await dashboard.identity.provider.sign_out_url()
    except OidcError as error:
        return form(request, str(error), 502)
    if url is None:
        return form(
            request, "the identity provider does not say where one signs out: do so at its own page", 404
        )
    return RedirectResponse(url, 303, PERSONAL)


async def _key(dashboard: Dashboard) -> bytes:
    """The key of cookies, the same for all controls of a database.

    Raises:
        StorageUnavailable: it is not known yet, and cannot be read.
    """
    if _KEY not in dashboard.keys:
        async with dashboard.context.database.transaction() as transaction:
            dashboard.keys[_KEY] = await transaction.secrets.key(_KEY)
    return dashboard.keys[_KEY]


def _sealed(content: bytes, key: bytes) -> bytes:
    return hmac.digest(key, content, "sha256") + content


def _read(text: str, key: bytes) -> _Kept | None:
    """What a cookie holds that a control of this database has made, not too long ago."""
    try:
        sealed = bytes.fromhex(text[:_LONGEST])
    except ValueError:
        return None
    content = sealed[32:]
    if not hmac.compare_digest(sealed, _sealed(content, key)):
        return None
    kept = msgspec.json.decode(content, type=_Kept)
    return kept if time.time() <= kept.until else None


async def _person(request: Request, dashboard: Dashboard, kept: _Kept | None) -> Person:
    """Who comes back.

    Raises:
        _Refused: nobody that may sign in.
    """
    if dashboard.identity is None:
        raise _Refused(_NONE, 404)
    query = request.query_params
    state, code = query.get("state", ""), query.get("code", "")
    if kept is None or not hmac.compare_digest(state.encode(errors="replace"), kept.state.encode()):
        raise _Refused(
            "this sign-in was not begun in this browser, or longer than ten minutes ago: begin again"
        )
    if not code or len(code) > _LONGEST:
        said = (query.get("error_description") or query.get("error") or "it gave no code")[:200]
        failed(request, "the identity provider refused")
        raise _Refused(f"the identity provider did not sign you in: {said}")
    identity = dashboard.identity
    if not may_try(request):
        raise _Refused(TOO_OFTEN, 429)
    address = request.client.host if request.client else ""
    try:
        claims = await identity.provider.finish(
            code, query.get("iss"), kept.verifier, kept.nonce, address=whose(address)
        )
    except OidcError as error:
        failed(request, "the identity provider's answer did not hold")
        raise _Refused(str(error)) from error
    called, role = name_of(claims, identity.provider.issuer), role_of(claims, identity.grants)
    if role is None:
        failed(request, "somebody whom the identity provider gives no role here")
        raise _Refused(
            f"you are {called} at the identity provider, but nothing that it says of you gives you a role here: ask whoever runs gtm to add you to a group "
            "that has one (GTM_OIDC_ROLES)"
        )
    dashboard.attempts.give_back(address)
    return Person(called, role, account=account_of(claims, identity.provider.issuer))
