"""Where connections may go whose targets stand in a policy: those of probes, and of pushes between balancers.

Who writes a policy chooses what edges and balancers reach, from inside their networks (SSRF).

Law: the address that is connected to is one that was looked at here; no name is resolved twice.
"""

from __future__ import annotations

import asyncio
import socket
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Network, ip_address, ip_network

from gtm.core.model.addresses import Ip, host_port, led_to

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
        return host_port(self.host, self.port)


def refusal(address: Ip, allowed: tuple[Network, ...] = ()) -> str | None:
    """What keeps an address from being connected to, in a few words; None: nothing does.

    Private addresses (RFC 1918, fc00::/7) are connected to: most regions are seen from inside.

    Args:
        address: an IPv6 form of an IPv4 address counts as both.
        allowed: networks that are connected to whatever they are.
    """
    if _within(address, allowed):
        return None
    for led in (address, *led_to(address)):
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
