"""Streams of what moves: bounded by person, and rendered no more often than somebody looks."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping

import pytest

from gtm.dashboard.live import MOST, Live

pytestmark = pytest.mark.anyio


async def test_one_person_has_so_many_streams() -> None:
    """With one more the oldest ends, and what only that one looked at is rendered no more; others' go on."""
    live, opened = Live(lambda: False), 3 * MOST

    async def render() -> Mapping[str, str]:
        return {"a": "b"}

    def stream(key: str, whose: str) -> AsyncIterator[bytes]:
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
    assert len(live._channels) == MOST + 1
    for one in (other, *mine[-MOST:]):
        await one.aclose()  # type: ignore[attr-defined]
    assert not live._channels
    assert not live._open
