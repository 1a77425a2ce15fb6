"""What a simulated model server costs: `python tests/bench/backend_bench.py`, a thousand streams of 50 tokens a second each.

A benchmark of a balancer is worth something only if what stands behind it is much cheaper than the balancer. The server runs on a core
of its own, the clients on another; processor time is the server's, over seconds in which all streams flow.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from functools import partial
from pathlib import Path
from typing import cast

import typer
import uvloop

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.bench.measure import cpu_seconds, server
from tests.demo.backend.harness import ask
from tests.ports import free_port

PATIENCE = 60.0
STEP_MS = 20.0


class Stream(asyncio.Protocol):
    """Asks for a stream and counts its tokens."""

    tokens = 0
    """Of all streams."""
    open = 0

    def __init__(self, request: bytes) -> None:
        self._request = request

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask."""
        Stream.open += 1
        cast("asyncio.Transport", transport).write(self._request)

    def data_received(self, data: bytes) -> None:
        """Count."""
        Stream.tokens += data.count(b'"content":" ')

    def connection_lost(self, _: Exception | None) -> None:
        """Gone."""
        Stream.open -= 1


def resident(pid: int) -> int:
    """Bytes of a process's memory."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


async def load(port: int, pid: int, streams: int, seconds: float) -> dict[str, float]:
    """Open all streams, let them flow, and measure."""
    loop = asyncio.get_running_loop()
    transports = []
    for number in range(streams):
        body = ask(8000, stream=True, text=f"{number}", model="bench")
        head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body)
        transport, _ = await loop.create_connection(partial(Stream, head + body), "127.0.0.1", port)
        transports.append(transport)
    deadline = loop.time() + PATIENCE
    while Stream.tokens < 3 * streams and loop.time() < deadline:  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(0.1)
    began, before, cpu = time.monotonic(), Stream.tokens, cpu_seconds(pid)
    await asyncio.sleep(seconds)
    took, tokens, used = time.monotonic() - began, Stream.tokens - before, cpu_seconds(pid) - cpu
    if Stream.open != streams:
        raise SystemExit(f"{streams - Stream.open} of {streams} streams broke off")
    memory = resident(pid)
    for transport in transports:
        transport.abort()
    return {
        "streams": streams,
        "tokens_per_s_per_stream": round(tokens / took / streams, 2),
        "cpu_us_per_chunk": round(used / tokens * 1e6, 2),
        "cpu_share": round(used / took, 3),
        "resident_mb": round(memory / 1e6, 1),
    }


def main(streams: int = 1000, seconds: float = 10.0) -> None:
    """Measure one server."""
    port = free_port()
    batch = STEP_MS / 2 / streams
    arguments = [
        sys.executable, "-m", "gtm.cli", "demo", "backend", "--port", str(port), "--model", "bench", "--slots", str(streams),
        "--step-ms", str(STEP_MS / 2), "--sequence-ms", str(batch), "--kv-blocks", str(200 * streams), "--gpu-gb", "10000",
    ]  # fmt: skip

    def ready() -> bool:
        import httpx

        try:
            return httpx.get(f"http://127.0.0.1:{port}/health", trust_env=False).status_code == 200
        except httpx.HTTPError:
            return False

    with server(arguments, ready) as pid:
        found = uvloop.run(load(port, pid, streams, seconds))
    print(json.dumps({"backend": found}))


if __name__ == "__main__":
    typer.run(main)
