"""What one control process holds to be true: one immutable value, replaced whole, and whoever waits for the next.

Laws:
  1. A `Present` never changes. Who reads one reads one moment, in any thread, however long the reading takes.
  2. An epoch never goes back: it starts from the clock, so that a restarted control is ahead of what it said before.

Each field has one owner, the only one who replaces it: the policy, its managers, tokens and `database` the watch of the database
(`gtm.control.live.watch`), the keys `gtm.control.dnssec.keys`, those of handoffs and balancers' peers `gtm.control.handoff_keys`, and state, plan, table and rooms the active control
(`gtm.control.lead.active`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from gtm.core.handoff.keys import NO_PUBLIC_KEYS, PublicKeys
from gtm.core.latency.table import EMPTY_TABLE, LatencyTable
from gtm.core.model.access import ANYBODY, Access, Role, TokenGrant, matches, permits
from gtm.core.model.policy import Policy
from gtm.core.model.state import EndpointHealth, Plan, State
from gtm.core.policy.snapshot import Snapshot
from gtm.core.signing.keys import NO_KEYS, Keys
from gtm.feed.wire import NO_PEERS, NO_ROOMS, PeersMessage, RoomMessage, SnapshotMessage
from gtm.storage.resources import Key, Managed
from gtm.storage.revisions import Fork
from gtm.storage.sessions import Session
from gtm.storage.tokens import Token

Health = dict[str, dict[str, EndpointHealth]]
"""Region name → endpoint URL → health."""
AHEAD = 300.0
"""Seconds by which the clocks of those who share a database may differ."""
NO_POLICY = Policy()


@dataclass(frozen=True, slots=True)
class Present:
    """One moment of one control process.

    `message` is the policy in force as edges are sent it, and `compiled` the same to decide by; both are None before the
    first. `tokens` are those that count, by the SHA-256 of their text in hex, `sessions` those of people, by that of their secret.
    `managed` says which tools manage resources, by kind and name. With `keep_plan` edges keep the plan that
    they have, whatever the state's is.
    """

    state: State
    message: SnapshotMessage | None = None
    compiled: Snapshot | None = None
    tokens: Mapping[str, Token] = field(default_factory=dict)
    access: Access = field(default_factory=Access)
    sessions: Mapping[str, Session] = field(default_factory=dict)
    managed: Mapping[Key, Managed] = field(default_factory=dict)
    keys: Keys = NO_KEYS
    handoff_keys: PublicKeys = NO_PUBLIC_KEYS
    table: LatencyTable = EMPTY_TABLE
    rooms: RoomMessage = NO_ROOMS
    peers: PeersMessage = NO_PEERS
    keep_plan: bool = True
    database: str = "down"
    """What the database was when it was last asked: `up`, or the `state` of an error of `gtm.storage.errors`."""
    forks: tuple[Fork, ...] = ()
    """Revisions that the database has lost, and that followers keep until somebody says that going back is meant."""

    def lost(self, revision: int) -> bool:
        """Whether a revision is one that the database has lost."""
        return any(fork.has(revision) for fork in self.forks)

    @property
    def revision(self) -> int:
        """Of the policy in force; 0: none yet."""
        return self.message.revision if self.message is not None else 0

    @property
    def policy(self) -> Policy:
        """The policy in force; an empty one before the first."""
        return self.message.policy if self.message is not None else NO_POLICY

    def token(self, sha256: str, now: float) -> Token | None:
        """The token behind a hash at a POSIX time; None if it is unknown or has expired."""
        token = self.tokens.get(sha256)
        return token if token is not None and token.works(now) else None

    def session(self, sha256: str, now: float) -> tuple[Session, Role] | None:
        """The session behind a hash at a POSIX time, and what it may do: what its token may, if it was opened with one.

        None if it is unknown, or has ended by itself or with its token; or if it began later than now: a clock was ahead then, and the
        session would last for longer than one may.
        """
        found = self.sessions.get(sha256)
        if found is None or found.expires_at.timestamp() <= now:
            return None
        if found.created_at.timestamp() > now + AHEAD:
            return None
        if not found.token:
            return found, found.role
        token = self.token(found.token, now)
        return None if token is None else (found, token.role)

    def unbound_tokens(self) -> list[str]:
        """The names of tokens that speak for edges of any name."""
        return sorted(token.name for token in self.tokens.values() if token.edges == "*")

    def unbound_balancers(self) -> list[str]:
        """The names of balancers' tokens that are for regions of any name."""
        return sorted(
            token.name
            for token in self.tokens.values()
            if token.role is Role.BALANCER and token.regions is not None and not token.regions.strip("*")
        )

    def unowned_tokens(self) -> list[str]:
        """The names of tokens that could approve of what opens a fence, if anybody had written down in whose hands they are."""
        return sorted(
            {
                token.name
                for token in self.tokens.values()
                if permits(token.role, Role.FENCE_ADMIN) and ANYBODY in token.hands.every
            }
        )

    def lost_tokens(self) -> list[tuple[str, str]]:
        """Tokens that are bound to regions which the policy in force does not have: their names, and to what."""
        regions = self.policy.regions
        return sorted(
            (token.name, token.regions)
            for token in self.tokens.values()
            if token.regions is not None and not any(matches(token.regions, one.name) for one in regions)
        )

    def with_tokens(self, live: Mapping[bytes, Token]) -> Present:
        """The same with other tokens, by the SHA-256 of their texts."""
        tokens = {digest.hex(): token for digest, token in live.items()}
        grants = (
            TokenGrant(
                sha256, token.role, token.ends_at.timestamp() if token.ends_at else None, token.regions
            )
            for sha256, token in sorted(tokens.items())
            if token.role
            is not Role.ACME  # with which nobody has to do at an edge, and older ones do not know it
        )
        return replace(self, tokens=tokens, access=Access(tuple(grants)))

    def with_sessions(self, live: Iterable[Session]) -> Present:
        """The same with other people signed in."""
        return replace(self, sessions={one.sha256.hex(): one for one in live})

    def with_state(
        self,
        now: float,
        *,
        health: Health | None = None,
        plan: Plan | None = None,
        addresses: dict[str, Health] | None = None,
    ) -> Present:
        """The same in another state, of a later epoch.

        Args:
            now: POSIX seconds.
            health: what edges are told of regions; None: as before.
            plan: the plan to follow; None: as before.
            addresses: what edges are told of addresses (`State.addresses`); None: as before.
        """
        state = State(
            epoch=max(self.state.epoch + 1, int(now * 1000)),
            health=self.state.health if health is None else health,
            plan=self.state.plan if plan is None else plan,
            addresses=self.state.addresses if addresses is None else addresses,
        )
        return replace(self, state=state)


class Current:
    """The present of one process. Everything happens on its event loop."""

    def __init__(self, present: Present) -> None:
        self.now = present
        self._changed = asyncio.Event()

    def become(self, present: Present) -> None:
        """Make another the present, and wake who waits."""
        self.now = present
        self.wake()

    def wake(self) -> None:
        """Wake who waits, to look again."""
        self._changed.set()
        self._changed = asyncio.Event()

    @property
    def changed(self) -> asyncio.Event:
        """Set at the next change after this is read."""
        return self._changed
