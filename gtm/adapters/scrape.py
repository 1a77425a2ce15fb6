"""From two scrapes of a server to the signals of a load report (`gtm.core.capacity.load.SIGNALS`).

Law: each signal is within its range there. A number that is not, or is none (sums of what servers say overflow), says nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gtm.core.capacity.load import SIGNALS


@dataclass(frozen=True, slots=True)
class ScrapeTotals:
    """What a server has counted since it started; None: it does not say.

    `requests` were finished, `tokens` generated, and `input_tokens` read in prompts. `service_s` is the seconds that `served` requests were being served
    for, `wait_s` those that `waited` requests waited for.
    """

    requests: float | None = None
    tokens: float | None = None
    input_tokens: float | None = None
    service_s: float | None = None
    served: float | None = None
    wait_s: float | None = None
    waited: float | None = None


@dataclass(frozen=True, slots=True)
class Scrape:
    """One look at a server's metrics. `at` in monotonic seconds; `gauges` are signals as they are; unknown ones are not in it.

    `busy_by_totals`: nothing says how many requests are being served; it follows from how long all were served meanwhile.
    """

    at: float
    gauges: Mapping[str, float]
    totals: ScrapeTotals = ScrapeTotals()
    models: tuple[str, ...] = ()
    busy_by_totals: bool = False
    missing: tuple[str, ...] = field(default=())
    """Series that the server should have and has not, for a message."""
    adapters: tuple[str, ...] | None = None
    """LoRA adapters that requests are using; None: it does not say."""
    cache_tokens: float | None = None
    """Tokens that its KV cache holds; None: it does not say."""
    progress: tuple[float, ...] = ()
    """What is another after each step of an engine that works; empty: the server says nothing so often."""


def signals(before: Scrape | None, now: Scrape) -> dict[str, float]:
    """What is known of a server now.

    Args:
        before: the scrape before; None at first. Rates and times are those in between.
        now: this one.
    """
    found = dict(now.gauges)
    if before is not None and now.at > before.at:
        found |= _between(before, now)
    return {signal: value for signal, value in found.items() if possible(signal, value)}


def possible(signal: str, value: float) -> bool:
    """Whether a signal can be so much; NaN is nothing that one can be."""
    return 0 <= value <= SIGNALS[signal]


def _between(before: Scrape, now: Scrape) -> dict[str, float]:
    found: dict[str, float] = {}
    seconds, old, new = now.at - before.at, before.totals, now.totals
    grown = {
        name: _growth(getattr(old, name), getattr(new, name))
        for name in ("requests", "tokens", "input_tokens", "service_s", "served", "wait_s", "waited")
    }
    for signal, name in (
        ("requests_per_second", "requests"),
        ("tokens_per_second", "tokens"),
        ("input_tokens_per_second", "input_tokens"),
    ):
        if (growth := grown[name]) is not None:
            found[signal] = growth / seconds
    for signal, sum_, count in (
        ("service_time_ms", "service_s", "served"),
        ("queue_wait_ms", "wait_s", "waited"),
    ):
        total, number = grown[sum_], grown[count]
        if total is not None and number:
            found[signal] = 1000 * total / number
    if now.busy_by_totals and (busy := grown["service_s"]) is not None:
        found["outstanding"] = busy / seconds  # requests in service on average: Little's law
    return found


def _growth(before: float | None, now: float | None) -> float | None:
    """How much a counter grew; None if it is not known, or has begun anew."""
    return None if before is None or now is None or now < before else now - before
