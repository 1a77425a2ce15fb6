"""The edges that follow one control process: each is sent what it lacks at once, and every change as it happens."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from gtm.core.latency import LatencyTable
from gtm.core.model.access import Access
from gtm.core.model.state import State
from gtm.core.signing.keys import Keys
from gtm.feed.sealing import MAX_CONTENT, Seal
from gtm.feed.wire import (
    MAX_LINE,
    AccessMessage,
    HeartbeatMessage,
    KeysMessage,
    LatencyMessage,
    Message,
    SnapshotMessage,
    StateMessage,
    encode,
)

logger = logging.getLogger(__name__)

HEARTBEAT = 1.0
"""Seconds between heartbeats on every feed."""


@dataclass(frozen=True, slots=True)
class News:
    """What edges should know now. With `keep_plan` they keep the plan they have, whatever the state's is."""

    snapshot: SnapshotMessage | None
    access: Access
    keys: Keys
    table: LatencyTable
    state: State
    keep_plan: bool


class Followers:
    """Everyone who follows, and the lines that they are sent.

    Args:
        news: what edges should know now. Its parts are replaced when they change, never changed in place.
        clock: POSIX seconds.
        monotonic: seconds that never step back.
    """

    def __init__(
        self, news: Callable[[], News], clock: Callable[[], float], monotonic: Callable[[], float]
    ) -> None:
        self.count = 0
        self._news = news
        self._clock = clock
        self._monotonic = monotonic
        self._changed = asyncio.Event()
        self._closed = False
        self._lines: dict[str, tuple[object, bytes]] = {}
        self.refused: dict[str, str] = {}
        """What is wrong with news that cannot be sent, by part: followers keep what they were sent before."""
        self._public: dict[str, Counter[str]] = {}
        """The public keys of those who follow now, by edge; empty text is of one that told none."""
        self._said: dict[str, set[str]] = {}

    def announce(self) -> None:
        """Say that there is news."""
        self._changed.set()
        self._changed = asyncio.Event()

    def close(self) -> None:
        """End every feed, so that the server can stop."""
        self._closed = True
        self.announce()

    async def stream(
        self,
        edge: str,
        revision: int,
        sha256: str | None = None,
        still_allowed: Callable[[], bool] = lambda: True,
        seal: Seal | None = None,
    ) -> AsyncIterator[bytes]:
        """What one edge is sent: all it needs at once, then each change as it happens, and heartbeats in between.

        Args:
            edge: its name, for the log.
            revision: the revision it holds, 0 for none.
            sha256: the checksum of that, if it says.
            still_allowed: asked before each message; the feed ends when the token does.
            seal: what seals keys to it; without, it is sent none.
        """
        self.count += 1
        public = seal.public if seal is not None else ""
        self._public.setdefault(edge, Counter())[public] += 1
        sent: dict[str, object] = {}
        snapshot = self._news().snapshot
        if snapshot is not None and _held(snapshot, edge, revision, sha256):
            sent["snapshot"] = snapshot
        try:
            beat = self._monotonic()
            while not self._closed and still_allowed():
                changed = self._changed
                before = sent.get("keys")
                chunk = b"".join(self._lacking(sent, seal))
                if sent.get("keys") is not before:
                    self._say(edge)
                now = self._monotonic()
                if now >= beat:
                    chunk += encode(HeartbeatMessage(self._clock()))
                    beat = now + HEARTBEAT
                if chunk:
                    yield chunk
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(changed.wait(), max(0.0, beat - self._monotonic()))
        finally:
            self.count -= 1
            self._public[edge] -= Counter((public,))
            if not self._public[edge]:
                del self._public[edge]
                self._said.pop(edge, None)

    def warnings(self) -> list[str]:
        """What is wrong with what is sent, or with who follows."""
        keys = [text for edge in sorted(self._public) for text in self._about_keys(edge)]
        return [*self.refused.values(), *keys]

    def _about_keys(self, edge: str) -> list[str]:
        """What is wrong with whom an edge's zone-signing keys are sent to."""
        public = self._public[edge]
        if not self._news().keys.zones:
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
        """Log what is wrong with an edge's keys, once for as long as it follows."""
        said = self._said.setdefault(edge, set())
        for text in self._about_keys(edge):
            if text not in said:
                logger.warning("%s", text)
                said.add(text)

    def _lacking(self, sent: dict[str, object], seal: Seal | None) -> list[bytes]:
        """The messages that a follower lacks, in the order it should take them in."""
        lines: list[bytes] = []
        news = self._news()
        parts = (
            # Before the policy: an edge that learns of a signed zone can sign it at once.
            ("keys", news.keys if news.keys.version else None),
            ("snapshot", news.snapshot),
            ("access", news.access),
            ("latency", news.table if news.table.version else None),
            ("state", news.state),
        )
        for key, value in parts:
            if value is None or sent.get(key) is value or (key == "access" and sent.get(key) == value):
                continue
            sent[key] = value
            line = self._line(key, value, keep_plan=news.keep_plan)
            if line and key == "keys":
                line = seal.seal(line) if seal is not None else b""
            if line:
                lines.append(line)
        return lines

    def _line(
        self, key: str, value: SnapshotMessage | Access | Keys | LatencyTable | State, *, keep_plan: bool
    ) -> bytes:
        """The encoded message, made once for all followers; of a value too large, the one of before, or nothing.

        Keys are sealed to each follower apart.
        """
        most = MAX_CONTENT if key == "keys" else MAX_LINE
        known = self._lines.get(key)
        if known is None or known[0] is not value:
            line = encode(_message(value, keep_plan=keep_plan))
            if len(line) > most:
                self._refuse(key, len(line), most)
                line = known[1] if known is not None else b""
            else:
                self.refused.pop(key, None)
            known = (value, line)
            self._lines[key] = known
        return known[1]

    def _refuse(self, key: str, size: int, most: int) -> None:
        if key not in self.refused:
            logger.error("the feed's %s of %d bytes is not sent: edges accept %d", key, size, most)
        self.refused[key] = (
            f"the feed's {key} is {size} bytes, more than the {most} that edges accept: it is not sent, and edges keep "
            "the one before; make the policy smaller"
        )


def _held(snapshot: SnapshotMessage, edge: str, revision: int, sha256: str | None) -> bool:
    """Whether an edge should keep the revision it has."""
    if revision == snapshot.revision:
        # The same number is another policy once a database was restored from a backup and went on from there.
        return sha256 is None or sha256 == snapshot.sha256
    if revision > snapshot.revision and not snapshot.policy.services and not snapshot.policy.regions:
        # A database that was emptied, or the wrong one: it must not take the world down.
        logger.error(
            "edge %s holds revision %d while the policy here is empty: not sent; put a policy in force to replace it",
            edge,
            revision,
        )
        return True
    return False


def _message(value: SnapshotMessage | Access | Keys | LatencyTable | State, *, keep_plan: bool) -> Message:
    if isinstance(value, State):
        return StateMessage(value, keep_plan=keep_plan)
    if isinstance(value, Access):
        return AccessMessage(value)
    if isinstance(value, Keys):
        return KeysMessage(value)
    return LatencyMessage(value) if isinstance(value, LatencyTable) else value
