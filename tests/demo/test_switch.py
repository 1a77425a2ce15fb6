"""The switch of the demo world, and what `gtm demo traffic` makes of what regions answer; regions here are only noted."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import dataclass, field
from http import HTTPStatus
from ipaddress import IPv4Address
from random import Random
from typing import Any

import httpx
import pytest

from gtm.demo.backend.protocol import Connection, HttpServer, Request
from gtm.demo.clients import Demand, countries
from gtm.demo.servers import MAX_SLOTS
from gtm.demo.summary import End, Result
from gtm.demo.traffic import Course, DemoTraffic, Target
from gtm.demo.world import World

KNOWN = {network for country in countries() for network in country.networks}


@dataclass
class Noted:
    """A region that notes what it is told."""

    told: list[object] = field(default_factory=list)

    async def start(self) -> None:
        """See `Region`."""
        self.told.append("start")

    async def kill(self) -> None:
        """See there."""
        self.told.append("kill")

    def resize(self, slots: int) -> None:
        """See there."""
        self.told.append(slots)

    def state(self) -> dict[str, Any]:
        """See there."""
        return {"state": "up", "told": self.told}


def test_the_switch_tells_regions() -> None:
    """Each action reaches the region that it names and no other; what is no action, or no number of slots, reaches nobody."""

    async def run() -> None:
        regions = {"fra": Noted(), "iad": Noted()}
        world = World(1, regions)
        sock = socket.create_server(("127.0.0.1", 0))
        server = HttpServer(world.switch)
        await server.adopt(sock)
        base = f"http://127.0.0.1:{sock.getsockname()[1]}"
        async with httpx.AsyncClient(trust_env=False) as client:

            async def post(path: str) -> int:
                return (await client.post(f"{base}{path}")).status_code

            for path in ("fra/fail", "fra/restore", "fra/capacity/1", f"fra/capacity/{MAX_SLOTS}"):
                assert await post(f"/{path}") == 200
            for path in (
                *("fra/capacity/0", f"fra/capacity/{MAX_SLOTS + 1}", "fra/capacity/x", "fra/capacity"),
                *("fra/burn", "fra", "ber/fail", ""),
            ):
                assert await post(f"/{path}") == 404
            assert regions["fra"].told == ["kill", "start", 1, MAX_SLOTS]
            assert (await client.get(f"{base}/")).json() == {
                name: one.state() for name, one in regions.items()
            }
        assert regions["iad"].told == []
        server.stop()

    asyncio.run(run())


@pytest.mark.parametrize(
    ("status", "end"),
    [
        (200, End.SERVED),
        (421, End.WRONG_REGION),
        (429, End.OVER_FAIR_SHARE),
        (451, End.REFUSED_RESIDENCY),
        (503, End.REGION_FULL),
        (504, End.REGION_FULL),
        (502, End.REGION_GONE),
        (404, End.REGION_GONE),
    ],
)
def test_what_a_region_answers_counts_as_what_it_is(status: int, end: End) -> None:
    """By its status; the client is named to the region, and the service by the Host, wherever the redirect led."""

    async def run() -> tuple[list[Request], Result]:
        seen: list[Request] = []

        def region(connection: Connection, request: Request) -> None:
            seen.append(request)
            connection.respond(HTTPStatus(status), b"{}", headers={"Server-Timing": "queue;dur=3.5"})

        def edge(connection: Connection, request: Request) -> None:
            seen.append(request)
            _, _, service, path = request.path.split("/", 3)
            where = f"http://127.0.0.1:{port}/{path}?gtm_handoff={service}"
            connection.respond(HTTPStatus.TEMPORARY_REDIRECT, b"{}", headers={"Location": where})

        listening = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
        port, edge_port = (sock.getsockname()[1] for sock in listening)
        servers = [HttpServer(region), HttpServer(edge)]
        for server, sock in zip(servers, listening, strict=True):
            await server.adopt(sock)
        target = Target(("127.0.0.1", edge_port), ("127.0.0.1", 9), port, {"127.0.0.1": "fra"}, {})
        traffic = DemoTraffic(target, Course(Demand(rps=50.0), 0.0, 0.2), Random(1))
        found: list[Result] = []
        traffic.summary.add = lambda result, now: found.append(result)  # type: ignore[method-assign]  # noqa: ARG005
        await traffic.run(asyncio.Event())
        for server in servers:
            server.stop()
        assert len({result.end for result in found}) == 1
        return seen, found[0]

    seen, result = asyncio.run(run())
    assert (result.end, result.region, result.via) == (end, "fra", "redirect")
    assert result.wait_ms == (3.5 if end is End.SERVED else 0.0)
    asked = [request for request in seen if not request.path.startswith("/r/")]
    assert len(asked) == len(seen) / 2 > 0
    for request in asked:
        service = request.headers["host"].removesuffix(".demo.test")
        assert request.target.decode() == f"/v1/chat/completions?gtm_handoff={service}"
    for request in seen:
        assert request.method == "POST"
        assert any(IPv4Address(request.headers["x-forwarded-for"]) in network for network in KNOWN)
