"""A region of the demo that is short of slots, with real traffic: what spills, what is refused, and that it returns."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.patience import PATIENCE
from tests.system.harness import Process, System, command_line, eventually, system

pytestmark = [pytest.mark.system, pytest.mark.drill]
"""The README's examples of spillover are a smaller world of the same."""

RPS, FEW_RPS = "60", "6"
FEW = 0.25
"""Requests per second: fewer than go home of the few, and more than what is left of an average of before."""
HOME, ELSEWHERE = "eu-central", "eu-west"
BERLIN = "95.90.1.1"


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    """A demo system for this module."""
    with system(tmp_path_factory.mktemp("live") / "data", "--demo") as running:
        yield running


@pytest.fixture
def traffic(demo: System, tmp_path: Path) -> Iterator[Process]:
    """`gtm demo traffic`, until the test ends."""
    process = Process(_traffic(demo, RPS), tmp_path / "traffic.log")
    yield process
    process.stop()


class Top:
    """A running `gtm top --json`."""

    def __init__(self, demo: System, log: Path) -> None:
        environment = {"GTM_CONTROL_URL": demo.control, "GTM_TOKEN": demo.token}
        self.process = Process(["top", "--json"], log, environment)

    @property
    def documents(self) -> list[dict[str, Any]]:
        """All that it has printed so far."""
        lines = self.process.output.splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("\n")]

    @property
    def latest(self) -> dict[str, Any]:
        """The last."""
        return self.documents[-1] if self.documents else {"regions": [], "spill": [], "refusals": []}

    def region(self, name: str) -> dict[str, Any]:
        """A region in the last document."""
        return next((one for one in self.latest["regions"] if one["region"] == name), {})

    def spilled(self) -> float:
        """Requests per second that the edges send elsewhere than home."""
        return sum(one["requests_per_second"] for one in self.latest["spill"])

    def refused(self) -> float:
        """Requests per second refused for want of capacity."""
        found = (one for one in self.latest["refusals"] if one["outcome"] == "refused_overload")
        return sum(one["requests_per_second"] for one in found)


@pytest.fixture
def top(demo: System, tmp_path: Path) -> Iterator[Top]:
    """`gtm top --json`, until the test ends."""
    running = Top(demo, tmp_path / "top.log")
    yield running
    running.process.stop()


def test_shortage_spills_by_the_rules_is_refused_beyond_and_passes(
    demo: System, traffic: Process, top: Top, tmp_path: Path
) -> None:
    """A region that shrinks spills where its rule leads, refuses the rest, and has its clients back once it has room."""
    eventually(lambda: top.region(HOME).get("freshness") == "fresh", "the regions report")
    eventually(lambda: top.region(HOME).get("demand", 0) > 5, "clients have their home there")
    demo.demo("capacity/2", HOME)
    try:
        eventually(lambda: top.region(HOME).get("limit") == 2, "the plan knows the slots")
        eventually(lambda: top.spilled() > 1, "it spills")
        eventually(lambda: top.refused() > 0.5, "what does not fit is refused")
        eventually(
            lambda: (
                {one["to"] for one in top.latest["spill"] if one["from"] == HOME and one["planned"] > 0.5}
                == {ELSEWHERE}
            ),
            "it spills where its rule leads, and nowhere else",
        )
        eventually(
            lambda: any(
                one["name"] == "frankfurt-to-dublin" and one["planned"] > 0.5 for one in top.latest["quotas"]
            ),
            "and the rule's use is shown",
        )
        # A ledger that has just started leases no quotas yet: until it does, only DNS answers spill.
        eventually(lambda: _reason(demo) == "spillover", "edges have leases, and spill over HTTP")
        shown = len(top.documents)
        eventually(lambda: len(top.documents) > shown + 5, "the traffic meets that too")
    finally:
        demo.demo("capacity/40", HOME)
    traffic.signal(signal.SIGINT)
    assert traffic.end() == 0
    summary = json.loads(traffic.output)
    assert summary["reasons"]["spillover"] > 0
    assert summary["outcomes"]["served"] > 100
    assert summary["outcomes"]["refused_overload"] > 0
    assert set(summary["via"]) == {"dns", "redirect"}
    assert summary["regions"][ELSEWHERE]["network_rtt_ms"]["p50"] > 10
    # Fewer come then: where model servers of a busy machine take seconds for a request, as many as before have really no room at home.
    few = Process(_traffic(demo, FEW_RPS), tmp_path / "few.log")
    try:
        eventually(
            lambda: (
                _reason(demo) != "spillover"
                and top.region(HOME)["demand"] > FEW
                and max(top.spilled(), top.refused()) < FEW
            ),
            "clients are back home",
            3 * PATIENCE,
        )
    finally:
        few.stop()


def _traffic(demo: System, rps: str) -> list[str]:
    """`gtm demo traffic` at so many requests per second."""
    return ["demo", "traffic", "--rps", rps, "--json", "--data-dir", str(demo.data_dir)]


def _reason(demo: System) -> str:
    """Why a client in Berlin is sent where it is sent."""
    reply: dict[str, Any] = demo.route(service="chat", client_ip=BERLIN).json()
    return str(reply.get("reason"))


def test_top_outlives_control(demo: System, top: Top) -> None:
    """While control is away `gtm top` says so once, and goes on when it is back."""
    eventually(lambda: top.documents, "it shows something")
    (control,) = demo.processes("gtm.runtime.serve.control")
    os.kill(control, signal.SIGKILL)
    eventually(lambda: "the control API at" in top.process.output, "it says that control is away")
    shown = len(top.documents)
    eventually(lambda: len(top.documents) > shown, "it goes on")
    eventually(lambda: top.region(HOME).get("freshness") == "fresh", "and the regions report again")


def _age(top: Top) -> float:
    """Seconds since São Paulo's last report; long ago if there is none."""
    age = top.region("sa-east").get("report_age")
    return 1e9 if age is None else age


def test_a_failed_region_stops_reporting(demo: System, top: Top) -> None:
    """A region that fails refuses connections and tells nothing any more; `gtm demo list` says so."""
    eventually(lambda: _age(top) < 3, "it reports")
    demo.demo("fail", "sa-east")
    try:
        eventually(lambda: top.region("sa-east")["health"] == "down", "probes see it")
        eventually(lambda: _age(top) > 4, "it is silent")
        command = ["demo", "list", "--data-dir", str(demo.data_dir)]
        listed = subprocess.run(
            [sys.executable, "-m", "gtm.cli", *command], check=True, capture_output=True, text=True
        ).stdout
        assert re.search(r"^sa-east +failed +20 +0 +0 +0/10 +0/10$", listed, re.MULTILINE)
    finally:
        demo.demo("restore", "sa-east")
    eventually(lambda: top.region("sa-east")["health"] == "up", "it is back")
    eventually(lambda: _age(top) < 3, "and reports")


def test_simulated_clients_are_believed_and_tokens_hidden(demo: System) -> None:
    """On loopback the demo takes a client's address from X-Forwarded-For; no token is in an argument list."""
    for client, region in (("91.198.174.192", HOME), ("133.11.0.1", "ap-northeast")):
        answer = demo.redirect("web.demo.test", "/x", client)
        assert (answer.status_code, answer.headers["x-gtm-region"]) == (307, region)
    lines = [command_line(pid) for pid in demo.processes("gtm.")]
    assert any("gtm.runtime.serve.demo_world" in line for line in lines)
    assert not any("gtm_serve_" in line for line in lines)


def test_traffic_without_a_demo_says_so(tmp_path: Path) -> None:
    """No demo on the data directory is one line that says how to start one."""
    process = Process(["demo", "traffic", "--data-dir", str(tmp_path)], tmp_path / "log")
    assert process.end() == 3
    assert "gtm serve --demo" in process.output


def test_traffic_of_a_seed_is_the_same(demo: System, tmp_path: Path) -> None:
    """With a seed the same clients ask in the same ways, however often."""
    found = []
    for number in range(2):
        arguments = ["demo", "traffic", "--rps", "40", "--seconds", "2", "--seed", "7", "--json"]
        process = Process([*arguments, "--data-dir", str(demo.data_dir)], tmp_path / f"{number}.log")
        assert process.end() == 0
        found.append(json.loads(process.output)["via"])
    assert found[0] == found[1]
    assert found[0]["dns"] > 5
