"""LiteLLM as a library, against one balancer."""

import base64
import io

import litellm
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

TO = {"api_base": f"{BASE}/v1", "api_key": FREE, "num_retries": 0, "max_retries": 0}
litellm.suppress_debug_info = True


def say(content="hello", model="llama", **more):
    turns = [{"role": "user", "content": content}]
    return litellm.completion(model=f"openai/{model}", messages=turns, **{**TO, **more})


def chat():
    same(say().choices[0].message.content, "hello")


def stream():
    pieces = list(say(stream=True, stream_options={"include_usage": True}))
    same("".join(one.choices[0].delta.content or "" for one in pieces if one.choices), "hello")


def tools():
    call = say(tools=[TOOL]).choices[0].message
    same(call.tool_calls[0].function.name, "weather")
    turns = [{"role": "user", "content": "hello"}, call.model_dump(exclude_none=True)]
    turns.append({"role": "tool", "tool_call_id": call.tool_calls[0].id, "content": "rain"})
    answer = litellm.completion(model="openai/llama", messages=turns, tools=[TOOL], **TO)
    same(answer.choices[0].message.content, "rain")


def image():
    url = "data:image/png;base64," + base64.b64encode(IMAGE).decode()
    parts = [{"type": "text", "text": "What is it?"}, {"type": "image_url", "image_url": {"url": url}}]
    same(say(parts).choices[0].message.content, f"{len(IMAGE)} bytes")


def audio():
    file = io.BytesIO(SOUND)
    file.name = "a.wav"
    same(litellm.transcription(model="openai/whisper", file=file, **TO).text, f"{len(SOUND)} bytes")


def embeddings():
    found = litellm.embedding(model="openai/bge", input=TEXTS, **TO).data
    same([one["embedding"][0] for one in found], [float(number) for number in range(2000)])


def responses():
    first = litellm.responses(model="openai/llama", input="one", **TO)
    second = litellm.responses(model="openai/llama", input="two", previous_response_id=first.id, **TO)
    same(second.output[0].content[0].text, "one | two")


def one_by_one():
    in_turns(one.choices[0].delta.content or "" for one in say("in turns", stream=True) if one.choices)


def cancel():
    with leaving():
        answer = say("forever", stream=True)
        next(iter(answer))
        answer.completion_stream.close()


def timeout():
    with leaving(), raising(litellm.Timeout):
        say("late", timeout=1)


def unknown_model():
    with raising(litellm.NotFoundError, "gpt-5"):
        say(model="gpt-5")


def tenant_limit():
    limited(lambda: say(api_key=LIMITED), litellm.RateLimitError, "acme")


tell(
    chat,
    stream,
    one_by_one,
    tools,
    image,
    audio,
    embeddings,
    responses,
    cancel,
    timeout,
    unknown_model,
    tenant_limit,
)
