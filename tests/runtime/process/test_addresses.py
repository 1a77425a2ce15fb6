"""Addresses that cannot be listened on: each error says what is wrong with just that one."""

from __future__ import annotations

import errno
import socket

import pytest

from gtm.runtime.process.sockets import explained


@pytest.mark.parametrize(
    ("host", "port", "number", "words"),
    [
        ("192.0.2.1", 8081, errno.EADDRNOTAVAIL, "192.0.2.1 is no address of this machine"),
        ("127.0.0.1", 53, errno.EACCES, "CAP_NET_BIND_SERVICE"),
        ("127.0.0.1", 8081, errno.EACCES, "choose another with --edge-port"),
    ],
)
def test_what_is_wrong_with_an_address(host: str, port: int, number: int, words: str) -> None:
    """An address of another machine, a port that only some may bind, anything else."""
    with (
        pytest.raises(OSError, match=r"cannot listen on TCP port") as raised,
        explained(host, port, socket.SOCK_STREAM, "--edge-port"),
    ):
        raise OSError(number, "no")
    assert words in str(raised.value)


def test_an_address_of_another_machine_is_told_by_the_system() -> None:
    """The kernel's own error, of a documentation address (RFC 5737)."""
    with (
        pytest.raises(OSError, match="is no address of this machine"),
        explained("192.0.2.1", 0, socket.SOCK_STREAM, "--edge-port"),
        socket.socket() as bound,
    ):
        bound.bind(("192.0.2.1", 0))
