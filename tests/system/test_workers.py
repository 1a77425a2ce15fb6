"""A balancer of several processes: they share ports and slots, go on when one dies, and end or give way as one would."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.ports import free_port
from tests.system.balancers import BERLIN, HOST, PATIENT, Backends, LoneBalancer, Streams, lone_balancer
from tests.system.harness import alive, eventually

pytestmark = [pytest.mark.system, pytest.mark.drill]

SLOTS = 4
"""Of each of two model servers."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where all of it is kept."""
    return tmp_path_factory.mktemp("workers")


@pytest.fixture(scope="module")
def backends(folder: Path) -> Iterator[Backends]:
    """Two model servers."""
    found = Backends(folder / "backends.log", 2)
    yield found
    found.process.popen.kill()
    found.process.popen.wait()


@pytest.fixture(scope="module")
def started(folder: Path, backends: Backends) -> Iterator[LoneBalancer]:
    """A balancer of two workers."""
    rows = [{"url": url, "slots": SLOTS} for url in backends.urls]
    file = folder / "balancer.yaml"
    content = {"service": "chat", "backends": rows, "admission": PATIENT, "access_log": "access.log"}
    file.write_text(json.dumps(content))
    ports = {"fra": free_port(), "iad": free_port()}
    with lone_balancer(folder, "fra", ports, "--file", str(file), "--workers", "2") as running:
        yield running


@pytest.fixture
def two(started: LoneBalancer) -> LoneBalancer:
    """It runs, and both of its workers are ready."""
    eventually(lambda: len(_workers(started.revived())) == 2, "two workers are ready")
    return started


def _workers(of: LoneBalancer) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = of.state()["workers"]
    return [one for one in found if one["ready"]]


def _ask(of: LoneBalancer, agent: str = "tests") -> int:
    """The status of a request over a connection of its own."""
    content = {"model": "demo", "messages": [{"role": "user", "content": "Say."}], "max_tokens": 2}
    headers = {"Host": HOST, "X-Forwarded-For": BERLIN, "User-Agent": agent}
    url = f"{of.url}/v1/chat/completions"
    return httpx.post(url, json=content, headers=headers, timeout=60, trust_env=False).status_code


def _logged(folder: Path, agent: str = "") -> list[dict[str, Any]]:
    """What the access log has of what `_ask` and streams asked; of this agent alone, if one is named."""
    text = (folder / "access.log").read_text() if (folder / "access.log").exists() else ""
    lines = [line for line in map(json.loads, text.splitlines()) if line["method"] == "POST"]
    return [line for line in lines if line["user_agent"] == (agent or line["user_agent"])]


def _answered(of: LoneBalancer) -> float:
    """The counter of all requests that were answered."""
    text = httpx.get(f"http://127.0.0.1:{of.admin_port}/metrics", timeout=10, trust_env=False).text
    lines = [line for line in text.splitlines() if line.startswith("gtm_balancer_requests_total{")]
    return sum(float(line.rpartition(" ")[2]) for line in lines if 'how="answered"' in line)


def test_one_page_shows_both(two: LoneBalancer) -> None:
    """Counters and gauges add up; each backend stands there once."""
    before = _answered(two)
    assert [_ask(two) for _ in range(10)] == [200] * 10
    eventually(lambda: _answered(two) == before + 10, "ten more were answered")
    state = two.state()
    assert [one["worker"] for one in state["workers"]] == [1, 2]
    assert len({two.process.popen.pid, *(one["process"] for one in state["workers"])}) == 3
    assert [one["slots"] for one in state["backends"]] == [SLOTS] * 2
    assert state["limit"] == 2 * SLOTS
    eventually(lambda: two.state()["share"] >= 2 * SLOTS, "their parts come to all slots")


def test_both_append_to_one_access_log(two: LoneBalancer, folder: Path) -> None:
    """A line of each request; of those after it was moved, in another file, for which nobody was signalled. Off and on as its file says."""
    assert [_ask(two, "first") for _ in range(20)] == [200] * 20
    eventually(lambda: len(_logged(folder, "first")) == 20, "twenty lines")
    line = _logged(folder, "first")[-1]
    assert line.items() >= {"how": "answered", "status": 200, "service": "chat", "model": "demo"}.items()
    assert line["client"] == "95.90.1.0/24"
    assert (folder / "access.log").stat().st_mode & 0o777 == 0o640
    (folder / "access.log").rename(folder / "moved.log")
    assert [_ask(two, "second") for _ in range(5)] == [200] * 5
    eventually(lambda: len(_logged(folder, "second")) == 5, "the others are in a new one")
    counted = 'gtm_balancer_access_log_lines_total{how="written"} '
    page = f"http://127.0.0.1:{two.admin_port}/metrics"
    eventually(
        lambda: float(httpx.get(page, trust_env=False).text.partition(counted)[2].partition("\n")[0]) >= 25,
        "they are counted",
    )
    file = folder / "balancer.yaml"
    content = json.loads(file.read_text())
    file.write_text(json.dumps({**content, "access_log": {"path": "other.log", "clients": "none"}}))
    eventually(
        lambda: _ask(two) == 200 and len((folder / "other.log").read_text().splitlines()) >= 5,
        "it is another",
    )
    assert "client" not in json.loads((folder / "other.log").read_text().splitlines()[0])
    file.write_text(json.dumps(content))
    eventually(lambda: _ask(two, "third") == 200 and _logged(folder, "third"), "it is as it was")


def test_together_they_fill_the_slots_and_not_each_for_itself(two: LoneBalancer, backends: Backends) -> None:
    """Five times what there is room for: all slots are used, those of two are never, and all are served in the end."""
    streams = Streams(two.url, 10 * SLOTS, 60)
    most = 0

    def filled() -> bool:
        nonlocal most
        most = max(most, sum(one["running"] for one in backends.state()))
        return most >= 2 * SLOTS

    eventually(filled, "all slots are used")
    eventually(lambda: filled() and streams.whole, "all are served")
    assert most < 4 * SLOTS
    eventually(lambda: two.in_flight() == 0, "nothing is left")


def test_one_that_hangs_leaves_its_slots_to_the_other(two: LoneBalancer, backends: Backends) -> None:
    """It asks for nothing: the other fills all."""
    first = _workers(two)[0]
    os.kill(first["process"], signal.SIGSTOP)
    try:
        streams = Streams(two.url, 2 * SLOTS, 200)

        def filled() -> bool:
            return sum(one["running"] for one in backends.state()) >= 2 * SLOTS

        eventually(filled, "one worker runs as many as there are slots")
    finally:
        os.kill(first["process"], signal.SIGCONT)
    eventually(lambda: streams.whole, "all are served")


def test_one_that_dies_is_begun_anew_while_the_other_goes_on(two: LoneBalancer) -> None:
    """No request is refused for it, and no counter falls."""
    before = _answered(two)
    dead = _workers(two)[0]["process"]
    os.kill(dead, signal.SIGKILL)
    eventually(lambda: not alive(dead), "it is dead")
    assert [_ask(two) for _ in range(5)] == [200] * 5
    eventually(lambda: _answered(two) >= before + 5, "what it had counted stays counted")
    eventually(lambda: len(_workers(two)) == 2, "there are two again")
    assert dead not in {one["process"] for one in _workers(two)}


def test_a_successor_takes_over_without_a_lost_stream(two: LoneBalancer) -> None:
    """Workers of both serve at the same addresses; those of the first finish what they have."""
    streams = Streams(two.url, 2 * SLOTS, 300)
    eventually(lambda: all(streams.begun), "all have begun")
    before, old = two.process, [one["process"] for one in _workers(two)]
    two.process = two.start("--replace")
    while before.popen.poll() is None:
        assert httpx.get(f"{two.url}/healthz", timeout=20, trust_env=False).status_code in (200, 503)
    assert before.popen.returncode == 0
    eventually(lambda: streams.whole, "no stream was cut")
    assert not any(alive(one) for one in old)
    eventually(lambda: len(_workers(two)) == 2, "two others serve")
    assert _ask(two) == 200


def test_an_end_finishes_streams_and_a_death_leaves_nobody_behind(two: LoneBalancer, folder: Path) -> None:
    """SIGTERM to the first process ends its workers once their streams have ended; after kill -9 they end by themselves.

    All is in the access log then.
    """
    logged = len(_logged(folder))
    streams = Streams(two.url, 2 * SLOTS, 200)
    eventually(lambda: all(streams.begun), "all have begun")
    two.process.signal(signal.SIGTERM)
    assert two.process.end() == 0
    assert len(_logged(folder)) >= logged + 2 * SLOTS
    eventually(lambda: streams.whole, "no stream was cut")
    two.process = two.start()
    two.wait()
    streams = Streams(two.url, 2, 100)
    eventually(lambda: all(streams.begun), "all have begun")
    left = [one["process"] for one in _workers(two)]
    two.process.popen.kill()
    two.process.end()
    eventually(lambda: streams.whole, "no stream was cut")
    eventually(lambda: not any(alive(one) for one in left), "no worker is left")
