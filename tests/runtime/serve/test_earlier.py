"""Ports that a process of an earlier start still has are waited for, and it is named; those of strangers are not."""

from __future__ import annotations

import asyncio
import errno
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gtm.lockfile import LockFile, holder_of
from gtm.runtime.following.handover import HandoverError
from gtm.runtime.process.sockets import PortInUseError
from gtm.runtime.serve import supervisor

HOLDER = """
import pathlib, socket, sys
from gtm.lockfile import LockFile
if sys.argv[1]:
    lock = LockFile(pathlib.Path(sys.argv[1]))
    lock.acquire()
held = socket.create_server(("127.0.0.1", 0))
print(held.getsockname()[1], flush=True)
sys.stdin.read()
"""


class Holder:
    """A process that has a port, and perhaps a lock, until it is told to end."""

    def __init__(self, lock: Path | str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", HOLDER, str(lock)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline())

    def end(self) -> None:
        """End it, and wait until it has."""
        self.process.communicate()


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    """The lock file."""
    return tmp_path / "control.lock"


@pytest.fixture
def left(lock: Path) -> Iterator[Holder]:
    """What an earlier start left."""
    holder = Holder(lock)
    yield holder
    holder.end()


@pytest.fixture
def stranger() -> Iterator[Holder]:
    """Somebody else."""
    holder = Holder("")
    yield holder
    holder.end()


class Start:
    """A start that wants a port; `taken` so often did it get it, `refused` so often not."""

    def __init__(self, holder: Holder, *, ends: bool = False) -> None:
        self._holder = holder
        self._ends = ends
        self.taken = 0
        self.refused = 0

    async def take(self) -> None:
        """Take it. The one that has it ends, if at all, right after this was refused."""
        import socket

        try:
            socket.create_server(("127.0.0.1", self._holder.port)).close()
        except OSError as error:
            self.refused += 1
            if self._ends:
                self._holder.end()
            raise PortInUseError(errno.EADDRINUSE, f"port {self._holder.port} is in use; move") from error
        self.taken += 1

    def run(self, lock: Path, *, stopped: bool = False) -> None:
        """What `gtm serve` does."""

        async def tell(seconds: float) -> bool:
            await asyncio.sleep(seconds)
            return stopped

        asyncio.run(supervisor.given_up(lock, "control", self.take, tell))


def test_what_ends_by_itself_is_waited_for(
    lock: Path, left: Holder, caplog: pytest.LogCaptureFixture
) -> None:
    """Although it ends between the try and the question who has the port."""
    start = Start(left, ends=True)
    with caplog.at_level("INFO"):
        start.run(lock)
    assert (start.taken, start.refused) == (1, 1)
    (said,) = caplog.messages
    assert (
        said
        == f"waiting for the control of an earlier start (process {left.process.pid}) to end: port {left.port} is in use"
    )


def test_what_stays_is_named(
    lock: Path, left: Holder, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """After a while, with its process and how to end it; it is said to be waited for once."""
    monkeypatch.setattr(supervisor, "PATIENCE", 0.3)
    start = Start(left)
    with caplog.at_level("INFO"), pytest.raises(PortInUseError) as refused:
        start.run(lock)
    assert len(caplog.messages) == 1
    pid = left.process.pid
    assert f"port {left.port} is in use; move; the control of an earlier start on `{lock.parent}`" in str(
        refused.value
    )
    assert f"(process {pid}) may hold it, and has not ended" in str(refused.value)
    assert str(refused.value).endswith(f"end it with `kill -9 {pid}`, and start again")
    assert start.refused > 1


@pytest.mark.parametrize("before", [False, True])
def test_a_stranger_is_said_at_once(before: bool, lock: Path, stranger: Holder) -> None:
    """Nobody has the lock, whether or not there was an earlier start: the message is as ever, after one try."""
    if before:
        other = LockFile(lock)
        other.acquire()
        other.release()
    start = Start(stranger)
    with pytest.raises(PortInUseError) as refused:
        start.run(lock)
    assert refused.value.strerror == f"port {stranger.port} is in use; move"
    assert start.refused == 1


def test_who_is_told_to_end_waits_no_longer(lock: Path, left: Holder) -> None:
    """Ctrl-C while it waits."""
    start = Start(left)
    start.run(lock, stopped=True)
    assert (start.taken, start.refused) == (0, 1)


def test_an_edge_that_hands_nothing_over_is_named(lock: Path, left: Holder) -> None:
    """It has waited long enough already."""

    async def take() -> None:
        raise HandoverError(errno.ETIMEDOUT, "it does not hand its sockets over; it goes on")

    async def stopped(_: float) -> bool:
        raise AssertionError("it waits")

    with pytest.raises(HandoverError) as refused:
        asyncio.run(supervisor.given_up(lock, "edge", take, stopped))
    advice = f"it goes on: end it with `kill -9 {left.process.pid}`, and start again"
    assert refused.value.strerror == f"it does not hand its sockets over; {advice}"


def test_asking_who_holds_a_lock_takes_nothing(lock: Path, left: Holder) -> None:
    """Neither the lock, nor the name of its holder."""
    assert holder_of(lock) == str(left.process.pid)
    assert holder_of(lock) == str(left.process.pid)
    left.end()
    assert holder_of(lock) is None
    assert lock.read_text() == f"{left.process.pid}\n"
    assert holder_of(lock.with_name("none")) is None
