"""Backends that are unlike the others, over one window: which should be ejected, the worst first.

Source: Envoy, "Outlier detection" (failure percentage, success rate: below the mean by `success_rate_stdev_factor` standard deviations
of the population). Among n backends none can be more than √(n − 1) deviations from the mean, so that fewer than five have no outlier
of 1.9; and where all but one are perfect, one error in a thousand is an outlier: hence the margin. Latencies are compared by medians,
for requests differ a hundredfold, and by factor and margin both. Of failures that requests can have caused, only those count that peers'
do not explain (`gtm.core.balance.health.comparing`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from math import fsum, sqrt
from statistics import median

from gtm.core.balance.health.breaker import Window
from gtm.core.balance.health.comparing import explained
from gtm.core.balance.health.settings import Settings


def outliers(windows: Mapping[str, Window], settings: Settings) -> Iterator[tuple[str, str]]:
    """Names and why, in the order in which they should be ejected; a name may come again for another cause.

    Args:
        windows: of the backends that are not ejected, by name.
        settings: of the causes.
    """
    counted = {name: one for name, one in windows.items() if one.ended >= settings.requests}
    kinds = {name: one.kinds for name, one in windows.items()}
    failed = {
        name: one.bad - (explained(name, kinds) if one.bad and one.kinds else 0.0)
        for name, one in counted.items()
    }
    shares = {name: bad / counted[name].ended for name, bad in failed.items()}
    yield from _failing(counted, shares, settings)
    yield from _less_successful({name: 1 - share for name, share in shares.items()}, settings)
    yield from _slow(windows, settings)


def _failing(
    counted: Mapping[str, Window], failed: Mapping[str, float], settings: Settings
) -> Iterator[tuple[str, str]]:
    for name in sorted(failed, key=lambda name: (-failed[name], name)):
        one = counted[name]
        if failed[name] >= settings.failure_share:
            yield name, f"{one.bad} of {one.ended} requests failed"


def _less_successful(shares: Mapping[str, float], settings: Settings) -> Iterator[tuple[str, str]]:
    if len(shares) < settings.peers:
        return
    mean = fsum(shares.values()) / len(shares)
    deviation = sqrt(fsum((share - mean) ** 2 for share in shares.values()) / len(shares))
    least = mean - max(settings.deviations * deviation, settings.success_margin)
    for name in sorted(shares, key=lambda name: (shares[name], name)):
        if shares[name] < least:
            yield name, f"{shares[name]:.0%} of its requests ended well, {mean:.0%} among all"


def _slow(windows: Mapping[str, Window], settings: Settings) -> Iterator[tuple[str, str]]:
    factor = settings.latency_factor
    counted = {
        name: median(one.latencies)
        for name, one in windows.items()
        if one.good >= settings.requests and one.latencies
    }
    if factor is None or len(counted) < settings.latency_peers:
        return
    ordered = sorted(counted.values())
    for name in sorted(counted, key=lambda name: (-counted[name], name)):
        others = median_without(ordered, counted[name])
        if counted[name] > max(factor * others, others + settings.latency_margin):
            yield name, f"its median latency is {counted[name]:.3g} s, that of others {others:.3g} s"


def median_without(ordered: list[float], value: float) -> float:
    """The median of ordered numbers, at least two, without one of them."""
    place, middle = bisect_left(ordered, value), (len(ordered) - 1) // 2

    def rest(index: int) -> float:
        return ordered[index if index < place else index + 1]

    return rest(middle) if len(ordered) % 2 == 0 else (rest(middle - 1) + rest(middle)) / 2
