"""The API, asked within the process for somebody who is signed in."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

import msgspec
from starlette.types import ASGIApp, Message, Scope

from gtm.api.context import PRINCIPAL, Principal
from gtm.client.objects import JsonObject

Query = Mapping[str, str | int | float | bool | None]


class ApiProblem(Exception):  # noqa: N818 - what the API calls it
    """The API has refused something.

    Args:
        status: of the answer.
        document: the problem document (RFC 9457).
    """

    def __init__(self, status: int, document: Mapping[str, Any]) -> None:
        super().__init__(str(document.get("detail", "")))
        self.status = status
        self.document = document


@dataclass(frozen=True, slots=True)
class Answer:
    """What the API answered: `content` is the JSON, or the text where it is none."""

    status: int
    headers: Mapping[str, str]
    content: Any


class Inside:
    """See above.

    Args:
        app: the API.
        who: is asking.
    """

    def __init__(self, app: ASGIApp, who: Principal) -> None:
        self._app = app
        self.who = who

    async def get(self, path: str, **query: str | float | bool | None) -> Any:
        """What an endpoint answers to GET.

        Raises:
            ApiProblem: it refuses.
        """
        return (await self.ask("GET", path, query)).content

    async def get_if_told(self, path: str, **query: str | float | bool | None) -> Any:
        """The same of what a page can do without; None: the API refuses it, or cannot say it now."""
        try:
            return await self.get(path, **query)
        except ApiProblem:
            return None

    async def ask(
        self,
        method: str,
        path: str,
        query: Query | None = None,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Ask an endpoint.

        Args:
            method: of HTTP.
            path: as it is written in the documentation, names in it as `name` makes them.
            query: parameters; those that are None are left out.
            body: what is sent as JSON; None: nothing.
            headers: more of them.

        Raises:
            ApiProblem: it refuses.
        """
        sent = b"" if body is None else msgspec.json.encode(body)
        scope = self._scope(method, path, query or {}, sent, headers or {})
        started: dict[str, Any] = {}
        pieces: list[bytes] = []
        unread = [sent]

        async def receive() -> Message:
            if unread:
                return {"type": "http.request", "body": unread.pop(), "more_body": False}
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            if message["type"] == "http.response.start":
                started.update(message)
            else:
                pieces.append(message.get("body", b""))

        await self._app(scope, receive, send)
        found = {key.decode("latin-1").lower(): value.decode("latin-1") for key, value in started["headers"]}
        raw = b"".join(pieces)
        kind = found.get("content-type", "")
        text = raw.decode(errors="replace")
        content = json.loads(text, object_hook=JsonObject) if "json" in kind and raw else text
        if started["status"] >= 400:
            document = content if isinstance(content, dict) else {"title": "error", "detail": str(content)}
            raise ApiProblem(started["status"], document)
        return Answer(started["status"], found, content)

    def _scope(self, method: str, path: str, query: Query, body: bytes, headers: Mapping[str, str]) -> Scope:
        lines = {"host": "inside", "accept": "application/json", **headers}
        if body:
            lines |= {"content-type": "application/json", "content-length": str(len(body))}
        given = {key: _written(value) for key, value in query.items() if value is not None}
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.4"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": quote(path, safe="/:").encode(),
            "root_path": "",
            "query_string": urlencode(given).encode(),
            "headers": [
                (name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in lines.items()
            ],
            "client": ("127.0.0.1", 0),
            "server": ("inside", 80),
            PRINCIPAL: self.who,
        }


def name(text: str) -> str:
    """A name as one segment of a path: what would end the segment is no name of anything.

    Raises:
        ApiProblem: 404, since nothing has such a name.
    """
    if not text or len(text) > 253 or not all("!" <= char <= "~" and char not in "/:?#%" for char in text):
        raise ApiProblem(404, {"title": "not found", "detail": "nothing has such a name"})
    return text


def _written(value: str | float | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
