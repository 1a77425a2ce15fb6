"""What one edge learned of round trips, held by its agent until control is told.

Law: what waits is bounded. While control is away the newest is kept.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable

from gtm.core.latency.doubt import Witness
from gtm.core.latency.samples import Delta, Interval, RoundTripSample, SampleAggregator, SampleMethod
from gtm.core.model.requests import UNKNOWN_LOCATION
from gtm.core.policy.snapshot import Snapshot

logger = logging.getLogger(__name__)

MAX_WAITING = 20_000
"""Deltas kept for control, and as many witnesses."""
MAX_SENT = 4_000
"""Deltas in one report, and as many witnesses: some 400 kB each."""


class RoundTrips:
    """Deltas of the HTTP workers, and of the way from this edge's own region to the others.

    Args:
        region: the region that the edge runs in; None: its probes say nothing of round trips between regions.
        clock: POSIX seconds.
    """

    def __init__(self, region: str | None, clock: Callable[[], float]) -> None:
        self._region = region
        self._clock = clock
        self._aggregator = SampleAggregator(())
        self._deltas: deque[Delta] = deque(maxlen=MAX_WAITING)
        self._witnesses: deque[Witness] = deque(maxlen=MAX_WAITING)

    def update(self, snapshot: Snapshot) -> None:
        """Follow another policy."""
        self.end_interval()
        self._aggregator = SampleAggregator(snapshot.regions)
        if self._region is not None and self._region not in snapshot.region_numbers:
            logger.warning(
                "this edge is said to run in region `%s`, which is not in the policy", self._region
            )

    def probed(self, region: str, connect_ms: float) -> None:
        """A check of an endpoint of a region took this long to connect."""
        if self._region is not None:
            self._aggregator.add(
                RoundTripSample(
                    UNKNOWN_LOCATION, region, connect_ms, self._clock(), self._region, SampleMethod.PROBE
                )
            )

    def end_interval(self) -> None:
        """Sum up the probes since the last call."""
        self.learned(self._aggregator.take())

    def learned(self, interval: Interval) -> None:
        """Keep for control what was summed up elsewhere."""
        self._deltas.extend(interval.deltas)
        self._witnesses.extend(interval.witnesses)

    def take(self) -> tuple[tuple[Delta, ...], tuple[Witness, ...]]:
        """The oldest that wait, as many as go into a report."""
        return (
            tuple(self._deltas.popleft() for _ in range(min(MAX_SENT, len(self._deltas)))),
            tuple(self._witnesses.popleft() for _ in range(min(MAX_SENT, len(self._witnesses)))),
        )
