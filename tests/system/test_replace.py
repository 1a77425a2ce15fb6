"""Nobody's query is lost when an edge is replaced, or one of its workers dies."""

from __future__ import annotations

import os
import signal
import socket
from functools import partial
from pathlib import Path

import dns.message
import dns.query
import pytest

from gtm.runtime.following.handover import Predecessor
from tests.patience import PATIENCE
from tests.ports import free_port
from tests.system.harness import alive, eventually, stopped
from tests.system.lone import ADDRESS, NAME, Clients, lone_edge

pytestmark = [pytest.mark.system, pytest.mark.drill]


@pytest.mark.endurance
def test_no_query_is_lost_when_an_edge_is_replaced(tmp_path: Path) -> None:
    """Every query gets exactly one right answer, whatever the numbers of workers, and each predecessor ends."""
    with lone_edge(tmp_path) as edge:
        running = edge.start()
        edge.until_ready(running)
        with Clients(edge) as clients:
            for workers in (3, 1, 1):
                clients.go_on()
                old = edge.workers(running)
                successor = edge.start("--replace", "--workers", str(workers))
                assert running.end() == 0, running.output
                assert not any(map(alive, old))
                ended = f"process {running.popen.pid} has ended"
                eventually(
                    partial(lambda said, by: said in by.output, ended, successor), "its successor knows"
                )
                running = successor
            clients.go_on()
        assert clients.failures == []
        assert len(edge.workers(running)) == 2


@pytest.mark.endurance
def test_a_successor_that_fails_leaves_all_as_it_was(tmp_path: Path) -> None:
    """After a bad option, or a crash with the sockets in its hands, the edge that runs goes on, until a better one comes."""
    with lone_edge(tmp_path) as edge:
        first = edge.start()
        edge.until_ready(first)
        with Clients(edge) as clients:
            clients.go_on()
            (tmp_path / "geo.mmdb").write_bytes(b"not a database")
            wrong = edge.start("--replace", "--geoip-db", str(tmp_path / "geo.mmdb"))
            assert wrong.end() == 5
            assert "Traceback" not in wrong.output
            crashing = Predecessor.find(edge.data_dir)
            assert crashing is not None
            for one in crashing.listeners:
                one.socket.close()
            crashing.close()  # as the kernel does for a process that dies
            clients.go_on()
            third = edge.start("--replace")
            assert first.end() == 0
            clients.go_on()
        assert clients.failures == []
        assert third.popen.poll() is None


@pytest.mark.endurance
def test_addresses_may_change(tmp_path: Path) -> None:
    """A successor adds an address and gives another up; nobody who asks where both answer loses a query."""
    with lone_edge(tmp_path) as edge:
        kept, added = f"127.0.0.1:{edge.dns_port}", ("::1", free_port())
        dropped = ("127.0.0.2", edge.dns_port)
        first = edge.start("--dns-bind", kept, "--dns-bind", dropped[0])
        edge.until_ready(first)
        assert_answers(*dropped)
        with Clients(edge) as clients:
            clients.go_on()
            second = edge.start("--replace", "--dns-bind", f"{kept},[{added[0]}]:{added[1]}")
            assert first.end() == 0, first.output
            clients.go_on()
        assert clients.failures == []
        assert_answers(*added)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(dropped)
        assert second.popen.poll() is None


def assert_answers(host: str, port: int) -> None:
    """Over UDP and TCP."""
    query = dns.message.make_query(NAME, "A")
    for ask in (dns.query.udp, dns.query.tcp):
        assert ask(query, host, PATIENCE, port).answer[0][0].to_text() == ADDRESS


def test_nobody_to_replace_is_no_error(tmp_path: Path) -> None:
    """With --replace an edge may always be started; the service manager hears when its workers answer, and who serves."""
    with lone_edge(tmp_path) as edge, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(PATIENCE)
        told = {"NOTIFY_SOCKET": str(tmp_path / "notify")}
        for _ in range(2):
            process = edge.start("--replace", environment=told)
            said = manager.recv(4096).decode().splitlines()
            assert sorted(said) == [f"MAINPID={process.popen.pid}", "READY=1"]
            assert_answers("127.0.0.1", edge.dns_port)
        assert "no edge to replace" in edge.processes[0].output


@pytest.mark.endurance
def test_what_arrives_while_workers_are_dead_is_answered(tmp_path: Path) -> None:
    """Queries, connections and requests wait in the agent's sockets for the next workers."""
    with lone_edge(tmp_path) as edge:
        only = edge.start()
        edge.until_ready(only)
        with Clients(edge) as clients:
            clients.go_on()
        assert clients.failures == []
        victims = edge.workers(only)
        for worker in victims:
            os.kill(worker, signal.SIGSTOP)  # now, when it has read nothing that it has not answered
        eventually(lambda: all(map(stopped, victims)), "they have stopped")
        with Clients(edge, always_ready=False) as clients:
            eventually(lambda: clients.asked, "queries wait")
            for worker in victims:
                os.kill(worker, signal.SIGKILL)
            clients.go_on()
        assert clients.failures == []
        assert not set(edge.workers(only)) & set(victims)
