"""The last good View on disk: what an edge answers from when it starts and can reach nobody.

One file, written whole: a header line (`gtm-last-good 1 <sha256 of the rest>`), then feed messages, one a line.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path

from gtm.feed.wire import FeedError, Message, decode, encode
from gtm.files import write_whole

_MAGIC = b"gtm-last-good 1 "


def save(path: Path, messages: Iterable[Message]) -> None:
    """Replace the file atomically (readable by its owner only: it holds token hashes and signing keys).

    Raises:
        OSError: the disk refuses; the old file is untouched.
    """
    write(path, _MAGIC, b"".join(encode(message) for message in messages))


def load(path: Path) -> list[Message]:
    """Read the messages back.

    Raises:
        FileNotFoundError: there is none yet.
        OSError: it cannot be read.
        FeedError: the file is damaged or not such a file.
    """
    messages = (decode(line) for line in read(path, _MAGIC, "last-good").splitlines())
    return [message for message in messages if message is not None]


def write(path: Path, magic: bytes, body: bytes) -> None:
    """Replace a file atomically by a header line (`magic`, the body's SHA-256 in hex) and a body.

    Raises:
        OSError: the disk refuses; the old file is untouched.
    """
    write_whole(path, magic + sha256(body).hexdigest().encode() + b"\n" + body)


def read(path: Path, magic: bytes, what: str) -> bytes:
    """The body of a file that `write` wrote; `what` names such files in errors.

    Raises:
        FileNotFoundError: there is none yet.
        OSError: it cannot be read.
        FeedError: the file is damaged or not such a file.
    """
    content = path.read_bytes()
    header, newline, body = content.partition(b"\n")
    if not newline or not header.startswith(magic):
        raise FeedError(f"`{path}` is not a {what} file of this version")
    if sha256(body).hexdigest().encode() != header.removeprefix(magic):
        raise FeedError(f"`{path}` is damaged: its checksum does not match")
    return body
