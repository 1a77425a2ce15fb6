"""Where a check may connect to (SSRF: who writes a policy chooses what edges fetch, from inside their networks).

Law: the address that is connected to is one that was looked at here; no name is resolved twice.
"""

from __future__ import annotations

import asyncio
import socket
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network

from gtm.settings import Network

Ip = IPv4Address | IPv6Address

_METADATA = frozenset(
    map(
        ip_address,
        (
            "fd00:ec2::254",  # Amazon EC2, over IPv6
            "100.100.100.200",  # Alibaba Cloud
            "168.63.129.16",  # Azure's wire server
            "192.0.0.192",  # Oracle Cloud
        ),
    )
)
"""Services of clouds for their own machines that are not at link-local addresses, as 169.254.169.254 is."""
_NAT64 = IPv6Network("64:ff9b::/96")
_UNSPECIFIED = ip_network("0.0.0.0/8")


class CheckError(Exception):
    """The check failed, for the reason in its message."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where a check goes: the host and port of its connection."""

    host: str
    port: int

    @property
    def authority(self) -> str:
        """As in a URL, IPv6 addresses in brackets."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def refusal(address: Ip, allowed: tuple[Network, ...] = ()) -> str | None:
    """What keeps an address from being probed, in a few words; None: nothing does.

    Private addresses (RFC 1918, fc00::/7) are probed: most regions are seen from inside.

    Args:
        address: IPv4 in IPv6 (mapped, NAT64) counts as what it leads to.
        allowed: networks that are probed whatever they are.
    """
    led = _led_to(address)
    if any(one in network for one in {address, led} for network in allowed if network.version == one.version):
        return None
    for kind, found in (
        ("a loopback address", led.is_loopback),
        ("a link-local address", led.is_link_local),
        ("the unspecified address", led.is_unspecified or (led.version == 4 and led in _UNSPECIFIED)),
        ("a multicast address", led.is_multicast or led == IPv4Address("255.255.255.255")),
        ("a cloud's metadata service", led in _METADATA),
    ):
        if found:
            return kind
    return None


def _led_to(address: Ip) -> Ip:
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            return address.ipv4_mapped
        if address in _NAT64:
            return IPv4Address(int(address) & 0xFFFFFFFF)
    return address


async def addresses(target: Target, allowed: tuple[Network, ...]) -> list[Target]:
    """The addresses to try, in order (RFC 6724).

    Raises:
        CheckError: one of them may not be probed.
        OSError: the name does not resolve.
    """
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    literals = list(dict.fromkeys(str(info[4][0]) for info in found))
    for literal in literals:
        kind = refusal(ip_address(literal.partition("%")[0]), allowed)
        if kind is not None:
            host = "" if literal == target.host else f"{target.host} is "
            raise CheckError(
                f"not probed: {host}{literal}, {kind}; if that is meant, start the edge with GTM_PROBE_ALLOW={literal}"
            )
    return [Target(literal, target.port) for literal in literals]
