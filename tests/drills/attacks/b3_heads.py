"""Requests whose heads, frames or bodies never end, at the edge and at control."""

from __future__ import annotations

import socket
import time
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from tests.drills.arena import Arena, attack, held
from tests.system.harness import System, descendants

_SENT = 48 * 1024 * 1024
_HEAD = b"GET / HTTP/1.1\r\nHost: a\r\n"
_CHUNKED = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"


def memory(running: System) -> int:
    """Resident bytes of a system's largest process."""
    return max(resident(pid) for pid in descendants(running.process.popen.pid))


def resident(pid: int) -> int:
    """Resident bytes of a process."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
    return 0


def flood(url: str, begin: bytes, more: bytes) -> tuple[int, bytes]:
    """Send a beginning and then the same again and again: bytes that were taken, and the first line of the answer."""
    parts = urlsplit(url)
    taken = 0
    with socket.create_connection((parts.hostname or "", parts.port or 0), timeout=10) as connection:
        with suppress(OSError):
            connection.sendall(begin)
            while taken < _SENT:
                connection.sendall(more)
                taken += len(more)
        answer = b""
        with suppress(OSError):
            answer = connection.recv(1000)
    return taken, answer.partition(b"\r\n")[0]


@attack("B3", "48 MB of one header, of many, of a target and of chunk extensions, from a stranger")
def heads(arena: Arena) -> str:
    """Each is refused after a few pieces, and nothing of it stays in memory."""
    running = arena.shared
    before, seen = memory(running), []
    for url in (running.edge, running.control):
        for begin, more, expected in (
            (_HEAD + b"X: ", b"v" * 65536, (b"431",)),
            (_HEAD, b"X: y\r\n" * 10_000, (b"431",)),
            (b"GET /", b"t" * 65536, (b"414",)),
            (_CHUNKED + b"1;", b"e" * 65536, (b"400", b"404", b"415")),  # or by its head alone, before
        ):
            taken, answer = flood(url, begin, more)
            seen.append(taken)
            refused = any(code in answer for code in expected)
            held(refused or (not answer and taken < _SENT), f"{taken} bytes taken, then {answer!r}")
    grown = memory(running) - before
    held(grown < 32 * 1024 * 1024, f"{grown >> 20} MB more memory")
    return f"refused, {max(grown, 0) >> 20} MB more memory"


@attack("B3", "300 half heads, and answers beside them")
def slow_heads(arena: Arena) -> str:
    """They end within 10 s; meanwhile others are answered."""
    running = arena.shared
    parts = urlsplit(running.edge)
    connections = [
        socket.create_connection((parts.hostname or "", parts.port or 0), timeout=15) for _ in range(300)
    ]
    try:
        for connection in connections:
            connection.sendall(_HEAD)
        began = time.monotonic()
        held(running.route(service="chat", client_ip="81.2.69.142").status_code == 200, "a look-up failed")
        for connection in connections:
            held(b" 408 " in connection.recv(1000), "half a head was not refused")
        return f"all told 408 after {time.monotonic() - began:.0f} s"
    finally:
        for connection in connections:
            connection.close()
