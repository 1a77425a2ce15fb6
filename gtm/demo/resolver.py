"""A caching resolver as clients have one: asks the edge with the client's subnet, and keeps answers by scope and TTL.

Law: an answer is reused for those clients only whose network lies inside the scope it came with (RFC 7871 §7.3.1).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from ipaddress import IPv4Network

import dns.asyncquery
import dns.edns
import dns.exception
import dns.message
import dns.rcode
import dns.rdatatype
from dns.rdtypes.IN.A import A

_TIMEOUT = 2.0
_TRIES = 2


class ResolveError(Exception):
    """A name has no usable answer."""


@dataclass(frozen=True, slots=True)
class Resolved:
    """IPv4 addresses of a name, good for `ttl` seconds for all clients in `scope`."""

    addresses: tuple[str, ...]
    ttl: int
    scope: IPv4Network


Ask = Callable[[str, IPv4Network], Awaitable[Resolved]]
"""Asks an authoritative server for a name on behalf of a client subnet."""


def query(name: str, subnet: IPv4Network) -> dns.message.Message:
    """A question with a client subnet."""
    option = dns.edns.ECSOption(str(subnet.network_address), subnet.prefixlen)
    return dns.message.make_query(name, dns.rdatatype.A, use_edns=0, options=[option])


def read(reply: dns.message.Message, subnet: IPv4Network) -> Resolved:
    """What a reply says.

    Raises:
        ResolveError: it has no addresses.
    """
    if reply.rcode() != dns.rcode.NOERROR:
        raise ResolveError(f"the edge answers {dns.rcode.to_text(reply.rcode())}")
    found = [rrset for rrset in reply.answer if rrset.rdtype == dns.rdatatype.A]
    addresses = tuple(item.address for rrset in found for item in rrset if isinstance(item, A))
    if not addresses:
        raise ResolveError("the edge's answer has no address")
    return Resolved(addresses, min(rrset.ttl for rrset in found), _scope(reply, subnet))


def _scope(reply: dns.message.Message, subnet: IPv4Network) -> IPv4Network:
    """The network an answer is for: never narrower than what was asked for; all of the world for scope 0."""
    for option in reply.options:
        if isinstance(option, dns.edns.ECSOption):
            length = min(max(option.scopelen, 0), subnet.prefixlen)
            return subnet.supernet(new_prefix=length)
    return IPv4Network("0.0.0.0/0")


def edge(host: str, port: int) -> Ask:
    """Asks an edge over UDP; the question is repeated once if no answer comes."""

    async def ask(name: str, subnet: IPv4Network) -> Resolved:
        for _ in range(_TRIES):
            try:
                reply = await dns.asyncquery.udp(query(name, subnet), host, timeout=_TIMEOUT, port=port)
            except (dns.exception.DNSException, OSError) as error:
                problem = str(error) or type(error).__name__
            else:
                return read(reply, subnet)
        raise ResolveError(f"the edge does not answer over DNS: {problem}")

    return ask


class Resolver:
    """One resolver with its cache. Clients who ask the same at once wait for one question.

    Args:
        ask: the authoritative server.
        clock: monotonic seconds.
    """

    def __init__(self, ask: Ask, clock: Callable[[], float] = time.monotonic) -> None:
        self._ask = ask
        self._clock = clock
        self._kept: dict[str, dict[IPv4Network, tuple[float, Resolved]]] = {}
        self._asking: dict[tuple[str, IPv4Network], asyncio.Task[Resolved]] = {}
        self.hits = 0

    async def resolve(self, name: str, subnet: IPv4Network) -> tuple[str, ...]:
        """The addresses of a name for a client.

        Raises:
            ResolveError: the name has no usable answer.
        """
        kept = self._kept.setdefault(name, {})
        now = self._clock()
        for scope, (until, known) in kept.items():
            if until > now and subnet.subnet_of(scope):
                self.hits += 1
                return known.addresses
        key = (name, subnet)
        if key not in self._asking:
            self._asking[key] = asyncio.ensure_future(self._ask(name, subnet))
        try:
            found = await self._asking[key]
        finally:
            self._asking.pop(key, None)
        kept[found.scope] = (self._clock() + found.ttl, found)
        return found.addresses
