"""An edge's own word against the common verdict: it goes by its own probes where votes would empty it, and says so."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from gtm.core.health.verdicts import HealthTable, followed, overruled
from gtm.core.model.state import EndpointHealth
from gtm.telemetry import EdgeMetrics

logger = logging.getLogger(__name__)

PATIENCE = 3.0
"""Seconds for which it goes on before the log says so: when many regions recover, control is told a moment later."""


class Veto:
    """Where one edge overrules the common verdict now.

    Args:
        metrics: the edge's, which say for how many regions.
        monotonic: seconds that never step back.
    """

    def __init__(self, metrics: EdgeMetrics, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.regions: frozenset[str] = frozenset()
        self._metrics = metrics
        self._monotonic = monotonic
        self._since = 0.0
        self._said = False

    def health(
        self,
        agreed: HealthTable,
        own: HealthTable,
        recent: HealthTable,
        *,
        also: frozenset[str] = frozenset(),
    ) -> dict[str, dict[str, EndpointHealth]]:
        """What the edge goes by (`gtm.core.health.verdicts.followed`).

        `also`: regions for whose addresses it goes by its own probes, to be told with the others.
        """
        self._set(overruled(agreed, recent) | also)
        return followed(agreed, own, recent)

    def alone(self) -> None:
        """There is no common verdict: control is gone."""
        self._set(frozenset())

    def tick(self) -> None:
        """Say so, if it lasts."""
        if self.regions and not self._said and self._monotonic() - self._since >= PATIENCE:
            self._said = True
            logger.error(
                "going by this edge's own probes, which see %s up: most edges say that they are down",
                ", ".join(sorted(self.regions)),
            )

    def _set(self, regions: frozenset[str]) -> None:
        if regions and not self.regions:
            self._since = self._monotonic()
        if not regions and self._said:
            self._said = False
            logger.warning("going by the common verdict again")
        self.regions = regions
        self._metrics.overruled(len(regions))
