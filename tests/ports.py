"""Ports for programs that tests start, and that must know theirs before."""

from __future__ import annotations

import contextlib
import socket
from random import SystemRandom

_FROM, _BELOW = 10_000, 32_000
"""Below those that systems give to whoever asks for any (Linux: from 32,768 on): no client takes one before the program does."""
_random = SystemRandom()  # the usual one is seeded alike in several processes that run tests


def free_port() -> int:
    """A port of 127.0.0.1 that nobody uses, for UDP and TCP."""
    while True:
        port = _random.randrange(_FROM, _BELOW)
        with (
            contextlib.suppress(OSError),
            socket.socket(socket.AF_INET, socket.SOCK_STREAM) as tcp,
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp,
        ):
            tcp.bind(("127.0.0.1", port))
            udp.bind(("127.0.0.1", port))
            return port
