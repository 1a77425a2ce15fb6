"""The API, asked within the process for somebody who is signed in."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeVar
from urllib.parse import unquote, urlencode

import msgspec
from starlette.types import ASGIApp, Message, Scope

from gtm.api.context import PRINCIPAL, Principal
from gtm.client.calls import Answer, Call
from gtm.client.generated import control_calls as calls
from gtm.client.generated.control_methods import ControlMethods
from gtm.client.objects import JsonObject

T = TypeVar("T")


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


class Inside(ControlMethods):
    """Sends the calls of `gtm.client` to the API in this process.

    Its methods answer whole documents. Of a list that has pages, a page of the dashboard asks for one: `ask(calls.list_tokens(limit=100))`.

    Args:
        app: the API.
        who: is asking.
    """

    def __init__(self, app: ASGIApp, who: Principal) -> None:
        self._app = app
        self.who = who

    async def ask(self, call: Call[T]) -> T:
        """Make a call; what it answers.

        Raises:
            ApiProblem: the API refuses it.
        """
        return (await self.send(call)).value

    async def ask_if_told(self, call: Call[T]) -> T | None:
        """What is answered to a call that a page can do without; None: the API refuses it, or cannot say it now."""
        try:
            return await self.ask(call)
        except ApiProblem:
            return None

    async def send(self, call: Call[T]) -> Answer[T]:
        """Make a call; its whole answer, whose value is the text where it is no JSON.

        Raises:
            ApiProblem: the API refuses it.
        """
        sent = b"" if call.body is None else msgspec.json.encode(call.body)
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

        await self._app(self._scope(call, len(sent)), receive, send)
        found = {key.decode("latin-1").lower(): value.decode("latin-1") for key, value in started["headers"]}
        raw = b"".join(pieces)
        text = raw.decode(errors="replace")
        value: Any = (
            json.loads(text, object_hook=JsonObject)
            if "json" in found.get("content-type", "") and raw
            else text
        )
        if started["status"] >= 400:
            document = value if isinstance(value, dict) else {"title": "error", "detail": str(value)}
            raise ApiProblem(started["status"], document)
        return Answer(started["status"], value, found)

    def _scope(self, call: Call[Any], length: int) -> Scope:
        lines = {"host": "inside", "accept": "application/json", **call.fields}
        if length:
            lines |= {"content-type": "application/json", "content-length": str(length)}
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.4"},
            "http_version": "1.1",
            "method": call.method,
            "scheme": "http",
            "path": unquote(call.path),
            "raw_path": call.path.encode(),
            "root_path": "",
            "query_string": urlencode(call.query).encode(),
            "headers": [
                (name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in lines.items()
            ],
            "client": ("127.0.0.1", 0),
            "server": ("inside", 80),
            PRINCIPAL: self.who,
        }


def resource(kind: str, called: str) -> Call[Any]:
    """The call that reads a resource of the policy."""
    made: Call[Any] = getattr(calls, f"get_{kind}")(called)
    return made


def name(text: str) -> str:
    """A name as one segment of a path: what would end the segment is no name of anything.

    Raises:
        ApiProblem: 404, since nothing has such a name.
    """
    if not text or len(text) > 253 or not all("!" <= char <= "~" and char not in "/:?#%" for char in text):
        raise ApiProblem(404, {"title": "not found", "detail": "nothing has such a name"})
    return text
