"""What control last said of the world, and how far that still holds: health while it is heard, its plan for a while after.

Where votes would empty it, an edge goes by its own word against the common verdict, and says so.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from math import inf

from gtm.core.health.addresses import NO_ADDRESSES, Addresses, followed_addresses, overruled_addresses
from gtm.core.health.verdicts import HealthTable, followed, overruled
from gtm.core.model.state import PLAN_KEPT, EndpointHealth, State, kept_plan
from gtm.feed.wire import StateMessage
from gtm.telemetry import EdgeMetrics

logger = logging.getLogger(__name__)

PATIENCE = 3.0
"""Seconds for which it goes on before the log says so: when many regions recover, control is told a moment later."""
_Table = dict[str, dict[str, EndpointHealth]]


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


class Agreed:
    """The agreed state of the world, as one edge goes by it.

    Args:
        veto: where this edge goes by its own probes all the same.
        monotonic: seconds that never step back.
    """

    def __init__(self, veto: Veto, monotonic: Callable[[], float]) -> None:
        self.connected = False
        """Whether control is heard, and has said what it knows."""
        self._veto = veto
        self._monotonic = monotonic
        self._state = State()
        self._keeps_plan = False
        self._lost_at = -inf

    @property
    def plan_runs_out(self) -> bool:
        """Whether the plan is one that nobody keeps up to date: control is gone, or has just started and has none yet."""
        return not self.connected or self._keeps_plan

    @property
    def plan_left(self) -> float:
        """Seconds for which the plan is followed yet, should control say nothing more."""
        if self.plan_runs_out:
            return PLAN_KEPT - min(self._monotonic() - self._lost_at, PLAN_KEPT)
        return PLAN_KEPT

    def heard(self, message: StateMessage) -> None:
        """Control said how the world is."""
        self._state = message.after(self._state)
        self._keeps_plan = message.keep_plan

    def lost(self) -> None:
        """Control is gone."""
        self.connected = False
        if not self._keeps_plan:  # else the plan's time runs already
            self._lost_at = self._monotonic()

    def state(
        self,
        own: _Table,
        recent: _Table,
        edge: str,
        *,
        addresses: dict[str, _Table] | None = None,
        recent_addresses: Addresses = NO_ADDRESSES,
    ) -> State:
        """What this edge goes by now.

        Args:
            own: what its own probes say, or said last.
            recent: what they have said lately, which alone overrules what others see.
            edge: its name.
            addresses: as `own`, of addresses; None: it probes none.
            recent_addresses: as `recent`, of addresses.
        """
        addresses = addresses or {}
        # Epoch 0 is the state before any: a worker that has only that must not listen.
        epoch = max(self._state.epoch, 1)
        plan = self._state.plan
        if self.plan_runs_out:
            plan = kept_plan(plan, self._monotonic() - self._lost_at)
        if self.connected:
            health = self._veto.health(
                self._state.health,
                own,
                recent,
                also=overruled_addresses(self._state.addresses, recent_addresses),
            )
            followed = followed_addresses(self._state.addresses, addresses, recent_addresses)
            return State(epoch, "", health, plan, followed)
        self._veto.alone()
        return State(epoch, edge, own, plan, addresses)
