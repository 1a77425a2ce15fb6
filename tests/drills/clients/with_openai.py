"""Python's openai, against one balancer."""

import base64
import io

import openai
from asking import (
    BASE,
    FREE,
    IMAGE,
    LIMITED,
    SOUND,
    TEXTS,
    TOOL,
    in_turns,
    leaving,
    limited,
    raising,
    same,
    tell,
)

client = openai.OpenAI(base_url=f"{BASE}/v1", api_key=FREE, max_retries=0, timeout=60)


def say(text="hello", by=client, **more):
    return by.chat.completions.create(model="llama", messages=[{"role": "user", "content": text}], **more)


def chat():
    answer = say()
    same(answer.choices[0].message.content, "hello")
    same(answer.usage.completion_tokens, 4)


def stream():
    pieces = list(say(stream=True, stream_options={"include_usage": True}))
    same("".join(one.choices[0].delta.content or "" for one in pieces if one.choices), "hello")
    same(pieces[-1].usage.total_tokens, 7)


def tools():
    call = say(tools=[TOOL]).choices[0].message
    same(call.tool_calls[0].function.name, "weather")
    turns = [{"role": "user", "content": "hello"}, call.model_dump(exclude_none=True)]
    turns.append({"role": "tool", "tool_call_id": call.tool_calls[0].id, "content": "rain"})
    answer = client.chat.completions.create(model="llama", messages=turns, tools=[TOOL])
    same(answer.choices[0].message.content, "rain")
    pieces = list(say(tools=[TOOL], stream=True))
    same(pieces[1].choices[0].delta.tool_calls[0].function.arguments, '{"city": "Oslo"}')


def image():
    url = "data:image/png;base64," + base64.b64encode(IMAGE).decode()
    parts = [{"type": "text", "text": "What is it?"}, {"type": "image_url", "image_url": {"url": url}}]
    same(say(parts).choices[0].message.content, f"{len(IMAGE)} bytes")


def audio():
    file = io.BytesIO(SOUND)
    file.name = "a.wav"
    same(client.audio.transcriptions.create(model="whisper", file=file).text, f"{len(SOUND)} bytes")


def embeddings():
    found = client.embeddings.create(model="bge", input=TEXTS).data
    same([one.embedding[0] for one in found], [float(number) for number in range(2000)])


def responses():
    first = client.responses.create(model="llama", input="one")
    second = client.responses.create(model="llama", input="two", previous_response_id=first.id)
    same(second.output_text, "one | two")


def response_by_id():
    first = client.responses.create(model="llama", input="one")
    same(client.responses.retrieve(first.id).output_text, "one")


def models():
    same(sorted(one.id for one in client.models.list()), ["bge", "llama", "whisper"])
    same([client.models.retrieve(name).id for name in ("llama", "bge")], ["llama", "bge"])


def one_by_one():
    in_turns(one.choices[0].delta.content or "" for one in say("in turns", stream=True) if one.choices)


def cancel():
    with leaving():
        answer = say("forever", stream=True)
        next(iter(answer))
        answer.close()


def timeout():
    with leaving(), raising(openai.APITimeoutError):
        say("late", client.with_options(timeout=1))


def unknown_model():
    with raising(openai.NotFoundError, "gpt-5"):
        client.chat.completions.create(model="gpt-5", messages=[{"role": "user", "content": "hello"}])


def tenant_limit():
    limited(lambda: say(by=client.with_options(api_key=LIMITED)), openai.RateLimitError, "acme")


tell(
    chat,
    stream,
    one_by_one,
    tools,
    image,
    audio,
    embeddings,
    responses,
    response_by_id,
    models,
    cancel,
    timeout,
    unknown_model,
    tenant_limit,
)
