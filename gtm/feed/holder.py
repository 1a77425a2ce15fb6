"""Where a process keeps its current View.

Law: the answer path reads `holder.router` once per request and uses what it got. Everything else here runs beside the
answer path and replaces the reference whole.
"""

from __future__ import annotations

from collections.abc import Callable

from gtm.core.access import Access
from gtm.core.model import State
from gtm.core.router import Router
from gtm.core.snapshot import Snapshot
from gtm.core.view import Window, build_view
from gtm.feed.wire import AccessMessage, Message, SnapshotMessage, StateMessage


class ViewHolder:
    """The current Router of a process, and what it was made from.

    Args:
        clock: POSIX seconds.
        on_swap: called with each new Router before it becomes current (to prepare what hangs on it).
    """

    def __init__(self, clock: Callable[[], float], on_swap: Callable[[Router], None] | None = None) -> None:
        self.router: Router | None = None
        self.access = Access()
        self.snapshot: Snapshot | None = None
        self.state = State()
        self._clock = clock
        self._on_swap = on_swap
        self._window = Window(clock(), clock())

    def apply(self, message: Message) -> None:
        """Take in a message; anything but a snapshot, a state or a change of access is ignored.

        Raises:
            FeedError: the snapshot is damaged.
            PolicyError: the snapshot does not compile here. The current View stays.
        """
        if isinstance(message, SnapshotMessage):
            self.snapshot = message.compiled()
            self.rebuild()
        elif isinstance(message, StateMessage):
            self.state = message.state
            self.rebuild()
        elif isinstance(message, AccessMessage):
            self.access = message.access

    def tick(self) -> None:
        """Rebuild if a rule came into or out of force, or the clock stepped back. To be called about once a second."""
        now = self._clock()
        if self.router is None:
            return
        if now >= self.router.view.changes_at or now < self._window.now:
            self.rebuild()

    def rebuild(self) -> None:
        """Make a View of what is known and swap it in; nothing happens before the first snapshot."""
        if self.snapshot is None:
            return
        self._window = self._window.advanced(self._clock())
        router = Router(build_view(self.snapshot, self.state, self._window))
        if self._on_swap is not None:
            self._on_swap(router)
        self.router = router
