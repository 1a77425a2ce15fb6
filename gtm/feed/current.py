"""Where a process keeps its current View.

Laws:
  1. The answer path reads `current.router` once per request and uses what it got. Everything else here runs beside the
     answer path and replaces the reference whole.
  2. Changes come one at a time, from whatever thread (messages on one, the passing of time on another): a View made
     from an older snapshot never takes the place of a newer one's.
  3. One process of an edge keeps the time (`gtm.core.decision.timekeeping`) and tells the others, which look at their own clocks
     only while it is silent.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from math import inf

from gtm.core.balance.spill.room import Room, Transit
from gtm.core.decision.router import Ranker, Router
from gtm.core.decision.timekeeping import LEAD, ClockTimes, Kept
from gtm.core.decision.view import Window, build_basis, build_view
from gtm.core.handoff.keys import NO_PUBLIC_KEYS
from gtm.core.latency.estimator import Estimator
from gtm.core.latency.table import EMPTY_TABLE, LatencyTable
from gtm.core.model.access import Access
from gtm.core.model.state import State
from gtm.core.policy.edges import NOWHERE, EdgePlace
from gtm.core.policy.snapshot import Snapshot
from gtm.core.signing.keys import NO_KEYS
from gtm.feed.wire import (
    AccessMessage,
    HandoffKeysMessage,
    HeartbeatMessage,
    KeysMessage,
    LatencyMessage,
    Message,
    RoomMessage,
    SnapshotMessage,
    StateMessage,
)

SILENT = 5.0
"""Seconds without word of the time after which a process that was told it looks at its own clock again."""
_LATE = LEAD / 2
"""Seconds for which a View may still be answered from where something begins: in truth it begins later."""

_FAR = 86_400.0
"""Seconds to a change that no process sleeps through."""


@dataclass(eq=False, repr=False)
class CurrentView:
    """The current Router of a process, and what it was made from.

    Args:
        clock: POSIX seconds.
        on_swap: called with each new Router before it becomes current (to prepare what hangs on it), while `keys` are
            already those that go with it.
        edge: where the edge stands that answers; None: no edge does.
        boot: seconds that go on at an even pace whatever the clock shows; where processes share times, the boot clock.
    """

    clock: Callable[[], float]
    on_swap: Callable[[Router], None] | None = None
    edge: EdgePlace | None = None
    _: KW_ONLY
    boot: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self.router: Router | None = None
        self.access = Access()
        self.keys = NO_KEYS
        self.handoff_keys = NO_PUBLIC_KEYS
        self.rooms: Mapping[str, tuple[Room, ...]] = {}
        """Free slots by region, as their balancers last said; times by `boot`. No View is made of these: they change too often."""
        self._transit = Transit()
        self.senders = 1
        """How many tokens go by them."""
        self.beside = 1
        """How many edges or balancers do by the token of this one."""
        self.snapshot: Snapshot | None = None
        self.state = State()
        self.table = EMPTY_TABLE
        self.times = ClockTimes.of(self.boot(), self.clock())
        self.deadline = inf
        """The moment by `boot` from which nothing may be answered from the current Router before `tick` was called: the
        process slept while it should have been replaced. Infinite while that is far, so that no clock need be read."""
        self._told_at = -inf
        self._changing = threading.RLock()  # never taken on the answer path

    @property
    def window(self) -> Window:
        """The time it is."""
        return self.times.window(self.boot())

    @property
    def now(self) -> float:
        """The earliest that it may be (`Window.now`)."""
        return self.times.now(self.boot())

    @property
    def place(self) -> EdgePlace:
        """Where the edge stands, with what its region says of it."""
        place = self.edge if self.router is None else self.router.view.basis.edge
        return place or NOWHERE

    def apply(self, message: Message) -> None:
        """Take in a message; anything but a snapshot, state, latency table, keys of either kind or change of access is ignored.

        Whatever is raised (by `on_swap` too), nothing has changed: the current View stays, and what it was made from.

        Raises:
            FeedError: the snapshot is damaged.
            PolicyError: the snapshot does not compile here.
        """
        if isinstance(message, SnapshotMessage):
            snapshot = message.compiled()
            with self._changing:
                # It is no earlier than when control published this, whatever the clock here says.
                self.times = self.times.no_earlier(self.boot(), message.created)
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
        elif isinstance(message, RoomMessage):
            now = self.boot()
            # A sender without a name is a test's, or an older control: its messages are taken as they say.
            late = self._transit.late(message.sender, message.sent, now) if message.sender else 0.0
            self.senders, self.beside = message.senders, message.beside
            self.rooms = {
                region: tuple(report.held(now, late) for report in reports)
                for region, reports in message.rooms.items()
            }
        elif isinstance(message, AccessMessage):
            self.access = message.access
        elif isinstance(message, HandoffKeysMessage):
            self.handoff_keys = message.keys

    def follow(self, times: ClockTimes) -> None:
        """Go by what the process knows that keeps the time. For all other processes of an edge."""
        with self._changing:
            first = self._told_at == -inf
            # Its own first look at the clock was for want of anything better, and would part it from its siblings.
            saved = self.times.unsaved
            self.times = times if first else self.times.following(times)
            self._told_at = self.boot()
            if self.times.unsaved == saved:
                self._keep_up()
            else:
                self.rebuild()

    def hear(self, message: Message) -> None:
        """Note that control was heard, and what its clock shows if it says so. For the process that keeps the time."""
        with self._changing:
            control = message.now if isinstance(message, HeartbeatMessage) else None
            self._look()
            self.times = self.times.heard_at(self.boot(), control)
            self._keep_up()

    def saving(self, *, refused: bool) -> bool:
        """Note whether the disk has refused the policy that is followed; whether that is news. For the process that keeps the time."""
        with self._changing:
            if refused == (self.times.unsaved is not None):
                return False
            self._look()
            self.times = self.times.saving(self.boot(), refused=refused)
            self.rebuild()
            return True

    def resume(self, kept: Kept, boot_id: str) -> None:
        """Go on from the times that were kept on disk. For the process that keeps the time."""
        with self._changing:
            self.times = self.times.resumed(kept, self.boot(), boot_id)
            self._keep_up()

    def tick(self) -> None:
        """Look at the clock, and rebuild if the View is over. To be called each second, and after `pause` seconds."""
        with self._changing:
            self._look()
            self._keep_up()

    def pause(self) -> float:
        """Seconds until time alone makes the View another; infinite if it does not."""
        router = self.router
        return inf if router is None else max(0.0, router.view.left(self.window))

    def rebuild(self) -> None:
        """Make a View of what is known and swap it in; nothing happens before the first snapshot."""
        with self._changing:
            self._swap(self.snapshot, self.state, self.table)

    def _look(self) -> None:
        """Read the clock, unless somebody else does for this process."""
        boot = self.boot()
        if boot - self._told_at >= SILENT:
            self.times = self.times.read(boot, self.clock())

    def _keep_up(self) -> None:
        """Rebuild if the View is over by the times known."""
        if self.router is None:
            return
        if self.router.view.lasts(self.window):
            self._set_deadline(self.router)
        else:
            self.rebuild()

    def _set_deadline(self, router: Router) -> None:
        boot = self.boot()
        window, until = self.times.window(boot), router.view.until
        left = min(until.latest - window.latest + _LATE, until.now - window.now)
        self.deadline = inf if left > _FAR else boot + left

    def _swap(self, snapshot: Snapshot | None, state: State, table: LatencyTable) -> None:
        router = self.router
        if snapshot is not None:
            self._look()
            window = self.window
            ranker = router.ranker if router is not None else None
            previous = ranker.basis if ranker is not None else None
            estimator = previous.estimator if previous is not None else None
            if estimator is None or self.snapshot is not snapshot or estimator.table is not table:
                estimator = Estimator(snapshot.regions, table)
            basis = build_basis(snapshot, estimator, window, previous, self.edge)
            if ranker is None or ranker.basis is not basis:
                ranker = Ranker(basis)
            router = Router(build_view(basis, state, window), ranker)
            if self.on_swap is not None:
                self.on_swap(router)
        self.snapshot, self.state, self.table, self.router = snapshot, state, table, router
        if router is not None:
            self._set_deadline(router)
