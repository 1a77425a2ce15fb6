"""What is worked out of a policy once, and before somebody asks."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace

import pytest

from gtm.api.context import Once, prepare
from gtm.control.live.compiled import compiled
from gtm.control.live.present import Current, Present
from gtm.core.model.policy import Policy
from gtm.core.model.state import State
from gtm.core.policy.snapshot import Snapshot
from tests.patience import PATIENCE


def test_the_last_is_kept() -> None:
    """By what it is, not by what it equals; another takes its place."""
    made: list[list[int]] = []

    def work(given: list[int]) -> int:
        made.append(given)
        return len(given)

    once, first, equal = Once(work), [1], [1]
    assert [once.of(first), once.of(first), once.of(equal), once.of(first)] == [1, 1, 1, 1]
    assert [id(one) for one in made] == [id(first), id(equal), id(first)]


@pytest.mark.anyio
async def test_each_policy_is_prepared_for_as_soon_as_it_is_in_force() -> None:
    """Once, however often the present changes."""
    current, seen = Current(Present(State(epoch=1))), list[Snapshot]()
    done = asyncio.Event()

    def work(snapshot: Snapshot) -> None:
        seen.append(snapshot)
        loop.call_soon_threadsafe(done.set)

    loop = asyncio.get_running_loop()
    task = asyncio.create_task(prepare(current, work))
    one, other = compiled(Policy(), 1), compiled(Policy(), 2)
    for snapshot in (one, one, other):
        current.become(replace(current.now, compiled=snapshot))
        if snapshot is not seen[-1] if seen else True:
            await asyncio.wait_for(done.wait(), PATIENCE)
            done.clear()
    assert seen == [one, other]
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
