"""An edge that carries, between real sockets: clients and regions that say exactly what a test wants, byte by byte.

It is what a worker runs (`gtm.runtime.edge.worker.__main__`), in the loop of the test. Clients come from Germany; the fence of service `chat` is
Germany and Ireland, and the edge stands in Germany unless a test says otherwise.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from ipaddress import ip_network
from typing import Any, cast

import uvicorn
from uvicorn.server import ServerState

from gtm.core.model.policy import Policy
from gtm.core.model.regions import Endpoint
from gtm.core.model.requests import UNKNOWN_LOCATION, Location
from gtm.core.model.services import HttpAnswer, Zone
from gtm.core.model.state import State
from gtm.core.policy.edges import EdgePlace
from gtm.feed.wire import SnapshotMessage, StateMessage
from gtm.geoip.client import is_in
from gtm.handoff.jwt import made
from gtm.http.app import EdgeOptions
from gtm.runtime.edge.worker.carry import EdgeCarrier, EdgeProxy
from gtm.runtime.process.connections import MAX_CONNECTIONS, Connections
from gtm.runtime.process.http import _CONNECTIONS, DirectProtocol, server_config
from tests import worlds
from tests.balancer.world import (
    Backend,
    Clock,
    Message,
    Peer,
    Script,
    _held_to_its_table,
    answering,
)
from tests.http.world import NOW, Edge
from tests.patience import PATIENCE

LOOPBACK = ip_network("127.0.0.0/8")
NAMES = tuple(worlds.THREE.split())
CENTRAL, WEST, EAST = NAMES
HOME, AWAY = EdgePlace("DE"), EdgePlace("US")
KEY = made()
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
_NARROW = 4096


def german(packed: bytes) -> Location:
    """Everybody is in Germany, but for the networks of documents."""
    if packed[:3] == bytes((198, 51, 100)):
        return Location("US", None, "NA", 34.0, -118.2, None, "198.51.100.0/24", 24, "geoip")
    return (
        Location("DE", None, "EU", 50.1, 8.7, None, "127.0.0.0/8", 8, "override")
        if packed
        else UNKNOWN_LOCATION
    )


def policy(urls: dict[str, Sequence[str]], **changes: Any) -> Policy:
    """Services that are carried, fenced and not; and one that is redirected."""
    regions = [worlds.region(name, *(Endpoint(url, ("192.0.2.1",)) for url in urls[name])) for name in NAMES]
    carry = {"answer": HttpAnswer.CARRY}
    return worlds.policy(
        *regions,
        Zone("demo.test", "ns.demo.test", "hostmaster.demo.test"),
        worlds.service("chat", worlds.THREE, hostnames=("chat.demo.test",), **{**carry, **changes}),
        worlds.service("free", worlds.THREE, **carry),
        worlds.service("web", worlds.THREE, hostnames=("web.demo.test",)),
        worlds.service("nowhere", EAST, **carry),
        worlds.rule("gdpr", "DE IE", services="chat", client_countries="DE", legal_basis="GDPR Art. 44"),
        worlds.rule("ban", "DE", services="nowhere", acknowledge_empty_fence=True),
    )


class Carrying:
    """An edge on a port, its regions, and its clients."""

    def __init__(self, edge: Edge, carrier: EdgeCarrier, room: Connections, clock: Clock) -> None:
        self.edge = edge
        self.carrier = carrier
        self.room = room
        self.clock = clock
        self.state = ServerState()
        self.protocols: list[DirectProtocol] = []
        self.address = ("", 0)
        self.clients: list[Peer] = []
        self.urls: dict[str, Sequence[str]] = {}
        self.epoch = 1
        self.narrow = False
        self.config: uvicorn.Config

    @property
    def proxy(self) -> EdgeProxy:
        """What all carried connections share."""
        return self.carrier.proxy

    def load(self, change: Callable[[Policy], Policy] = lambda same: same) -> None:
        """Give the edge the policy, changed."""
        self.edge.current.apply(SnapshotMessage.of(7 + self.epoch, NOW, change(policy(self.urls)), ()))
        self.up(*NAMES)

    def up(self, *names: str) -> None:
        """From now on these regions are up."""
        self.epoch += 1
        snapshot = self.edge.current.snapshot
        assert snapshot is not None
        health = worlds.health(snapshot.regions, {*NAMES} - {*names}, since=1.0)
        self.edge.current.apply(StateMessage(State(epoch=self.epoch, health=health)))

    async def client(self, **more: Any) -> Peer:
        """A connection of its own."""
        made = socket.socket()
        if self.narrow:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _NARROW)
        made.setblocking(False)
        await asyncio.get_running_loop().sock_connect(made, self.address)
        reader, writer = await asyncio.open_connection(sock=made, **{"limit": 2**20, **more})
        peer = Peer(reader, writer)
        self.clients.append(peer)
        return peer

    async def ask(self, *pieces: bytes, method: str = "GET") -> Message:
        """One request on a connection of its own."""
        client = await self.client()
        client.send(*pieces)
        answer = await client.response(method)
        client.close()
        return answer

    def pass_time(self, seconds: float) -> None:
        """Let so much time have passed for what is carried."""
        self.clock.ahead += seconds
        self.proxy.look()

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until something holds that will."""
        async with asyncio.timeout(PATIENCE):
            while not holds():  # noqa: ASYNC110 - what holds is many things
                await asyncio.sleep(0.001)

    async def until_connected(self, number: int) -> list[DirectProtocol]:
        """Wait until the edge has taken so many connections, and say which."""
        await self.until(lambda: len(self.protocols) == number)
        return self.protocols

    def counted(self, beginning: str) -> float:
        """What was counted under names that begin so."""
        return sum(value for key, value in self.edge.counts.items() if key.startswith(beginning))

    async def nothing_left(self) -> None:
        """No connection, count, timer or byte is kept of anybody."""
        await self.until(lambda: not self.state.connections and not len(self.room))
        await self.until(lambda: not self.state.tasks)
        for one in self.protocols:
            assert one._deadline is None, one  # noqa: SLF001 - a timer that is left is seen by nothing else
            assert one._resting is None  # noqa: SLF001
            assert one._raw is None  # noqa: SLF001
        assert not self.proxy.connections
        assert not self.proxy.held.total
        self.proxy.close()
        await self.until(lambda: all(route.open == 0 for route in self.proxy.picker.routes()))


@contextlib.asynccontextmanager
async def carrying(
    *scripts: Script,
    place: EdgePlace = HOME,
    trusted: bool = False,
    limit: int = MAX_CONNECTIONS,
    narrow: bool = False,
    regions: dict[str, Sequence[str]] | None = None,
    keeps_alive: float = 75,
) -> AsyncIterator[tuple[Carrying, list[Backend]]]:
    """An edge before three regions, in the order of `NAMES`; those without a script answer `ok`.

    Args:
        scripts: what each region does.
        place: where the edge stands.
        trusted: clients are proxies of the operator's.
        limit: connections at most.
        narrow: kernels hold little between a client and the edge.
        regions: URLs of a region's endpoints, in place of its backend.
        keeps_alive: seconds for which a connection waits between requests.
    """
    loop = asyncio.get_running_loop()
    proxies = (LOOPBACK,) if trusted else ()
    edge = Edge(EdgeOptions(open_lookups=True, trusted_proxies=proxies), place, find=german)
    edge.sign(KEY)
    clock, room = Clock(loop), Connections(limit)
    carrier = EdgeCarrier(
        edge.app,
        edge.current,
        edge.handoffs,
        edge.counts,
        room=room,
        loop=loop,
        trusts=lambda peer: is_in(peer, proxies),
        allowed=(LOOPBACK,),
    )
    made = Carrying(edge, carrier, room, clock)
    made.narrow = narrow
    backends = [Backend(scripts[n] if n < len(scripts) else answering(OK)) for n in range(3)]
    made.urls = {name: (await one.start(),) for name, one in zip(NAMES, backends, strict=True)} | (
        regions or {}
    )
    made.load()
    config = server_config(
        edge.app, grace=3, lifespan=False, answer=edge.app.answer_head, trusted=proxies, carrier=carrier
    )
    config.load()
    config.timeout_keep_alive = keeps_alive  # type: ignore[assignment]
    made.config = config

    def connection() -> DirectProtocol:
        found = cast(
            "DirectProtocol",
            config.http_protocol_class(  # type: ignore[call-arg]
                config=config, server_state=made.state, app_state={}, _loop=loop
            ),
        )
        made.protocols.append(found)
        return found

    listener = socket.create_server(("127.0.0.1", 0))
    if narrow:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _NARROW)
    server = await loop.create_server(connection, sock=listener)
    made.address = server.sockets[0].getsockname()
    carrier.proxy.now = clock
    _CONNECTIONS[made.state] = room
    try:
        with _held_to_its_table():
            yield made, backends
        for client in made.clients:
            await client.gone()
        await made.nothing_left()
    finally:
        carrier.proxy.close()
        server.close()


def get(
    path: str = "/x", host: str = "chat.demo.test", *lines: str, method: str = "GET", body: bytes = b""
) -> bytes:
    """A request; with a body its length is said."""
    said = [f"{method} {path} HTTP/1.1", f"Host: {host}", *lines]
    if body:
        said.append(f"Content-Length: {len(body)}")
    return "\r\n".join((*said, "", "")).encode() + body
