"""Tenants that wait share a tier by weight, none starves, and a tier keeps what it reserves."""

from __future__ import annotations

from collections import Counter
from itertools import combinations
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gtm.core.balance.admission.admission import Admission
from gtm.core.balance.admission.settings import AdmissionSettings, TenantLimits
from gtm.core.balance.admission.slots import TierSlots
from gtm.core.balance.admission.values import TIERS, Arrival, Ticket, TicketState, Used
from gtm.core.model.services import Priority
from tests.bench.admission_world import Outcome, Region, Stream, burst_of_batch
from tests.core.strategies import quick

BATCH = Priority.BATCH
weights = st.floats(0.1, 10.0)
costs = st.floats(0.1, 100.0)


def _offer(admission: Admission, arrival: Arrival, now: float = 0.0) -> Ticket:
    ticket = admission.offer(arrival, now)
    assert isinstance(ticket, Ticket), ticket
    return ticket


@quick(120)
@given(
    st.lists(weights, min_size=2, max_size=5),
    st.data(),
    st.integers(1, 3),
)
def test_what_tenants_are_served_follows_their_weights(
    weights: list[float], data: st.DataObject, slots: int
) -> None:
    """While two tenants wait, what they are served by weight differs by a request of each at most (theorem 1 of SFQ)."""
    names = [f"t{number}" for number in range(len(weights))]
    tenants = {name: TenantLimits(weight) for name, weight in zip(names, weights, strict=True)}
    admission = Admission(AdmissionSettings(dict.fromkeys(Priority, 0.0), tenants=tenants), slots)
    running = [_offer(admission, Arrival(BATCH)) for _ in range(slots)]
    queue = {name: data.draw(st.lists(costs, min_size=1, max_size=12), name) for name in names}
    order = data.draw(st.permutations([name for name in names for _ in queue[name]]), "order")
    coming = {name: list(its) for name, its in queue.items()}
    for name in order:
        _offer(admission, Arrival(BATCH, name, coming[name].pop(0)))
    served = dict.fromkeys(names, 0.0)
    left = {name: len(its) for name, its in queue.items()}
    differences = dict.fromkeys(combinations(names, 2), (0.0, 0.0))
    while running:
        admission.release(running.pop(0), 0.0)
        for ticket in admission.due(0.0):
            running.append(ticket)
            name = ticket.arrival.tenant or ""
            served[name] += ticket.arrival.cost / weights[names.index(name)]
            left[name] -= 1
            for (one, other), (least, most) in differences.items():
                if left[one] and left[other]:
                    difference = served[one] - served[other]
                    differences[one, other] = min(least, difference), max(most, difference)
    assert not any(left.values())
    for (one, other), (least, most) in differences.items():
        largest = sum(max(queue[name]) / weights[names.index(name)] for name in (one, other))
        assert most - least <= largest * (1 + 1e-9)


@quick(60)
@given(weights, costs, st.integers(0, 10**6))
def test_no_tenant_starves(weight: float, cost: float, seed: int) -> None:
    """However much others send meanwhile, a tenant's request begins once each of them was served its part, and one request."""
    random = Random(seed)
    admission = Admission(AdmissionSettings(tenants={"small": TenantLimits(weight)}), 1)
    running = _offer(admission, Arrival(BATCH, "t0"))
    others = [f"t{number}" for number in range(4)]
    for name in others * 3:
        _offer(admission, Arrival(BATCH, name, random.uniform(1.0, 10.0)))
    for number in range(2):
        ticket = _offer(admission, Arrival(BATCH, "small", cost))
        served: Counter[str | None] = Counter()
        while ticket.waiting:
            for name in others:
                _offer(admission, Arrival(BATCH, name, random.uniform(1.0, 10.0)))
            admission.release(running, 0.0)
            (running,) = admission.due(0.0)
            served[running.arrival.tenant] += int(running is not ticket) * running.arrival.cost  # type: ignore[assignment]
        # Before its second request, a tenant pays for its first.
        assert all(served[name] <= number * cost / weight + 20.0 + 1e-6 for name in others)


def test_what_it_cost_in_the_end_counts() -> None:
    """A tenant whose requests cost four times what it says gets as much work done as an honest one, not four times as much."""
    admission = Admission(AdmissionSettings(), 10)
    running = [(_offer(admission, Arrival(BATCH, "other")), 0.0) for _ in range(7)]
    done: Counter[str] = Counter()
    end = 0.0
    for name in ("liar", "honest") * 500:
        _offer(admission, Arrival(BATCH, name, 1.0, 1e9))
    while sum(done.values()) < 1000.0:
        running.sort(key=lambda pair: pair[1])
        ticket, end = running.pop(0)
        cost = 4.0 if ticket.arrival.tenant == "liar" else 1.0
        admission.release(ticket, end, Used(cost=cost))
        for begun in admission.due(end):
            name = begun.arrival.tenant or ""
            takes = 4.0 if name == "liar" else 1.0
            running.append((begun, end + takes))
            done[name] += takes  # type: ignore[assignment]
    assert done["liar"] / done["honest"] == pytest.approx(1.0, rel=0.1)


@pytest.mark.drill
def test_shares_converge_to_weights() -> None:
    """Three tenants that send more than fits get slots by weight, whatever each of them sends and how long its requests run."""
    settings = AdmissionSettings(
        tenants={"one": TenantLimits(1.0), "two": TenantLimits(2.0), "four": TenantLimits(4.0)},
        queue_length=300,
    )
    streams = [
        Stream(BATCH, 100.0, 1.0, "one"),
        Stream(BATCH, 20.0, 4.0, "two"),
        Stream(BATCH, 100.0, 2.0, "four"),
    ]
    served = Region(settings, 40).play(streams, (20.0, 320.0), 320.0).served_s
    total = sum(served.values())
    for name, weight in (("one", 1), ("two", 2), ("four", 4)):
        assert served[name] / total == pytest.approx(weight / 7, rel=0.05)


# Tiers


@pytest.fixture(scope="module")
def bursts() -> list[Outcome]:
    """The burst of the benchmark, by three seeds."""
    return [burst_of_batch(seed) for seed in range(3)]


def test_a_burst_of_batch_work_leaves_real_time_alone(bursts: list[Outcome]) -> None:
    """Batch comes eight times as much for a minute: real-time waits 0.1 s at most (p99) and loses nothing, batch is shed."""
    for outcome in bursts:
        assert len(outcome.waits[Priority.REAL_TIME, "burst"]) > 700
        assert outcome.quantile(Priority.REAL_TIME, "burst", 0.99) <= 0.1
        assert not any(tier is Priority.REAL_TIME for tier, _ in outcome.refused)
        shed = sum(count for (tier, _), count in outcome.refused.items() if tier is BATCH)
        assert 0.4 < shed / outcome.offered[BATCH] < 0.7


def test_without_tiers_the_same_burst_ruins_it() -> None:
    """Else the test above would say nothing."""
    outcome = burst_of_batch(0, tiers=False)
    assert outcome.quantile(Priority.REAL_TIME, "burst", 0.99) > 4.0


@quick(60)
@given(st.sampled_from(list(Priority)), st.integers(1, 200), st.integers(0, 10**6))
def test_a_tier_that_waits_gets_what_it_reserves(tier: Priority, slots: int, seed: int) -> None:
    """Whatever other tiers hold and send, when all that ran has ended once, a tier that waits runs at least its reserve."""
    random = Random(seed)
    settings = AdmissionSettings(queue_length=10**6)
    admission = Admission(settings, slots)
    others = [other for other in Priority if other is not tier]
    running = []
    for _ in range(3 * slots):
        ticket = _offer(admission, Arrival(random.choice(others)))
        running += [] if ticket.waiting else [ticket]
    mine = [_offer(admission, Arrival(tier)) for _ in range(slots)]
    for ticket in running:
        admission.release(ticket, 0.0)
        _offer(admission, Arrival(random.choice(others)))
    began = sum(ticket.state is TicketState.ADMITTED for ticket in mine)
    parts = TierSlots([settings.reserves.get(one, 0.0) for one in TIERS])
    parts.resize(slots)
    assert began >= dict(zip(Priority, parts.reserved, strict=True))[tier]


def test_who_waits_no_more_owes_nothing() -> None:
    """What is left to settle with a tenant ends when none of its requests waits: it comes back with its tag alone."""
    admission = Admission(AdmissionSettings(), 1)
    running = _offer(admission, Arrival(BATCH, "other"))
    first, second = (_offer(admission, Arrival(BATCH, "a")) for _ in range(2))
    for _ in range(5):
        _offer(admission, Arrival(BATCH, "b"))
    admission.release(running, 0.0)
    assert list(admission.due(0.0)) == [first]
    admission.release(first, 0.0, Used(cost=9.0))
    (running,) = admission.due(0.0)
    admission.withdraw(second, 0.0)
    for _ in range(2):
        _offer(admission, Arrival(BATCH, "a"))
    served = []
    for _ in range(4):
        admission.release(running, 0.0)
        (running,) = admission.due(0.0)
        served.append(running.arrival.tenant)
    assert sorted(served) == ["a", "a", "b", "b"]  # type: ignore[type-var]
