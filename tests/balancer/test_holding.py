"""What clients can make a balancer keep: in all, each of them, and for how long."""

from __future__ import annotations

import asyncio
import json
import tracemalloc
from collections import Counter
from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from gtm.balancer.decide.queueing import QueueAdmission
from gtm.balancer.plane.exchange import FIRST
from gtm.balancer.plane.flow import REQUEST, KeptBytes
from gtm.balancer.plane.timeouts import LeastPace
from gtm.core.balance.admission.settings import AdmissionSettings
from tests.balancer.world import Backend, Message, Peer, World, answering, read_head, run, world

_OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
_GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
_CHAT = b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
_READ = 256 * 1024
"""Bytes that one read brings at the most."""


def _begun(size: int, sent: int) -> bytes:
    return _CHAT + b"Content-Length: %d\r\n\r\n%b" % (size, b'{"' + b"x" * (sent - 2))


def _whole(size: int) -> bytes:
    return _CHAT + b"Content-Length: %d\r\n\r\n%b" % (size, b'{"x":"' + b"x" * (size - 8) + b'"}')


def _code(answer: Message) -> str:
    return str(json.loads(answer.body)["code"])


# --- who gives way ---


@given(st.lists(st.tuples(st.integers(0, 7), st.integers(0, 60))), st.integers(0, 200))
def test_nobody_holds_more_than_is_written(steps: list[tuple[int, int]], most: int) -> None:
    """Whatever connections hold: in all no more than `most`, each client no more than half; whoever gives way grew, or is of a client with more than half of the most that any has."""
    held: KeptBytes[int] = KeptBytes(most)
    sizes: Counter[int] = Counter()
    for holder, size in steps:
        held.hold(holder, size, lambda holder=holder: holder % 3)  # type: ignore[misc]
        sizes[holder] = size
        while (found := held.gives_way(holder)) is not None:
            gone, its_own = found
            clients = Counter[int]()
            for one, has in sizes.items():
                clients[one % 3] += has
            if its_own:
                assert gone == holder
                assert clients[gone % 3] > most // 2
            else:
                assert sizes.total() > most
                assert 2 * clients[gone % 3] > max(clients.values())
            held.hold(gone, 0, lambda: None)
            sizes[gone] = 0
        assert held.total == sizes.total() <= most
        assert held.has(holder) == bool(sizes[holder])


def test_bodies_of_one_stranger_keep_nobody_out() -> None:
    """It holds half of what may be held at the most, and its next body is refused; an honest client is served meanwhile."""

    async def main() -> None:
        async with world(await Backend(answering(_OK)).start()) as w:
            w.proxy.held.bound(1_000_000)
            strange = [await w.client(local_addr=("127.3.0.1", 0)) for _ in range(8)]
            for number, one in enumerate(strange[:5]):
                one.send(_begun(900_000, 100_000))
                await w.until(lambda number=number: w.proxy.held.total == (number + 1) * 100_000)  # type: ignore[misc]
            for one in strange[5:]:
                one.send(_begun(900_000, 100_000))
                refused = await one.response()
                assert (refused.status, _code(refused)) == (429, "client_bodies_full")
                assert refused.get("retry-after") == b"1"
            honest = await w.client(local_addr=("127.4.0.1", 0))
            honest.send(_whole(400_000))
            assert (await honest.response()).status == 200
            assert w.proxy.held.total == 500_000

    run(main)


def test_many_strangers_keep_nobody_out() -> None:
    """Where all is full, whoever holds most gives way: an honest client's body has room among theirs."""

    async def main() -> None:
        async with world(await Backend(answering(_OK)).start()) as w:
            w.proxy.held.bound(1_000_000)
            strange = [await w.client(local_addr=(f"127.3.{number}.1", 0)) for number in range(10)]
            for number, one in enumerate(strange):
                one.send(_begun(900_000, 100_000))
                await w.until(lambda number=number: w.proxy.held.total == (number + 1) * 100_000)  # type: ignore[misc]
            honest = await w.client(local_addr=("127.4.0.1", 0))
            honest.send(_begun(50_000, 40_000))
            await w.until(lambda: w.proxy.held.total == 940_000)
            honest.send(b"x" * 9_998 + b'"}')
            assert (await honest.response()).status == 200
            await w.until(lambda: w.proxy.held.total == 900_000)

    run(main)


def test_clients_behind_a_trusted_proxy_are_held_apart() -> None:
    """What one of them sends counts for it, not for the proxy."""

    async def main() -> None:
        backend = await Backend(answering(_OK)).start()
        async with world(backend, trusts=lambda peer: peer == "127.1.0.1") as w:
            w.gate.client = lambda exchange: exchange.head.seen[b"gtm-of"]  # type: ignore[method-assign]
            w.proxy.held.bound(1_000_000)
            for of, status in ((b"abcd", 429), (b"efgh", 200)):
                one, other = [await w.client(local_addr=("127.1.0.1", 0)) for _ in range(2)]
                line = b"gtm-of: %b\r\n\r\n" % of
                if status == 429:
                    one.send(_begun(900_000, 400_000).replace(b"\r\n\r\n", b"\r\n" + line, 1))
                    await w.until(lambda: w.proxy.held.total == 400_000)
                other.send(_begun(900_000, 400_000).replace(b"\r\n\r\n", b"\r\n" + line, 1))
                if status == 429:
                    assert (await other.response()).status == 429
                else:
                    await w.until(lambda: w.proxy.held.total == 800_000)

    run(main)


def test_requests_behind_others_count() -> None:
    """What is kept of a client that sends on is counted for no less than it takes, and given back."""

    async def silent(peer: Peer) -> None:
        await read_head(peer.reader)
        await peer.reader.read()

    async def main() -> None:
        async with world(await Backend(silent).start()) as w:
            clients = [await w.client() for _ in range(30)]
            tracemalloc.start()
            before = tracemalloc.get_traced_memory()[0]
            for one in clients:
                one.send(_GET * 300)
            await w.until(lambda: w.proxy.held.total >= 30 * 250 * REQUEST)
            assert tracemalloc.get_traced_memory()[0] - before <= w.proxy.held.total
            tracemalloc.stop()
            w.proxy.held.bound(REQUEST * 400)
            more = await w.client()
            more.send(_GET * 300)
            await w.until(lambda: w.proxy.held.total <= REQUEST * 400)
            for one in (*clients, more):
                one.abort()
            await w.until(lambda: not w.proxy.connections)
            assert w.proxy.held.total == 0

    run(main)


def test_heads_that_are_not_whole_count() -> None:
    """They take room as bodies do."""

    async def main() -> None:
        async with world(await Backend(answering(_OK)).start()) as w:
            w.proxy.held.bound(100_000)
            clients = [await w.client() for _ in range(4)]
            for number, one in enumerate(clients[:2]):
                one.send(b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 20_000)
                await w.until(lambda number=number: w.proxy.held.total > (number + 1) * 20_000)  # type: ignore[misc]
            clients[2].send(b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 20_000)
            assert (await clients[2].response()).status == 429
            clients[0].send(b"\r\n\r\n")
            assert (await clients[0].response()).status == 200

    run(main)


# --- the queue ---


async def _queued(w: World, most: int) -> QueueAdmission:
    settings = AdmissionSettings(queue_bytes=most)
    queue = w.proxy.admission = QueueAdmission(settings, loop=asyncio.get_running_loop(), cost=lambda _: 1.0)
    queue.resize(0, usable=True)
    return queue


def test_what_waits_is_read_no_further() -> None:
    """The queue holds no more bytes than it may, whatever comes with a head, and behind it: what of a body has come counts, and the rest is not read."""

    async def main() -> None:
        async with world(await Backend(answering(_OK)).start()) as w:
            queue = await _queued(w, 1_000_000)
            head = b"POST /files HTTP/1.1\r\nHost: a\r\n"
            length, chunk = (
                b"Content-Length: 10000000\r\n\r\n",
                b"Transfer-Encoding: chunked\r\n\r\nffffff\r\n",
            )
            clients = [await w.client() for _ in range(20)]
            for number, one in enumerate(clients):
                one.send(head + (chunk if number % 2 else length) + b"y" * 200_000)
            refused = 0
            await w.until(lambda: len(w.gate.judged) == 20)
            await w.until(lambda: len(w.proxy.clients) == 20)
            await w.until(lambda: sum(one.paused for one in w.proxy.clients) >= queue.admission.waiting > 0)
            for one in clients:
                one.send(b"z" * 300_000)
            waiting = queue.admission.waiting
            counted = sum(tier.waiting_bytes for tier in queue.admission.snapshot().tiers.values())
            assert w.proxy.held.total <= counted <= 1_000_000
            refused = w.proxy.stats.refusals["queue_full"]
            assert (waiting > 0, refused) == (True, 20 - waiting)
            for one in clients:
                one.abort()
            await w.until(lambda: not w.proxy.connections)
            assert not queue.admission.waiting

    run(main)


# --- how long ---


@given(
    st.lists(st.tuples(st.integers(0, 5000), st.floats(0.01, 2.0)), max_size=60),
    st.integers(0, 5000),
)
def test_a_body_comes_at_its_rate_or_is_late(steps: list[tuple[int, float]], begun: int) -> None:
    """By any look: one that has come at the rate since it began is not late, and who is not late has missed no more than the time by which it may fall behind."""
    rate, grace = 1000.0, 3.0
    pace = LeastPace(begun, 0.0, grace)
    now, size, behind = 0.0, begun, 0.0
    for more, seconds in steps:
        now, size = now + seconds, size + more
        behind = max(0.0, behind + seconds - more / rate)
        late = pace.is_late(size, now, rate=rate, grace=grace)
        assert late == (behind > grace) or abs(behind - grace) < 1e-6
        if late:
            return


def test_a_body_that_does_not_come_holds_no_slot() -> None:
    """Whatever says that it comes: a length, chunks, a wish to be asked for it. With all of a small one, or the first of a large one, there is a slot."""

    async def main() -> None:
        async with world(await Backend(answering(_OK)).start()) as w:
            head = b"POST /files HTTP/1.1\r\nHost: a\r\n"
            for more in (
                b"Content-Length: 9\r\n\r\nx",
                b"Content-Length: 9000000\r\n\r\nx" + b"y" * (FIRST - 1),
                b"Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n",
                b"Expect: 100-continue\r\nContent-Length: 9\r\n\r\n",
            ):
                seen = len(w.gate.judged)
                client = await w.client()
                client.send(head + more)
                await w.until(lambda seen=seen: len(w.gate.judged) > seen)  # type: ignore[misc]
                exchange = w.gate.judged[-1]
                expected = FIRST if b"9000000" in more else more.count(b"x\r\n") or more.endswith(b"x")
                await w.until(lambda exchange=exchange, expected=expected: exchange.received >= expected)  # type: ignore[misc]
                assert not w.picker.in_flight
                assert not w.admission.inside
                if b"9000000" in more:
                    client.send(b"z")
                    await w.until(lambda: w.picker.in_flight == 1)
                client.abort()
                await w.until(lambda: not w.picker.in_flight)

    run(main)


def test_a_body_that_comes_too_slowly_ends() -> None:
    """Before it has a slot and when it has one; at its rate it goes on, and while nobody reads it no time runs."""

    async def main() -> None:
        async with world(await Backend(answering(_OK)).start()) as w:
            head = b"POST /files HTTP/1.1\r\nHost: a\r\nContent-Length: 200000\r\n\r\n"
            slow, steady, fell = [await w.client() for _ in range(3)]
            slow.send(head + b"x")
            steady.send(head + bytes(FIRST + 1))
            fell.send(head + bytes(FIRST + 1))
            await w.until(lambda: w.picker.in_flight == 2)
            w.proxy.look()
            exchange = w.gate.judged[1] if w.gate.judged[1].received else w.gate.judged[2]
            steadies = [one for one in w.gate.judged if one.client.peer and one.received > 1]
            assert exchange in steadies
            sent = FIRST + 1
            for _ in range(4):
                steady.send(bytes(4096 * 5))
                sent += 4096 * 5
                await w.until(lambda sent=sent: any(one.received == sent for one in steadies))  # type: ignore[misc]
                w.pass_time(5)
            assert (await slow.response()).status == 408
            refused = await fell.response()
            assert (refused.status, _code(refused)) == (408, "body_too_slow")
            assert w.picker.failures == []
            steady.send(bytes(200_000 - sent))
            assert (await steady.response()).status == 200

    run(main)


_STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def _taking(length: int) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % length


def test_who_takes_an_answer_too_slowly_makes_room_for_those_who_wait() -> None:
    """A few bytes a minute hold a slot for hours. While nobody waits they may; who takes it at the least rate goes on, and whose backend is the slow one."""
    size = 4_000_000

    async def script(peer: Peer) -> None:
        request = await peer.request()
        if b"/stream" in request.start:
            peer.send(_STREAM)
            for _ in range(1000):
                await asyncio.sleep(0.001)
                peer.send(b"e\r\ndata: token\n\n \r\n")
            peer.send(b"0\r\n\r\n")
        else:
            peer.send(_taking(size) + bytes(size))
        await peer.end()

    async def main() -> None:
        async with world(await Backend(script).start(), narrow=True) as w:
            slow, steady = [await w.client(limit=4096) for _ in range(2)]
            slow.send(b"GET /slow HTTP/1.1\r\nHost: a\r\n\r\n")
            steady.send(b"GET /steady HTTP/1.1\r\nHost: a\r\n\r\n")
            await w.until(lambda: sum(not one.writable for one in w.proxy.clients) == 2)
            for _ in range(20):  # nobody waits
                by_now = sum(one.taken for one in w.gate.judged)
                while sum(one.taken for one in w.gate.judged) == by_now:
                    await slow.reader.read(1000)
                    await steady.reader.read(1000)
                w.pass_time(20)
            w.admission.holds = True
            waiting, stream = [await w.client() for _ in range(2)]
            waiting.send(_GET)
            stream.send(b"GET /stream HTTP/1.1\r\nHost: a\r\n\r\n")
            await w.until(lambda: len(w.admission.waiting) == 2)
            streamed = next(one for one in w.admission.waiting if one.head.path == b"/stream")
            w.admission.waiting.remove(streamed)
            streamed.admitted()
            await w.until(lambda: streamed.answering)
            by = {one.head.path: one for one in w.gate.judged}
            taken = by[b"/steady"].taken
            for _ in range(6):
                with suppress(ConnectionError):
                    await slow.reader.read(1000)
                while by[b"/steady"].taken < taken + 5 * 4096:
                    await steady.reader.read(4096)
                taken = by[b"/steady"].taken
                w.pass_time(5)
            await w.until(lambda: w.ends[by[b"/slow"]] == 1)
            assert w.proxy.stats.refusals["answer_taken_too_slowly"] == 1
            assert by[b"/slow"].refusal is not None
            assert w.ends[by[b"/steady"]] == 0
            assert streamed.answering or w.ends[streamed] == 1
            assert (await stream.response()).whole
            assert w.picker.failures == []

    run(main)
