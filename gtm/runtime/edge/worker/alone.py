"""A worker without its agent: how it knows, what it goes by, and for how long.

Laws:
  1. An agent that is gone, or has said nothing for a while, costs freshness, never answers: the last View stays.
  2. A worker goes on alone only if its agent said so while it lived: it then answered by itself, and meant to. Whoever
     stops an edge says the opposite first.
  3. Health stays as it was for `FROZEN` seconds, in which a supervisor starts another agent; then each worker probes for
     itself, as an edge without control does. What no probe has told yet stays as it was.
  4. The last plan is followed no longer than the agent would have followed it without control.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from gtm.core.health.addresses import NO_ADDRESSES, Addresses, ever_up, fill_addresses
from gtm.core.health.verdicts import HealthTable, fill
from gtm.core.model.state import NO_PLAN, State
from gtm.core.policy.snapshot import Snapshot
from gtm.runtime.edge.line import PulseMessage, ToWorker
from gtm.settings import Network
from gtm.transport import tls_context

logger = logging.getLogger(__name__)

SILENCE = 10.0
"""Seconds without a pulse after which an agent that is there counts as gone: it hangs."""
FROZEN = 30.0
"""Seconds for which health is taken as it was last known; after that, this worker's own probes tell."""

_NOTHING: HealthTable = {}


class Tenure:
    """What a worker knows of its agent.

    Args:
        clock: seconds that only grow.
        able: whether this worker may go on alone at all: only if a next agent can find it.
    """

    def __init__(self, clock: Callable[[], float], *, able: bool) -> None:
        self._clock = clock
        self._able = able
        self._heard = clock()
        self._gone_at: float | None = None
        self._pulse = PulseMessage(alone=False)
        self.gone = threading.Event()
        """Set once the agent's end of the line is closed."""
        self.told = State()
        """The last state of the world that the agent sent."""

    def heard(self, message: ToWorker) -> None:
        """The agent sent something."""
        self._heard = self._clock()
        if isinstance(message, PulseMessage):
            self._pulse = message

    def ended(self) -> bool:
        """The agent is gone; whether this worker goes on. One that hung before was gone since it was last heard."""
        self._gone_at = self._heard
        self.gone.set()
        return self._able and self._pulse.alone

    @property
    def alone_for(self) -> float:
        """Seconds without an agent; 0 with one."""
        now = self._clock()
        if self._gone_at is not None:
            return max(now - self._gone_at, 1e-3)
        silent = now - self._heard
        return silent if self._pulse.alone and silent > SILENCE else 0.0

    def state(self, own: HealthTable = _NOTHING, addresses: Addresses = NO_ADDRESSES) -> State:
        """The state of the world to go by now.

        Args:
            own: what this worker's own probes say.
            addresses: likewise, of addresses.
        """
        alone_for = self.alone_for
        if not alone_for:
            return self.told
        plan = self.told.plan if alone_for <= self._pulse.plan_left else NO_PLAN
        if alone_for <= FROZEN:
            return replace(self.told, plan=plan)
        return replace(
            self.told,
            vantage=self._pulse.edge,
            health=fill(own, self.told.health),
            plan=plan,
            addresses=fill_addresses(addresses, self.told.addresses),
        )


class OwnProbes:
    """Probes in a thread of their own, for as long as nobody else makes them.

    Args:
        allowed: networks that are probed whatever they are (`gtm.destinations`).
        ca_file: certificates that count besides the public ones, None for no others.
    """

    def __init__(self, allowed: tuple[Network, ...] = (), ca_file: Path | None = None) -> None:
        self._allowed = allowed
        self._ca_file = ca_file
        self.health: HealthTable = {}
        """The verdicts; what is not known is missing or unknown."""
        self.addresses: Addresses = NO_ADDRESSES
        """The verdicts on addresses (`gtm.core.health.addresses`)."""
        self._stopping: threading.Event | None = None

    def start(self, snapshot: Snapshot, told: Addresses = NO_ADDRESSES) -> None:
        """Begin; once begun, nothing changes.

        Args:
            snapshot: the policy.
            told: what was known of addresses last: those that were up once can be found down.
        """
        if self._stopping is None:
            self._stopping, self.health, self.addresses = threading.Event(), {}, NO_ADDRESSES
            args = (snapshot, ever_up(told), self._stopping)
            threading.Thread(target=self._run, args=args, daemon=True).start()

    def stop(self) -> None:
        """End, and forget. The thread is not waited for: a name that does not resolve may hold it up for half a minute."""
        if self._stopping is not None:
            self._stopping.set()
            self._stopping, self.health, self.addresses = None, {}, NO_ADDRESSES

    def _run(self, snapshot: Snapshot, known: frozenset[str], stopping: threading.Event) -> None:
        try:
            asyncio.run(self._probe(snapshot, known, stopping))
        except Exception:
            logger.exception("this worker's own probes failed; health stays as it was last known")

    async def _probe(self, snapshot: Snapshot, known: frozenset[str], stopping: threading.Event) -> None:
        from gtm.prober import Prober  # few workers ever need it

        # What cannot be read now could be read at the start: every https endpoint would look down, and is not.
        tls_context(self._ca_file)
        prober = Prober(lambda: None, time.time, allowed=self._allowed, ca_file=self._ca_file, ever_up=known)
        prober.start()
        try:
            prober.update(snapshot)
            while not await asyncio.to_thread(stopping.wait, 0.5):
                health, addresses = prober.health(), prober.addresses()
                if stopping is self._stopping:  # what was stopped says nothing any more
                    self.health, self.addresses = health, addresses
        finally:
            await prober.stop()
