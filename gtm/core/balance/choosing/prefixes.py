"""Which servers have which beginnings of prompts in their prefix caches, as engines report it.

Theory. A prompt is cut into blocks of as many tokens (or bytes) as the engine's; a block's hash covers all blocks before it too, so
equal hashes mean equal prompts up to there, and a server that has block k without block k − 1 cannot use it. The map says for each
block who has it; a prompt's blocks are followed for as long as somebody has had all of them.

Laws:
  1. What is told is what counts: a block is with a server from `stored` until `removed`, `cleared` or forgotten.
  2. Bounded: beyond `most` blocks, the one that was asked for or stored least recently is forgotten.

Source: the events are those of vLLM (BlockStored, BlockRemoved, AllBlocksCleared) and SGLang.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from hashlib import blake2b

MOST_BLOCKS = 200_000
_LONGEST = 512
"""Blocks of a prompt that are looked at: a bound on what one request costs."""


def blocks(prompt: bytes, size: int, salt: str = "") -> tuple[int, ...]:
    """The hashes of a prompt's whole blocks of `size` bytes, each over all before it; the first 512.

    Args:
        prompt: what the model reads, as bytes.
        size: bytes in a block, at least 1.
        salt: what else prompts must share, for example model and tenant.
    """
    found: list[int] = []
    before = blake2b(salt.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    for start in range(0, min(len(prompt) - size + 1, _LONGEST * size), size):
        before = blake2b(before + prompt[start : start + size], digest_size=8).digest()
        found.append(int.from_bytes(before, "big"))
    return tuple(found)


class PrefixMap:
    """Who has which block.

    Args:
        most: how many blocks are remembered.
    """

    def __init__(self, most: int = MOST_BLOCKS) -> None:
        self._most = most
        self._holders: OrderedDict[int, set[str]] = OrderedDict()

    def __len__(self) -> int:
        """How many blocks somebody has."""
        return len(self._holders)

    def stored(self, backend: str, hashes: Iterable[int]) -> None:
        """A server now has these blocks."""
        for block in hashes:
            self._holders.setdefault(block, set()).add(backend)
            self._holders.move_to_end(block)
        while len(self._holders) > self._most:
            self._holders.popitem(last=False)

    def removed(self, backend: str, hashes: Iterable[int]) -> None:
        """A server has these blocks no longer."""
        for block in hashes:
            holders = self._holders.get(block)
            if holders is not None:
                holders.discard(backend)
                if not holders:
                    del self._holders[block]

    def cleared(self, backend: str) -> None:
        """A server has lost all blocks: it restarted, or left."""
        self.removed(backend, list(self._holders))

    def holders(self, hashes: Sequence[int]) -> dict[str, int]:
        """How many of a prompt's first blocks each server has; those that have none are left out."""
        found: dict[str, int] = {}
        still: set[str] | None = None
        for depth, block in enumerate(hashes[:_LONGEST], start=1):
            holders = self._holders.get(block)
            if holders is None:
                break
            self._holders.move_to_end(block)
            still = set(holders) if still is None else still & holders
            if not still:
                break
            found.update(dict.fromkeys(still, depth))
        return found
