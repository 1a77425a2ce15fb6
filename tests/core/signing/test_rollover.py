"""The life of keys: whatever anybody has cached, and however long an edge was alone, all of it is valid together."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import groupby

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gtm.core.signing.rollover import (
    DAY,
    HOUR,
    Key,
    Keyring,
    KeyRole,
    KeyState,
    RolloverTimes,
    advance,
    delegated,
    first,
    hurried,
    lacking,
    next_step,
    resumed,
    seen,
    signing_key,
    successor,
)
from tests.core.strategies import quick

TIMES = RolloverTimes()
KSK, ZSK = KeyRole.KSK, KeyRole.ZSK


def new(role: KeyRole, now: float, number: int, *, urgent: bool = False) -> Key:
    """A key that follows another."""
    return Key(f"{role.value}-{number}", role, KeyState.PUBLISHED, now, now, urgent, b"")


@dataclass
class Publication:
    """What the edges in reach say from one time to another: key ids."""

    start: float
    dnskeys: frozenset[str]
    signers: frozenset[str]
    zsk: str
    end: float = float("inf")

    def within(self, after: float, until: float) -> bool:
        """Whether it was in force at some time in between."""
        return self.start <= until and self.end > after


@dataclass
class World:
    """A zone, its parent, and everything that caches may hold of them."""

    times: RolloverTimes
    alone: float
    """Longest time, in seconds, for which edges lose control."""
    keys: Keyring = ()
    now: float = 1_800_000_000.0
    published: list[Publication] = field(default_factory=list)
    parent: list[tuple[float, str]] = field(default_factory=list)
    made: int = 0

    def __post_init__(self) -> None:
        for role in lacking(self.keys, self.now, self.times):
            self.keys += (first(self._new(role), self.now),)
        self._publish()

    def wait(self, seconds: float) -> None:
        """Time passes, and control has its turn."""
        self.now += seconds
        self.keys = advance(self.keys, self.now, self.times)
        for role in lacking(self.keys, self.now, self.times):
            self.keys += (self._new(role),)
        self._publish()

    def roll(self, role: KeyRole, *, urgent: bool = False) -> None:
        """Somebody asks for a new key."""
        if successor(self.keys, role) is None:
            self.keys += (self._new(role, urgent=urgent),)
        elif urgent:
            self.keys = hurried(self.keys, role)
        self.wait(0)

    def delegate(self) -> None:
        """The parent takes over what CDS says."""
        key = delegated(self.keys)
        if key is not None and (not self.parent or self.parent[-1][1] != key.id):
            self.parent.append((self.now, key.id))

    def look(self) -> None:
        """Control looks what the parent has."""
        if self.parent:
            self.keys = seen(self.keys, self.parent[-1][1], self.now)
            self.wait(0)

    def check(self) -> None:
        """Whatever is cached validates whatever else is."""
        answers = {one.zsk for one in self._within(self.times.max_ttl)}
        sets = self._within(self.times.key_ttl)
        assert all(answers <= one.dnskeys for one in sets)
        ends = [start for start, _ in self.parent[1:]] + [float("inf")]
        for (_, ds), end in zip(self.parent, ends, strict=False):
            if end > self.now - self.alone - self.times.parent:  # the parent may be a zone of the same edges
                assert all(ds in dnskeys.signers for dnskeys in sets)

    def _within(self, ttl: float) -> list[Publication]:
        """What caches may hold that keep things so long: of edges alone, too."""
        return [one for one in self.published if one.within(self.now - self.alone - ttl, self.now)]

    def _new(self, role: KeyRole, *, urgent: bool = False) -> Key:
        self.made += 1
        return new(role, self.now, self.made, urgent=urgent)

    def _publish(self) -> None:
        zsk = signing_key(self.keys)
        assert zsk is not None
        ids = frozenset(key.id for key in self.keys)
        signers = frozenset(key.id for key in self.keys if key.role is KSK)
        last = self.published[-1] if self.published else None
        if last is None or (last.dnskeys, last.zsk) != (ids, zsk.id):
            if last is not None:
                last.end = self.now
            self.published.append(Publication(self.now, ids, signers, zsk.id))
        self.check()


PAUSES = st.one_of(
    st.floats(0, 2 * HOUR),
    st.floats(0, 2 * DAY),
    st.floats(0, 40 * DAY),
    st.sampled_from([HOUR, DAY, 31 * DAY]),
)
ACTS = st.lists(
    st.tuples(PAUSES, st.sampled_from(["zsk", "ksk", "delegate", "look", "nothing"])), max_size=40
)


def play(world: World, acts: list[tuple[float, str]], *, urgent: bool = False) -> None:
    """Let things happen; `World.check` judges after each."""
    for pause, act in acts:
        world.wait(pause)
        if act in ("zsk", "ksk"):
            world.roll(KeyRole(act), urgent=urgent)
        elif act == "delegate":
            world.delegate()
        elif act == "look":
            world.look()


@pytest.mark.rfc("7583", "3.2.1", "answers stay valid with every cached DNSKEY set while the ZSK rolls")
@pytest.mark.rfc("7583", "3.3.1", "DNSKEY sets stay valid with every cached DS set while the KSK rolls")
@quick(300)
@given(ACTS, st.sampled_from([0.0, 40 * DAY, 90 * DAY]))
def test_all_that_is_cached_is_valid_together(acts: list[tuple[float, str]], lifetime: float) -> None:
    """Rolls of any kind at any time break no validation, though edges are without control for up to 30 days."""
    play(World(replace(TIMES, lifetime=lifetime), TIMES.propagation), acts)


@quick(300)
@given(ACTS)
def test_urgent_rolls_break_nothing_for_edges_in_reach(acts: list[tuple[float, str]]) -> None:
    """Urgent rolls break no validation either, as long as every edge has control once an hour."""
    play(World(replace(TIMES, lifetime=0), TIMES.urgent), acts, urgent=True)


def test_zsk_rolls_by_itself() -> None:
    """A zone-signing key is replaced after its lifetime, and the old one goes once nothing needs it."""
    world = World(TIMES, TIMES.propagation)
    states = []
    for _ in range(24 * 130):
        world.wait(HOUR)
        states.append(" ".join(key.state.value for key in world.keys if key.role is ZSK))
    lasted = [(state, len(list(hours))) for state, hours in groupby(states)]
    assert lasted[:3] == [
        ("active", 60 * 24 - 2),
        ("active published", 30 * 24 + 1),
        ("retired active", 31 * 24),
    ]
    assert lasted[3][0] == "active"


def test_ksk_rolls_only_when_the_parent_has_the_new_one() -> None:
    """However long it takes, the old key-signing key stays until the new one's DS record was seen, and then its TTL."""
    world = World(replace(TIMES, lifetime=0), TIMES.propagation)
    assert delegated(world.keys) is None
    world.wait(TIMES.urgent + TIMES.max_ttl)
    world.delegate()
    world.look()
    world.roll(KSK)
    old = delegated(world.keys)
    assert old is not None
    assert old.state is KeyState.ACTIVE
    world.wait(31 * DAY)
    fresh = delegated(world.keys)
    assert fresh is not None
    assert (fresh.id != old.id, fresh.state) == (True, KeyState.READY)
    world.wait(400 * DAY)
    world.look()  # the parent has the old one still
    assert len([key for key in world.keys if key.role is KSK]) == 2
    world.delegate()
    world.look()
    world.wait(TIMES.propagation + TIMES.parent - 1)
    assert len([key for key in world.keys if key.role is KSK]) == 2
    world.wait(1)
    assert [key.id for key in world.keys if key.role is KSK] == [fresh.id]


def test_a_roll_can_be_made_urgent() -> None:
    """A roll under way that became urgent waits for edges in reach only, and so does the old key's end."""
    world = World(replace(TIMES, lifetime=0), TIMES.urgent)
    world.roll(ZSK)
    world.wait(2 * HOUR)
    assert signing_key(world.keys) == world.keys[1]
    world.roll(ZSK, urgent=True)
    rolled = signing_key(world.keys)
    assert rolled is not None
    assert rolled.id == world.keys[-1].id
    world.wait(TIMES.urgent + TIMES.max_ttl)
    assert [key.id for key in world.keys if key.role is ZSK] == [rolled.id]


def test_a_zone_that_was_unsigned_waits_anew() -> None:
    """Signed again, a zone's keys are the same; no DS record is asked for while unsigned answers may be cached."""
    world = World(TIMES, TIMES.urgent)
    world.wait(2 * DAY)
    world.delegate()
    world.look()
    world.roll(ZSK)
    again = resumed(world.keys, world.now + 100 * DAY)
    assert [key.id for key in again] == [key.id for key in world.keys]
    assert [key.state.value for key in again] == ["published", "active", "published"]
    assert [key.since == world.now + 100 * DAY for key in again] == [True, False, True]
    assert delegated(again) is None


def test_a_clock_that_steps_back_only_delays() -> None:
    """No step is taken, and none taken back, by a clock that shows an earlier time."""
    world = World(TIMES, TIMES.urgent)
    world.wait(70 * DAY)
    before = world.keys
    assert advance(before, world.now - 100 * DAY, TIMES) == before
    assert lacking(before, world.now - 100 * DAY, TIMES) == ()


def test_next_steps_are_told() -> None:
    """The time told for a key's next step is when it is taken, not earlier; what waits for people has none."""
    times = replace(TIMES, lifetime=0)
    world = World(times, TIMES.urgent)
    told = []
    world.roll(ZSK)
    for _ in range(3):
        step = min(step for key in world.keys if (step := next_step(key, world.keys, times)) is not None)
        before = [(key.id, key.state) for key in world.keys]
        world.now = step - 1
        assert [(key.id, key.state) for key in advance(world.keys, world.now, times)] == before
        world.wait(1)
        assert [(key.id, key.state) for key in world.keys] != before
        told.append([next_step(key, world.keys, times) for key in world.keys])
    assert told[-1] == [None, None]
    aging = World(TIMES, TIMES.urgent).keys[1]
    assert next_step(aging, (aging,), TIMES) == aging.since + TIMES.lifetime
