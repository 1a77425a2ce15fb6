"""Files that are written whole: a crash leaves the old one or the new one, never half of either."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from pathlib import Path

FileState = tuple[int, int, int, int, int]
"""What tells one state of a file from others: device, inode, size, times of change to its content and to itself, in ns."""


def state_of(file: Path | int) -> FileState | None:
    """The state of a file, given by path or by an open descriptor; None: there is none.

    A file that is replaced by one of the same size and time is told from it by its inode, and one that is written over by the time at which
    it was itself changed (`st_ctime`), which no program can set.
    """
    try:
        found = os.stat(file)  # noqa: PTH116 - a descriptor too
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def write_whole(path: Path, content: bytes, *, mode: int = 0o600, over: bool = True) -> None:
    """Write a file beside its place, sync it, and put it there; then sync the directory, so that it stays there.

    Args:
        path: its place. Until then it is called `NAME.NUMBER.tmp`, with a number that no other thread of the machine has.
        content: all of it.
        mode: who may read it, less the umask.
        over: take the place of a file that is there already.

    Raises:
        FileExistsError: there is one, and `over` is not set.
        OSError: the disk refuses; what was there is untouched.
    """
    temporary = path.with_name(f"{path.name}.{threading.get_native_id()}.tmp")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if over:
            temporary.replace(path)
        else:
            os.link(temporary, path)  # rename(2) would replace what is there
    finally:
        with suppress(OSError):
            temporary.unlink()
    with suppress(OSError):  # some file systems cannot, and the file is in its place
        directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
