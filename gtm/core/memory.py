"""What a function gave for a key, remembered. The key is the whole argument, so that nothing can be read that is not in it.

Theory. A memory is right if what it gives is what the function would give now. That fails where the function reads something that the
key leaves out: a client's own latency, a setting, the time. So here the function is called by the memory, with the key alone: what it
reads besides is what it was bound to when the memory was made, and whoever replaces that makes a new memory. What a key is made of
(a request without its network, say) is made first, and then both asked for and computed from.

Laws:
  1. `memory[key]` equals `make(key)`, at any time, as long as `make` is a pure function of the key and of values that do not change.
  2. The weights of what is remembered are no more than `most` together, but for one value that weighs more alone. When there is no
     room for a new one the memory starts anew, so that hostile traffic can neither grow it nor make it slow.
  3. What `make` raises is raised, and nothing is remembered of it.

Any number of threads may ask: at worst one value is computed twice, and the weights are off by that one.

>>> calls = []
>>> squares = Memory(lambda number: calls.append(number) or number * number, most=2)
>>> [squares[number] for number in (3, 3, 4, 5, 3)], calls
([9, 9, 16, 25, 9], [3, 4, 5, 3])
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Memory(dict[K, V]):
    """See above.

    Args:
        make: a pure function of the key.
        most: the weight of all that is remembered.
        weigh: what one value weighs; None: 1 each.
    """

    __slots__ = ("_make", "_most", "_weigh", "_weight")

    def __init__(
        self, make: Callable[[K], V], most: float, weigh: Callable[[V], float] | None = None
    ) -> None:
        super().__init__()
        self._make = make
        self._most = most
        self._weigh = weigh
        self._weight = 0.0

    def __missing__(self, key: K) -> V:
        value = self._make(key)
        weight = 1.0 if self._weigh is None else self._weigh(value)
        if self._weight + weight > self._most:
            self.clear()
        self._weight += weight
        self[key] = value
        return value

    def clear(self) -> None:
        """Forget everything."""
        super().clear()
        self._weight = 0.0
