"""The demo world: its regions on addresses of their own, the page for refused clients, and the switch.

What a region is, is for others to say (`gtm.runtime.serve`): here it starts, dies and changes its size. A failed region does not
listen at all: its clients see refused connections, as when a region dies, and it reports nothing. On the switch address, `GET /`
tells every region's state; `POST /NAME/fail` and `POST /NAME/restore` turn one off and on, `POST /NAME/capacity/SLOTS` changes how
many requests it serves at once.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Protocol

from gtm.demo.backend.protocol import Connection, HttpServer, Request
from gtm.demo.block import PORT, REFUSAL_HOST, address
from gtm.demo.servers import MAX_SLOTS

logger = logging.getLogger(__name__)

_LEGAL = "no region that may serve you is usable now; your request was not sent anywhere else"


_LASTS = 10.0
"""Seconds of a connection that has one answer: so a region that fails does so for its clients at once, and who sends nothing stays no longer."""


class Region(Protocol):
    """A region of the world."""

    async def start(self) -> None:
        """Come to life, unless it is alive; what takes longer than a moment goes on after this."""

    async def kill(self) -> None:
        """Die: what goes on breaks off, and nothing listens any more."""

    def resize(self, slots: int) -> None:
        """Serve so many requests at once from now on."""

    def state(self) -> dict[str, Any]:
        """How it stands: `state` is `up`, `failed` or `starting`."""


class World:
    """The servers of one block.

    Args:
        block: which 127.0.N.0/24 to stand on.
        regions: by name.
    """

    def __init__(self, block: int, regions: Mapping[str, Region]) -> None:
        self._block = block
        self._regions = regions
        self._changing = asyncio.Lock()
        self._answering: set[asyncio.Task[None]] = set()

    async def start(self, switch: socket.socket) -> None:
        """Start the refusal page and the switch.

        Raises:
            OSError: an address is taken.
        """
        await HttpServer(_refuse_by_law, _LASTS).listen(address(self._block, REFUSAL_HOST), PORT)
        await HttpServer(self.switch, _LASTS).adopt(switch)

    def state(self) -> dict[str, dict[str, Any]]:
        """Region → how it stands."""
        return {name: region.state() for name, region in self._regions.items()}

    def switch(self, connection: Connection, request: Request) -> None:
        """Answer what the page of the demo world asks for: how regions stand, or that one fails, comes back or has other slots."""
        task = asyncio.ensure_future(self._switch(connection, request))
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)

    async def _switch(self, connection: Connection, request: Request) -> None:
        try:
            refused = await self._act(request)
        except Exception:
            logger.exception("could not answer %s %r", request.method, request.target[:200])
            _refuse(connection, HTTPStatus.INTERNAL_SERVER_ERROR, "this is a bug in gtm")
            return
        if refused:
            _refuse(connection, HTTPStatus.NOT_FOUND, refused)
        else:
            connection.respond(HTTPStatus.OK, json.dumps(self.state()).encode() + b"\n")

    async def _act(self, request: Request) -> str:
        """Do what a request asks for; why there is no such thing to do, or nothing."""
        _, name, action, number, *_ = (*request.path.split("/"), "", "", "")
        region = self._regions.get(name)
        if request.method != "POST" or region is None:
            shown = request.path == "/" and request.method == "GET"
            return "" if shown else f"there is no demo region `{name}`"
        async with self._changing:
            if action == "fail":
                await region.kill()
            elif action == "restore":
                await region.start()
            elif action == "capacity" and number.isdecimal() and 1 <= int(number) <= MAX_SLOTS:
                region.resize(int(number))
            else:
                return f"there is no action `{action}`, or not with `{number}`"
        return ""


def _refuse(connection: Connection, status: HTTPStatus, detail: str) -> None:
    """Answer with a problem document (RFC 9457)."""
    document = {"type": "about:blank", "title": status.phrase, "status": status.value, "detail": detail}
    connection.respond(status, json.dumps(document).encode() + b"\n", "application/problem+json")


def _refuse_by_law(connection: Connection, _: Request) -> None:
    """Answer clients that no lawful region can serve, where DNS sends them."""
    _refuse(connection, HTTPStatus.UNAVAILABLE_FOR_LEGAL_REASONS, _LEGAL)
