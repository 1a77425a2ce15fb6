"""What plans came to, minute by minute, for those who ask later what the planner decided."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from math import floor

from gtm.core.model.state import Plan
from gtm.core.plan.problem import PlanProblem, plan_flow

MINUTE = 60.0


@dataclass(frozen=True, slots=True)
class RegionMinute:
    """A region in a minute: means over `samples` looks at the plan in force. Rates in requests per second.

    `demand` is that of classes whose home it is; of it `away` goes to other regions and `refused` is refused for want of
    capacity. `planned` is what it serves, whoever's. `use` is the share of its limit that it reports outstanding, None: it never did.
    `price_ms` is what one more request a second there would cost all others; `exhausted` the share of looks at which it was full.
    """

    samples: int
    demand: float
    planned: float
    away: float
    refused: float
    use: float | None
    price_ms: float
    exhausted: float


def seen(
    problem: PlanProblem, plan: Plan, binding: Collection[str], use: Mapping[str, float | None]
) -> dict[str, RegionMinute]:
    """One look at a plan: all regions that it, or what is known of their use, names.

    Args:
        problem: what it answers.
        plan: the plan.
        binding: regions and quotas that it has exhausted.
        use: region → the share of its limit in use; None: unknown. Its keys are the policy's regions.
    """
    demand, away, refused, planned = (defaultdict[str, float](float) for _ in range(4))
    flow = plan_flow(problem, plan)
    for one in problem.classes:
        if not one.regions:
            continue
        home, served = one.regions[0], flow.get(one.key, {})
        demand[home] += one.rate
        refused[home] += max(0.0, one.rate - sum(served.values())) if served else 0.0
        for region, rate in served.items():
            planned[region] += rate
            if region != home:
                away[home] += rate
    full = set(binding)
    return {
        name: RegionMinute(
            1,
            demand[name],
            planned[name],
            away[name],
            refused[name],
            use[name],
            plan.prices.get(name, 0.0),
            float(name in full),
        )
        for name in use
    }


def joined(one: RegionMinute, other: RegionMinute) -> RegionMinute:
    """Two parts of a minute as one: the means of both by their samples; a use that one of them does not know is the other's."""
    samples = one.samples + other.samples
    known = [part for part in (one, other) if part.use is not None]
    weights = sum(part.samples for part in known)
    use = sum((part.use or 0.0) * part.samples for part in known) / weights if known else None
    means = {
        name: (getattr(one, name) * one.samples + getattr(other, name) * other.samples) / samples
        for name in ("demand", "planned", "away", "refused", "price_ms", "exhausted")
    }
    return RegionMinute(samples, use=use, **means)


@dataclass(slots=True)
class Minutes:
    """Joins looks to minutes. Times are POSIX seconds."""

    _start: float | None = None
    _regions: dict[str, RegionMinute] = field(default_factory=dict)

    def add(
        self, looked: Mapping[str, RegionMinute], now: float
    ) -> tuple[float, dict[str, RegionMinute]] | None:
        """Take in a look; the minute before with its start, if this one is the first of another."""
        start = floor(now / MINUTE) * MINUTE
        done = None
        if self._start is not None and start != self._start:
            done, self._regions = (self._start, self._regions), {}
        self._start = start
        for name, one in looked.items():
            held = self._regions.get(name)
            self._regions[name] = one if held is None else joined(held, one)
        return done

    def end(self) -> tuple[float, dict[str, RegionMinute]] | None:
        """The minute that is not over, with its start; None: there is none."""
        done = None if self._start is None else (self._start, self._regions)
        self._start, self._regions = None, {}
        return done
