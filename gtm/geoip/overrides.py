"""What the operator says of networks, over what a database says."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network

from gtm.geoip.records import Place

Network = IPv4Network | IPv6Network


@dataclass(frozen=True, slots=True)
class Override:
    """Where a network is. Replaces everything that a database says of it, also with what is not given."""

    network: Network
    place: Place


class OverrideIndex:
    """Overrides of one address family (32 or 128 bits), no two of the same network; the most specific one wins."""

    def __init__(self, overrides: Iterable[Override], bits: int) -> None:
        ordered = sorted(
            (int(item.network.network_address), item.network.prefixlen, item.place)
            for item in overrides
            if item.network.max_prefixlen == bits
        )
        self._bits = bits
        self._order = [(start, length) for start, length, _ in ordered]
        self._places = {(start, length): place for start, length, place in ordered}
        self._lengths = sorted({length for _, length in self._order}, reverse=True)

    def __len__(self) -> int:
        return len(self._order)

    def match(self, address: int) -> tuple[Place, int] | None:
        """The most specific override around an address, and its prefix length."""
        for length in self._lengths:
            shift = self._bits - length
            place = self._places.get((address >> shift << shift, length))
            if place is not None:
                return place, length
        return None

    def narrowed(self, address: int, prefix_length: int) -> int:
        """The length of the widest prefix around an address, inside the given one, with no override inside it.

        The given prefix must be that of the override that `match` finds or, where there is none, any. The override
        nearest to the address, on either side, shares the longest prefix with it: these two decide.
        """
        if not self._order:
            return prefix_length
        shift = self._bits - prefix_length
        base = address >> shift << shift
        after = bisect_right(self._order, (address, self._bits))
        length = prefix_length
        if after and self._order[after - 1] > (base, prefix_length):
            length = max(length, self._differs_at(address, self._order[after - 1][0]))
        if after < len(self._order) and self._order[after][0] >> shift << shift == base:
            length = max(length, self._differs_at(address, self._order[after][0]))
        return length

    def _differs_at(self, address: int, other: int) -> int:
        """The length at which the prefixes of two addresses first differ."""
        return self._bits - (address ^ other).bit_length() + 1
