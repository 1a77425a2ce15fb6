"""Streams of what moves: bounded by person, and rendered no more often than somebody looks."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress

import pytest
from starlette.requests import ClientDisconnect
from starlette.types import Message

from gtm.dashboard import live as module
from gtm.dashboard.live import MOST, Live, Stream

pytestmark = pytest.mark.anyio


async def test_one_person_has_so_many_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    """With one more the oldest ends, and what only that one looked at is rendered no more; others' go on."""
    monkeypatch.setattr(module, "EVERY", 0.05)
    live, opened = Live(lambda: False), 3 * MOST
    rendered: Counter[str] = Counter()

    def stream(key: str, whose: str) -> AsyncIterator[bytes]:
        async def render() -> Mapping[str, str]:
            rendered[key] += 1
            return {"a": "b"}

        return live.stream(key, render, lambda: True, whose)

    other = stream("other", "bob")
    assert (await anext(other)).startswith(b"retry")
    mine = [stream(f"key {number}", "ann") for number in range(opened)]
    for one in mine:
        assert (await anext(one)).startswith(b"retry")
    for one in mine[:-MOST]:
        async for _ in one:  # what was on its way; then it ends
            pass
    for one in (other, *mine[-MOST:]):
        assert await anext(one) == b"event: a\ndata: b\n\n"
    rendered.clear()
    while rendered["other"] < 6:  # noqa: ASYNC110 - by then each that is rendered has been
        await asyncio.sleep(0.01)
    assert rendered.keys() == {"other", *(f"key {number}" for number in range(2 * MOST, opened))}
    for one in (other, *mine[-MOST:]):
        await one.aclose()  # type: ignore[attr-defined]
    rendered.clear()
    await asyncio.sleep(0.2)
    assert not rendered
    assert not live.open


async def test_who_takes_nothing_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A browser that stays and never reads: its stream ends, and what only it looked at is rendered no more."""
    monkeypatch.setattr(Stream, "patience", 0.05)
    monkeypatch.setattr(module, "EVERY", 0.05)
    live, sent = Live(lambda: False), list[Message]()
    rendered: list[float] = []

    async def render() -> Mapping[str, str]:
        rendered.append(0.0)
        return {"a": "b"}

    async def send(message: Message) -> None:
        sent.append(message)
        if len(sent) > 2:  # its buffers are full
            await asyncio.Event().wait()

    async def receive() -> Message:
        await asyncio.Event().wait()
        raise AssertionError

    scope = {"type": "http", "asgi": {"spec_version": "2.3"}}
    await Stream(live.stream("key", render, lambda: True, "ann"))(scope, receive, send)
    assert [one.get("more_body") for one in sent] == [None, True, True]
    rendered.clear()
    await asyncio.sleep(0.2)
    assert not rendered
    assert not live.open


@pytest.mark.parametrize("version", ["2.3", "2.4"])
async def test_who_leaves_ends_a_stream(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also while nothing is new."""
    monkeypatch.setattr(module, "EVERY", 0.05)
    live, took = Live(lambda: False), asyncio.Event()
    rendered: list[float] = []

    async def render() -> Mapping[str, str]:
        rendered.append(0.0)
        return {"a": "b"}

    async def send(message: Message) -> None:
        if message.get("body", b"").startswith(b"event"):
            took.set()
            if version == "2.4":
                raise OSError("the connection is gone")

    async def receive() -> Message:
        await took.wait()
        return {"type": "http.disconnect"}

    scope = {"type": "http", "asgi": {"spec_version": version}}
    with suppress(ClientDisconnect):
        await Stream(live.stream("key", render, lambda: True, "ann"))(scope, receive, send)
    rendered.clear()
    await asyncio.sleep(0.2)
    assert not rendered
