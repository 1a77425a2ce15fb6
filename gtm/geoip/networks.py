"""Where a network is: the most that can be said of all its addresses."""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import ip_network

from gtm.core.latency.doubt import claim_of
from gtm.core.model.requests import Location, LocationFacts, location_facts, spanning
from gtm.geoip.address import network_text, parse_address

MAX_NETWORKS = 256
"""How many of the databases' networks inside one network are looked at before it counts as too many: whatever a /24 of
IPv4 holds."""

Locate = Callable[[str | bytes], Location]
"""Where an address is: given as text, or packed into 4 or 16 bytes."""


def locate_network(packed: bytes, length: int, locate: Locate) -> Location:
    """Where a network is: its first address's coordinates, and what a fence looks at of every part.

    A network inside one of the databases' own costs one look-up.

    Args:
        packed: its first address, 4 or 16 bytes.
        length: its prefix length in bits.
        locate: where an address is.
    """
    bits = len(packed) * 8
    first = here = locate(packed)
    start = at = int.from_bytes(packed)
    end = start + (1 << bits - length)
    parts: set[LocationFacts] = set()
    claims: dict[tuple[str, str], None] = {}
    for _ in range(MAX_NETWORKS):
        rest = bits - length_of(here, bits, length)
        at = (at >> rest) + 1 << rest
        if at >= end and not parts:
            return first
        parts.add(location_facts(here))
        claim = claim_of(here)
        if here.network is not None and claim is not None and here.source != "override":
            claims[here.network, claim] = None
        if at >= end:
            found = spanning(first, network_text(start, length, bits), parts)
            return found._replace(parts=tuple(claims))
        here = locate(at.to_bytes(bits // 8))
    return spanning(first, network_text(start, length, bits), None)


def length_of(location: Location, bits: int, length: int) -> int:
    """The prefix length of a location's network among addresses of so many bits.

    Args:
        location: of an address.
        bits: 32 or 128.
        length: the answer for a location that names no network.
    """
    if location.network is None:
        return length
    mapped = bits == 128 and ":" not in location.network  # RFC 4291 §2.5.5.2
    return location.prefix_length + 96 if mapped else location.prefix_length


def parse_client(text: str) -> str:
    """A client as text in its usual form: an address, or a subnet in CIDR notation as a DNS resolver states it.

    Raises:
        ValueError: it is neither, or a subnet with bits beyond its prefix.
    """
    if "/" not in text:
        return str(parse_address(text))
    try:
        return str(ip_network(text))
    except ValueError as error:
        raise ValueError(f"`{text[:64]}` is not a network in CIDR notation: {error}") from None


def told_subnet(client: str) -> str:
    """What a resolver tells of a client (RFC 7871 §11.1): the /24 or /56 of an address; a subnet is one already.

    >>> [told_subnet(client) for client in ("192.0.2.77", "2001:db8::1", "192.0.2.0/25")]
    ['192.0.2.0/24', '2001:db8::/56', '192.0.2.0/25']
    """
    if "/" in client:
        return client
    bits = 56 if ":" in client else 24
    return str(ip_network(f"{client}/{bits}", strict=False))


def locate_client(client: str, locate: Locate) -> Location:
    """Where a client of `parse_client` is."""
    if "/" not in client:
        return locate(client)
    network = ip_network(client)
    return locate_network(network.network_address.packed, network.prefixlen, locate)
