"""Lock files: one process at a time, until it gives the lock up or dies."""

from __future__ import annotations

import errno
import fcntl
import os
from contextlib import suppress
from pathlib import Path


class LockHeld(Exception):  # noqa: N818 - it names what is so, not a fault
    """Another process holds the lock. `holder` is its process id as text, empty if it is not known."""

    def __init__(self, path: Path, holder: str) -> None:
        super().__init__(f"`{path}` is locked{f' by process {holder}' if holder else ''}")
        self.holder = holder


def holder_of(path: Path) -> str | None:
    """The process id of whoever holds the lock of a file, as text, empty if it is not known; None: nobody does, as far as this user may look."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return os.pread(fd, 32, 0).decode(errors="replace").strip()
    except OSError:  # a file system that locks nothing
        return None
    else:
        return None
    finally:
        os.close(fd)


class LockFile:
    """A lock by the name of a file, held until `release` or the death of the process.

    It is an flock: the kernel drops it with the process, also after kill -9, and child processes started with
    `subprocess` don't inherit it. The file stays and names the last holder's process id.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd: int | None = None

    @property
    def held(self) -> bool:
        """Whether this object holds the lock."""
        return self._fd is not None

    def acquire(self) -> None:
        """Take the lock; taking it again changes nothing.

        Raises:
            LockHeld: another process, or another object of this one, holds it.
            OSError: the file can't be created, opened or locked.
        """
        if self.held:
            return
        fd = self._open()
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.pread(fd, 32, 0).decode(errors="replace").strip()
            os.close(fd)
            raise LockHeld(self._path, holder) from error
        except OSError:
            os.close(fd)
            raise
        self.adopt(fd)

    def _open(self) -> int:
        try:
            return os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            if error.errno != errno.EROFS:
                raise
            # A disk that broke is read-only from then on: a file that is there can be locked all the same.
            return os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)

    @property
    def descriptor(self) -> int | None:
        """The lock itself, to be handed to a successor; None if it isn't held.

        The lock is held until every copy of the descriptor is closed.
        """
        return self._fd

    def adopt(self, descriptor: int) -> None:
        """Go on with a lock that another process held, and has handed over."""
        # On a full disk the lock is held all the same; only messages cannot name its holder.
        with suppress(OSError):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        self._fd = descriptor

    def release(self) -> None:
        """Give the lock up; harmless if it isn't held."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
