"""Locks on disks that became read-only."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from gtm.lockfile import LockFile, LockHeld


def test_a_disk_that_broke_still_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Linux makes a broken disk read-only: the file that is there keeps out two owners all the same."""
    path = tmp_path / "lock"
    first = LockFile(path)
    first.acquire()
    first.release()
    really_open = os.open

    def read_only(name: str, flags: int, *more: int) -> int:
        if flags & (os.O_RDWR | os.O_CREAT):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        return really_open(name, flags, *more)

    monkeypatch.setattr(os, "open", read_only)
    first.acquire()
    with pytest.raises(LockHeld):
        LockFile(path).acquire()
    first.release()
    with pytest.raises(FileNotFoundError):
        LockFile(tmp_path / "none").acquire()
