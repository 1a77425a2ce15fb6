"""An edge's current View with a clock to play with, for the drill of the fence."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from pathlib import Path
from random import Random

from gtm.core.decision.router import Router
from gtm.core.decision.timekeeping import LEAD, UNKEPT
from gtm.core.decision.view import Window
from gtm.core.handoff.keys import PublicKey, PublicKeys, key_text
from gtm.core.latency.doubt import Doubt
from gtm.core.latency.table import LatencyTable
from gtm.core.model.policy import Jurisdiction, Policy
from gtm.core.model.state import State
from gtm.core.policy.edges import EdgePlace
from gtm.feed import clockfile
from gtm.feed.current import CurrentView
from gtm.feed.wire import HandoffKeysMessage, LatencyMessage, SnapshotMessage, StateMessage
from gtm.handoff.jwt import made
from gtm.http.answers.routes import CarriedRequest, EdgeHandoffs, Locate
from gtm.http.app import EdgeApp, EdgeOptions
from gtm.http.problems import Response
from gtm.runtime.following.following import ClockKeeper
from gtm.telemetry import Counts
from tests.core.reference import Clock
from tests.drills.fence_worlds import DAY

_KEY = made()


def told(found: Response | CarriedRequest) -> tuple[str, str | None]:
    """How a request over HTTP ends at an edge, in the words of the model (`EdgeAnswer`), and the region."""
    if isinstance(found, CarriedRequest):
        return "carried", found.option.region
    headers = dict(found.head.headers)
    if found.head.status == 307:
        return "redirected", headers[b"x-gtm-region"].decode()
    return str(found.head.status), None


class Edge:
    """The code under test.

    Args:
        policy: what it answers by.
        shipped: the jurisdictions that come with gtm.
        state: health.
        now: what its clock shows.
        directory: what outlives its restarts.
        stands: says where, each time that it starts.
        locate: where an address is.
    """

    def __init__(  # noqa: PLR0917 - all that an edge is made of
        self,
        policy: Policy,
        shipped: tuple[Jurisdiction, ...],
        state: State,
        now: float,
        directory: Path,
        stands: Callable[[], EdgePlace],
        locate: Locate,
    ) -> None:
        self._now = now
        self._stands, self._locate = stands, locate
        directory.mkdir()
        self._directory = directory
        self._boots = 0
        self._restarted = False
        self._heard: float | None = None  # as far as the disk is sure to have it
        self._table = LatencyTable()
        self._messages = (SnapshotMessage.of(1, 0.0, policy, shipped), StateMessage(state))
        self._start()

    @property
    def router(self) -> Router:
        """What it answers from."""
        router = self._current.router
        assert router is not None
        return router

    def _start(self) -> None:
        """Start as an edge's agent does: the times that were kept come before the policy."""
        self.place = self._stands()
        current = self._current = CurrentView(lambda: self._now, edge=self.place, boot=lambda: 0.0)
        current.apply(HandoffKeysMessage(PublicKeys((PublicKey("edge", key_text(_KEY.public)),), 1)))
        handoffs = EdgeHandoffs(current)
        handoffs.use("edge", _KEY, ())
        self.app = EdgeApp(
            current, self._locate, EdgeOptions(), Counts(), str, clock=lambda: self._now, handoffs=handoffs
        )
        """What answers over HTTP."""
        self._keeper = ClockKeeper(self._directory, self._current, f"boot-{self._boots}")
        self._keeper.load()
        for message in (*self._messages, LatencyMessage(self._table)):
            self._current.apply(message)
        self._keeper.keep()

    def hear(self, clock: Clock) -> None:
        """A word comes from control; the model's clock is told, too."""
        self._current.hear(self._messages[1])
        self._keeper.keep()
        clock.heard = self._heard = clock.latest

    def doubt(self, doubts: dict[str, Doubt]) -> None:
        """Another latency table comes from control, with these doubts."""
        self._table = LatencyTable(self._table.version + 1, doubts=doubts)
        self._current.apply(LatencyMessage(self._table))

    def event(self, rng: Random, clock: Clock) -> str:
        """Something happens to its clock; what, in words. The model's clock is told, too."""
        kind = rng.choice(
            [
                "a moment",
                "a while",
                "back",
                "ahead",
                "a change",
                "the next change",
                "a restart",
                "a reboot",
                "a word from control",
                "a word from control",
            ]
        )
        if kind in ("a restart", "a reboot"):
            to = max(0.0, self._now + rng.choice([0.0, 0.0, -rng.uniform(0, 5 * DAY)]))
        elif kind in ("a moment", "a word from control"):
            to = self._now + rng.choice([1e-6, 0.5, 1.0])
        elif kind == "a while":
            to = self._now + rng.uniform(0, 1.5 * DAY)
        elif kind == "back":
            to = max(0.0, self._now - rng.uniform(0, 5 * DAY))
        elif kind == "ahead":
            to = self._now + rng.uniform(0, 5 * DAY)
        elif kind == "a change":
            to = DAY * rng.randint(1, 9) + rng.choice([-1e-6, 0.0, 1e-6])
        else:
            to = DAY * (max(clock.latest, self._now) // DAY + 1) + rng.choice([-1e-6, 0.0, 0.0])
        self._now = round(to, 6)
        clock.shows(self._now)
        if kind in ("a restart", "a reboot"):
            self._boots += kind == "a reboot"
            self._restarted = True
            self._heard = clockfile.load(self._directory / clockfile.FILE).heard
            if self._heard is not None and kind == "a reboot":
                self._heard -= UNKEPT
            self._start()
        elif kind == "a word from control":
            self.hear(clock)
        else:
            self._current.tick()
            self._keeper.keep()
        return f"after {kind}"

    def windows(self, clock: Clock) -> tuple[Window, Window]:
        """The times that rules must be read at at least, and may be read at at most."""
        window = clock.window
        latest = window.latest + (LEAD + UNKEPT if self._restarted else LEAD)
        age = inf if self._heard is None else window.latest - self._heard + LEAD
        return window, window._replace(latest=latest, age=age)
