"""Sends malformed DNS packets at a fixed rate until it is ended: `python dns_flood.py FILE PORT RATE`.

The file holds packets as dnsperf reads them, each after its length in two bytes. Replies are never read.
"""

from __future__ import annotations

import socket
import sys
import time
from itertools import cycle
from pathlib import Path

TICK = 0.001
"""Seconds between bursts."""


def main() -> None:
    """Send."""
    data, port, rate = Path(sys.argv[1]).read_bytes(), int(sys.argv[2]), float(sys.argv[3])
    packets, at = [], 0
    while at < len(data):
        end = at + 2 + int.from_bytes(data[at : at + 2])
        packets.append(data[at + 2 : end])
        at = end
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.connect(("127.0.0.1", port))
    begin = time.monotonic()
    for sent, packet in enumerate(cycle(packets)):
        while sent >= (time.monotonic() - begin) * rate:
            time.sleep(TICK)
        sock.send(packet)


if __name__ == "__main__":
    main()
