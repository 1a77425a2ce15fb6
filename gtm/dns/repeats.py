"""Whole replies, remembered by whole queries: resolvers repeat themselves byte for byte.

What a reply says follows from the query after its id, from the client's address where the query names no client
subnet, and from a draw where several ends are possible. So one dictionary hit finds it, and one concatenation makes it.

The memory is of one View, and bounded. Queries that come a second time only by chance are not remembered: those with
mixed case in the name (a client that checks replies by it draws anew each time), and those with a cookie.
"""

from __future__ import annotations

from collections.abc import Callable

from gtm.dns.fast import Ending, FastWay, Found, Ready

LIMIT = 1 << 16
"""Replies remembered; past it the memory starts anew."""


class Drawn:
    """A query of which a draw decides the end, with the replies made so far."""

    __slots__ = ("_by_ready", "_found", "_packet", "_source", "_way")

    def __init__(self, way: FastWay, packet: bytes, source: str, found: Found) -> None:
        self._way = way
        self._packet = packet
        self._source = source
        self._found = found
        self._by_ready: dict[Ready, Ending] = {}

    def ending(self, draw: float) -> Ending:
        """The reply for a draw, uniform in [0, 1)."""
        ready = self._way.ready(self._found, draw)
        known = self._by_ready.get(ready)
        if known is None:
            known = self._way.ending(self._packet, self._source, self._found, draw, tcp=False)
            self._by_ready[ready] = known
        return known


class BySource(dict[str, "Ending | Drawn"]):
    """The replies to a query that depends on who sends it, by the client's address."""


class Repeats:
    """The memory of one View.

    Args:
        way: what answers a query for the first time.
        counts: what answers are counted in.
        draw: a new draw, uniform in [0, 1).
    """

    __slots__ = ("_counts", "_draw", "_known", "_size", "_way")

    def __init__(self, way: FastWay, counts: dict[str, float], draw: Callable[[], float]) -> None:
        self._way = way
        self._counts = counts
        self._draw = draw
        self._known: dict[bytes, Ending | Drawn | BySource] = {}
        self._size = 0

    def answer(self, packet: bytes, source: str) -> bytes | None:
        """The reply to a packet over UDP, or None if it is not for the short way."""
        known = self._known.get(packet[2:])
        if known.__class__ is BySource:
            known = known.get(source)
        if known is None:
            return self._first(packet, source)
        end, key = known if known.__class__ is tuple else known.ending(self._draw())  # type: ignore[union-attr]
        counts = self._counts
        counts[key] = counts.get(key, 0) + 1
        return packet[:2] + end

    def _first(self, packet: bytes, source: str) -> bytes | None:
        """Answer a query that is not remembered, and remember it if it may come again."""
        way = self._way
        found = way.find(packet, source, tcp=False)
        if found is None:
            return None
        ending = way.ending(packet, source, found, self._draw(), tcp=False)
        if found[2].cookie is None and packet[12 : found[0]] == found[4].asked.question.wire:
            self._remember(packet, source, found, ending)
        counts = self._counts
        counts[ending[1]] = counts.get(ending[1], 0) + 1
        return packet[:2] + ending[0]

    def _remember(self, packet: bytes, source: str, found: Found, ending: Ending) -> None:
        if self._size >= LIMIT:
            self._known, self._size = {}, 0
        self._size += 1
        known = ending if self._way.settled(found) else Drawn(self._way, packet, source, found)
        if found[2].client is not None:
            self._known[packet[2:]] = known
            return
        sources = self._known.get(packet[2:])
        if not isinstance(sources, BySource):
            sources = self._known[packet[2:]] = BySource()
        sources[source] = known
