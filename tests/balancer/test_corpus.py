"""Cases of request smuggling, response splitting and odd parsing: what each side sends, and what the other gets of it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gtm.balancer.plane.contracts import Limits
from tests.balancer.world import Backend, Message, Peer, run, world

_CORPUS = Path(__file__).parent / "corpus"
_OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
_ADDED = {b"x-forwarded-for": b"192.0.2.1"}


@dataclass
class Case:
    name: str
    asks: str = "GET / HTTP/1.1"
    sent: bytes = b""
    ends: bool = False
    answers: list[str] = field(default_factory=list)
    forwarded: list[Message] = field(default_factory=list)
    absent: list[bytes] = field(default_factory=list)

    def __str__(self) -> str:
        return self.name


def _bytes(text: str) -> bytes:
    return text.encode("latin-1").decode("unicode_escape").encode("latin-1")


def _cases(file: str) -> Iterator[Case]:
    case: Case | None = None
    for line in (_CORPUS / file).read_text().splitlines():
        mark, rest = line[:2], line[2:].removeprefix(" ") if line.startswith("==") else line[2:]
        if mark == "==":
            if case is not None:
                yield case
            case = Case(rest)
        if case is None or not line or mark in ("# ", "#", "=="):
            continue
        if mark in ("> ", ">"):
            case.sent += _bytes(rest)
        elif mark == "? ":
            case.asks = rest
        elif mark == "!":
            case.ends = True
        elif mark == "< ":
            case.answers.append(rest)
        elif mark == "- ":
            case.absent.append(rest.encode())
        elif mark == "| ":
            _forwarded(case, _bytes(rest))
        else:
            raise AssertionError(line)
    if case is not None:
        yield case


def _forwarded(case: Case, line: bytes) -> None:
    if line.startswith(b"= "):
        case.forwarded[-1].body = line[2:]
    elif line.startswith(b"+ "):
        name, _, value = line[2:].partition(b":")
        case.forwarded[-1].trailers.append((name, value.strip()))
    elif b" HTTP/1.1" in line:
        case.forwarded.append(Message(line, []))
    else:
        name, _, value = line.partition(b":")
        case.forwarded[-1].headers.append((name, value.strip()))


def _code(body: bytes) -> str:
    return str(msgspec.json.decode(body)["code"])


def _said(message: Message) -> tuple[Any, ...]:
    """A request at the backend without what gtm adds to all, which must be there once."""
    fields = [(name.lower(), value) for name, value in message.headers]
    for name, value in _ADDED.items():
        fields.remove((name, value))
    return (
        message.start,
        sorted(fields),
        message.body,
        [(name.lower(), value) for name, value in message.trailers],
    )


@pytest.mark.parametrize("case", tuple(_cases("requests.txt")), ids=str)
def test_requests(case: Case) -> None:
    """A request is refused, or goes on in one reading only."""
    wanted = []
    for message in case.forwarded:
        fields = dict(message.headers)
        old = any(line.startswith(b"via") for line in fields)
        if not old:
            version = b"1.0" if b" HTTP/1.0\r\n" in case.sent else b"1.1"
            message.headers.append((b"via", version + b" gtm"))
        wanted.append((message.start, sorted(message.headers), message.body, message.trailers))

    async def main() -> None:
        seen: list[Message] = []

        async def script(peer: Peer) -> None:
            while True:
                request = await peer.request()
                if not request.whole:
                    return
                seen.append(request)
                peer.send(_OK)

        backend = Backend(script)
        async with world(await backend.start()) as w:
            # Whole, whole once more (what was read before is known), and byte by byte.
            for cut in (len(case.sent), len(case.sent), 1):
                seen.clear()
                client = await w.client()
                for at in range(0, len(case.sent), cut):
                    client.send(case.sent[at : at + cut])
                    if cut == 1:
                        await asyncio.sleep(0)
                for wants in case.answers:
                    status, _, code = wants.partition(" ")
                    answer = await client.response()
                    assert answer.status == int(status), (cut, answer)
                    assert answer.whole
                    if code:
                        assert _code(answer.body) == code
                if int(case.answers[-1][:3]) >= 400:
                    assert answer.get("connection") == b"close"
                    assert await client.end() == b""
                client.abort()
                await w.until(lambda: not w.proxy.connections)
                assert [_said(message) for message in seen] == wanted, (cut, seen)
                await w.nothing_left()

    run(main)


_UPGRADE = b"Connection: upgrade\r\nUpgrade: websocket\r\n"


@pytest.mark.parametrize("case", tuple(_cases("responses.txt")), ids=str)
def test_responses(case: Case) -> None:
    """An answer goes on as it was, or is the backend's failure; and what is left of it is nobody's answer."""

    async def main() -> None:
        async def script(peer: Peer) -> None:
            while True:
                request = await peer.request()
                if b"/second" in request.start:
                    peer.send(_OK.replace(b"ok", b"2!"))
                    continue
                peer.send(case.sent)
                if case.ends:
                    return

        backend = Backend(script)
        # Not to be tried again: what breaks once shall be seen.
        async with world(await backend.start(), limits=Limits(tries=1)) as w:
            line = "GET / HTTP/1.1" if case.asks == "upgrade" else case.asks
            for _ in range(2):  # what was read before is known
                client = await w.client()
                client.send(
                    line.encode() + b"\r\nHost: a\r\n" + _UPGRADE * (case.asks == "upgrade") + b"\r\n"
                )
                for wants in case.answers:
                    status, _, body = wants.partition(" ")
                    answer = await client.response(line.split(" ")[0])
                    assert answer.status == int(status), answer
                    if int(status) == 502:
                        assert _code(answer.body) == body
                    else:
                        assert answer.body == body.removesuffix(" ...").encode(), answer
                        assert answer.whole is not body.endswith(" ...")
                    for name in case.absent:
                        assert name not in answer.names | {name.lower() for name, _ in answer.trailers}
            second = await w.ask(b"GET /second HTTP/1.1\r\nHost: a\r\n\r\n")
            assert (second.status, second.body) == (200, b"2!")

    run(main)
