"""How a request ends: cancelled, failed, sent again, answered early, refused by an error."""

from __future__ import annotations

import asyncio
import errno
import json
from typing import Any

import pytest

from gtm.balancer.plane.backend.backends import Route
from gtm.balancer.plane.contracts import Limits
from gtm.balancer.plane.exchange import FIRST, Exchange
from gtm.balancer.wire.refusals import Refusal
from tests.balancer.world import Backend, Message, Peer, World, answering, read_head, run, world
from tests.patience import PATIENCE

_GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
_OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
_EVENTS = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def _post(body: bytes, *more: bytes) -> bytes:
    lines = b"".join(line + b"\r\n" for line in more)
    return b"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n%b\r\n%b" % (len(body), lines, body)


# --- cancellation ---


async def _gone(peer: Peer) -> None:
    assert await peer.end() == b""


def test_cancel_reaches_the_backend() -> None:
    """A client that goes takes its request with it, whatever it waits for: the backend sees the end, and nothing is in flight."""
    began, seen = asyncio.Event(), asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        began.set()
        await _gone(peer)
        seen.set()

    async def main() -> None:
        async with world(await Backend(script).start()) as w:
            for leave in (Peer.close, Peer.abort):
                began.clear()
                seen.clear()
                client = await w.client()
                client.send(_GET)
                await began.wait()
                assert w.picker.in_flight == 1
                leave(client)
                await seen.wait()
                assert w.picker.in_flight == 0
            assert w.picker.ends == ["cancelled"] * 2

    run(main)


def test_cancel_in_the_middle_of_a_stream() -> None:
    """A stream that nobody reads any more ends at the backend."""
    seen = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        peer.send(_EVENTS + _chunk(b"data: 1\n\n"))
        await _gone(peer)
        seen.set()

    async def main() -> None:
        async with world(await Backend(script).start()) as w:
            client = await w.client()
            client.send(_GET)
            await client.reader.readuntil(b"data: 1\n\n")
            client.close()
            await seen.wait()
            assert w.picker.in_flight == 0

    run(main)


def test_a_half_closed_client_is_gone() -> None:
    """A client that says that it sends no more is taken for gone."""
    began = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        began.set()
        await _gone(peer)

    async def main() -> None:
        async with world(await Backend(script).start()) as w:
            client = await w.client()
            client.send(_GET)
            await began.wait()
            client.writer.write_eof()
            assert await client.end() == b""
            assert w.picker.ends == ["cancelled"]

    run(main)


# --- lost backends, retries ---


def test_a_stream_that_breaks_off() -> None:
    """A stream of events that breaks off ends with an event that says so, and never with the last chunk."""

    async def script(peer: Peer) -> None:
        request = await peer.request()
        peer.send(_EVENTS + _chunk(b"data: 1\n\n"))
        if b"/middle" in request.start:
            peer.send(_chunk(b"data: half"))
        await asyncio.sleep(0.01)
        peer.abort()

    async def main() -> None:
        async with world(await Backend(script).start()) as w:
            answer = await w.ask(_GET)
            assert not answer.whole
            assert answer.body.startswith(b"data: 1\n\ndata: {")
            assert b'"backend_lost"' in answer.body
            assert answer.body.endswith(b"\n\n")
            middle = await w.ask(_GET.replace(b"/", b"/middle", 1))
            assert (middle.body, middle.whole) == (b"data: 1\n\ndata: half", False)
            assert w.picker.ends == ["failed"] * 2
            assert len(w.picker.failures) == 2
            (url,) = w.picker.counts
            assert w.proxy.stats.requests == {(url, 200, "broken"): 2}  # by the backend that broke it off

    run(main)


@pytest.mark.parametrize(
    ("path", "name", "kind"),
    [
        ("/v1/messages", b"event: error\n", {"type": "api_error"}),
        ("/v1/responses", b"event: error\n", {"type": "server_error", "code": "backend_lost"}),
        ("/v1/chat/completions", b"", {"type": "server_error", "code": "backend_lost"}),
        ("/v1/completions", b"", {"type": "server_error", "code": "backend_lost"}),
    ],
)
def test_the_last_event_is_one_of_the_api_that_was_asked(
    path: str, name: bytes, kind: dict[str, str]
) -> None:
    """BerriAI/litellm#41826, earendil-works/pi#1983: Anthropic's clients drop events without a name, and say that a proxy has cut the stream."""

    async def script(peer: Peer) -> None:
        await peer.request()
        peer.send(_EVENTS + _chunk(b"data: 1\n\n"))
        await peer.writer.drain()
        peer.writer.transport.close()

    async def main() -> None:
        async with world(await Backend(script).start()) as w:
            answer = await w.ask(
                b"POST %b HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}" % path.encode()
            )
            assert not answer.whole
            before, _, last = answer.body.partition(b"data: 1\n\n")
            assert (before, last[: len(name) + 6], last[-2:]) == (b"", name + b"data: ", b"\n\n")
            said = json.loads(last[len(name) + 6 :])
            assert said["error"].items() >= kind.items()
            assert "broke off" in said["error"]["message"]
            assert said.get("type") == ("error" if name else None)
            assert (path != "/v1/responses") or said["message"] == said["error"]["message"]

    run(main)


def test_a_backend_is_called_by_the_host_that_the_file_says() -> None:
    """kserve/kserve#740, #2757: an ingress routes by Host, and knows the model's name alone."""

    async def main() -> None:
        seen: list[Message] = []
        async with world(await Backend(answering(_OK, _OK, seen=seen)).start()) as w:
            (route,) = w.picker.routes()
            for host in (b"llama-predictor.models.example.com", None):
                route.host_field = host
                assert (await w.ask(_GET)).status == 200
            assert [one.get("host") for one in seen] == [b"llama-predictor.models.example.com", b"a"]

    run(main)


def test_an_answer_without_a_length_that_breaks_off() -> None:
    """To HTTP/1.0, where the connection's end is the answer's, it must not look like one."""

    async def script(peer: Peer) -> None:
        await peer.request()
        peer.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + _chunk(b"half"))
        await asyncio.sleep(0.01)
        peer.abort()

    async def main() -> None:
        async with world(await Backend(script).start()) as w:
            client = await w.client()
            client.send(b"GET / HTTP/1.0\r\nHost: a\r\n\r\n")
            await read_head(client.reader)
            reset = False
            try:
                await asyncio.wait_for(client.reader.read(), PATIENCE)
            except ConnectionResetError:
                reset = True
            assert reset

    run(main)


def test_retries() -> None:
    """Another backend is asked where none can have begun, or the method or a key allows it; else the failure is told."""

    async def dies(peer: Peer) -> None:
        await peer.request()
        peer.abort()

    async def main() -> None:
        good = await Backend(answering(_OK)).start()
        dead = await Backend(dies).start()
        for raw, status in (
            (_GET, 200),
            (_post(b"x"), 502),
            (_post(b"x", b"Idempotency-Key: 1"), 200),
            (_post(b"x").replace(b"POST", b"PUT"), 200),
            (_post(b"x" * 100_000).replace(b"POST", b"PUT"), 502),  # no longer kept
        ):
            async with world(dead, good) as w:
                assert (await w.ask(raw)).status == status, raw[:30]
                assert len(w.picker.failures) == 1
        async with world("http://127.0.0.1:1", good) as w:  # nobody listens: nothing was sent
            assert (await w.ask(_post(b"x"))).status == 200
        async with world(dead, good, limits=Limits(retries_free=0, retry_share=0)) as w:
            assert (await w.ask(_GET)).status == 502  # the budget

    run(main)


def test_what_nobody_took_goes_to_another_beside_the_budget() -> None:
    """A server that is gone: all that would have gone there is served elsewhere, however many they are; three are tried."""
    gone = [f"http://127.0.0.1:{port}" for port in (1, 2, 3)]
    none = Limits(retries_free=0, retry_share=0)

    async def main() -> None:
        good = await Backend(answering(_OK)).start()
        async with world(*gone[:2], good, limits=none) as w:
            answers = await asyncio.gather(*(w.ask(_post(b"x")) for _ in range(20)))
            assert [one.status for one in answers] == [200] * 20
            assert len(w.picker.failures) == 40
            assert w.proxy.stats.retries == 40
        async with world(*gone, good, limits=none) as w:
            assert (await w.ask(_post(b"x"))).status == 502
            assert len(w.picker.failures) == 3
        connect = Route.connect

        async def unreachable(route: Route, *args: Any) -> Any:
            if route.url in gone:
                raise OSError(errno.EHOSTUNREACH, "no route to host")
            return await connect(route, *args)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Route, "connect", unreachable)
            async with world(gone[0], good, limits=none) as w:  # it may be there, and have too much to do
                assert (await w.ask(_post(b"x"))).status == 502
            async with world(gone[0], good, limits=Limits(retries_free=1, retry_share=0)) as w:
                assert (await w.ask(_post(b"x"))).status == 200

    run(main)


def test_no_retry_once_an_answer_began() -> None:
    """A backend that has said 103 has begun."""

    async def dies(peer: Peer) -> None:
        await peer.request()
        peer.send(b"HTTP/1.1 103 Early Hints\r\n\r\n")
        await asyncio.sleep(0.01)
        peer.abort()

    async def main() -> None:
        good = Backend(answering(_OK))
        async with world(await Backend(dies).start(), await good.start()) as w:
            client = await w.client()
            client.send(_GET)
            assert (await client.response()).status == 103
            assert (await client.response()).status == 502
            assert not good.connections

    run(main)


def test_an_answer_before_the_body() -> None:
    """An early answer goes to the client while it still sends; then the connection ends, and the backend's too."""

    async def script(peer: Peer) -> None:
        await read_head(peer.reader)
        peer.send(b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 2\r\n\r\nno")
        await _gone_after_bytes(peer)

    async def main() -> None:
        async with world(await Backend(script).start()) as w:
            client = await w.client()
            client.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n" + bytes(FIRST + 1))
            answer = await client.response()
            assert (answer.status, answer.body, answer.get("connection")) == (413, b"no", b"close")
            assert await client.end() == b""
            for _ in range(3):  # taken, and read by nobody: a reset would take the answer away
                client.send(b"x" * 100_000)
                await client.writer.drain()
                await asyncio.sleep(0.01)

    run(main)


async def _gone_after_bytes(peer: Peer) -> None:
    try:
        while await peer.reader.read(65536):
            pass
    except ConnectionError:
        pass


# --- errors of gtm's own ---


def test_what_raises_inside_ends_one_request_only() -> None:
    """A gate, admission or picker that raises costs its request a 500, and no count."""

    class WrongError(Exception): ...

    def raises(*_: object) -> None:
        raise WrongError

    async def main() -> None:
        for part, name in (
            ("gate", "judge"),
            ("gate", "more_headers"),
            ("admission", "offer"),
            ("picker", "pick"),
        ):
            async with world(await Backend(answering(_OK)).start()) as w:
                owner = getattr(w, part)
                old = getattr(owner, name)
                setattr(owner, name, raises)
                client = await w.client()
                client.send(_GET)
                assert (await client.response()).status == 500, name
                setattr(owner, name, old)
                await w.until(lambda w=w: not w.picker.in_flight)  # type: ignore[misc]
                assert (await w.ask(_GET)).status == 200
                w.admission.wrong.clear()  # it never heard of what it raised for

    run(main)


def test_many_refused_at_once() -> None:
    """A queue that empties into refusals, each making room for the next, needs no stack."""

    async def main() -> None:
        async with world(await Backend(answering(_OK)).start()) as w:
            await _chain(w)

    run(main)


async def _chain(w: World) -> None:
    admission = w.admission
    admission.holds = True
    clients = [await w.client() for _ in range(300)]
    for client in clients:
        client.send(_GET)
    await w.until(lambda: len(admission.waiting) == len(clients))
    w.picker.pick = lambda *_: Refusal(503, "no_backend", "x")  # type: ignore[method-assign]
    ended = admission.ended

    def next_please(exchange: object, now: float) -> None:
        ended(exchange, now)  # type: ignore[arg-type]
        if admission.waiting:
            admission.waiting[0].admitted()

    admission.ended = next_please  # type: ignore[method-assign]
    admission.waiting[0].admitted()
    for client in clients:
        assert (await client.response()).status == 503


def test_all_of_a_new_request_is_set() -> None:
    """Its constructor is written by hand: an attribute that it forgot would fail the first request that asks for it."""

    async def main() -> None:
        async with world(await Backend(answering(_OK)).start()) as w:
            await w.ask(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            (exchange,) = w.gate.judged
            new = Exchange(w.proxy, exchange.client, exchange.head)
            assert all(hasattr(new, name) for name in Exchange.__slots__)

    run(main)
