"""What an answer costs: `make bench`, or `python tests/bench/route_bench.py [--seconds 5] [--services 20]`.

Prints, each beside a peer measured in the same run on the same cores:
  - `decide()` cold, and from a Router's memory, in microseconds (this process, no peer);
  - edge look-ups and redirects per second and core, served as workers serve them, beside nginx `return 302` and a bare ASGI
    application on uvicorn alone;
  - the same of `/v1/authorize`, beside look-ups of the same edge, and requests that NGINX lets through by asking it (`auth_request`);
  - DNS queries per second and server CPU per query, beside a bare UDP echo in Python.

Needs wrk, dnsperf and nginx (Debian: `apt install wrk dnsperf nginx-light`); what is missing is said and left out.
The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from ipaddress import IPv4Address
from pathlib import Path

import dns.edns
import dns.message
import dns.query
import httpx
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from balancer_bench import Bench, compiled
from balancer_peers import Running
from decide_loop import Loop
from measure import Load, dns_load, http_load, listening, missing, server

from tests.ports import free_port

BENCH = Path(__file__).parent
UVICORN = [
    "--interface",
    "asgi3",
    "--no-access-log",
    "--log-level",
    "error",
    "--loop",
    "uvloop",
    "--http",
    "httptools",
]


def decisions() -> dict[str, float]:
    """The cost of `decide()`, cold and remembered: medians of five turns."""
    loop = Loop()
    turns = [loop.turn() for _ in range(5)]
    cold, cached = (statistics.median(column) for column in zip(*turns, strict=True))
    return {"cold_us": cold, "cached_us": cached}


def http(seconds: float) -> dict[str, Load]:
    """Look-ups and redirects beside nginx and a bare ASGI application."""
    found: dict[str, Load] = {}
    port = free_port()
    with server(_uvicorn("bare_asgi:app", port), lambda: listening(port)) as pid:
        found["bare_asgi"] = http_load(f"http://127.0.0.1:{port}/", pid, seconds)
    if not missing("nginx"):
        with _nginx("location / { return 302 http://127.0.1.1:9000$request_uri; }") as (nginx, pid):
            found["nginx_302"] = http_load(f"http://127.0.0.1:{nginx}/hello", pid, seconds)
    port = free_port()
    command = [sys.executable, str(BENCH / "edge_app.py"), str(port)]
    with server(command, lambda: _ready(port)) as pid:
        base = f"http://127.0.0.1:{port}"
        lookup = f"{base}/v1/route?service=chat&client_ip=81.2.69.142"
        assert httpx.get(lookup).json()["region"].startswith("eu-")
        found["lookup"] = http_load(lookup, pid, seconds)
        found["lookup_65536_clients"] = http_load(base, pid, seconds, "-s", str(BENCH / "clients.lua"))
        assert httpx.get(f"{base}/r/web/hello?x=1").status_code == 307
        found["redirect"] = http_load(f"{base}/r/web/hello?x=1", pid, seconds)
        found["redirect_by_host"] = http_load(f"{base}/hello?x=1", pid, seconds, "-H", "Host: web.demo.test")
    return found


def authorize(seconds: float) -> dict[str, Load]:
    """What proxies ask, beside look-ups about the same clients, of an edge that signs; the last is NGINX's own processor time."""
    found: dict[str, Load] = {}
    port = free_port()
    command = [sys.executable, str(BENCH / "edge_app.py"), str(port), "behind"]
    with server(command, lambda: _ready(port)) as pid:
        base = f"http://127.0.0.1:{port}"
        lookup = f"{base}/v1/route?service=chat&client_ip=81.2.69.142"
        asked, client = f"{base}/v1/authorize?service=chat", {"x-forwarded-for": "81.2.69.142"}
        answer = httpx.get(asked, headers=client)
        assert answer.status_code == 200
        assert answer.headers["gtm-handoff"]
        found["lookup"] = http_load(lookup, pid, seconds)
        found["authorize"] = http_load(asked, pid, seconds, "-H", "x-forwarded-for: 81.2.69.142")
        clients = str(BENCH / "clients.lua")
        found["lookup_65536_clients"] = http_load(base, pid, seconds, "-s", clients)
        found["authorize_65536_clients"] = http_load(base, pid, seconds, "-s", clients, "--", "authorize")
        if not missing("nginx"):
            with _nginx(*_asking(port)) as (asking, _):
                found["authorize_by_nginx"] = http_load(f"http://127.0.0.1:{asking}/hello", pid, seconds)
    return found


def _asking(edge: int) -> tuple[str, str]:
    """NGINX's locations and upstream servers where it asks an edge about each request."""
    asks = (
        "location / { auth_request /gtm; try_files /hello =404; } "
        "location = /gtm { internal; proxy_pass http://gtm/v1/authorize?service=chat&deny=403; proxy_http_version 1.1; "
        'proxy_set_header Connection ""; proxy_pass_request_body off; proxy_set_header Content-Length ""; '
        "proxy_set_header X-Forwarded-For $remote_addr; }"
    )
    return asks, f"upstream gtm {{ server 127.0.0.1:{edge}; keepalive 64; keepalive_requests 1000000; }}"


def paced(seconds: float, rate: float = 5000.0) -> dict[str, dict[str, float]]:
    """Requests at a fixed rate through NGINX that asks the edge, and through one that does not, in turns: p50 and p99 in µs, medians of five; both and the edge share a core."""
    found: dict[str, list[dict[str, float]]] = {"nginx": [], "nginx_asks": []}
    port, program = free_port(), compiled("balancer_load", "-lm")
    command = [sys.executable, str(BENCH / "edge_app.py"), str(port), "behind"]
    with (
        server(command, lambda: _ready(port)),
        _nginx("location / { try_files /hello =404; }") as (plain, _),
        _nginx(*_asking(port)) as (asking, _),
    ):
        for _ in range(5):
            for name, of in (("nginx", plain), ("nginx_asks", asking)):
                bench = Bench(program, Running(of, os.getpid(), ""), seconds, name)
                found[name].append(bench.load("get", 32, rate=rate)[0])
    return {
        name: {key: statistics.median(one[key] for one in loads) for key in ("p50_us", "p99_us", "errors")}
        | {"per_second": statistics.median(one["answers"] / one["seconds"] for one in loads)}
        for name, loads in found.items()
    }


def _uvicorn(app: str, port: int) -> list[str]:
    return [sys.executable, "-m", "uvicorn", app, "--app-dir", str(BENCH), "--port", str(port), *UVICORN]


def _ready(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/readyz").status_code == 200
    except httpx.HTTPError:
        return False


@contextmanager
def _nginx(locations: str, upstream: str = "") -> Iterator[tuple[int, int]]:
    """An NGINX of one worker on the server core: its port, and its process."""
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        (Path(folder) / "hello").write_text("hello")
        config = Path(folder) / "nginx.conf"
        config.write_text(
            f"daemon off; worker_processes 1; pid {folder}/pid; error_log {folder}/error.log;\n"
            "events { worker_connections 256; }\n"
            f"http {{ access_log off; keepalive_requests 1000000; {upstream} server {{ listen 127.0.0.1:{port}; "
            f"root {folder}; {locations} }} }}\n"
        )
        with server(["nginx", "-c", str(config), "-p", folder], lambda: listening(port)) as pid:
            yield port, pid


def dns_answers(seconds: float) -> dict[str, Load]:
    """The name server beside a bare echo, with 10,000 client networks in the queries."""
    queries = _queries(10_000)
    found: dict[str, Load] = {}
    for name in ("udp_echo.py", "dns_app.py"):
        port = free_port()
        with server([sys.executable, str(BENCH / name), str(port)], partial(_answers, port, name)) as pid:
            dns_load(queries, port, pid, 1.0)  # warm
            found[name.removesuffix(".py")] = dns_load(queries, port, pid, seconds)
    return found


def _answers(port: int, name: str) -> bool:
    query = dns.message.make_query("chat.demo.test", "A")
    try:
        if name == "udp_echo.py":
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
                one.settimeout(0.5)
                one.sendto(query.to_wire(), ("127.0.0.1", port))
                return bool(one.recv(512))
        return bool(dns.query.udp(query, "127.0.0.1", port=port, timeout=0.5).answer)
    except (OSError, dns.exception.DNSException):
        return False


def _queries(networks: int) -> bytes:
    generator = random.Random(1)
    wires = []
    for _ in range(networks):
        network = str(IPv4Address((generator.randrange(1, 223) << 24) | (generator.getrandbits(16) << 8)))
        query = dns.message.make_query(
            "chat.demo.test", "A", use_edns=0, options=[dns.edns.ECSOption(network, 24)]
        )
        wires.append(query.to_wire())
    return b"".join(struct.pack("!H", len(wire)) + wire for wire in wires)


def show(title: str, loads: dict[str, Load], peer: str) -> None:
    """A table of loads with ratios to a peer."""
    table = Table(title=title)
    for column in ("server", "per second", f"of {peer}", "CPU µs each", f"× {peer}", "errors"):
        table.add_column(column, justify="left" if column == "server" else "right")
    for name, load in loads.items():
        base = loads[peer]
        table.add_row(
            name,
            f"{load.rate:,.0f}",
            f"{load.rate / base.rate:.0%}",
            f"{load.cpu_us:.1f}",
            f"{load.cpu_us / base.cpu_us:.2f}",
            str(load.errors),
        )
    Console(width=110).print(table)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=5.0, help="length of each load")
    arguments = parser.parse_args()
    print(f"load average {os.getloadavg()[0]:.2f}, {os.cpu_count()} cores, Python {sys.version.split()[0]}")
    print(subprocess.run(["uname", "-sr"], capture_output=True, text=True, check=True).stdout.strip())
    result: dict[str, object] = {"load_average": os.getloadavg()[0]}
    costs = decisions()
    print(f"decide(): cold {costs['cold_us']:.1f} µs, cached {costs['cached_us']:.2f} µs")
    result["decide"] = costs
    if missing("wrk", "taskset"):
        print("HTTP left out: not installed:", ", ".join(missing("wrk", "taskset")))
    else:
        if missing("nginx"):
            print("nginx left out: not installed")
        loads = http(arguments.seconds)
        show("HTTP, one server core, 32 connections", loads, "bare_asgi")
        result["http"] = {name: vars_of(load) for name, load in loads.items()}
        loads = authorize(arguments.seconds)
        show("Proxies that ask, one server core, 32 connections", loads, "lookup")
        result["authorize"] = {name: vars_of(load) for name, load in loads.items()}
        if not missing("nginx", "cc"):
            result["paced"] = paced(arguments.seconds)
            print("5,000 requests a second through NGINX, alone and asking the edge:", result["paced"])
    if missing("dnsperf", "taskset"):
        print("DNS left out: not installed:", ", ".join(missing("dnsperf", "taskset")))
    else:
        loads = dns_answers(arguments.seconds)
        show("DNS over UDP, one server core, client subnets of 10,000 networks", loads, "udp_echo")
        result["dns"] = {name: vars_of(load) for name, load in loads.items()}
    print(json.dumps(result))


def vars_of(load: Load) -> dict[str, float]:
    """A load as JSON."""
    return {"rate": load.rate, "cpu_us": load.cpu_us, "errors": load.errors}


if __name__ == "__main__":
    main()
