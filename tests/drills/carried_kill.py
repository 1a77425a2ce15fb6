"""A region is killed under carried requests: what becomes of each, through an edge that carries, and through Envoy in its place.

    python -m tests.drills.carried_kill

Frankfurt and Amsterdam are inside the fence, Ashburn is not. Half of the requests are streams; of all of them a quarter waits for a slot in Frankfurt. Then Frankfurt's balancer and its
model server get SIGKILL in one go. A stream of which something had come breaks off: nothing could make it whole. Any other request is to be answered from Amsterdam, and none
from Ashburn.
"""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.drills.carrying import HOST, CarriedWorld, carrying
from tests.ports import free_port
from tests.system.balancers import BERLIN, PATIENT, Backends
from tests.system.harness import eventually
from tests.tools import find

REQUESTS = 200
SLOTS = 150
"""Of Frankfurt: the other requests wait there."""
TOKENS, STEP_MS = 60, 200
"""Of each answer, and between two of its tokens: nothing is whole when the region dies."""
PATIENCE = 120.0
"""Seconds for all answers."""
REGIONS = ("fra", "ams", "iad")


@dataclass
class Asked:
    """One request, and what came of it."""

    stream: bool
    status: int = 0
    region: str = ""
    """That answered, as the answer's head says."""
    before: bool = False
    """Something of an answer had come before the region died."""
    whole: bool = False
    got: bytearray = field(default_factory=bytearray)


def told(every: list[Asked], dead: str) -> dict[str, int]:
    """How many ended how.

    Args:
        every: the requests.
        dead: the region that was killed.
    """
    found = Counter[str]()
    for one in every:
        # What was on its way when the region died had begun, though the client had not read it yet.
        if one.before or (one.status == 200 and one.region == dead and not one.whole):
            found["begun before, and broken off" if not one.whole else "begun before, and whole"] += 1
        elif one.whole and one.status == 200:
            found["answered elsewhere" if one.region != dead else "answered there"] += 1
        else:
            found[f"failed: {one.status or 'no answer'}"] += 1
    return dict(found)


async def _ask(port: int, one: Asked) -> None:
    body = json.dumps(
        {
            "model": "demo",
            "messages": [{"role": "user", "content": "Say."}],
            "max_tokens": TOKENS,
            "stream": one.stream,
        }
    ).encode()
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: {HOST}\r\nX-Forwarded-For: {BERLIN}\r\nAuthorization: Bearer key\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    writer = None
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(head.encode() + body)
        while not one.whole and (data := await reader.read(65536)):
            one.got += data
            _read(one)
    except OSError:
        pass
    finally:
        if writer is not None:
            writer.close()


def _read(one: Asked) -> None:
    """See what has come of an answer."""
    head, between, rest = bytes(one.got).partition(b"\r\n\r\n")
    if not between:
        return
    lines = [line.partition(b": ") for line in head.lower().split(b"\r\n")]
    said = {name: value for name, _, value in lines}
    one.status = int(head[9:12])
    one.region = said.get(b"x-gtm-region", b"").decode()
    length = said.get(b"content-length")
    one.whole = rest.endswith(b"\r\n0\r\n\r\n") if length is None else len(rest) >= int(length)


async def _play(port: int, kill: Any, ready: Any) -> list[Asked]:
    every = [Asked(stream=bool(number % 2)) for number in range(REQUESTS)]
    tasks = [asyncio.create_task(_ask(port, one)) for one in every]
    begun = sum(one.stream for one in every) * SLOTS // REQUESTS // 2
    end = time.monotonic() + PATIENCE
    while sum(bool(one.got) for one in every) < begun or not await asyncio.to_thread(ready):
        assert time.monotonic() < end, told(every, "")
        await asyncio.sleep(0.05)
    kill()
    for one in every:
        one.before = bool(one.got)
    await asyncio.wait(tasks, timeout=PATIENCE)
    return every


@contextmanager
def _world(folder: Path) -> Iterator[tuple[CarriedWorld, dict[str, Backends]]]:
    folder.mkdir()
    with ExitStack() as stack:
        servers, files = {}, {}
        for name in REGIONS:
            more = ("--slots", "256", "--step-ms", str(STEP_MS), "--sequence-ms", "0")
            servers[name] = Backends(folder / f"servers-{name}.log", 1, *more)
            stack.callback(servers[name].process.popen.kill)
            slots = SLOTS if name == "fra" else 2 * REQUESTS
            files[name] = {
                "service": "chat",
                "backends": [{"url": servers[name].urls[0], "slots": slots}],
                "admission": PATIENT,
            }
        yield stack.enter_context(carrying(folder, files, service={"push": "never"})), servers


def killed(folder: Path, *, envoy: str | None = None, balancer: bool = True) -> tuple[dict[str, int], int]:
    """Kill the region that has all requests; how these ended, and how many came to the region outside the fence.

    Args:
        folder: for all files; it is made.
        envoy: the program, if it is to be in the edge's place.
        balancer: whether the region's balancer dies with its servers; otherwise it says that it has none.
    """
    with _world(folder) as (world, servers), ExitStack() as stack:
        port = int(world.system.edge.rpartition(":")[2])
        if envoy is not None:
            port = stack.enter_context(_envoy(envoy, folder, [world.ports["fra"], world.ports["ams"]]))

        def full() -> bool:
            return world.in_flight() >= SLOTS

        def kill() -> None:
            for process in (world.balancers["fra"], servers["fra"].process)[not balancer :]:
                process.signal(signal.SIGKILL)

        every = asyncio.run(_play(port, kill, full))
        outside = int(servers["iad"].state()[0]["arrived"])
    return told(every, "fra"), outside


@contextmanager
def _envoy(program: str, folder: Path, ports: list[int]) -> Iterator[int]:
    """Envoy before balancers, the first of which gets all as long as it answers; it asks another where the documentation says how."""
    port, file = free_port(), folder / "envoy.json"
    file.write_text(json.dumps(_envoy_document(port, ports)))
    command = [program, "-c", str(file), "--concurrency", "1", "--use-dynamic-base-id", "-l", "error"]
    with (
        (folder / "envoy.log").open("wb") as log,
        subprocess.Popen(command, stdout=log, stderr=log) as running,
    ):
        try:
            eventually(lambda: asyncio.run(_takes(port)), "Envoy takes requests")
            yield port
        finally:
            running.kill()


async def _takes(port: int) -> bool:
    one = Asked(stream=False)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET /healthz HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n".encode())
    one.got += await reader.read()
    writer.close()
    _read(one)
    return one.status == 200


def _envoy_document(port: int, ports: list[int]) -> dict[str, object]:
    def at(of: int) -> dict[str, object]:
        return {"socket_address": {"address": "127.0.0.1", "port_value": of}}

    types = "type.googleapis.com/envoy.extensions"
    again = {
        "retry_on": "connect-failure,reset,5xx",
        "num_retries": 2,
        "retry_priority": {
            "name": "envoy.retry_priorities.previous_priorities",
            "typed_config": {
                "@type": f"{types}.retry.priority.previous_priorities.v3.PreviousPrioritiesConfig",
                "update_frequency": 1,
            },
        },
    }
    manager = {
        "@type": f"{types}.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "in",
        "stream_idle_timeout": "3600s",
        "use_remote_address": True,
        "xff_num_trusted_hops": 1,
        "route_config": {
            "virtual_hosts": [
                {
                    "name": "all",
                    "domains": ["*"],
                    "routes": [
                        {
                            "match": {"prefix": "/"},
                            "route": {"cluster": "regions", "timeout": "0s", "retry_policy": again},
                        }
                    ],
                }
            ]
        },
        "http_filters": [
            {
                "name": "envoy.filters.http.router",
                "typed_config": {"@type": f"{types}.filters.http.router.v3.Router"},
            }
        ],
    }
    most = dict.fromkeys(("max_connections", "max_pending_requests", "max_requests", "max_retries"), 100_000)
    places = [
        {"priority": number, "lb_endpoints": [{"endpoint": {"address": at(one)}}]}
        for number, one in enumerate(ports)
    ]
    check = {"timeout": "0.8s", "interval": "1s", "unhealthy_threshold": 2, "healthy_threshold": 1}
    cluster = {
        "name": "regions",
        "type": "STATIC",
        "connect_timeout": "2s",
        "circuit_breakers": {"thresholds": [most]},
        "health_checks": [{**check, "http_health_check": {"path": "/healthz"}}],
        "load_assignment": {"cluster_name": "regions", "endpoints": places},
    }
    chain = {"filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]}
    listener = {"address": at(port), "filter_chains": [chain]}
    return {"static_resources": {"listeners": [listener], "clusters": [cluster]}}


def main() -> int:
    """Print what became of all requests, by both."""
    with tempfile.TemporaryDirectory(prefix="carried-") as folder:
        for number, balancer in enumerate((True, False)):
            for name, program in (("gtm's edge", None), ("Envoy", find("envoy"))):
                if name == "Envoy" and program is None:
                    print("Envoy is not installed")
                    continue
                home = Path(folder) / f"{number}-{name[:1]}"
                found, outside = killed(home, envoy=program, balancer=balancer)
                what = "balancer and servers" if balancer else "servers alone"
                print(f"{what}, {name}: {json.dumps(found)}, outside of the fence {outside}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
