"""Content codings of requests that are undone here to read what they hold (RFC 9110 §8.4); what goes on is what came.

Servers undo gzip and deflate: Starlette and aiohttp by their middleware, Go's and Rust's by theirs. One that does not finds no JSON and no form in such a body,
so that nobody finds another model in it.

Laws:
  1. What a body becomes is bounded, in all (`most`) and by what came: `FREE`, and `TIMES` as many bytes.
  2. It is undone with one meaning: one member of gzip or one stream of zlib, nothing behind it; and one coding.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator

from gtm.balancer.wire.heads import RequestHead

TIMES, FREE = 100, 8 * 1024 * 1024
"""Bytes that each byte of a coded body may become, and that all of it may become in any case."""
_PIECE = 256 * 1024
"""Bytes that are undone at once."""
_WINDOWS = {b"gzip": 31, b"x-gzip": 31, b"deflate": 15}
"""What zlib is told: gzip's frame (RFC 1952), or zlib's own (RFC 1950), which is what `deflate` means (RFC 9110 §8.4.1.2)."""


class CodingError(ValueError):
    """A coded body that is not undone. Its text goes on after "the body"."""


class UnknownError(CodingError):
    """Its coding is none that is undone here."""


class TooMuchError(CodingError):
    """It becomes more than is read."""


def coding_of(head: RequestHead) -> bytes:
    """The coding of a request's body, in lower case; empty: it is plain."""
    found = head.seen.get(b"content-encoding", b"").strip().lower()
    return b"" if found == b"identity" else found


class Undoing:
    """Undoes a coding, piece by piece.

    Args:
        coding: its name.
        most: bytes that are made of all of it, at most.

    Raises:
        UnknownError: it is none that is undone here.
    """

    __slots__ = ("_came", "_made", "_most", "_zlib")

    def __init__(self, coding: bytes, most: int) -> None:
        window = _WINDOWS.get(coding)
        if window is None:
            raise UnknownError(
                "has a Content-Encoding that is not read: send it plainly, or by gzip or deflate"
            )
        self._zlib = zlib.decompressobj(window)
        self._most = most
        self._came = self._made = 0

    def feed(self, data: bytes | bytearray) -> Iterator[bytes]:
        """What some more bytes become.

        Raises:
            CodingError: they are not of this coding, or something stands behind its end.
            TooMuchError: they become too much.
        """
        self._came += len(data)
        most = min(self._most, FREE + TIMES * self._came)
        undoes, full = self._zlib, False
        while data or full:
            try:
                made = undoes.decompress(data, _PIECE)
            except zlib.error as error:
                raise CodingError("is not what its Content-Encoding says") from error
            self._made += len(made)
            if self._made > most:
                raise TooMuchError("becomes more than is read once its Content-Encoding is undone")
            if undoes.unused_data:
                raise CodingError("has something behind the end of what its Content-Encoding says")
            full = len(made) == _PIECE and not undoes.eof  # zlib may hold more than it gave
            data = undoes.unconsumed_tail
            if made:
                yield made

    def end(self) -> None:
        """All of it has come.

        Raises:
            CodingError: its end has not.
        """
        if not self._zlib.eof:
            raise CodingError("breaks off before the end of what its Content-Encoding says")


def undone(coding: bytes, body: bytes, most: int) -> bytes:
    """All of a body, without its coding.

    Raises:
        CodingError: as `Undoing`.
    """
    undoing = Undoing(coding, most)
    found = b"".join(undoing.feed(body))
    undoing.end()
    return found
