"""How a child process learns that its parent is gone, even by kill -9: a pipe whose other end only the parent holds."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress

from gtm.environment import inherited
from gtm.runtime.process.forkserver import ForkServer, Load, Process

ENVIRONMENT = "GTM_LIFELINE_FD"


class Lifeline:
    """The parent's side: hand `descriptor` to children (`pass_fds`), keep this object for as long as they may live.

    Args:
        loads: what children have in common, loaded once for all of them (`gtm.runtime.process.forkserver`).
    """

    def __init__(self, loads: Sequence[Load] = ()) -> None:
        self.descriptor, self._held = os.pipe()
        self.forks = ForkServer(loads)

    def close(self) -> None:
        """Let go: every child that watches stops."""
        self.forks.close()
        for descriptor in (self.descriptor, self._held):
            with suppress(OSError):
                os.close(descriptor)

    async def spawn(
        self, arguments: Sequence[str], handed: bytes, pass_fds: Sequence[int] = (), *, forks: bool = False
    ) -> Process:
        """Start a Python process of ours (`python -m …`, a module with a `main()`) that watches this lifeline.

        It gets a session of its own, so that Ctrl-C reaches only the parent, which then stops its children in order, and
        of the parent's environment only what `gtm.environment.inherited` lists.

        Args:
            arguments: module and arguments.
            handed: what it finds on its standard input (`gtm.runtime.process.handed`).
            pass_fds: descriptors that it inherits.
            forks: it starts such processes itself.

        Raises:
            OSError: it cannot be started.
        """
        watched = {ENVIRONMENT: str(self.descriptor)}
        descriptors = (self.descriptor, *pass_fds)
        forked = await self.forks.fork(arguments, handed, descriptors, watched, forks=forks)
        if forked is not None:
            return forked
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            *arguments,
            stdin=subprocess.PIPE,
            env={**inherited(), **watched},
            pass_fds=descriptors,
            start_new_session=True,
        )
        assert process.stdin is not None  # noqa: S101 - it is a pipe
        process.stdin.write(handed)  # as far as the pipe takes it at once; the rest follows as it is read
        process.stdin.close()
        return process


def held() -> bool:
    """Whether a parent of ours started this process, and looks after it."""
    return ENVIRONMENT in os.environ


def watch(stop: Callable[[], None]) -> None:
    """In a child, inside its event loop: call `stop` once when the parent is gone. Without a parent: nothing."""
    text = os.environ.get(ENVIRONMENT)
    if text is None:
        return
    descriptor = int(text)
    loop = asyncio.get_running_loop()

    def gone() -> None:
        loop.remove_reader(descriptor)
        stop()

    loop.add_reader(descriptor, gone)


async def terminate(process: Process, patience: float) -> None:
    """Ask a process to stop, and kill it if it has not after `patience` seconds."""
    if process.returncode is not None:
        return
    with suppress(ProcessLookupError):
        process.terminate()
    try:
        await asyncio.wait_for(process.wait(), patience)
    except TimeoutError:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
