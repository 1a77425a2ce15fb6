"""An edge's corrections by free slots, for requests over HTTP: docs/spill-back.md.

Law: where nothing is known of any region's slots, a request costs one look more, and every answer is as if this were not here.
"""

from __future__ import annotations

from typing import Any

from gtm.core.balance.spill.corrector import Corrector, SendingWorker, parts_of
from gtm.core.balance.spill.edge import Correction, correction_document
from gtm.core.decision.decide import Routing
from gtm.core.decision.options import Afford, Option
from gtm.core.decision.router import Router
from gtm.feed.current import CurrentView
from gtm.telemetry import Counts, correction_key


class Corrections:
    """For one process of an edge, as long as it lives.

    Args:
        current: holds what balancers said, and its clock.
        counts: where what was decided is counted.
        name: which no other process that sends has.
        siblings: how many HTTP processes the edge has.
        afford: asked before a spillover quota is used; None: nothing is asked.
    """

    def __init__(
        self,
        current: CurrentView,
        counts: Counts,
        *,
        name: str,
        siblings: int = 1,
        afford: Afford | None = None,
    ) -> None:
        self.current = current
        self.counts = counts
        self.worker = SendingWorker(name, siblings, afford or (lambda _: True), current.boot())

    def under(self, router: Router) -> RouterCorrections:
        """Those of requests that a Router decides, from now on."""
        self.worker.number(router.view.snapshot.regions, self.current.boot())
        return RouterCorrections(self, router)


class RouterCorrections:
    """For requests that one Router decides."""

    __slots__ = ("_corrector", "_counts", "_keys", "_worker", "current")

    def __init__(self, process: Corrections, router: Router) -> None:
        self.current = process.current
        self._counts = process.counts
        self._worker = process.worker
        self._corrector = Corrector(router.view, process.worker, router.ranker.limit)
        self._keys: dict[tuple[int, int, str], str] = {}

    def corrected(self, routing: Routing, option: Option) -> Option:
        """How a request ends, of which the plan's choice is drawn and its quotas are paid."""
        return self._asked(routing, option, self._now())[0]

    def said(self, routing: Routing, option: Option) -> tuple[Option, dict[str, Any]]:
        """The same, with what people are told of it."""
        now, group = self._now(), routing.ranking.group
        ended, correction = self._asked(routing, option, now)
        known = self._worker.ask(parts_of(group, routing.request.model), now).known
        return ended, correction_document(routing.view, group, option, correction, known, now, ended)

    def _now(self) -> float:
        rooms, now = self.current.rooms, self.current.boot()
        if self._worker.rooms is not rooms:
            self._worker.hear(rooms, self.current.senders, now, self.current.beside)
        return now

    def _asked(self, routing: Routing, option: Option, now: float) -> tuple[Option, Correction | None]:
        group = routing.ranking.group
        correction = self._corrector.ask(group, routing.request.model, option, now)
        if correction is None:
            return option, None
        way = correction.way
        moved = None if way is None else self._corrector.option(group, way)
        known = option.number, -1 if moved is None else moved.number, correction.why
        key = self._keys.get(known)
        if key is None:
            key = self._keys[known] = correction_key(option, moved, correction.why.value)
        self._counts.add(key)
        return option if moved is None else moved, correction
