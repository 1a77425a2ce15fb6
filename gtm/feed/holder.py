"""Where a process keeps its current View.

Laws:
  1. The answer path reads `holder.router` once per request and uses what it got. Everything else here runs beside the
     answer path and replaces the reference whole.
  2. Changes come one at a time, from whatever thread (messages on one, the passing of time on another): a View made
     from an older snapshot never takes the place of a newer one's.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from gtm.core.access import Access
from gtm.core.dnssec import NO_KEYS
from gtm.core.edges import NOWHERE, EdgePlace
from gtm.core.latency import EMPTY_TABLE, Estimator, LatencyTable
from gtm.core.router import Ranker, Router
from gtm.core.snapshot import Snapshot
from gtm.core.state import State
from gtm.core.view import Window, build_basis, build_view
from gtm.feed.wire import (
    AccessMessage,
    KeysMessage,
    LatencyMessage,
    Message,
    SnapshotMessage,
    StateMessage,
)


class ViewHolder:
    """The current Router of a process, and what it was made from.

    Args:
        clock: POSIX seconds.
        on_swap: called with each new Router before it becomes current (to prepare what hangs on it), while `keys` are
            already those that go with it.
        edge: where the edge stands that answers; None: no edge does.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        on_swap: Callable[[Router], None] | None = None,
        edge: EdgePlace | None = None,
    ) -> None:
        self.router: Router | None = None
        self.access = Access()
        self.keys = NO_KEYS
        self.snapshot: Snapshot | None = None
        self.state = State()
        self.table = EMPTY_TABLE
        self._clock = clock
        self._on_swap = on_swap
        self._edge = edge
        self._changing = threading.RLock()  # never taken on the answer path
        now = clock()
        self._window = Window(now, now)

    @property
    def place(self) -> EdgePlace:
        """Where the edge stands, with what its region says of it."""
        place = self._edge if self.router is None else self.router.view.basis.edge
        return place or NOWHERE

    def apply(self, message: Message) -> None:
        """Take in a message; anything but a snapshot, state, latency table, keys or change of access is ignored.

        Whatever is raised (by `on_swap` too), nothing has changed: the current View stays, and what it was made from.

        Raises:
            FeedError: the snapshot is damaged.
            PolicyError: the snapshot does not compile here.
        """
        if isinstance(message, SnapshotMessage):
            snapshot = message.compiled()
            with self._changing:
                # It is no earlier than when control published this, whatever the clock here says: a clock that went
                # wrong before a restart lifts no rule either.
                self._window = Window(self._window.now, max(self._window.latest, message.created))
                self._swap(snapshot, self.state, self.table)
        elif isinstance(message, StateMessage):
            with self._changing:
                self._swap(self.snapshot, message.after(self.state), self.table)
        elif isinstance(message, LatencyMessage):
            with self._changing:
                self._swap(self.snapshot, self.state, message.table)
        elif isinstance(message, KeysMessage):
            with self._changing:
                before, self.keys = self.keys, message.keys
                try:
                    self.rebuild()
                except BaseException:
                    self.keys = before
                    raise
        elif isinstance(message, AccessMessage):
            self.access = message.access

    def tick(self) -> None:
        """Rebuild if a rule came into or out of force, or the clock stepped back. To be called about once a second."""
        with self._changing:
            now = self._clock()
            if self.router is None:
                return
            if now >= self.router.view.changes_at or now < self._window.now:
                self.rebuild()

    def rebuild(self) -> None:
        """Make a View of what is known and swap it in; nothing happens before the first snapshot."""
        with self._changing:
            self._swap(self.snapshot, self.state, self.table)

    def _swap(self, snapshot: Snapshot | None, state: State, table: LatencyTable) -> None:
        router = self.router
        if snapshot is not None:
            self._window = self._window.advanced(self._clock())
            ranker = router.ranker if router is not None else None
            previous = ranker.basis if ranker is not None else None
            estimator = previous.estimator if previous is not None else None
            if estimator is None or self.snapshot is not snapshot or estimator.table is not table:
                estimator = Estimator(snapshot.regions, table)
            basis = build_basis(snapshot, estimator, self._window, previous, self._edge)
            if ranker is None or ranker.basis is not basis:
                ranker = Ranker(basis)
            router = Router(build_view(basis, state, self._window), ranker)
            if self._on_swap is not None:
                self._on_swap(router)
        self.snapshot, self.state, self.table, self.router = snapshot, state, table, router
