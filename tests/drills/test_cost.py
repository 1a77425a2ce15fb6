"""What bytes from outside cost to read grows with their length, and no faster (`tests/drills/costs.py`)."""

from __future__ import annotations

import pytest

from tests.drills.cost import READERS
from tests.drills.costs import GROWTH, LENGTHS, SQUARE, Reader, cost, peak, steps
from tests.effort import ALL, examples

pytestmark = pytest.mark.endurance


@pytest.mark.drill
@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.name)
def test_cost_grows_with_length(reader: Reader) -> None:
    """A byte more costs no more than is published, and of a long text no more than of a short one; the search is among texts that are read."""
    for length in reader.lengths:
        assert reader.reads(reader.given(reader.pieces[0], length)), (reader.pieces[0], length)
    found = cost(reader, examples(60), seed=1, times=ALL)
    assert found.exponent < SQUARE, found
    for of_each, most in ((found.steps, reader.steps), (found.peak, reader.peak)):
        assert max(of_each) <= most, found
        assert of_each[1] <= GROWTH * max(of_each[0], most / 4), found


def test_what_grows_faster_is_found() -> None:
    """A reader that looks at all that came before for each byte is told from one that does not."""

    def all_before(text: bytes) -> int:
        count = 0
        for end in range(0, len(text), 64):
            for _ in range(0, end, 64):
                count += 1
        return count

    slow = Reader("slow", all_before, [b"a"], steps=3.0, peak=1.0)
    of_each = [steps(slow, slow.text(b"a", length)) / length for length in LENGTHS]
    assert of_each[2] > GROWTH * of_each[1]
    hoards = Reader(
        "hoards", lambda text: [text[:end] for end in range(0, len(text), 64)], [b"a"], steps=1.0, peak=1.0
    )
    held = [peak(hoards, hoards.text(b"a", length)) / length for length in LENGTHS]
    assert held[2] > GROWTH * held[1]


def test_what_is_refused_is_told() -> None:
    """What part of the texts was read to its end, and what a text is wrapped in, is none of the reader's steps."""

    def only_a(text: bytes) -> None:
        if text.strip(b"a"):
            raise ValueError

    picky = Reader("picky", only_a, [b"a", b"b"], steps=1.0, peak=1.0, most=64, wrap=lambda text: text * 2)
    found = cost(picky, 50, seed=1)
    assert 0 < found.read < 1
    assert picky.lengths[-1] == 64
    assert len(picky.given(b"a", 64)) == 128
