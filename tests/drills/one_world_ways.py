"""The ways in which the drill of one world asks, and the servers that requests arrive at: both on plain sockets, for they are asked a million times."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from asyncio import IncompleteReadError
from collections.abc import Callable
from typing import NamedTuple

import dns.message
import dns.rcode

from tests.balancer.world import Message, Peer
from tests.dns.world import addresses, query

WAYS = ("look-up", "redirect", "carry", "NGINX", "Envoy", "DNS")
READERS = ("carry", "NGINX", "Envoy")
"""The ways by which a request itself arrives at a region."""
REFUSAL = "192.0.2.250"
_LOST = 5.0
"""Seconds after which a packet is sent again."""
_TOLD_BY_NGINX = (421, 429, 451, 503)
"""The refusals that the page's file for NGINX tells by their own status; all others are 403."""


class Question(NamedTuple):
    """What is asked, whatever the way."""

    service: str
    client: str
    tenant: str | None
    data_class: str | None


class Told(NamedTuple):
    """How a request ended: `goes`, `redirected` (where it was to be carried), `refused` (DNS has one refusal for two of HTTP's), a refusal's status, or `none`: nobody answered for gtm."""

    how: str
    region: str | None = None
    code: str = ""


NONE = Told("none")


def host(service: str, tenant: str | None, data_class: str | None) -> str:
    """The host name of a service that states a tenant and a data class, or leaves them open."""
    return f"{tenant or 'any'}-{data_class or 'any'}.{service}.one.test"


def address(number: int) -> str:
    """The address that DNS gives out for a region; its server listens there as well as anywhere on this machine."""
    return f"127.0.1.{number + 1}"


class Upstream(asyncio.Protocol):
    """A connection to a region's server, which says which region it is, and tells a drill what arrived."""

    def __init__(self, region: str, arrived: Callable[[str, str, int], None]) -> None:
        self._region, self._arrived, self._got = region, arrived, b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has come."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Answer each request that is whole."""
        self._got += data
        while b"\r\n\r\n" in self._got:
            head, _, rest = self._got.partition(b"\r\n\r\n")
            lines = [line.partition(b":") for line in head.split(b"\r\n")[1:]]
            fields = {name.lower(): value.strip().decode() for name, _, value in lines}
            length = int(fields.get(b"content-length", 0))
            if len(rest) < length:
                return
            self._got = rest[length:]
            if b"x-case" in fields:
                self._arrived(self._region, fields[b"x-way"], int(fields[b"x-case"]))
            served = f"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nx-served-by: {self._region}\r\n\r\nok"
            self._transport.write(served.encode())


class Asker:
    """Asks one thing after another, with a connection of its own for each way.

    Args:
        ports: of each way; those of a proxy by its name and service, as in `NGINX s0`.
        regions: address → region.
    """

    def __init__(self, ports: dict[str, int], regions: dict[str, str]) -> None:
        self._ports, self._regions = ports, regions
        self._open: dict[int, Peer] = {}

    async def ask(self, way: str, question: Question, number: int, *, post: bool = False) -> Told:
        """How a request ends one way; `number` is the case's."""
        if way == "DNS":
            return await self._resolve(question)
        path = f"/r/{question.service}/v1/chat?x=1"
        name = way
        if way == "look-up":
            path = f"/v1/route?service={question.service}{_query(question)}"
        elif way in ("NGINX", "Envoy"):
            path, name = "/v1/chat?x=1", f"{way} {question.service}"
        answer = await self._exchange(self._ports[name], _request(path, question, way, number, post=post))
        return NONE if answer is None else read(way, answer)

    async def odds(self, question: Question) -> dict[str, float] | None:
        """The regions that a request may go to as things are, with their shares; None: there is no answer."""
        path = f"/v1/route?service={question.service}{_query(question)}&explain=1"
        answer = await self._exchange(self._ports["look-up"], _request(path, question, "look-up", 0))
        if answer is None or answer.status != 200:
            return None
        every = json.loads(answer.body)["candidates"]
        return {one["region"]: one["share"] for one in every if one["share"] > 0}

    async def _exchange(self, port: int, request: bytes) -> Message | None:
        """An answer, over the connection that there is, or once more over a new one: servers close those that rest."""
        for _ in range(2):
            peer = self._open.pop(port, None)
            rested = peer is not None
            try:
                if peer is None:
                    peer = Peer(*await asyncio.open_connection("127.0.0.1", port))
                peer.send(request)
                answer = await peer.response()
            except (OSError, IncompleteReadError, TimeoutError):
                if peer is not None:
                    await peer.gone()
                if not rested:
                    return None
                continue
            if answer.whole and (answer.get("connection") or b"").lower() != b"close":
                self._open[port] = peer
            else:
                await peer.gone()
            return answer if answer.whole else None
        return None

    async def _resolve(self, question: Question) -> Told:
        """Ask the name server, with the whole address as the client subnet."""
        packet = query(host(*question[:1], *question[2:]), subnet=f"{question.client}/32")
        loop = asyncio.get_running_loop()
        for _ in range(3):
            with socket.socket(type=socket.SOCK_DGRAM) as sock, contextlib.suppress(TimeoutError):
                sock.setblocking(False)
                sock.connect(("127.0.0.1", self._ports["DNS"]))
                try:
                    sock.send(packet)
                    reply = await asyncio.wait_for(loop.sock_recv(sock, 4096), _LOST)
                except ConnectionError:
                    return NONE
                return self._read(dns.message.from_wire(reply))
        return NONE

    def _read(self, reply: dns.message.Message) -> Told:
        if reply.rcode() != dns.rcode.NOERROR:
            return Told({dns.rcode.REFUSED: "421", dns.rcode.NXDOMAIN: "404"}.get(reply.rcode(), "error"))
        found = set(addresses(reply))
        if found == {REFUSAL}:
            return Told("refused")
        (region,) = {self._regions.get(one, f"{one}, nobody's address") for one in found}
        return Told("goes", region)

    async def close(self) -> None:
        """Leave nothing open."""
        for peer in self._open.values():
            await peer.gone()


def _query(question: Question) -> str:
    said = (("tenant", question.tenant), ("data_class", question.data_class))
    return "".join(f"&{name}={value}" for name, value in said if value is not None)


def _request(path: str, question: Question, way: str, number: int, *, post: bool = False) -> bytes:
    lines = [
        f"{'POST' if post else 'GET'} {path} HTTP/1.1",
        "host: edge.test",
        f"x-forwarded-for: {question.client}",
        f"x-case: {number}",
        f"x-way: {way}",
    ]
    if way != "look-up":
        said = (("x-gtm-tenant", question.tenant), ("x-gtm-data-class", question.data_class))
        lines += [f"{name}: {value}" for name, value in said if value is not None]
    if post:
        lines.append("content-length: 2")
    return "\r\n".join((*lines, "", "hi" if post else "")).encode()


def read(way: str, answer: Message) -> Told:
    """An answer of HTTP, in the words that all ways have in common."""
    if answer.status == 200 and way == "look-up":
        return Told("goes", json.loads(answer.body)["region"])
    said = answer.get("x-gtm-region")
    if answer.status == 307 and said is not None and way in ("redirect", "carry"):
        return Told("goes" if way == "redirect" else "redirected", said.decode())
    served = answer.get("x-served-by")
    if answer.status == 200 and served is not None and way in READERS:
        same = said == served or (said is None and way == "Envoy")
        return Told("goes", served.decode() if same else f"{served!r}, told as {said!r}")
    try:
        document = json.loads(answer.body)
        status, code = int(document["status"]), str(document["code"])
    except (ValueError, KeyError):
        return NONE
    told = status
    if (way == "NGINX" and status not in _TOLD_BY_NGINX) or (way == "Envoy" and status >= 500):
        told = 403
    return Told(str(status) if answer.status == told else f"{status}, told as {answer.status}", None, code)
