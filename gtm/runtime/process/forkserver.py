"""A process that forks others, so that what they all need is loaded once, and its memory is theirs together (copy on write).

Laws:
  1. It knows no secrets, and so its children know none but their own: it is executed, not forked, with an environment of
     `gtm.environment.inherited`; what a child is handed comes by a descriptor that only the child reads.
  2. It has no threads and no event loop, and a child begins as an interpreter of its own would: a session, signals, descriptors,
     environment, command line and random numbers of its own.
  3. A child's parent is who asked for it, not the fork server: that may die like any other process, and the next child is
     executed, and has a fork server again after that.

Linux alone has what this takes. Elsewhere, and when something is amiss, children are executed.
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import fcntl
import gc
import importlib
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import msgspec

from gtm.environment import inherited
from gtm.runtime.process import signals
from gtm.runtime.process.connections import raise_descriptor_limit

logger = logging.getLogger(__name__)

_PR_SET_CHILD_SUBREAPER = 36
_MODULE = "gtm.runtime.process.forkserver"
_COMMAND = (sys.executable, "-m", _MODULE)
_ROOM = 512
"""Bytes of a command line, for which the first one leaves room."""
_LOADING = 60.0
"""Seconds that it may take to load what children need."""
FORKING = 2.0
"""Seconds that it may take to fork, during which nothing else goes on in the process that waits."""
_MOST = 250
"""Descriptors that a message takes (SCM_MAX_FD is 253)."""
_LONGEST = 65_536


Load = tuple[str] | tuple[str, str, str]


class Process(Protocol):
    """A child, as `asyncio.subprocess.Process` has it."""

    pid: int

    @property
    def returncode(self) -> int | None:
        """None while it runs; minus the signal that ended it."""

    async def wait(self) -> int:
        """Wait for its end."""

    def terminate(self) -> None:
        """Send SIGTERM."""

    def kill(self) -> None:
        """Send SIGKILL."""


class _Request(msgspec.Struct):
    """`descriptors` are the numbers that those of the message get in the child; the first is its standard input."""

    arguments: list[str]
    environment: dict[str, str]
    descriptors: list[int]
    forks: bool


class _Reply(msgspec.Struct):
    pid: int = 0
    error: int = 0


class ForkServer:
    """The side of those who want children.

    Args:
        loads: what it loads at its start, of what several children use: a module each, and perhaps a function of it that is to be called
            with a text. Each page that a child then writes to is no longer shared, and counting references writes: what one child alone
            uses is better loaded there.
    """

    def __init__(self, loads: Sequence[Load]) -> None:
        global _own
        self._loads = loads
        self._process: subprocess.Popen[bytes] | None = None
        self._line: socket.socket | None = None
        self._forked = 0
        self._loaded = _own is not None
        if _own is not None:
            (self._line, self._forked), _own = _own, None
        self._starting = asyncio.Lock()

    @property
    def pid(self) -> int:
        """The process that forks; 0 while there is none."""
        return self._forked if self._process is None else self._process.pid

    def start(self) -> None:
        """Let it load, if it does not run and can run here; returns at once. It stays who this process is now.

        Raises:
            OSError: it cannot be started.
        """
        if self._line is not None or not possible():
            return
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self._process = subprocess.Popen(
                [*_COMMAND, str(theirs.fileno()), " " * _ROOM],
                stdin=subprocess.DEVNULL,
                env=inherited(),
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        except OSError:
            ours.close()
            raise
        finally:
            theirs.close()
        self._line, self._loaded = ours, False
        with suppress(OSError):  # whoever waits for it finds out
            ours.send(msgspec.json.encode(self._loads))

    async def fork(
        self,
        arguments: Sequence[str],
        handed: bytes,
        descriptors: Sequence[int],
        environment: Mapping[str, str],
        *,
        forks: bool = False,
    ) -> Process | None:
        """A child that runs `main()` of a module; None if it must be executed instead.

        Args:
            arguments: the module, and what stands behind it in the command line.
            handed: what it finds on its standard input.
            descriptors: what it inherits, under the same numbers.
            environment: what it finds in its environment beside what the fork server has.
            forks: it gets a fork server of its own, from before it reads what it is handed.

        Raises:
            OSError: there is no room for one more process.
        """
        if len(descriptors) >= _MOST:
            return None
        try:
            async with self._starting:
                self.start()
                if self._line is None:
                    return None
                await self._until_loaded(self._line)
            reply = self._ask(self._line, arguments, handed, descriptors, environment, forks=forks)
        except (OSError, msgspec.MsgspecError) as error:
            logger.warning("the fork server is of no use, executing %s: %s", arguments[0], error)
            self.close()
            return None
        if reply.error:
            raise OSError(reply.error, os.strerror(reply.error))
        return _Forked(reply.pid)

    async def _until_loaded(self, line: socket.socket) -> None:
        if self._loaded:
            return
        line.setblocking(False)
        async with asyncio.timeout(_LOADING):  # its TimeoutError is an OSError
            if not await asyncio.get_running_loop().sock_recv(line, 1):
                raise ConnectionResetError(errno.ECONNRESET, "it ended while it loaded")
        self._loaded = True

    @staticmethod
    def _ask(
        line: socket.socket,
        arguments: Sequence[str],
        handed: bytes,
        descriptors: Sequence[int],
        environment: Mapping[str, str],
        *,
        forks: bool,
    ) -> _Reply:
        """Ask for a child. All at once: while this process takes in children of others, nobody else's may come."""
        request = _Request([*arguments], {**environment}, [0, *descriptors], forks)
        document = _document(handed)
        waited_for, gate = os.pipe()
        try:
            _take_in_children(wanted=True)
            line.settimeout(FORKING)
            socket.send_fds(line, [msgspec.json.encode(request)], [document, waited_for, *descriptors])
            reply = msgspec.json.decode(line.recv(_LONGEST), type=_Reply)
            os.write(gate, b"\0")  # a child that nobody heard of, as when this takes too long, ends
            return reply
        finally:
            _take_in_children(wanted=False)
            for one in (document, waited_for, gate):
                os.close(one)

    def close(self) -> None:
        """End it, which has nothing to lose; its children go on."""
        if self._line is not None:
            self._line.close()
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        if self._forked:
            with suppress(ProcessLookupError, ChildProcessError):
                os.kill(self._forked, signal.SIGKILL)
                os.waitpid(self._forked, 0)
        self._line, self._process, self._forked = None, None, 0


class _Forked:
    """A child of ours that a fork server made."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._ended = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._descriptor = os.pidfd_open(pid)
        self._loop.add_reader(self._descriptor, self._reap)

    def _reap(self) -> None:
        self._loop.remove_reader(self._descriptor)
        os.close(self._descriptor)
        try:
            _, status = os.waitpid(self.pid, 0)
            self.returncode = os.waitstatus_to_exitcode(status)
        except ChildProcessError:  # somebody waits for all that end
            self.returncode = 255
        self._ended.set()

    async def wait(self) -> int:
        await self._ended.wait()
        assert self.returncode is not None  # noqa: S101 - it ended
        return self.returncode

    def terminate(self) -> None:
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        if self.returncode is not None:
            raise ProcessLookupError
        os.kill(self.pid, number)


def _document(handed: bytes) -> int:
    """A descriptor from which it can be read."""
    document = os.memfd_create("handed")
    os.write(document, handed)
    os.lseek(document, 0, os.SEEK_SET)
    return document


def possible() -> bool:
    """Whether this system has what it takes."""
    if sys.platform != "linux" or not hasattr(os, "pidfd_open"):
        return False
    try:
        os.close(os.pidfd_open(os.getpid()))  # Linux 5.3
    except OSError:
        return False
    return True


def _take_in_children(*, wanted: bool) -> None:
    """Whether children whose parent ends become this process's (prctl(2)), as those of a fork server's do."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, int(wanted), 0, 0, 0)


# The other side


_own: tuple[socket.socket, int] | None = None
"""The fork server that this process has from its birth: the line to it, and its number. It was forked before this knew anything."""


def become(module: str, loads: Sequence[Load], handed: bytes) -> None:
    """Have this process execute a module that has a fork server from its birth; returns only where there can be none.

    What this process loaded until now is gone then, and so is its environment, but for what children inherit.

    Args:
        module: it has a `main()`.
        loads: as for `ForkServer`; the module's process has it too.
        handed: what it finds on its standard input.

    Raises:
        OSError: it cannot be executed.
    """
    if not possible():
        return
    os.dup2(_document(handed), 0)
    told = [module, msgspec.json.encode(loads).decode(), msgspec.json.encode(sys.orig_argv).decode()]
    sys.stdout.flush()
    os.execve(sys.executable, [*_COMMAND, *told, " " * _ROOM], inherited())  # noqa: S606 - ourselves


def main() -> None:
    """Load modules, and fork until nobody holds the line any more."""
    gc.disable()
    signals.spare()
    if len(sys.argv) > 3:
        _become(*sys.argv[1:4])
        return
    line = socket.socket(fileno=int(sys.argv[1]))
    _entitle(_COMMAND)
    _load(msgspec.json.decode(line.recv(_LONGEST), type=list[list[str]]))
    with suppress(OSError):
        line.send(b"\0")
    _serve_and_begin(line)


def _become(module: str, loads: str, title: str) -> None:
    """Have a fork server, and be what it was forked from: it knows no more than this process before it reads what it is handed."""
    global _own  # noqa: PLW0603 - there is one a process
    _load(msgspec.json.decode(loads, type=list[list[str]]))
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    own = os.fork()
    if own == 0:
        ours.close()
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        os.setsid()
        _entitle(_COMMAND)
        _serve_and_begin(theirs)
        return
    theirs.close()
    _own = ours, own
    _entitle(msgspec.json.decode(title, type=list[str]))
    gc.enable()
    sys.argv = [module]
    importlib.import_module(module).main()


def _load(loads: Sequence[Sequence[str]]) -> None:
    for name, *call in loads:
        module = importlib.import_module(name)
        if call:
            getattr(module, call[0])(call[1])
    gc.collect()
    gc.freeze()


def _serve_and_begin(line: socket.socket) -> None:
    raise_descriptor_limit(serves=False)  # numbers of descriptors may be as high as in those who ask
    request = _serve(line)
    if request is not None:
        _begin(request)


def _serve(line: socket.socket) -> _Request | None:
    """Fork whenever somebody asks. Returns what a child is to be, in the child; None at the end."""
    while True:
        try:
            text, received, _, _ = socket.recv_fds(line, _LONGEST, _MOST)
        except OSError:
            return None
        if not text:
            return None
        reading, writing = os.pipe()
        between = _fork()
        if between == 0:
            # The child of a child that ends at once goes to whoever asked for it.
            parent, child = os.getpid(), _fork()
            if child != 0:
                os.write(writing, (child or 0).to_bytes(8))
                os._exit(0)
            _wait(parent, received.pop(1))
            request = msgspec.json.decode(text, type=_Request)
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            own = _fork() if request.forks else None
            line.close()
            if own == 0:
                ours.close()
                _keep_only({theirs.fileno()})
                os.setsid()
                line = theirs
                continue
            theirs.close()
            _place(received, request.descriptors, ours, own or 0)
            return request
        os.close(writing)
        child = 0
        if between is not None:
            child = int.from_bytes(os.read(reading, 8))
            os.waitpid(between, 0)
        os.close(reading)
        for one in received:
            os.close(one)
        with suppress(OSError):
            line.send(msgspec.json.encode(_Reply(child) if child else _Reply(error=errno.EAGAIN)))


def _wait(parent: int, gate: int) -> None:
    """Until this is a child of who asked for it, and that knows; or end."""
    while os.getppid() == parent:
        time.sleep(0.0005)
    if not os.read(gate, 1):
        os._exit(0)


def _begin(request: _Request) -> None:
    """Be the child that was asked for."""
    os.setsid()
    os.environ.update(request.environment)
    name, *arguments = request.arguments
    _entitle([sys.executable, "-m", *request.arguments])
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 - a descriptor
    gc.enable()
    module: Any = importlib.import_module(name)
    if hasattr(module, "__path__"):
        module = importlib.import_module(f"{name}.__main__")
    sys.argv = [str(module.__file__), *arguments]
    module.main()


def _fork() -> int | None:
    """As fork(2); None if there is no room."""
    try:
        return os.fork()
    except OSError:
        return None


def _place(received: Sequence[int], wanted: Sequence[int], line: socket.socket, own: int) -> None:
    """Give descriptors the numbers that they have where they come from, and close all others."""
    global _own  # noqa: PLW0603 - there is one a process
    above = max((*wanted, *received, 2)) + 1
    moved = [fcntl.fcntl(one, fcntl.F_DUPFD_CLOEXEC, above) for one in received]
    kept = {*wanted}
    number = line.detach()
    if own:
        _own = socket.socket(fileno=fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, above)), own
        kept.add(_own[0].fileno())
    for one, target in zip(moved, wanted, strict=True):
        os.dup2(one, target)
    _keep_only(kept)


def _keep_only(kept: set[int]) -> None:
    """Close every descriptor but these, and the standard ones."""
    last = 2
    for one in (*sorted(kept - {0, 1, 2}), os.sysconf("SC_OPEN_MAX")):
        if last + 1 < one:  # of no descriptors CPython makes all
            os.closerange(last + 1, one)
        last = one


def _entitle(command: Sequence[str]) -> None:
    """Let this be the command line that others see, as far as there was room in the first one."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    start, end = int(fields[45]), int(fields[46])  # arg_start, arg_end: proc_pid_stat(5)
    text = "\0".join(command).encode()[: end - start - 1]
    ctypes.memset(start, 0, end - start)
    ctypes.memmove(start, text, len(text))


if __name__ == "__main__":
    from gtm.runtime.process import forkserver  # noqa: PLW0406 - what children find in `_own` must be what they import

    forkserver.main()
