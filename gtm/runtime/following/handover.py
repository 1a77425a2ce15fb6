"""How one process takes over from another on the same machine: the sockets move, the processes don't.

An edge's agent, or a balancer, that runs waits at a Unix socket in its data directory. A successor connects and is sent every listening
socket (SCM_RIGHTS), and the lock of the data directory. Once its own workers answer it says `stop`; until then the
predecessor goes on as if nothing were, and if the successor hangs up, it stays.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import signal
import socket
import struct
from abc import ABC, abstractmethod
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from gtm.lockfile import LockFile
from gtm.nesting import shallow
from gtm.runtime.process import privileges
from gtm.runtime.process.listeners import Listener, Use

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from gtm.settings import FollowerSettings

logger = logging.getLogger(__name__)

FILE = "edge.sock"
"""The Unix socket's name in the data directory."""
STOP = b"stop"
"""What a successor says once its own workers answer."""
_PATIENCE = 10.0
"""Seconds that the other side may take for a step."""
_LONGEST = 4096
_CREDENTIALS = struct.Struct("iII")


@dataclass(frozen=True, slots=True)
class _Head:
    """The first message: who speaks, how many sockets follow, and whether the lock comes with this."""

    process: int
    sockets: int
    locked: bool


@dataclass(frozen=True, slots=True)
class _Place:
    """A message that carries a socket."""

    use: Use
    host: str
    port: int


class HandoverError(OSError):
    """The edge that runs cannot be taken over; it goes on."""


class Predecessor:
    """The edge that runs, as its successor sees it: `process` is its id, `lock` the lock of the data directory."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self.process = 0
        self.lock: int | None = None
        self.listeners: tuple[Listener, ...] = ()

    @classmethod
    def find(cls, data_dir: Path) -> Predecessor | None:
        """The edge that runs on a data directory, with its sockets; None if none does.

        Raises:
            HandoverError: it does not hand them over.
        """
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        connection.settimeout(_PATIENCE)
        try:
            with short(data_dir) as path:
                connection.connect(path)
        except (FileNotFoundError, ConnectionRefusedError):
            connection.close()
            return None
        except OSError as error:
            connection.close()
            raise _refused(data_dir, error) from error
        try:
            return cls.behind(connection)
        except (OSError, ValueError) as error:
            connection.close()
            raise _refused(data_dir, error) from error

    @classmethod
    def behind(cls, connection: socket.socket) -> Predecessor:
        """What waits at the other end of a connection; it hands over what it has.

        Raises:
            OSError: it hangs up, or says nothing in time.
            ValueError: it speaks another protocol.
        """
        found = cls(connection)
        try:
            found._receive()
        except (OSError, ValueError):
            for one in found.listeners:
                one.socket.close()
            found._drop_lock()
            raise
        return found

    def stop(self) -> None:
        """Tell it to stop: its place is taken.

        Raises:
            OSError: it is gone already.
        """
        self._connection.send(STOP)

    async def ended(self) -> None:
        """Wait until it has."""
        loop = asyncio.get_running_loop()
        self._connection.setblocking(False)
        with suppress(OSError):
            while await loop.sock_recv(self._connection, _LONGEST):
                pass

    def wait(self, seconds: float) -> None:
        """Wait until it has, for so long at most.

        Raises:
            HandoverError: it has not.
        """
        self._connection.settimeout(seconds)
        try:
            with suppress(ConnectionError):
                self._connection.recv(_LONGEST)
        except TimeoutError:
            message = f"process {self.process} was told to end, and has not after {seconds:.0f} s"
            raise HandoverError(errno.ETIMEDOUT, message) from None

    def kill(self) -> None:
        """Kill it: it hangs."""
        kill_peer(self._connection)

    def close(self) -> None:
        """Let go of it, and of its lock if nobody adopted that. If it was not told to stop, it goes on."""
        self._connection.close()
        self._drop_lock()

    def _drop_lock(self) -> None:
        """A lock is held until every copy of its descriptor is closed: one that stays would keep every other edge out."""
        if self.lock is not None:
            os.close(self.lock)
            self.lock = None

    def _receive(self) -> None:
        data, descriptors = self._message()
        head = msgspec.json.decode(shallow(data), type=_Head)
        self.process = head.process
        if head.locked:
            (self.lock,) = descriptors
        for _ in range(head.sockets):
            data, descriptors = self._message()
            place = msgspec.json.decode(shallow(data), type=_Place)
            (descriptor,) = descriptors
            received = Listener(place.use, place.host, place.port, socket.socket(fileno=descriptor))
            self.listeners += (received,)

    def _message(self) -> tuple[bytes, list[int]]:
        data, descriptors, _, _ = socket.recv_fds(self._connection, _LONGEST, 1)
        if not data:
            raise ConnectionError("it hung up")
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)
        return data, descriptors


class Handover:
    """The side of the edge that runs: waits for successors, one at a time.

    Args:
        data_dir: where they look.
        listeners: all sockets.
        lock: the descriptor of the data directory's lock, if it is held.
    """

    def __init__(self, data_dir: Path, listeners: Sequence[Listener], lock: int | None) -> None:
        self._data_dir = data_dir
        self._listeners = listeners
        self._lock = lock
        self._successor: socket.socket | None = None

    async def serve(self) -> None:
        """Wait for successors until one has taken over.

        Raises:
            OSError: the data directory takes no Unix socket.
        """
        loop = asyncio.get_running_loop()
        with listen_at(self._data_dir) as waiting:
            while self._successor is None:
                connection, _ = await loop.sock_accept(waiting)
                try:
                    await self._hand_over(connection)
                except OSError as error:
                    logger.warning("a successor failed to take over, going on: %s", error)
                    connection.close()

    def close(self) -> None:
        """Let the successor know that this edge has ended."""
        if self._successor is not None:
            self._successor.close()

    async def _hand_over(self, connection: socket.socket) -> None:
        logger.info("handing the sockets to a successor")
        await asyncio.to_thread(hand_over, connection, self._listeners, self._lock)
        connection.setblocking(False)
        said = await asyncio.get_running_loop().sock_recv(connection, _LONGEST)
        if said != STOP:
            raise ConnectionError("it hung up")
        self._successor = connection


def hand_over(connection: socket.socket, listeners: Sequence[Listener], lock: int | None) -> None:
    """Send sockets to a successor, and the descriptor of the data directory's lock, if it is held.

    Raises:
        OSError: it hung up, or does not read.
    """
    connection.settimeout(_PATIENCE)
    locks = [] if lock is None else [lock]
    head = _Head(os.getpid(), len(listeners), bool(locks))
    socket.send_fds(connection, [msgspec.json.encode(head)], locks)
    for one in listeners:
        place = msgspec.json.encode(_Place(one.use, one.host, one.port))
        socket.send_fds(connection, [place], [one.socket.fileno()])


def peer(connection: socket.socket) -> tuple[int, int]:
    """Process and user at the other end; of a connection to a socket in the data directory, those that listen there."""
    size = _CREDENTIALS.size
    process, user, _ = _CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    return process, user


def kill_peer(connection: socket.socket) -> None:
    """Kill the process at the other end, if this one may."""
    process, _ = peer(connection)
    if process > 1:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(process, signal.SIGKILL)


def listen_at(data_dir: Path) -> socket.socket:
    """A Unix socket that only this user (and root) can connect to, in place of any that was there."""
    name = f"{FILE}.{os.getpid()}.tmp"
    waiting = bound(data_dir, name)
    try:
        waiting.listen()
        waiting.setblocking(False)
        (data_dir / name).replace(data_dir / FILE)
    except OSError:
        waiting.close()
        raise
    return waiting


def bound(data_dir: Path, name: str) -> socket.socket:
    """A Unix socket of this name that only this user (and root) can connect to, once it listens.

    Raises:
        OSError: the data directory takes no Unix socket.
    """
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        os.fchmod(sock.fileno(), 0o600)  # before it has a name
        with short(data_dir, name) as path:
            Path(path).unlink(missing_ok=True)
            sock.bind(path)
    except OSError:
        sock.close()
        raise
    return sock


@contextmanager
def short(data_dir: Path, name: str = FILE) -> Iterator[str]:
    """A path of a file in a directory that is short enough for a Unix socket (108 bytes), however long the real one is.

    Raises:
        OSError: the directory cannot be opened.
    """
    directory = os.open(data_dir, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{directory}/{name}"
    finally:
        os.close(directory)


def _refused(data_dir: Path, error: Exception) -> HandoverError:
    number = error.errno if isinstance(error, OSError) and error.errno else 0
    reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
    return HandoverError(
        number, f"the edge that runs on `{data_dir}` does not hand its sockets over ({reason}); it goes on"
    )


class Ownership(ABC):
    """What a process owns on its machine, from its start to its end: a directory, its listening sockets, a user; free, or from a predecessor.

    Args:
        what: the process is, for the log; its lock file is called so.
        home: the directory.
        settings: say which user to become, and whether to take the place of one that runs.
    """

    def __init__(self, what: str, home: Path, settings: FollowerSettings) -> None:
        self.home = home
        self.replaced = False
        """Whether a successor has taken over."""
        self._what = what
        self._user, self._replace = settings.user, settings.replace
        self._lock = LockFile(home / f"{what}.lock")
        self._predecessors: list[Predecessor] = []
        self._handover: Handover | None = None

    @property
    def inherited(self) -> bool:
        """Whether others had all this before, and have it until this process is ready."""
        return bool(self._predecessors)

    def take(self) -> None:
        """Take everything, then be the user that was asked for.

        Raises:
            PortInUseError: an address is taken.
            HandoverError: the process that runs cannot be replaced.
            UserError: this process cannot become the user.
            OSError: another runs on the directory, or an address cannot be listened on.
        """
        user = privileges.find_user(self._user) if self._user else None
        if user is not None:
            privileges.give(self.home, user)
        predecessor = Predecessor.find(self.home) if self._replace else None
        if predecessor is not None:
            logger.info("replacing the %s of process %d", self._what, predecessor.process)
            self._predecessors = [predecessor]
        else:
            with privileges.acting_as(user):
                self._claim()
        self._open([one for predecessor in self._predecessors for one in predecessor.listeners])
        if user is not None:
            privileges.become(user)

    def _claim(self) -> None:
        """Take the directory, on which nobody hands anything over."""
        self._lock.acquire()

    @abstractmethod
    def _open(self, inherited: Sequence[Listener]) -> None:
        """Have the sockets: those that were handed over, or new ones."""

    def settle(self) -> None:
        """Once this process serves: tell those before it to end."""
        for predecessor in self._predecessors:
            process = predecessor.process
            try:
                predecessor.stop()
            except OSError as error:
                logger.warning("process %d, which was to be replaced, is gone already: %s", process, error)
            if predecessor.lock is not None:
                self._lock.adopt(predecessor.lock)
                predecessor.lock = None

    async def _relieved(self, what: str) -> None:
        """Wait until the predecessors have ended; `what` they are, for the log."""
        for predecessor in self._predecessors:
            await predecessor.ended()
            logger.info("the %s of process %d has ended", what, predecessor.process)

    async def hand_over(
        self, listeners: Sequence[Listener], give_way: Callable[[], None], goes_on: str
    ) -> None:
        """Wait for a successor that takes over, and then call `give_way`.

        Args:
            listeners: what it gets.
            give_way: called once it has them.
            goes_on: what this process does then, for the log.
        """
        self._handover = Handover(self.home, listeners, self._lock.descriptor)
        try:
            await self._handover.serve()
        except OSError as error:
            logger.warning("this %s cannot be replaced without a gap: %s", self._what, error)
            return
        logger.info("a successor has taken over; %s", goes_on)
        self.replaced = True
        give_way()

    def release(self) -> None:
        """Give everything up. A predecessor that was not told to stop goes on."""
        for predecessor in self._predecessors:
            predecessor.close()
        self._lock.release()
        if self._handover is not None:
            self._handover.close()
