"""The least an ASGI application can do: the peer of the edge's look-up, with a body of the same kind."""

from __future__ import annotations

from typing import Any

_BODY = b'{"region":"eu-west"}'
_HEADERS = [(b"content-type", b"application/json"), (b"content-length", str(len(_BODY)).encode())]


async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """Answer everything alike."""
    await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
    await send({"type": "http.response.body", "body": _BODY})
