"""An edge that root starts answers as an ordinary user, on ports that only root may bind."""

from __future__ import annotations

import os
import pwd
import socket
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.lone import Clients, LoneEdge, lone_edge

pytestmark = [
    pytest.mark.system,
    pytest.mark.drill,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user"),
]

USER = "nobody"
PATHS = os.pathsep.join((str(Path(__file__).parent.parent.parent), sysconfig.get_path("purelib")))


@pytest.fixture
def edge(monkeypatch: pytest.MonkeyPatch) -> Iterator[LoneEdge]:
    """An edge below a directory that others can enter, run by a Python that they can run."""
    monkeypatch.setenv("PYTHONPATH", PATHS)
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        with lone_edge(Path(name)) as made:
            made.python = python()
            yield made


def python() -> str:
    """A Python of this version that the user can run."""
    for candidate in (sys.executable, f"/usr/bin/python3.{sys.version_info.minor}"):
        command = [candidate, "-c", "import gtm.runtime.edge.worker.worker"]
        try:
            subprocess.run(command, check=True, capture_output=True, user=USER, group=_user().pw_gid, cwd="/")
        except (OSError, subprocess.CalledProcessError):
            continue
        return candidate
    pytest.skip(f"`{USER}` can run no Python that has gtm")


def _user() -> pwd.struct_passwd:
    return pwd.getpwnam(USER)


def low_port() -> int:
    """A free port below 1024."""
    for port in range(1023, 600, -1):
        with socket.socket() as stream, socket.socket(type=socket.SOCK_DGRAM) as datagram:
            try:
                stream.bind(("127.0.0.1", port))
                datagram.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("no port below 1024 is free")


def status(pid: int, field: str) -> list[int]:
    """A line of numbers in /proc/PID/status."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        name, _, numbers = line.partition(":")
        if name == field:
            return [int(number) for number in numbers.split()]
    raise AssertionError(field)


def assert_is_user(*pids: int) -> None:
    """Real, effective, saved and file-system user and group are the user's, and no other group is left."""
    user = _user()
    for pid in pids:
        assert set(status(pid, "Uid")) == {user.pw_uid}
        assert set(status(pid, "Gid")) == {user.pw_gid}
        assert set(status(pid, "Groups")) <= set(os.getgrouplist(USER, user.pw_gid))


@pytest.mark.endurance
def test_agent_and_workers_are_the_user(edge: LoneEdge) -> None:
    """Every process is the user in every guise, before and after a replacement, and no query is lost by it."""
    edge.dns_port = low_port()
    first = edge.start("--user", USER, "--workers", "1")
    edge.until_ready(first)
    assert_is_user(first.popen.pid, *edge.workers(first))
    with Clients(edge) as clients:
        clients.go_on()
        second = edge.start("--replace", "--user", USER, "--workers", "2")
        edge.until_ready(second, 2)
        assert_is_user(second.popen.pid, *edge.workers(second))
        assert first.end() == 0
        clients.go_on()
    assert clients.failures == []
    assert len(edge.workers(second)) == 4
    assert {path.stat().st_uid for path in (edge.data_dir, *edge.data_dir.iterdir())} == {_user().pw_uid}


def test_what_the_user_cannot_read_ends_the_start(edge: LoneEdge) -> None:
    """Files that root may read and the user may not are told of at once, not by workers that die."""
    secret = edge.data_dir.with_name("secret.mmdb")
    secret.touch(0o600)
    process = edge.start("--user", USER, "--geoip-db", str(secret))
    assert process.end() == 5
    assert "secret.mmdb" in process.output
    assert "Traceback" not in process.output


def test_another_directory_is_not_given_away(edge: LoneEdge) -> None:
    """A data directory with other people's files in it stays theirs, and the edge says what to do."""
    (edge.data_dir / "passwd").touch()
    process = edge.start("--user", USER)
    assert process.end() == 5
    assert "give `nobody` a directory of its own with --data-dir" in " ".join(process.output.split())
    assert (edge.data_dir / "passwd").stat().st_uid == 0
