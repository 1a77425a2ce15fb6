"""Python's anthropic, against one balancer."""

import base64

import anthropic
from asking import BASE, FREE, IMAGE, LIMITED, in_turns, leaving, limited, raising, same, tell

client = anthropic.Anthropic(base_url=BASE, api_key=FREE, max_retries=0, timeout=60)
TOOL = {"name": "weather", "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}}}


def say(content="hello", by=client, model="llama", **more):
    turns = [{"role": "user", "content": content}]
    return by.messages.create(model=model, max_tokens=100, messages=turns, **more)


def chat():
    same(say().content[0].text, "hello")


def stream():
    turns = [{"role": "user", "content": "hello"}]
    with client.messages.stream(model="llama", max_tokens=100, messages=turns) as found:
        same("".join(found.text_stream), "hello")
        same(found.get_final_message().usage.output_tokens, 4)


def tools():
    call = say(tools=[TOOL])
    same(call.content[0].name, "weather")
    turns = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": call.content}]
    result = {"type": "tool_result", "tool_use_id": call.content[0].id, "content": "rain"}
    turns.append({"role": "user", "content": [result]})
    answer = client.messages.create(model="llama", max_tokens=100, messages=turns, tools=[TOOL])
    same(answer.content[0].text, "rain")
    turns = [{"role": "user", "content": "hello"}]
    with client.messages.stream(model="llama", max_tokens=100, messages=turns, tools=[TOOL]) as found:
        same(found.get_final_message().content[0].input, {"city": "Oslo"})


def image():
    data = base64.b64encode(IMAGE).decode()
    source = {"type": "base64", "media_type": "image/png", "data": data}
    parts = [{"type": "text", "text": "What is it?"}, {"type": "image", "source": source}]
    same(say(parts).content[0].text, f"{len(IMAGE)} bytes")


def one_by_one():
    turns = [{"role": "user", "content": "in turns"}]
    with client.messages.stream(model="llama", max_tokens=100, messages=turns) as found:
        in_turns(found.text_stream)


def cancel():
    with leaving():
        answer = say("forever", stream=True)
        next(iter(answer))
        answer.close()


def timeout():
    with leaving(), raising(anthropic.APITimeoutError):
        say("late", client.with_options(timeout=1))


def unknown_model():
    with raising(anthropic.NotFoundError, "claude-9"):
        try:
            say(model="claude-9")
        except anthropic.APIStatusError as error:
            same(error.type, "not_found_error")
            raise


def tenant_limit():
    limited(lambda: say(by=client.with_options(api_key=LIMITED)), anthropic.RateLimitError, "acme")


tell(chat, stream, one_by_one, tools, image, cancel, timeout, unknown_model, tenant_limit)
