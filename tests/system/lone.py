"""An edge without control: it answers from a last-good file that a test has written, one region that is up."""

from __future__ import annotations

import http.client
import socket
import struct
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import dns.message
import dns.rdatatype
import httpx

from gtm.core.model.access import Access
from gtm.core.model.policy import Policy
from gtm.core.model.regions import Endpoint, Probe, ProbeType, Region
from gtm.core.model.services import Member, NameServer, RefusalAddress, Service, Zone
from gtm.documents.jurisdictions import shipped_jurisdictions
from gtm.feed import lastgood
from gtm.feed.wire import AccessMessage, SnapshotMessage
from tests.effort import ALL
from tests.patience import PATIENCE
from tests.ports import free_port
from tests.system.harness import Process, command_line, descendants, eventually, kill_remains

NAME = "chat.demo.test"
ADDRESS = "192.0.2.7"
PAUSE = 0.003 if ALL else 0.01
"""Seconds between a client's queries."""


def policy(port: int) -> Policy:
    """One region that is up if something listens on a loopback port."""
    region = Region(
        "eu",
        50.1,
        8.7,
        "DE",
        (Endpoint(f"http://127.0.0.1:{port}", (ADDRESS,)),),
        probe=Probe(ProbeType.TCP, interval=1.0, timeout=1.0),
    )
    servers = (NameServer("ns1.demo.test", ("192.0.2.53",)),)
    zone = Zone("demo.test", "ns1.demo.test", "hostmaster.demo.test", servers)
    refusal = RefusalAddress(("192.0.2.250",))
    service = Service("chat", (Member("eu"),), hostnames=(NAME,), zone="demo.test", refusal=refusal)
    return Policy((region,), (zone,), (service,))


class LoneEdge:
    """Edges, one after another, on one data directory and one pair of ports."""

    def __init__(self, data_dir: Path, region_port: int) -> None:
        self.data_dir = data_dir
        data_dir.mkdir()
        snapshot = SnapshotMessage.of(1, 1.0, policy(region_port), shipped_jurisdictions())
        lastgood.save(data_dir / "edge-last-good", [AccessMessage(Access()), snapshot])
        self.http_port, self.dns_port = free_port(), free_port()
        self.processes: list[Process] = []
        self.python = sys.executable

    def start(self, *arguments: str, environment: dict[str, str] | None = None) -> Process:
        """Start `gtm edge`."""
        number = len(self.processes) + 1
        command = ["edge", "--control", "http://127.0.0.1:9", "--data-dir", str(self.data_dir)]
        ports = ["--edge-port", str(self.http_port), "--dns-port", str(self.dns_port)]
        log = self.data_dir.with_name(f"edge-{number}.log")
        told = {"GTM_TOKEN": "gtm_none", **(environment or {})}
        self.processes.append(Process([*command, *ports, *arguments], log, told, self.python))
        return self.processes[-1]

    def until_ready(self, process: Process, workers: int = 1) -> None:
        """Wait until all workers of an edge answer."""

        def ready() -> bool:
            assert process.popen.poll() is None, process.output
            if process.output.count("answers from revision 1") < 2 * workers:
                return False
            url = (
                f"http://127.0.0.1:{self.http_port}/readyz"  # HTTP workers hear of DNS workers a moment later
            )
            return httpx.get(url, trust_env=False, timeout=PATIENCE).status_code == 200

        eventually(ready, f"the edge answers:\n{process.output}")

    def workers(self, process: Process) -> list[int]:
        """Process ids of an edge's workers."""
        return [
            pid for pid in descendants(process.popen.pid) if "gtm.runtime.edge.worker" in command_line(pid)
        ]


@contextmanager
def listening() -> Iterator[int]:
    """The port of a region that takes connections, and closes them."""
    with socket.create_server(("127.0.0.1", 0), backlog=128) as region:
        stopping = threading.Event()

        def accept() -> None:
            region.settimeout(0.1)
            while not stopping.is_set():
                try:
                    connection, _ = region.accept()
                except TimeoutError:
                    continue
                connection.close()

        thread = threading.Thread(target=accept)
        thread.start()
        try:
            yield region.getsockname()[1]
        finally:
            stopping.set()
            thread.join()


@contextmanager
def lone_edge(folder: Path) -> Iterator[LoneEdge]:
    """Edges without control beside a region; all are stopped at the end."""
    with listening() as region:
        edge = LoneEdge(folder / "edge", region)
        try:
            yield edge
        finally:
            for process in edge.processes:
                if process.popen.poll() is None:
                    process.stop()
            kill_remains(edge.data_dir)


class Clients:
    """Threads that ask all the time, each waiting for its own reply.

    `answers` counts by kind what was answered, `asked` at least what was sent over UDP, `failures` says what went wrong.
    `always_ready`: it is a failure if the edge ever says that it is not ready.
    """

    def __init__(self, edge: LoneEdge, *, always_ready: bool = True) -> None:
        self._always_ready = always_ready
        self.answers: Counter[str] = Counter()
        self.asked = 0
        self.failures: list[str] = []
        self._edge = edge
        self._stopping = threading.Event()
        kinds = (self._udp, self._udp, self._tcp, self._tcp_many, self._http, self._http_kept)
        self._threads = [threading.Thread(target=self._repeat, args=(kind,)) for kind in kinds]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join(PATIENCE)

    def go_on(self, count: int = 50) -> None:
        """Wait until each kind of client has had so many more answers."""
        before = self.answers.copy()
        kinds = ("udp", "tcp", "tcp kept", "http", "http kept")
        eventually(
            lambda: self.failures or all(self.answers[kind] >= before[kind] + count for kind in kinds),
            "every client is answered",
        )

    def _repeat(self, ask: Callable[[], None]) -> None:
        while not self._stopping.is_set():
            try:
                ask()
            except Exception as error:
                self.failures.append(f"{ask.__name__}: {error!r}")
            time.sleep(PAUSE)

    def _udp(self) -> None:
        with socket.socket(type=socket.SOCK_DGRAM) as sock:
            sock.settimeout(PATIENCE / 2)
            sock.connect(("127.0.0.1", self._edge.dns_port))
            query = dns.message.make_query(NAME, "A")
            sock.send(query.to_wire())
            self.asked += 1
            check(query, sock.recv(4096))
            sock.setblocking(False)
            try:
                extra = sock.recv(4096)
            except BlockingIOError:
                self.answers["udp"] += 1
            else:
                raise AssertionError(f"a second answer: {extra!r}")

    def _tcp(self) -> None:
        with self._connection() as sock:
            exchange(sock)
        self.answers["tcp"] += 1

    def _tcp_many(self) -> None:
        with self._connection() as sock:
            for _ in range(10):
                exchange(sock)
                self.answers["tcp kept"] += 1
                time.sleep(PAUSE)

    def _connection(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self._edge.dns_port), timeout=PATIENCE / 2)

    def _http(self) -> None:
        connection = self._http_connection()
        self._look_up(connection)
        connection.close()
        self.answers["http"] += 1

    def _http_kept(self) -> None:
        """Many requests on a connection; where the server says that it closes it, http.client makes another."""
        connection = self._http_connection()
        for _ in range(50):
            self._look_up(connection)
            self.answers["http kept"] += 1
            time.sleep(PAUSE)
        connection.close()

    def _look_up(self, connection: http.client.HTTPConnection) -> None:
        assert b'"region":"eu"' in get(connection, "/v1/route?service=chat").replace(b" ", b"")
        if self._always_ready:
            get(connection, "/readyz")

    def _http_connection(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self._edge.http_port, timeout=PATIENCE / 2)


def exchange(sock: socket.socket) -> None:
    """One query and its answer over a connection."""
    query = dns.message.make_query(NAME, "A")
    wire = query.to_wire()
    sock.sendall(struct.pack("!H", len(wire)) + wire)
    (size,) = struct.unpack("!H", _exactly(sock, 2))
    check(query, _exactly(sock, size))


def check(query: dns.message.Message, wire: bytes) -> None:
    """It is the right answer to this query."""
    reply = dns.message.from_wire(wire)
    assert reply.id == query.id
    found = [item.to_text() for rrset in reply.answer if rrset.rdtype == dns.rdatatype.A for item in rrset]
    assert found == [ADDRESS], reply


def get(connection: http.client.HTTPConnection, path: str) -> bytes:
    """The body of what a path has, over HTTP."""
    connection.request("GET", path)
    reply = connection.getresponse()
    body = reply.read()
    assert reply.status == 200, body
    return body


def _exactly(sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = sock.recv(size - len(data))
        if not more:
            raise EOFError("the connection was closed")
        data += more
    return data
