"""Corrections and pushes against a readable model of docs/spill-back.md, in random worlds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from math import ceil, floor, inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gtm.core.balance.spill.edge import REFUSED, Way, correct
from gtm.core.balance.spill.push import PushPeer, expected_wait, push
from gtm.core.balance.spill.room import (
    OpenSlots,
    Room,
    Sender,
    SentBeyond,
    Slots,
    SpillReason,
    allotment,
    newest,
    standing,
)
from gtm.core.quota.names import QuotaText
from tests.core.balance.spill import model
from tests.core.strategies import quick

REGIONS = 4
QUOTAS = ("a-abroad", "b-abroad")
PARTS = ("", "small")
TICK = 0.05
"""Everything happens at multiples of this, so that times are equal now and then, and a tenth of them never ambiguous."""

_ticks = st.integers(0, 60).map(lambda number: number * TICK)
_quotas = st.lists(st.sampled_from(QUOTAS), max_size=2, unique=True).map(tuple)


@st.composite
def _slots(draw: st.DrawFn) -> tuple[float, float, float]:
    limit = draw(st.integers(0, 8))
    return float(draw(st.integers(0, limit))), float(limit), float(draw(st.sampled_from([0, 0, 0, 1, 5])))


@st.composite
def _reports(draw: st.DrawFn) -> tuple[int, str, model.Said]:
    parts = {"small": draw(_slots())} if draw(st.booleans()) else {}
    started, number = draw(st.sampled_from([0.0, 1.0])), draw(st.integers(0, 4))
    said = model.Said(started, number, draw(_ticks), draw(_slots()), parts)
    return draw(st.integers(0, REGIONS - 1)), draw(st.sampled_from(["x", "y"])), said


_asked = st.tuples(
    st.booleans(),  # an edge's or a balancer's
    st.integers(-1, REGIONS - 1),  # drawn
    st.permutations(range(REGIONS)).flatmap(lambda order: st.integers(0, REGIONS).map(lambda n: order[:n])),
    st.lists(_quotas, min_size=REGIONS, max_size=REGIONS),
    _quotas,  # paid
    st.sampled_from(PARTS),
    st.integers(0, 3).map(lambda number: number * TICK),  # time that passes
    st.sampled_from([0.0, 0.01, 0.1, 0.2, inf]),  # the wait here
    st.sampled_from([0, 0, 0, 1]),  # hops
    st.tuples(*[st.floats(0, 1, exclude_max=True)] * 2),
)


class _World:
    """The code's side of a world, beside the model's."""

    def __init__(
        self, reports: Iterable[tuple[int, str, model.Said]], tokens: Mapping[str, int], share: float
    ) -> None:
        self.model = model.World({}, [], dict(tokens))
        self.rooms: dict[int, Mapping[str, Room]] = {}
        self.now, self.part = 2.0, ""
        self.tokens = dict(tokens)
        self.taken: list[tuple[str, ...]] = []
        self.sender = Sender(self._known, SentBeyond(), share, self._afford)
        for region, source, said in reports:
            self.model.heard.setdefault(region, {}).setdefault(source, []).append(said)
            parts = {name: Slots(*slots) for name, slots in said.parts.items()}
            room = Room(source, said.started, said.number, said.at, Slots(*said.whole), parts)
            self.rooms[region] = newest(self.rooms.get(region, {}), room)

    def _known(self, number: int) -> OpenSlots | None:
        return standing(self.rooms.get(number, {}).values(), self.part, self.now)

    def _afford(self, quotas: tuple[QuotaText, ...]) -> bool:
        assert len(set(quotas)) == len(quotas)
        if not all(self.tokens.get(quota, 0) >= 1 for quota in quotas):
            return False
        for quota in quotas:
            self.tokens[quota] -= 1
        self.taken.append(quotas)
        return True

    def moved(self, region: int | None, owed: tuple[str, ...]) -> None:
        """What was moved took a token of each quota that it owed, and nothing else did; the model follows."""
        assert self.taken == ([owed] if region is not None and owed else [])
        self.taken.clear()
        if region is not None:
            self.model.sent.append((region, self.now))
        self.model.tokens = dict(self.tokens)


def _texts(names: Iterable[str]) -> tuple[QuotaText, ...]:
    return tuple(QuotaText(name) for name in names)


def _distinct(reports: list[tuple[int, str, model.Said]]) -> list[tuple[int, str, model.Said]]:
    """Without those that have the number of an earlier one: of two that cannot be told apart either is right."""
    found: dict[tuple[int, str, float, int], tuple[int, str, model.Said]] = {}
    for one in reports:
        found.setdefault((one[0], one[1], one[2].started, one[2].number), one)
    return list(found.values())


@quick(1500)
@given(
    st.lists(_reports(), max_size=10).map(_distinct),
    st.dictionaries(st.sampled_from(QUOTAS), st.integers(0, 3)),
    st.sampled_from([1.0, 1.0, 0.5, 0.3]),
    st.lists(_asked, min_size=1, max_size=12),
)
def test_every_decision_is_one_of_the_model_s(
    reports: list[tuple[int, str, model.Said]],
    tokens: dict[str, int],
    share: float,
    asked: list[
        tuple[
            bool,
            int,
            list[int],
            list[tuple[str, ...]],
            tuple[str, ...],
            str,
            float,
            float,
            int,
            tuple[float, float],
        ]
    ],
) -> None:
    """Whatever was reported and sent: inside the ways given, paid for, one hop, gained by, and for the reason that is told."""
    world = _World(reports, tokens, share)
    for edge, drawn, order, quotas, paid, part, passed, wait, hops, draws in asked:
        world.now, world.part = world.now + passed, part
        if edge:
            ways = [(number, quotas[number]) for number in order]
            expected = model.corrections(
                world.model, None if drawn == REFUSED else drawn, ways, paid, part, world.now, share
            )
            made = correct(
                drawn,
                [
                    Way(number, float(place), _texts(owed), number)
                    for place, (number, owed) in enumerate(ways)
                ],
                world.sender,
                world.now,
                paid=_texts(paid),
            )
            number, why = (made.way.number if made.way else None), made.why
            owed = tuple(one for one in quotas[number] if one not in paid) if number is not None else ()
        else:
            peers = [(number, 0.05 * (1 + place % 3), quotas[number]) for place, number in enumerate(order)]
            expected = model.pushes(world.model, wait, hops, peers, part, world.now, share)
            given_peers = [PushPeer(number, extra, _texts(owed), number) for number, extra, owed in peers]
            pushed = push(wait, hops, given_peers, world.sender, world.now, draws=draws)
            number, why = (pushed.peer.number if pushed.peer else None), pushed.why
            owed = quotas[number] if number is not None else ()
        assert (number, why.value) in expected
        world.moved(number, owed)


@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 2)), max_size=60),
    st.integers(0, 100),
    st.integers(0, 2),
)
@quick(200)
def test_what_was_sent_is_counted_from_a_time_on(sent: list[tuple[int, int]], back: int, region: int) -> None:
    """Never less than what was sent since, and no more than what was sent a hundredth of a second earlier."""
    counted, now, kept = SentBeyond(), 0.0, []
    for passed, to in sent:
        now += passed / 500
        counted.add(to, now)
        kept.append((to, now))
    at = now - back / 100
    exact = sum(1 for to, when in kept if to == region and when >= at)
    most = sum(1 for to, when in kept if to == region and when >= at - 0.01 - 1e-9)
    assert exact <= counted.since(region, at) <= most


def test_what_was_sent_is_remembered_as_long_as_a_report_can_reach_back() -> None:
    """A report that counts for 2 s, of a region 1 s away, asks for 3 s; entries of then are still there."""
    sent = SentBeyond()
    for tick in range(100):
        sent.add(0, tick * 0.1)
    assert sent.since(0, 9.9 - 3.0) == 31


@pytest.mark.parametrize("senders", [2, 8, 40])
@pytest.mark.parametrize("slots", [1, 4, 37])
def test_the_parts_of_all_senders_sum_to_what_is_open(senders: int, slots: int) -> None:
    """By one report each has its part, up or down to a whole one; over many they sum to the slots (four standard deviations)."""
    rounds, total = 400, 0
    for sequence in range(rounds):
        seen = OpenSlots(float(slots), 50.0, 0.0, 0.0, sequence)
        parts = [allotment(seen, 1 / senders, key * 0x9E3779B97F4A7C15 % 2**64) for key in range(senders)]
        assert set(parts) <= {floor(slots / senders), ceil(slots / senders)}
        total += sum(parts)
    part = slots / senders % 1
    assert total / rounds == pytest.approx(
        slots, abs=4 * (senders * part * (1 - part) / rounds) ** 0.5 + 1e-9
    )


def test_less_than_a_slot_is_no_room() -> None:
    """However the rounding falls."""
    assert {allotment(OpenSlots(0.9, 4.0, 0.0, 0.0, number), 1.0, 7) for number in range(100)} == {0}


def _sender(known: Mapping[int, OpenSlots], share: float = 1.0) -> Sender:
    return Sender(known.get, SentBeyond(), share, lambda _: True)


def test_edges_that_know_the_same_do_not_herd() -> None:
    """8 edges with 50 requests each, one report of 20 open slots 0.5 s old: 20 are moved in the mean, and never above 24."""
    moved = []
    for sequence in range(50):
        known = {
            0: OpenSlots(0.0, 50.0, 9.0, 0.0, sequence),
            1: OpenSlots(20.0, 50.0, 0.0, 0.0, sequence),
        }
        total = 0
        for edge in range(8):
            sender = _sender(known, 1 / 8)
            way = Way(1, 80.0, (), hash((edge, "salt")) % 2**64)
            total += sum(correct(0, [way], sender, 0.5).way is not None for _ in range(50))
        moved.append(total)
    assert max(moved) <= 24
    assert sum(moved) / len(moved) == pytest.approx(20, abs=1.0)


def test_the_emptier_of_two_takes_a_push() -> None:
    """Of three peers the emptiest gets two thirds (it is drawn in two pairs of three), the next a third, the fullest none."""
    known = {
        number: OpenSlots(free, 100.0, 0.0, 0.0, 1) for number, free in ((1, 90.0), (2, 50.0), (3, 10.0))
    }
    peers = [PushPeer(number, 0.1, (), number) for number in (1, 2, 3)]
    went: Counter[int | None] = Counter()
    for first in range(30):
        for second in range(30):
            draws = ((first + 0.5) / 30, (second + 0.5) / 30)
            made = push(1.0, 0, peers, _sender(known), 0.0, draws=draws)
            went[made.peer.number if made.peer else None] += 1
    assert went == {1: 600, 2: 300}


def test_the_nearest_with_room_takes_a_correction() -> None:
    """The first of the ways, which come with the least latency first."""
    known = {
        0: OpenSlots(0.0, 5.0, 1.0, 0.0, 1),
        1: OpenSlots(1.0, 5.0, 0.0, 0.0, 1),
        2: OpenSlots(5.0, 5.0, 0.0, 0.0, 1),
    }
    ways = [Way(number, 50.0 * number, (), number) for number in (0, 1, 2)]
    sender = _sender(known)
    assert [correct(0, ways, sender, 0.1).way for _ in range(2)] == [ways[1], ways[2]]


def test_a_steady_stream_is_not_counted_as_one() -> None:
    """A request every 5 ms for a second: of the last tenth of a second some 20 are counted, not 200."""
    sent = SentBeyond()
    for number in range(200):
        sent.add(0, number * 0.005)
    assert 20 <= sent.since(0, 0.9) <= 22


def test_the_emptier_is_so_by_its_part() -> None:
    """5 of 5 slots open are more than 10 of 100."""
    known = {1: OpenSlots(10.0, 100.0, 0.0, 0.0, 1), 2: OpenSlots(5.0, 5.0, 0.0, 0.0, 1)}
    peers = [PushPeer(1, 0.1, (), 1), PushPeer(2, 0.1, (), 2)]
    assert push(1.0, 0, peers, _sender(known), 0.0, draws=(0.0, 0.0)).peer is peers[1]


def test_what_is_still_on_its_way_is_not_in_the_report() -> None:
    """A push 0.05 s before the report was measured, to a peer 0.1 s away, has the one open slot; one 0.15 s before is in the report."""
    for before, why in ((0.05, SpillReason.NO_ROOM), (0.15, SpillReason.MOVED)):
        sender = _sender({1: OpenSlots(1.0, 5.0, 0.0, 1.0, 1)})
        sender.sent.add(1, 1.0 - before)
        assert push(1.0, 0, [PushPeer(1, 0.1, (), 1)], sender, 1.1, draws=(0.0, 0.0)).why is why


def test_without_a_token_what_would_move_stays_and_the_next_is_asked() -> None:
    """An edge's next way, a balancer's next peer; with none left the quota is the reason, not the room."""
    known = {
        0: OpenSlots(0.0, 5.0, 1.0, 0.0, 1),
        1: OpenSlots(5.0, 5.0, 0.0, 0.0, 1),
        2: OpenSlots(1.0, 5.0, 0.0, 0.0, 1),
    }
    owed, asked = (QuotaText("abroad"),), []

    def refuse(quotas: tuple[QuotaText, ...]) -> bool:
        asked.append(quotas)
        return False

    sender = Sender(known.get, SentBeyond(), 1.0, refuse)
    dear, free = Way(1, 10.0, owed, 1), Way(2, 20.0, (), 2)
    assert correct(0, [dear], sender, 0.1) == (None, SpillReason.NO_QUOTA)
    assert correct(0, [dear, free], sender, 0.1) == (free, SpillReason.MOVED)
    assert correct(0, [dear, free], sender, 0.1) == (None, SpillReason.NO_QUOTA)
    pushed = Sender(known.get, SentBeyond(), 1.0, refuse)
    peers = [PushPeer(1, 0.1, owed, 1), PushPeer(2, 0.1, (), 2)]
    assert push(1.0, 0, peers, pushed, 0.1, draws=(0.0, 0.0)) == (peers[1], SpillReason.MOVED)
    assert push(1.0, 0, peers, pushed, 0.1, draws=(0.0, 0.0)) == (None, SpillReason.NO_QUOTA)
    assert set(asked) == {owed}


@pytest.mark.parametrize(
    ("free", "limit", "waiting", "service", "wait"),
    [
        (3, 10, 0, 5.0, 0.0),
        (1, 10, 1, 5.0, 1.0),
        (0, 10, 0, 5.0, 0.5),
        (0, 10, 9, 5.0, 5.0),
        (0, 0, 0, 5.0, inf),
    ],
)
def test_the_wait_expected(free: int, limit: int, waiting: int, service: float, wait: float) -> None:
    """(waiting + 1) × service time ÷ limit, and nothing where a slot is open."""
    assert (
        expected_wait(Slots(free, limit, waiting), service)
        == wait
        == model.wait(free, limit, waiting, service)
    )


def test_a_push_that_takes_as_long_as_the_wait_gains_nothing() -> None:
    """An equal extra round trip is not shorter."""
    known = {1: OpenSlots(5.0, 5.0, 0.0, 0.0, 1)}
    for extra, why in ((0.2, SpillReason.NOTHING_GAINED), (0.19, SpillReason.MOVED)):
        assert push(0.2, 0, [PushPeer(1, extra, (), 1)], _sender(known), 0.0, draws=(0.0, 0.0)).why is why


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 2), st.integers(0, 40)), max_size=60))
@quick(300)
def test_what_was_sent_since_is_counted(events: list[tuple[bool, int, int]]) -> None:
    """Asked about any moment, past or to come, again and again, while more is sent: as many as were sent then or later."""
    sent, noted, now = SentBeyond(), [], 0.0
    for asks, number, ticks in events:
        if asks:
            at = now - 1.0 + ticks * TICK
            wanted = sum(1 for to, when in noted if to == number and when >= at)
            assert sent.since(number, at) == wanted
        else:
            now += (ticks % 4) * TICK
            sent.add(number, now)
            noted.append((number, now))
