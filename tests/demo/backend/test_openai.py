"""The real `openai` client against a simulated server: sync and async, streaming and not, and its errors."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import openai
import pytest

from gtm.demo.backend.faults import InjectedFault, Mode
from tests.demo.backend.harness import MODEL, Apart, apart

HELLO: list[openai.types.chat.ChatCompletionMessageParam] = [{"role": "user", "content": "Say hello."}]


@pytest.fixture(scope="module")
def server() -> Iterator[Apart]:
    """A backend in a thread of its own."""
    with apart() as running:
        yield running


@pytest.fixture
def client(server: Apart) -> Iterator[openai.OpenAI]:
    """A client that tries once."""
    with openai.OpenAI(base_url=server.url, api_key="none", max_retries=0, timeout=20) as one:
        yield one


def test_chat(client: openai.OpenAI) -> None:
    """An answer in one piece, and what it took."""
    answer = client.chat.completions.create(model=MODEL, messages=HELLO, max_tokens=12)
    (choice,) = answer.choices
    assert answer.model == MODEL
    assert choice.finish_reason == "length"
    assert choice.message.role == "assistant"
    assert choice.message.content
    assert len(choice.message.content.split()) == 12
    assert answer.usage
    assert answer.usage.completion_tokens == 12
    assert answer.usage.total_tokens == 12 + answer.usage.prompt_tokens


def test_stream(client: openai.OpenAI) -> None:
    """The same answer, token by token, with its usage at the end."""
    whole = client.chat.completions.create(model=MODEL, messages=HELLO, max_tokens=12)
    chunks = list(
        client.chat.completions.create(
            model=MODEL, messages=HELLO, max_tokens=12, stream=True, stream_options={"include_usage": True}
        )
    )
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices].count("length") == 1
    assert not chunks[-1].choices
    assert chunks[-1].usage
    assert whole.usage
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    assert len({chunk.id for chunk in chunks}) == 1


def test_length_is_the_prompts(client: openai.OpenAI) -> None:
    """Without a bound an answer has its own length and stops; the same request gets the same."""
    first, second = (client.chat.completions.create(model=MODEL, messages=HELLO) for _ in range(2))
    assert first.choices[0].finish_reason == "stop"
    assert first.choices[0].message == second.choices[0].message
    other = client.chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": "Say good-bye."}]
    )
    assert other.choices[0].message != first.choices[0].message


def test_completions(client: openai.OpenAI) -> None:
    """The older API, streaming and not, of a text and of tokens."""
    whole = client.completions.create(model=MODEL, prompt="Once upon", max_tokens=5)
    chunks = list(client.completions.create(model=MODEL, prompt="Once upon", max_tokens=5, stream=True))
    assert "".join(chunk.choices[0].text for chunk in chunks) == whole.choices[0].text
    assert chunks[-1].choices[0].finish_reason == "length"
    counted = client.completions.create(model=MODEL, prompt=[1, 2, 3], max_tokens=1)
    assert counted.usage
    assert counted.usage.prompt_tokens == 3


def test_a_conversation_is_cached(client: openai.OpenAI) -> None:
    """What was said before, the answers too, is in the prefix cache when the conversation goes on."""
    messages: list[openai.types.chat.ChatCompletionMessageParam] = [
        {"role": "user", "content": "Tell me more. " * 20}
    ]
    first = client.chat.completions.create(model=MODEL, messages=messages, max_tokens=100)
    assert first.usage
    messages += [
        {"role": "assistant", "content": first.choices[0].message.content},
        {"role": "user", "content": "And then?"},
    ]
    second = client.chat.completions.create(model=MODEL, messages=messages, max_tokens=5)
    assert second.usage
    assert second.usage.prompt_tokens_details
    # All but what is left of a block, and the last token, whose keys and values nobody has computed.
    assert second.usage.prompt_tokens_details.cached_tokens == (first.usage.total_tokens - 1) // 16 * 16


def test_async(server: Apart) -> None:
    """The asynchronous client, ten streams at once; one of them broken off."""

    async def one(client: openai.AsyncOpenAI, number: int) -> int:
        stream = await client.chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": str(number)}], max_tokens=30, stream=True
        )
        tokens = 0
        async for chunk in stream:
            tokens += bool(chunk.choices[0].delta.content)
            if number == 0 and tokens == 3:
                await stream.close()
                break
        return tokens

    async def all_of_them() -> list[int]:
        async with openai.AsyncOpenAI(
            base_url=server.url, api_key="none", max_retries=0, timeout=20
        ) as client:
            found = await asyncio.gather(*(one(client, number) for number in range(10)))
            whole = await client.chat.completions.create(model=MODEL, messages=HELLO, max_tokens=3)
            assert whole.choices[0].finish_reason == "length"
            return found

    assert asyncio.run(all_of_them()) == [3] + [30] * 9


def test_models(client: openai.OpenAI) -> None:
    """Models, and adapters with their parents; an adapter answers, and its answers are its own."""
    assert [one.id for one in client.models.list()] == [MODEL]
    client.post("/load_lora_adapter", body={"lora_name": "law", "lora_path": "/adapters/law"}, cast_to=str)
    try:
        cards = {one.id: one.to_dict() for one in client.models.list()}
        assert cards["law"]["parent"] == MODEL
        assert cards["law"]["root"] == "/adapters/law"
        assert cards[MODEL]["parent"] is None
        answers = {
            name: client.chat.completions.create(model=name, messages=HELLO, max_tokens=9)
            .choices[0]
            .message.content
            for name in (MODEL, "law")
        }
        assert answers[MODEL] != answers["law"]
        with pytest.raises(openai.BadRequestError, match="already been loaded"):
            client.post("/load_lora_adapter", body={"lora_name": "law", "lora_path": "x"}, cast_to=str)
    finally:
        client.post("/unload_lora_adapter", body={"lora_name": "law"}, cast_to=str)
    with pytest.raises(openai.NotFoundError, match="law"):
        client.chat.completions.create(model="law", messages=HELLO)


def test_errors(client: openai.OpenAI, server: Apart) -> None:
    """They arrive as the client's own exceptions."""
    with pytest.raises(openai.NotFoundError) as missing:
        client.chat.completions.create(model="gpt", messages=HELLO)
    assert missing.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as long:
        client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "x" * 40_000}])
    assert long.value.code == "context_length_exceeded"
    with pytest.raises(openai.BadRequestError, match="max_tokens"):
        client.chat.completions.create(model=MODEL, messages=HELLO, max_tokens=0)
    with pytest.raises(openai.APIStatusError) as large:
        client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "x" * 5_000_000}])
    assert large.value.status_code == 413
    server.fail(InjectedFault(Mode.ERROR))
    try:
        with pytest.raises(openai.InternalServerError):
            client.chat.completions.create(model=MODEL, messages=HELLO)
    finally:
        server.fail(InjectedFault())


def test_engine_dies_in_a_stream(client: openai.OpenAI, server: Apart) -> None:
    """The client gets an error for it, not a short answer."""
    stream = client.chat.completions.create(model=MODEL, messages=HELLO, max_tokens=8000, stream=True)
    try:
        assert [next(stream).choices[0].finish_reason for _ in range(3)] == [None] * 3
        server.fail(InjectedFault(Mode.OOM))
        with pytest.raises(openai.APIError, match="EngineCore"):
            list(stream)
    finally:
        server.fail(InjectedFault())
