"""What a function gave for a key, remembered. The key is the whole argument, so that nothing can be read that is not in it.

Theory. A memory is right if what it gives is what the function would give now. That fails where the function reads something that the
key leaves out: a client's own latency, a setting, the time. So here the function is called by the memory, with the key alone: what it
reads besides is what it was bound to when the memory was made, and whoever replaces that makes a new memory. What a key is made of
(a request without its network, say) is made first, and then both asked for and computed from.

Two generations make room: what is asked for is in the young one; when that is full it becomes the old one, and the old one goes. So
whoever floods a memory with what nobody asks for again drives out nothing that is in use, and pays for each item.

Laws:
  1. `memory[key]` equals `make(key)`, at any time, as long as `make` is a pure function of the key and of values that do not change.
  2. The weights of one generation are no more than `most` together; what weighs more alone is not remembered.
  3. What `make` raises is raised, and nothing is remembered of it.

Any number of threads may ask: at worst one value is computed twice, and the weights are off by that one.

>>> calls = []
>>> squares = Memory(lambda number: calls.append(number) or number * number, most=2)
>>> [squares[number] for number in (3, 3, 4, 5, 3, 6, 4)], calls
([9, 9, 16, 25, 9, 36, 16], [3, 4, 5, 6, 4])
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Memory(dict[K, V]):
    """See above: the young generation, which makes what it lacks.

    Args:
        make: a pure function of the key.
        most: the weight of all that one generation holds.
        weigh: what a key and its value weigh; None: 1.
    """

    __slots__ = ("_make", "_most", "_old", "_weigh", "_weight")

    def __init__(
        self, make: Callable[[K], V], most: float, weigh: Callable[[K, V], float] | None = None
    ) -> None:
        super().__init__()
        self._make = make
        self._most = most
        self._weigh = weigh
        self._weight = 0.0
        self._old: dict[K, V] = {}

    def __missing__(self, key: K) -> V:
        found = self._old.get(key)
        value = self._make(key) if found is None else found
        weight = 1.0 if self._weigh is None else self._weigh(key, value)
        if weight > self._most:
            return value
        if self._weight + weight > self._most:
            self._old = self.copy()
            super().clear()
            self._weight = 0.0
        self._weight += weight
        self[key] = value
        return value

    def clear(self) -> None:
        """Forget everything."""
        super().clear()
        self._old = {}
        self._weight = 0.0
