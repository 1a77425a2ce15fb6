"""Files that are written whole, on disks that are full, read-only or slow."""

from __future__ import annotations

import errno
import os
import stat
import threading
from pathlib import Path

import pytest

from gtm.files import write_whole


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    """Whoever reads meanwhile finds one of the contents, only the owner may, and nothing else stays behind."""
    path = tmp_path / "file"
    contents = [bytes((number,)) * 100_000 for number in range(8)]
    write_whole(path, contents[0])
    ended = threading.Event()

    def write(content: bytes) -> None:
        for _ in range(5):
            write_whole(path, content)

    def read() -> None:
        while not ended.is_set():
            seen.add(path.read_bytes())

    seen: set[bytes] = set()
    reader = threading.Thread(target=read)
    writers = [threading.Thread(target=write, args=(content,)) for content in contents]
    for thread in (reader, *writers):
        thread.start()
    for writer in writers:
        writer.join()
    ended.set()
    reader.join()
    assert seen <= set(contents)
    assert path.read_bytes() in contents
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("broken", ["fsync", "open", "replace"])
def test_a_disk_that_refuses_changes_nothing(
    broken: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full or read-only disk: the old content stays, and no half of the new one."""
    path = tmp_path / "file"
    write_whole(path, b"old")

    def refuse(*_: object, **__: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(Path if broken == "replace" else os, broken, refuse)
        with pytest.raises(OSError, match="No space left"):
            write_whole(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_is_there_can_stay(tmp_path: Path) -> None:
    """Two that make a secret at once have the same one."""
    path = tmp_path / "file"
    write_whole(path, b"first", over=False)
    with pytest.raises(FileExistsError):
        write_whole(path, b"second", over=False)
    assert path.read_bytes() == b"first"
    assert list(tmp_path.iterdir()) == [path]
