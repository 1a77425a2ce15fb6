"""Who goes when a process has no room for another connection."""

from __future__ import annotations

import asyncio
import resource
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from ipaddress import ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gtm.runtime.process.connections import (
    ACCEPTED,
    MAX_CONNECTIONS,
    Connections,
    fitting,
    say_once_without_room,
)
from gtm.runtime.process.http import PatientProtocol
from tests.descriptors import none_left
from tests.runtime.process.test_http import read_until, serving
from tests.system.harness import eventually

ASK = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"


class _Small(PatientProtocol):
    max_connections = 4


def test_idle_connections_keep_no_new_client_out() -> None:
    """Each client beyond the room is served, at the expense of the one that has been idle longest, not of a busy one."""
    with serving(_Small) as port, ExitStack() as stack:

        def client() -> socket.socket:
            return stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=30))

        def ask(one: socket.socket) -> None:
            one.sendall(ASK)
            read_until(one, b"ok")

        kept = [client() for _ in range(4)]
        for one in (kept[1], kept[0], kept[3]):
            ask(one)
        kept[2].sendall(ASK[:-2])  # it is in the middle of asking
        ask(kept[1])  # idle since now
        for oldest in (kept[0], kept[3]):
            new = client()
            ask(new)
            assert oldest.recv(1) == b""
        kept[2].sendall(b"\r\n")
        read_until(kept[2], b"ok")
        ask(kept[1])


def test_clients_that_never_end_a_request_keep_no_new_one_out() -> None:
    """Neither slow heads, nor slow bodies, nor bodies of requests that were answered already."""
    begun = [ASK[:9], b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n", ASK + ASK[:9]]
    early = b"POST /early HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n"
    with serving(_Small) as port, ExitStack() as stack:
        slow = [
            stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=30)) for _ in range(4)
        ]
        for one, text in zip(slow, [*begun, early], strict=True):
            one.sendall(text)
        for answered in slow[2:]:
            read_until(answered, b"ok")
        new = [
            stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=30)) for _ in range(4)
        ]
        for one in new:  # they came in a crowd, and all get to ask
            one.sendall(ASK)
            read_until(one, b"ok")


class _Behind(_Small):
    trusted = (ip_network("127.0.2.0/24"),)


def test_a_network_with_many_connections_closes_its_own() -> None:
    """However long another's has been idle; a trusted proxy's are many clients', and count for themselves."""
    with serving(_Behind) as port, ExitStack() as stack:

        def client(source: str) -> socket.socket:
            one = socket.create_connection(("127.0.0.1", port), timeout=30, source_address=(source, 0))
            stack.enter_context(one).sendall(ASK)
            read_until(one, b"ok")
            return one

        proxied = [client("127.0.2.1") for _ in range(2)]
        crowd = [client(f"127.0.3.{number}") for number in range(1, 3)]
        for number in range(3, 8):  # of one /24
            crowd.append(client(f"127.0.3.{number}"))
            assert crowd.pop(0).recv(1) == b"", "another than the crowd's oldest went"
        for one in proxied:
            one.sendall(ASK)
            read_until(one, b"ok")
        other = client("127.0.4.1")
        assert crowd[0].recv(1) == b""
        other.sendall(ASK)
        read_until(other, b"ok")


def test_clients_that_take_no_answer_go_at_once() -> None:
    """What waits to be sent to one that is evicted goes with it: else its descriptor and memory would stay."""
    lost: list[object] = []

    class _Told(_Small):
        def connection_lost(self, exc: Exception | None) -> None:
            lost.append(self)
            super().connection_lost(exc)

    with serving(_Told) as port, ExitStack() as stack:

        def client() -> socket.socket:
            return stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=30))

        deaf = [client() for _ in range(4)]
        for one in deaf:
            one.sendall(ASK.replace(b"/ ", b"/much ", 1))
            assert one.recv(1) == b"H"  # and no more
        new = client()
        new.sendall(ASK)
        read_until(new, b"ok")
        eventually(lambda: len(lost) == 1, "the first that takes nothing is gone")
        for one in deaf[1:]:
            one.close()


def test_want_of_descriptors_is_said_in_a_line(caplog: pytest.LogCaptureFixture) -> None:
    """A server of asyncio that can accept nobody says so once, goes on when it can, and says all else as ever."""

    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"ok")
        await writer.drain()
        writer.close()

    async def serve(new: list[socket.socket]) -> None:
        loop = asyncio.get_running_loop()
        say_once_without_room(loop)
        server = await asyncio.start_server(greet, "127.0.0.1", 0, backlog=ACCEPTED)
        async with server:
            with none_left():
                for one in new:
                    one.setblocking(False)
                    await loop.sock_connect(one, server.sockets[0].getsockname())
                while not caplog.records:  # noqa: ASYNC110 - a log has no events
                    await asyncio.sleep(0.01)
            for one in new:
                assert await loop.sock_recv(one, 2) == b"ok"
        loop.call_exception_handler({"message": "something else", "exception": ValueError("x")})

    with ExitStack() as stack:
        asyncio.run(serve([stack.enter_context(socket.socket()) for _ in range(3)]))
    said, other = caplog.records
    assert "no connection can be accepted (too many open files)" in said.getMessage()
    assert said.exc_info is None
    assert other.getMessage() == "something else"


STEPS = st.lists(
    st.tuples(st.sampled_from(["enter", "leave", "begins", "arrived", "rests", "waits"]), st.integers(0, 5))
)


BECOMES = {
    ("begins", "idle"): "arriving",
    ("arrived", "arriving"): "answered",
    ("arrived", "idle"): "answered",
    ("rests", "arriving"): "idle",
    ("rests", "answered"): "idle",
    ("waits", "arriving"): "arriving",
    ("waits", "answered"): "arriving",
}


KINDS: dict[str, Callable[[Connections, One], None]] = {
    "leave": lambda all_of, one: all_of.leave(one),
    "begins": lambda all_of, one: all_of.begins(one),
    "arrived": lambda all_of, one: all_of.arrived(one),
    "rests": lambda all_of, one: all_of.rests(one, arriving=False),
    "waits": lambda all_of, one: all_of.rests(one, arriving=True),
}


class One:
    """A connection that says when it is evicted."""

    def __init__(self, number: int, gone: list[int]) -> None:
        self.number, self.gone = number, gone

    def evict(self) -> None:
        self.gone.append(self.number)


@given(limit=st.integers(1, 4), steps=STEPS)
def test_who_goes_is_as_written(limit: int, steps: list[tuple[str, int]]) -> None:
    """A model: each connection with what it waits for and since when. Of one client's the kind that is more numerous loses its first."""
    model: dict[int, tuple[str, int]] = {}
    gone: list[int] = []
    expected: list[int] = []
    connections, ones = Connections(limit), [One(number, gone) for number in range(6)]
    does = {
        "leave": connections.leave,
        "begins": connections.begins,
        "arrived": connections.arrived,
        "rests": lambda one: connections.rests(one, arriving=False),
        "waits": lambda one: connections.rests(one, arriving=True),
    }
    for time, (step, number) in enumerate(steps):
        if step != "enter":
            does[step](ones[number])
            now = BECOMES.get((step, model.get(number, ("", 0))[0]))
            model |= {number: (now, time)} if now else {}
            if step == "leave":
                model.pop(number, None)
        elif number not in model:
            if len(model) >= limit:
                kinds = Counter(kind for kind, _ in model.values())
                most = max(("idle", "arriving"), key=kinds.__getitem__)
                kind = most if kinds[most] else "answered"
                expected.append(
                    min((at, other) for other, (now_is, at) in model.items() if now_is == kind)[1]
                )
                del model[expected[-1]]
            model[number] = ("arriving", time)
            connections.enter(ones[number])
        assert gone == expected


@given(
    limit=st.integers(1, 6),
    steps=st.lists(st.tuples(st.sampled_from([*KINDS, "enter", "enter"]), st.integers(0, 11))),
)
def test_the_client_with_the_most_gives_way(limit: int, steps: list[tuple[str, int]]) -> None:
    """Whoever goes is of a client with more than half of the most that any has; of another's only an idle one, and only where all of that client's are being answered."""
    model: dict[int, str] = {}
    gone: list[int] = []
    connections, ones = Connections(limit), [One(number, gone) for number in range(12)]
    owner = [0, 0, 0, 0, 0, 0, 1, 1, 1, 2, 2, 3]
    for step, number in steps:
        if step != "enter":
            KINDS[step](connections, ones[number])
            if step == "leave":
                model.pop(number, None)
            else:
                model |= {number: now} if (now := BECOMES.get((step, model.get(number, "")))) else {}
        elif number not in model:
            full, before = len(model) >= limit, len(gone)
            connections.enter(ones[number], owner[number])
            if full:
                counts = Counter(owner[other] for other in model)
                (left,) = gone[before:]
                if 2 * counts[owner[left]] <= max(counts.values()):
                    assert model[left] == "idle"
                    assert any(
                        {state for other, state in model.items() if owner[other] == client} == {"answered"}
                        for client, count in counts.items()
                        if 2 * count > max(counts.values())
                    )
                elif model[left] == "answered":
                    assert {state for other, state in model.items() if owner[other] == owner[left]} == {
                        "answered"
                    }
                    assert "idle" not in model.values()
                del model[left]
            assert len(gone) == before + full
            model[number] = "arriving"
        assert len(connections) == len(model)
    assert connections.evicted == len(gone)


def test_nothing_is_kept_of_clients_who_left() -> None:
    """Whether they were idle, or being answered after they had been idle."""
    connections, idle, busy = Connections(2), One(0, []), One(1, [])
    for number, one in enumerate((idle, busy)):
        connections.enter(one, number)
        connections.arrived(one)
        connections.rests(one, arriving=False)
    connections.arrived(busy)
    assert connections.clients == 2
    for one in (idle, busy):
        connections.leave(one)
    assert connections.clients == 0


def test_a_connection_may_need_another() -> None:
    """Where each leads on, half of the descriptors are for what it leads to."""
    assert fitting(256, each=2) == 64
    assert fitting(16_384, each=2) == 7040


@pytest.mark.parametrize(
    ("descriptors", "room"), [(1024, 512), (4096, 2048), (8192, 5888), (16384, MAX_CONNECTIONS)]
)
def test_the_room_fits_into_the_descriptors(descriptors: int, room: int) -> None:
    """Something is left for all else, however few there are."""
    assert fitting(descriptors) == room


def test_the_soft_limit_is_raised_as_far_as_it_may_be() -> None:
    """A process that is started with 1,024 descriptors asks for more, within what it may have."""
    code = (
        "import resource; from gtm.runtime.process.connections import raise_descriptor_limit as more; "
        "print(more(), resource.getrlimit(resource.RLIMIT_NOFILE)[0])"
    )
    for hard, soft in ((4000, 4000), (1024, 1024), (resource.getrlimit(resource.RLIMIT_NOFILE)[1], 16384)):
        done = subprocess.run(
            [
                sys.executable,
                "-c",
                f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (256, {hard})); {code}",
            ],
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.split() == [str(soft)] * 2
