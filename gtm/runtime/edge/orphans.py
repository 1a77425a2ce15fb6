"""Workers whose agent is gone, and how a next agent finds them: each has a door, a Unix socket in the data directory.

What is said at a door is what a predecessor says to its successor (`gtm.runtime.following.handover`): the worker hands over its
listening sockets, goes on, and when it hears `stop` it answers what has arrived, and ends.

Laws:
  1. A worker whose agent lives opens to nobody.
  2. An orphan that cannot hand over its sockets holds clients up that the kernel still sends to it, and one that was told
     to end and does not would stay for ever. Both are killed.
"""

from __future__ import annotations

import errno
import logging
import os
import secrets
import signal
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from gtm.lockfile import LockFile, LockHeld
from gtm.runtime.following.handover import (
    STOP,
    HandoverError,
    Predecessor,
    bound,
    hand_over,
    kill_peer,
    peer,
    short,
)
from gtm.runtime.process.listeners import Listener

logger = logging.getLogger(__name__)

LOCK = "edge.lock"
"""The lock file in the data directory that an agent holds."""
_NAME = "edge-worker.{}.sock"
_AGAIN = 0.5
"""Seconds until a door that could not open is tried again."""
_PATIENCE = 5.0
"""Seconds that a worker may take to notice that its agent is gone, and an orphan to hand its sockets over."""
ENDING = 15.0
"""Seconds that an edge, and then its orphans, may take to end."""


def make_door(data_dir: Path) -> tuple[Path, socket.socket]:
    """A door for one worker: its path, and the bound socket on which the worker will listen.

    Raises:
        OSError: the data directory takes no Unix socket.
    """
    name = _NAME.format(secrets.token_hex(4))
    return data_dir / name, bound(data_dir, name)


def listen_early(door: int) -> None:
    """Let agents knock from now on, for `Door` to open later.

    A worker that begins while its agent dies may go on alone, and a door at which nobody listens counts as a dead one's.

    Args:
        door: the descriptor of a door of `make_door`, which stays the caller's.
    """
    with socket.socket(fileno=os.dup(door)) as waiting:
        waiting.listen()


@dataclass(eq=False, repr=False)
class Door:
    """The worker's side: opens to a next agent once its own is gone.

    Args:
        waiting: from `make_door`.
        listeners: the sockets that the worker reads.
        gone: set once its own agent is gone.
        finish: makes the worker answer what has arrived, and end.
    """

    waiting: socket.socket
    listeners: Sequence[Listener]
    gone: threading.Event
    finish: Callable[[], None]

    def __post_init__(self) -> None:
        self._successor: socket.socket | None = None

    def start(self) -> None:
        """Wait for agents on a thread of its own. The door names the process that listens to them (SO_PEERCRED)."""
        self.waiting.listen()
        threading.Thread(target=self._serve, daemon=True, name="door").start()

    def _serve(self) -> None:
        while self._successor is None:
            try:
                connection, _ = self.waiting.accept()
            except OSError as error:
                # No descriptor is free: a door that ended here would leave this worker to nobody, for good.
                logger.warning("could not open to an agent, trying again: %s", error)
                threading.Event().wait(_AGAIN)
                continue
            try:
                self._open(connection)
            except OSError as error:
                logger.warning("an agent did not take this worker over, going on: %s", error)
                connection.close()
        # This frame lasts as long as the process, and with it the connection, whose end tells the agent of this worker's,
        # and the door, without which nobody would find a worker that hangs from here on.
        threading.Event().wait()

    def _open(self, connection: socket.socket) -> None:
        process, user = peer(connection)
        if user not in (os.geteuid(), 0):
            raise PermissionError(errno.EPERM, f"process {process} belongs to another user")
        if not self.gone.wait(_PATIENCE):
            raise OSError(errno.EBUSY, f"process {process} asked, but this worker's own agent lives")
        hand_over(connection, self.listeners, None)
        connection.settimeout(None)
        if connection.recv(len(STOP)) != STOP:
            raise ConnectionError("it hung up")
        self._successor = connection
        logger.info("the agent of process %d has taken over; ending", process)
        self.finish()


def find(data_dir: Path) -> list[Predecessor]:
    """The orphans of a data directory, with their sockets. Whoever calls this holds the directory's lock."""
    found = []
    for path in sorted(data_dir.glob(_NAME.format("*"))):
        orphan = _knock(path)
        if orphan is not None:
            found.append(orphan)
    return found


def _knock(path: Path) -> Predecessor | None:
    """The orphan behind a door; None if there is none, or none of use."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.settimeout(2 * _PATIENCE)
    try:
        with short(path.parent, path.name) as name:
            connection.connect(name)
        return Predecessor.behind(connection)
    except ConnectionRefusedError:  # a worker that was killed, or one that never listened
        with suppress(OSError):
            path.unlink()
    except TimeoutError:
        logger.error("the worker of process %d, whose agent is gone, hangs; killing it", peer(connection)[0])
        kill_peer(connection)
    except (OSError, ValueError) as error:
        logger.warning("nobody can be taken over at `%s`: %s", path, error)
    connection.close()
    return None


def left_over(data_dir: Path) -> list[Listener]:
    """The sockets of an edge that still answers although whoever started it is gone; to be closed by the caller.

    Raises:
        HandoverError: it does not hand them over.
    """
    agent = Predecessor.find(data_dir)
    found = [agent] if agent is not None else _found_if_free(data_dir)
    for one in found:
        one.close()  # it goes on
    return [listener for one in found for listener in one.listeners]


def _found_if_free(data_dir: Path) -> list[Predecessor]:
    """The orphans of a data directory; none while an agent is there, whose workers may not listen at their doors yet."""
    lock = LockFile(data_dir / LOCK)
    try:
        lock.acquire()
    except LockHeld:
        return []
    except OSError as error:
        logger.warning("cannot lock the data directory, going on without a lock: %s", error)
    try:
        return find(data_dir)
    finally:
        lock.release()


def end(data_dir: Path) -> list[int]:
    """End the edge of a data directory: its agent, which ends its workers, and workers whose agent is gone.

    Returns:
        The ids of the processes that were told to.

    Raises:
        HandoverError: one does not end.
        OSError: the data directory cannot be used.
    """
    ended: list[int] = []
    lock = LockFile(data_dir / LOCK)
    deadline = time.monotonic() + ENDING
    while not lock.held:
        try:
            lock.acquire()
        except LockHeld as error:
            ended += _tell(error.holder, ended)
            if time.monotonic() > deadline:
                message = f"the edge of `{data_dir}` (process {error.holder or 'unknown'}) does not end"
                raise HandoverError(errno.ETIMEDOUT, message) from error
            time.sleep(0.05)
    try:
        found = find(data_dir)
        for orphan in found:
            with suppress(OSError):  # it is gone already
                orphan.stop()
        for orphan in found:
            _see_out(orphan)
            ended.append(orphan.process)
    finally:
        lock.release()
    return ended


def _see_out(orphan: Predecessor) -> None:
    """Wait until an orphan that was told to end has; kill it if it does not.

    Raises:
        HandoverError: it cannot be killed either.
    """
    try:
        orphan.wait(ENDING)
    except HandoverError as error:
        logger.error("%s; killing it", error.strerror)
        orphan.kill()
        orphan.wait(_PATIENCE)


def _tell(holder: str, told: Sequence[int]) -> list[int]:
    """Tell the holder of a lock to end, once."""
    process = int(holder) if holder.isdecimal() else 0
    if process == 0 or process in told:
        return []
    try:
        os.kill(process, signal.SIGTERM)
    except ProcessLookupError:
        return []
    return [process]
