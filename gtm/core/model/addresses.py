"""Addresses as they stand in URLs, and IPv6 addresses that stand for IPv4 addresses."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

Ip = IPv4Address | IPv6Address

_UNSPECIFIED = IPv4Network("0.0.0.0/8")
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


def led_to(address: Ip) -> Iterator[IPv4Address]:
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


def host_port(host: str, port: int) -> str:
    """Host and port as they stand in a URL, IPv6 addresses in brackets (RFC 3986 §3.2.2)."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
