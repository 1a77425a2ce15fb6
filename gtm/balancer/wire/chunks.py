"""The chunks of an answer, as they usually come: told apart without the parser, and no more of them at once than others can wait for.

Theory (RFC 9112 §7.1). Between two chunks the strict parser is always in one state, whatever chunks it has read. So chunks that are whole
and plain need not be fed to it: before and after them it stands in that state. What is not plain is its own to read, from such a place on:
the last chunk and trailers, extensions, sizes with leading zeros, and all that is none.

Invariants:
  1. A plain chunk is a size of one to seven hexadecimal digits, the first not 0, CRLF, as many bytes, CRLF. Every server reads it alike.
  2. `whole` says yes only to plain chunks without anything before, between or behind them: they may go on as they are.
  3. What `split` gives back as rest begins between two chunks.
  4. One call takes `TURN` pieces at the most, however many came: a chunk of one byte takes as long as one of thousands.
"""

from __future__ import annotations

import re

TURN = 256
"""Pieces of a body, of a request or an answer, after which whatever else waits has its turn."""
PIECE = 8 * 1024
"""Bytes that a parser is fed at once where many small pieces or requests may be among them."""

_FRAMES = 5 * TURN
"""Bytes of the framing of plain chunks, of which each has five at least, that are no more than a turn has."""
_SIZE = re.compile(rb"([1-9A-Fa-f][0-9A-Fa-f]{0,6})\r\n")
_SIZE_BEGUN = re.compile(rb"[1-9A-Fa-f][0-9A-Fa-f]{0,6}\r?")
_match = _SIZE.match


class Chunks:
    """Where in the chunks of one answer a reader stands."""

    __slots__ = ("_begun", "_left", "broken", "later")

    def __init__(self) -> None:
        self.broken = False
        """A chunk did not end where its size says."""
        self.later = b""
        """What `split` has left for another turn, in which it is to be given to it."""
        self._left = 0
        """Bytes to come of the present chunk, with its CRLF."""
        self._begun = b""
        """A size line of which not all has come."""

    def whole(self, data: bytes) -> int:
        """How many bytes of a body these are, if they are whole plain chunks, `TURN` at most, the last of four bytes at least.

        Else it is -1, and nothing is read.
        """
        if self._left or self._begun:
            return -1
        at = size = 0
        end = len(data)
        while True:
            found = _match(data, at)
            if found is None:
                return -1
            length = int(found[1], 16)
            at = found.end() + length + 2
            if data[at - 2 : at] != b"\r\n":
                return -1
            size += length
            if at >= end:
                break
            if at - size >= _FRAMES:
                return -1
        return size if length > 3 and at == end else -1

    def split(self, data: bytes) -> tuple[list[bytes], bytes]:
        """Read what came: the pieces of the body in it, and what is the parser's to read (nothing: it goes on so). See `later`."""
        self.later = b""
        if self._begun:
            data, self._begun = self._begun + data, b""
        pieces: list[bytes] = []
        at, end = 0, len(data)
        while at < end:
            if len(pieces) >= TURN:
                self.later = data[at:]
                break
            left = self._left
            if left > 2:
                piece = data[at : at + left - 2]
                pieces.append(piece)
                at += len(piece)
                self._left = left - len(piece)
            elif left:
                if data[at] != b"\n\r"[left - 1]:
                    self.broken = True
                    break
                at += 1
                self._left = left - 1
            elif found := _match(data, at):
                at = found.end()
                self._left = int(found[1], 16) + 2
            elif _SIZE_BEGUN.fullmatch(data, at):
                self._begun = data[at:]
                break
            else:
                return pieces, data[at:]
        return pieces, b""
