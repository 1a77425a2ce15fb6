"""Floods against a live server: `python -m tests.bench.dns_noise --count 1000000`.

Hostile datagrams with a good query after each hundred, and what the process grows by; then seconds of a flood for a
large answer from one address, and what it receives.
"""

from __future__ import annotations

import argparse
import json
import random
import socket
import time

from tests.dns.answer.test_hostile import drain, flood, live, ordinary, resident
from tests.dns.hostile import seeds
from tests.dns.world import query

SECONDS = 5.0


def noise(count: int) -> dict[str, float]:
    """Send so much noise; every good query is answered, or this raises."""
    draw, kinds = random.Random(1035), seeds()
    with live() as (port, process):
        flood(port, draw, kinds, 20_000)
        first = resident(process.pid)
        started = time.perf_counter()
        flood(port, draw, kinds, count)
        seconds = time.perf_counter() - started
        grown = resident(process.pid) - first
    return {
        "datagrams": count,
        "good_queries": count // 100,
        "seconds": round(seconds, 1),
        "grown_kib": grown,
        "rss_kib": first,
    }


def amplification() -> dict[str, float]:
    """Flood for a large answer, on the default budgets: what comes back for what is sent, in each window."""
    packet = query("half.demo.test", edns=True)
    sent = received = answered = 0
    with live("limited") as (port, _), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        where = ("127.0.0.1", port)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        ends = time.monotonic() + SECONDS
        while time.monotonic() < ends:
            for _ in range(64):
                sent += sock.sendto(packet, where)
            received += drain(sock)
            answered += ordinary(where, "127.0.1.1") == ["192.0.2.4"]
        received += drain(sock)
    budget = int(SECONDS + 2) * 256 * 1024  # windows of a second that the flood touches
    return {
        "sent_bytes": sent,
        "received_bytes": received,
        "ratio": round(received / sent, 3),
        "ratio_beyond_budget": round(max(0, received - budget) / sent, 3),
        "ordinary_answered": answered,
    }


def main() -> None:
    """Print both."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100_000)
    found = {"noise": noise(parser.parse_args().count), "amplification": amplification()}
    for name, numbers in found.items():
        print(name, *(f"{key}={value}" for key, value in numbers.items()))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
