"""What stands before every endpoint, as plain ASGI: bounds on bodies, and counting."""

from __future__ import annotations

import time
from collections.abc import MutableMapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gtm.api.context import PRINCIPAL, authenticate, whose
from gtm.api.problems import PATCHES, control_problem, problem, unexpected
from gtm.control.errors import NO_TOKEN, ControlError, Unauthorized
from gtm.storage.turns import CALLER

_WITH_BODY = frozenset({"POST", "PUT", "PATCH"})


TIER = b"x-gtm-tier"
"""The header that tells control's answers from an edge's, whose problem documents look alike."""
FREE_BODY = 64 * 1024
"""Largest body, in bytes, read before the token is looked at: parsing 10 MB takes seconds, and anybody could ask."""


class BodyLimit:
    """Refuses bodies that are too large, not JSON, or large and nobody's, before anything reads them.

    Args:
        app: what comes behind.
        max_body: bytes accepted.
    """

    def __init__(self, app: ASGIApp, max_body: int) -> None:
        self._app = app
        self._max_body = max_body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, with a body that ends in an error past the limit (ASGI 3)."""
        if scope["type"] != "http" or scope["method"] not in _WITH_BODY:
            await self._app(scope, receive, send)
            return
        sent = {name.lower(): value for name, value in scope["headers"]}
        length = sent.get(b"content-length", b"")
        has_body = b"transfer-encoding" in sent or length not in (b"", b"0")
        too_large = f"the body is larger than the {self._max_body} bytes accepted"
        if length.isdigit() and int(length[:20]) > self._max_body:
            await problem(413, too_large, title="content too large")(scope, receive, send)
            return
        kind = sent.get(b"content-type", b"").split(b";")[0].strip().lower()
        patches = scope["method"] == "PATCH"
        accepted = PATCHES if patches else ("application/json",)
        given = kind.decode("latin-1")
        if has_body and given not in accepted:
            words = " or ".join(f"`{one}`" for one in accepted)
            detail = f"the body must be {words}, not `{given or 'nothing'}`"
            headers = {"Accept-Patch" if patches else "Accept": ", ".join(accepted)}
            await problem(415, detail, headers=headers)(scope, receive, send)
            return
        known = scope.get(PRINCIPAL) is not None
        if has_body and not known and not (length.isdigit() and int(length) <= FREE_BODY):
            try:
                await _check_token(scope)
            except ControlError as error:
                await control_problem(error)(scope, receive, send)
                return
        read = 0

        async def counted() -> Message:
            nonlocal read
            message = await receive()
            read += len(message.get("body", b""))
            if read > self._max_body:
                raise HTTPException(413, too_large)
            return message

        await self._app(scope, counted, send)


async def _check_token(scope: Scope) -> None:
    """Whether a request has a token that counts, for whatever.

    Raises:
        Unauthorized: it has not.
        Unavailable: that cannot be told.
    """
    scheme, _, text = Headers(scope=scope).get("authorization", "").partition(" ")
    if scheme.lower() != "bearer":
        raise Unauthorized(NO_TOKEN)
    await authenticate(scope["app"].state.context, text)


class Metrics:
    """The control tier's own counters."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "gtm_control_requests_total",
            "Requests to the control API, by method, route and status.",
            ("method", "route", "status"),
            registry=self.registry,
        )
        self.seconds = Histogram(
            "gtm_control_request_duration_seconds",
            "Time until the first byte of the answer, by route.",
            ("route",),
            registry=self.registry,
        )


class Counting:
    """Counts every request by its route's template, so that labels stay few, and says whose answer it is.

    What nobody foresaw is answered here: Starlette would do it outside of this, uncounted, and as if it were not control's.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and count what it was answered (ASGI 3)."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.perf_counter()
        client = scope.get("client")
        if scope.get(PRINCIPAL) is None and client:
            CALLER.set(f"address {whose(client[0])}")  # until it is known who asks

        begun = False

        async def counted(message: MutableMapping[str, Any]) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                message["headers"] = [*message.get("headers", ()), (TIER, b"control")]
                route = getattr(scope.get("route"), "path_format", "unmatched")
                method = scope["method"] if scope["method"] in _METHODS else "other"
                self._metrics.requests.labels(method, route, str(message["status"])).inc()
                self._metrics.seconds.labels(route).observe(time.perf_counter() - started)
            await send(message)

        try:
            await self._app(scope, receive, counted)
        except Exception as error:
            if begun:
                raise
            await unexpected(scope["method"], scope["path"], error)(scope, receive, counted)


_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"})
