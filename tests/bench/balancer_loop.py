"""What the own data plane does for a request and for a streamed chunk, without sockets: `python tests/bench/balancer_loop.py [--profile]`.

The whole way of `gtm balancer` (head read, law, admission, choice, head written anew, answer, accounts) between transports that only
take bytes: what is left is the cost of the code, without the kernel's. Slices of the least processor time of many: a busy machine
hardly moves it, so that two checkouts can be compared by running this in each.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import json
import pstats
import socket
import sys
import time
from collections.abc import Callable
from itertools import cycle
from pathlib import Path
from typing import cast

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import uvloop

from gtm.balancer import config
from gtm.balancer.decide.gate import HandoffReader, LawGate
from gtm.balancer.decide.picking import PoolPicker
from gtm.balancer.decide.queueing import QueueAdmission
from gtm.balancer.plane.access import AccessLines, ClientDetail
from gtm.balancer.plane.backend.backends import Route
from gtm.balancer.plane.backend.upstream import Upstream
from gtm.balancer.plane.client.downstream import Downstream
from gtm.balancer.plane.proxy import Proxy
from gtm.core.balance.health.health import BackendHealth
from gtm.core.balance.health.settings import HealthSettings
from gtm.core.balance.health.values import Check
from gtm.core.health.verdicts import ProbeResult
from gtm.core.model.access import Access
from gtm.core.model.requests import UNKNOWN_LOCATION
from gtm.documents.jurisdictions import shipped_jurisdictions
from gtm.feed.current import CurrentView
from gtm.feed.wire import AccessMessage, SnapshotMessage
from gtm.geoip.client import ClientFinder
from gtm.runtime.process.connections import MAX_CONNECTIONS, Connections
from tests.system.balancers import HOST, policy

_BODY = b'{"model":"bench","messages":[{"role":"user","content":"Say hello."}],"max_tokens":16}'
_COMMON = (
    b"host: %b\r\nuser-agent: bench/1\r\naccept: */*\r\nauthorization: Bearer sk-bench\r\n" % HOST.encode()
)
CHAT = (
    b"POST /v1/chat/completions HTTP/1.1\r\n%bcontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
    % (_COMMON, len(_BODY), _BODY)
)
GET = b"GET /v1/responses/7 HTTP/1.1\r\n%b\r\n" % _COMMON
ANSWER = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 250\r\n\r\n" + b"x" * 250
STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
CHUNK = b"bb\r\n" + b"data: " + b"x" * 179 + b"\n\n\r\n"


class Taking(asyncio.Transport):
    """A transport that takes everything."""

    def __init__(self) -> None:
        self._sockets = socket.socketpair()
        super().__init__({"peername": ("127.0.0.1", 1), "socket": self._sockets[0]})
        self.written = 0

    def write(self, data: bytes | bytearray | memoryview) -> None:  # noqa: ARG002 - the contract
        """Take it."""
        self.written += 1

    def is_closing(self) -> bool:
        """Never."""
        return False

    def is_reading(self) -> bool:
        """Always."""
        return True

    def get_write_buffer_size(self) -> int:
        """Nothing waits."""
        return 0

    def abort(self) -> None:
        """Nothing to do."""

    def close(self) -> None:
        """Nothing to do."""

    def resume_reading(self) -> None:
        """Nothing to do."""

    def pause_reading(self) -> None:
        """Nothing to do."""


class Ways(Route):
    """A way to a backend whose connections are `Taking`; the last one that was taken is `Ways.last`."""

    last: Upstream

    def take(self, now: float) -> Upstream | None:
        """One that waits, or a new one."""
        found = super().take(now)
        if found is None:
            found = Upstream(self, time.monotonic)
            found.connection_made(Taking())
        Ways.last = found
        return found


def plane(loop: asyncio.AbstractEventLoop, log: AccessLines | None = None) -> Proxy:
    """As `gtm.runtime.balancer` makes it, with four backends."""
    urls = tuple(f"http://127.0.0.1:{port}" for port in range(9001, 9005))
    document = config.of_urls(urls, None)
    servers = [
        one.__class__(one.name, slots=4096, models=frozenset(("bench",))) for one in document.servers()
    ]
    current = CurrentView(time.time)
    ports = {"fra": 9001, "iad": 9002}
    for message in (
        AccessMessage(Access()),
        SnapshotMessage.of(1, 1.0, policy(ports), shipped_jurisdictions()),
    ):
        current.apply(message)
    health = BackendHealth(HealthSettings(), servers, loop.time())
    picker = PoolPicker(servers, document.choice(), health, loop=loop, route=Ways)
    for one in servers:
        for _ in range(3):
            health.checked(one.name, Check.HEALTH, ProbeResult(True, time.time(), "", 1.0), loop.time())
    picker.conditions(health.tick(loop.time()))
    admission = QueueAdmission(
        document.admission.settings(),
        loop=loop,
        cost=picker.cost,
    )
    admission.resize(picker.slots())
    gate = LawGate(
        current,
        "fra",
        lambda _: UNKNOWN_LOCATION,
        ClientFinder(()),
        HandoffReader(current, lambda _: UNKNOWN_LOCATION),
        says=document.says(),
    )
    return Proxy(gate, admission, picker, room=Connections(MAX_CONNECTIONS), loop=loop, region="fra", log=log)


def connected(proxy: Proxy) -> Downstream:
    """A client's connection."""
    client = proxy.connection()
    client.connection_made(Taking())
    return client


def asking(client: Downstream, *requests: bytes) -> Callable[[], None]:
    """One of the requests, by turns, and its answer."""
    turns = cycle(requests)

    def once() -> None:
        client.data_received(next(turns))
        Ways.last.data_received(ANSWER)

    return once


def numbered(request: bytes, count: int) -> list[bytes]:
    """The request with a header of its own each time."""
    return [request.replace(b"\r\n", b"\r\nx-request-id: %012d\r\n" % number, 1) for number in range(count)]


def of_all_lengths(count: int) -> list[bytes]:
    """Chat completions with prompts of so many lengths."""
    bodies = [_BODY.replace(b"hello", b"hello" + b"." * number) for number in range(count)]
    head = CHAT.partition(b"content-length")[0]
    return [head + b"content-length: %d\r\n\r\n%b" % (len(body), body) for body in bodies]


def of_2_kb() -> bytes:
    """A chat completion whose body is 2 KB, the model behind its messages as clients write it."""
    said = b"Say hello. " * 174
    body = b'{"messages":[{"role":"user","content":"%b"}],"model":"bench","max_tokens":16}' % said
    return CHAT.partition(b"content-length")[0] + b"content-length: %d\r\n\r\n%b" % (len(body), body)


def streaming(client: Downstream) -> Callable[[], None]:
    """A chunk of a stream."""
    client.data_received(CHAT)
    upstream = Ways.last
    upstream.data_received(STREAM)
    return lambda: upstream.data_received(CHUNK)


def least(act: Callable[[], None], slices: int, each: int) -> float:
    """Processor µs of one act: of the slice that took the least."""
    best = 1e9
    for _ in range(slices):
        began = time.process_time()
        for _ in range(each):
            act()
        best = min(best, time.process_time() - began)
    return 1e6 * best / each


async def measure(options: argparse.Namespace) -> None:
    """Measure and print."""
    lines: list[bytes] = []
    log = AccessLines(lines.append, clients=ClientDetail.NETWORK, find=ClientFinder(()).find)
    proxy = plane(asyncio.get_running_loop(), log if options.access_log else None)
    if options.hedge:
        proxy.repeats = True
        proxy.hedge(0.05)
    acts = {
        "chat": asking(connected(proxy), CHAT),
        "chat_of_all_lengths": asking(connected(proxy), *of_all_lengths(200)),
        "chat_with_new_heads": asking(connected(proxy), *numbered(CHAT, 4096)),
        "chat_of_2_kb": asking(connected(proxy), of_2_kb()),
        "get": asking(connected(proxy), GET),
        "chunk": streaming(connected(proxy)),
    }
    found = {}
    for name, act in acts.items():
        act()
        assert proxy.stats.refusals.total() == 0, proxy.stats.refusals
        lines.clear()
        if options.profile:
            profile = cProfile.Profile()
            profile.enable()
            least(act, 1, 5000)
            profile.disable()
            print(name)
            pstats.Stats(profile).sort_stats("tottime").print_stats(options.lines)
        else:
            found[name] = round(least(act, options.slices, 250), 2)
    print(json.dumps(found))
    if options.turns:
        for _ in sys.stdin:
            print(json.dumps({name: least(act, 2, 100) for name, act in acts.items()}), flush=True)


def main() -> None:
    """Run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--profile", action="store_true", help="by function")
    parser.add_argument("--lines", type=int, default=45)
    parser.add_argument("--access-log", action="store_true", help="make a line of each request")
    parser.add_argument("--hedge", action="store_true", help="look whether requests are late")
    parser.add_argument("--slices", type=int, default=60)
    parser.add_argument(
        "--turns", action="store_true", help="once more for each line of the input: for comparisons"
    )
    cast("Callable[[object], None]", uvloop.run)(measure(parser.parse_args()))


if __name__ == "__main__":
    main()
