"""How long a dead address stays in the answers: `python tests/bench/address_bench.py [--trials 10]`.

A region of two families behind one name: its IPv4 address dies, its IPv6 address and its URL go on answering. Measured is, again and again,
until DNS answers A with another region's address. The bound is interval × down threshold + 1 s. The last line is one JSON object
(seconds).
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import sys
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent.parent))

from tests.ports import free_port
from tests.system.harness import System, eventually, system

EU, US = "127.0.2.1", "127.0.2.2"
WELL = ("127.0.0.1", "::1", US)
"""What goes on answering: what the URL's host resolves to, the other family, the other region."""
ALLOW = ("--probe-allow", "127.0.0.0/8,::1/128")
PROBE = {"path": "/", "interval": 1, "timeout": 1, "up_threshold": 1, "down_threshold": 2}


class _Well(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


class _Six(ThreadingHTTPServer):
    address_family = socket.AF_INET6


def serve(address: str, port: int) -> ThreadingHTTPServer:
    """A server that is well, at an address."""
    server = (_Six if ":" in address else ThreadingHTTPServer)((address, port), _Well)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    return server


def policy(port: int) -> dict[str, object]:
    """Two regions: `eu` is behind a name of both families, `us` behind its address."""
    place = {"country": "DE", "lat": 50.11, "lon": 8.68, "probe": PROBE}
    return {
        "regions": [
            {**place, "name": "eu", "endpoints": [{"url": f"http://localhost:{port}", "ipv4": [EU], "ipv6": ["::1"]}]},
            {**place, "name": "us", "endpoints": [{"url": f"http://{US}:{port}", "ipv4": [US]}]},
        ],
        "zones": [
            {"name": "example.test", "primary_ns": "ns1.example.net", "hostmaster": "hostmaster.example.net"}
        ],
        "services": [
            {
                "name": "web",
                "members": [{"region": "eu"}, {"region": "us"}],
                "hostnames": ["web.example.test"],
                "zone": "example.test",
                "steering": "failover",
                "refusal": {"ipv4": ["192.0.2.250"], "ipv6": ["2001:db8::250"]},
            }
        ],
    }  # fmt: skip


def trial(running: System, port: int, server: ThreadingHTTPServer) -> tuple[float, ThreadingHTTPServer]:
    """Kill the address; the seconds until DNS answers without it, and the server of the next trial."""
    server.shutdown()
    server.server_close()
    begin, last = time.monotonic(), 0.0
    while time.monotonic() - begin < last + 2:  # until no wrong answer came for two seconds
        if EU in running.addresses("web.example.test"):
            last = time.monotonic() - begin
        time.sleep(0.01)
    again = serve(EU, port)
    eventually(lambda: running.addresses("web.example.test") == [EU], "it is back")
    return last, again


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=10)
    arguments = parser.parse_args()
    port = free_port()
    for address in WELL:
        serve(address, port)
    server = serve(EU, port)
    taken = []
    with tempfile.TemporaryDirectory() as folder, system(Path(folder) / "data", *ALLOW) as running:
        running.api(
            "POST", "/v1/policy:apply?force=true&force_reason=test", json={"policy": policy(port)}
        ).raise_for_status()
        eventually(lambda: running.addresses("web.example.test") == [EU], "it answers")
        time.sleep(2 * float(str(PROBE["interval"])))
        for _ in range(arguments.trials):
            seconds, server = trial(running, port, server)
            taken.append(seconds)
    median, longest = statistics.median(taken), max(taken)
    bound = 1 * 2 + 1
    print(f"median {median:.2f} s, max {longest:.2f} s, bound {bound:.1f} s")
    print(json.dumps({"load_average": os.getloadavg()[0], "bound": bound, "median": median, "max": longest}))


if __name__ == "__main__":
    main()
