"""What one server has made and keeps, and requests that go on with it: responses, conversations, files, batches.

Such a thing has an id that its server gave it. Who asks for it must be led to that server: any other says 404, though it is there.

| where the id stands | examples |
|---|---|
| in the path | `GET /v1/responses/ID`, `POST /v1/responses/ID/cancel`, `GET /v1/files/ID/content`, `POST /v1/threads/ID/runs` |
| in the body | `previous_response_id` and `conversation` of `POST /v1/responses`, `input_file_id` of `POST /v1/batches` |
| in the answer | the first `id` of what answers the POST that makes it, also in the first event of a stream |

Source: OpenAI API reference (platform.openai.com/docs/api-reference, 2026-11); vLLM 0.32 keeps responses in one process's memory.
"""

from __future__ import annotations

import re

MAX_ID = 256
"""Characters of an id: longer ones are none."""
LOOKED_AT = 8192
"""Bytes of an answer's beginning, with its head, in which an id is looked for."""
NOT_THERE = frozenset((400, 404))
"""Statuses by which servers say that they have not what is asked for."""
_MAKES = rb"responses|conversations|files|uploads|batches|vector_stores|containers|assistants|threads|threads/runs|fine_tuning/jobs"
_MADE = re.compile(rb"/v1/(?:%b)" % _MAKES)
_NAMED = re.compile(
    rb"/v1/(?:responses|conversations|chat/completions|files|uploads|batches|vector_stores|containers|assistants|threads|fine_tuning/jobs)/([^/?]+)"
)
_ID = re.compile(rb'"id"\s*:\s*"([A-Za-z0-9_.:-]{1,%d})"' % MAX_ID)


def makes_state(method: bytes, path: bytes) -> bool:
    """Whether a request makes something that its server keeps."""
    return method == b"POST" and _MADE.fullmatch(path) is not None


def says_absent(status: int, body: bytes, thing: str) -> bool:
    """Whether a server says that it has not what a request goes on with: by 404, or, as OpenAI's API says it, by a 400 that names it."""
    return status == 404 or (status == 400 and thing.encode() in body)


def named_in(target: bytes) -> str | None:
    """The id that a path names; None: it names none."""
    found = _NAMED.match(target)
    if found is None or len(found[1]) > MAX_ID or found[0] == b"/v1/threads/runs":
        return None
    return found[1].decode("latin-1")


class IdFinder:
    """Finds the id of what a server has made, in what it sends: framing and all. Text of clients and models cannot pass for it: its quotes are escaped."""

    __slots__ = ("_begin", "id")

    def __init__(self) -> None:
        self._begin = b""
        self.id = ""

    def piece(self, data: bytes) -> None:
        """Look into some more, as long as nothing is found and it is the beginning."""
        if self.id or len(self._begin) >= LOOKED_AT:
            return
        self._begin += data[:LOOKED_AT]
        found = _ID.search(self._begin)
        if found is not None:
            self.id, self._begin = found[1].decode(), b""
