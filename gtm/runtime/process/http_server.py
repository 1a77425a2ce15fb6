"""Uvicorn as every HTTP server of gtm runs it, with an end that breaks no connection off."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from math import inf
from typing import Any

import uvicorn
import uvloop

from gtm.runtime.process.direct import AnswerHead, Direct, DirectProtocol
from gtm.runtime.process.http import PatientProtocol
from gtm.settings import Network

Application = Callable[[Any, Any, Any], Awaitable[None]]
"""An ASGI application, whatever it calls its parameters' types."""

KEEP_ALIVE = 75
"""Seconds for which a client's connection may wait for its next request: longer than the minute that proxies and load
balancers keep theirs, which would else send a request into a connection that is just being closed."""
_FINISH_EVERY = 0.05


def server_config(
    app: Application,
    *,
    grace: int,
    lifespan: bool = True,
    port: int = 8000,
    answer: AnswerHead | None = None,
    trusted: Sequence[Network] = (),
) -> uvicorn.Config:
    """How every HTTP server of gtm runs: with `PatientProtocol`, logs of our own, and no header that clients could forge.

    Args:
        app: the ASGI application.
        grace: seconds that answers may take once the server ends; feeds never end by themselves.
        lifespan: the application wants to know when the server starts and ends.
        port: on the loopback; of no use where the server is given sockets.
        answer: answers, in place, requests that are all head (`gtm.runtime.process.direct`); None: the application does.
        trusted: networks of proxies whose connections are many clients'.
    """
    protocol: type[PatientProtocol] = PatientProtocol if answer is None else DirectProtocol
    protocol = type(protocol.__name__, (protocol,), {"trusted": tuple(trusted)})
    return uvicorn.Config(
        app,
        port=port,
        http=protocol if answer is None else Direct(answer, protocol),  # type: ignore[arg-type]  # it is only called
        log_config=None,
        access_log=False,
        lifespan="auto" if lifespan else "off",
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=grace,
    )


class PatientServer(uvicorn.Server):
    """Uvicorn, with signals left to us, that lets clients close their connections before it ends.

    Args:
        config: uvicorn's.
        started: called once it accepts connections.
    """

    def __init__(self, config: uvicorn.Config, started: Callable[[], None]) -> None:
        super().__init__(config)
        self._started = started
        self._deadline = inf

    def run_on(self, sockets: list[socket.socket] | None) -> None:
        """Serve until told to end, on an event loop of this thread's own.

        Args:
            sockets: that listen; None: one of the configuration's port.
        """
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(self.serve(sockets))

    def finish(self, grace: float) -> None:
        """End, from any thread or a signal handler.

        Nothing more is accepted. For `grace` seconds every response asks its client to close (RFC 9112 §9.6), and what
        is open then is closed between requests. Asked again, the time only gets shorter.
        """
        self._deadline = min(self._deadline, time.monotonic() + grace)
        self.should_exit = True

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals alone."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept connections."""
        await super().startup(sockets)
        self._started()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Let the requests that are being answered come to their end."""
        for server in self.servers:
            server.close()
        headers = self.server_state.default_headers
        self.server_state.default_headers = [*headers, (b"connection", b"close")]
        while time.monotonic() < self._deadline:
            await asyncio.sleep(_FINISH_EVERY)  # first, because some may have been accepted this moment
            if not self.server_state.connections:
                break
        await super().shutdown(sockets)
