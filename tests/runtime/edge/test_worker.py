"""What one answering process does beside answering."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path

import dns.edns
import dns.message
import pytest

from gtm.core.model.policy import Policy
from gtm.core.model.state import NO_PLAN, EndpointHealth, HealthStatus, Plan, State
from gtm.dns.protocol.cookies import ServerCookies
from gtm.dns.zone.dnssec import PERIOD
from gtm.feed.wire import KeysMessage, SnapshotMessage, StateMessage
from gtm.runtime.edge.line import (
    TO_AGENT,
    TO_WORKER,
    CountsMessage,
    EdgeReadyMessage,
    EdgeWorkerSettings,
    PulseMessage,
    WorkerId,
    WorkerKind,
)
from gtm.runtime.edge.orphans import find, make_door
from gtm.runtime.edge.worker.worker import EdgeWorker
from gtm.settings import DnsSettings, EdgeSettings
from tests.core.strategies import SHIPPED
from tests.dns.world import POLICY, locate, query
from tests.dns.zone.signing import NOW, keys
from tests.system.harness import eventually
from tests.system.lone import policy as lone_policy

EDGE = EdgeSettings(Path("/nonexistent"), control_url="", token="", name="edge")
SETTINGS = EdgeWorkerSettings(WorkerId(WorkerKind.DNS, 1), EDGE, -1)


class _Located:
    """A locator of which the data changes never."""

    loads = 1

    def __init__(self, *_: object, **__: object) -> None:
        self.locate = None


@pytest.fixture
def located(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers need no GeoIP database."""
    monkeypatch.setattr("gtm.runtime.edge.worker.worker.Locator", _Located)


@pytest.fixture
def ends(located: None) -> Iterator[tuple[EdgeWorker, socket.socket]]:
    """A worker, and the agent's end of its link."""
    ours, theirs = socket.socketpair()
    with ours:
        yield EdgeWorker(replace(SETTINGS, descriptor=theirs.detach())), ours


def test_a_worker_ends_with_its_agent(ends: tuple[EdgeWorker, socket.socket]) -> None:
    """When the link closes, answering stops: for a worker that was never told to go on, or that no agent could find."""
    worker, agent = ends
    stopped = threading.Event()
    worker.start(stopped.set)
    agent.sendall(TO_WORKER.encode(PulseMessage(alone=True)))
    agent.close()
    assert stopped.wait(20)


@pytest.fixture
def housed(located: None, tmp_path: Path) -> Iterator[tuple[EdgeWorker, socket.socket, Path]]:
    """A worker that has a View and a door in a data directory."""
    _, door = make_door(tmp_path)
    agent, theirs = socket.socketpair()
    worker = EdgeWorker(replace(SETTINGS, descriptor=theirs.detach(), door=door.detach()))
    health = {"eu": {"http://127.0.0.1:1": EndpointHealth(HealthStatus.UP)}}
    policy = lone_policy(1)
    for message in (
        SnapshotMessage.of(1, 1.0, policy, SHIPPED),
        StateMessage(State(5, "", health, Plan(1.0))),
    ):
        agent.sendall(TO_WORKER.encode(message))
    assert worker.wait_for_view() is not None
    with agent:
        yield worker, agent, tmp_path


def test_a_worker_outlives_an_agent_that_dies_until_the_next(
    housed: tuple[EdgeWorker, socket.socket, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It answers on, sees for itself what died, says so, opens its door, and finishes when a next agent says so."""
    monkeypatch.setattr("gtm.runtime.edge.worker.worker.FROZEN", 1.5)
    monkeypatch.setattr("gtm.runtime.edge.worker.worker.FROZEN", 1.5)
    worker, agent, data_dir = housed
    stopped, finished = threading.Event(), threading.Event()
    worker.start(stopped.set, finished.set)
    agent.sendall(TO_WORKER.encode(PulseMessage(alone=True, plan_left=1.0, edge="fra-1")))
    agent.close()
    eventually(lambda: worker.alone.get("health") == "frozen", "it is alone")
    assert worker.current.state.health["eu"]["http://127.0.0.1:1"].status is HealthStatus.UP
    worker.counts.add("gtm_dns_dropped_total\tshort")
    eventually(
        lambda: worker.current.state.health["eu"]["http://127.0.0.1:1"].status is HealthStatus.DOWN,
        "it probes",
    )
    assert worker.alone["health"] == "own"
    assert (worker.current.state.vantage, worker.current.state.plan) == ("fra-1", NO_PLAN)
    assert 'gtm_dns_dropped_total{reason="short"} 1.0' in worker.metrics_text()
    assert "gtm_edge_alone_seconds 0.0" not in worker.metrics_text()
    assert not stopped.is_set()
    (orphan,) = find(data_dir)
    orphan.close()  # an agent that dies while it takes over changes nothing
    (orphan,) = find(data_dir)
    assert orphan.process == os.getpid()
    assert not finished.is_set()
    orphan.stop()
    assert finished.wait(20)
    orphan.close()
    worker.ending.set()
    assert stopped.wait(20)


@pytest.mark.parametrize("last", [PulseMessage(alone=False), None])
def test_a_worker_ends_with_an_agent_that_means_it(
    last: PulseMessage | None, housed: tuple[EdgeWorker, socket.socket, Path]
) -> None:
    """An agent that is told to stop tells its workers before it hangs up; one that dies before all answer told nothing."""
    worker, agent, _ = housed
    stopped = threading.Event()
    worker.start(stopped.set)
    if last is not None:
        agent.sendall(TO_WORKER.encode(PulseMessage(alone=True)) + TO_WORKER.encode(last))
    agent.close()
    assert stopped.wait(20)


def test_a_door_opens_to_nobody_while_the_agent_lives(
    housed: tuple[EdgeWorker, socket.socket, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the data directory's lock failed, a second edge takes no worker away from the first."""
    monkeypatch.setattr("gtm.runtime.edge.orphans._PATIENCE", 0.2)
    worker, agent, data_dir = housed
    stopped = threading.Event()
    worker.start(stopped.set)
    agent.sendall(TO_WORKER.encode(PulseMessage(alone=True)))
    assert find(data_dir) == []
    assert not stopped.is_set()
    agent.sendall(TO_WORKER.encode(PulseMessage(alone=False)))
    agent.close()
    assert stopped.wait(20)


def test_an_agent_that_hangs_holds_up_nothing(
    housed: tuple[EdgeWorker, socket.socket, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Telling it anything never waits, what waits for it is bounded, and a worker goes by its word when it is back."""
    monkeypatch.setattr("gtm.runtime.edge.worker.worker.SILENCE", 0.5)
    worker, agent, _ = housed
    stopped = threading.Event()
    worker.start(stopped.set)
    agent.sendall(TO_WORKER.encode(PulseMessage(alone=True, plan_left=0.0)))
    router = worker.current.router
    assert router is not None
    for _ in range(2000):  # more than the line holds
        worker.ready(router)
    eventually(lambda: worker.alone, "it goes on alone")
    eventually(lambda: worker.current.state.plan is NO_PLAN, "without a plan that nobody keeps up to date")
    told = State(6, "", {}, Plan(2.0))
    agent.settimeout(20)
    reader = agent.makefile("rb")
    agent.sendall(TO_WORKER.encode(PulseMessage(alone=True)) + TO_WORKER.encode(StateMessage(told)))
    for _ in range(2000):
        assert TO_AGENT.decode(reader.readline()) == EdgeReadyMessage(1)
        agent.sendall(TO_WORKER.encode(PulseMessage(alone=True)))
    eventually(lambda: worker.current.state == told, "it goes by its agent")
    agent.close()
    worker.ending.set()
    assert stopped.wait(20)


@pytest.mark.parametrize("broken", ["apply", "tick"])
def test_a_worker_that_cannot_be_kept_up_to_date_ends(
    broken: str, ends: tuple[EdgeWorker, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fault beside the answer path must not leave an old View in force for ever: the agent starts another worker."""
    worker, agent = ends

    def fails(*_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(worker.current, broken, fails)
    stopped = threading.Event()
    worker.start(stopped.set)
    agent.sendall(TO_WORKER.encode(StateMessage(State(1))))
    assert stopped.wait(20)


def test_clients_that_moved_while_a_view_was_swapped_are_located_anew(
    ends: tuple[EdgeWorker, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    """New GeoIP data in the middle of another swap is not taken for done with that swap."""
    worker, _ = ends
    predecessors: list[object] = []

    class Answers:
        def __init__(self, *given: object, **_: object) -> None:
            predecessors.append(given[3])
            if len(predecessors) == 2:
                worker.locator.loads += 1  # another thread has loaded new data, and is about to rebuild

    monkeypatch.setattr("gtm.runtime.edge.worker.worker.Answerer", Answers)
    worker.current.apply(SnapshotMessage.of(1, 1.0, Policy(), SHIPPED))
    worker.current.apply(StateMessage(State(1)))
    worker.current.rebuild()
    worker.current.rebuild()
    assert [one is None for one in predecessors] == [True, False, True, False]


def test_a_worker_says_what_it_is_told_to(
    ends: tuple[EdgeWorker, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A DNS worker answers with the name, the version and the cookies of its settings."""
    _, theirs = socket.socketpair()
    settings = replace(
        SETTINGS,
        edge=replace(EDGE, dns=DnsSettings(nsid="fra-1", rate_limit=0)),
        descriptor=theirs.detach(),
        cookie_secrets=(bytes(16), bytes(range(16))),
    )
    worker = EdgeWorker(settings)
    worker.current.apply(SnapshotMessage.of(1, 1.0, Policy(), SHIPPED))
    worker.current.apply(StateMessage(State(1)))
    asked = dns.message.make_query(
        "id.server", "TXT", "CH", use_edns=0, options=[dns.edns.CookieOption(bytes(8), b"")]
    )
    assert worker.answerer is not None
    assert worker.limiter is None
    reply = worker.answerer.answer(asked.to_wire(), "192.0.2.1", tcp=False, draw=0.0)
    assert reply is not None
    message = dns.message.from_wire(reply)
    assert message.answer[0].to_text() == 'id.server. 0 CH TXT "fra-1"'
    cookie = message.options[0]
    assert isinstance(cookie, dns.edns.CookieOption)
    packed = ip_address("192.0.2.1").packed
    assert ServerCookies(bytes(16)).check(bytes(8), cookie.server, packed, int(time.time())).proven


@pytest.mark.rfc("4034", "3.1.5", "signatures are renewed while they are valid, whatever else changes")
def test_signatures_are_renewed_while_nothing_else_changes(located: None) -> None:
    """An edge that hears nothing new makes its answers anew when the period of their signatures ends."""
    now = [NOW]
    _agent, theirs = socket.socketpair()
    worker = EdgeWorker(replace(SETTINGS, descriptor=theirs.detach()), lambda: now[0])
    worker.locator.locate = locate  # type: ignore[method-assign]
    worker.current.apply(KeysMessage(keys(["demo.test"])))
    worker.current.apply(SnapshotMessage.of(1, 1.0, POLICY, ()))
    worker.current.apply(StateMessage(State(1)))
    asked = query("chat.demo.test", "A", edns=True, want_dnssec=True, id=1)

    def answer() -> bytes | None:
        worker.beat(1)
        assert worker.answerer is not None
        return worker.answerer.answer(asked, "192.0.2.1", tcp=False, draw=0.5)

    first = answer()
    current = worker.answerer
    assert answer() == first
    assert worker.answerer is current
    now[0] += PERIOD
    second = answer()
    assert second is not None
    assert first is not None
    assert second != first
    assert len(second) == len(first)


def test_each_beat_is_a_window_of_the_limiter(ends: tuple[EdgeWorker, socket.socket]) -> None:
    """Each beat gives clients their budgets anew, and counts the replies to those that got the most."""
    worker, agent = ends
    reader = agent.makefile("rb")
    assert worker.limiter is not None
    for second in range(1, 3):
        worker.limiter.passes("203.0.113.9", bytes(12), bytes(12))
        worker.beat(second)
        told = TO_AGENT.decode(reader.readline())
        assert isinstance(told, CountsMessage)
        assert told.counts == {"gtm_dns_top_clients\t203.0.113.0/24": 1}
