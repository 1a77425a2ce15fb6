"""A memory of bounded size, of which what is asked for stays."""

from __future__ import annotations

from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Memory(Generic[K, V]):
    """Two generations: what is asked for moves to the young one; when that is full it becomes the old one, and the old one goes.

    So whoever floods it with what nobody asks for again drives out nothing that is in use, and pays for each item.

    Args:
        room: how much a generation holds, in the unit of `put`'s sizes.
    """

    __slots__ = ("_old", "_room", "_size", "_young")

    def __init__(self, room: int) -> None:
        self._room = room
        self._young: dict[K, tuple[V, int]] = {}
        self._old: dict[K, tuple[V, int]] = {}
        self._size = 0

    def __len__(self) -> int:
        """How many items are remembered; one in both generations counts twice."""
        return len(self._young) + len(self._old)

    def get(self, key: K) -> V | None:
        """What is remembered under a key; None: nothing is."""
        found = self._young.get(key)
        if found is None:
            found = self._old.get(key)
            if found is None:
                return None
            self.put(key, *found)
        return found[0]

    def put(self, key: K, value: V, size: int = 1) -> None:
        """Remember a value, which takes so much of the room."""
        if self._size + size > self._room:
            self._old, self._young, self._size = self._young, {}, 0
        if size <= self._room:
            self._young[key] = value, size
            self._size += size
