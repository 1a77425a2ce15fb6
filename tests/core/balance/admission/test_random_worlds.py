"""Admission follows its page in random worlds: everything that a data plane may do, in any order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gtm.core.balance.admission.settings import AdmissionSettings, TenantLimits
from gtm.core.balance.admission.values import Arrival, Used
from gtm.core.model.services import Priority
from tests.core.balance.admission.pair import SLOTS, Pair, world
from tests.core.strategies import quick
from tests.effort import examples


@quick(120)
@given(st.data(), st.integers(1, 30))
def test_admission_follows_its_page(data: st.DataObject, steps: int) -> None:
    """Short walks, which shrink to what matters."""

    def choose(options: Sequence[Any]) -> Any:
        return data.draw(st.sampled_from(options))

    pair = Pair(world(choose), choose(SLOTS))
    for _ in range(steps):
        pair.step(choose)
    pair.end()


@pytest.mark.endurance
def test_admission_follows_its_page_for_long() -> None:
    """Long walks, on which everything that can be said is said."""
    seen: Counter[str] = Counter()
    for seed in range(examples(480, 240, few=40)):
        choose = Random(seed).choice
        pair = Pair(world(choose), choose(SLOTS))
        for _ in range(120):
            pair.step(choose)
        pair.end()
        seen += pair.seen
    rare = {name: count for name, count in seen.items() if count < 5}
    assert not rare
    assert len(seen) == 14, seen


@pytest.mark.endurance
def test_a_full_queue_follows_its_page() -> None:
    """Crowds: nearly all that comes must wait, and there is no place for most of it."""
    gave_way: Counter[str] = Counter()
    worlds = examples(240, 120)
    for seed in range(worlds):
        choose = Random(seed).choice
        tenants = {name: TenantLimits(choose([0.5, 1.0, 2.0])) for name in "abc"}
        settings = AdmissionSettings(
            queue_length=choose([4, 8]), queue_bytes=choose([16, 64]), tenants=tenants
        )
        pair = Pair(settings, 2)
        for _ in range(80):
            tier = choose([Priority.REAL_TIME, Priority.NEAR_REAL_TIME] + [Priority.BATCH] * 4)
            tenant = choose("aaabbcd" if seed % 2 else "abcd")
            pair.offer(Arrival(tier, tenant, body_bytes=choose([0, 1, 2, 8])), 1e3)
            if choose([True] + [False] * 5):
                pair.release(choose(pair.tickets), None)
            pair.check_counts()
        pair.end()
        gave_way += pair.seen
    assert gave_way["preempted by its own tier"] > 3 * worlds
    assert gave_way["preempted by a higher tier"] > 3 * worlds


@pytest.mark.endurance
def test_the_order_of_service_follows_its_page() -> None:
    """Queues that last, with tenants that come and go, so that what one was served and what it still owes matters."""
    served = 0
    for seed in range(examples(160, 81, few=14)):
        choose = Random(seed).choice
        tenants = {name: TenantLimits(choose([0.5, 1.0, 2.0])) for name in "abc"}
        pair = Pair(AdmissionSettings(tenants=tenants, queue_bytes=1024), 3)
        for _ in range(80):
            tier = choose([Priority.NEAR_REAL_TIME] + [Priority.BATCH] * 4)
            running = [ticket for ticket in pair.tickets if ticket.state == "admitted"]
            waiting = [ticket for ticket in pair.tickets if ticket.waiting]
            done = choose("ooorrrw")
            if done == "o" or not waiting:
                for _ in range(choose([1, 1, 3])):
                    pair.offer(Arrival(tier, choose("abcd"), choose([0.25, 1.0, 4.0])), 1e3)
            elif done == "r" and running:
                pair.release(choose(running), choose([None, Used(cost=choose([0.0, 1.0, 8.0]))]))
            else:
                pair.withdraw(choose(waiting))
            pair.check_counts()
        pair.end()
        served += pair.seen["served from the queue"]
    assert served > 400
