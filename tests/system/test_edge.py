"""An edge on its own: started without control, restarted from its last-good file, with a damaged one."""

from __future__ import annotations

import json
import re
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.patience import PATIENCE
from tests.ports import free_port
from tests.system.harness import Process, System, eventually

pytestmark = pytest.mark.system

LONDON = "81.2.69.142"


def start_edge(data_dir: Path, control: str, token: str, *arguments: str) -> Process:
    """`gtm edge` on any free port for DNS and a known one for HTTP."""
    environment = {"GTM_TOKEN": token}
    command = ["edge", "--control", control, "--data-dir", str(data_dir), "--dns-port", "0", "--open-lookups"]
    return Process([*command, *arguments], data_dir.with_suffix(".log"), environment)


@contextmanager
def stopping(process: Process) -> Iterator[Process]:
    """Stop a process at the end."""
    try:
        yield process
    finally:
        if process.popen.poll() is None:
            process.stop()


def edge_token(running: System) -> str:
    """A new token for an edge."""
    made = running.api("POST", "/v1/tokens", json={"name": "second", "role": "edge"})
    made.raise_for_status()
    return str(made.json().get("token") or made.json()["text"])


def region(port: int) -> str | None:
    """What the edge answers for London."""
    answer = httpx.get(f"http://127.0.0.1:{port}/v1/route?service=chat&client_ip={LONDON}", timeout=5)
    found: str | None = answer.json().get("region")
    return found


def unsaved(running: System) -> list[str]:
    """The edges that cannot keep the revision in force."""
    found: list[str] = running.api("GET", "/v1/status").json()["sync"]["unsaved"]
    return found


@pytest.mark.drill
def test_edge_restarts_from_last_good_without_control(tmp_path: Path, shared_demo: System) -> None:
    """An edge that once followed control answers again after a restart with control gone, by its own probes.

    Its last-good file is written as soon as the disk lets it.
    """
    port = free_port()
    last_good = tmp_path / "edge" / "edge-last-good"
    (last_good / "in the way").mkdir(parents=True)
    running = shared_demo
    token = edge_token(running)
    edge = start_edge(tmp_path / "edge", running.control, token, "--edge-port", str(port), "--name", "second")
    with stopping(edge):
        eventually(lambda: region(port) in {"eu-west", "eu-central"}, "the second edge answers")
        eventually(
            lambda: "second" in json.dumps(running.api("GET", "/v1/edges").json()),
            "control knows the edge",
        )
        eventually(lambda: "cannot save the last-good file" in edge.output, "it says that it cannot save")

        def told() -> bool:
            ready = httpx.get(f"http://127.0.0.1:{port}/readyz", timeout=5)
            return ready.status_code == 200 and "would answer by an older one" in ready.json()["unsaved"]

        eventually(told, "it is ready, and says what a restart would do")
        eventually(lambda: unsaved(running) == ["second"], "control knows what it cannot keep")
        status = running.api("GET", "/v1/status").json()
        assert status["sync"]["state"] == "STALE"
        (warning,) = (text for text in status["warnings"] if "cannot keep it on its disk" in text)
        assert "edge `second` has revision" in warning
        assert "it would answer by no policy at all" in warning
        since = re.compile(r"^gtm_edge_policy_unsaved_seconds [1-9]", re.MULTILINE)
        eventually(
            lambda: since.search(httpx.get(f"http://127.0.0.1:{port}/metrics", timeout=5).text), "and metrics"
        )
        (last_good / "in the way").rmdir()
        last_good.rmdir()
        eventually(last_good.is_file, "it saves once it can")
        eventually(lambda: unsaved(running) == [], "and control knows")
        eventually(
            lambda: "unsaved" not in httpx.get(f"http://127.0.0.1:{port}/readyz", timeout=5).json(),
            "and workers know",
        )
    assert not last_good.stat().st_mode & 0o077
    # Control is out of reach from here on: nothing listens at that address.
    lonely = start_edge(tmp_path / "edge", "http://127.0.0.1:9", token, "--edge-port", str(port))
    with stopping(lonely):
        eventually(lambda: region(port) in {"eu-west", "eu-central"}, "it answers from last-good")
        running.demo("fail", "eu-west")
        eventually(lambda: region(port) == "eu-central", "and goes by its own probes")
    running.demo("restore", "eu-west")
    eventually(lambda: running.region(service="chat", client_ip=LONDON) == "eu-west", "Dublin is back")
    eventually(lambda: running.api("DELETE", "/v1/edges/second").is_success, "the second edge is forgotten")


def test_edge_without_control_or_last_good_does_not_listen(tmp_path: Path) -> None:
    """Nothing listens until a View is loaded; a damaged last-good file counts as none, and is named."""
    port = free_port()
    (tmp_path / "edge").mkdir()
    (tmp_path / "edge" / "edge-last-good").write_bytes(b"gtm-last-good 1 0000\n{}\n")
    edge = start_edge(tmp_path / "edge", "http://127.0.0.1:9", "gtm_none", "--edge-port", str(port))
    with stopping(edge):
        eventually(lambda: "last-good" in edge.output and "damaged" in edge.output, "it says what is wrong")
        with pytest.raises(httpx.ConnectError):
            region(port)
        edge.signal(signal.SIGTERM)
        assert edge.end() == 0


def test_second_edge_on_the_same_data_directory_ends(tmp_path: Path) -> None:
    """Edges do not share a last-good file: the second ends with the first's process id, and the first goes on."""
    first = start_edge(tmp_path / "edge", "http://127.0.0.1:9", "gtm_none", "--edge-port", "0")
    with stopping(first):
        eventually(lambda: "no last-good file yet" in first.output, "the first edge runs")
        command = ["edge", "--data-dir", str(tmp_path / "edge"), "--edge-port", "0", "--dns-port", "0"]
        second = Process(command, tmp_path / "second.log", {"GTM_TOKEN": "gtm_none"})
        assert second.end() == 5
        said = " ".join(second.output.split())
        assert "an edge is already running on the data directory" in said
        assert f"(process {first.popen.pid}); give another with --data-dir" in said
        assert first.popen.poll() is None
        first.signal(signal.SIGKILL)
        first.end()
    third = start_edge(tmp_path / "edge", "http://127.0.0.1:9", "gtm_none", "--edge-port", "0")
    with stopping(third):
        eventually(lambda: third.output.count("no last-good file yet") == 2, "a killed edge's lock is free")


def test_disk_that_refuses_a_lock_keeps_no_edge_from_running(tmp_path: Path) -> None:
    """An edge whose data directory cannot be locked says so and goes on."""
    (tmp_path / "edge" / "edge.lock").mkdir(parents=True)
    edge = start_edge(tmp_path / "edge", "http://127.0.0.1:9", "gtm_none", "--edge-port", "0")
    with stopping(edge):
        eventually(lambda: "no last-good file yet" in edge.output, "it waits for control")
        assert "cannot lock the data directory, going on without a lock" in edge.output


def test_refused_token_is_told_at_once(tmp_path: Path) -> None:
    """An edge that control turns away says so at the first try."""
    refusal = b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    with socket.create_server(("127.0.0.1", 0)) as control:
        control.settimeout(PATIENCE)
        url = f"http://127.0.0.1:{control.getsockname()[1]}"
        edge = start_edge(tmp_path / "edge", url, "gtm_none", "--edge-port", "0")
        with stopping(edge):
            connection, _ = control.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(refusal)
            # No second try is answered, so that what is said can only be of the first.
            eventually(lambda: "does not accept this edge's token" in edge.output, "it says so")


@pytest.mark.parametrize("command", ["edge", "balancer"])
def test_a_refused_token_ends_who_is_to_exit(tmp_path: Path, command: str) -> None:
    """With status 4 and the hint, at the first try; without the option it would wait for ever."""
    refusal = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    more = {
        "edge": ["--edge-port", "0", "--dns-port", "0"],
        "balancer": [
            "--region",
            "x",
            "--backend",
            "http://127.0.0.1:9",
            "--balancer-port",
            "0",
            "--admin-port",
            "0",
        ],
    }
    with socket.create_server(("127.0.0.1", 0)) as control:
        control.settimeout(PATIENCE)
        url = f"http://127.0.0.1:{control.getsockname()[1]}"
        told = ["--data-dir", str(tmp_path / "data"), "--control", url, "--token", "gtm_none"]
        process = Process([command, *told, *more[command], "--exit-when-refused"], tmp_path / "log")
        connection, _ = control.accept()
        with connection:
            connection.recv(65536)
            connection.sendall(refusal)
        assert process.end() == 4
    assert (
        f"does not accept this {command}'s token (HTTP 403); set GTM_TOKEN to one made by `gtm token create"
        in process.output
    )


def test_edge_without_a_token_ends_with_a_hint(tmp_path: Path) -> None:
    """An edge needs a token, and says where to get one."""
    process = Process(["edge", "--data-dir", str(tmp_path / "edge")], tmp_path / "log")
    assert process.end() == 4
    assert "gtm token create" in process.output


@pytest.mark.parametrize("option", ["--geoip-db", "--geoip-anonymous-db"])
def test_corrupt_geoip_database_ends_the_start_with_its_name(tmp_path: Path, option: str) -> None:
    """A GeoIP file that is none is named before anything listens."""
    (tmp_path / "geo.mmdb").write_bytes(b"not a database")
    edge = start_edge(tmp_path / "edge", "http://127.0.0.1:9", "t", option, str(tmp_path / "geo.mmdb"))
    assert edge.end() == 5
    assert "geo.mmdb" in edge.output


def test_database_out_of_reach_ends_control_clearly(tmp_path: Path) -> None:
    """A database URL that is none, or names no database server, is one line and no traceback."""
    environment = {"GTM_DATABASE_URL": "mysql://nobody@127.0.0.1/x"}
    wrong = Process(["control", "--control-port", "0"], tmp_path / "log", environment)
    assert wrong.end() == 2
    assert "Traceback" not in wrong.output
    assert "postgresql://" in wrong.output
