"""Two balancers of one region under control, one of them of two workers: they share slots, without control too."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.ports import free_port
from tests.system.balancers import PATIENT, REGIONS, Backends, Streams, balancer_token, followed_balancer
from tests.system.harness import Process, System, eventually, system
from tests.system.test_balancer_fleet import policy

pytestmark = [pytest.mark.system, pytest.mark.drill]

SLOTS = 8


@dataclass
class Pair:
    """Both, their ports, and the model server that they share."""

    system: System
    folder: Path
    backends: Backends
    token: str
    ports: tuple[tuple[int, int], ...]
    processes: list[Process] = field(default_factory=list)

    def start(self, number: int, *more: str) -> Process:
        """Start one: the second has two workers."""
        several = ("--workers", "2") if number == 1 else ()
        servers = {"backends": [{"url": self.backends.urls[0], "slots": SLOTS}], "admission": PATIENT}
        return followed_balancer(
            self.system,
            self.folder,
            "fra",
            self.token,
            servers,
            *("--service", "chat", *several, *more),
            ports=self.ports[number],
            name=f"fra-{number + 1}",
        )

    def url(self, number: int) -> str:
        """Where one takes requests."""
        return f"http://127.0.0.1:{self.ports[number][0]}"

    def state(self, number: int) -> dict[str, Any]:
        """What one knows."""
        url = f"http://127.0.0.1:{self.ports[number][1]}/state"
        found: dict[str, Any] = httpx.get(url, trust_env=False, timeout=5).json()
        return found

    def hears(self, number: int) -> int:
        """How many others one hears now."""
        heard = self.state(number)["peers"]["heard"].values()
        return sum(one["age_s"] < 1 for one in heard)

    def running(self, number: int) -> int:
        """Requests at one's backend that are its own."""
        return int(self.state(number)["backends"][0]["in_flight"])


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Everything, up."""
    folder: Path = tmp_path_factory.mktemp("peers")
    with ExitStack() as stack:
        backends = Backends(folder / "backends.log", 1)
        stack.callback(backends.process.popen.kill)
        running = stack.enter_context(
            system(
                folder / "data",
                *("--control-port", str(free_port())),  # the same when it is started again
                *("--trusted-proxies", "127.0.0.0/8", "--probe-allow", "127.0.0.0/8"),
            )
        )
        ports = {name: free_port() for name in REGIONS}
        body = {"policy": policy(ports)}
        applied = running.api("POST", "/v1/policy:apply?force=true&force_reason=test", json=body)
        assert applied.status_code == 200, applied.text
        places = ((ports["fra"], free_port()), (free_port(), free_port()))
        found = Pair(running, folder, backends, balancer_token(running, "fra"), places)
        found.processes = [found.start(0), found.start(1)]
        stack.callback(lambda: [one.popen.kill() for one in found.processes])
        eventually(lambda: [found.hears(number) for number in (0, 1)] == [1, 1], "each hears the other")
        yield found


@pytest.fixture
def pair(started: Pair) -> Pair:
    """Everything runs."""
    started.system.revived()
    return started


def test_each_knows_what_the_other_has(pair: Pair) -> None:
    """What one has in flight counts at the other, where the backend's own figures would say it late."""
    streams = Streams(pair.url(0), 3, 150)
    eventually(lambda: pair.running(0) == 3, "it runs")
    eventually(lambda: pair.state(1)["backends"][0]["outstanding"] >= 3, "the other knows")
    assert pair.running(1) == 0
    eventually(lambda: streams.whole, "all are served")


def test_one_alone_may_fill_all_and_both_fill_them_once(pair: Pair) -> None:
    """First one has all slots; then the other asks too, and they are shared as they become free."""
    first = Streams(pair.url(0), 2 * SLOTS, 60)
    eventually(lambda: pair.running(0) >= SLOTS, "one alone fills all")
    second = Streams(pair.url(1), 2 * SLOTS, 60)
    most = 0

    def shared() -> bool:
        nonlocal most
        most = max(most, pair.backends.state()[0]["running"])
        return pair.running(1) >= SLOTS // 4

    eventually(shared, "the other gets a part")
    eventually(lambda: (shared() or True) and first.whole and second.whole, "all are served")
    assert most < 2 * SLOTS


def test_control_has_one_row_of_each_and_each_slot_once(pair: Pair) -> None:
    """The region's limit is that of its backends, whoever reports it."""

    def limits() -> tuple[float, float]:
        loads = pair.system.api("GET", "/v1/load").json()["regions"]
        rooms = pair.system.api("GET", "/v1/top").json()["regions"]
        (load,) = [one["load"] for one in loads if one["region"] == "fra"]
        (room,) = [one["free_slots"] for one in rooms if one["region"] == "fra"]
        return load["limit"], room["limit"]

    eventually(lambda: limits() == (SLOTS, SLOTS), "each slot is reported once, in loads and as free")


def test_they_go_on_without_control_and_over_a_successor(pair: Pair) -> None:
    """Nobody is forgotten when control is gone: not by one that begins anew, nor while one finishes what it has."""
    pair.system.process.stop()
    streams = Streams(pair.url(1), 4, 600)
    eventually(lambda: pair.running(1) == 4, "it runs")
    before = pair.processes[1]
    pair.processes[1] = pair.start(1, "--replace")

    def taken_over() -> bool:
        return len(pair.state(1)["workers"]) == 2 and "finishing what goes on" in before.output

    eventually(taken_over, "a successor serves")
    heard = pair.state(0)["peers"]["heard"]
    if all(got < 600 for got in streams.got):  # still, after that look
        assert sum(one["running"] for one in heard.values()) == 4
    assert before.end() == 0
    eventually(lambda: streams.whole, "no stream was cut")
    eventually(lambda: len(pair.state(0)["peers"]["heard"]) == 1, "who ended said goodbye")
    assert pair.processes[0].stop() == 0
    eventually(lambda: pair.hears(1) == 0, "who ended said goodbye")
    pair.processes[0] = pair.start(0)
    eventually(lambda: [pair.hears(number) for number in (0, 1)] == [1, 1], "each hears the other")
