"""The public keys by which edges and balancers sign handoffs: who told them, which count, and all of them to everybody who follows the feed.

Laws:
  1. A key is told by an edge's report, under the name that its token is bound to, and counts for that name alone.
  2. Silence withdraws nothing: a silent edge may answer alone. What withdraws its keys is that it is forgotten, that the token
     they were told with ends, or that it tells others.
     A balancer's are told again within a second, whoever is active, and only what knows of peers' slots needs them; so they are
     written down nowhere (`gtm.control.lead.balancers`).
  3. What is told is published once a second at most, of many keys no more than `KEYS_A_SECOND`, for everybody who follows is sent all of it
     and judges anew by it. What a token's end withdraws is withdrawn at once.
  4. Nothing is published before what the database holds is known: fewer keys than there are would end the handoffs of the rest.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from math import inf

from gtm.control.lead.balancers import ToldKeys
from gtm.control.lead.vantages import LiveEdge
from gtm.control.live.present import Current, Present
from gtm.control.live.tokens import speaks_for
from gtm.core.handoff.claims import Issuer
from gtm.core.handoff.keys import PublicKey, PublicKeys
from gtm.core.model.access import Role
from gtm.feed.wire import Peer, PeersMessage
from gtm.storage.errors import StorageUnavailable
from gtm.storage.session import Database

LOOK_EVERY = 1.0
"""Seconds between looks at what edges told."""
KEYS_A_SECOND = 1_000
"""Keys that are published in a second: of more, all of them in as many seconds more. One token's edges may tell 24,000, each second others."""


@dataclass(frozen=True, slots=True)
class EdgeKeys:
    """The keys that an edge told last, and the id of the token that it did with."""

    keys: tuple[str, ...]
    token_id: str


@dataclass(slots=True, eq=False)
class HandoffKeys:
    """Publishes the keys of the active control.

    Args:
        database: where edges are written down (`gtm.control.lead.edges.Sightings`).
        current: where they are published; has the tokens.
        heard: the edges heard of within a day, those of one name oldest first.
        clock: POSIX seconds.
        balancers: the keys that balancers told, by their tokens' names.
        monotonic: seconds that never step back.
    """

    database: Database
    current: Current
    heard: Callable[[], Iterable[LiveEdge]]
    clock: Callable[[], float]
    balancers: Callable[[], Iterable[ToldKeys]] = tuple
    monotonic: Callable[[], float] = time.monotonic
    _published: float = field(init=False, default=-inf)
    _tokens: object = field(init=False, default=None)
    _told: dict[str, list[EdgeKeys]] | None = field(init=False, default=None)

    async def run(self) -> None:
        """Publish what changes until cancelled."""
        while True:
            changed = self.current.changed
            if self._told is None:
                with suppress(StorageUnavailable):
                    await self.load()
            now = self.current.now
            pause = max(LOOK_EVERY, len(now.handoff_keys.keys) / KEYS_A_SECOND)
            if now.tokens is not self._tokens or self.monotonic() - self._published >= pause:
                self.look()
            # Not `wait_for`, which may lose a cancellation that comes with the change (in Python 3.11).
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_EVERY):
                    await changed.wait()

    async def load(self) -> None:
        """Take in what was told before this control became active.

        Raises:
            StorageUnavailable: the database cannot be reached.
        """
        async with self.database.transaction() as transaction:
            stored = await transaction.edges.list()
        self._told = {
            edge.name: [EdgeKeys(tuple(edge.handoff_keys), edge.handoff_token)]
            for edge in stored
            if edge.handoff_keys
        }

    def forget(self, name: str) -> None:
        """Withdraw the keys of an edge that is gone for good."""
        if self._told is not None:
            self._told.pop(name, None)
            self.look()

    def look(self) -> None:
        """Publish the keys that count now, if these are others than before."""
        now = self.current.now
        if (
            self._told is None or not now.tokens
        ):  # tokens are not read yet: there is one as soon as there is an edge
            return
        heard: dict[str, list[EdgeKeys]] = {}
        for edge in self.heard():
            heard.setdefault(edge.name, []).append(EdgeKeys(edge.report.handoff_keys, edge.token_id))
        self._told |= heard
        self._tokens = now.tokens
        keys = counting(self._told, now, self.clock(), self.balancers())
        if keys != now.handoff_keys.keys or not now.handoff_keys.version:
            version = max(now.handoff_keys.version + 1, int(self.clock() * 1000))
            now = replace(now, handoff_keys=PublicKeys(keys, version))
        peers = reached(now, self.clock(), self.balancers())
        if peers != now.peers.peers:
            now = replace(now, peers=PeersMessage(peers))
        if now is not self.current.now:
            self._published = self.monotonic()
            self.current.become(now)


def reached(present: Present, now: float, balancers: Iterable[ToldKeys]) -> tuple[Peer, ...]:
    """Balancers that others of their region reach, whose tokens still speak for it; sorted."""
    regions = {
        (token.id, token.name): token.regions
        for token in present.tokens.values()
        if token.role is Role.BALANCER and token.works(now)
    }
    found = [
        Peer(one.report.region, f"{one.issuer}/{one.name}", one.report.address, one.keys)
        for one in balancers
        if one.report is not None
        and one.report.address
        and one.keys
        and speaks_for(regions.get((one.token_id, one.issuer)), one.report.region)
    ]
    return tuple(sorted(found, key=lambda one: (one.region, one.name, one.address, one.keys)))


def counting(
    told: dict[str, list[EdgeKeys]], present: Present, now: float, balancers: Iterable[ToldKeys] = ()
) -> tuple[PublicKey, ...]:
    """The keys whose tokens still speak for the edges that told them, or are still those of their balancers; sorted."""
    count = [token for token in present.tokens.values() if token.works(now)]
    live = {token.id: token.edges for token in count if token.role is Role.EDGE}
    named = {(token.id, token.name): token.regions or "" for token in count if token.role is Role.BALANCER}
    pushing = {
        PublicKey(one.issuer, key, Issuer.BALANCER, named[one.token_id, one.issuer])
        for one in balancers
        if (one.token_id, one.issuer) in named
        for key in one.keys
    }
    return tuple(
        sorted(
            {
                PublicKey(name, key)
                for name, every in told.items()
                for one in every
                if speaks_for(live.get(one.token_id), name)
                for key in one.keys
            }
            | pushing
        )
    )
