"""What edges say that they corrected, and what balancers say of free slots, as control adds them up."""

from __future__ import annotations

import pytest

from gtm.control.lead.demand import KEPT, MAX_PAIRS, RateBook
from gtm.control.lead.rooms import Rooms
from gtm.control.live.present import Current, Present
from gtm.core.balance.spill.room import KNOWN_FOR, Slots
from gtm.core.model.state import State
from gtm.feed.wire import RoomReport


def test_rates_add_up_and_end() -> None:
    """A steady stream of two edges comes out as its rate; what is moved no more fades away, and nothing of it stays."""
    book = RateBook()
    for second in range(60):
        book.take("one", {"us\tie": 3.0, "\tde": 1.0}, 1.0, float(second))
        book.take("two", {"us\tie": 2.0}, 1.0, float(second))
    assert book.rates(60.0) == {("us", "ie"): pytest.approx(5.0), ("", "de"): pytest.approx(1.0)}
    for second in range(60, 120):
        book.take("one", {}, 1.0, float(second))
    assert book.rates(119.0) == {}


def test_an_edge_that_falls_silent_is_forgotten() -> None:
    """Its last rates count as long as its demand does."""
    book = RateBook()
    book.take("one", {"us\tie": 9.0}, 1.0, 0.0)
    assert book.rates(KEPT).keys() == {("us", "ie")}
    assert book.rates(KEPT + 0.1) == {}


def test_pairs_are_bounded() -> None:
    """The highest rates are kept, however many there are."""
    book = RateBook()
    book.take("one", {f"{number}\tde": float(number) for number in range(2 * MAX_PAIRS)}, 1.0, 0.0)
    found = book.rates(0.0)
    assert len(found) == MAX_PAIRS
    assert (f"{MAX_PAIRS - 1}", "de") not in found


def test_regions_stand_as_their_balancers_say_together() -> None:
    """Two balancers add up; the age is the oldest's; what is older than it counts for is not there."""
    now = 50.0
    rooms = Rooms(Current(Present(State())), lambda: 1, lambda: now)
    rooms.heard("de", RoomReport("a", 1.0, 1, 0.0, Slots(3, 8, 1)))
    now = 51.0
    rooms.heard("de", RoomReport("b", 1.0, 1, 0.0, Slots(2, 4)))
    found = rooms.standings["de"]
    assert (found.open, found.limit, found.waiting, found.at) == (4.0, 12.0, 1.0, -1.0)
    now = 50.5 + KNOWN_FOR
    assert rooms.standings["de"].limit == 4.0
    now = 52.0 + KNOWN_FOR
    assert rooms.standings == {}
