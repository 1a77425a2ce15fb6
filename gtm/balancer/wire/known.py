"""Heads that were read before, by their bytes.

Theory. The parser begins each message in the same state, and what a head says depends on its bytes alone: a head of the same bytes says
the same. Clients and servers repeat theirs, but for how long the body is. So a head is known by its bytes without the digits of its
Content-Length, and one that is known is not read again, but for its length.

Invariants:
  1. Kept is only what the strict parser has accepted and was understood, from the first byte of a message to the empty line.
  2. It ended where the parser found its end: it has no line end but CRLF, and as many lines as fields were read.
  3. The digits that are left out are those of a whole line, without a zero before them; the parser read their number as the length,
     and refuses a second one. A head without such a line has no length above 0 (of `007` one could be missed: it is not kept).
  4. What is kept is bounded: `MOST` heads of `LONGEST` bytes. Anybody can make up heads; then all are forgotten, and read again.
"""

from __future__ import annotations

from typing import TypeVar

MOST = 1024
LONGEST = 4096

Head = TypeVar("Head")


class Known(dict[bytes, Head]):
    """Heads by what `outline` says of their bytes."""

    __slots__ = ()

    def keep(self, key: bytes, head: Head, fields: int) -> None:
        """Keep a head that was read, in which so many fields were, if it is one of which a second is sure to say the same."""
        lines = key.count(b"\r\n")
        if lines == fields + 2 and lines == key.count(b"\n"):
            if len(self) >= MOST:
                self.clear()
            self[key] = head


def outline(data: bytes) -> tuple[bytes, int, int] | None:
    """Of the head that bytes begin with: what it is known by, where it ends, and the length that it says (0: none above 0).

    None: it is not whole, or too long to be kept.
    """
    end = data.find(b"\r\n\r\n", 0, LONGEST)
    if end < 0:
        return None
    end += 4
    first = data.find(b"\r\ncontent-length: ", 0, end)  # a pattern for both takes twice as long
    if first < 0:
        first = data.find(b"\r\nContent-Length: ", 0, end)
    if first >= 0:
        first += 18
        last = data.find(b"\r\n", first)
        digits = data[first:last]
        if digits.isdigit() and last - first < 10 and not digits.startswith(b"0"):
            return data[:first] + data[last:end], end, int(digits)
    return (data if end == len(data) else data[:end]), end, 0
