"""One process of gtm per data directory, and why an embedded Postgres doesn't run."""

from __future__ import annotations

from pathlib import Path

from gtm.lockfile import LockFile, LockHeld


class EmbeddedPostgresError(Exception):
    """The embedded Postgres can't be set up, started or reached; the message says what to do."""


class DataDirectoryInUse(EmbeddedPostgresError):  # noqa: N818 - it names what is so, not a fault
    """Another process of gtm works on the same data directory."""


def unusable(path: Path, error: OSError) -> EmbeddedPostgresError:
    """What to say when the operating system refuses a file or directory."""
    return EmbeddedPostgresError(
        f"can't use the data directory: {(error.strerror or str(error)).lower()}: `{error.filename or path}`; "
        "give another with --data-dir"
    )


LOCK = "gtm.lock"


class DataDirectoryLock:
    """The lock file of a data directory, held until `release` or the death of the process."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self._file = LockFile(data_dir / LOCK)

    @property
    def held(self) -> bool:
        """Whether this object holds the lock."""
        return self._file.held

    def acquire(self) -> None:
        """Create the data directory if need be, and take the lock; taking it again changes nothing.

        Raises:
            DataDirectoryInUse: another process holds it.
            EmbeddedPostgresError: the directory can't be created or written.
        """
        try:
            self._data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._file.acquire()
        except LockHeld as e:
            raise DataDirectoryInUse(
                f"gtm is already running on the data directory `{self._data_dir}`"
                f"{f' (process {e.holder})' if e.holder else ''}; stop it, or give another with --data-dir"
            ) from e
        except OSError as e:
            raise unusable(self._data_dir, e) from e

    def release(self) -> None:
        """Give the lock up; harmless if it isn't held."""
        self._file.release()
