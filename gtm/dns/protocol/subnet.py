"""EDNS Client Subnet (RFC 7871): reading the option, locating its network, and the scope of an answer.

A client's location is what its resolver says of its network, or else where the resolver itself is. Both are hints,
never proof.

Law: a resolver keeps an answer for the whole network it asked about (§7.3.1: the shorter of source and scope). So the
fence of a network is that of all its parts together.
"""

from __future__ import annotations

from dataclasses import dataclass

from gtm.core.model.requests import Location
from gtm.dns.protocol import wire
from gtm.geoip.networks import length_of

_FAMILY_BYTES = {1: 4, 2: 16}
"""Address family (IANA) → bytes of an address. All others are unknown, 0 included (RFC 7871 §7.2.1: FORMERR)."""


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
        bits = _FAMILY_BYTES[self.family] * 8
        return min(length_of(location, bits, self.source), bits)

    def option(self, scope: int) -> bytes:
        """The option of a reply: family, source and address as in the query (§7.2.1)."""
        data = bytes((0, self.family, self.source, scope)) + self.address
        return wire.option(wire.OPTION_SUBNET, data)


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
