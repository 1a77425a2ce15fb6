"""A model server of two processes, as vLLM is one: an API server that answers `/health`, and an engine that makes the tokens.

    python tests/bench/frozen_server.py PORT

The first line that it writes is `{"engine": PID}`. The head of a stream goes to its client at once, the first token after `PREFILL` seconds. An engine that is
stopped is noticed by nobody. Of one that is killed the API server tells its clients, by an event that is an error, and then ends, as vLLM does.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import sys
import time

STEP, PREFILL, TOKENS = 0.025, 0.5, 40
_DEAD = (
    b'{"error": {"message": "EngineCore encountered an issue.", "type": "InternalServerError", "code": 500}}'
)
_ERROR = b"data: " + _DEAD + b"\n\n"


def engine() -> None:
    """Make tokens: reads `ID COUNT` or `ID 0` (nobody waits any more), writes `ID LEFT` for each token."""
    wanted: dict[str, tuple[int, float]] = {}

    async def read() -> None:
        reader = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
        )
        while line := await reader.readline():
            name, count = line.decode().split()
            if count == "0":
                wanted.pop(name, None)
            else:
                wanted[name] = int(count), time.monotonic() + PREFILL
        asyncio.get_running_loop().stop()

    async def make() -> None:
        while True:
            await asyncio.sleep(STEP)
            now = time.monotonic()
            for name, (left, ready) in tuple(wanted.items()):
                if now < ready:
                    continue
                wanted[name] = left - 1, ready
                if left == 1:
                    del wanted[name]
                sys.stdout.write(f"{name} {left - 1}\n")
            sys.stdout.flush()

    async def both() -> None:
        await asyncio.gather(read(), make())

    with contextlib.suppress(RuntimeError):
        asyncio.run(both())


class Api:
    """The API server."""

    def __init__(self) -> None:
        self.asked: dict[str, asyncio.Queue[int | None]] = {}
        self.names = map(str, itertools.count())
        self.alive = True

    async def serve(self, port: int) -> None:
        """Until the engine is gone."""
        pipe = asyncio.subprocess.PIPE
        self.engine = await asyncio.create_subprocess_exec(
            sys.executable, __file__, "--engine", stdin=pipe, stdout=pipe
        )
        await asyncio.start_server(self.connection, "127.0.0.1", port, backlog=2048)
        print(json.dumps({"engine": self.engine.pid}), flush=True)
        assert self.engine.stdout is not None
        while line := await self.engine.stdout.readline():
            name, left = line.decode().split()
            if name in self.asked:
                self.asked[name].put_nowait(int(left))
        self.alive = False
        for queue in self.asked.values():
            queue.put_nowait(None)
        await asyncio.sleep(1)

    def tell(self, name: str, count: int) -> None:
        """Ask the engine for tokens."""
        if self.alive and self.engine.stdin is not None:
            self.engine.stdin.write(f"{name} {count}\n".encode())

    async def connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer requests, one after the other."""
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                length = int(head.partition(b"content-length:")[2].split(b"\r\n")[0] or 0)
                body = await reader.readexactly(length)
                if head.startswith(b"post"):
                    await self.complete(json.loads(body), reader, writer)
                elif b"/v1/models" in head.split()[1]:
                    writer.write(_answer(b'{"object":"list","data":[{"id":"bench"}]}'))
                else:
                    writer.write(_answer(b"", 404 if b"/metrics" in head else 200 if self.alive else 503))
        writer.close()

    async def complete(
        self, wanted: dict[str, object], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Answer one, in full or as a stream."""
        if not self.alive:
            writer.write(_answer(_DEAD, 500))
            return
        name, queue = next(self.names), asyncio.Queue[int | None]()
        count, streams = int(str(wanted.get("max_tokens") or TOKENS)), wanted.get("stream")
        self.asked[name] = queue
        self.tell(name, count)
        if streams:
            writer.write(
                b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
            )
        gone = asyncio.ensure_future(reader.read(1))
        try:
            left: int | None = count
            while left:
                came = asyncio.ensure_future(queue.get())
                await asyncio.wait((came, gone), return_when=asyncio.FIRST_COMPLETED)
                if gone.done():
                    came.cancel()
                    raise ConnectionResetError
                left = came.result()
                if streams:
                    writer.write(
                        _chunk(
                            _ERROR if left is None else b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n'
                        )
                    )
            if streams:
                writer.write(_chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n")
            else:
                dead = left is None
                writer.write(_answer(_DEAD if dead else b'{"choices":[{"text":"a"}]}', 500 if dead else 200))
        finally:
            self.asked.pop(name, None)
            self.tell(name, 0)
            if not gone.done():
                gone.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await gone


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def _answer(body: bytes, status: int = 200) -> bytes:
    return b"HTTP/1.1 %d Said\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (
        status,
        len(body),
        body,
    )


if __name__ == "__main__":
    if sys.argv[1] == "--engine":
        engine()
    else:
        asyncio.run(Api().serve(int(sys.argv[1])))
