"""Which servers should have which beginnings of prompts in their prefix caches, by what was sent to them.

Theory. A prompt is cut into blocks of bytes; a block's hash covers all blocks before it too, so equal hashes mean equal prompts up to
there, and a server that has block k without block k − 1 cannot use it. Whoever was sent a prompt has its blocks, until it forgets the
least recently used, as engines do. Engines cut tokens, not bytes, and drop what they need room for: the map is an estimate. Where it is
wrong, a request computes at one server what it would have computed at another.

Laws:
  1. What a server has is of what was sent there since it is known: the most recent, no more blocks than it holds at once.
  2. A prompt's last blocks are forgotten before its first, so that no server has a block without those before it.
  3. Bounded: no more than `most` blocks of all servers together, in equal parts.

Source: the approximate trees of SGLang's router, and the prefix scorer of the Gateway API's endpoint picker.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

MOST_BLOCKS = 262_144
"""Of all servers together: about 50 MB."""
LONGEST = 256
"""Blocks of a prompt that are looked at: a bound on what one request costs."""


def blocks(prompt: bytes, size: int, salt: bytes = b"", most: int = LONGEST) -> tuple[int, ...]:
    """The hashes of a prompt's whole blocks of `size` bytes, each over all before it.

    Args:
        prompt: what the model reads, as bytes.
        size: bytes in a block, at least 1.
        salt: what else prompts must share, for example the model.
        most: blocks at the most, the first ones.
    """
    found: list[int] = []
    before = blake2b(salt, digest_size=8).digest()
    for start in range(0, min(len(prompt) - size + 1, most * size), size):
        before = blake2b(before + prompt[start : start + size], digest_size=8).digest()
        found.append(int.from_bytes(before, "big"))
    return tuple(found)


@dataclass(slots=True, eq=False)
class _Held:
    """What one server has: the least recently used first. `bit` is its own in the masks of holders; `holds`: None: as many as it may."""

    bit: int
    blocks: OrderedDict[int, None] = field(default_factory=OrderedDict)
    holds: int | None = None


class PrefixMap:
    """See above.

    Args:
        most: how many blocks are remembered of all servers together.
    """

    def __init__(self, most: int = MOST_BLOCKS) -> None:
        self._most = most
        self._servers: dict[str, _Held] = {}
        self._names: dict[int, str] = {}
        """Bit → server."""
        self._masks: dict[int, int] = {}
        """Block → the bits of its holders."""

    def __len__(self) -> int:
        """Blocks that are remembered; one that two servers have counts twice."""
        return sum(len(held.blocks) for held in self._servers.values())

    def sent(self, server: str, prompt: Sequence[int]) -> None:
        """A prompt (`blocks`) goes to a server."""
        held = self._of(server)
        mine, masks, bit = held.blocks, self._masks, held.bit
        for block in reversed(prompt):  # the last is forgotten first
            if block in mine:
                mine.move_to_end(block)
            else:
                mine[block] = None
                masks[block] = masks.get(block, 0) | bit
        self._trim(held, self._room(held))

    def holds(self, server: str, count: int | None) -> None:
        """So many blocks fit into a server's cache; None: unknown."""
        held = self._of(server)
        held.holds = count
        self._trim(held, self._room(held))

    def keep(self, servers: frozenset[str]) -> None:
        """Forget all servers but these."""
        for name in [name for name in self._servers if name not in servers]:
            self._trim(self._servers[name], 0)
            del self._names[self._servers.pop(name).bit]

    def holders(self, prompt: Sequence[int]) -> list[tuple[int, list[str]]]:
        """Who has how many of a prompt's first blocks, the most first; those that have none are left out."""
        masks, found, still = self._masks, [], -1
        for depth, block in enumerate(prompt):
            mask = masks.get(block, 0)
            if depth and mask != still:
                found.append((depth, still & ~mask))
            still = mask
            if not mask:
                break
        if prompt and still:
            found.append((len(prompt), still))
        names = self._names
        return [(depth, [names[bit] for bit in _bits(mask)]) for depth, mask in reversed(found)]

    def _of(self, server: str) -> _Held:
        held = self._servers.get(server)
        if held is None:
            taken = sum(self._names)
            held = self._servers[server] = _Held(~taken & (taken + 1))  # the lowest bit that is free
            self._names[held.bit] = server
            for other in self._servers.values():
                self._trim(other, self._room(other))
        return held

    def _room(self, held: _Held) -> int:
        part = self._most // len(self._servers)
        return part if held.holds is None else min(held.holds, part)

    def _trim(self, held: _Held, most: int) -> None:
        mine, masks, others = held.blocks, self._masks, ~held.bit
        while len(mine) > most:
            block, _ = mine.popitem(last=False)
            left = masks[block] & others
            if left:
                masks[block] = left
            else:
                del masks[block]


def _bits(mask: int) -> list[int]:
    """The bits that are set, each as a number."""
    found = []
    while mask:
        bit = mask & -mask
        found.append(bit)
        mask ^= bit
    return found
