"""Workers whose agent is gone, and that do not do as they are told: processes that play them."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from gtm.environment import inherited
from gtm.lockfile import LockFile
from gtm.runtime.edge import orphans
from gtm.runtime.edge.agent.agent import EdgeOwnership
from gtm.runtime.edge.line import EdgeWorkerSettings, WorkerId, WorkerKind
from gtm.runtime.following.handover import Handover, HandoverError, short
from gtm.runtime.process.handed import document
from gtm.settings import EdgeSettings
from tests.system.harness import eventually

ORPHAN = """
import sys, threading
from pathlib import Path
from gtm.runtime.edge.orphans import Door, make_door
gone = threading.Event()
gone.set()
Door(make_door(Path(sys.argv[1]))[1], [], gone, lambda: print("told", flush=True)).start()
print("waits", flush=True)
threading.Event().wait()
"""
"""It hands over nothing, hears that it should end, and does not."""


@contextmanager
def hanging(data_dir: Path) -> Iterator[subprocess.Popen[str]]:
    """An orphan that does not end."""
    command = [sys.executable, "-c", ORPHAN, str(data_dir)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "waits\n"
            yield process
        finally:
            process.kill()


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for long."""
    monkeypatch.setattr(orphans, "ENDING", 0.2)


def test_orphans_that_do_not_end_are_killed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What is said to have ended has; the first that hangs keeps no other from being told."""
    with hanging(tmp_path) as one, hanging(tmp_path) as other:
        assert sorted(orphans.end(tmp_path)) == sorted([one.pid, other.pid])
        assert [one.wait(20), other.wait(20)] == [-9, -9]
        assert [one.stdout.read(), other.stdout.read()] == ["told\n", "told\n"]  # type: ignore[union-attr]
    assert caplog.text.count("was told to end, and has not after 0 s; killing it") == 2
    assert orphans.end(tmp_path) == []


def test_an_orphan_that_was_told_to_end_can_still_be_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever told it may die before it has ended: the next that looks kills it."""
    monkeypatch.setattr(orphans, "_PATIENCE", 0.2)
    with hanging(tmp_path) as process:
        (orphan,) = orphans.find(tmp_path)
        orphan.stop()
        assert process.stdout is not None
        assert process.stdout.readline() == "told\n"
        with pytest.raises(HandoverError, match=f"process {process.pid} was told to end, and has not"):
            orphan.wait(0.2)
        orphan.close()
        assert orphans.find(tmp_path) == []
        assert process.wait(20) == -9


def test_an_agent_that_takes_over_is_rid_of_orphans_that_do_not_end(tmp_path: Path) -> None:
    """It has told them to end, holds what they held, and nobody else looks after them."""

    async def relieved(owned: EdgeOwnership) -> None:
        owned.settle()
        await asyncio.wait_for(owned.relieved(), 20)

    given = EdgeSettings(
        tmp_path, control_url="http://127.0.0.1:9", token="token", name="edge", edge_port=0, dns_port=0
    )
    with hanging(tmp_path) as process:
        owned = EdgeOwnership(given)
        try:
            owned.take()
            with suppress(TimeoutError):
                asyncio.run(relieved(owned))
            assert process.wait(20) == -9
        finally:
            owned.release()


def test_who_looks_what_is_left_over_holds_nobody_out(tmp_path: Path) -> None:
    """The lock of the data directory comes with the sockets, and is let go again: else no edge could ever start there."""

    async def look() -> None:
        lock = LockFile(tmp_path / "edge.lock")
        lock.acquire()
        handover = Handover(tmp_path, [], lock.descriptor)
        serving = asyncio.ensure_future(handover.serve())
        try:
            while not (tmp_path / "edge.sock").exists():  # noqa: ASYNC110 - a file, not an event
                await asyncio.sleep(0.01)
            assert await asyncio.to_thread(orphans.left_over, tmp_path) == []
            lock.release()
            other = LockFile(tmp_path / "edge.lock")
            other.acquire()
            other.release()
        finally:
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)

    asyncio.run(asyncio.wait_for(look(), 20))


def test_doors_of_an_edge_that_just_starts_stay(tmp_path: Path) -> None:
    """Its workers do not listen yet, nor does its agent: without its lock nobody clears away what seems dead."""
    path, door = orphans.make_door(tmp_path)
    lock = LockFile(tmp_path / "edge.lock")
    lock.acquire()
    try:
        assert orphans.left_over(tmp_path) == []
        assert path.exists()
    finally:
        lock.release()
        door.close()
    assert orphans.left_over(tmp_path) == []
    assert not path.exists()


def test_a_worker_can_be_found_before_it_has_a_view(tmp_path: Path) -> None:
    """It may get its View from an agent that dies this moment, and goes on alone: nobody may take its door for a dead one's."""
    path, door = orphans.make_door(tmp_path)
    ours, theirs = socket.socketpair()
    edge = EdgeSettings(tmp_path, control_url="", token="", name="edge")
    told = EdgeWorkerSettings(WorkerId(WorkerKind.DNS, 1), edge, theirs.fileno(), door=door.fileno())
    command = [sys.executable, "-m", "gtm.runtime.edge.worker"]
    with (
        ours,
        subprocess.Popen(
            command, stdin=subprocess.PIPE, env=inherited(), pass_fds=(theirs.fileno(), door.fileno())
        ) as process,
    ):
        assert process.stdin is not None
        process.stdin.write(document(told))
        process.stdin.close()
        theirs.close()
        door.close()
        try:
            eventually(lambda: _answers(path), "it listens at its door")
            assert process.poll() is None
        finally:
            process.kill()


def _answers(door: Path) -> bool:
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection,
        short(door.parent, door.name) as name,
    ):
        with suppress(ConnectionRefusedError):
            connection.connect(name)
            return True
        return False


def test_a_door_opens_to_its_own_user_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever can reach the socket all the same gets no sockets, and ends no worker."""
    gone, told = threading.Event(), threading.Event()
    gone.set()
    _, door = orphans.make_door(tmp_path)
    orphans.Door(door, [], gone, told.set).start()
    with monkeypatch.context() as patched:
        patched.setattr(orphans, "peer", lambda _: (1, os.geteuid() + 4711))
        assert orphans.find(tmp_path) == []
    (orphan,) = orphans.find(tmp_path)
    orphan.stop()
    assert told.wait(20)
    orphan.close()


def test_a_door_without_a_descriptor_is_tried_again(tmp_path: Path) -> None:
    """While no descriptor is free nobody can be let in; a door that gave up then would leave the worker to nobody."""

    class Short:
        def __init__(self, door: socket.socket) -> None:
            self.door, self.refusals = door, 3

        def listen(self) -> None:
            self.door.listen()

        def accept(self) -> object:
            if self.refusals:
                self.refusals -= 1
                raise OSError(errno.EMFILE, "too many open files")
            return self.door.accept()

    gone, told = threading.Event(), threading.Event()
    gone.set()
    _, door = orphans.make_door(tmp_path)
    short_of = Short(door)
    orphans.Door(short_of, [], gone, told.set).start()  # type: ignore[arg-type]
    (orphan,) = orphans.find(tmp_path)
    assert short_of.refusals == 0
    orphan.stop()
    assert told.wait(20)
    orphan.close()
