"""A plain model of the plan's history: minutes in a dictionary, steps and the whole made from them each time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from gtm.core.plan.history import RegionMinute, joined

ORIGIN = datetime(2000, 1, 1, tzinfo=UTC)
Told = dict[str, float | None]


def summary(minutes: Sequence[RegionMinute]) -> Told:
    """What is told of some minutes."""
    use = [one.use for one in minutes if one.use is not None]

    def mean(values: Sequence[float]) -> float:
        return sum(values) / len(values)

    return {
        "minutes": len(minutes),
        "demand": mean([one.demand for one in minutes]),
        "planned": mean([one.planned for one in minutes]),
        "away": mean([one.away for one in minutes]),
        "refused": mean([one.refused for one in minutes]),
        "use": mean(use) if use else None,
        "most_use": max(use) if use else None,
        "price_ms": mean([one.price_ms for one in minutes]),
        "most_price_ms": max(one.price_ms for one in minutes),
        "exhausted": mean([one.exhausted for one in minutes]),
    }


@dataclass
class PlanModel:
    """Minutes by region and time."""

    minutes: dict[tuple[str, datetime], RegionMinute] = field(default_factory=dict)

    def record(self, minute: datetime, regions: Mapping[str, RegionMinute]) -> None:
        """Two parts of a minute are joined."""
        for name, one in regions.items():
            held = self.minutes.get((name, minute))
            self.minutes[name, minute] = one if held is None else joined(held, one)

    def forget(self, before: datetime) -> None:
        """Whole hours."""
        hour = before.replace(minute=0, second=0, microsecond=0)
        self.minutes = {key: one for key, one in self.minutes.items() if key[1] >= hour}

    def steps(
        self, since: datetime, until: datetime, step: timedelta, region: str | None = None
    ) -> dict[str, tuple[Told, dict[float, Told]]]:
        """By region: the whole, and each step by its beginning."""
        found: dict[str, dict[float, list[RegionMinute]]] = defaultdict(lambda: defaultdict(list))
        for (name, minute), one in sorted(self.minutes.items()):
            if since <= minute < until and region in (None, name):
                start = minute - (minute - ORIGIN) % step
                found[name][start.timestamp()].append(one)
        return {
            name: (
                summary([one for of in steps.values() for one in of]),
                {start: summary(of) for start, of in steps.items()},
            )
            for name, steps in found.items()
        }
