"""Answers as bytes: OpenAI's documents and events, in HTTP/1.1.

A stream's events are the same but for the word, and all words have the same length, so that a token costs one concatenation.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from gtm.demo.backend.requests import Wanted

JSON = "application/json"
EVENTS = "text/event-stream; charset=utf-8"


def head(status: HTTPStatus, headers: Mapping[str, str]) -> bytes:
    """A status line and header lines."""
    lines = [
        f"HTTP/1.1 {status.value} {status.phrase}",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1", "replace")


def usage(prompt_tokens: int, answer_tokens: int, cached_tokens: int) -> dict[str, Any]:
    """OpenAI's `usage`."""
    return {
        "prompt_tokens": prompt_tokens,
        "total_tokens": prompt_tokens + answer_tokens,
        "completion_tokens": answer_tokens,
        "prompt_tokens_details": {"cached_tokens": cached_tokens},
    }


class Writer:
    """Writes the answer to one request.

    Args:
        wanted: the request.
        identity: of the answer, without its kind.
        created: Unix seconds.
        framed: whether events go in chunks (HTTP/1.1), else the end of the connection ends them.
    """

    def __init__(self, wanted: Wanted, identity: str, created: int, *, framed: bool) -> None:
        self._chat = wanted.chat
        self._usage = wanted.include_usage
        self._framed = framed
        self._base: dict[str, Any] = {
            "id": f"{'chatcmpl' if wanted.chat else 'cmpl'}-{identity}",
            "object": "chat.completion" if wanted.chat else "text_completion",
            "created": created,
            "model": wanted.model,
        }
        if wanted.stream and wanted.chat:
            self._base["object"] = "chat.completion.chunk"
        self._around: tuple[bytes, bytes] | None = None

    def opening(self) -> bytes:
        """What comes before a stream's first token."""
        return self._choice({"role": "assistant", "content": ""}, None) if self._chat else b""

    def token(self, word: str) -> bytes:
        """A token of a stream; four plain characters."""
        if self._around is None:
            # A gap of the same length, so that the chunk's size is right.
            gap = self._choice({"content": "????"} if self._chat else "????", None)
            before, _, after = gap.rpartition(b"????")
            self._around = before, after
        return self._around[0] + word.encode() + self._around[1]

    def closing(self, reason: str, counts: Mapping[str, Any]) -> bytes:
        """What comes after a stream's last token."""
        parts = [self._choice({} if self._chat else "", reason)]
        if self._usage:
            parts.append(self._event({**self._base, "choices": [], "usage": counts}))
        return b"".join(parts) + self.end()

    def failure(self, document: Mapping[str, Any]) -> bytes:
        """The end of a stream that began well."""
        return self._event(document) + self.end()

    def end(self) -> bytes:
        """The last event."""
        done = b"data: [DONE]\n\n"
        return _chunk(done) + b"0\r\n\r\n" if self._framed else done

    def whole(self, text: str, reason: str, counts: Mapping[str, Any]) -> bytes:
        """An answer in one piece."""
        choice: dict[str, Any] = {"index": 0, "logprobs": None, "finish_reason": reason}
        if self._chat:
            choice["message"] = {"role": "assistant", "content": text}
        else:
            choice["text"] = text
        return json.dumps({**self._base, "choices": [choice], "usage": counts}).encode()

    def _choice(self, delta: Mapping[str, Any] | str, reason: str | None) -> bytes:
        name = "delta" if self._chat else "text"
        choice = {"index": 0, name: delta, "logprobs": None, "finish_reason": reason}
        return self._event({**self._base, "choices": [choice]})

    def _event(self, document: Mapping[str, Any]) -> bytes:
        event = b"data: " + json.dumps(document, separators=(",", ":")).encode() + b"\n\n"
        return _chunk(event) if self._framed else event


def _chunk(content: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(content), content)
