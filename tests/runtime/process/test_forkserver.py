"""The fork server: what its children have of their own, who their parent is, and what happens when it dies."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from gtm.runtime.process import forkserver
from gtm.runtime.process.forkserver import Process
from gtm.runtime.process.lifeline import Lifeline
from tests.system.harness import alive, command_line, eventually

pytestmark = pytest.mark.skipif(not forkserver.possible(), reason="Linux has what fork servers take")

CHILD = "tests.runtime.process.forked"


def _run(test: Callable[[Lifeline], Awaitable[None]]) -> None:
    async def run() -> None:
        lifeline = Lifeline([("json",), (CHILD, "note", "shared")])
        try:
            await test(lifeline)
        finally:
            lifeline.close()

    asyncio.run(asyncio.wait_for(run(), 60))


async def _told(lifeline: Lifeline, *arguments: str, forks: bool = False) -> tuple[Process, Any]:
    """A child that says all about itself, and goes on until its lifeline ends."""
    reading, writing = os.pipe()
    handed = json.dumps({"say": writing}).encode()
    process = await lifeline.spawn([CHILD, *arguments], handed, (writing,), forks=forks)
    os.close(writing)
    with os.fdopen(reading) as said:
        line = await asyncio.to_thread(said.readline)
    return process, json.loads(line)


def test_a_child_is_as_one_that_was_executed(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has its arguments, document, session, environment and descriptors, and its random numbers are not its sibling's."""
    monkeypatch.setenv("GTM_TOKEN", "gtm_secret")

    async def test(lifeline: Lifeline) -> None:
        one, of_one = await _told(lifeline, "x", "y")
        two, of_two = await _told(lifeline, "x", "y")
        assert of_one["loaded"] == ["shared"]  # by the fork server, once
        assert of_one["arguments"] == ["x", "y"]
        assert of_one["session"] == of_one["pid"] == one.pid
        assert of_one["parent"] == os.getpid()
        assert of_one["lifeline"] == str(lifeline.descriptor)
        assert of_one["descriptors"] == sorted({0, 1, 2, lifeline.descriptor, of_one["say"]})
        assert of_one["random"] != of_two["random"]
        assert of_one["collects"]
        assert command_line(one.pid).rstrip() == f"{sys.executable} -m {CHILD} x y"
        environment = await asyncio.to_thread(Path(f"/proc/{one.pid}/environ").read_bytes)
        assert b"gtm_secret" not in environment
        one.terminate()
        assert await one.wait() == one.returncode == -signal.SIGTERM
        two.kill()
        assert await two.wait() == -signal.SIGKILL
        with pytest.raises(ProcessLookupError):
            two.terminate()

    _run(test)


def test_children_end_with_their_lifeline() -> None:
    """And the fork server with it."""

    async def test(lifeline: Lifeline) -> None:
        process, _ = await _told(lifeline)
        server = lifeline.forks.pid
        assert server
        lifeline.close()
        assert await process.wait() == 0
        assert not alive(server)

    _run(test)


def test_the_death_of_the_fork_server_ends_no_child() -> None:
    """The next child is executed or forked by another, and is like any other."""

    async def test(lifeline: Lifeline) -> None:
        before, _ = await _told(lifeline)
        server = lifeline.forks.pid
        assert server
        os.kill(server, signal.SIGKILL)
        await asyncio.to_thread(eventually, lambda: not alive(server), "it is dead")
        after, of_after = await _told(lifeline)
        assert of_after["parent"] == os.getpid()
        assert before.returncode is None
        again, _ = await _told(lifeline)
        assert lifeline.forks.pid not in (0, server)
        for process in (before, after, again):
            process.kill()
            await process.wait()

    _run(test)


def test_a_fork_server_that_hangs_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for it for long."""
    monkeypatch.setattr(forkserver, "FORKING", 0.2)

    async def test(lifeline: Lifeline) -> None:
        first, _ = await _told(lifeline)
        server = lifeline.forks.pid
        assert server
        os.kill(server, signal.SIGSTOP)
        second, of_second = await _told(lifeline)
        assert of_second["parent"] == os.getpid()
        assert not alive(server)
        for process in (first, second):
            process.kill()
            await process.wait()

    _run(test)


def test_a_child_that_comes_too_late_does_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Who asked has executed another in its place, with the same descriptors."""

    async def test(lifeline: Lifeline) -> None:
        first, _ = await _told(lifeline)
        server = lifeline.forks.pid
        assert server
        monkeypatch.setattr(forkserver, "FORKING", 0.2)
        monkeypatch.setattr(subprocess.Popen, "kill", lambda _: None)
        monkeypatch.setattr(subprocess.Popen, "wait", lambda _: None)
        os.kill(server, signal.SIGSTOP)
        second, _ = await _told(lifeline, str(tmp_path / "second"))
        os.kill(server, signal.SIGCONT)  # it forks what it was asked for, and finds nobody
        monkeypatch.undo()
        assert await asyncio.to_thread(os.waitpid, server, 0) == (server, 0)
        assert len((tmp_path / "second").read_text().splitlines()) == 1
        for process in (first, second):
            process.kill()
            await process.wait()

    _run(test)


def test_a_child_may_fork_its_own() -> None:
    """What it is handed is not known to its fork server, which ends with it."""

    async def test(lifeline: Lifeline) -> None:
        child, of_child = await _told(lifeline, "fork", forks=True)
        grandchild, server = of_child["grandchild"], of_child["server"]
        assert of_child["grandchild_parent"] == child.pid
        assert "forkserver" in command_line(server)
        child.kill()
        await child.wait()
        await asyncio.to_thread(
            eventually, lambda: not alive(server) and not alive(grandchild), "both end with it"
        )

    _run(test)


def test_where_there_is_none_children_are_executed(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on macOS."""
    monkeypatch.setattr(forkserver, "possible", lambda: False)

    async def test(lifeline: Lifeline) -> None:
        process, of_child = await _told(lifeline, "x")
        assert of_child["loaded"] == []
        assert of_child["arguments"] == ["x"]
        process.kill()
        assert await process.wait() == -signal.SIGKILL

    _run(test)


def test_a_child_that_fails_says_so(capfd: pytest.CaptureFixture[str]) -> None:
    """With its traceback, and a code."""

    async def test(lifeline: Lifeline) -> None:
        process = await lifeline.spawn([CHILD], b"{}")
        assert await process.wait() == 1

    _run(test)
    assert "KeyError: 'say'" in capfd.readouterr().err
