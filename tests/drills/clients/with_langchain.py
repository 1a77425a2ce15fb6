"""LangChain's package for OpenAI, against one balancer."""

import base64

import openai
from asking import BASE, FREE, IMAGE, LIMITED, TEXTS, in_turns, leaving, limited, raising, same, tell
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI, OpenAIEmbeddings

TO = {"base_url": f"{BASE}/v1", "max_retries": 0}


def model(name="llama", key=FREE, **more):
    return ChatOpenAI(model=name, api_key=key, **{"timeout": 60, **TO, **more})


def weather(city: str) -> str:
    """The weather of a city."""
    return "rain"


def chat():
    answer = model().invoke("hello")
    same(answer.content, "hello")
    same(answer.usage_metadata["output_tokens"], 4)


def stream():
    same("".join(one.content for one in model().stream("hello")), "hello")


def tools():
    bound = model().bind_tools([weather])
    call = bound.invoke("hello")
    same(call.tool_calls[0]["args"], {"city": "Oslo"})
    result = ToolMessage("rain", tool_call_id=call.tool_calls[0]["id"])
    same(bound.invoke([HumanMessage("hello"), call, result]).content, "rain")


def image():
    data = base64.b64encode(IMAGE).decode()
    parts = [{"type": "text", "text": "?"}, {"type": "image", "base64": data, "mime_type": "image/png"}]
    same(model().invoke([HumanMessage(content=parts)]).content, f"{len(IMAGE)} bytes")


def embeddings():
    # Without the check, which asks the net for OpenAI's tokenizer and sends tokens in place of text.
    made = OpenAIEmbeddings(
        model="bge", api_key=FREE, check_embedding_ctx_length=False, chunk_size=2000, **TO
    )
    same([one[0] for one in made.embed_documents(TEXTS)], [float(number) for number in range(2000)])


def responses():
    chain = model(use_responses_api=True, use_previous_response_id=True)
    first = chain.invoke("one")
    second = chain.invoke([HumanMessage("one"), first, HumanMessage("two")])
    same(second.text, "one | two")


def one_by_one():
    in_turns(one.text for one in model().stream("in turns"))


def cancel():
    with leaving():
        answer = model().stream("forever")
        next(answer)
        next(answer)
        answer.close()


def timeout():
    with leaving(), raising(openai.APITimeoutError):
        model(timeout=1).invoke("late")


def unknown_model():
    with raising(openai.NotFoundError, "gpt-5"):
        model("gpt-5", use_responses_api=False).invoke("hello")


def tenant_limit():
    limited(lambda: model(key=LIMITED).invoke("hello"), openai.RateLimitError, "acme")


tell(
    chat,
    stream,
    one_by_one,
    tools,
    image,
    embeddings,
    responses,
    cancel,
    timeout,
    unknown_model,
    tenant_limit,
)
