"""Leases while the lock changes hands: a small model of docs/quotas.md and decision 16, in random worlds.

The model knows only what the pages promise. Edges hold what they were told, for as long as they were told, from when they
asked. A control that lost the lock goes on leasing until it notices, within `FENCE`. Whoever has the lock leases meanwhile.
What all edges hold of a quota is never more than the quota.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gtm.control.lead import leases as module
from gtm.control.lead.election import FENCE, Election, Standing
from gtm.control.lead.leases import Leases
from gtm.core.quota.leases import Lease, LeaseUse
from gtm.core.quota.ledger import LeaseLedger
from gtm.storage.session import Database
from tests.core.strategies import quick

QUOTA = 100.0
NOBODY = Database("postgresql://nobody@127.0.0.1:1/none")


@dataclass
class Edge:
    """One edge: what it was leased, until when, and what it tells of that."""

    name: str
    reports: int = 0
    used: float = 0.0
    sequence: int = 0
    held: tuple[Lease, ...] = ()
    until: float = 0.0
    wants: float = 20.0
    cut_until: float = 0.0
    reaches: int | None = 0

    def rate(self, now: float) -> float:
        """What it may spend."""
        return sum(lease.rate for lease in self.held) if now < self.until else 0.0

    def ask(self, control: Leases, now: float) -> None:
        """Report to a control, and take what it grants."""
        self.reports += 1
        held = self.held if now < self.until else ()
        used = {"q": int(self.used)}
        use = LeaseUse("i", self.reports, self.sequence, used=used, held=held)
        grant = control.answer(self.name, use, now)
        if grant is not None and grant.sequence > self.sequence:
            self.sequence, self.held, self.until = grant.sequence, grant.leases, now + grant.duration


@dataclass
class Controls:
    """Two controls on one database, of which one has the lock; the other may not have noticed that it lost it."""

    now: float = 1000.0
    elections: list[Election] = field(default_factory=list)
    leases: list[Leases] = field(default_factory=list)
    notices: list[float] = field(default_factory=lambda: [0.0, 0.0])
    active: int = 0

    def __post_init__(self) -> None:
        self.elections = [Election(NOBODY, name, lambda: None) for name in "ab"]
        for number, election in enumerate(self.elections):
            if number == self.active:
                self._elect(election)
            self.leases.append(Leases(election, lambda: self.now, lambda: self.now))

    @staticmethod
    def _elect(election: Election) -> None:
        election.terms += 1
        election.standbys = 1
        election.standing = Standing.ACTIVE

    def hand_over(self, unnoticed: float) -> None:
        """The lock goes to the other; who had it notices after so many seconds."""
        self.notices[self.active] = self.now + unnoticed
        self.active = 1 - self.active
        self.notices[self.active] = 0.0
        self._elect(self.elections[self.active])

    def second(self) -> None:
        """Whoever has noticed stops; whoever thinks itself active plans."""
        for number, election in enumerate(self.elections):
            if number != self.active and self.now >= self.notices[number]:
                election.standing = Standing.STANDBY
            if number == self.active:
                election.held_at = self.now  # as a look finds it, twice a second
            if election.standing is Standing.ACTIVE:
                self.leases[number].apportion({"q": QUOTA})


def most_held(seed: int) -> float:
    """The most that the edges of a random world hold at any moment of two minutes."""
    draw, controls, most = Random(seed), Controls(), 0.0
    edges = [Edge(f"edge-{number}") for number in range(draw.randrange(2, 5))]
    moves = sorted(1000.0 + draw.uniform(10, 110) for _ in range(draw.randrange(1, 4)))
    while controls.now < 1120.0:
        controls.now += 0.5
        if moves and controls.now >= moves[0]:
            moves.pop(0)
            controls.hand_over(draw.uniform(0.0, FENCE))
            # The worst that can come with it: who holds most is cut off, and demand goes to the others.
            largest = max(edges, key=lambda edge: edge.rate(controls.now))
            largest.cut_until = controls.now + draw.uniform(0.0, 5.0)
            for edge in edges:
                edge.wants = 1.0 if edge is largest else draw.uniform(20.0, 100.0)
        controls.second()
        for edge in edges:
            edge.wants = draw.uniform(0.0, 100.0) if draw.random() < 0.1 else edge.wants
            edge.used += edge.wants / 2
            if controls.now < edge.cut_until:
                continue
            # A cut network leaves an edge with the one that lost the lock, or with nobody, for a while.
            if draw.random() < 0.1:
                edge.reaches = draw.choice((controls.active, controls.active, 1 - controls.active, None))
            if edge.reaches is not None:
                edge.ask(controls.leases[edge.reaches], controls.now)
        most = max(most, sum(edge.rate(controls.now) for edge in edges))
    return most


@quick(60)
@given(st.integers(0, 1 << 32))
def test_no_more_than_the_quota_is_held(seed: int) -> None:
    """Whoever has the lock, had it, or has it again."""
    assert most_held(seed) <= QUOTA * (1 + 1e-9)


SEEDS = range(40)


def test_the_worlds_lease_at_all() -> None:
    """Else nothing would be shown: most of the quota is held at some time."""
    assert max(map(most_held, SEEDS)) > 0.9 * QUOTA


def test_new_books_that_wait_for_nobody_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mutant that leases at once, when it has the lock, leases what the one before has leased to edges it has not heard."""
    monkeypatch.setattr(module, "LeaseLedger", lambda now, first: LeaseLedger(now - 100.0 - FENCE, first))
    assert max(map(most_held, SEEDS)) > QUOTA * 1.01


def test_leasing_what_silent_edges_held_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mutant that has lost the lock unnoticed, and leases what an edge held that the new one hears and lets go on."""
    monkeypatch.setattr(Election, "sure", lambda _, now: now)
    assert max(map(most_held, range(420, 500))) > QUOTA * 1.01


def test_leasing_without_the_lock_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """So does one that never notices that it lost it."""
    monkeypatch.setattr(module, "Standing", type("Any", (), {"ACTIVE": Standing.STANDBY}))
    monkeypatch.setattr(Controls, "second", _plan_everywhere)
    assert max(map(most_held, SEEDS)) > QUOTA * 1.01


def _plan_everywhere(controls: Controls) -> None:
    for number, election in enumerate(controls.elections):
        election.standing = Standing.STANDBY
        controls.leases[number].apportion({"q": QUOTA})
