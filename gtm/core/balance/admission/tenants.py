"""What is kept of tenants: how much each runs and waits, and its buckets. As many as are told apart, and no more."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import InitVar, dataclass, field
from math import inf
from typing import TYPE_CHECKING

from gtm.core.balance.admission.settings import AdmissionSettings, TenantLimits

if TYPE_CHECKING:
    from gtm.core.balance.admission.fair import FairQueue, Flow

OTHERS = ""
"""The name under which tenants are counted together that are too many to be told apart."""
_MINUTE = 60.0
MOST_MINUTES = 5.0
"""Minutes of a budget that one request is charged at the most, whatever it is said to have used; and after which a bucket is full again, whatever was charged."""


@dataclass(slots=True, eq=False)
class TenantAccount:
    """One tenant: counts, buckets (None: no limit), and its flow in each queue that it has one in."""

    name: str | None
    limits: InitVar[TenantLimits]
    now: InitVar[float]
    running: int = 0
    waiting: int = 0
    flows: dict[FairQueue, Flow] = field(default_factory=dict)
    rate: Bucket | None = None
    inputs: Bucket | None = None
    outputs: Bucket | None = None
    weight: float = field(init=False)
    concurrency: int | None = field(init=False)
    limited: bool = field(init=False)

    def __post_init__(self, limits: TenantLimits, now: float) -> None:
        self.set(limits, now)

    def set(self, limits: TenantLimits, now: float) -> None:
        """Go on under these limits."""
        self.weight = limits.weight
        self.concurrency = limits.concurrency
        second = limits.requests_per_second
        burst = max(1.0, second or 0.0) if limits.burst is None else limits.burst
        self.rate = _bucket(self.rate, second, burst, now)
        self.inputs = _minute(self.inputs, limits.input_tokens_per_minute, now)
        self.outputs = _minute(self.outputs, limits.output_tokens_per_minute, now)
        self.limited = any(
            limit is not None for limit in (self.concurrency, self.rate, self.inputs, self.outputs)
        )

    @property
    def budgeted(self) -> bool:
        """Whether its tokens are counted."""
        return self.inputs is not None or self.outputs is not None

    def charge(self, inputs: float, outputs: float) -> None:
        """A request was taken in that is expected to use so many tokens."""
        if self.rate is not None:
            self.rate.take(1.0)
        if self.inputs is not None:
            self.inputs.take(_most(self.inputs, inputs))
        if self.outputs is not None:
            self.outputs.take(_most(self.outputs, outputs))

    def uncharge(self, now: float) -> None:
        """A request that was taken in is offered again, and pays for that."""
        if self.rate is not None:
            self.rate.give(1.0, now)

    def settle(self, expected: tuple[float, float], used: tuple[float, float], now: float) -> float:
        """A request was expected to use so many input and output tokens, and used so many.

        Returns:
            The tokens used that nobody is charged: those beyond `MOST_MINUTES` of the budgets, of one request or of all together.
        """
        spared = 0.0
        for bucket, before, after in zip((self.inputs, self.outputs), expected, used, strict=True):
            if bucket is not None:
                charged = _most(bucket, after)
                spared += after - charged + bucket.give(_most(bucket, before) - charged, now)
        return spared

    def idle(self, now: float) -> bool:
        """Whether nothing would differ if it were forgotten."""
        if self.running or self.waiting or self.flows:
            return False
        return all(bucket is None or bucket.full(now) for bucket in (self.rate, self.inputs, self.outputs))


def _most(bucket: Bucket, tokens: float) -> float:
    """What of so many tokens one request is charged. A minute's budget is as much as the bucket holds."""
    return min(tokens, MOST_MINUTES * bucket.depth)


def _minute(bucket: Bucket | None, budget: float | None, now: float) -> Bucket | None:
    depth = budget or 0.0
    return _bucket(
        bucket, None if budget is None else depth / _MINUTE, depth, now, (1.0 - MOST_MINUTES) * depth
    )


def _bucket(
    bucket: Bucket | None, rate: float | None, depth: float, now: float, lowest: float = -inf
) -> Bucket | None:
    if rate is None:
        return None
    if bucket is None:
        return Bucket(rate, depth, now, lowest)
    bucket.change(rate, depth, now, lowest)
    return bucket


class TenantAccounts:
    """All tenants that something is kept of. Once half of the places are taken, each newcomer looks at two others.

    Those that are idle are forgotten.
    """

    def __init__(self, settings: AdmissionSettings) -> None:
        self._settings = settings
        self.known: OrderedDict[str | None, TenantAccount] = OrderedDict()

    def get(self, name: str | None, now: float) -> TenantAccount:
        """The tenant of this name; that of all others, if there are too many."""
        known = self.known.get(name)
        if known is not None:
            return known
        self._forget(now)
        if name and name not in self._settings.tenants and len(self.known) >= self._settings.max_tenants:
            name = OTHERS
            if name in self.known:
                return self.known[name]
        tenant = self.known[name] = TenantAccount(name, self._limits(name), now)
        return tenant

    def set(self, settings: AdmissionSettings, now: float) -> None:
        """Go on under these settings."""
        self._settings = settings
        for name, tenant in self.known.items():
            tenant.set(self._limits(name), now)

    def _limits(self, name: str | None) -> TenantLimits:
        if name is None:
            return self._settings.without_tenant
        return self._settings.tenants.get(name, self._settings.default_tenant)

    def _forget(self, now: float) -> None:
        if 2 * len(self.known) < self._settings.max_tenants:
            return
        for _ in range(min(2, len(self.known))):
            name, tenant = next(iter(self.known.items()))
            if tenant.idle(now):
                del self.known[name]
            else:
                self.known.move_to_end(name)


# --- A token bucket that says how long to wait, and takes corrections (ITU-T I.371's leaky bucket, as a meter). ---


class Bucket:
    """Earns `rate` a second up to `depth`, starts full, and may go into debt by corrections or by what is larger than it.

    What asks for more than the whole depth passes when the bucket is full, and is paid for afterwards: it would never pass
    otherwise. Times may not decrease.

    Its debt is bounded: `lowest` is the least that it holds. What was let off so is taken from what is given back before it is full again: else who lets one request
    run into the bound would have back what others of his were charged.
    """

    __slots__ = ("_at", "_let_off", "_level", "_slack", "depth", "lowest", "rate")

    def __init__(self, rate: float, depth: float, now: float, lowest: float = -inf) -> None:
        self.rate = rate
        self.depth = depth
        self.lowest = lowest
        self._level = depth
        self._let_off = 0.0
        self._at = now
        self._slack = 1e-9 * (depth + rate)  # rounding of times and sums

    def level(self, now: float) -> float:
        """What is there now; below 0 in debt."""
        if now > self._at:
            level = self._level + (now - self._at) * self.rate
            self._level = level if level < self.depth else self.depth  # noqa: FURB136 - half the cost
            self._at = now
            if self._let_off and level >= self.depth - self._slack:
                self._let_off = 0.0
        return self._level

    def wait(self, amount: float, now: float) -> float:
        """Seconds until so much could be taken; 0: now."""
        missing = min(amount, self.depth) - self.level(now)
        return missing / self.rate if missing > self._slack else 0.0

    def take(self, amount: float) -> None:
        """Take so much, for which `wait` has just said 0."""
        self._level -= amount

    def give(self, amount: float, now: float) -> float:
        """Give back what was taken and not used; less than nothing: take what was used on top.

        Returns:
            What is let off of that, since the debt is at its bound.
        """
        level = self.level(now)
        if amount > 0.0 and self._let_off:
            kept = min(amount, self._let_off)
            self._let_off -= kept
            amount -= kept
        level = min(self.depth, level + amount)
        off = max(self.lowest - level, 0.0)
        self._level = level + off
        self._let_off = 0.0 if self._level >= self.depth - self._slack else self._let_off + off
        return off

    def full(self, now: float) -> bool:
        """Whether it holds all that it can: then a new one is the same."""
        return self.level(now) >= self.depth - self._slack

    def change(self, rate: float, depth: float, now: float, lowest: float = -inf) -> None:
        """Go on at another rate, depth and bound. What is full stays full; else what it holds stays, as far as it still fits."""
        self._level = depth if self.full(now) else max(min(self._level, depth), lowest)
        self.lowest = lowest
        self.rate = rate
        self.depth = depth
        self._slack = 1e-9 * (depth + rate)
