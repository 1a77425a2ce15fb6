"""Which balancers of its region one believes, and what they said last.

Laws:
  1. A word counts only if a key signed it that control published for a balancer of this region, it is newer than what that balancer said before,
     it speaks of that start's own processes, and its sender's clock is not far from this one's: what was recorded is worth nothing later.
  2. Silence of control takes nobody away: who was published is remembered, and those that are published no more (control has just begun
     anew, and has not heard of them yet) for `REMEMBERED` seconds.
  3. What is kept is bounded: peers, those of one token, starts of one peer, datagrams verified a second.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from gtm.core.balance.sharing import FORGOTTEN_S
from gtm.core.handoff.keys import key_bytes
from gtm.feed.wire import Peer
from gtm.runtime.balancer.peers.datagrams import BadDatagram, Said, opened
from gtm.runtime.balancer.words import Word

MOST_PEERS = 64
"""Balancers of one region that are heard."""
MOST_OF_A_TOKEN = 16
"""Of these, those whose keys one token told: who has stolen it must not crowd out the others."""
MOST_STARTS = 4
"""Starts of one of them that are: its successor's, and its predecessor's that finishes."""
REMEMBERED = 60.0
"""Seconds for which a peer counts that is published no more."""
CLOCKS_APART = 30.0
"""Seconds that clocks may differ by."""
_A_SECOND = 200.0
"""Datagrams of one key that are verified a second."""


@dataclass(slots=True)
class _Heard:
    """What one start of a peer said last: when it came, and which peer it is of."""

    said: Said
    came: float
    peer: str


@dataclass(slots=True)
class _Budget:
    """Datagrams of one key that may be verified now."""

    left: float
    at: float


class Known:
    """See above.

    Args:
        region: this one.
        instance: this balancer's own.
        now: monotonic seconds.
        wall: POSIX seconds.
    """

    def __init__(
        self, region: str, instance: str, now: Callable[[], float], wall: Callable[[], float]
    ) -> None:
        self._region = region
        self._instance = instance
        self._now = now
        self._wall = wall
        self._peers: dict[tuple[str, str], tuple[Peer, float | None]] = {}
        self._keys: dict[bytes, str] = {}
        self._budgets: dict[bytes, _Budget] = {}
        self._heard: dict[str, _Heard] = {}
        self.refused = 0
        """Datagrams that did not count."""

    # --- who ---

    def learn(self, peers: Iterable[Peer]) -> bool:
        """Control published these, of all regions. Whether the region's are others than before."""
        now = self._now()
        before = self.peers()
        told = {(one.name, one.address): one for one in peers if one.region == self._region}
        for place, (one, gone) in list(self._peers.items()):
            if place not in told and gone is None:
                self._peers[place] = one, now
        for place, one in _bounded(sorted(told.items())):
            self._peers[place] = one, None
        self._sweep()
        return self.peers() != before

    def peers(self) -> tuple[Peer, ...]:
        """Those that count, this balancer itself among them."""
        return tuple(one for _, (one, _) in sorted(self._peers.items()))

    def addresses(self) -> tuple[str, ...]:
        """Where they are, each once: a place is told what there is as often, whatever number of names it has."""
        return tuple(dict.fromkeys(one.address for one in self.peers()))

    def _sweep(self) -> None:
        now = self._now()
        self._peers = {
            place: (one, gone)
            for place, (one, gone) in self._peers.items()
            if gone is None or now - gone <= REMEMBERED
        }
        self._keys = {key_bytes(key): one.name for one, _ in self._peers.values() for key in one.keys}
        self._budgets = {key: one for key, one in self._budgets.items() if key in self._keys}

    # --- what ---

    @property
    def starts(self) -> int:
        """How many starts of peers are heard."""
        return len(self._heard)

    def hear(self, datagram: bytes) -> bool:
        """Take in what came. Whether it counts."""
        try:
            said = opened(datagram, self._verifies)
        except BadDatagram:
            self.refused += 1
            return False
        peer = self._keys[said.key]
        before = self._heard.get(said.instance)
        stale = before is not None and (before.peer != peer or said.sequence <= before.said.sequence)
        far = abs(self._wall() - said.at) > CLOCKS_APART
        foreign = any(name.partition("/")[0] != said.instance for name in said.word.uses)
        if said.region != self._region or said.instance == self._instance or stale or far or foreign:
            self.refused += said.instance != self._instance
            return False
        self._heard[said.instance] = _Heard(said, self._now(), peer)
        of_it = sorted((one.said.at, name) for name, one in self._heard.items() if one.peer == peer)
        for _, name in of_it[:-MOST_STARTS]:
            del self._heard[name]
        return True

    def words(self) -> Mapping[str, Word]:
        """What each start of a peer said last, by its name, with its age."""
        now = self._now()
        self._sweep()
        # Those that ended are remembered for as long as what they sent before could be taken for new.
        keep = max(FORGOTTEN_S, 2 * CLOCKS_APART)
        names = set(self._keys.values())
        self._heard = {
            name: one for name, one in self._heard.items() if now - one.came <= keep and one.peer in names
        }
        return {
            name: replace(one.said.word, age=one.said.word.age + now - one.came, balancer=one.peer)
            for name, one in self._heard.items()
            if not one.said.ending
        }

    def _verifies(self, key: bytes) -> bool:
        """Whether a datagram by this key is worth verifying."""
        if key not in self._keys:
            return False
        now = self._now()
        budget = self._budgets.setdefault(key, _Budget(_A_SECOND, now))
        budget.left = min(_A_SECOND, budget.left + (now - budget.at) * _A_SECOND)
        budget.at = now
        if budget.left < 1.0:
            return False
        budget.left -= 1.0
        return True


def _bounded(told: Iterable[tuple[tuple[str, str], Peer]]) -> Iterable[tuple[tuple[str, str], Peer]]:
    """The first of them that are heard, of no token too many."""
    tokens: Counter[str] = Counter()
    taken = 0
    for place, one in told:
        token = one.name.partition("/")[0]
        tokens[token] += 1
        if tokens[token] <= MOST_OF_A_TOKEN and taken < MOST_PEERS:
            taken += 1
            yield place, one
