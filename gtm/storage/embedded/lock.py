"""One process of gtm per data directory."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from gtm.storage.embedded.errors import DataDirectoryInUse, unusable


class DataDirectoryLock:
    """The lock file `gtm.lock` of a data directory, held until `release` or the death of the process.

    It is an flock: the kernel drops it with the process, also after kill -9, and child processes started with
    `subprocess` don't inherit it. The file stays and names the last holder's process id.
    """

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self._path = data_dir / "gtm.lock"
        self._fd: int | None = None

    @property
    def held(self) -> bool:
        """Whether this object holds the lock."""
        return self._fd is not None

    def acquire(self) -> None:
        """Create the data directory if need be, and take the lock; taking it again changes nothing.

        Raises:
            DataDirectoryInUse: another process holds it.
            EmbeddedPostgresError: the directory can't be created or written.
        """
        if self.held:
            return
        try:
            self._data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
            fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as e:
            raise unusable(self._data_dir, e) from e
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(fd, 0)
            os.write(fd, f"{os.getpid()}\n".encode())
        except BlockingIOError as e:
            holder = os.pread(fd, 32, 0).decode(errors="replace").strip()
            os.close(fd)
            raise DataDirectoryInUse(
                f"gtm is already running on the data directory `{self._data_dir}`"
                f"{f' (process {holder})' if holder else ''}; stop it, or give another with --data-dir"
            ) from e
        except OSError as e:
            os.close(fd)
            raise unusable(self._path, e) from e
        self._fd = fd

    def release(self) -> None:
        """Give the lock up; harmless if it isn't held."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
