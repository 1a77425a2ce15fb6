"""Nobody's query is lost when an edge's agent dies: its workers answer alone, until a next agent takes them over."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from gtm.runtime.edge import orphans as orphans_module
from tests.system.harness import Process, alive, eventually, kill_remains, marked, remains, stopped
from tests.system.lone import Clients, LoneEdge, lone_edge

pytestmark = [pytest.mark.system, pytest.mark.drill]

FAILING = """
import asyncio, pathlib, sys
from gtm.cli.app import main
from gtm.runtime.edge.agent.agent import Agent
trigger = pathlib.Path(sys.argv.pop())
async def fail(self):
    while not trigger.exists():
        await asyncio.sleep(0.01)
    raise RuntimeError("a bug")
Agent._tick = fail
main()
"""


def kill(agent: Process) -> None:
    """What the kernel does when memory is short."""
    agent.signal(signal.SIGKILL)
    agent.end()


def get(edge: LoneEdge, path: str) -> str:
    """What an HTTP worker says."""
    with urllib.request.urlopen(f"http://127.0.0.1:{edge.http_port}{path}", timeout=20) as reply:
        text: str = reply.read().decode()
    return text


def ready(edge: LoneEdge) -> dict[str, object]:
    """What `/readyz` says."""
    document: dict[str, object] = json.loads(get(edge, "/readyz"))
    return document


def end(edge: LoneEdge) -> str:
    """`gtm edge --stop`."""
    command = [sys.executable, "-m", "gtm.cli", "edge", "--stop", "--data-dir", str(edge.data_dir)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.mark.endurance
def test_no_query_is_lost_when_agents_die(tmp_path: Path) -> None:
    """Kill -9 of agent after agent: everything is answered, alone and while the next takes over, whatever its workers."""
    with lone_edge(tmp_path) as edge:
        running = edge.start()
        edge.until_ready(running)
        with Clients(edge) as clients:
            for workers in (2, 1):
                clients.go_on()
                orphans = edge.workers(running)
                kill(running)
                clients.go_on()
                assert set(orphans) <= set(remains(edge.data_dir))
                eventually(lambda: "health" in ready(edge), "it says that it is alone")
                assert ready(edge)["health"] == "frozen"
                eventually(
                    lambda: re.search(r"^gtm_edge_alone_seconds [^0]", get(edge, "/metrics"), re.MULTILINE),
                    "so do its metrics",
                )
                running = edge.start("--workers", str(workers))
                edge.until_ready(running, workers)
                eventually(lambda gone=orphans: not any(map(alive, gone)), "the orphans have ended")
                assert "alone_seconds" not in ready(edge)
                assert len(edge.workers(running)) == 2 * workers
            clients.go_on()
            running.signal(signal.SIGSTOP)
            clients.go_on()  # an agent that hangs holds up nobody either
            running.signal(signal.SIGCONT)
        assert clients.failures == []
        workers_left = edge.workers(running)
        assert end(edge) == f"ended process {running.popen.pid}\n"
        assert running.end() == 0
        assert not any(map(alive, workers_left))


def test_orphans_are_ended_by_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What answers alone can be ended, and an orphan that hangs is killed: it would hold clients up."""
    monkeypatch.setattr(orphans_module, "_PATIENCE", 1.0)
    with lone_edge(tmp_path) as edge:
        running = edge.start()
        edge.until_ready(running)
        orphans = edge.workers(running)
        kill(running)
        os.kill(orphans[0], signal.SIGSTOP)
        try:
            # A signal takes its time: one that is told to end before it stopped is killed too, and named.
            eventually(lambda: stopped(orphans[0]), "it hangs")
            assert orphans_module.end(edge.data_dir) == [orphans[1]]
            eventually(lambda: not any(map(alive, orphans)), "they have ended")
        finally:
            for pid in filter(alive, orphans):
                os.kill(pid, signal.SIGKILL)
        assert end(edge) == f"no edge runs on `{edge.data_dir}`\n"
        assert list(edge.data_dir.glob("edge-worker.*")) == []


@pytest.mark.endurance
def test_workers_of_an_agent_that_fails_go_on(tmp_path: Path) -> None:
    """An error in the agent's own code ends it with a traceback, and its workers answer alone as after kill -9."""
    with lone_edge(tmp_path) as edge:
        (tmp_path / "failing.py").write_text(FAILING)
        trigger = tmp_path / "fail"
        log = tmp_path / "edge.log"
        command = ["edge", "--data-dir", str(edge.data_dir), "--control", "http://127.0.0.1:9"]
        ports = ["--edge-port", str(edge.http_port), "--dns-port", str(edge.dns_port), str(trigger)]
        with log.open("wb") as out:
            agent = subprocess.Popen(
                [sys.executable, str(tmp_path / "failing.py"), *command, *ports],
                stdout=out,
                stderr=out,
                env={
                    **os.environ,
                    **marked(edge.data_dir),
                    "GTM_TOKEN": "gtm_none",
                    "GTM_PROBE_ALLOW": "127.0.0.0/8",
                },
            )
        try:
            eventually(lambda: log.read_text().count("answers from revision 1") == 2, "it answers")
            with Clients(edge) as clients:
                clients.go_on()
                trigger.touch()
                assert agent.wait(20) == 1
                clients.go_on()
            assert clients.failures == []
            assert "RuntimeError: a bug" in log.read_text()
            assert len(remains(edge.data_dir)) == 2
        finally:
            agent.kill()
            agent.wait()
            kill_remains(edge.data_dir)
