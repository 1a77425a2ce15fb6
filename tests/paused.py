"""An event loop that stands still while a server answers it."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field


class PausedLoop(asyncio.SelectorEventLoop):
    """Its clock is `ahead` of the machine's: of what comes after a pause nothing else differs."""

    ahead = 0.0

    def time(self) -> float:
        return super().time() + self.ahead


_LONGEST = 300.0
"""Seconds: as long as pytest lets a test run."""


@dataclass
class PromptServer:
    """Answers one request at once. `port` is on loopback."""

    port: int
    asked: threading.Event = field(default_factory=threading.Event)
    answered: threading.Event = field(default_factory=threading.Event)

    async def stand_still(self, seconds: float) -> None:
        """Once it is asked, read nothing until it has answered, and so many seconds longer, as a process that is stopped or has no processor."""
        while not self.asked.is_set():  # noqa: ASYNC110 - another thread says it
            await asyncio.sleep(0)
        assert self.answered.wait(_LONGEST)
        loop = asyncio.get_running_loop()
        if isinstance(loop, PausedLoop):
            loop.ahead += seconds
        else:
            time.sleep(seconds)  # noqa: ASYNC251 - that is what is tried


@contextmanager
def prompt_server(answer: bytes) -> Iterator[PromptServer]:
    """Run one."""
    with socket.create_server(("127.0.0.1", 0)) as listens, ThreadPoolExecutor(1) as threads:
        server = PromptServer(listens.getsockname()[1])

        def serve() -> None:
            one, _ = listens.accept()
            with one:
                one.recv(1000)
                server.asked.set()
                one.sendall(answer)
                server.answered.set()
                one.recv(1)

        ends = threads.submit(serve)
        yield server
        ends.result(_LONGEST)
