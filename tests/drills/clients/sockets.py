"""A model server that speaks over WebSockets and to pages of other origins, and wants a key: run by the Python that has the clients, as they are.

It prints its port. What it answers to pages is only for the origin that it is given.
"""

from __future__ import annotations

import asyncio
import sys

from aiohttp import WSMsgType, web

KEY = "key-of-nobody"
ORIGIN = sys.argv[1]
_OF_BROWSERS = f"openai-insecure-api-key.{KEY}"
"""A subprotocol: pages can send no header with an opening handshake, and OpenAI's realtime API takes keys so."""


def _has_key(request: web.Request) -> bool:
    protocols = request.headers.get("sec-websocket-protocol", "")
    return request.headers.get("authorization") == f"Bearer {KEY}" or _OF_BROWSERS in protocols


async def _health(_: web.Request) -> web.Response:
    return web.Response()


async def _realtime(request: web.Request) -> web.StreamResponse:
    """Says hello first, and then each message again; `leave` ends it by a code of its own."""
    if not _has_key(request):
        return web.Response(status=401)
    socket = web.WebSocketResponse(protocols=("realtime",), max_msg_size=16 * 1024 * 1024)
    await socket.prepare(request)
    await socket.send_str("hello")
    async for message in socket:
        if message.type == WSMsgType.BINARY:
            await socket.send_bytes(message.data)
        elif message.data == "leave":
            await socket.close(code=4001, message=b"bye")
        else:
            await socket.send_str(message.data)
    return socket


async def _chat(request: web.Request) -> web.Response:
    said = {"access-control-allow-origin": ORIGIN}
    if not _has_key(request):
        return web.Response(status=401, headers=said)
    asked = await request.json()
    return web.json_response({"said": asked["messages"][-1]["content"]}, headers=said)


async def _main() -> None:
    app = web.Application(client_max_size=16 * 1024 * 1024)
    app.router.add_get("/health", _health)
    app.router.add_get("/v1/realtime", _realtime)
    app.router.add_post("/v1/chat/completions", _chat)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_main())
