"""The gate of quotas in front of an edge worker's answers."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gtm.core.quota.buckets import WINDOW, depth
from gtm.core.quota.leases import LeaseParts
from gtm.core.quota.names import QuotaText
from gtm.http.answers.quotas import QuotaGate
from tests.core.strategies import quick


class _Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


NOTHING = LeaseParts(0, 0.0, {})


def _gate(clock: _Clock, **rates: float) -> QuotaGate:
    """A gate that has had these parts for a second."""
    gate = QuotaGate(NOTHING, clock)
    gate.update(LeaseParts(1, clock.now + 100.0, rates))
    gate.afford(())
    clock.now += 1.0
    return gate


def test_it_takes_from_every_quota_or_from_none() -> None:
    """A request under two quotas needs both; what the one could have given is still there when the other is short."""
    gate = _gate(_Clock(), wide=2.0, narrow=1.0)
    assert gate.afford(("wide", "narrow"))
    assert not gate.afford(("wide", "narrow"))
    assert gate.afford(("wide",))
    assert gate.take_counts() == ({"wide": 2, "narrow": 1}, {"narrow": 1})
    assert gate.take_counts() == ({}, {})


def test_a_quota_without_a_lease_affords_nothing() -> None:
    """What is not leased is denied and counted, so that control learns of the demand; no quota costs nothing."""
    gate = QuotaGate(NOTHING, _Clock())
    assert not gate.afford(("new",))
    assert gate.take_counts() == ({}, {"new": 1})
    assert gate.afford(())


def test_parts_end() -> None:
    """Nothing is afforded from the moment the parts end, nor under a quota the next ones lack."""
    clock = _Clock()
    gate = _gate(clock, a=10.0, b=10.0)
    gate.update(LeaseParts(2, clock.now + 3.0, {"b": 10.0}))
    assert not gate.afford(("a",))
    assert gate.afford(("b",))
    clock.now += 3.0
    assert not gate.afford(("b",))


def test_a_worker_that_starts_pays_for_its_predecessor() -> None:
    """Parts that another process held before afford nothing until what it may have saved is earned."""
    clock = _Clock()
    gate = QuotaGate(LeaseParts(1, clock.now + 100.0, {"a": 100.0}), clock)
    clock.now += depth(100.0) / 100.0
    assert not gate.afford(("a",))
    clock.now += 0.02
    assert gate.afford(("a",))


@quick(100)
@given(st.lists(st.tuples(st.floats(0.0, 3.0), st.floats(0.0, 30.0), st.integers(0, 40)), max_size=200))
def test_an_idle_worker_earns_by_each_of_its_rates(steps: list[tuple[float, float, int]]) -> None:
    """However late the answering thread comes to it, ten seconds admit no more than the parts of those seconds."""
    clock = _Clock()
    gate = QuotaGate(NOTHING, clock)
    spans: list[list[float]] = []
    admitted: list[float] = []
    for number, (wait, rate, requests) in enumerate(steps, 1):
        clock.now += wait
        if spans:
            spans[-1][1] = min(spans[-1][1], clock.now)
        spans.append([clock.now, clock.now + 3.0, rate])
        gate.update(LeaseParts(number, clock.now + 3.0, {"a": rate} if rate else {}))
        admitted += [clock.now for _ in range(requests) if gate.afford(("a",))]
        earned = sum(
            rate * max(0.0, min(end, clock.now) - max(begin, clock.now - WINDOW))
            for begin, end, rate in spans
        )
        if requests and admitted and admitted[-1] == clock.now:
            assert sum(at > clock.now - WINDOW for at in admitted) <= earned + 1e-3


@pytest.mark.parametrize("updates", [1, 63, 500])
def test_parts_may_come_from_another_thread(updates: int) -> None:
    """While one thread answers and another updates, nothing raises, and the last parts are those in use."""
    clock = _Clock()
    gate = _gate(clock, a=5.0)

    def update() -> None:
        for number in range(updates):
            gate.update(LeaseParts(number + 2, clock.now + 50.0, {"a": 5.0, f"b{number}": 1.0}))
            gate.take_counts()

    thread = threading.Thread(target=update)
    thread.start()
    while thread.is_alive():
        gate.afford(("a",))
    thread.join()
    gate.afford(())
    clock.now += 10.0
    assert gate.afford((f"b{updates - 1}",))
    assert not gate.afford((f"b{updates}",))


def test_a_rule_of_both_bounds_takes_a_token_of_each() -> None:
    """One is leased, one earned; where either is missing, neither is spent. Only what is leased is told to control."""
    clock = _Clock()
    gate = _gate(clock, rule=2.0)
    both = (QuotaText("rule"), QuotaText("share:rule"))
    assert not gate.afford(both)
    assert gate.earn(((both[1], 0.5),)) == ()
    assert not gate.afford(both)
    assert gate.earn(((both[1], 0.5),)) == ()
    assert gate.afford(both)
    assert not gate.afford(both)
    assert gate.take_counts() == ({"rule": 1}, {})
    assert gate.afford(both[:1])
    assert gate.earn(((both[1], 1.0),)) == ()
    assert not gate.afford(both)
    assert gate.take_counts() == ({"rule": 1}, {"rule": 1})
    assert gate.afford(both[1:])
