"""EDNS Client Subnet (RFC 7871): reading the option, locating its network, and the scope of an answer.

A client's location is what its resolver says of its network, or else where the resolver itself is. Both are hints,
never proof.

Law: a resolver keeps an answer for the whole network it asked about (§7.3.1: the shorter of source and scope). So the
country of a network is that of all its addresses, or else unknown.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from gtm.core.model import Location
from gtm.dns import wire

Locate = Callable[[str | bytes], Location]
"""Where an address is: given as text, or packed into 4 or 16 bytes."""

_FAMILY_BYTES = {1: 4, 2: 16}
"""Address family (IANA) → bytes of an address. All others are unknown, 0 included (RFC 7871 §7.2.1: FORMERR)."""


MAX_NETWORKS = 64
"""How many of the database's networks inside one client subnet are looked at before it counts as too wide to tell."""


class SubnetError(ValueError):
    """A client subnet that must be answered with FORMERR."""


@dataclass(frozen=True, slots=True)
class Subnet:
    """A client subnet as asked: `data` is family and source prefix length, `address` the truncated address."""

    family: int
    source: int
    address: bytes

    @property
    def packed(self) -> bytes:
        """The first address of the network."""
        return self.address.ljust(_FAMILY_BYTES[self.family], b"\0")

    def scope(self, location: Location) -> int:
        """The SCOPE PREFIX-LENGTH of an answer that followed from `location`.

        It is the database's network, which may be narrower than the network asked about (§7.2.1: "not specific
        enough") or wider. Networks of one database never overlap, so neither do scopes. A location without a network
        says nothing of other clients: the answer is then for the network asked about alone.

        A source of 0 keeps the client's network out of it (§7.1.2), so the answer has no scope either.
        """
        if self.source == 0:
            return 0
        if location.network is None or (":" in location.network and self.family == 1):
            return self.source
        return min(_length(location, self), _FAMILY_BYTES[self.family] * 8)

    def option(self, scope: int) -> bytes:
        """The option of a reply: family, source and address as in the query (§7.2.1)."""
        data = bytes((0, self.family, self.source, scope)) + self.address
        return wire.option(wire.OPTION_SUBNET, data)


def locate_subnet(subnet: Subnet, locate: Locate) -> Location:
    """Where a client subnet is: its first address's location, without the country unless all of it is in that country.

    The coordinates stay: they only rank, and a wrong rank costs time, while a wrong country opens a fence.
    """
    bits = _FAMILY_BYTES[subnet.family] * 8
    first = locate(subnet.packed)
    start = int.from_bytes(subnet.packed)
    at, end = start, start + (1 << bits - subnet.source)
    for _ in range(MAX_NETWORKS):
        here = first if at == start else locate(at.to_bytes(bits // 8))
        if first.country is None or here.country != first.country:
            break
        rest = bits - _length(here, subnet)
        at = (at >> rest) + 1 << rest
        if at >= end:
            return first
    return replace(first, country=None, subdivision=None, continent=None)


def _length(location: Location, subnet: Subnet) -> int:
    """The length of a location's network in the subnet's family; the subnet's own if the location names none."""
    if location.network is None:
        return subnet.source
    mapped = subnet.family == 2 and ":" not in location.network  # RFC 4291 §2.5.5.2
    return location.prefix_length + 96 if mapped else location.prefix_length


def read_subnet(data: bytes) -> Subnet:
    """Read the option of a query (§6).

    Raises:
        SubnetError: family unknown, a scope in a query, a prefix longer than addresses of the family, too few or too
            many octets, or bits set beyond the prefix.
    """
    if len(data) < 4:
        raise SubnetError("cut short")
    size = _FAMILY_BYTES.get(data[0] << 8 | data[1])
    source, scope, address = data[2], data[3], data[4:]
    if size is None:
        raise SubnetError("unknown family")
    if scope:
        raise SubnetError("a scope in a query")
    if source > size * 8:
        raise SubnetError("the prefix is longer than an address")
    if len(address) != (source + 7) // 8:
        raise SubnetError("the address does not fit the prefix")
    if source % 8 and address[-1] & 0xFF >> source % 8:
        raise SubnetError("bits are set beyond the prefix")
    return Subnet(data[1], source, address)
