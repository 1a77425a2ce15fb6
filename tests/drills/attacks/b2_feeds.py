"""One edge token against every feed: reports that are to grow the State past what edges accept, and messages that are."""

from __future__ import annotations

import asyncio
import threading
import time

from gtm.core.model.state import State
from gtm.feed.client import FeedClient
from gtm.feed.wire import MAX_LINE, Message, StateMessage, encode
from tests.drills.arena import Arena, attack, held
from tests.drills.attacks.b1_votes import post, token

REPORTS = 8
SIZE = 8_000_000


@attack("B2", "eight reports of 8 MB about endpoints that nobody has")
def large_reports(arena: Arena) -> str:
    """What the policy does not name is dropped: the State stays small, and the edge keeps its feed."""
    system = arena.shared
    stolen = token(system, f"large-{time.monotonic_ns()}", edges="*")
    endpoint = {"status": "down", "since": 1.0, "detail": "x" * 900}
    count = SIZE // 1000
    for number in range(REPORTS):
        health = {f"ghost-{number}-{part}": {f"http://{part}/": endpoint} for part in range(900)}
        region = system.api("GET", "/v1/health").json()["regions"][0]["region"]
        health[region] = {f"http://{number}.{part}.ghost/": endpoint for part in range(count - 900)}
        body = {"version": "1", "revision": 1, "epoch": 1, "health": health}
        code = post(system, stolen, f"large-{number}", body).status_code
        held(code in (200, 413, 422), f"a report was answered {code}")
    time.sleep(1.0)

    async def state() -> int:
        async with FeedClient(system.control, stolen, "reader") as client:
            async for message in client.messages(None):
                if isinstance(message, StateMessage):
                    return len(encode(message))
        return -1

    size = asyncio.run(asyncio.wait_for(state(), 10))
    held(size < 1_000_000, f"the State is {size} bytes")
    edge = next(one for one in system.api("GET", "/v1/edges").json()["items"] if one["name"] == "local")
    held(edge["live"], "the edge fell silent")
    control = system.api("GET", "/metrics").text
    held("gtm_control_feed_subscribers 0.0" not in control, "the edge lost its feed")
    return f"the State is {size} bytes after {REPORTS * SIZE // 1_000_000} MB of reports; the feed goes on"


@attack("B2", "a message of the feed that is too long, and one that is broken")
def bad_messages(arena: Arena) -> str:
    """A real client of the feed skips both, and takes in the one after them."""
    del arena
    lines = [b"x" * (MAX_LINE + 1) + b"\n", b'{"type": "state", "body": [}\n', encode(StateMessage(State(7)))]
    skipped: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\nConnection: close\r\n\r\n")
        for line in lines:
            writer.write(line)
            await writer.drain()
        await reader.read()  # until the client goes
        writer.close()

    async def follow() -> Message:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with FeedClient(url, "gtm_none", "edge", skipped=skipped.append) as client:
            return await anext(client.messages(None))

    message: list[Message] = []
    thread = threading.Thread(target=lambda: message.append(asyncio.run(asyncio.wait_for(follow(), 30))))
    thread.start()
    thread.join()
    held(message and isinstance(message[0], StateMessage), f"no message arrived; skipped: {skipped}")
    held(len(skipped) == 2, f"skipped: {skipped}")
    return "both skipped and counted, the next State taken in"
