"""What people filed against other routers and gateways for model servers, tried here: each test names its source, and most hold what had held before.

Against a whole balancer with its real queue, choice and health, before servers that behave as the report tells.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable

import pytest

from gtm.balancer.wire.facts import PromptCut
from gtm.balancer.wire.responses import status_said
from gtm.core.balance.backends import Backend as Server
from gtm.core.balance.backends import Scraped
from gtm.core.balance.choosing.values import ChoosingSettings, Prefix
from gtm.core.balance.flights import SCRAPED_LASTS_S
from gtm.core.balance.health.settings import HealthSettings
from gtm.core.balance.health.values import BackendState
from tests.balancer.test_full import Region, region
from tests.balancer.world import Message, Peer, read_body, read_head, run
from tests.patience import PATIENCE

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
EVENTS = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def _post(document: object = None, *lines: bytes) -> bytes:
    body = json.dumps({"model": "m", "messages": []} if document is None else document).encode()
    more = b"".join(line + b"\r\n" for line in lines) or b"Content-Type: application/json\r\n"
    return b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n%b\r\n%b" % (
        len(body),
        more,
        body,
    )


def _status(status: int, body: bytes = b"{}") -> bytes:
    return b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%b" % (status, len(body), body)


Act = Callable[["Says", Peer, Message], bytes]


class Says:
    """A server that answers each request by what a test has it do; None: it holds it for ever."""

    def __init__(self, answer: bytes | None = OK) -> None:
        self.answer = answer
        self.asked: list[Message] = []
        self.open: set[Peer] = set()

    def finish(self) -> None:
        """Nothing runs."""

    async def __call__(self, peer: Peer) -> None:
        self.open.add(peer)
        try:
            while True:
                message = await read_body(peer.reader, await read_head(peer.reader))
                self.asked.append(message)
                if self.answer is None:
                    await peer.reader.read()
                    return
                peer.send(self.answer)
        finally:
            self.open.discard(peer)


def _counts(here: Region) -> list[int]:
    return [one.flight.requests for one in here.picker.pool.candidates]


async def _idle(here: Region) -> None:
    """Nothing runs and nothing waits, as far as anybody counts."""
    admission = here.queue.admission
    await here.until(lambda: not any(_counts(here)) and not admission.running and not admission.waiting)


def test_clients_that_leave_take_their_count_with_them() -> None:
    """vllm-project/router#215, ray-project/ray#37943: each request whose client left leaked a count, until every new prompt went to the one server that had begun anew.

    They leave in the queue, before an answer, and in one.
    """

    async def main() -> None:
        holding, streaming = Says(None), Says(EVENTS + _chunk(b"data: 1\n\n"))
        draw = random.Random(3)
        async with region(holding, streaming, slots=4) as here:  # type: ignore[arg-type]
            for _ in range(6):
                peers = []
                for _ in range(14):
                    reader, writer = await asyncio.open_connection(*here.address)
                    peers.append(Peer(reader, writer))
                    peers[-1].send(_post())
                await here.until(lambda: here.queue.has_waiting and sum(_counts(here)) == 8)
                draw.shuffle(peers)
                for peer in peers:
                    peer.abort()
                await _idle(here)
            assert here.picker.free_slots() == 8

    run(main)


def test_a_request_whose_client_left_in_the_queue_reaches_no_server() -> None:
    """ray-project/ray#41057, ray-project/ray#44644: abandoned requests filled the servers, and those behind them failed."""

    async def main() -> None:
        server = Says(None)
        async with region(server, slots=1) as here:  # type: ignore[arg-type]
            reader, writer = await asyncio.open_connection(*here.address)
            first = Peer(reader, writer)
            first.send(_post())
            await here.until(lambda: len(server.asked) == 1)
            waiting = []
            for _ in range(5):
                reader, writer = await asyncio.open_connection(*here.address)
                waiting.append(Peer(reader, writer))
                waiting[-1].send(_post())
            await here.until(lambda: here.queue.admission.waiting == 5)
            for peer in waiting:
                peer.abort()
            await here.until(lambda: not here.queue.has_waiting)
            server.answer = OK
            first.abort()
            assert (await here.ask(_post())).status == 200
            assert len(server.asked) == 2

    run(main)


def test_what_a_client_does_wrong_takes_no_server_down() -> None:
    """sgl-project/sglang#25811: prompts beyond the model's context (400) opened the breakers of all workers, and sound requests were refused."""

    async def main() -> None:
        servers = [Says(_status(400, b'{"error": {"message": "context length exceeded"}}')) for _ in range(3)]
        async with region(*servers) as here:  # type: ignore[arg-type]
            for _ in range(60):
                assert (await here.ask(_post())).status == 400
            here.look()
            assert BackendState.EJECTED not in here.states
            for server in servers:
                server.answer = OK
            for _ in range(9):
                assert (await here.ask(_post())).status == 200

    run(main)


def test_all_servers_may_die_under_load_and_come_back() -> None:
    """sgl-project/sglang#7028: with clients asking all the while the router never recovered, though workers were back."""

    async def main() -> None:
        servers = [Says(), Says()]
        async with region(*servers) as here:  # type: ignore[arg-type]
            for server in servers:
                server.answer = b"no HTTP at all\r\n\r\n"
            said = [(await here.ask(_post())).status for _ in range(30)]
            assert set(said) <= {502, 503}
            here.check(ok=False)
            here.check(ok=False)
            assert (await here.ask(_post())).status == 503
            for server in servers:
                server.answer = OK
            here.check(ok=True)
            here.check(ok=True)
            assert [(await here.ask(_post())).status for _ in range(10)] == [200] * 10
            await _idle(here)

    run(main)


def test_a_server_that_hangs_holds_up_nobody_at_another() -> None:
    """vllm-project/production-stack#749: one backend that did not answer blocked requests to all others."""

    async def main() -> None:
        hanging, well = Says(None), Says()
        async with region(hanging, well) as here:  # type: ignore[arg-type]
            held = []
            for _ in range(20):
                reader, writer = await asyncio.open_connection(*here.address)
                held.append(Peer(reader, writer))
                held[-1].send(_post())
            await here.until(lambda: len(hanging.asked) + len(well.asked) == 20)
            assert len(well.asked) > len(hanging.asked)  # it has more to do, and gets less
            before = len(hanging.asked)
            for _ in range(20):
                assert (await here.ask(_post())).status == 200
            assert len(hanging.asked) == before
            for peer in held:
                peer.abort()

    run(main)


@pytest.mark.parametrize("age", [0.0, 2 * SCRAPED_LASTS_S])
def test_old_figures_stop_nobody(age: float) -> None:
    """llm-d/llm-d-router#2408: metrics of the only server that were not fresh counted as full, and each request took 9.7 s where the server took 40 ms."""

    async def main() -> None:
        async with region(Says(), slots=2) as here:  # type: ignore[arg-type]
            loop = asyncio.get_running_loop()
            (one,) = here.picker.pool.candidates
            here.picker.flights.asking(one.backend.name)
            here.picker.flights.scraped(one.backend.name, Scraped(0, 0, loop.time() - age))
            here.picker.flights.settle(loop.time())
            here.look()
            for _ in range(5):
                assert (await here.ask(_post())).status == 200
            assert not here.queue.admission.snapshot().tiers["real_time"].queued  # type: ignore[index]

    run(main)


def test_old_figures_of_an_idle_server_draw_nobody() -> None:
    """kubernetes-sigs/gateway-api-inference-extension#1497: one whose last figures said that it is idle got all requests, for as long as it said nothing new."""

    async def main() -> None:
        servers = [Says(None) for _ in range(3)]
        async with region(*servers, slots=64) as here:  # type: ignore[arg-type]
            loop = asyncio.get_running_loop()
            flights = here.picker.flights
            for number, one in enumerate(here.picker.pool.candidates):
                flights.asking(one.backend.name)
                # The first was idle long ago; the others have two of somebody's each now.
                said = Scraped(0, 0, loop.time() - 60) if not number else Scraped(2, 0, loop.time())
                flights.scraped(one.backend.name, said)
            flights.settle(loop.time())
            held = []
            for _ in range(30):
                reader, writer = await asyncio.open_connection(*here.address)
                held.append(Peer(reader, writer))
                held[-1].send(_post())
            await here.until(lambda: sum(len(one.asked) for one in servers) == 30)
            assert max(len(one.asked) for one in servers) <= 12
            for peer in held:
                peer.abort()

    run(main)


def test_a_prompt_that_nobody_has_goes_to_who_has_least_to_do() -> None:
    """sgl-project/sglang#14532: it went to the server with the smallest cache, however full that was, until it died."""

    async def main() -> None:
        servers = [Says(None), Says(None)]
        async with region(*servers) as here:  # type: ignore[arg-type]
            backends = [one.backend for one in here.picker.pool.candidates]
            here.picker.configure(backends, ChoosingSettings(prefix=Prefix.MAP), cut=PromptCut(64))
            loaded, idle = (here.picker.flights.of(one.name) for one in backends)
            for number in range(200):  # the idle one has a large cache, the loaded one next to none
                here.picker.prefixes.sent(backends[1].name, (number,))
            for _ in range(20):
                loaded.begin(1.0)
            here.look()
            held = []
            for number in range(10):
                reader, writer = await asyncio.open_connection(*here.address)
                held.append(Peer(reader, writer))
                content = f"prompt {number} " * 50
                held[-1].send(_post({"model": "m", "messages": [{"role": "user", "content": content}]}))
            await here.until(lambda: sum(len(one.asked) for one in servers) == 10)
            assert (len(servers[0].asked), idle.requests) == (0, 10)
            for peer in held:
                peer.abort()

    run(main)


def test_counts_of_a_server_that_leaves_and_returns_are_right() -> None:
    """skypilot-org/skypilot#10444: an end after its server had left made its count -1, and the server drew more than its share when it was back; failures were never taken off."""

    async def main() -> None:
        servers = [Says(None), Says()]
        async with region(*servers) as here:  # type: ignore[arg-type]
            backends = [one.backend for one in here.picker.pool.candidates]
            reader, writer = await asyncio.open_connection(*here.address)
            client = Peer(reader, writer)
            here.picker.configure(backends[:1], ChoosingSettings())
            here.look()
            client.send(_post())
            await here.until(lambda: len(servers[0].asked) == 1)
            here.picker.configure(backends[1:], ChoosingSettings())
            here.look()
            client.abort()
            await here.until(lambda: not here.queue.admission.running)
            here.picker.configure(backends, ChoosingSettings())
            here.check(ok=True)
            assert _counts(here) == [0, 0]
            servers[0].answer = b"no HTTP at all\r\n\r\n"
            for _ in range(8):
                await here.ask(_post())
            assert _counts(here) == [0, 0]

    run(main)


@pytest.mark.parametrize(
    "said",
    [
        b"Content-Type: application/json; charset=utf-8",
        b"content-type: Application/JSON;charset=UTF-8",
        b"Content-Type: text/plain",
        b"X-No-Type: 1",
    ],
)
def test_a_chat_is_read_whatever_its_type_says(said: bytes) -> None:
    """vllm-project/aibrix#1111: with a charset in its Content-Type a chat went another way, and was answered by 500."""

    async def main() -> None:
        chat, other = Says(), Says(_status(404))
        async with region(chat, other) as here:  # type: ignore[arg-type]
            urls = [one.backend.name for one in here.picker.pool.candidates]
            names = (frozenset(("m",)), frozenset(("n",)))
            backends = [Server(url, models=models) for url, models in zip(urls, names, strict=True)]
            here.picker.configure(backends, ChoosingSettings())
            here.look()
            for _ in range(4):
                assert (await here.ask(_post(None, said))).status == 200
            assert not other.asked

    run(main)


def test_many_requests_over_one_connection_are_answered_each_by_its_own() -> None:
    """vllm-project/production-stack#612: after as many requests as there were connections all others got 400."""

    class Echo(Says):
        async def __call__(self, peer: Peer) -> None:
            while True:
                message = await read_body(peer.reader, await read_head(peer.reader))
                self.asked.append(message)
                last = not len(self.asked) % 3
                peer.send(
                    _status(200, message.body).replace(
                        b"X\r\n", b"X\r\nConnection: close\r\n" if last else b"X\r\n"
                    )
                )
                if last:
                    return  # it closes a connection now and then, as servers do

    async def main() -> None:
        async with region(Echo(), Echo()) as here:  # type: ignore[arg-type]

            async def one(number: int) -> None:
                reader, writer = await asyncio.open_connection(*here.address)
                peer = Peer(reader, writer)
                for turn in range(20):
                    document = {"model": "m", "n": number, "turn": turn, "x": "x" * (turn * 37)}
                    peer.send(_post(document))
                    answer = await peer.response()
                    assert (answer.status, json.loads(answer.body)) == (200, document)
                peer.close()

            async with asyncio.timeout(PATIENCE):
                await asyncio.gather(*(one(number) for number in range(8)))
            await _idle(here)

    run(main)


ERROR_EVENTS = [
    pytest.param(
        b'data: {"error": {"message": "EngineCore encountered an issue", "type": "InternalServerError", "code": 500}}\n\ndata: [DONE]\n\n',
        500,
        id="vLLM",
    ),
    pytest.param(
        b'data: {"id":"gen-1","object":"chat.completion.chunk","choices":[],"error":{"code":"502","message":"provider_unavailable"}}\n\n',
        502,
        id="diegosouzapw/OmniRoute#8210",
    ),
    pytest.param(
        b'data: {"error":{"code":11200,"message":"AppIdNoAuthError"}}\n\n', 500, id="burncloud/burncloud#350"
    ),
    pytest.param(
        b'event: error\ndata: {"type":"error","error":{"type":"api_error"}}\n\n', 500, id="Anthropic"
    ),
    pytest.param(
        b'event: error\r\ndata: {"type":"error","code":"server_error","message":"x"}\r\n\r\n',
        500,
        id="responses",
    ),
    pytest.param(
        b'data:{"error":"Request failed during generation","error_type":"generation"}\n\n', 500, id="TGI"
    ),
]


@pytest.mark.parametrize(("said", "status"), ERROR_EVENTS)
def test_a_stream_that_says_nothing_but_that_it_failed_is_a_failure(said: bytes, status: int) -> None:
    """Its head says 200, for it came before the engine had done anything: a server whose streams all end so was the fastest of all, and drew all others'."""

    async def main() -> None:
        dead, well = (
            Says(EVENTS + _chunk(said) + b"0\r\n\r\n"),
            Says(EVENTS + _chunk(b"data: 1\n\n") + b"0\r\n\r\n"),
        )
        assert status_said(said) == status_said(_chunk(said)) == status
        async with region(dead, well) as here:  # type: ignore[arg-type]
            for _ in range(60):
                answer = await here.ask(_post())
                assert answer.status == 200
                assert answer.body in (said, b"data: 1\n\n")  # the client gets it as it is
            here.look()
            assert [one is BackendState.EJECTED for one in here.states] == [True, False]
            asked = len(dead.asked)
            for _ in range(10):
                assert (await here.ask(_post())).body == b"data: 1\n\n"
            assert len(dead.asked) == asked

    run(main)


def test_what_a_stream_says_of_its_client_or_of_want_of_room_ejects_nobody() -> None:
    """All servers say likewise that the request was wrong; and one whose queue is full works (SGLang says it in the stream)."""
    wrong = b'data: {"error": {"message": "too long", "type": "BadRequestError", "code": 400}}\n\n'
    full = b'data: {"error": {"message": "The request queue is full.", "code": 503}}\n\n'

    async def main() -> None:
        servers = [Says(EVENTS + _chunk(wrong) + b"0\r\n\r\n") for _ in range(3)]
        async with region(*servers) as here:  # type: ignore[arg-type]
            for _ in range(60):
                await here.ask(_post())
            here.look()
            assert BackendState.EJECTED not in here.states
            servers[0].answer = EVENTS + _chunk(full) + b"0\r\n\r\n"
            for server in servers[1:]:
                server.answer = EVENTS + _chunk(b"data: 1\n\n") + b"0\r\n\r\n"
            for _ in range(60):
                await here.ask(_post())
            here.look()
            assert BackendState.EJECTED not in here.states
            assert here.proxy.stats.full.total()

    run(main)


@pytest.mark.parametrize(
    "said",
    [
        b'data: {"choices":[{"delta":{"content":"\\"error\\": {}"}}],"error":null}\n\n',
        b'data: {"type":"response.created","response":{"error":null,"status":"failed"}}\n\n',
        b'data: {"error": [1]}\n\n',
        b'data: {"error": ' + b"[" * 5000,
        b'data: {"error": {"code": 1.5}}\n\n',
        b": error\n\n",
        b"",
    ],
)
def test_what_is_no_error_event(said: bytes) -> None:
    """Texts of models and clients, members that are null, and what cannot be read."""
    assert status_said(said) is None


def test_an_unreachable_server_is_asked_no_more() -> None:
    """BerriAI/litellm#27610: one whose address was dead stayed in rotation, and retries chose it again and again."""

    async def main() -> None:
        well = Says()
        async with region(well) as here:  # type: ignore[arg-type]
            (known,) = [one.backend for one in here.picker.pool.candidates]
            gone = Server("http://127.0.0.1:9")
            here.picker.configure([known, gone], ChoosingSettings())
            here.health.update(HealthSettings(), [known, gone])
            here.check(ok=True)
            here.check(ok=True)
            for _ in range(60):
                assert (await here.ask(_post())).status == 200
            here.look()
            assert here.states[1] is BackendState.EJECTED
            assert here.proxy.stats.retries < 30

    run(main)
