"""Ports that any will do for: not one that the kernel may give to a client before its owner listens."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from gtm.runtime.process import sockets
from gtm.runtime.process.sockets import listener, reserve

BOTH = (socket.SOCK_STREAM, socket.SOCK_DGRAM)


def test_a_port_for_zero_is_given_to_nobody_else() -> None:
    """The ports that the kernel gives to clients are left to them."""
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    if first < 11_000:
        pytest.skip("this system gives nearly all ports to clients")
    ports = {reserve(["127.0.0.1", "127.0.0.2"], 0, BOTH, "--port") for _ in range(50)}
    assert len(ports) > 40
    assert all(10_000 <= port < first for port in ports)


@pytest.mark.parametrize("given", ["1024\t65535\n", "10500 60999\n"])
def test_where_clients_get_nearly_all_the_kernel_chooses(
    given: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Then it is one of those."""
    (tmp_path / "range").write_text(given)
    monkeypatch.setattr(sockets, "GIVEN", tmp_path / "range")
    assert sockets.drawn() == 0
    assert reserve(["127.0.0.1"], 0, BOTH, "--port") > 0


@pytest.mark.parametrize("given", [None, "", "none"])
def test_what_cannot_be_read_is_linux_own_default(
    given: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As in a container without /proc."""
    if given is not None:
        (tmp_path / "range").write_text(given)
    monkeypatch.setattr(sockets, "GIVEN", tmp_path / "range")
    assert 10_000 <= sockets.drawn() < 32_768


def test_connections_send_what_is_written_at_once() -> None:
    """Whatever event loop accepts them: none waits for acknowledgements before it sends the rest of an answer."""
    with listener("127.0.0.1", 0) as bound, socket.create_connection(bound.getsockname()):
        bound.setblocking(True)
        accepted, _ = bound.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_a_client_that_reads_nothing_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """Though it answers the kernel: what waits for it does so for a bounded time."""
    monkeypatch.setattr(sockets, "TAKES_NOTHING_MS", 1000)
    with listener("127.0.0.1", 0) as bound, socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        client.connect(bound.getsockname())
        bound.setblocking(True)
        accepted, _ = bound.accept()
        with accepted, pytest.raises(TimeoutError, match="timed out"):
            accepted.sendall(bytes(64 * 1024 * 1024))
