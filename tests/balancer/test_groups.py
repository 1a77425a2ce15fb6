"""Unlike model servers in one region: who waits for one keeps nobody from another that is idle (docs/admission.md, "Unlike servers")."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from gtm.balancer.config import checked
from gtm.balancer.decide.picking import PoolPicker
from gtm.balancer.decide.queueing import QueueAdmission
from gtm.core.balance.admission.settings import AdmissionSettings
from gtm.core.balance.backends import Condition
from gtm.core.balance.health.health import BackendHealth
from gtm.core.balance.health.settings import HealthSettings
from gtm.runtime.balancer.carrier import HealthLoop
from tests.balancer.world import Backend, Peer, World, read_head, run, world

SLOTS = 2


def _request(model: str | None, path: str = "/v1/chat/completions") -> bytes:
    body = json.dumps({"input": "x"} if model is None else {"model": model, "input": "x"}).encode()
    return (
        b"POST %b HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
        % (
            path.encode(),
            len(body),
            body,
        )
    )


class Server:
    """A model server that answers at once, or holds what it gets until a test lets it go."""

    def __init__(self, name: str, *, holds: bool = False) -> None:
        self.name = name
        self.go = asyncio.Event()
        if not holds:
            self.go.set()
        self.running = 0
        self.most = 0

    async def __call__(self, peer: Peer) -> None:
        while True:
            await peer.request()
            self.running += 1
            self.most = max(self.most, self.running)
            try:
                await self.go.wait()
            finally:
                self.running -= 1
            body = json.dumps({"id": self.name}).encode()
            peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))


@asynccontextmanager
async def _region(
    servers: dict[str, Server], models: dict[str, list[str]], *, listed: bool = False, waits: float = 60.0
) -> AsyncIterator[tuple[World, HealthLoop, dict[str, str]]]:
    """A balancer with its real admission and picker before servers of `SLOTS` slots each. `listed`: they say what they have, the file does not."""
    urls = {name: await Backend(server).start() for name, server in servers.items()}
    async with world(*urls.values()) as w:
        rows: list[dict[str, Any]] = [{"url": url, "slots": SLOTS} for url in urls.values()]
        if not listed:
            rows = [row | {"models": models[name]} for row, name in zip(rows, urls, strict=True)]
        document = checked({"backends": rows}, "x", None)
        loop = asyncio.get_running_loop()
        health = BackendHealth(HealthSettings(), document.servers(), loop.time())
        picker = PoolPicker(document.servers(), document.choice(), health, loop=loop)
        admission = QueueAdmission(
            AdmissionSettings(waits=dict.fromkeys(("real_time", "near_real_time", "batch"), waits)),
            loop=loop,
            cost=picker.cost,
        )
        picker.conditions(
            {
                urls[name]: Condition(healthy=True, models=frozenset(models[name]), adapters=frozenset())
                for name in urls
            }
        )
        w.proxy.picker, w.proxy.admission, w.proxy.body_rules = picker, admission, document.body_rules()
        watch = HealthLoop(health, picker, admission, lambda: None)  # type: ignore[arg-type, return-value]
        watch.resize()
        yield w, watch, urls
        for route in picker.routes():
            route.close()


async def _send(w: World, raw: bytes, count: int) -> list[Peer]:
    clients = [await w.client() for _ in range(count)]
    for client in clients:
        client.send(raw)
    return clients


async def _who(w: World, raw: bytes) -> str | int:
    answer = await w.ask(raw)
    return str(json.loads(answer.body)["id"]) if answer.status == 200 else answer.status


def test_a_queue_of_chats_keeps_no_embedding_from_an_idle_server() -> None:
    """By the file, and by what servers list. Chats beyond their server's slots wait, and none takes the other server's."""
    models = {"chat": ["llama"], "embeds": ["bge"]}

    async def main(*, listed: bool) -> None:
        chat = Server("chat", holds=True)
        async with _region({"chat": chat, "embeds": Server("embeds")}, models, listed=listed) as (w, _, _):
            chats = await _send(w, _request("llama"), 3 * SLOTS)
            await w.until(lambda: w.proxy.admission.has_waiting and chat.running == SLOTS)
            for _ in range(2 * SLOTS):
                assert await _who(w, _request("bge", "/v1/embeddings")) == "embeds"
            assert chat.running == SLOTS
            chat.go.set()
            assert [(await one.response()).status for one in chats] == [200] * len(chats)
            assert chat.most == SLOTS

    run(lambda: main(listed=False))
    run(lambda: main(listed=True))


def test_a_server_that_has_both_is_shared_and_never_filled_twice() -> None:
    """One has both models, one the chat alone: neither gets more than its slots."""
    models = {"both": ["llama", "bge"], "chat": ["llama"]}

    async def main() -> None:
        both, chat = Server("both", holds=True), Server("chat", holds=True)
        async with _region({"both": both, "chat": chat}, models) as (w, _, _):
            embeds = await _send(w, _request("bge", "/v1/embeddings"), 3 * SLOTS)
            await w.until(lambda: both.running == SLOTS)
            chats = await _send(w, _request("llama"), 2 * SLOTS)
            await w.until(lambda: chat.running == SLOTS)
            both.go.set()
            chat.go.set()
            for one in (*embeds, *chats):
                assert (await one.response()).status == 200
            assert (both.most, chat.most) == (SLOTS, SLOTS)

    run(main)


def test_a_model_whose_servers_are_down_is_refused_in_words_of_its_own() -> None:
    """What comes is refused at once, whoever else has room; what waits for it goes on waiting, and is served when it is back."""
    models = {"chat": ["llama"], "embeds": ["bge"]}

    async def main() -> None:
        chat = Server("chat", holds=True)
        async with _region({"chat": chat, "embeds": Server("embeds")}, models) as (w, watch, urls):
            chats = await _send(w, _request("llama"), SLOTS + 1)
            await w.until(lambda: w.proxy.admission.has_waiting and chat.running == SLOTS)
            watch.picker.conditions({urls["chat"]: Condition(healthy=False)})
            watch.resize()
            answer = await w.ask(_request("llama"))
            assert (answer.status, json.loads(answer.body)["error"]["code"]) == (503, "backends_unhealthy")
            assert await _who(w, _request("bge")) == "embeds"
            assert w.proxy.admission.has_waiting
            chat.go.set()
            for one in chats[:SLOTS]:
                assert (await one.response()).status == 200
            watch.picker.conditions({urls["chat"]: Condition(healthy=True)})
            watch.resize()
            assert (await chats[-1].response()).status == 200

    run(main)


def test_a_request_without_a_model_waits_for_no_full_server() -> None:
    """Where the file says nothing and the request names none: any will do, so it begins where there is room."""

    async def main() -> None:
        chat = Server("chat", holds=True)
        models = {"chat": ["llama"], "embeds": ["bge"]}
        async with _region({"chat": chat, "embeds": Server("embeds")}, models, listed=True) as (w, _, _):
            chats = await _send(w, _request("llama"), 2 * SLOTS)
            await w.until(lambda: w.proxy.admission.has_waiting and chat.running == SLOTS)
            assert await _who(w, _request(None, "/tokenize")) == "embeds"
            chat.go.set()
            for one in chats:
                await read_head(one.reader)

    run(main)
