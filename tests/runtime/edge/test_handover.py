"""Sockets that pass from one edge to the next, here within one process."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gtm.lockfile import LockFile, LockHeld
from gtm.runtime.following.handover import FILE, Handover, HandoverError, Predecessor, listen_at, short
from gtm.runtime.process.listeners import Listener, Listeners, Use
from gtm.runtime.process.sockets import bind_tcp
from tests.effort import examples
from tests.patience import PATIENCE


@pytest.fixture
def listeners() -> Iterator[Listeners]:
    """A few sockets."""
    sockets = [bind_tcp("127.0.0.1", 0) for _ in range(3)]
    settled = [Listener(Use.HTTP, "127.0.0.1", one.getsockname()[1], one) for one in sockets]
    with closing(Listeners(settled, (), 1)) as made:
        yield made


@asynccontextmanager
async def waiting(
    data_dir: Path, listeners: Listeners, lock: int | None = None
) -> AsyncIterator[asyncio.Task[None]]:
    """An edge that runs; the task ends once it has been replaced."""
    handover = Handover(data_dir, listeners.settled, lock)
    task = asyncio.ensure_future(handover.serve())
    while not (data_dir / FILE).exists():  # noqa: ASYNC110 - it has no event for that
        await asyncio.sleep(0)
    try:
        yield task
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        handover.close()


async def found(data_dir: Path) -> Predecessor:
    """What a successor finds."""
    predecessor = await asyncio.to_thread(Predecessor.find, data_dir)
    assert predecessor is not None
    return predecessor


def test_a_successor_gets_every_socket(tmp_path: Path, listeners: Listeners) -> None:
    """The sockets arrive in their order with what they are for, and both sides know when the other is done."""

    async def run() -> None:
        async with waiting(tmp_path, listeners) as replaced:
            assert stat.S_IMODE((tmp_path / FILE).stat().st_mode) == 0o600
            predecessor = await found(tmp_path)
            assert predecessor.process == os.getpid()
            assert predecessor.lock is None
            assert [one.place for one in predecessor.listeners] == [one.place for one in listeners.settled]
            for one in predecessor.listeners:
                assert one.socket.getsockname() == (one.host, one.port)
                assert not one.socket.get_inheritable()
                one.socket.close()
            assert not replaced.done()
            predecessor.stop()
            await asyncio.wait_for(replaced, PATIENCE)
        await asyncio.wait_for(predecessor.ended(), PATIENCE)
        predecessor.close()

    asyncio.run(run())


def test_a_successor_that_gives_up_changes_nothing(tmp_path: Path, listeners: Listeners) -> None:
    """The edge goes on when its successor hangs up or says nonsense, and a later one may take over."""

    async def run() -> None:
        async with waiting(tmp_path, listeners) as replaced:
            predecessor = await found(tmp_path)
            for one in predecessor.listeners:
                one.socket.close()
            predecessor.close()
            with (
                socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as other,
                short(tmp_path) as path,
            ):
                other.connect(path)
                other.send(b"nonsense")
                other.settimeout(PATIENCE)
                while await asyncio.to_thread(other.recv, 1 << 16):
                    pass  # until the edge hangs up
            predecessor = await found(tmp_path)
            assert not replaced.done()
            predecessor.stop()
            await asyncio.wait_for(replaced, PATIENCE)
            for one in predecessor.listeners:
                one.socket.close()
            predecessor.close()

    asyncio.run(run())


def test_the_lock_passes_without_a_gap(tmp_path: Path, listeners: Listeners) -> None:
    """The data directory stays locked until the last of both has let go, and names its new holder."""
    path = tmp_path / "edge.lock"
    old, new = LockFile(path), LockFile(path)
    old.acquire()

    async def run() -> None:
        async with waiting(tmp_path, listeners, old.descriptor):
            predecessor = await found(tmp_path)
            assert predecessor.lock is not None
            path.write_text("someone else\n")
            new.adopt(predecessor.lock)
            predecessor.lock = None  # it is the new holder's
            assert path.read_text() == f"{os.getpid()}\n"
            for one in predecessor.listeners:
                one.socket.close()
            predecessor.close()

    asyncio.run(run())
    old.release()
    with pytest.raises(LockHeld):
        LockFile(path).acquire()
    new.release()
    LockFile(path).acquire()


def test_nobody_there_is_no_error(tmp_path: Path) -> None:
    """Where no edge runs, or one left its socket behind, there is no predecessor."""
    assert Predecessor.find(tmp_path) is None
    listen_at(tmp_path).close()
    assert (tmp_path / FILE).exists()
    assert Predecessor.find(tmp_path) is None


def test_long_directories_serve_too(tmp_path: Path, listeners: Listeners) -> None:
    """A data directory may have a longer path than a Unix socket."""
    deep = tmp_path.joinpath(*["directory" * 10] * 3)
    deep.mkdir(parents=True)

    async def run() -> None:
        async with waiting(deep, listeners):
            predecessor = await found(deep)
            assert len(predecessor.listeners) == len(listeners.settled)
            for one in predecessor.listeners:
                one.socket.close()
            predecessor.close()

    asyncio.run(run())


@contextmanager
def speaking(data_dir: Path, messages: list[bytes]) -> Iterator[None]:
    """Something at an edge's socket that says what it likes, with a descriptor each."""
    with listen_at(data_dir) as server:
        server.setblocking(True)

        def speak() -> None:
            connection, _ = server.accept()
            with connection, open(os.devnull, "rb") as file, suppress(OSError):  # noqa: PTH123 - a descriptor
                for message in messages:
                    socket.send_fds(connection, [message or b"\0"], [file.fileno()])

        thread = threading.Thread(target=speak)
        thread.start()
        yield
        thread.join(PATIENCE)
        assert not thread.is_alive()


MESSAGES = st.lists(
    st.one_of(
        st.binary(max_size=200),
        st.builds(
            b'{"process":%d,"sockets":%d,"locked":%s}'.__mod__,
            st.tuples(st.integers(0, 9), st.integers(0, 3), st.sampled_from([b"true", b"false"])),
        ),
        st.just(b'{"use":"http","host":"127.0.0.1","port":1}'),
    ),
    max_size=4,
)


@settings(
    max_examples=examples(100), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(messages=MESSAGES)
def test_whatever_is_said_is_understood_or_refused(tmp_path: Path, messages: list[bytes]) -> None:
    """A peer that speaks no or another protocol ends the start with one error that says what goes on."""
    with speaking(tmp_path, messages):
        try:
            predecessor = Predecessor.find(tmp_path)
        except HandoverError:
            return
    assert predecessor is not None
    for one in predecessor.listeners:
        one.socket.close()
    predecessor.close()
    assert predecessor.lock is None
