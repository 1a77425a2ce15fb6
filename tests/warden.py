"""A process that outlives a run of tests, and ends what the run has left: Ctrl-C, SIGTERM and kill -9 leave nothing behind.

Tests start whole systems, whose processes have sessions and even users of their own, and a run that is killed can't end
them. So the run starts this program first. It waits for the run's end, however it comes (pidfd_open(2)), and then ends
every process that

- carries the run's mark in its environment: children inherit names that begin with PYTHON (`gtm.environment`),
- has a path below one of the run's directories in its command line or as its working directory, as Postgres has, which
  gets an environment of its own, and gtm's agents have, which show nobody theirs, or
- descends from one of these.

It asks nothing of a test. The directories of a run that was cut off go too; one that ended by itself keeps pytest's, to
look at. Linux only: elsewhere nobody watches.
"""

from __future__ import annotations

import os
import re
import select
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

_GRACE = 3.0
"""Seconds between asking to end and SIGKILL: Postgres then leaves no shared memory."""
_POLL = 0.05
_ENDED = b"ended"
_ROOM = 1 << 30
"""Bytes that have to be free in memory; containers have 64 MiB there unless told otherwise."""
_PROC = Path("/proc")
_Process = tuple[int, str]
"""Its number, and when it started: numbers are used again."""


class Warden:
    """Watches this process from now on: what it starts, and `directories` if it is cut off, will not outlive it.

    Temporary files of this process and its children are put into one directory, which goes in any case. So does what is
    in `in_memory`.
    """

    def __init__(self, *directories: Path) -> None:
        self._told: int | None = None
        if not hasattr(os, "pidfd_open"):
            return
        scratch = tempfile.mkdtemp(prefix="gtm-tests-")
        Path(scratch).chmod(0o755)  # an embedded Postgres that root starts runs as another user
        mark = f"PYTHON_{Path(scratch).name.upper().replace('-', '_')}"
        beside = _beside(Path(scratch))
        with suppress(OSError):  # there is no such place, or no room
            if shutil.disk_usage(beside.parent).free >= _ROOM:
                beside.mkdir(mode=0o755)
        heard, self._told = os.pipe()
        command = [sys.executable, __file__, str(os.getpid()), mark, scratch, *map(str, directories)]
        listen = [(os.POSIX_SPAWN_DUP2, heard, 0)]
        os.posix_spawn(sys.executable, command, os.environ, file_actions=listen, setsid=True)
        os.close(heard)
        os.environ |= {mark: "1", "TMPDIR": scratch}
        tempfile.tempdir = scratch

    def release(self) -> None:
        """The run ends by itself: `directories` may stay."""
        if self._told is not None:
            with suppress(OSError):  # somebody killed the warden
                os.write(self._told, _ENDED)


def in_memory() -> Path | None:
    """A directory of the run's, gone with it, that is in memory; None where there is no room."""
    found = _beside(Path(tempfile.gettempdir()))
    return found if found.is_dir() else None


def _beside(scratch: Path) -> Path:
    return Path("/dev/shm") / scratch.name  # noqa: S108 - its name is made by mkdtemp


def main(parent: int, mark: str, scratch: Path, directories: Iterable[Path]) -> None:
    """Wait for the end of the parent, then leave nothing of it."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    with suppress(ProcessLookupError):
        handle = os.pidfd_open(parent)
        if os.getppid() == parent:  # otherwise it has ended, and the number may be another's
            select.select([handle], [], [])
    os.set_blocking(sys.stdin.fileno(), False)
    ended = False
    with suppress(BlockingIOError):
        ended = os.read(sys.stdin.fileno(), len(_ENDED)) == _ENDED
    scratches = (scratch, _beside(scratch))
    end(mark, [*scratches, *directories])
    for directory in (*scratches, *(() if ended else directories)):
        shutil.rmtree(directory, ignore_errors=True)


def end(mark: str, directories: Iterable[Path]) -> None:
    """End every process of a run, until there is none."""
    below = re.compile(
        b"|".join(re.escape(os.fsencode(directory)) + rb"(?=[/\0])" for directory in directories)
    )
    asked: set[_Process] = set()
    deadline = time.monotonic() + _GRACE
    while left := _of_run(f"\0{mark}=".encode(), below, asked):
        late = time.monotonic() > deadline
        for pid, start in left:
            with suppress(ProcessLookupError):
                if (pid, start) not in asked:
                    os.kill(pid, signal.SIGTERM)
                elif late:
                    os.kill(pid, signal.SIGKILL)
        asked |= left
        time.sleep(_POLL)


def _of_run(mark: bytes, below: re.Pattern[bytes], known: set[_Process]) -> set[_Process]:
    """The run's processes that live: of those known before, the marked ones, and what descends from these."""
    parents: dict[int, int] = {}
    starts: dict[int, str] = {}
    found = set()
    for place in _PROC.glob("[0-9]*"):
        pid = int(place.name)
        with suppress(OSError):
            # proc_pid_stat(5): after its name a process's state, parent, group, session and terminal; when it started.
            fields = (place / "stat").read_text(errors="replace").rpartition(")")[2].split()
            if pid == os.getpid() or fields[0] in "ZX":
                continue
            parents[pid], starts[pid] = int(fields[1]), fields[19]
            at_terminal = fields[4] != "0"  # who looks at the run's files, in a shell, is not of it
            if (
                (pid, fields[19]) in known
                or mark in b"\0" + _read(place / "environ")
                or (not at_terminal and below.search(_read(place / "cmdline") + _directory(place)))
            ):
                found.add(pid)
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return {(pid, starts[pid]) for pid in found}


def _read(path: Path) -> bytes:
    """A file; empty where it may not be read."""
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _directory(place: Path) -> bytes:
    """A process's working directory, ended like an argument."""
    try:
        return os.fsencode((place / "cwd").readlink()) + b"\0"
    except OSError:
        return b""


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], Path(sys.argv[3]), [Path(directory) for directory in sys.argv[4:]])
