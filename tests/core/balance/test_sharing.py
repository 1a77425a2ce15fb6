"""Slots shared by several balancers, held against what docs/choosing.md promises: a small world of members whose words take their time."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from gtm.core.balance.flights import PEERS_LAST_S
from gtm.core.balance.sharing import FORGOTTEN_S, LAG, OFTEN, SELDOM, Sharing, Use, due, shares

uses = st.dictionaries(
    st.sampled_from("abcdefgh"),
    st.builds(Use, st.integers(0, 30), st.integers(0, 30)),
    min_size=1,
)


@given(st.integers(0, 60), uses)
def test_parts_come_to_the_limit_and_go_round_fairly(limit: int, told: dict[str, Use]) -> None:
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
    alone.heard("b", {"b": Use(0, 0)}, 5.0)
    assert alone.share(10, 5.0) == 5
    alone.tell(Use(5, 20), 5.0)
    assert alone.share(10, 5.0 + LAG / 2) == 5
    assert alone.share(10, 5.0 + LAG) == 10
    alone.tell(Use(1, 0), 5.3)
    assert alone.share(10, 5.3) == 6  # less at once
    assert (alone.part(10, 5.3), alone.part(11, 5.3)) == (5, 6)


def test_slots_that_end_before_it_is_heard_are_filled_ahead() -> None:
    """By as many as end within the way of a word; never more than a quarter of the pool, and nothing where one is alone."""
    sharing = Sharing("a")
    assert sharing.share(16, 0.0, 0.8) == 16
    sharing.heard("b", {"b": Use(4, 0)}, 0.0)
    sharing.tell(Use(0, 99), 0.0)
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
    sharing.tell(Use(0, 20), 0.0)
    sharing.heard("b", {"b": Use(2, 10), "b/2": Use(1, 0)}, 0.0)
    assert sharing.share(10, LAG) == 5
    assert sharing.share(10, PEERS_LAST_S + 0.1) == 7
    assert sharing.share(10, FORGOTTEN_S + 0.1) == 10
    sharing.heard("b", {"b": Use(2, 10)}, 100.0)
    assert sharing.share(10, 100.0) == 5
    sharing.heard("b", {"b": Use(12, 0), "a": Use(9, 9)}, 100.0)  # what others say of us is not ours
    assert sharing.share(10, 100.0) == 0
    assert sharing.others(100.0) == {"b": Use(12, 0)}
    sharing.forget("b")
    assert sharing.share(10, 100.0) == 10


def test_words_are_told_sooner_when_much_has_changed_and_seldom_when_nothing_has() -> None:
    """A queue that begins or ends, and a change by an eighth, are told at once."""
    assert due(None, Use(0, 0), 0.0)
    assert not due(Use(8, 0), Use(8, 0), SELDOM - 0.01)
    assert due(Use(8, 0), Use(8, 0), SELDOM)
    assert not due(Use(8, 0), Use(9, 0), OFTEN - 0.01)
    assert due(Use(8, 0), Use(9, 0), OFTEN)
    assert due(Use(8, 0), Use(10, 0), 0.0)
    assert due(Use(8, 0), Use(8, 1), 0.0)
    assert due(Use(8, 3), Use(8, 0), 0.0)
    assert not due(Use(8, 3), Use(8, 4), 0.0)


STEP = 0.02
"""Seconds between two moments of the world, as between two looks of a balancer."""


@dataclass
class _Member:
    """A balancer of the world: what it runs (until when), how many wait, what it told last."""

    sharing: Sharing
    ends: list[float] = field(default_factory=list)
    waiting: int = 0
    told: Use | None = None
    told_at: float = 0.0

    @property
    def use(self) -> Use:
        return Use(len(self.ends), self.waiting)


def _play(
    limit: int, arrivals: list[list[int]], lengths: list[float], delay: int, sees: bool = True
) -> list[list[Use]]:
    """What each member has at each moment, where words are `delay` moments on the way."""
    members = [_Member(Sharing(f"m{number}")) for number in range(len(arrivals[0]))]
    on_the_way: list[tuple[int, int, Use]] = []
    seen, drawn = [], 0
    for moment, come in enumerate(arrivals):
        now = moment * STEP
        for at, number, use in [word for word in on_the_way if word[0] <= moment]:
            for other, member in enumerate(members):
                if other != number and sees:
                    member.sharing.heard(f"m{number}", {f"m{number}": use}, at * STEP)
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
