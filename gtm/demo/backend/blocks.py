"""KV blocks: who holds them, and what is kept of them for prefixes.

Every block is in one state:

    free ──take──▶ private ──fill(key)──▶ shared, with holders ──the last lets go──▶ kept ──use──▶ shared
      ▲               │                                                               │
      └──── release ──┘ ◀───────────────── evicted: needed, or beyond the bound ──────┘

Laws:
  1. private + shared + kept + free = capacity, none negative.
  2. What is kept counts as free (as in vLLM's `kv_cache_usage_perc`): it is evicted, longest unused first, when a block is needed.
  3. A key is shared or kept, never both.

Source: vLLM's automatic prefix caching (docs, "Automatic Prefix Caching"; `vllm/v1/core/block_pool.py`). As there, two sequences that
compute the same block at once both hold one of their own; the second one's is forgotten when it ends.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence


class Blocks:
    """The blocks of one server.

    Args:
        capacity: how many there are.
        kept: how many may be kept for their prefixes; None: all that are free.
    """

    def __init__(self, capacity: int, kept: int | None = None) -> None:
        self.capacity = capacity
        self._most_kept = capacity if kept is None else kept
        self._private = 0
        self._shared: dict[int, int] = {}
        self._kept: OrderedDict[int, None] = OrderedDict()

    @property
    def used(self) -> int:
        """Blocks that somebody holds."""
        return self._private + len(self._shared)

    @property
    def free(self) -> int:
        """Blocks that nobody holds, kept ones too."""
        return self.capacity - self.used

    @property
    def kept(self) -> int:
        """Blocks that nobody holds, but whose content is known."""
        return len(self._kept)

    def known(self, key: int) -> bool:
        """Whether a block's content is there."""
        return key in self._shared or key in self._kept

    def admit(self, keys: Sequence[int], more: int) -> bool:
        """Hold known blocks and take more; all of it, or nothing and False."""
        if more + sum(key in self._kept for key in keys) > self.free:
            return False
        for key in keys:
            self._kept.pop(key, None)
            self._shared[key] = self._shared.get(key, 0) + 1
        return self.take(more)

    def take(self, count: int) -> bool:
        """Take blocks; all of them, or nothing and False."""
        if count > self.free:
            return False
        self._private += count
        self._trim(self.free)
        return True

    def fill(self, key: int) -> bool:
        """One of the caller's own blocks is full: share it from now on. False if it stays the caller's own."""
        if self._most_kept == 0 or self.known(key):
            return False
        self._private -= 1
        self._shared[key] = 1
        return True

    def release(self, private: int, keys: Iterable[int]) -> None:
        """Let go of own blocks and of shared ones; the longest prefixes are evicted first, so give them in order."""
        self._private -= private
        for key in reversed(list(keys)):
            holders = self._shared[key] - 1
            if holders:
                self._shared[key] = holders
            else:
                del self._shared[key]
                self._kept[key] = None
        self._trim(min(self._most_kept, self.free))

    def forget(self) -> None:
        """Lose what is kept."""
        self._kept.clear()

    def _trim(self, most: int) -> None:
        while len(self._kept) > most:
            self._kept.popitem(last=False)
