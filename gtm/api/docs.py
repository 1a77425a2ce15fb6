"""`/docs`: Swagger UI from the installed package, so that it works without the internet and tells nobody."""

from __future__ import annotations

from importlib.resources import files
from typing import Annotated, Any

import msgspec
from fastapi import Path, Request, Response
from starlette.exceptions import HTTPException

from gtm import __version__
from gtm.api.context import reply
from gtm.api.query import strict_router

router = strict_router(include_in_schema=False)


@router.get("/")
async def root(request: Request) -> Response:
    """What this is and where to go on, for whoever opens the address."""
    base = str(request.base_url).rstrip("/")
    if "text/html" in request.headers.get("accept", ""):
        return Response(status_code=307, headers={"Location": "/docs", "Cache-Control": "no-store"})
    return reply(
        {
            "service": "gtm control",
            "version": __version__,
            "documentation": f"{base}/docs",
            "openapi": f"{base}/docs/openapi.json",
            "status": f"{base}/v1/status",
        }
    )


_FILES = {"swagger-ui.css": "text/css", "swagger-ui-bundle.js": "text/javascript"}
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
)
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>gtm control API</title>
<link rel="stylesheet" href="/docs/swagger-ui.css">
</head>
<body>
<div id="swagger-ui"></div>
<script src="/docs/swagger-ui-bundle.js"></script>
<script src="/docs/start.js"></script>
</body>
</html>
"""
# The validator badge would send the description's address to a server of Swagger's.
_START = """window.ui = SwaggerUIBundle({
  url: "/docs/openapi.json",
  dom_id: "#swagger-ui",
  validatorUrl: null,
  deepLinking: true,
  persistAuthorization: false
});
"""


@router.get("/docs")
async def page() -> Response:
    """The API's documentation for people: one page, nothing loaded from elsewhere."""
    return Response(_PAGE, headers={"Content-Security-Policy": _POLICY}, media_type="text/html")


@router.get("/docs/start.js")
async def start() -> Response:
    """The script that sets the page up."""
    return Response(_START, media_type="text/javascript")


@router.get("/docs/openapi.json")
async def description(request: Request) -> Response:
    """The OpenAPI description as this version of Swagger UI can show it: 3.0, where null is an attribute."""
    return Response(
        msgspec.json.encode({**_older(request.app.openapi()), "openapi": "3.0.3"}),
        media_type="application/json",
    )


def _older(node: Any) -> Any:
    if isinstance(node, list):
        return [_older(item) for item in node]
    if not isinstance(node, dict):
        return node
    node = {key: _older(value) for key, value in node.items()}
    branches = node.get("anyOf")
    if isinstance(branches, list) and {"type": "null"} in branches:
        kept = [branch for branch in branches if branch != {"type": "null"}]
        del node["anyOf"]
        return {
            **node,
            **(kept[0] if len(kept) == 1 and "$ref" not in kept[0] else {"anyOf": kept}),
            "nullable": True,
        }
    return node


@router.get("/docs/{name}")
async def asset(name: Annotated[str, Path()]) -> Response:
    """A file of Swagger UI."""
    if name not in _FILES:
        raise HTTPException(404)
    root = files("swagger_ui_bundle").joinpath("vendor")
    version = max(
        (item for item in root.iterdir() if item.name.startswith("swagger-ui")), key=lambda i: i.name
    )
    content = version.joinpath(name).read_bytes()
    return Response(content, headers={"Cache-Control": "max-age=86400"}, media_type=_FILES[name])
