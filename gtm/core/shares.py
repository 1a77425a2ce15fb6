"""How much of something each client has, and who has the most: whoever finds it full takes from that one.

A bound in all lets one client keep the others out; a bound for each lets many do so, and keeps a client short where nobody else
asks. Taken from who has the most, neither happens (max-min fairness: Bertsekas and Gallager, "Data Networks", 1992, §6.5.2).

Clients are ranked by the number of binary digits of what they have, so that no step looks at them all: who is said to have the most has
more than half of what anybody has.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

_Client = TypeVar("_Client", bound=Hashable)

PREFIX_BYTES = {4: 3, 16: 7}
"""Bytes of an address → of the prefix that counts as one client: of IPv4 /24, the least that is routed between networks;
of IPv6 /56, what one site gets (RFC 6177)."""


def client_prefix(packed: bytes) -> bytes:
    """The prefix of a packed address that counts as one client."""
    return packed[: PREFIX_BYTES[len(packed)]]


class Shares(Generic[_Client]):
    """What clients have, in whole numbers."""

    def __init__(self) -> None:
        self.total = 0
        """This is how much all clients have together."""
        self._of: dict[_Client, int] = {}
        self._ranks: list[dict[_Client, None]] = [{}]

    def __getitem__(self, client: _Client) -> int:
        return self._of.get(client, 0)

    def __len__(self) -> int:
        return len(self._of)

    def add(self, client: _Client, more: int) -> None:
        """A client has so much more, or less.

        Raises:
            ValueError: it has not so much.
        """
        before = self._of.get(client, 0)
        now = before + more
        if now < 0:
            raise ValueError(f"a client that has {before} cannot give {-more}")
        self.total += more
        if now:
            self._of[client] = now
        else:
            self._of.pop(client, None)
        rank, was = now.bit_length(), before.bit_length()
        if rank == was:
            return
        if was:
            del self._ranks[was][client]
        if rank:
            while len(self._ranks) <= rank:
                self._ranks.append({})
            self._ranks[rank][client] = None

    def largest(self) -> _Client | None:
        """A client that has more than half of what any has: of these, the one that has had so much for longest. None: nobody has anything."""
        for rank in reversed(self._ranks):
            if rank:
                return next(iter(rank))
        return None
