"""Backends that are unlike the others, over one window: which should be ejected, the worst first.

Source: Envoy, "Outlier detection" (failure percentage, success rate: below the mean by `success_rate_stdev_factor` standard deviations
of the population). Among n backends none can be more than √(n − 1) deviations from the mean, so that fewer than five have no outlier
of 1.9; and where all but one are perfect, one error in a thousand is an outlier: hence the margin. Latencies are compared by medians,
for requests differ a hundredfold, and by factor and margin both; only those of one model and one kind of call with each other, since an embedding takes
milliseconds where a chat takes seconds; where answers have known tokens, by the seconds that each of these takes. Of failures that requests can have caused, only those count that peers'
do not explain (`gtm.core.balance.health.comparing`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from math import fsum, sqrt
from statistics import median

from gtm.core.balance.health.breaker import Latencies, Window
from gtm.core.balance.health.comparing import CallKind, explained
from gtm.core.balance.health.settings import Settings


def outliers(
    windows: Mapping[str, Window], settings: Settings, weights: Mapping[str, float]
) -> Iterator[tuple[str, str]]:
    """Names and why, in the order in which they should be ejected; a name may come again for another cause.

    Args:
        windows: of the backends that are not ejected, by name.
        settings: of the causes.
        weights: of the backends: who is said to get less done in a second may take as much longer.
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
    yield from _slow(windows, settings, weights)


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


def _slow(
    windows: Mapping[str, Window], settings: Settings, weights: Mapping[str, float]
) -> Iterator[tuple[str, str]]:
    if settings.latency_factor is None:
        return
    calls: dict[CallKind, dict[str, Latencies]] = {}
    for name, one in windows.items():
        for call, known in one.latencies.items():
            if known.count >= settings.requests:
                calls.setdefault(call, {})[name] = known
    found = [
        slow
        for call, known in calls.items()
        if len(known) >= settings.latency_peers
        for slow in _slower(call, known, settings, settings.latency_factor, weights)
    ]
    for _, name, why in sorted(found):
        yield name, why


def _slower(
    call: CallKind,
    known: Mapping[str, Latencies],
    settings: Settings,
    factor: float,
    weights: Mapping[str, float],
) -> Iterator[tuple[float, str, str]]:
    """Of those who had calls of a kind, who took too long: how far beyond what is allowed (less is worse), who, and why."""
    typical = median([tokens for one in known.values() for _, tokens in one.last])
    medians = {
        name: typical * median([latency / tokens for latency, tokens in one.last])
        for name, one in known.items()
    }
    ordered, weighed = sorted(medians.values()), sorted(weights[name] for name in known)
    for name, value in medians.items():
        others = median_without(ordered, value)
        slower = max(1.0, median_without(weighed, weights[name]) / weights[name])
        allowed = max(factor * others * slower, others + settings.latency_margin)
        if value > allowed:
            what = f" ({call.model[:80]!r}, {call.path.decode('latin-1')[:80]!r})" if call.path else ""
            yield (
                allowed / value,
                name,
                f"its median latency is {value:.3g} s, that of others {others:.3g} s{what}",
            )


def median_without(ordered: list[float], value: float) -> float:
    """The median of ordered numbers, at least two, without one of them."""
    place, middle = bisect_left(ordered, value), (len(ordered) - 1) // 2

    def rest(index: int) -> float:
        return ordered[index if index < place else index + 1]

    return rest(middle) if len(ordered) % 2 == 0 else (rest(middle - 1) + rest(middle)) / 2
