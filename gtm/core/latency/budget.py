"""How many samples a source may give over a longer time than one interval.

`SampleAggregator` gives each source one vote within an interval. A source that speaks in every interval would still
outweigh those that speak once a day; this bounds what it says in all.
"""

from __future__ import annotations


class SourceBudget:
    """Counts samples by source and region, in fixed windows of time.

    Args:
        most: samples of one region that a source may give within a window.
        seconds: length of a window.
        limit: pairs of source and region that are remembered; when they are all taken, others wait for the next window.
    """

    def __init__(self, most: int = 16, seconds: float = 3600.0, limit: int = 50_000) -> None:
        self._most = most
        self._seconds = seconds
        self._limit = limit
        self._window: float | None = None
        self._spent: dict[tuple[str, str], int] = {}

    def spend(self, source: str, region: str, now: float) -> bool:
        """Take one sample off a source's budget; False if there is none left.

        Args:
            source: as in `gtm.core.latency.samples.Sample`.
            region: the region that it measured.
            now: seconds of any clock.
        """
        window = now // self._seconds
        if window != self._window:
            self._window, self._spent = window, {}
        key = (source, region)
        spent = self._spent.get(key, 0)
        if spent >= self._most or (not spent and len(self._spent) >= self._limit):
            return False
        self._spent[key] = spent + 1
        return True
