"""The dashboard beside the API: what each of the two answers."""

from __future__ import annotations

from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from gtm.api.context import Context
from gtm.dashboard import pages
from gtm.dashboard.live import Live
from gtm.dashboard.rendering import MENU
from gtm.dashboard.security import PERSONAL, guarded
from gtm.dashboard.sign_in import links, provider
from gtm.dashboard.sign_in import pages as sign_in
from gtm.dashboard.sign_in.identity import Identity
from gtm.dashboard.static_files import static
from gtm.dashboard.visits import Dashboard, plain

_API = frozenset({"v1", "docs", "healthz", "readyz", "metrics", "openapi.json"})
"""First segments of paths that are the API's."""


def with_dashboard(api: FastAPI, url: str | None = None, identity: Identity | None = None) -> ASGIApp:
    """The API, and pages for people at all other paths.

    Args:
        api: made by `gtm.api.app.create_app`.
        url: where people find it, if another stands before it.
        identity: by whom they sign in beside tokens; None: nobody.
    """
    context: Context = api.state.context
    declared = pages.routes()
    MENU.update(route.path for route in declared)
    starlette = Starlette(
        routes=[
            Route("/static/{version}/{name:path}", static, methods=["GET"]),
            *provider.routes(),
            *sign_in.routes(),
            *links.routes(),
            Route("/dashboard", lambda _: RedirectResponse("/", 308), methods=["GET"]),
            *declared,
        ],
        exception_handlers={HTTPException: _http, Exception: _unexpected},
    )
    starlette.router.redirect_slashes = False
    live = Live(lambda: context.replica.subscribers.closed)
    starlette.state.dashboard = Dashboard(api, context, live, url, identity)
    return _Both(api, starlette)


class _Both:
    """Sends each request where it belongs; at `/` browsers get a page, and programs what this is."""

    def __init__(self, api: ASGIApp, pages: ASGIApp) -> None:
        self._api = api
        self._pages = pages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request of ASGI 3."""
        if scope["type"] != "http":
            await self._api(scope, receive, send)
            return
        if not _has_one_host(scope):
            refused = Response("a request names one host (RFC 9112 §3.2)", 400, PERSONAL, "text/plain")
            await refused(scope, receive, send)
            return
        # Who asks for the same address with another Accept gets another answer there.
        send = guarded(send, vary="Accept") if scope["path"] == "/" else guarded(send)
        await (self._api if self._is_api(scope) else self._pages)(scope, receive, send)

    @staticmethod
    def _is_api(scope: Scope) -> bool:
        path: str = scope["path"]
        if path == "/":
            return "text/html" not in Headers(scope=scope).get("accept", "")
        if not path.startswith("/"):  # `*`, or the name of a host: no page is there (RFC 9112 §3.2)
            return True
        return path.split("/", 2)[1] in _API


_WORDS = {
    404: "there is no such page",
    405: "this address takes a form alone, and what it answered cannot be opened again: go back to the page with the form",
}
"""What people are told in place of HTTP's own words."""


def _has_one_host(scope: Scope) -> bool:
    """Else what stands before control may have understood another than forms are compared with. HTTP/1.0 need not name any."""
    hosts = sum(name == b"host" for name, _ in scope["headers"])
    return hosts == 1 or (hosts == 0 and bool(scope["http_version"] == "1.0"))


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 - registered for it
    words = _WORDS.get(error.status_code, error.detail)
    answer = plain(
        request, "problem.html", error.status_code, {"problem": {"title": "error", "detail": words}}
    )
    answer.headers.update(error.headers or {})
    return answer


async def _unexpected(request: Request, _error: Exception) -> Response:
    words = "an error of gtm's own: its log says which"
    return plain(request, "problem.html", 500, {"problem": {"title": "internal", "detail": words}})
