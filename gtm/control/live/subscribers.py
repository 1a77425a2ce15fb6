"""Who subscribes to one control process: each is sent what it lacks at once, and every change as it happens.

Laws:
  1. Zone-signing keys go to edges alone, sealed to each.
  2. What is divided among those who follow is divided among tokens, and a token's part among those who follow with it: whoever opens more
     feeds has no more of it, and leaves others no less.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from dataclasses import replace

from gtm.control.errors import Conflict
from gtm.control.live.present import Current
from gtm.core.handoff.keys import PublicKeys
from gtm.core.latency.table import LatencyTable
from gtm.core.model.access import Access
from gtm.core.model.state import State
from gtm.core.signing.keys import Keys
from gtm.feed.sealing import MAX_CONTENT, Seal
from gtm.feed.wire import (
    MAX_LINE,
    NO_PEERS,
    NO_ROOMS,
    AccessMessage,
    HandoffKeysMessage,
    HeartbeatMessage,
    KeysMessage,
    LatencyMessage,
    Message,
    PeersMessage,
    RoomMessage,
    SnapshotMessage,
    StateMessage,
    encode,
)

logger = logging.getLogger(__name__)

HEARTBEAT = 1.0
"""Seconds between heartbeats on every feed."""
MOST_EDGES = 1_000
"""Feeds of one token of edges (`gtm.control.lead.vantages.MAX_EDGES`)."""
MOST_BALANCERS = 64
"""Feeds of one token of balancers: as many as have their keys kept (`gtm.control.lead.balancers.MOST`)."""

_HOLDS = "holds"
"""Under this name is which revision a subscriber has."""


class Subscribers:
    """Everyone who subscribes, and the lines that they are sent.

    Args:
        current: what edges should know.
        clock: POSIX seconds.
        monotonic: seconds that never step back.
    """

    def __init__(self, current: Current, clock: Callable[[], float], monotonic: Callable[[], float]) -> None:
        self.count = 0
        """Edges that subscribe now."""
        self.balancers: Counter[str] = Counter()
        """Balancers that subscribe now, by name."""
        self._following: dict[str, Counter[str]] = {}
        """Feeds that are open, by token and by the name that each is for."""
        self._current = current
        self._clock = clock
        self._monotonic = monotonic
        self._closed = False
        self._lines: dict[str, tuple[object, bool, bytes]] = {}
        self._rooms: tuple[RoomMessage, dict[int, bytes]] = NO_ROOMS, {}
        self.refused: dict[str, str] = {}
        """What is wrong with what cannot be sent, by part: subscribers keep what they were sent before."""
        self._public: dict[str, Counter[str]] = {}
        """The public keys of the edges that subscribe now, by name; empty text is of one that told none."""
        self._said: dict[str, set[str]] = {}

    @property
    def closed(self) -> bool:
        """Whether this process takes its leave."""
        return self._closed

    def close(self) -> None:
        """End every feed, so that the server can stop."""
        self._closed = True
        self._current.wake()

    async def stream(
        self,
        edge: str,
        revision: int,
        sha256: str | None = None,
        still_allowed: Callable[[], bool] = lambda: True,
        *,
        seal: Seal | None = None,
        token: str = "",
    ) -> AsyncIterator[bytes]:
        """What one edge is sent: all it needs at once, then each change as it happens, and heartbeats in between.

        Args:
            edge: its name, for the log.
            revision: the revision it holds, 0 for none.
            sha256: the checksum of that, if it says.
            still_allowed: asked before each message; the feed ends when the token does.
            seal: what seals keys to it; without, it is sent none.
            token: the name of its token; empty: it has one of its own.
        """
        token = token or edge
        self.count += 1
        self._following.setdefault(token, Counter())[edge] += 1
        public = seal.public if seal is not None else ""
        self._public.setdefault(edge, Counter())[public] += 1

        def lacking(sent: dict[str, object]) -> bytes:
            before = sent.get("keys")
            # Before the policy: an edge that learns of a signed zone can sign it at once.
            found = self._keys(sent, seal) + self._lacking(sent, token)
            if sent.get("keys") is not before:
                self._say(edge)
            return found

        try:
            sent = self._holding(f"edge {edge}", revision, sha256)
            async with contextlib.aclosing(self._chunks(sent, lacking, still_allowed)) as chunks:
                async for chunk in chunks:
                    yield chunk
        finally:
            self.count -= 1
            self._gone(token, edge)
            self._public[edge] -= Counter((public,))
            if not self._public[edge]:
                del self._public[edge]
                self._said.pop(edge, None)

    async def stream_to_balancer(
        self, name: str, revision: int, sha256: str | None, still_allowed: Callable[[], bool], token: str = ""
    ) -> AsyncIterator[bytes]:
        """What one balancer is sent, likewise: no zone-signing keys, sealed or not."""
        token = token or name
        self.balancers[name] += 1
        self._following.setdefault(token, Counter())[name] += 1

        def lacking(sent: dict[str, object]) -> bytes:
            return self._lacking_to_balancer(sent, token)

        try:
            sent = self._holding(f"balancer {name}", revision, sha256)
            async with contextlib.aclosing(self._chunks(sent, lacking, still_allowed)) as chunks:
                async for chunk in chunks:
                    yield chunk
        finally:
            self.balancers -= Counter((name,))
            self._gone(token, name)

    def require_room(self, token: str, most: int) -> None:
        """Take no more feeds of one token than it may have open.

        Raises:
            Conflict: it has as many.
        """
        if self._following.get(token, Counter()).total() >= most:
            raise Conflict(
                f"the token `{token}` has {most} feeds open, as many as one may: make others a token of their own, or end what "
                "opens so many"
            )

    def _gone(self, token: str, name: str) -> None:
        self._following[token] -= Counter((name,))
        if not self._following[token]:
            del self._following[token]

    def _holding(self, who: str, revision: int, sha256: str | None) -> dict[str, object]:
        """What somebody who holds a revision need not be sent first, by part."""
        message = self._current.now.message
        sent: dict[str, object] = {_HOLDS: revision}
        if message is not None and _held(message, who, revision, sha256):
            sent["snapshot"] = message
        return sent

    async def _chunks(
        self,
        sent: dict[str, object],
        lacking: Callable[[dict[str, object]], bytes],
        still_allowed: Callable[[], bool],
    ) -> AsyncGenerator[bytes, None]:
        """The lines that somebody lacks, whenever there are some, and heartbeats in between."""
        beat = self._monotonic()
        while not self._closed and still_allowed():
            changed = self._current.changed
            chunk = lacking(sent)
            now = self._monotonic()
            if now >= beat:
                chunk += encode(HeartbeatMessage(self._clock()))
                beat = now + HEARTBEAT
            if chunk:
                yield chunk
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(changed.wait(), max(0.0, beat - self._monotonic()))

    @property
    def senders(self) -> int:
        """How many tokens edges and balancers follow with."""
        return len(self._following)

    def warnings(self) -> list[str]:
        """What is wrong with what is sent, or with who subscribes."""
        keys = [text for edge in sorted(self._public) for text in self._about_keys(edge)]
        return [*self.refused.values(), *keys]

    def _about_keys(self, edge: str) -> list[str]:
        """What is wrong with whom an edge's zone-signing keys are sent to."""
        public = self._public[edge]
        if not self._current.now.keys.zones:
            return []
        found = []
        if "" in public:
            found.append(
                f"edge {edge} follows without a key of its own and is sent no zone-signing keys: it is of an older gtm (upgrade "
                "it), or somebody else has its token"
            )
        if len(public.keys() - {""}) > 1:
            found.append(
                f"edge {edge} follows with several keys of its own, and zone-signing keys are sealed to each: two edges have "
                "its token, or somebody else has; if it is none of yours, revoke the token and roll the keys"
            )
        return found

    def _say(self, edge: str) -> None:
        """Log what is wrong with an edge's keys, once for as long as it subscribes."""
        said = self._said.setdefault(edge, set())
        for text in self._about_keys(edge):
            if text not in said:
                logger.warning("%s", text)
                said.add(text)

    def _keys(self, sent: dict[str, object], seal: Seal | None) -> bytes:
        """The zone-signing keys that an edge lacks, sealed to it."""
        now = self._current.now
        if not now.keys.version or sent.get("keys") is now.keys:
            return b""
        sent["keys"] = now.keys
        line = self._line("keys", now.keys, keep_plan=now.keep_plan)
        return seal.seal(line) if line and seal is not None else b""

    def _lacking(self, sent: dict[str, object], token: str) -> bytes:
        """The messages that a subscriber with a token lacks, in the order it should take them in."""
        lines: list[bytes] = []
        now = self._current.now
        parts = (
            ("snapshot", now.message),
            ("access", now.access),
            ("latency", now.table if now.table.version else None),
            ("state", now.state),
            # An empty set too: the follower may hold keys that were withdrawn.
            ("handoff_keys", now.handoff_keys if now.handoff_keys.version else None),
        )
        for key, value in parts:
            if value is None or sent.get(key) is value or (key == "access" and sent.get(key) == value):
                continue
            if isinstance(value, SnapshotMessage):
                holds = sent.get(_HOLDS)
                if isinstance(holds, int) and now.lost(holds):
                    continue  # what it has is newer, and going back has to be meant
                sent[_HOLDS] = value.revision
            sent[key] = value
            lines.append(self._line(key, value, keep_plan=now.keep_plan))
        if now.rooms is not NO_ROOMS and sent.get("room") is not now.rooms:
            sent["room"] = now.rooms
            lines.append(self._room(now.rooms, len(self._following.get(token, ())) or 1))
        return b"".join(lines)

    def _room(self, rooms: RoomMessage, beside: int) -> bytes:
        """Free slots, for each of so many followers of one token: encoded once for all such."""
        if self._rooms[0] is not rooms:
            self._rooms = rooms, {}
        found = self._rooms[1].get(beside)
        if found is None:
            found = self._rooms[1][beside] = encode(replace(rooms, beside=beside))
        return found

    def _lacking_to_balancer(self, sent: dict[str, object], token: str) -> bytes:
        """The same for a balancer, which is told of others besides."""
        found, peers = self._lacking(sent, token), self._current.now.peers
        if peers is NO_PEERS or sent.get("peers") is peers:
            return found
        sent["peers"] = peers
        return found + self._line("peers", peers, keep_plan=self._current.now.keep_plan)

    def _line(
        self,
        key: str,
        value: SnapshotMessage | Access | Keys | PublicKeys | LatencyTable | State | PeersMessage,
        *,
        keep_plan: bool,
    ) -> bytes:
        """The encoded message, made once for all subscribers; of a value too large, the one of before, or nothing.

        Keys are sealed to each subscriber apart.
        """
        most = MAX_CONTENT if key == "keys" else MAX_LINE
        known = self._lines.get(key)
        if known is None or known[0] is not value or known[1] is not keep_plan:
            line = encode(_message(value, keep_plan=keep_plan))
            if len(line) > most:
                self._refuse(key, len(line), most)
                line = known[2] if known is not None else b""
            else:
                self.refused.pop(key, None)
            known = value, keep_plan, line
            self._lines[key] = known
        return known[2]

    def _refuse(self, key: str, size: int, most: int) -> None:
        if key not in self.refused:
            logger.error("the feed's %s of %d bytes is not sent: edges accept %d", key, size, most)
        self.refused[key] = (
            f"the feed's {key} is {size} bytes, more than the {most} that edges accept: it is not sent, and edges keep "
            "the one before; make the policy smaller"
        )


def _held(snapshot: SnapshotMessage, who: str, revision: int, sha256: str | None) -> bool:
    """Whether somebody should keep the revision it has."""
    if revision == snapshot.revision:
        # The same number is another policy once a database was restored from a backup and went on from there.
        return sha256 is None or sha256 == snapshot.sha256
    if revision > snapshot.revision and not snapshot.policy.services and not snapshot.policy.regions:
        # A database that was emptied, or the wrong one: it must not take the world down.
        logger.error(
            "%s holds revision %d while the policy here is empty: not sent; put a policy in force to replace it",
            who,
            revision,
        )
        return True
    return False


def _message(
    value: SnapshotMessage | Access | Keys | PublicKeys | LatencyTable | State | PeersMessage,
    *,
    keep_plan: bool,
) -> Message:
    if isinstance(value, State):
        return StateMessage(value, keep_plan=keep_plan)
    if isinstance(value, Access):
        return AccessMessage(value)
    if isinstance(value, PublicKeys):
        return HandoffKeysMessage(value)
    if isinstance(value, Keys):
        return KeysMessage(value)
    return LatencyMessage(value) if isinstance(value, LatencyTable) else value
