"""Where connections may go whose targets stand in a policy: those of probes, and of pushes between balancers.

Who writes a policy chooses what edges and balancers reach, from inside their networks (SSRF).

Law: the address that is connected to is one that was looked at here; no name is resolved twice.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

Ip = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

_METADATA = tuple(
    map(
        ip_network,
        (
            "fd00:ec2::/32",  # Amazon EC2, EKS, over IPv6
            "fd20:ce::254/128",  # Google Compute Engine, over IPv6
            "fd00:42::42/128",  # Scaleway, over IPv6
            "100.100.100.200/32",  # Alibaba Cloud
            "168.63.129.16/32",  # Azure's wire server
            "192.0.0.192/32",  # Oracle Cloud
        ),
    )
)
"""Services of clouds for their own machines that are not at link-local addresses, as 169.254.169.254 and 169.254.170.2 are."""
_UNSPECIFIED = ip_network("0.0.0.0/8")
_LAST_32 = tuple(
    map(
        IPv6Network,
        (
            "::/96",  # IPv4-compatible, RFC 4291 §2.5.5.1
            "::ffff:0:0/96",  # IPv4-mapped, RFC 4291 §2.5.5.2
            "::ffff:0:0:0/96",  # IPv4-translated, RFC 2765 §2.1
            "64:ff9b::/96",  # NAT64, RFC 6052 §2.1
        ),
    )
)
"""Forms of IPv6 whose last 32 bits are an IPv4 address."""
_NAT64_LOCAL = IPv6Network("64:ff9b:1::/48")
"""NAT64 of one's own network, RFC 8215: the prefix may be of any length from there on (RFC 6052 §2.2)."""
_ISATAP = (0x00005EFE, 0x02005EFE)
"""The first half of an interface's identifier that ends with an IPv4 address, RFC 5214 §6.1."""


class DestinationError(Exception):
    """A connection may not go where it should: the message says where that is, and what it is.

    Args:
        host: as the policy has it.
        literal: the address that it leads to.
        kind: what that is.
    """

    def __init__(self, host: str, literal: str, kind: str) -> None:
        leads = "" if literal == host else f"{host} is "
        super().__init__(f"{leads}{literal}, {kind}")
        self.literal = literal


@dataclass(frozen=True, slots=True)
class Destination:
    """Where a connection goes: host and port."""

    host: str
    port: int

    @property
    def authority(self) -> str:
        """As in a URL, IPv6 addresses in brackets."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def refusal(address: Ip, allowed: tuple[Network, ...] = ()) -> str | None:
    """What keeps an address from being connected to, in a few words; None: nothing does.

    Private addresses (RFC 1918, fc00::/7) are connected to: most regions are seen from inside.

    Args:
        address: an IPv6 form of an IPv4 address counts as both.
        allowed: networks that are connected to whatever they are.
    """
    if _within(address, allowed):
        return None
    for led in (address, *_led_to(address)):
        kind = _kind(led)
        if kind is not None and not _within(led, allowed):
            return kind
    return None


def _within(address: Ip, networks: tuple[Network, ...]) -> bool:
    return any(address in network for network in networks if network.version == address.version)


def _kind(address: Ip) -> str | None:
    for kind, found in (
        ("a loopback address", address.is_loopback),
        ("a link-local address", address.is_link_local),
        ("the unspecified address", address.is_unspecified or _within(address, (_UNSPECIFIED,))),
        ("a multicast address", address.is_multicast or address == IPv4Address("255.255.255.255")),
        ("a cloud's metadata service", _within(address, _METADATA)),
    ):
        if found:
            return kind
    return None


def _led_to(address: Ip) -> Iterator[IPv4Address]:
    """The IPv4 addresses that an IPv6 address may lead to, through translators and tunnels."""
    if not isinstance(address, IPv6Address):
        return
    number = int(address)
    last = IPv4Address(number & 0xFFFFFFFF)
    if any(address in network for network in _LAST_32) or number >> 32 & 0xFFFFFFFF in _ISATAP:
        yield last
    if address.sixtofour is not None:  # RFC 3056
        yield address.sixtofour
    if address.teredo is not None:  # RFC 4380: the server, and the client
        yield from address.teredo
    if address in _NAT64_LOCAL:
        octets = address.packed
        for first in (
            6,
            7,
            8,
            12,
        ):  # prefixes of 48, 56, 64 and 96 bits; the ninth octet is no part of the address
            taken = bytes(octet for place, octet in enumerate(octets) if place >= first and place != 8)
            found = IPv4Address(taken[:4])
            if found not in _UNSPECIFIED:  # zeros are the prefix's or the suffix's of another length
                yield found


async def addresses(target: Destination, allowed: tuple[Network, ...]) -> list[Destination]:
    """The addresses to try, in order (RFC 6724).

    Raises:
        DestinationError: one of them may not be connected to.
        OSError: the name does not resolve.
    """
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    literals = list(dict.fromkeys(str(info[4][0]) for info in found))
    for literal in literals:
        kind = refusal(ip_address(literal.partition("%")[0]), allowed)
        if kind is not None:
            raise DestinationError(target.host, literal, kind)
    return [Destination(literal, target.port) for literal in literals]
