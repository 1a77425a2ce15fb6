"""The demo world's servers, in one process on asyncio.

A failed region does not listen at all: its clients see refused connections, as when a region dies, and it reports
nothing. On the switch address, `GET /` tells every region's state; `POST /NAME/fail` and `POST /NAME/restore` turn one
off and on, `POST /NAME/capacity/SLOTS` changes how many requests it serves at once.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping
from http import HTTPStatus
from random import Random
from typing import Any

from gtm.demo.block import PORT, REFUSAL_HOST, address
from gtm.demo.http import Answer, HttpServer, Request, problem
from gtm.demo.inference import MAX_SLOTS, InferenceServer

_LEGAL = "no region that may serve you is usable now; your request was not sent anywhere else"


class World:
    """The servers of one block.

    Args:
        block: which 127.0.N.0/24 to stand on.
        slots: region → slots, in the order of their addresses.
    """

    def __init__(self, block: int, slots: Mapping[str, int]) -> None:
        self._block = block
        self._hosts = {name: address(block, number) for number, name in enumerate(slots, 1)}
        self._regions = {name: InferenceServer(name, count, Random()) for name, count in slots.items()}
        self._listening: dict[str, HttpServer] = {}
        self._changing = asyncio.Lock()

    async def start(self, switch: socket.socket) -> None:
        """Start every region, the refusal page and the switch.

        Raises:
            OSError: an address is taken.
        """
        for name in self._hosts:
            await self.restore(name)
        await HttpServer(_refuse).listen(address(self._block, REFUSAL_HOST), PORT)
        await HttpServer(self._switch).adopt(switch)

    def state(self) -> dict[str, dict[str, Any]]:
        """Region → whether it is `up` or `failed`, its slots, and the requests that it serves and that wait."""
        return {
            name: {"state": "up" if name in self._listening else "failed", **region.state()}
            for name, region in self._regions.items()
        }

    def reports(self) -> list[dict[str, Any]]:
        """The load reports of all regions that run."""
        return [report for name in self._listening for report in self._regions[name].reports()]

    async def fail(self, name: str) -> None:
        """Stop a region; nothing if it is stopped. The requests that it has break off."""
        async with self._changing:
            server = self._listening.pop(name, None)
            if server is not None:
                await server.close()

    async def restore(self, name: str) -> None:
        """Start a region again; nothing if it runs."""
        async with self._changing:
            if name not in self._listening:
                server = HttpServer(self._regions[name].answer)
                await server.listen(self._hosts[name], PORT)
                self._listening[name] = server

    async def _switch(self, request: Request) -> Answer:
        _, name, action, number, *_ = (*request.path.split("/"), "", "", "")
        if request.method != "POST" or name not in self._regions:
            if request.path == "/" and request.method == "GET":
                return Answer(HTTPStatus.OK, self.state())
            return problem(HTTPStatus.NOT_FOUND, f"there is no demo region `{name}`")
        if action == "fail":
            await self.fail(name)
        elif action == "restore":
            await self.restore(name)
        elif action == "capacity" and number.isdecimal() and 1 <= int(number) <= MAX_SLOTS:
            self._regions[name].slots.resize(int(number))
        else:
            return problem(HTTPStatus.NOT_FOUND, f"there is no action `{action}`, or not with `{number}`")
        return Answer(HTTPStatus.OK, self.state())


async def _refuse(_: Request) -> Answer:
    """Where DNS sends clients that no lawful region can serve."""
    return problem(HTTPStatus.UNAVAILABLE_FOR_LEGAL_REASONS, _LEGAL)
