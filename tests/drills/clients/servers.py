"""Two unlike model servers, as strict as vLLM where a balancer could be wrong: each knows its own routes and models, and says 404 to all others.

Routes, names of fields and words of refusals are vLLM 0.32's. What a server answers tells what it was sent, so that a client can see whether all of it arrived.
"""

from __future__ import annotations

import asyncio
import base64
import json
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from email import message_from_bytes, policy
from email.message import EmailMessage
from http import HTTPStatus
from itertools import count
from typing import Any, cast

from gtm.demo.backend.protocol import Connection, Request

LLAMA, BGE, WHISPER = "llama", "bge", "whisper"
FOREVER, LATE, IN_TURNS = "forever", "late", "in turns"
"""Prompts: an answer of which every 10 ms a piece comes, and that does not end; one that never begins; one of which a piece comes each time that `/next` is asked."""
Document = dict[str, Any]


class RefusedError(Exception):
    """What a server answers where it cannot do what is asked."""

    def __init__(self, status: HTTPStatus, body: Document) -> None:
        super().__init__(status)
        self.status, self.body = status, body


def _error(status: HTTPStatus, message: str, kind: str, param: str | None = None) -> RefusedError:
    return RefusedError(
        status, {"error": {"message": message, "type": kind, "param": param, "code": status.value}}
    )


def _bad(message: str) -> RefusedError:
    return _error(HTTPStatus.BAD_REQUEST, message, "BadRequestError")


class Server:
    """One model server.

    Args:
        models: that it has.
        routes: method and path → what answers there.
        keys: API keys of which a request to a model must show one; none: it need not.
    """

    def __init__(
        self, models: tuple[str, ...], routes: dict[tuple[str, str], str], keys: frozenset[str] = frozenset()
    ) -> None:
        self._models = models
        self._routes = routes
        self._numbers = count(1)
        self._turns: dict[str, list[str]] = {}
        self._keys = keys
        self._turn: Callable[[], None] = lambda: None
        self.cancelled = 0
        """Answers whose client went away before their end."""
        self.with_key = self.without_key = 0
        """Requests that showed a key, and clients' that were refused since they showed none."""
        self.connections: set[Connection] = set()

    def handle(self, connection: Connection, request: Request) -> None:
        """Answer a request, now or piece by piece."""
        path, of = request.path, ""
        if path.startswith("/v1/responses/"):
            path, _, of = path.rpartition("/")
        name = self._routes.get((request.method, path + "/*" * bool(of)))
        if name is None:
            connection.respond(HTTPStatus.NOT_FOUND, b'{"detail":"Not Found"}')
            return
        try:
            if name not in _OPEN:
                self._unlock(request)
            getattr(self, name)(connection, of or request)
        except RefusedError as refused:
            connection.respond(refused.status, json.dumps(refused.body).encode())

    # Routes.

    def health(self, connection: Connection, _: Request) -> None:
        """GET /health."""
        connection.respond(HTTPStatus.OK, b"")

    def tell(self, connection: Connection, _: Request) -> None:
        """GET /seen: for the test alone."""
        _say(connection, {"cancelled": self.cancelled})

    def advance(self, connection: Connection, _: Request) -> None:
        """GET /next: for the test alone."""
        self._turn()
        _say(connection, {})

    def list(self, connection: Connection, _: Request) -> None:
        """GET /v1/models."""
        cards = [{"id": name, "object": "model", "created": 1, "owned_by": "vllm"} for name in self._models]
        _say(connection, {"object": "list", "data": cards})

    def chat(self, connection: Connection, request: Request) -> None:
        """POST /v1/chat/completions."""
        asked = self._json(request)
        text, calls = _answer(asked)
        base = {"id": f"chatcmpl-{next(self._numbers)}", "created": 1, "model": asked["model"]}
        usage = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
        if not asked.get("stream"):
            if text == LATE:
                self._hold(connection)
                return
            called = {"tool_calls": [_call(name) for name in calls]} if calls else {}
            message = {"role": "assistant", "content": None if calls else text, **called}
            choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop"}
            _say(connection, {**base, "object": "chat.completion", "choices": [choice], "usage": usage})
            return

        def piece(delta: Document, reason: str | None = None) -> bytes:
            choices = [{"index": 0, "delta": delta, "finish_reason": reason}]
            return _event({**base, "object": "chat.completion.chunk", "choices": choices})

        pieces = [piece({"role": "assistant", "content": ""}), *(piece({"content": one}) for one in text)]
        if calls:
            pieces[1:] = [piece({"tool_calls": [{"index": 0, **_call(calls[0])}]})]
        ends = [piece({}, "tool_calls" if calls else "stop")]
        if (asked.get("stream_options") or {}).get("include_usage"):
            ends.append(_event({**base, "object": "chat.completion.chunk", "choices": [], "usage": usage}))
        self._stream(connection, text, pieces, [*ends, b"data: [DONE]\n\n"])

    def messages(self, connection: Connection, request: Request) -> None:
        """POST /v1/messages."""
        asked = self._json(request)
        text, calls = _answer(asked)
        block: Document = {"type": "text", "text": text}
        if calls:
            block = {"type": "tool_use", "id": "toolu_1", "name": calls[0], "input": {"city": "Oslo"}}
        whole = {
            "id": f"msg_{next(self._numbers)}",
            "type": "message",
            "role": "assistant",
            "model": asked["model"],
            "stop_reason": "tool_use" if calls else "end_turn",
            "stop_sequence": None,
            "usage": {"input_tokens": 3, "output_tokens": 4},
            "content": [block],
        }
        if not asked.get("stream"):
            if text == LATE:
                self._hold(connection)
            else:
                _say(connection, whole)
            return

        def event(kind: str, **more: Any) -> bytes:
            return _event({"type": kind, **more}, kind)

        def piece(delta: Document) -> bytes:
            return event("content_block_delta", index=0, delta=delta)

        empty = {**block, **({"input": {}} if calls else {"text": ""})}
        pieces = [
            event("message_start", message={**whole, "content": [], "stop_reason": None}),
            event("content_block_start", index=0, content_block=empty),
        ]
        if calls:
            pieces.append(piece({"type": "input_json_delta", "partial_json": '{"city": "Oslo"}'}))
        else:
            pieces.extend(piece({"type": "text_delta", "text": one}) for one in text)
        why = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
        ends = [
            event("content_block_stop", index=0),
            event("message_delta", delta=why, usage={"output_tokens": 4}),
            event("message_stop"),
        ]
        self._stream(connection, text, pieces, ends)

    def respond(self, connection: Connection, request: Request) -> None:
        """POST /v1/responses: what came before is in this server's memory alone."""
        asked = self._json(request)
        before = asked.get("previous_response_id")
        turns = [] if before is None else self._response(before)
        given = asked["input"] if isinstance(asked["input"], str) else _text(asked["input"][-1]["content"])
        name = f"resp_{id(self):x}{next(self._numbers)}"
        self._turns[name] = [*turns, given]
        _say(connection, self._written(name))

    def retrieve(self, connection: Connection, name: str) -> None:
        """GET /v1/responses/ID."""
        self._response(name)
        _say(connection, self._written(name))

    def embed(self, connection: Connection, request: Request) -> None:
        """POST /v1/embeddings: the first number of a vector is the number at the end of its text."""
        asked = self._json(request)
        given = asked["input"] if isinstance(asked["input"], list) else [asked["input"]]
        if given == [LATE]:
            self._hold(connection)
            return
        found = []
        for number, text in enumerate(given):
            vector = (float(text.rpartition(" ")[2]), 0.5, -0.25)
            packed = base64.b64encode(struct.pack("<3f", *vector)).decode()
            shown = packed if asked.get("encoding_format") == "base64" else list(vector)
            found.append({"object": "embedding", "index": number, "embedding": shown})
        usage = {"prompt_tokens": 2 * len(given), "total_tokens": 2 * len(given)}
        _say(connection, {"object": "list", "data": found, "model": asked["model"], "usage": usage})

    def transcribe(self, connection: Connection, request: Request) -> None:
        """POST /v1/audio/transcriptions: says the length of a WAV file."""
        kind = request.headers.get("content-type", "")
        if not kind.startswith("multipart/form-data"):
            raise _bad("the body is no form")
        form = cast(
            "EmailMessage",
            message_from_bytes(f"Content-Type: {kind}\r\n\r\n".encode() + request.body, policy=policy.HTTP),
        )
        parts = {str(one.get_param("name", header="content-disposition")): one for one in form.iter_parts()}
        if not parts.keys() >= {"file", "model"}:
            raise _bad(f"a part of the form is missing: {sorted(parts)}")
        self._known(str(parts["model"].get_content()).strip())
        sound = parts["file"].get_payload(decode=True)
        if not isinstance(sound, bytes) or sound[:4] != b"RIFF":
            raise _bad("the file is no WAV file")
        _say(connection, {"text": f"{len(sound)} bytes", "usage": {"type": "duration", "seconds": 1}})

    # What they share.

    def _unlock(self, request: Request) -> None:
        if not self._keys:
            return
        shown = request.headers.get("authorization", "").removeprefix("Bearer ")
        if not {shown, request.headers.get("x-api-key", "")} & self._keys:
            self.without_key += "x-forwarded-for" in request.headers  # a balancer's own checks show none
            raise _error(HTTPStatus.UNAUTHORIZED, "Unauthorized", "AuthenticationError")
        self.with_key += 1

    def _json(self, request: Request) -> Document:
        if request.headers.get("content-type", "").partition(";")[0] != "application/json":
            raise _bad("the body is no JSON")
        asked: Document = json.loads(request.body)
        self._known(asked["model"])
        return asked

    def _known(self, model: str) -> None:
        if model not in self._models:
            message = f"The model `{model}` does not exist."
            raise _error(HTTPStatus.NOT_FOUND, message, "NotFoundError", "model")

    def _response(self, name: str) -> list[str]:
        if name not in self._turns:
            message = f"Response with id '{name}' not found."
            raise _error(HTTPStatus.NOT_FOUND, message, "invalid_request_error", "response_id")
        return self._turns[name]

    def _written(self, name: str) -> Document:
        turns = self._turns[name]
        part = {"type": "output_text", "text": " | ".join(turns), "annotations": []}
        message = {
            "id": f"msg_{name}",
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "content": [part],
        }
        details = {"cached_tokens": 0, "cache_write_tokens": 0}
        usage = {
            "input_tokens": 3,
            "output_tokens": 4,
            "total_tokens": 7,
            "input_tokens_details": details,
            "output_tokens_details": {"reasoning_tokens": 0},
        }
        return {
            "id": name,
            "object": "response",
            "created_at": 1,
            "status": "completed",
            "model": LLAMA,
            "output": [message],
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
            "usage": usage,
            "error": None,
            "incomplete_details": None,
            "instructions": None,
            "metadata": {},
            "temperature": 1.0,
            "top_p": 1.0,
        }

    def _gone(self) -> None:
        self.cancelled += 1

    def _hold(self, connection: Connection) -> None:
        """Say nothing."""
        connection.on_lost = self._gone

    def _stream(self, connection: Connection, text: str, pieces: list[bytes], ends: list[bytes]) -> None:
        if text == LATE:
            self._hold(connection)
            return
        loop = asyncio.get_running_loop()
        if text == IN_TURNS:  # what clients do not show comes with the first letter
            first = len(pieces) - len(text) + 1
            pieces = [b"".join(pieces[:first]), *pieces[first:]]
        left = iter(pieces)
        connection.open()

        def more() -> None:
            nonlocal timer
            self._turn = lambda: None
            piece = next(left, None)
            if piece is None and text != FOREVER:
                connection.write(b"".join(map(_chunk, ends)) + b"0\r\n\r\n")
                connection.close_stream()
                return
            connection.write(_chunk(pieces[-1] if piece is None else piece))
            if text == IN_TURNS:
                self._turn = more
            else:
                timer = loop.call_later(0.01, more)

        def gone() -> None:
            timer.cancel()
            self._gone()

        timer: asyncio.Handle = loop.call_soon(more)
        connection.on_lost = gone


_BOTH = {("GET", "/health"): "health", ("GET", "/v1/models"): "list", ("GET", "/seen"): "tell"}
_BOTH |= {("GET", "/next"): "advance"}
_OPEN = {"health", "tell", "advance"}
_CHAT = {
    ("POST", "/v1/chat/completions"): "chat",
    ("POST", "/v1/messages"): "messages",
    ("POST", "/v1/responses"): "respond",
    ("GET", "/v1/responses/*"): "retrieve",
}
_OTHER = {("POST", "/v1/embeddings"): "embed", ("POST", "/v1/audio/transcriptions"): "transcribe"}


def _say(connection: Connection, document: Document) -> None:
    connection.respond(HTTPStatus.OK, json.dumps(document).encode())


def _event(document: Document, kind: str = "") -> bytes:
    named = f"event: {kind}\n" if kind else ""
    return f"{named}data: {json.dumps(document)}\n\n".encode()


def _chunk(content: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(content), content)


def _call(name: str) -> Document:
    return {"id": "call_1", "type": "function", "function": {"name": name, "arguments": '{"city": "Oslo"}'}}


def _answer(asked: Document) -> tuple[str, list[str]]:
    """What is said to a chat, and the names of tools that are called: an image is measured, an answer of a tool is repeated."""
    last = asked["messages"][-1]
    content = last.get("content")
    parts = content if isinstance(content, list) else []
    for part in parts:
        if part["type"] == "image_url":
            kind, _, data = part["image_url"]["url"].partition(";base64,")
        elif part["type"] == "image":
            kind, data = "data:" + part["source"]["media_type"], part["source"]["data"]
        else:
            continue
        image = base64.b64decode(data, validate=True)
        if kind != "data:image/png" or image[:4] != b"\x89PNG":
            raise _bad("the image is no PNG")
        return f"{len(image)} bytes", []
    told = last.get("role") == "tool" or any(part["type"] == "tool_result" for part in parts)
    names = [] if told else [one.get("name") or one["function"]["name"] for one in asked.get("tools") or []]
    return _text(content), names


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "".join(_text(part.get("text") or part.get("content") or "") for part in content)
    return str(content)


def chat_server(keys: frozenset[str] = frozenset()) -> Server:
    """One that talks: `llama`."""
    return Server((LLAMA,), _BOTH | _CHAT, keys)


def other_server(keys: frozenset[str] = frozenset()) -> Server:
    """One that makes vectors and writes down what is said: `bge` and `whisper`."""
    return Server((BGE, WHISPER), _BOTH | _OTHER, keys)


@contextmanager
def serving(*servers: Server) -> Iterator[list[str]]:
    """Their URLs, while they serve in a thread of their own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    async def start() -> list[str]:
        found = []
        for one in servers:
            made = _connections(one)
            listening = await loop.create_server(made, "127.0.0.1", 0)
            opened.append(listening)
            found.append(f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}")
        return found

    async def stop() -> None:
        for listening in opened:
            listening.close()
        for one in servers:
            for connection in tuple(one.connections):
                connection.abort()

    opened: list[asyncio.Server] = []
    try:
        yield asyncio.run_coroutine_threadsafe(start(), loop).result()
    finally:
        asyncio.run_coroutine_threadsafe(stop(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def _connections(server: Server) -> Callable[[], Connection]:
    return lambda: Connection(server.handle, server.connections)
