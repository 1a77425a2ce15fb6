"""The demo world: its regions on addresses of their own, the page for refused clients, and the switch.

What a region is, is for others to say (`gtm.runtime.serve`): here it starts, dies and changes its size. A failed region does not
listen at all: its clients see refused connections, as when a region dies, and it reports nothing. On the switch address, `GET /`
tells every region's state; `POST /NAME/fail` and `POST /NAME/restore` turn one off and on, `POST /NAME/capacity/SLOTS` changes how
many requests it serves at once.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Protocol

from gtm.demo.block import PORT, REFUSAL_HOST, address
from gtm.demo.http import Answer, HttpServer, Request, problem
from gtm.demo.servers import MAX_SLOTS

_LEGAL = "no region that may serve you is usable now; your request was not sent anywhere else"


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

    async def start(self, switch: socket.socket) -> None:
        """Start the refusal page and the switch.

        Raises:
            OSError: an address is taken.
        """
        await HttpServer(_refuse).listen(address(self._block, REFUSAL_HOST), PORT)
        await HttpServer(self.switch).adopt(switch)

    def state(self) -> dict[str, dict[str, Any]]:
        """Region → how it stands."""
        return {name: region.state() for name, region in self._regions.items()}

    async def switch(self, request: Request) -> Answer:
        """What the page of the demo world asks for: how regions stand, or that one fails, comes back or has other slots."""
        _, name, action, number, *_ = (*request.path.split("/"), "", "", "")
        region = self._regions.get(name)
        if request.method != "POST" or region is None:
            if request.path == "/" and request.method == "GET":
                return Answer(HTTPStatus.OK, self.state())
            return problem(HTTPStatus.NOT_FOUND, f"there is no demo region `{name}`")
        async with self._changing:
            if action == "fail":
                await region.kill()
            elif action == "restore":
                await region.start()
            elif action == "capacity" and number.isdecimal() and 1 <= int(number) <= MAX_SLOTS:
                region.resize(int(number))
            else:
                return problem(HTTPStatus.NOT_FOUND, f"there is no action `{action}`, or not with `{number}`")
        return Answer(HTTPStatus.OK, self.state())


async def _refuse(_: Request) -> Answer:
    """Where DNS sends clients that no lawful region can serve."""
    return problem(HTTPStatus.UNAVAILABLE_FOR_LEGAL_REASONS, _LEGAL)
