"""A writer for MaxMind DB files (format 2.0, https://maxmind.github.io/MaxMind-DB/).

Equal subtrees are stored once: look-ups follow pointers and don't mind, and the tree shrinks to about half. The same
input gives the same bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias


class UInt(NamedTuple):
    """An unsigned integer with its type in the file: 5 for 16 bits, 6 for 32, 9 for 64."""

    type: int
    value: int


Value: TypeAlias = "str | float | UInt | Mapping[str, Value] | Sequence[Value]"

METADATA_MARKER = b"\xab\xcd\xefMaxMind.com"
EMPTY = 0
"""The leaf that stands for no data."""
_FIRST_NODE = 1 << 24
_SEPARATOR = bytes(16)


class PrefixTree:
    """Binary trees over address prefixes that share their equal parts.

    A reference is `EMPTY`, a leaf (1 to 2**24 - 1, the caller's numbers) or a node made here.
    """

    def __init__(self) -> None:
        self._nodes: dict[int, int] = {}

    def node(self, left: int, right: int) -> int:
        """The reference of a node with these children; of a child, if both are the same leaf."""
        if left == right and left < _FIRST_NODE:
            return left
        return self._nodes.setdefault(left << 32 | right, _FIRST_NODE + len(self._nodes))

    def builder(self, bits: int) -> TreeBuilder:
        """An empty tree over addresses of so many bits."""
        return TreeBuilder(self, bits)

    def ordered(self, root: int) -> list[tuple[int, int]]:
        """The nodes under `root` depth first, children as references: leaf, or 2**24 + place in this list."""
        if root < _FIRST_NODE:
            root = self._nodes.setdefault(root << 32 | root, _FIRST_NODE + len(self._nodes))
        children = {ref: (key >> 32, key & 0xFFFFFFFF) for key, ref in self._nodes.items()}
        places: dict[int, int] = {}
        stack = [root]
        while stack:
            ref = stack.pop()
            if ref >= _FIRST_NODE and ref not in places:
                places[ref] = _FIRST_NODE + len(places)
                left, right = children[ref]
                stack += (right, left)
        return [
            (places.get(left, left), places.get(right, right))
            for left, right in (children[ref] for ref in places)
        ]


class TreeBuilder:
    """One tree, filled with prefixes in ascending order."""

    def __init__(self, tree: PrefixTree, bits: int) -> None:
        self._tree = tree
        self._bits = bits
        self._waiting = [EMPTY] * (bits + 1)
        self._start = self._length = self._ref = self._next = 0

    def add(self, start: int, length: int, ref: int) -> None:
        """Add the prefix `start`/`length`.

        Raises:
            ValueError: it overlaps a prefix added before, or comes before it.
        """
        if start < self._next:
            raise ValueError(f"prefix {start:#x}/{length} is out of order")
        if self._next:
            common = self._bits - (self._start ^ start).bit_length()
            self._waiting[common] = self._close(common)
        self._start, self._length, self._ref = start, length, ref
        self._next = start + (1 << self._bits - length)

    def root(self) -> int:
        """Finish, and give the reference of the whole tree."""
        return self._close(-1)

    def _close(self, depth: int) -> int:
        """Join the last prefix with its neighbours, upward to the child of the node at `depth`."""
        ref, start, waiting, top = self._ref, self._start, self._waiting, self._bits - 1
        for level in range(self._length - 1, depth, -1):
            if start >> (top - level) & 1:
                ref = self._tree.node(waiting[level], ref)
                waiting[level] = EMPTY
            else:
                ref = self._tree.node(ref, EMPTY)
        return ref


class DataSection:
    """Encoded values. Every distinct string and map is stored once and pointed at afterwards."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._offsets: dict[str, int] = {}

    def add(self, value: Mapping[str, Value]) -> int:
        """Append a record, and give its offset."""
        offset = len(self._buffer)
        self._append(value, top=True)
        return offset

    def to_bytes(self) -> bytes:
        """The section as it stands in the file."""
        return bytes(self._buffer)

    def _append(self, value: Value, *, top: bool = False) -> None:
        key = repr(value)
        known = self._offsets.get(key)
        if isinstance(value, str | Mapping) and known is not None and not top:
            self._buffer += _pointer(known)
            return
        self._offsets.setdefault(key, len(self._buffer))
        match value:
            case str():
                encoded = value.encode()
                self._buffer += _control(2, len(encoded)) + encoded
            case float():
                self._buffer += _control(3, 8) + struct.pack(">d", value)
            case UInt():
                encoded = value.value.to_bytes((value.value.bit_length() + 7) // 8, "big")
                self._buffer += _control(value.type, len(encoded)) + encoded
            case Mapping():
                self._buffer += _control(7, len(value))
                for name, member in value.items():
                    self._append(name)
                    self._append(member)
            case _:
                self._buffer += _control(11, len(value))
                for member in value:
                    self._append(member)


def _control(kind: int, size: int) -> bytes:
    """Type and size of a field ("Data Field Format")."""
    if size < 29:
        first, rest = size, b""
    elif size < 285:
        first, rest = 29, bytes((size - 29,))
    else:
        first, rest = 30, (size - 285).to_bytes(2, "big")
    if kind <= 7:
        return bytes((kind << 5 | first,)) + rest
    return bytes((first, kind - 7)) + rest


def _pointer(offset: int) -> bytes:
    """A pointer in the shortest of its forms."""
    if offset < 2048:
        return (1 << 13 | offset).to_bytes(2, "big")
    if offset < 526336:
        return (0x28 << 16 | offset - 2048).to_bytes(3, "big")
    return (0x30 << 24 | offset - 526336).to_bytes(4, "big")


def encode(
    tree: PrefixTree,
    root: int,
    records: Sequence[Mapping[str, Value]],
    metadata: Mapping[str, Value],
) -> bytes:
    """A whole file over 128-bit addresses, in which leaf `n` is `records[n - 1]`.

    `metadata` gives what only the caller knows: `build_epoch`, `database_type`, `description`, `languages`.
    """
    nodes = tree.ordered(root)
    section = DataSection()
    offsets = [section.add(record) for record in records]
    data = section.to_bytes()
    count = len(nodes)
    width = 3 if count + len(_SEPARATOR) + len(data) < 1 << 24 else 4

    def child(ref: int) -> bytes:
        if ref >= _FIRST_NODE:
            return (ref - _FIRST_NODE).to_bytes(width, "big")
        pointer = count if ref == EMPTY else count + len(_SEPARATOR) + offsets[ref - 1]
        return pointer.to_bytes(width, "big")

    search_tree = b"".join(child(left) + child(right) for left, right in nodes)
    about = DataSection()
    about.add(
        {
            "binary_format_major_version": UInt(5, 2),
            "binary_format_minor_version": UInt(5, 0),
            "ip_version": UInt(5, 6),
            "node_count": UInt(6, count),
            "record_size": UInt(5, width * 8),
            **metadata,
        }
    )
    return search_tree + _SEPARATOR + data + METADATA_MARKER + about.to_bytes()
