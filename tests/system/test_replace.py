"""Nobody's query is lost when an edge is replaced, or one of its workers dies."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.system.harness import alive, eventually
from tests.system.lone import Clients, lone_edge

pytestmark = [pytest.mark.system, pytest.mark.xdist_group("system")]


@pytest.mark.parametrize(("before", "after"), [(1, 1), (1, 3), (3, 1)])
def test_no_query_is_lost_when_an_edge_is_replaced(tmp_path: Path, before: int, after: int) -> None:
    """Every query gets exactly one right answer, whatever the numbers of workers, and the predecessor ends."""
    with lone_edge(tmp_path) as edge:
        first = edge.start("--workers", str(before))
        edge.until_ready(first, before)
        with Clients(edge) as clients:
            clients.go_on()
            old = edge.workers(first)
            second = edge.start("--replace", "--workers", str(after))
            assert first.end() == 0, first.output
            clients.go_on()
        assert clients.failures == []
        assert second.popen.poll() is None
        assert not any(map(alive, old))
        eventually(lambda: f"process {first.popen.pid} has ended" in second.output, "the successor knows")


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
        with Clients(edge) as clients:
            eventually(lambda: clients.asked, "queries wait")
            for worker in victims:
                os.kill(worker, signal.SIGKILL)
            clients.go_on()
        assert clients.failures == []
        assert not set(edge.workers(only)) & set(victims)
