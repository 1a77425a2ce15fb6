"""A token bucket that says how long to wait, and takes corrections (ITU-T I.371's leaky bucket, as a meter)."""

from __future__ import annotations

from math import inf


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
