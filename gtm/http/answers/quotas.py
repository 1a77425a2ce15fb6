"""The gate in front of spilling: may this worker send one more request under these quotas?

Tokens of rates come from leases, those of shares from the requests that the worker sees (`gtm.core.quota.earned`): a quota's
name says which.

Law: the answering thread alone touches the buckets. Another hands it the next parts through a queue, and counts
only grow: no lock is held, and none is waited for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from gtm.core.quota.buckets import TokenBucket
from gtm.core.quota.earned import ShareBuckets, Worth
from gtm.core.quota.leases import LeaseParts
from gtm.core.quota.names import QuotaText, is_share
from gtm.telemetry import Counts

_MAX_WAITING = 64
"""Parts that may wait for an idle answering thread; beyond, the buckets start anew, in debt."""


class QuotaGate:
    """One worker's buckets.

    Args:
        parts: what the worker may spend when it starts.
        clock: seconds of the clock that `LeaseParts.until` is of.
    """

    def __init__(self, parts: LeaseParts, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._buckets: dict[QuotaText, TokenBucket] = {}
        self._waiting: deque[tuple[float, LeaseParts, bool]] = deque()
        self._used = Counts()
        self._denied = Counts()
        self._shares = ShareBuckets()
        self._start_anew(clock(), parts)

    def earn(self, worth: Worth) -> Worth:
        """A request was seen, of which each of these shares earns so many tokens. Returns what could not be saved."""
        return self._shares.earn(worth)

    def update(self, parts: LeaseParts) -> None:
        """Spend by these parts from now on (any thread). When it returns, older ones are spent no more."""
        anew = len(self._waiting) >= _MAX_WAITING
        if anew:
            self._waiting.clear()
        self._waiting.append((self._clock(), parts, anew))

    def afford(self, quotas: tuple[QuotaText, ...]) -> bool:
        """Take one request from each of these quotas (no name twice), or from none if one has none to give."""
        now = self._clock()
        if self._waiting:
            self._catch_up()
        earned = [found for quota in quotas if (found := self._shares.of(quota)) is not None]
        short = not all(share.ready() for share in earned)
        leased = [quota for quota in quotas if not is_share(quota)]
        buckets = self._buckets
        for quota in leased:
            bucket = buckets.get(quota)
            if bucket is None or not bucket.ready(now):
                self._denied.add(quota)  # whatever else is short: control leases by it
                short = True
        if short or len(earned) + len(leased) < len(quotas):
            return False
        for share in earned:
            share.spend()
        for quota in leased:
            buckets[quota].spend()
            self._used.add(quota)
        return True

    def take_counts(self) -> tuple[dict[QuotaText, int], dict[QuotaText, int]]:
        """Requests used and denied by quota since the last call (any thread)."""
        used, denied = self._used.take(), self._denied.take()
        return {QuotaText(quota): int(count) for quota, count in used.items()}, {
            QuotaText(quota): int(count) for quota, count in denied.items()
        }

    def _catch_up(self) -> None:
        """Apply what waits, each at the time it came: an idle worker earned by each of its rates in turn."""
        while self._waiting:
            try:
                at, parts, anew = self._waiting.popleft()
            except IndexError:  # cleared meanwhile
                return
            if anew:
                self._start_anew(at, parts)
                continue
            for quota in parts.rates.keys() - self._buckets.keys():
                self._buckets[quota] = TokenBucket()
            for quota, bucket in self._buckets.items():
                bucket.lease(at, parts.rates.get(quota, 0.0), parts.until)

    def _start_anew(self, now: float, parts: LeaseParts) -> None:
        self._buckets = {
            quota: TokenBucket.successor(now, rate, parts.until) for quota, rate in parts.rates.items()
        }
