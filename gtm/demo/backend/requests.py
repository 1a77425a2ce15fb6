"""Requests for text, as OpenAI's API has them: what is read of them, and what is wrong with others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import msgspec

from gtm.demo.backend.errors import bad_request
from gtm.demo.backend.tokens import TOKEN_BYTES, Content, chat_prompt, padded
from gtm.nesting import shallow


class _Part(msgspec.Struct):
    type: str
    text: str | None = None


class _Message(msgspec.Struct):
    role: str
    content: str | list[_Part] | None = None


class _StreamOptions(msgspec.Struct):
    include_usage: bool = False


class _Common(msgspec.Struct):
    model: str
    max_tokens: int | None = None
    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    n: int | None = None
    priority: int = 0


class _Chat(_Common):
    messages: list[_Message] = []
    max_completion_tokens: int | None = None


class _Completion(_Common):
    prompt: str | list[str | int] = ""


_CHAT = msgspec.json.Decoder(_Chat)
_COMPLETION = msgspec.json.Decoder(_Completion)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a request asks for. `answer_tokens` None: as many as the answer has."""

    chat: bool
    model: str
    prompt: bytes
    answer_tokens: int | None
    stream: bool
    include_usage: bool
    priority: int


def read_chat(body: bytes) -> Wanted:
    """The body of POST /v1/chat/completions.

    Raises:
        ApiError: 400, with what was wrong.
    """
    request = _decoded(_CHAT, body)
    if not request.messages:
        raise bad_request("`messages` must hold at least one message", param="messages")
    turns = [(one.role, _text(one, number)) for number, one in enumerate(request.messages)]
    most = request.max_tokens if request.max_completion_tokens is None else request.max_completion_tokens
    return _wanted(request, chat=True, prompt=chat_prompt(turns), most=most)


def read_completion(body: bytes) -> Wanted:
    """The body of POST /v1/completions: a text, a list with one, or a list of token numbers.

    Raises:
        ApiError: 400, with what was wrong.
    """
    request = _decoded(_COMPLETION, body)
    prompt = request.prompt
    if isinstance(prompt, list):
        if all(isinstance(token, int) for token in prompt):
            numbers = (token % 2 ** (8 * TOKEN_BYTES) for token in prompt if isinstance(token, int))
            return _wanted(
                request,
                chat=False,
                prompt=b"".join(one.to_bytes(TOKEN_BYTES) for one in numbers),
                most=request.max_tokens,
            )
        if len(prompt) != 1 or not isinstance(prompt[0], str):
            raise bad_request(
                "several prompts in one request are not simulated: send one each", param="prompt"
            )
        prompt = prompt[0]
    return _wanted(request, chat=False, prompt=padded(prompt), most=request.max_tokens)


def content_of(wanted: Wanted, longest: int) -> tuple[Content, int]:
    """A request's content, and the tokens of its answer.

    Args:
        wanted: the request.
        longest: tokens of a prompt and its answer at most.

    Raises:
        ApiError: 400, it is longer.
    """
    prompt_tokens = len(wanted.prompt) // TOKEN_BYTES
    asked = wanted.answer_tokens or 1
    if prompt_tokens + asked > longest:
        stated = f" and {wanted.answer_tokens} for the answer" if wanted.answer_tokens else ""
        raise bad_request(
            f"This model's maximum context length is {longest} tokens. However, you requested {prompt_tokens} tokens in the "
            f"prompt{stated}. Please reduce the length of the prompt or of the answer.",
            "context_length_exceeded",
            "messages" if wanted.chat else "prompt",
        )
    content = Content(wanted.prompt, wanted.model)
    return content, wanted.answer_tokens or min(content.usual_length, longest - prompt_tokens)


def _wanted(request: _Common, *, chat: bool, prompt: bytes, most: int | None) -> Wanted:
    if most is not None and most < 1:
        raise bad_request(f"max_tokens must be at least 1, got {most}.", param="max_tokens")
    if request.n not in (None, 1):
        raise bad_request(f"`n` must be 1, not {request.n}: several answers are not simulated", param="n")
    if request.stream_options is not None and not request.stream:
        raise bad_request("Stream options can only be defined when `stream=True`.", param="stream_options")
    return Wanted(
        chat=chat,
        model=request.model,
        prompt=prompt or padded(" "),
        answer_tokens=most,
        stream=bool(request.stream),
        include_usage=request.stream_options is not None and request.stream_options.include_usage,
        priority=request.priority,
    )


def _text(message: _Message, number: int) -> str:
    if message.content is None or isinstance(message.content, str):
        return message.content or ""
    for part in message.content:
        if part.type != "text" or part.text is None:
            raise bad_request(
                f"messages[{number}].content has a part of type `{part.type[:50]}`; only text is simulated",
                param="messages",
            )
    return "".join(part.text or "" for part in message.content)


_Body = TypeVar("_Body", bound=_Common)


def _decoded(decoder: msgspec.json.Decoder[_Body], body: bytes) -> _Body:
    try:
        return decoder.decode(shallow(body))
    except ValueError as error:
        raise bad_request(f"the body is not such a request: {error}", "invalid_json") from error
