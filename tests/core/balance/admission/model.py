"""Admission as docs/admission.md has it, to be read: lists and sums, no heap, no count that is kept. Exact where numbers are.

Where the page leaves open which of several is served or gives way, the model says which may be, and follows what was done.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil, inf
from typing import Any

from gtm.core.balance.admission.settings import AdmissionSettings, ModelLimits, TenantLimits
from gtm.core.balance.admission.values import Arrival

TIERS = ["real_time", "near_real_time", "batch"]
WAITING, RUNNING, ENDED = "waiting", "running", "ended"


def exact(number: float) -> Fraction:
    """A number without the rounding of the next ones."""
    return Fraction(number).limit_denominator(10**9)


@dataclass(eq=False)
class Request:
    """One that was taken in."""

    arrival: Arrival
    came: float
    deadline: float
    token_weight: Fraction
    state: str = WAITING
    had_waited: bool = False

    @property
    def tier(self) -> str:
        return str(self.arrival.priority)


@dataclass
class Bucket:
    """A token bucket: rate per second, depth, what it holds, since when, and what of a debt was let off."""

    rate: Fraction
    depth: Fraction
    holds: Fraction
    at: Fraction
    let_off: Fraction = Fraction(0)

    def pass_time(self, now: Fraction) -> None:
        self.hold(self.holds + (now - self.at) * self.rate)
        self.at = now

    def hold(self, tokens: Fraction) -> None:
        """It is never more than full; and when it is full, nothing is remembered of debts."""
        self.holds = min(self.depth, tokens)
        if self.holds == self.depth:
            self.let_off = Fraction(0)

    def settle(self, tokens: Fraction) -> None:
        """So much is given back, or taken on top: what five minutes do not fill is let off, and kept from what is given back later."""
        kept = min(max(tokens, Fraction(0)), self.let_off)
        self.let_off -= kept
        holds = self.holds + tokens - kept
        beyond = max(self.depth - 5 * self.depth - holds, Fraction(0))
        self.let_off += beyond
        self.hold(holds + beyond)

    def charged(self, tokens: Fraction) -> Fraction:
        """What of the tokens of one request it is charged: five minutes' budget at the most."""
        return min(tokens, 5 * self.depth)

    def wait(self, amount: Fraction) -> Fraction:
        return max(Fraction(0), (min(amount, self.depth) - self.holds) / self.rate)


@dataclass
class Fairness:
    """Start-time fair queueing of one tier."""

    virtual: Fraction = Fraction(0)
    tags: dict[str | None, Fraction] = field(default_factory=dict)
    unsettled: dict[str | None, Fraction] = field(default_factory=dict)


class Model:
    """The rules, one after the other."""

    def __init__(self, settings: AdmissionSettings, slots: int | None) -> None:
        self.settings = settings
        self.slots = slots
        self.now = -inf
        self.requests: list[Request] = []  # in the order in which they came
        self.buckets: dict[tuple[str | None, str], Bucket] = {}
        self.fairness = {tier: Fairness() for tier in TIERS}

    # What there is

    def waiting(self, *tiers: str, tenant: Any = ...) -> list[Request]:
        return self._in(WAITING, tiers, tenant)

    def running(self, *tiers: str, tenant: Any = ...) -> list[Request]:
        return self._in(RUNNING, tiers, tenant)

    def _in(self, state: str, tiers: tuple[str, ...], tenant: Any) -> list[Request]:
        return [
            one
            for one in self.requests
            if one.state == state and one.tier in (tiers or TIERS) and tenant in (..., one.arrival.tenant)
        ]

    def limits(self, tenant: str | None) -> TenantLimits:
        if tenant is None:
            return self.settings.without_tenant
        return self.settings.tenants.get(tenant, self.settings.default_tenant)

    def weight(self, tenant: str | None) -> Fraction:
        return exact(self.limits(tenant).weight)

    def model_limits(self, name: str | None) -> ModelLimits:
        return self.settings.models.get(name or "", ModelLimits())

    # Slots and tiers

    def reserved_above(self, tier: str) -> int:
        """Slots kept for all tiers above one, counted from the top and rounded up; one is left to the lowest tier."""
        assert self.slots is not None
        above = TIERS[: TIERS.index(tier)]
        part = sum((exact(self.settings.reserves[name]) for name in above), Fraction(0))
        return min(ceil(part * self.slots), max(self.slots - 1, 0))

    def reserved(self, tier: str) -> int:
        assert self.slots is not None
        part = sum((exact(self.settings.reserves[name]) for name in TIERS), Fraction(0))
        following = [*TIERS, None][TIERS.index(tier) + 1]
        upto = (
            min(ceil(part * self.slots), self.slots) if following is None else self.reserved_above(following)
        )
        return upto - self.reserved_above(tier)

    def may_begin(self, tier: str) -> bool:
        if self.slots is None:
            return True
        if len(self.running()) >= self.slots:
            return False
        if tier == "real_time":
            return True
        if len(self.running("near_real_time", "batch")) >= self.slots - self.reserved_above("near_real_time"):
            return False
        return tier != "batch" or len(self.running("batch")) < self.slots - self.reserved_above("batch")

    def next_tier(self) -> str | None:
        able = [tier for tier in TIERS if self.waiting(tier) and self.may_begin(tier)]
        if self.slots is not None:
            for tier in able:
                if len(self.running(tier)) < self.reserved(tier):
                    return tier
        return able[0] if able else None

    def may_be_next(self) -> list[Request]:
        """Who may be served now: any of these."""
        tier = self.next_tier()
        if tier is None:
            return []
        oldest = {one.arrival.tenant: one for one in reversed(self.waiting(tier))}
        tags = self.fairness[tier].tags
        least = min(tags[tenant] for tenant in oldest)
        return [one for tenant, one in oldest.items() if tags[tenant] == least]

    def serve(self, one: Request) -> None:
        assert one in self.may_be_next()
        fair, tenant = self.fairness[one.tier], one.arrival.tenant
        cost = exact(one.arrival.cost)
        charge = max(cost + fair.unsettled.pop(tenant, Fraction(0)), cost / 16)
        fair.virtual = fair.tags[tenant]
        fair.tags[tenant] += charge / self.weight(tenant)
        one.state, one.had_waited = RUNNING, True
        self.forget()

    def forget(self) -> None:
        """Nothing is settled with who waits no more; tags are forgotten when nobody of the tier waits."""
        for tier, fair in self.fairness.items():
            for tenant in list(fair.unsettled):
                if not self.waiting(tier, tenant=tenant):
                    del fair.unsettled[tenant]
            if not self.waiting(tier):
                self.fairness[tier] = Fairness()

    # Time

    def pass_time(self, now: float) -> list[Request]:
        """Who has reached its deadline."""
        self.now = max(self.now, now)
        late = [one for one in self.waiting() if one.deadline <= self.now]
        for one in late:
            self.leave(one)
        return late

    # What ends

    def leave(self, one: Request) -> None:
        """It will not begin: its tokens are given back."""
        one.state = ENDED
        self.settle(one, 0.0, 0.0)
        self.forget()

    def withdraw(self, one: Request) -> None:
        if one.state != ENDED:
            self.leave(one)

    def release(self, one: Request, inputs: float | None, outputs: float | None, cost: float | None) -> None:
        if one.state == WAITING:
            self.leave(one)
        elif one.state == RUNNING:
            one.state = ENDED
            self.settle(one, inputs, outputs)
            tenant, fair = one.arrival.tenant, self.fairness[one.tier]
            if cost is not None and one.had_waited and self.waiting(one.tier, tenant=tenant):
                more = exact(cost) - exact(one.arrival.cost)
                fair.unsettled[tenant] = fair.unsettled.get(tenant, Fraction(0)) + more

    def settle(self, one: Request, inputs: float | None, outputs: float | None) -> None:
        for name, expected, used in (
            ("input_tokens", one.arrival.input_tokens, inputs),
            ("output_tokens", one.arrival.output_tokens, outputs),
        ):
            bucket = self.bucket(one.arrival.tenant, name)
            if bucket is not None and used is not None:
                before, after = (exact(tokens) * one.token_weight for tokens in (expected, used))
                bucket.settle(bucket.charged(before) - bucket.charged(after))

    # Limits

    def sizes(self, tenant: str | None, name: str) -> tuple[Fraction, Fraction] | None:
        """Rate per second and depth of a tenant's bucket; None: no limit."""
        limits = self.limits(tenant)
        if name == "tenant_rate":
            rate = limits.requests_per_second
            if rate is None:
                return None
            return exact(rate), exact(max(1.0, rate) if limits.burst is None else limits.burst)
        budget = limits.input_tokens_per_minute if name == "input_tokens" else limits.output_tokens_per_minute
        return None if budget is None else (exact(budget) / 60, exact(budget))

    def bucket(self, tenant: str | None, name: str) -> Bucket | None:
        sizes = self.sizes(tenant, name)
        if sizes is None:
            return None
        now = exact(self.now)
        bucket = self.buckets.setdefault((tenant, name), Bucket(*sizes, sizes[1], now))
        bucket.pass_time(now)
        return bucket

    def configure(self, settings: AdmissionSettings) -> None:
        for tenant, name in self.buckets:
            self.bucket(tenant, name)  # at its old rate until now
        self.settings = settings
        for (tenant, name), bucket in list(self.buckets.items()):
            sizes = self.sizes(tenant, name)
            if sizes is None:
                del self.buckets[tenant, name]
                continue
            full = bucket.holds == bucket.depth
            bucket.rate, bucket.depth = sizes
            bucket.holds = bucket.depth if full else max(min(bucket.holds, bucket.depth), -4 * bucket.depth)

    def charges(self, arrival: Arrival) -> list[tuple[str, Fraction]]:
        weight = exact(self.model_limits(arrival.model).token_weight)
        return [
            ("tenant_rate", Fraction(1)),
            ("input_tokens", exact(arrival.input_tokens) * weight),
            ("output_tokens", exact(arrival.output_tokens) * weight),
        ]

    def over(self, arrival: Arrival) -> list[tuple[Fraction, str]]:
        """Which rates and budgets a request is over, and for how many seconds."""
        found = []
        for name, amount in self.charges(arrival):
            bucket = self.bucket(arrival.tenant, name)
            if bucket is not None and bucket.wait(amount) > 0:
                found.append((bucket.wait(amount), name))
        return found

    # A request comes

    def why_not(self, arrival: Arrival, deadline: float) -> set[str]:
        """The codes of which one must be said; none: it may begin, or wait."""
        held = self.running() + self.waiting()
        limits, model = self.limits(arrival.tenant), self.model_limits(arrival.model)
        if deadline <= self.now:
            return {"deadline"}
        if self.slots == 0:
            return {"no_backend"}
        of_model = sum(one.arrival.model == arrival.model for one in held)
        of_tenant = sum(one.arrival.tenant == arrival.tenant for one in held)
        if model.concurrency is not None and of_model >= model.concurrency:
            return {"model_concurrency"}
        if limits.concurrency is not None and of_tenant >= limits.concurrency:
            return {"tenant_concurrency"}
        over = self.over(arrival)
        return {name for wait, name in over if wait == max(over)[0]}

    def deadline(self, arrival: Arrival) -> float:
        if arrival.deadline is not None:
            return arrival.deadline
        return self.now + self.settings.waits[arrival.priority]

    def take(self, arrival: Arrival) -> Request:
        """Take a request in: it begins if there is room, else it waits, and somebody may have to give way first."""
        for name, amount in self.charges(arrival):
            bucket = self.bucket(arrival.tenant, name)
            if bucket is not None:
                bucket.holds -= amount if name == "tenant_rate" else bucket.charged(amount)
        one = Request(
            arrival,
            self.now,
            self.deadline(arrival),
            exact(self.model_limits(arrival.model).token_weight),
        )
        if self.may_begin(one.tier):
            one.state = RUNNING
        elif not self.waiting(one.tier, tenant=arrival.tenant):
            fair = self.fairness[one.tier]
            fair.tags[arrival.tenant] = max(fair.virtual, fair.tags.get(arrival.tenant, fair.virtual))
        self.requests.append(one)
        return one

    # The queue

    def missing(self, arrival: Arrival) -> tuple[int, int]:
        """Places and bytes that the queue lacks to hold one more."""
        queue = self.waiting()
        return (
            len(queue) + 1 - self.settings.queue_length,
            sum(one.arrival.body_bytes for one in queue) + arrival.body_bytes - self.settings.queue_bytes,
        )

    def share(self, tenant: str | None, queue: Iterable[Arrival]) -> Fraction:
        its = [arrival for arrival in queue if arrival.tenant == tenant]
        length = Fraction(len(its), max(self.settings.queue_length, 1))
        held = Fraction(sum(arrival.body_bytes for arrival in its), max(self.settings.queue_bytes, 1))
        return max(length, held) / self.weight(tenant)

    def newest_of_largest(self, tier: str) -> list[tuple[Request, Fraction]]:
        queue = self.waiting(tier)
        newest = {one.arrival.tenant: one for one in queue}
        shares = {tenant: self.share(tenant, [one.arrival for one in queue]) for tenant in newest}
        largest = max(shares.values(), default=Fraction(0))
        return [(one, largest) for tenant, one in newest.items() if shares[tenant] == largest]

    def lower(self, arrival: Arrival) -> tuple[str, ...]:
        return tuple(TIERS[TIERS.index(arrival.priority) + 1 :])

    def lower_suffice(self, arrival: Arrival) -> bool:
        places, held = self.missing(arrival)
        lower = self.waiting(*self.lower(arrival)) if self.lower(arrival) else []
        return len(lower) >= places and sum(one.arrival.body_bytes for one in lower) >= held

    def may_give_way(self, arrival: Arrival) -> list[Request]:
        """Who may give way next to a newcomer; nobody while there is place for it, or if nobody does."""
        places, held = self.missing(arrival)
        if places <= 0 and held <= 0:
            return []
        if self.lower_suffice(arrival):
            lowest = next(tier for tier in reversed(self.lower(arrival)) if self.waiting(tier))
            return [one for one, _ in self.newest_of_largest(lowest)]
        queue = [one.arrival for one in self.waiting(arrival.priority)]
        mine = self.share(arrival.tenant, [*queue, arrival])
        return [
            one
            for one, share in self.newest_of_largest(arrival.priority)
            if share > mine and places <= 1 and one.arrival.body_bytes >= held
        ]

    def may_be_refused(self, arrival: Arrival) -> bool:
        """Whether there is no place, and of those with the largest share there is one that does not give way."""
        if self.has_place(arrival) or self.lower_suffice(arrival):
            return False
        return len(self.may_give_way(arrival)) < max(len(self.newest_of_largest(arrival.priority)), 1)

    def has_place(self, arrival: Arrival) -> bool:
        places, held = self.missing(arrival)
        return places <= 0 and held <= 0
