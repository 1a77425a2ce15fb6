"""Admission and the model of its page, side by side: what is done to one is done to the other, and they must agree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from gtm.core.balance.admission.admission import Admission
from gtm.core.balance.admission.settings import AdmissionSettings, ModelLimits, TenantLimits
from gtm.core.balance.admission.values import AdmissionRefusal, Arrival, Ticket, TicketState, Used
from gtm.core.model.services import Priority
from tests.core.balance.admission.model import ENDED, RUNNING, TIERS, WAITING, Model, Request

Choose = Callable[[Sequence[Any]], Any]
"""Picks one of a few values."""

STATUS = {
    "deadline": 504,
    "no_backend": 503,
    "model_concurrency": 503,
    "queue_full": 503,
    "preempted": 503,
    "tenant_concurrency": 429,
    "tenant_rate": 429,
    "input_tokens": 429,
    "output_tokens": 429,
}
BUDGETS = {"tenant_rate", "input_tokens", "output_tokens"}

# Halves, quarters and eighths: sums and quotients of these are exact, so that equal is equal on both sides.
SLOTS = [None, 0, 1, 2, 2, 3, 3, 5, 5, 8, 10]
PATIENCE = [None, None, None, None, None, 64.0, 64.0, 64.0, 8.0, 0.5, 0.0, -1.0]
SECONDS = [0.0, 0.125, 0.125, 0.5, 2.0, 30.0]
TOKENS = [0.0, 0.0, 8.0, 32.0, 128.0]
USED = [None, 0.0, 16.0, 64.0, 512.0]


def limits(choose: Choose) -> TenantLimits:
    """A tenant's limits; one in two has none but its weight."""
    weight = choose([0.5, 1.0, 1.0, 2.0, 4.0])
    if choose([True, False]):
        return TenantLimits(weight)
    rate = choose([None, 0.5, 0.5, 2.0])
    return TenantLimits(
        weight,
        rate,
        None if rate is None else choose([None, 1.0, 4.0]),
        choose([None, None, 2, 5]),
        choose([None, 60.0, 240.0]),
        choose([None, 60.0, 240.0]),
    )


def world(choose: Choose) -> AdmissionSettings:
    """Settings, tight as a rule."""
    return AdmissionSettings(
        {tier: choose([0.0, 0.125, 0.25, 0.3]) for tier in TIERS},
        {tier: choose([0.25, 2.0, 64.0, 64.0]) for tier in TIERS},
        choose([0, 1, 2, 4, 4, 8, 1024]),
        choose([0, 8, 16, 1024]),
        {name: limits(choose) for name in ("a", "b")},
        limits(choose),
        limits(choose),
        {
            "large": ModelLimits(choose([None, None, None, 3]), choose([1.0, 2.0]), "small"),
            "small": ModelLimits(None, choose([0.0, 0.5])),
        },
    )


def arrival(choose: Choose) -> Arrival:
    """A request of one of four tenants."""
    return Arrival(
        choose(list(Priority)),
        choose([None, "a", "b", "c"]),
        choose([0.25, 1.0, 1.0, 4.0]),
        None,
        choose([0, 0, 1, 4, 16]),
        choose(TOKENS),
        choose(TOKENS),
        choose([None, None, "large", "small"]),
    )


class Pair:
    """Both, and what was done to them."""

    def __init__(self, settings: AdmissionSettings, slots: int | None) -> None:
        self.now = 1000.0
        self.admission = Admission(settings, slots)
        self.model = Model(settings, slots)
        self.tickets: list[Ticket] = []
        self.of: dict[int, Request] = {}
        self.seen: Counter[str] = Counter()

    def step(self, choose: Choose) -> None:
        """Do one thing that a data plane may do, and compare."""
        self.now += choose(SECONDS)
        done = choose(["offer"] * 8 + ["release"] * 5 + ["withdraw"] * 2 + ["resize", "due", "configure"])
        ticket = choose(self.tickets[-16:]) if self.tickets and done in ("release", "withdraw") else None
        if done == "offer":
            self.offer(arrival(choose), choose(PATIENCE))
        elif done == "release" and ticket is not None:
            used = [choose(USED), choose(USED), choose([None, 0.0, 2.0, 8.0])]
            self.release(ticket, choose([None, Used(*used)]))
        elif done == "withdraw" and ticket is not None:
            self.withdraw(ticket)
        elif done == "resize":
            self.resize(choose(SLOTS))
        elif done == "configure" and choose([True, False, False]):
            self.configure(world(choose))
        else:
            self.settle_time()
        self.check_counts()

    # What may happen

    def offer(self, arrival: Arrival, patience: float | None) -> None:
        if patience is not None:
            arrival = arrival._replace(deadline=self.now + patience)
        self.settle_time()
        result = self.admission.offer(arrival, self.now)
        gone = self.admission.due(self.now)
        why_not = self.model.why_not(arrival, self.model.deadline(arrival))
        if why_not:
            self.check_refusal(result, arrival, why_not)
            assert not gone
            return
        if self.model.may_begin(arrival.priority):
            assert not gone
            self.take(result, arrival)
            return
        for ticket in gone:
            refusal = ticket.refusal
            assert refusal is not None
            assert (refusal.status, refusal.code, refusal.retry_after) == (503, "preempted", 1.0)
            self.seen[
                f"preempted by {'its own' if ticket.arrival.priority == arrival.priority else 'a higher'} tier"
            ] += 1
            one = self.of[ticket.number]
            assert one in self.model.may_give_way(arrival)
            self.model.leave(one)
        if isinstance(result, AdmissionRefusal):
            assert not gone
            assert self.model.may_be_refused(arrival)
            self.check_refusal(result, arrival, {"queue_full"})
        else:
            assert self.model.has_place(arrival)
            self.take(result, arrival)

    def release(self, ticket: Ticket, used: Used | None) -> None:
        self.settle_time()
        self.admission.release(ticket, self.now, used)
        self.model.release(self.of[ticket.number], *(used or Used()))
        self.check_served()

    def withdraw(self, ticket: Ticket) -> None:
        self.settle_time()
        self.admission.withdraw(ticket, self.now)
        self.model.withdraw(self.of[ticket.number])
        self.check_served()

    def resize(self, slots: int | None) -> None:
        self.settle_time()
        self.admission.resize(slots, self.now)
        self.model.slots = slots
        self.check_served()

    def configure(self, settings: AdmissionSettings) -> None:
        self.settle_time()
        self.admission.configure(settings, self.now)
        self.model.configure(settings)
        self.check_served()

    # What must hold

    def settle_time(self) -> None:
        """Who has reached its deadline, is refused before anything else happens."""
        late = self.model.pass_time(self.now)
        due = self.admission.due(self.now)
        assert {id(self.of[ticket.number]) for ticket in due} == {id(one) for one in late}
        for ticket in due:
            refusal = ticket.refusal
            assert refusal is not None
            assert (refusal.status, refusal.code, refusal.retry_after) == (504, "deadline", None)
            self.seen["deadline while waiting"] += 1

    def check_served(self) -> None:
        """Who begins may be next, one after the other, until nobody may."""
        for ticket in self.admission.due(self.now):
            assert ticket.state is TicketState.ADMITTED
            assert ticket.admitted == self.now
            self.model.serve(self.of[ticket.number])
            self.seen["served from the queue"] += 1
        assert not self.model.may_be_next()

    def take(self, result: Ticket | AdmissionRefusal, arrival: Arrival) -> None:
        assert isinstance(result, Ticket), result
        self.tickets.append(result)
        self.of[result.number] = self.model.take(arrival)
        self.seen[result.state] += 1

    def check_refusal(self, result: Ticket | AdmissionRefusal, arrival: Arrival, codes: set[str]) -> None:
        assert isinstance(result, AdmissionRefusal), (result, codes)
        assert result.code in codes
        assert result.status == STATUS[result.code]
        assert result.detail
        names = result.code in {"model_concurrency", "input_tokens", "output_tokens"}
        assert result.fallback == (self.model.model_limits(arrival.model).fallback if names else None)
        if result.code == "deadline":
            assert result.retry_after is None
        elif result.code in BUDGETS:
            longest = max(wait for wait, _ in self.model.over(arrival))
            assert result.retry_after == pytest.approx(float(longest), rel=1e-6)
        else:
            assert result.retry_after == 1.0
        self.seen[result.code] += 1

    def check_counts(self) -> None:
        states = {WAITING: ["waiting"], RUNNING: ["admitted"], ENDED: ["refused", "withdrawn", "released"]}
        for ticket in self.tickets:
            assert ticket.state in states[self.of[ticket.number].state]
        snapshot = self.admission.snapshot()
        assert snapshot.limit == self.model.slots
        assert self.admission.running == len(self.model.running())
        assert self.admission.waiting == len(self.model.waiting())
        for tier in TIERS:
            counts = snapshot.tiers[Priority(tier)]
            queue = self.model.waiting(tier)
            assert (counts.running, counts.waiting) == (len(self.model.running(tier)), len(queue))
            assert counts.waiting_bytes == sum(one.arrival.body_bytes for one in queue)
        held = [one for one in self.model.requests if one.state != ENDED]
        assert {name: tuple(counts) for name, counts in snapshot.tenants.items()} == {
            name: (len(self.model.running(tenant=name)), len(self.model.waiting(tenant=name)))
            for name in {one.arrival.tenant for one in held}
        }
        models = Counter(one.arrival.model for one in held if one.arrival.model is not None)
        assert snapshot.models == models
        first = min((one.deadline for one in self.model.waiting()), default=None)
        assert self.admission.next_deadline() == first

    def end(self) -> None:
        """Whatever happened: once all have ended nothing is left, and a second end changes nothing."""
        for _ in range(2):
            for ticket in self.tickets:
                self.admission.release(ticket, self.now)
            snapshot = self.admission.snapshot()
            assert not snapshot.tenants
            assert not snapshot.models
            for tier in snapshot.tiers.values():
                assert (tier.running, tier.waiting, tier.waiting_bytes) == (0, 0, 0)
        for ticket in self.tickets:
            assert not ticket.account.flows
