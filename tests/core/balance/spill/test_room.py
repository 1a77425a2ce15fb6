"""What regions say of their slots: what adds up, what counts, and how often it is said."""

from __future__ import annotations

from math import inf, isfinite

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gtm.core.balance.spill.edge import REFUSED, Way, correct
from gtm.core.balance.spill.push import PushPeer, push
from gtm.core.balance.spill.room import (
    FASTEST,
    KNOWN_FOR,
    SLOWEST,
    Room,
    Sender,
    SentBeyond,
    Slots,
    allotment,
    newest,
    next_report,
    standing,
    wanting,
)
from gtm.core.model.units import MOST_INTEGER, MOST_MOMENT, MOST_SLOTS
from gtm.core.quota.earned import DEPTH, ShareBucket
from tests.core.strategies import quick

_slots = st.integers(1, 40).flatmap(
    lambda limit: st.builds(
        Slots, st.integers(0, limit).map(float), st.just(float(limit)), st.sampled_from([0.0, 1.0, 7.0])
    )
)


@pytest.mark.parametrize(
    ("free", "limit", "waiting"),
    [
        (-1, 5, 0),
        (6, 5, 0),
        (0, float("inf"), 0),
        (0, 5, float("nan")),
        (0, 5, -1),
        (0, MOST_SLOTS + 1, 0),
        (0, 5, 1e308),
    ],
)
def test_slots_that_cannot_be_are_refused(free: float, limit: float, waiting: float) -> None:
    """Negative, not finite, or more free than there are: an error that says which."""
    with pytest.raises(ValueError, match=r"slots"):
        Slots(free, limit, waiting)


_most = st.floats(0, MOST_SLOTS)
_any_room = st.builds(
    Room,
    st.text(max_size=3),
    st.floats(0, MOST_MOMENT),
    st.integers(0, MOST_INTEGER),
    st.just(0.0),
    st.tuples(_most, _most, _most).map(lambda one: Slots(min(one[:2]), max(one[:2]), one[2])),
)


@quick(300)
@given(st.lists(_any_room, min_size=1, max_size=64), st.integers(1, 1000), st.integers(0, 2**64 - 1))
def test_whatever_is_reported_can_be_added_up(rooms: list[Room], senders: int, key: int) -> None:
    """No report that is read, and no number of them, makes a sum that is not finite, or keeps a request from its answer."""
    found = standing(rooms, "", 0.0)
    assert found is not None
    assert isfinite(found.open)
    assert isfinite(found.limit)
    assert found.sequence < 2**63
    share = 1 / wanting(rooms, senders, 0.0)
    assert 0 <= allotment(found, share, key) <= found.open + 1
    sender = Sender(lambda _: found, SentBeyond(), share, lambda _: True)
    push(inf, 0, [PushPeer(0, 0.01, (), key)], sender, 0.0, draws=(0.5, 0.5))
    correct(REFUSED, [Way(0, 1.0, (), key)], sender, 0.0)


@quick(100)
@given(st.lists(_any_room, min_size=1, max_size=64), st.integers(0, 10**9))
def test_no_more_is_open_than_the_policy_says_there_is(rooms: list[Room], most: int) -> None:
    """However many say so together, and however much each of them."""
    found, without = standing(rooms, "", 0.0, most), standing(rooms, "", 0.0)
    assert found is not None
    assert without is not None
    assert found.open == min(most, without.open)
    assert found.limit == min(most, without.limit)


def test_what_was_counted_beyond_all_bounds_is_cut() -> None:
    """An honest balancer of more slots than one can have says as many as one can."""
    assert Slots.counted(5e6, 7e6, 1e12) == Slots(MOST_SLOTS, MOST_SLOTS, MOST_SLOTS)
    assert Slots.counted(2, 3, 1) == Slots(2, 3, 1)


def test_a_report_counts_for_two_seconds() -> None:
    """Up to 2 s; nothing is known after that, nor of a report from the future."""
    room = Room("x", 0.0, 1, 10.0, Slots(3, 5))
    known = {now: standing([room], "", now) is not None for now in (9.99, 10.0, 10.0 + KNOWN_FOR, 12.01)}
    assert known == {9.99: False, 10.0: True, 12.0: True, 12.01: False}


def test_what_comes_late_changes_nothing() -> None:
    """The later start counts, and the higher number of one start; the mapping itself says whether something changed."""
    first, second = Room("x", 5.0, 1, 0.0, Slots(1, 5)), Room("x", 5.0, 2, 0.0, Slots(2, 5))
    anew = Room("x", 6.0, 1, 0.0, Slots(3, 5))
    rooms = newest({}, second)
    assert newest(rooms, first) is rooms
    assert newest(rooms, second) is rooms
    assert newest(newest(rooms, anew), second) == {"x": anew}


def test_a_part_has_no_more_than_the_whole() -> None:
    """A model with five free slots in a region with two has two, less those that wait for it; an unnamed one has the whole's."""
    room = Room("x", 0.0, 1, 0.0, Slots(3, 9, 1), {"small": Slots(5, 6, 1), "large": Slots(1, 2)})
    found = {part: standing([room], part, 0.0) for part in ("small", "large", "other")}
    assert {part: one and one.open for part, one in found.items()} == {
        "small": 1.0,
        "large": 1.0,
        "other": 2.0,
    }


def test_a_balancer_s_queue_takes_nothing_of_another_s_slots() -> None:
    """They add up; the region's time is the oldest's."""
    rooms = [Room("x", 0.0, 1, 1.0, Slots(0, 4, 9)), Room("y", 0.0, 4, 2.0, Slots(3, 4))]
    found = standing(rooms, "", 2.5)
    assert found is not None
    assert (found.open, found.limit, found.waiting, found.at) == (3.0, 8.0, 9.0, 1.0)


@given(_slots, _slots, st.floats(0, 1))
@quick(300)
def test_reports_come_at_two_to_ten_hertz(told: Slots, now: Slots, since: float) -> None:
    """Never sooner than 0.1 s after the last, never later than 0.5 s; at once when nothing was said yet."""
    assert next_report(None, now, since) == 0.0
    due = since + next_report(told, now, since)
    assert due >= FASTEST
    assert due <= max(since, SLOWEST)


@pytest.mark.parametrize(
    ("told", "now", "delay"),
    [
        (Slots(10, 10), Slots(10, 10), 0.5),  # idle
        (Slots(5, 10), Slots(5, 10), 0.5),  # half
        (Slots(35, 100), Slots(35, 100), 0.3),  # half the way between
        (Slots(2, 10), Slots(2, 10), 0.1),  # nearly full
        (Slots(0, 10, 5), Slots(0, 10, 5), 0.1),  # full
        (Slots(60, 100), Slots(71, 100), 0.1),  # much more free
        (Slots(60, 100), Slots(69, 100), 0.5),  # not much
        (Slots(5, 6), Slots(5, 10), 0.1),  # other limit
        (Slots(1, 20, 1), Slots(1, 20), 0.1),  # not full any more
        (Slots(1, 2, 1), Slots(1, 2), 0.1),  # likewise, where half is free
        (Slots(0, 0), Slots(0, 0), 0.5),  # nothing there
    ],
)
def test_how_often_it_is_said(told: Slots, now: Slots, delay: float) -> None:
    """By utilisation, and sooner after a change."""
    assert next_report(told, now, 0.0) == pytest.approx(delay)
    assert next_report(told, now, 0.05) == pytest.approx(delay - 0.05)


@given(st.lists(st.tuples(st.booleans(), st.floats(0, 1)), max_size=200))
@quick(300)
def test_shares_spend_what_was_earned(events: list[tuple[bool, float]]) -> None:
    """Over any stretch, spent ≤ earned in it + 2; what is not saved is handed on, and nothing is lost or made."""
    bucket, earned, spent, over = ShareBucket(), [0.0], [0], 0.0
    for ask, tokens in events:
        if ask and bucket.ready():
            bucket.spend()
            spent.append(spent[-1] + 1)
            earned.append(earned[-1])
        elif not ask:
            handed = bucket.earn(tokens)
            over += handed
            earned.append(earned[-1] + tokens - handed)
            spent.append(spent[-1])
    balance = [got - paid for got, paid in zip(earned, spent, strict=True)]
    assert min(balance) >= -1e-6
    assert max(balance) <= DEPTH + 1e-6
    if balance[-1] >= 1:
        assert bucket.ready()


def test_a_share_of_half_lets_every_second_request_spill() -> None:
    """No lag: the second request of a burst may go, and the fourth."""
    bucket, spilled = ShareBucket(), []
    for _ in range(8):
        bucket.earn(0.5)
        spilled.append(bucket.ready())
        if bucket.ready():
            bucket.spend()
    assert spilled == [False, True] * 4


def test_no_more_than_two_are_saved_and_the_rest_is_handed_on() -> None:
    """Ten requests worth a whole token each, of which none is spilled: eight tokens go on with them."""
    bucket = ShareBucket()
    assert sum(bucket.earn(1.0) for _ in range(10)) == 8.0


def test_a_token_counts_once_among_senders() -> None:
    """Whatever number of balancers it has or claims: none of them makes others' parts smaller, or larger."""
    slots, full = Slots(2, 5), Slots(0, 5)
    names = ("us/1", "us/2", "eu/1")
    rooms = [Room(name, 0.0, 1, 0.0, slots) for name in names]
    assert wanting([], 4, 0.0) == 4
    assert wanting(rooms, 4, 0.0) == 2  # neither eu nor us wants
    assert wanting([*rooms, Room("us/3", 0.0, 1, 0.0, full)], 4, 0.0) == 3  # us may want
    many = [Room(f"us/{number}", 0.0, 1, 0.0, slots) for number in range(60)]
    assert wanting([*rooms, *many], 4, 0.0) == 2
    assert wanting(rooms, 4, KNOWN_FOR + 1) == 4
