"""The last good View on disk: what an edge answers from when it starts and can reach nobody.

One file: a header line (`gtm-last-good 1 <sha256 of the rest>`), then feed messages, one a line. Written to a temporary
file, synced and renamed, so that a crash leaves the old file or the new one, never half of either.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from gtm.feed.wire import FeedError, Message, decode, encode

_MAGIC = b"gtm-last-good 1 "


def save(path: Path, messages: Iterable[Message]) -> None:
    """Replace the file atomically (readable by its owner only: it holds token hashes and signing keys).

    Raises:
        OSError: the disk refuses; the old file is untouched.
    """
    body = b"".join(encode(message) for message in messages)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(_MAGIC + sha256(body).hexdigest().encode() + b"\n" + body)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        with suppress(OSError):
            temporary.unlink()
        raise


def load(path: Path) -> list[Message]:
    """Read the messages back.

    Raises:
        FileNotFoundError: there is none yet.
        OSError: it cannot be read.
        FeedError: the file is damaged or not such a file.
    """
    content = path.read_bytes()
    header, newline, body = content.partition(b"\n")
    if not newline or not header.startswith(_MAGIC):
        raise FeedError(f"`{path}` is not a last-good file of this version")
    if sha256(body).hexdigest().encode() != header.removeprefix(_MAGIC):
        raise FeedError(f"`{path}` is damaged: its checksum does not match")
    messages = (decode(line) for line in body.splitlines())
    return [message for message in messages if message is not None]
