"""Which server takes a request for a model, through a balancer with its real picker: docs/balancer.md, "Models".

Public reports, and what becomes of them here: `GET /v1/models/NAME` is 404 for names with a slash, plain or encoded (BerriAI/litellm#37271, ollama/ollama#10139); a form whose file stands before its model goes to a server
that has it not (diegosouzapw/OmniRoute#2188, vllm-project/production-stack#410); a photo of more than 1 MB is answered by a misleading 404 (mnfst/llm-gateway#2126).
"""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import httpx
import pytest

from gtm.balancer.config import checked
from gtm.balancer.decide.picking import PoolPicker, looks_at
from gtm.balancer.plane.contracts import Looks
from gtm.balancer.wire.endpoints import Paths
from gtm.core.balance.backends import Backend as Server
from gtm.core.balance.backends import Condition
from gtm.core.balance.choosing.values import ChoosingSettings
from gtm.core.balance.health.health import BackendHealth
from gtm.core.balance.health.settings import HealthSettings
from tests.balancer.test_bodies import AUDIO, CHAT, MULTIPART, _field, _form
from tests.balancer.world import Backend, Peer, World, run, world

SLASHED = "meta-llama/Llama-3.1-8B"


def _server(name: str) -> Backend:
    async def script(peer: Peer) -> None:
        while True:
            await peer.request()
            body = json.dumps({"id": name, "object": "list", "data": [{"id": name}]}).encode()
            peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))

    return Backend(script)


@asynccontextmanager
async def _fleet(
    declared: Mapping[str, list[str]], listed: Mapping[str, list[str]] | None = None
) -> AsyncIterator[World]:
    """A balancer before servers that are for these models, or have these loaded; each answers by its name."""
    urls = {name: await _server(name).start() for name in declared}
    async with world(*urls.values()) as w:
        file = {"backends": [{"url": urls[name], "models": models} for name, models in declared.items()]}
        document = checked(file, "x", None)
        servers = document.servers()
        loop = asyncio.get_running_loop()
        picker = PoolPicker(
            servers, document.choice(), BackendHealth(HealthSettings(), servers, loop.time()), loop=loop
        )
        known = listed or {}
        picker.conditions(
            {
                urls[name]: Condition(
                    healthy=True,
                    models=frozenset(known[name]) if name in known else None,
                    adapters=frozenset(),
                )
                for name in declared
            }
        )
        w.proxy.picker, w.proxy.body_rules = picker, document.body_rules()
        w.proxy.paths = document.carried()
        yield w
        for route in picker.routes():
            route.close()


async def _who(w: World, raw: bytes) -> str | int:
    """Who has answered, or the status."""
    answer = await w.ask(raw)
    return str(json.loads(answer.body)["id"]) if answer.status == 200 else answer.status


def _post(body: bytes, path: bytes = CHAT, kind: bytes = b"application/json", *more: bytes) -> bytes:
    lines = b"".join(line + b"\r\n" for line in more)
    return b"POST %b HTTP/1.1\r\nHost: a\r\nContent-Type: %b\r\nContent-Length: %d\r\n%b\r\n%b" % (
        path,
        kind,
        len(body),
        lines,
        body,
    )


def _get(path: bytes) -> bytes:
    return b"GET %b HTTP/1.1\r\nHost: a\r\n\r\n" % path


def _chat(model: str, size: int) -> bytes:
    return json.dumps({"messages": [{"role": "user", "content": "x" * size}], "model": model}).encode()


@pytest.mark.parametrize("how", ["declared", "listed"])
def test_each_request_goes_to_the_server_that_has_its_model(how: str) -> None:
    """By the file, or by what servers list: whatever its length, coding and form."""
    names = {"one": ["llama"], "two": ["whisper"]}

    async def main() -> None:
        declared = names if how == "declared" else {"one": [], "two": []}
        async with _fleet(declared, names) as w:
            file = (_field(b"file", b'; filename="a.wav"'), bytes(50_000))
            large = (_field(b"file", b'; filename="a.wav"'), bytes(1_500_000))
            named = (_field(b"model"), b"whisper")
            asked = [
                *(_post(_chat("llama", size)) for size in (1, 900_000, 1_200_000)),
                _post(
                    gzip.compress(_chat("llama", 5000)), CHAT, b"application/json", b"Content-Encoding: gzip"
                ),
                _post(
                    gzip.compress(_chat("llama", 1_200_000)),
                    CHAT,
                    b"application/json",
                    b"Content-Encoding: gzip",
                ),
                *(
                    _post(_chat("llama", 1), path)
                    for path in (b"/v1/score", b"/v1/images/generations", b"/v1/messages/count_tokens")
                ),
                _get(b"/v1/realtime?model=llama"),
                _post(b"\0\1tensors", b"/v2/models/llama/infer", b"application/octet-stream"),
            ]
            heard = [
                _post(_form(parts), AUDIO, MULTIPART)
                for parts in ([file, named], [named, file], [large, named])
            ]
            for _ in range(3):
                assert {await _who(w, raw) for raw in asked} == {"one"}
                assert {await _who(w, raw) for raw in heard} == {"two"}
            if how == "declared":
                assert await _who(w, _post(_chat("nobody's", 1_200_000))) == 404
                assert await _who(w, _post(b"{}")) == 400

    run(main)


def test_the_list_of_models_is_the_regions() -> None:
    """All that is served, each once, however often it is asked for; single ones by names as clients write them; what nobody serves is 404."""

    async def main() -> None:
        async with _fleet({"one": ["llama", "both"], "two": [SLASHED, "both", "n\u00e4me"]}) as w:
            for _ in range(4):
                answer = await w.ask(_get(b"/v1/models"))
                assert [one["id"] for one in json.loads(answer.body)["data"]] == sorted(
                    ["llama", "both", SLASHED, "n\u00e4me"]
                )
            for path, name in (
                (b"llama", "llama"),
                (b"meta-llama/Llama-3.1-8B", SLASHED),
                (b"meta-llama%2FLlama-3.1-8B?x=1", SLASHED),
                (b"meta-llama%2fLlama-3%2E1-8B", SLASHED),
                (b"n%C3%A4me", "n\u00e4me"),
            ):
                answer = await w.ask(_get(b"/v1/models/" + path))
                assert (answer.status, json.loads(answer.body)["id"]) == (200, name)
            for path in (b"nobody", b"%ff", b"meta-llama%252FLlama-3.1-8B", b"../v1/models", b"llama/"):
                assert await _who(w, _get(b"/v1/models/" + path)) == 404
            head = await w.ask(b"HEAD /v1/models HTTP/1.1\r\nHost: a\r\n\r\n", "HEAD")
            assert (head.status, head.body) == (200, b"")
            w.proxy.paths = Paths(["POST /v1/chat/completions"])
            assert [await _who(w, _get(path)) for path in (b"/v1/models", b"/v1/models/llama")] == [404, 404]

    run(main)


def test_a_list_is_a_servers_own_where_it_is_right() -> None:
    """Servers that list the same answer for themselves, with all that they know; of single models the balancer does, once names are known."""

    async def main() -> None:
        async with _fleet({"one": [], "two": []}, {"one": ["m"], "two": ["m"]}) as w:
            assert await _who(w, _get(b"/v1/models")) in ("one", "two")
            assert await _who(w, _get(b"/v1/models/m")) == "m"
            assert await _who(w, _get(b"/v1/models/x")) == 404
        async with _fleet({"one": [], "two": []}, {"one": ["m"], "two": ["n"]}) as w:
            answer = await w.ask(_get(b"/v1/models"))
            assert [one["id"] for one in json.loads(answer.body)["data"]] == ["m", "n"]
        async with _fleet({"one": []}) as w:
            assert await _who(w, _get(b"/v1/models")) == "one"
            assert await _who(w, _get(b"/v1/models/x")) == "one"
            assert await _who(w, _get(b"/v1/models/x%2Fy")) == 400

    run(main)


def test_the_law_comes_before_the_list() -> None:
    """Who may not be served here reads no list of what is."""
    from gtm.balancer.wire.refusals import Refusal

    async def main() -> None:
        async with _fleet({"one": ["llama"]}) as w:
            w.gate.refusal = Refusal(451, "refused_residency", "no")
            assert [await _who(w, _get(path)) for path in (b"/v1/models", b"/v1/models/llama")] == [451, 451]

    run(main)


def test_as_openais_client_asks() -> None:
    """The real client: a list, a model with a slash in its name, and one that nobody has."""
    import openai  # which takes half a second of each process that collects tests

    async def main() -> None:
        async with _fleet({"one": ["llama"], "two": [SLASHED]}) as w:
            url = "http://{}:{}/v1".format(*w.address)
            async with openai.AsyncOpenAI(
                base_url=url, api_key="x", http_client=httpx.AsyncClient(trust_env=False)
            ) as client:
                assert [one.id async for one in await client.models.list()] == ["llama", SLASHED]
                assert (await client.models.retrieve(SLASHED)).id == SLASHED
                with pytest.raises(openai.NotFoundError):
                    await client.models.retrieve("nobody/s")

    run(main)


def test_a_name_without_a_tag_is_asked_for_as_the_latest() -> None:
    """Ollama's rule, for the list of models and for requests: `llama3` is `llama3:latest`, and no other tag."""

    async def main() -> None:
        names = {"one": ["llama3:latest"], "two": ["mistral:7b"]}
        for declared in (names, {"one": [], "two": []}):
            async with _fleet(declared, names) as w:
                assert {await _who(w, _post(_chat("llama3", 1))) for _ in range(6)} == {"one"}
                assert await _who(w, _get(b"/v1/models/llama3")) == "llama3"
                assert await _who(w, _get(b"/v1/models/mistral")) == 404

    run(main)


def test_a_server_without_a_list_is_unlike_one_that_has_one() -> None:
    """Of a form whose model comes last, behind 2 MB, five of twelve got 404 from the server that lists another model; and its list came in turns with the other's 404."""

    async def main() -> None:
        async with _fleet({"one": [], "two": []}, {"one": ["llama"]}) as w:
            large = (_field(b"file", b'; filename="a.wav"'), bytes(2_000_000))
            raw = _post(_form([large, (_field(b"model"), b"whisper")]), AUDIO, MULTIPART)
            assert {await _who(w, raw) for _ in range(8)} == {"two"}
            for _ in range(4):
                answer = await w.ask(_get(b"/v1/models"))
                assert [one["id"] for one in json.loads(answer.body)["data"]] == ["llama"]
                assert await _who(w, _get(b"/v1/models/llama")) == "llama"
                assert await _who(w, _get(b"/v1/models/whisper")) in {"one", "two"}  # a server says it
            w.proxy.paths = Paths(["GET /v1/models/*"])
            assert await _who(w, _get(b"/v1/models/who/knows")) == 404

    run(main)


def _looks(*servers: tuple[list[str], list[str] | None, bool], sticks: bool = True) -> Looks:
    backends = [
        Server(f"http://10.0.0.{number}", models=frozenset(one[0])) for number, one in enumerate(servers)
    ]
    picker: Any = PoolPicker(
        backends,
        ChoosingSettings(),
        BackendHealth(HealthSettings(), backends, 0.0),
        loop=asyncio.new_event_loop(),
        affinity=sticks,
    )
    picker.conditions(
        {
            server.name: Condition(healthy=healthy, models=None if listed is None else frozenset(listed))
            for server, (_, listed, healthy) in zip(backends, servers, strict=True)
        }
    )
    assert picker.looks_at is picker.looks_at
    assert picker.looks_at == looks_at(picker.pool, sticks=sticks)
    found: Looks = picker.looks_at
    return found


def test_what_choosing_goes_by() -> None:
    """One server, or servers that are alike: by nothing but what sticks. A server that is down and says nothing makes no difference."""
    m, n = frozenset("m"), frozenset("n")
    unsaid = Looks(unsaid=True, several=True)
    assert _looks(([], None, True)) == Looks(unsaid=True, hints=False)
    assert _looks(([], None, True), ([], None, True)) == unsaid
    assert _looks(([], None, True), ([], None, True), sticks=False) == replace(unsaid, hints=False)
    assert _looks((["m"], None, True)) == Looks(hints=False, served=m, closed=True, lists=True)
    closed = Looks(served=m, closed=True, lists=True, several=True)
    assert _looks((["m"], ["x"], True), (["m"], None, False)) == closed
    assert _looks((["m"], None, True), (["n"], None, True)) == replace(
        closed, models=True, declared=True, served=m | n
    )
    assert _looks((["m"], None, True), ([], None, True)) == Looks(
        models=True, declared=True, served=m, unsaid=True, lists=True, several=True
    )
    assert _looks((["m"], None, True), ([], ["n"], True)) == Looks(
        models=True, declared=True, served=m | n, lists=True, several=True
    )
    assert _looks(([], ["m"], True), ([], ["m"], True)) == Looks(served=m, several=True)
    assert _looks(([], ["m"], True), ([], ["n"], True)) == Looks(
        models=True, served=m | n, lists=True, several=True
    )
    assert _looks(([], ["m"], True), ([], None, True)) == Looks(
        models=True, served=m, unsaid=True, lists=True, several=True
    )
    assert _looks(([], ["m"], True), ([], None, False)) == Looks(served=m, several=True)


def test_what_no_server_could_have_does_not_wait_for_a_slot() -> None:
    """Where the file says of each server which models it has: there no slot that becomes free would be the right one. Others wait, and a tag is no other model."""

    async def main() -> None:
        for declared, models, waits in (
            ({"a": ["m"], "b": ["n"]}, ("m", "m:latest"), True),
            ({"a": ["m"], "b": ["n"]}, ("x",), False),
            ({"a": ["m"], "b": []}, ("x",), True),
            ({"a": [], "b": []}, ("x",), True),
        ):
            async with _fleet(declared) as w:
                w.admission.holds = True
                for model in models:
                    client = await w.client()
                    client.send(_post(_chat(model, 1)))
                    if waits:
                        await w.until(lambda: bool(w.admission.waiting))
                        client.close()
                        await w.until(lambda: not w.admission.waiting)
                    else:
                        answer = await client.response()
                        assert (answer.status, b"backends_no_model" in answer.body) == (404, True)
                        client.close()

    run(main)
