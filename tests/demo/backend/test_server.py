"""The server's connections: cancellation, faults, back-pressure, and requests that are none."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from http import HTTPStatus

import pytest

from gtm.demo.backend.errors import ApiError
from gtm.demo.backend.faults import HEALTHY, FaultError, InjectedFault, Mode, read_fault
from gtm.demo.backend.profile import Profile
from gtm.demo.backend.protocol import MAX_BODY, MAX_HEAD, MAX_HEADERS
from gtm.demo.backend.server import Backend, Switch
from tests.demo.backend.harness import MODEL, QUICK, Client, ask, running, words

CHAT = "/v1/chat/completions"
SLOW = Profile(step_s=0.02, max_num_seqs=2)


async def once(true: Callable[[], bool]) -> None:
    """Wait until something is true."""
    while not true():  # noqa: ASYNC110 - what is waited for tells nobody
        await asyncio.sleep(0.001)


async def listening(backend: Backend) -> Client:
    """A connection to a backend that will listen again: it says that it is well as soon as it means to be."""
    while True:
        try:
            return await Client.to(backend)
        except ConnectionRefusedError:
            await asyncio.sleep(0.001)


async def silent(client: Client) -> None:
    """Nothing comes to a client, for as long as forty steps take."""
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(client.reader.read(1), 0.04)


async def until(backend: Backend, **wanted: int) -> None:
    """Wait until a backend stands like that."""
    await once(lambda: all(backend.state()[name] == value for name, value in wanted.items()))


def test_a_client_that_goes_holds_nothing() -> None:
    """In a stream, in an answer in one piece, in the queue: slot, blocks and place are free once the socket says so."""

    async def test(backend: Backend) -> None:
        clients = [await Client.to(backend) for _ in range(4)]
        for number, client in enumerate(clients):
            client.send("POST", CHAT, ask(8000, stream=number % 2 == 0, text=str(number)))
            await until(backend, arrived=number + 1)
        await until(backend, running=2, waiting=2)
        assert backend.state()["kv_blocks_used"] > 0
        for left, client in zip((3, 2, 1, 0), reversed(clients), strict=True):
            client.close()
            await until(backend, connections=left)
            # No step in between: what the loss of the connection frees is free in the same callback.
            state = backend.state()
            assert state["running"] + state["waiting"] == left
        assert backend.state()["kv_blocks_used"] == 0
        assert not backend.answers

    running(test, SLOW)


def test_keep_alive_and_pipelining() -> None:
    """Requests of one connection are answered in order, one after the other, also if they come at once."""

    async def test(backend: Backend) -> None:
        client = await Client.to(backend)
        assert (await client.ask("GET", "/health"))[0] == 200
        client.send("POST", CHAT, ask(4, stream=True, text="first"))
        client.send("POST", CHAT, ask(5, text="second"))
        client.send("GET", "/health")
        client.send("GET", "/version")
        assert (await client.head())[0] == 200
        assert len(words(await client.events()).split()) == 4
        status, document = await client.answer()
        assert (status, document["usage"]["completion_tokens"]) == (200, 5)
        assert (await client.answer())[0] == 200
        assert "version" in (await client.answer())[1]

    running(test)


def test_http_1_0_ends_with_the_connection() -> None:
    """No chunks for those who do not know them."""

    async def test(backend: Backend) -> None:
        client = await Client.to(backend)
        body = ask(3, stream=True)
        client.writer.write(
            b"POST %b HTTP/1.0\r\nContent-Length: %d\r\n\r\n%b" % (CHAT.encode(), len(body), body)
        )
        text = await client.reader.read()
        head, _, events = text.partition(b"\r\n\r\n")
        assert b"chunked" not in head
        assert events.startswith(b"data: {")
        assert events.endswith(b"data: [DONE]\n\n")

    running(test)


def test_a_client_that_does_not_read_loses_nothing() -> None:
    """The server keeps no bytes for it beyond its buffer, and goes on where it was."""

    async def test(backend: Backend) -> None:
        client = await Client.to(backend)
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        client.send("POST", CHAT, ask(30_000, stream=True))
        await until(backend, finished=1)
        (connection,) = backend.connections
        assert connection.paused
        unsent = connection._transport.get_write_buffer_size()  # noqa: SLF001
        assert unsent < 2_000_000  # a late tick writes much at once
        client.writer.transport.resume_reading()  # type: ignore[attr-defined]
        assert (await client.head())[0] == 200
        assert len(words(await client.events()).split()) == 30_000
        assert not backend.answers

    running(test, Profile(step_s=0.00002, step_per_sequence_s=0.0, max_model_len=100_000))


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", 404),
        (b"PUT /health HTTP/1.1\r\nContent-Length: 0\r\n\r\n", 404),
        (b"nonsense\r\n\r\n", 400),
        (b"GET /health HTTP/1.1\r\nA B: c\r\n\r\n", 400),
        (b"GET /health HTTP/1.1\r\n" + b"a: b\r\n" * (MAX_HEADERS + 1) + b"\r\n", 431),
        (b"GET /health HTTP/1.1\r\n" + b"a: %b\r\n" % (b"b" * 5000) * 10 + b"\r\n", 431),
        (b"GET /" + b"a" * (3 * MAX_HEAD) + b" HTTP/1.1\r\n\r\n", 431),
        (b"POST %b HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % (CHAT.encode(), MAX_BODY + 1), 413),
        (
            b"POST %b HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n" % CHAT.encode()
            + (b"100000\r\n" + b"a" * 0x100000 + b"\r\n") * 5,
            413,
        ),
        (b"POST %b HTTP/1.1\r\nContent-Length: 1, 2\r\n\r\n{}" % CHAT.encode(), 400),
        (b"POST %b HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}" % CHAT.encode(), 400),
        (b"POST %b HTTP/1.1\r\nContent-Length: 2\r\n\r\n\xff\xfe" % CHAT.encode(), 400),
    ],
)
def test_bad_requests(sent: bytes, status: int) -> None:
    """They are answered with what was wrong, in OpenAI's form."""

    async def test(backend: Backend) -> None:
        client = await Client.to(backend)
        client.writer.write(sent)
        found, document = await client.answer()
        assert found == status
        assert set(document["error"]) == {"message", "type", "param", "code"}
        assert document["error"]["message"]

    running(test)


@pytest.mark.parametrize(
    ("more", "param"),
    [
        ({"n": 2}, "n"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"model": 5}, None),
        ({"model": "none"}, "model"),
        ({"max_tokens": 9000}, "messages"),
    ],
)
def test_bad_bodies(more: dict[str, object], param: str | None) -> None:
    """The field that is wrong is named."""

    async def test(backend: Backend) -> None:
        client = await Client.to(backend)
        status, document = await client.ask("POST", CHAT, json.dumps(json.loads(ask()) | more).encode())
        assert status == (404 if param == "model" else 400)
        assert document["error"]["param"] == param
        # The connection goes on.
        assert (await client.ask("POST", CHAT, ask(1)))[0] == 200

    running(test)


def test_expect_continue() -> None:
    """A client that asks first is told to go on."""

    async def test(backend: Backend) -> None:
        client = await Client.to(backend)
        body = ask(1)
        client.writer.write(
            b"POST %b HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n"
            % (CHAT.encode(), len(body))
        )
        assert (await client.head())[0] == 100
        client.writer.write(body)
        assert (await client.answer())[0] == 200

    running(test)


async def broken(backend: Backend, mode: Mode, **numbers: float) -> Client:
    """A backend that fails, and a client of it."""
    client = await Client.to(backend)
    status, _ = await client.ask("POST", "/demo/fail", json.dumps({"mode": mode.value, **numbers}).encode())
    assert status == 200
    await once(lambda: backend.engine.fault.mode is mode)
    return client


def test_refuse() -> None:
    """Nothing listens, what was open breaks off; it ends by itself where it was set for a time."""

    async def test(backend: Backend) -> None:
        client = await Client.to(backend)
        client.send("POST", CHAT, ask(8000, stream=True))
        await until(backend, running=1)
        await broken(backend, Mode.REFUSE, seconds=0.05)
        assert (await client.head())[0] == 200
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await client.events()
        assert backend.state()["running"] == 0
        with pytest.raises(ConnectionError):
            await Client.to(backend)
        await once(lambda: backend.engine.fault.mode is Mode.OK)
        assert (await (await listening(backend)).ask("POST", CHAT, ask(1)))[0] == 200

    running(test, SLOW)


def test_hang_and_dead() -> None:
    """A hanging server answers nothing; one with a dead engine says that it is well. Both go on when healed."""

    async def test(backend: Backend) -> None:
        client = await broken(backend, Mode.HANG)
        client.send("GET", "/health")
        other = await broken(backend, Mode.DEAD)
        assert (await other.ask("GET", "/health"))[0] == 200
        assert (await other.ask("GET", "/v1/models"))[0] == 200
        other.send("POST", CHAT, ask(5, stream=True))
        assert (await other.head())[0] == 200
        await until(backend, arrived=1)
        await silent(client)
        await silent(other)
        assert backend.state()["waiting"] == 1
        await backend.switch(HEALTHY)
        assert len(words(await other.events()).split()) == 5

    running(test)


@pytest.mark.parametrize("stream", [True, False])
def test_stall(stream: bool) -> None:
    """A stream stops after so many tokens, and goes on after the time, or when the server is healed."""

    async def test(backend: Backend) -> None:
        client = await broken(backend, Mode.STALL, after=4, seconds=86_400)
        client.send("POST", CHAT, ask(20, stream=stream))
        await until(backend, finished=1)
        if stream:
            assert (await client.head())[0] == 200
            read = [await client.chunk() for _ in range(5)]
            assert len(words(read).split()) == 4
        await silent(client)
        await backend.switch(HEALTHY)
        if stream:
            assert len(words(await client.events()).split()) == 16
        else:
            assert (await client.answer())[0] == 200
        await backend.switch(InjectedFault(Mode.STALL, seconds=0.01))
        assert (await (await Client.to(backend)).ask("POST", CHAT, ask(20)))[0] == 200

    running(test)


@pytest.mark.parametrize("stream", [True, False])
def test_reset(stream: bool) -> None:
    """The connection is reset, and the request holds nothing any more."""

    async def test(backend: Backend) -> None:
        client = await broken(backend, Mode.RESET, after=4)
        client.send("POST", CHAT, ask(8000, stream=stream))
        with pytest.raises(ConnectionResetError):
            await client.reader.read()
        await until(backend, running=0, kv_blocks_used=0)
        await backend.switch(HEALTHY)
        assert (await (await Client.to(backend)).ask("POST", CHAT, ask(1)))[0] == 200

    running(test)


def test_out_of_memory() -> None:
    """Everything in the engine ends with an error at once; health says so; a healed server serves again."""

    async def test(backend: Backend) -> None:
        stream, whole, queued = [await Client.to(backend) for _ in range(3)]
        stream.send("POST", CHAT, ask(8000, stream=True))
        await until(backend, running=1)
        whole.send("POST", CHAT, ask(8000))
        await until(backend, running=2)
        queued.send("POST", CHAT, ask(8000))
        await until(backend, waiting=1)
        client = await broken(backend, Mode.OOM)
        assert (await stream.head())[0] == 200
        events = await stream.events()
        assert b"EngineCore" in b"".join(events)
        assert events[-1] == b"data: [DONE]\n\n"
        for one in (whole, queued):
            assert (await one.answer())[0] == 500
        assert (await client.ask("GET", "/health"))[0] == 503
        assert (await client.ask("POST", CHAT, ask()))[0] == 500
        assert backend.state()["kv_blocks_used"] == backend.state()["kv_blocks_kept"] == 0
        await backend.switch(HEALTHY)
        assert (await client.ask("POST", CHAT, ask(1)))[0] == 200

    running(test, SLOW)


def test_unloaded_and_error() -> None:
    """404 without models, none of them listed; 500 with health at 200."""

    async def test(backend: Backend) -> None:
        client = await broken(backend, Mode.UNLOADED)
        assert (await client.ask("POST", CHAT, ask()))[0] == 404
        assert (await client.ask("GET", "/v1/models"))[1]["data"] == []
        client = await broken(backend, Mode.ERROR)
        assert (await client.ask("POST", CHAT, ask()))[0] == 500
        assert (await client.ask("GET", "/health"))[0] == 200

    running(test)


def test_switch_reaches_those_who_refuse() -> None:
    """One address for all backends of a process."""

    async def test(backend: Backend) -> None:
        other = Backend(QUICK, [MODEL])
        switch = Switch((backend, other))
        await other.start()
        try:
            await asked(backend, other, await switch.start("127.0.0.1", 0))
        finally:
            other.stop()
            switch.stop()

    async def asked(backend: Backend, other: Backend, url: str) -> None:
        host, _, port = url.removeprefix("http://").rpartition(":")
        client = await Client.at(host, int(port))
        status, document = await client.ask("POST", "/demo/fail?backend=1", b'{"mode": "refuse"}')
        assert status == 200
        assert [one["fault"]["mode"] for one in document["backends"]] == ["ok", "refuse"]
        with pytest.raises(ConnectionError):
            await Client.to(other)
        for wrong in ("2", "-1", "x"):
            assert (await client.ask("POST", f"/demo/fail?backend={wrong}", b'{"mode": "dead"}'))[0] == 400
        await client.ask("POST", "/demo/fail", b'{"mode": "ok"}')
        _, document = await client.ask("GET", "/demo/state")
        assert [one["fault"]["mode"] for one in document["backends"]] == ["ok", "ok"]
        assert (await (await listening(other)).ask("GET", "/health"))[0] == 200
        assert (await client.ask("GET", "/health"))[0] == 404

    running(test)


def test_models_take_time() -> None:
    """While a model loads it is not there: 404, or the request waits where it may; what does not fit is refused."""

    async def wait(backend: Backend) -> None:
        client = await Client.to(backend)
        assert (await client.ask("GET", "/health"))[0] == 503
        assert (await client.ask("GET", "/v1/models"))[1]["data"] == []
        gone = await Client.to(backend)
        gone.send("POST", CHAT, ask(1))
        await until(backend, waiting=1)
        gone.close()
        await until(backend, waiting=0)
        assert (await client.ask("POST", CHAT, ask(1)))[0] == 200
        assert (await client.ask("GET", "/health"))[0] == 200
        assert (await client.ask("POST", "/demo/unload", b'{"model": "llama"}'))[1]["models"] == {
            MODEL: "unloaded"
        }
        assert (await client.ask("POST", CHAT, ask(1)))[0] == 200

    running(wait, Profile(model_load_s=0.05), loaded=False, on_demand=True)

    async def refuse(backend: Backend) -> None:
        client = await Client.to(backend)
        assert (await client.ask("POST", CHAT, ask(1)))[0] == 404
        assert (await client.ask("POST", "/demo/load", b'{"model": "other"}'))[0] == 404
        assert (await client.ask("POST", "/demo/load", b"[]"))[0] == 400
        await once(lambda: backend.state()["models"] == {MODEL: "loaded"})
        assert (await client.ask("POST", CHAT, ask(1)))[0] == 200

    running(refuse, Profile(model_load_s=0.05), loaded=False)
    with pytest.raises(ApiError) as small:
        running(refuse, Profile(gpu_memory_bytes=10**9))
    assert small.value.status == HTTPStatus.SERVICE_UNAVAILABLE


@pytest.mark.parametrize(
    "text",
    [b"", b"[]", b'{"mode": "none"}', b'{"mode": "ok", "more": 1}', b'{"mode": "slow", "factor": 0}', b'{"mode": "ok", "seconds": -1}', b'{"mode": "stall", "after": -1}'],
)  # fmt: skip
def test_faults_that_are_none(text: bytes) -> None:
    """They are refused, with the modes that there are."""
    with pytest.raises(FaultError, match="refuse"):
        read_fault(text)


def test_slow() -> None:
    """Steps take longer by the factor, from the next one on."""
    from gtm.demo.backend.engine import Engine
    from gtm.demo.backend.models import Models
    from gtm.demo.backend.requests import read_chat

    class Nobody:
        def progressed(self) -> None:
            """Nobody listens."""

    times = {}
    for fault in (HEALTHY, InjectedFault(Mode.SLOW, factor=4.0)):
        engine = Engine(QUICK, Models(QUICK, [MODEL]))
        engine.switch(fault, 0.0)
        engine.submit(read_chat(ask(10)), Nobody(), 0.0)
        now: float | None = 0.0
        while now is not None:
            times[fault.mode] = now
            _, now = engine.advance(now)
    assert times[Mode.SLOW] == pytest.approx(4 * times[Mode.OK])
