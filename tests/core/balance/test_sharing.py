"""Slots shared by several balancers, held against what docs/choosing.md promises: a small world of members whose words take their time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from hypothesis import example, given
from hypothesis import strategies as st

from gtm.core.balance.flights import PEERS_LAST_S
from gtm.core.balance.sharing import (
    FORGOTTEN_S,
    LAG,
    MOST_OF_A_TOKEN,
    OFTEN,
    PATIENCE,
    SELDOM,
    Sharing,
    SlotUse,
    due,
    shares,
)

uses = st.dictionaries(
    st.sampled_from("abcdefgh"),
    st.builds(SlotUse, st.integers(0, 30), st.integers(0, 30)),
    min_size=1,
)


@given(st.integers(0, 60), uses)
def test_parts_come_to_the_limit_and_go_round_fairly(limit: int, told: dict[str, SlotUse]) -> None:
    """Max-min: nobody has more than it asks for while another, who asks for more, has less but for an odd one."""
    parts = shares(limit, told)
    assert parts.keys() == told.keys()
    assert sum(parts.values()) == limit
    assert min(parts.values()) >= 0
    assert parts == shares(limit, dict(reversed(told.items())))  # everybody works out the same
    if sum(use.asked for use in told.values()) <= limit:
        spare = [parts[name] - use.asked for name, use in told.items()]
        assert max(spare) - min(spare) <= 1
        assert min(spare) >= 0
    else:
        for name, use in told.items():
            assert parts[name] <= use.asked
            if parts[name] < use.asked:
                assert all(parts[other] <= parts[name] + 1 for other in told)
    for name, use in told.items():
        if use.asked <= limit // len(told):
            assert parts[name] >= use.asked


def test_one_alone_has_all_and_so_has_one_beside_idle_ones() -> None:
    """At once where nobody else is; a moment after it has asked where others ask nothing."""
    alone = Sharing("a")
    assert alone.share(10, 5.0) == 10
    alone.heard("b", {"b": SlotUse(0, 0)}, 5.0)
    assert alone.share(10, 5.0) == 5
    alone.tell(SlotUse(5, 20), 5.0)
    assert alone.share(10, 5.0 + LAG / 2) == 5
    assert alone.share(10, 5.0 + LAG) == 10
    alone.tell(SlotUse(1, 0), 5.3)
    assert alone.share(10, 5.3) == 6  # less at once
    assert (alone.part(10, 5.3), alone.part(11, 5.3)) == (5, 6)


def test_slots_that_end_before_it_is_heard_are_filled_ahead() -> None:
    """By as many as end within the way of a word; never more than a quarter of the pool, and nothing where one is alone."""
    sharing = Sharing("a")
    assert sharing.share(16, 0.0, 0.8) == 16
    sharing.heard("b", {"b": SlotUse(4, 0)}, 0.0)
    sharing.tell(SlotUse(0, 99), 0.0)
    assert [sharing.share(16, LAG, service) for service in (10.0, 0.8, 0.15, 0.001, 0.0)] == [
        13,
        15,
        16,
        16,
        16,
    ]


def test_silence_keeps_what_ran_and_asks_for_nothing_until_it_is_forgotten() -> None:
    """What a silent one ran is somewhere; what it wanted besides, it may have no more."""
    sharing = Sharing("a")
    sharing.tell(SlotUse(0, 20), 0.0)
    sharing.heard("b", {"b": SlotUse(2, 10), "b/2": SlotUse(1, 0)}, 0.0)
    assert sharing.share(10, LAG) == 5
    assert sharing.share(10, PEERS_LAST_S + 0.1) == 7
    assert sharing.share(10, FORGOTTEN_S + 0.1) == 10
    sharing.heard("b", {"b": SlotUse(2, 10)}, 100.0)
    assert sharing.share(10, 100.0) == 5
    sharing.heard("b", {"b": SlotUse(12, 0), "a": SlotUse(9, 9)}, 100.0)  # what others say of us is not ours
    assert sharing.share(10, 100.0) == 0
    assert sharing.others(100.0) == {"b": SlotUse(12, 0)}
    sharing.forget("b")
    assert sharing.share(10, 100.0) == 10


def test_words_are_told_sooner_when_much_has_changed_and_seldom_when_nothing_has() -> None:
    """A queue that begins or ends, and a change by an eighth, are told at once."""
    assert due(None, SlotUse(0, 0), 0.0)
    assert not due(SlotUse(8, 0), SlotUse(8, 0), SELDOM - 0.01)
    assert due(SlotUse(8, 0), SlotUse(8, 0), SELDOM)
    assert not due(SlotUse(8, 0), SlotUse(9, 0), OFTEN - 0.01)
    assert due(SlotUse(8, 0), SlotUse(9, 0), OFTEN)
    assert due(SlotUse(8, 0), SlotUse(10, 0), 0.0)
    assert due(SlotUse(8, 0), SlotUse(8, 1), 0.0)
    assert due(SlotUse(8, 3), SlotUse(8, 0), 0.0)
    assert not due(SlotUse(8, 3), SlotUse(8, 4), 0.0)


STEP = 0.02
"""Seconds between two moments of the world, as between two looks of a balancer."""


@dataclass
class _Member:
    """A balancer of the world: what it runs (until when), how many wait, what it told last."""

    sharing: Sharing
    ends: list[float] = field(default_factory=list)
    waiting: int = 0
    told: SlotUse | None = None
    told_at: float = 0.0

    @property
    def use(self) -> SlotUse:
        return SlotUse(len(self.ends), self.waiting)


Lie = Callable[[int], Mapping[str, SlotUse]]
"""What a liar says at a moment, by what it calls its members."""


def _play(  # noqa: PLR0917 - a world
    limit: int,
    arrivals: list[list[int]],
    lengths: list[float],
    delay: int,
    sees: bool = True,
    lies: Mapping[str, Lie] = MappingProxyType({}),
    apart: bool = False,
) -> list[list[SlotUse]]:
    """What each member has at each moment, where words are `delay` moments on the way.

    `lies`: of balancers with these names beside them; what they say is heard at once. `apart`: each member is a balancer with a token of its
    own, and not a process of one.
    """
    members = [_Member(Sharing(f"m{number}")) for number in range(len(arrivals[0]))]
    on_the_way: list[tuple[int, int, SlotUse]] = []
    seen, drawn = [], 0
    for moment, come in enumerate(arrivals):
        now = moment * STEP
        for at, number, use in [word for word in on_the_way if word[0] <= moment]:
            for other, member in enumerate(members):
                if other != number and sees:
                    name = f"t{number}/m" if apart else ""
                    member.sharing.heard(f"m{number}", {f"m{number}": use}, at * STEP, name)
        for liar, lie in lies.items():
            for member in members:
                member.sharing.heard(liar, lie(moment), now, liar)
        on_the_way = [word for word in on_the_way if word[0] > moment]
        for number, member in enumerate(members):
            member.ends = [end for end in member.ends if end > now]
            member.waiting += come[number]
            share = member.sharing.share(limit, now)
            while member.waiting and len(member.ends) < share:
                member.waiting -= 1
                member.ends.append(now + lengths[drawn % len(lengths)])
                drawn += 1
            if due(member.told, member.use, now - member.told_at):
                member.told, member.told_at = member.use, now
                member.sharing.tell(member.use, now)
                on_the_way.append((moment + delay, number, member.use))
        seen.append([member.use for member in members])
    return seen


@st.composite
def worlds(draw: st.DrawFn) -> tuple[int, list[list[int]], list[float], int]:
    """Slots, arrivals by moment and member (few moments with many), lengths, the way of words."""
    count = draw(st.integers(2, 5))
    quiet = draw(st.integers(10, 30))
    bursts = draw(st.lists(st.lists(st.sampled_from([0, 0, 0, 1, 2, 9, 40]), min_size=count, max_size=count)))
    arrivals = [[0] * count for _ in range(quiet)] + [
        row for burst in bursts for row in (burst, *[[0] * count] * draw(st.integers(0, 9)))
    ]
    lengths = draw(st.lists(st.sampled_from([0.02, 0.1, 0.5, 5.0]), min_size=1, max_size=7))
    return draw(st.integers(2, 64)), arrivals, lengths, draw(st.integers(1, 2))


@given(worlds())
@example(
    (20, [*[[0] * 4] * 10, [0, 0, 40, 0], *[[0] * 4] * 5, [9, 9, 0, 9], *[[0] * 4] * 6], [0.02, 0.5, 0.5], 1)
)
def test_the_pool_is_never_filled_much_beyond(world: tuple[int, list[list[int]], list[float], int]) -> None:
    """Whatever comes where: beyond the limit is at most what may be begun untold, one or an eighth of what a member runs."""
    limit, arrivals, lengths, delay = world
    for row in _play(limit, arrivals, lengths, delay):
        untold = sum(max(2, use.running // 4) for use in row)
        assert sum(use.running for use in row) <= limit + untold


@given(worlds())
def test_what_waits_gets_what_is_free(world: tuple[int, list[list[int]], list[float], int]) -> None:
    """Once nothing comes any more and what runs stays, no slot is left while anybody waits."""
    limit, arrivals, _, delay = world
    count = len(arrivals[0])
    last = _play(limit, arrivals + [[0] * count] * 60, [1e9], delay)[-1]
    if sum(use.waiting for use in last):
        assert sum(use.running for use in last) >= limit


def test_without_words_each_fills_all() -> None:
    """What the world is for: four that do not hear each other run four times the limit."""
    rows = _play(8, [[9] * 4] * 5, [5.0], 1, sees=False)
    assert sum(use.running for use in rows[-1]) == 32
    rows = _play(8, [[0] * 4] * 20 + [[9] * 4] * 5, [5.0], 1)
    assert sum(use.running for use in rows[-1]) == 8


# What docs/choosing.md promises of one that lies: nobody's word takes all.


def _floor(limit: int, honest: int, lies: Mapping[str, Lie]) -> int:
    """What each of so many honest balancers may always fill, as the page says it: half of an equal part, where those of one token count for four."""
    tokens: dict[str, int] = {}
    for name in lies:
        token = name.split("/")[0]
        tokens[token] = tokens.get(token, 0) + 1
    return max(1, limit // (2 * (honest + sum(min(4, count) for count in tokens.values()))))


@st.composite
def liars(draw: st.DrawFn) -> dict[str, Lie]:
    """One token's balancers, that say what they like: always the same, or something else each time."""
    numbers = st.sampled_from([0, 1, 7, 10**9])
    found: dict[str, Lie] = {}
    for number in range(draw(st.sampled_from([1, 1, 2, 9]))):
        said = draw(
            st.lists(
                st.dictionaries(
                    st.sampled_from(["x", "y", "z", "m0", "m1", *map(str, range(60))]),
                    st.builds(SlotUse, numbers, numbers),
                    max_size=70,
                ),
                min_size=1,
                max_size=5,
            )
        )
        found[f"stolen/{number}"] = lambda moment, said=said: said[moment % len(said)]  # type: ignore[misc]
    return found


@given(worlds(), liars())
def test_nobodys_word_takes_all(
    world: tuple[int, list[list[int]], list[float], int], lies: dict[str, Lie]
) -> None:
    """Whatever one token's balancers say, each other one runs at least its floor once it has waited `PATIENCE`, for as long as anything waits there."""
    limit, arrivals, _, delay = world
    count = len(arrivals[0])
    after = int(PATIENCE / STEP) + 10
    rows = _play(limit, arrivals + [[0] * count] * after, [1e9], delay, lies=lies, apart=True)
    for use in rows[-1]:
        assert not use.waiting or use.running >= _floor(limit, count, lies)


def test_a_floor_stays_while_others_leave_no_room() -> None:
    """Requests that come one by one wait once for the others to make room, not each; and no longer than the lie lasts is it taken."""
    sharing = Sharing("a")
    sharing.heard("b", {"b": SlotUse(10**9, 10**9)}, 0.0, "t/b")
    sharing.tell(SlotUse(0, 1), 0.0)
    assert sharing.share(16, 0.0) == 0
    sharing.tell(SlotUse(0, 0), 0.5)  # it gave up waiting
    assert sharing.share(16, 0.5) == 0
    sharing.heard("b", {"b": SlotUse(10**9, 10**9)}, PATIENCE, "t/b")
    assert sharing.share(16, PATIENCE) == 4
    sharing.tell(SlotUse(3, 9), PATIENCE)
    later = PATIENCE + LAG
    assert sharing.share(16, later) == 4
    sharing.heard("b", {"b": SlotUse(8, 0)}, later, "t/b")  # honest again
    assert sharing.share(16, later) == 8
    sharing.heard("b", {"b": SlotUse(16, 0)}, later, "t/b")
    assert sharing.share(16, later) == 0
    sharing.tell(SlotUse(4, 1), later + PATIENCE)
    assert sharing.share(16, later + PATIENCE) == 4  # and no more


def test_names_are_cheap_and_tokens_are_not() -> None:
    """Balancers of one token count for four at most, processes of one for nothing; own processes share one floor."""

    def floor(names: list[str], limit: int = 80) -> int:
        sharing = Sharing("a/1")
        for name in names:
            sharing.heard(name, {f"{name}{number}": SlotUse(10**9, 0) for number in range(9)}, 0.0, name)
        sharing.tell(SlotUse(0, 5), 0.0)
        sharing.share(limit, 0.0)
        return sharing.share(limit, PATIENCE)

    assert floor(["t/b"]) == 20
    assert floor(["t/b", "u/b"]) == 13
    assert floor([f"t/{number}" for number in range(MOST_OF_A_TOKEN)]) == 8
    assert floor([f"t/{number}" for number in range(30)]) == 8
    assert floor(["t/b"], 1) == 1
    sharing = Sharing("a/1")
    sharing.heard("b", {"b": SlotUse(10**9, 0)}, 0.0, "t/b")
    sharing.heard("a/2", {"a/2": SlotUse(0, 50)}, 0.0)
    sharing.tell(SlotUse(0, 50), 0.0)
    sharing.share(80, 0.0)
    assert sharing.share(80, PATIENCE) == 10


def test_others_do_not_speak_for_own_processes() -> None:
    """What a peer says of names that processes here have, is not theirs."""
    sharing = Sharing("a/1")
    sharing.heard("a/2", {"a/2": SlotUse(9, 1)}, 0.0)
    sharing.heard("b", {"a/2": SlotUse(0, 0), "b": SlotUse(1, 0)}, 0.0, "t/b")
    assert sharing.others(0.0) == {"a/2": SlotUse(9, 1), "b": SlotUse(1, 0)}


@given(worlds())
def test_honest_ones_fill_little_beside_each_other(
    world: tuple[int, list[list[int]], list[float], int],
) -> None:
    """Floors are beside what runs longer than others wait: half of the slots at most where each has one that is worth half its part."""
    limit, arrivals, lengths, delay = world
    count = len(arrivals[0])
    for row in _play(limit, arrivals, lengths, delay, apart=True):
        untold = sum(max(2, use.running // 4) for use in row)
        assert sum(use.running for use in row) <= limit + untold + count * max(1, limit // (2 * count))
