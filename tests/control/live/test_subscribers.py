"""Who follows the feed, and what is divided among those who do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, aclosing
from dataclasses import replace
from typing import cast

import pytest

from gtm.control.errors import Conflict
from gtm.control.live.present import Current, Present
from gtm.control.live.subscribers import Subscribers
from gtm.core.model.state import State
from gtm.feed.wire import RoomMessage, StateMessage, decode


async def _told(stream: AsyncIterator[bytes]) -> RoomMessage:
    """The free slots that a follower is told next."""
    async for chunk in stream:
        for line in chunk.splitlines():
            message = decode(line)
            if isinstance(message, RoomMessage):
                return message
    raise AssertionError("the feed has ended")


def test_a_token_s_feeds_leave_others_their_part() -> None:
    """Sixty feeds of one token: others are told of as many tokens as before, and those of this one of each other."""

    async def main() -> None:
        current = Current(Present(State()))
        known = Subscribers(current, lambda: 0.0, asyncio.get_running_loop().time)
        async with AsyncExitStack() as stack:

            async def follows(name: str, token: str) -> AsyncIterator[bytes]:
                stream = known.stream_to_balancer(name, 0, None, lambda: True, token)
                await stack.enter_async_context(aclosing(cast("AsyncGenerator[bytes, None]", stream)))
                await anext(stream)
                return stream

            eu, edge = await follows("eu-1", "bal-eu"), known.stream("fra-1", 0, token="fra-1")
            await stack.enter_async_context(aclosing(cast("AsyncGenerator[bytes, None]", edge)))
            await anext(edge)
            us = [await follows("us-1", "bal-us")]
            assert known.senders == 3
            us += [await follows(f"us-{number % 7}", "bal-us") for number in range(59)]
            current.become(Present(State(), rooms=RoomMessage({}, known.senders)))
            told = [await _told(one) for one in (eu, edge, us[0], us[-1])]
            assert [(one.senders, one.beside) for one in told] == [(3, 1), (3, 1), (3, 7), (3, 7)]
        assert known.senders == 0

    asyncio.run(asyncio.wait_for(main(), 30))


def test_a_follower_is_told_whether_the_plan_is_kept_as_it_is_now() -> None:
    """The state may be the same as when another was told."""

    async def main() -> None:
        now = Present(State(7))
        current = Current(now)
        known = Subscribers(current, lambda: 0.0, asyncio.get_running_loop().time)

        async def kept() -> bool:
            async with aclosing(cast("AsyncGenerator[bytes, None]", known.stream("a", 0))) as stream:
                async for chunk in stream:
                    for line in chunk.splitlines():
                        message = decode(line)
                        if isinstance(message, StateMessage):
                            return message.keep_plan
            raise AssertionError("the feed has ended")

        assert await kept()
        current.become(replace(now, keep_plan=False))
        assert not await kept()

    asyncio.run(asyncio.wait_for(main(), 30))


def test_a_token_s_feeds_are_bounded() -> None:
    """Of one more the answer says what to do; another token has room, and so has this one when one ends."""

    async def main() -> None:
        known = Subscribers(Current(Present(State())), lambda: 0.0, asyncio.get_running_loop().time)
        streams = [known.stream_to_balancer("us-1", 0, None, lambda: True, "bal-us") for _ in range(3)]
        for stream in streams:
            known.require_room("bal-us", 3)
            await anext(stream)
        with pytest.raises(Conflict, match="3 feeds open"):
            known.require_room("bal-us", 3)
        known.require_room("bal-eu", 3)
        await cast("AsyncGenerator[bytes, None]", streams[0]).aclose()
        known.require_room("bal-us", 3)
        for stream in streams:
            await cast("AsyncGenerator[bytes, None]", stream).aclose()

    asyncio.run(asyncio.wait_for(main(), 30))
