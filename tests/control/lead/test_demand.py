"""Demand as control keeps it: smoothed, added up over edges, kept when an edge falls silent."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gtm.control.lead.demand import KEPT, DemandBook, requests_per_answer
from gtm.core.demand.belief import Evidence
from gtm.core.demand.rows import Row
from tests.memory import held

ROW = "chat\tde\tserved\tlookup\tchat|real_time|de|x\tchat|DE|52.5|12.5||||real_time||"
DNS = ROW.replace("lookup", "dns")


def _rates(book: DemandBook, now: float) -> dict[str, float]:
    return {row.via: rate for row, rate in book.reported(now).rates().items()}


def test_a_steady_rate_is_found() -> None:
    """Whatever the length of reports, a steady stream of requests comes out as its rate."""
    for seconds in (0.2, 1.0, 3.0):
        book = DemandBook()
        now = 0.0
        for _ in range(100):
            now += seconds
            book.take("one", {ROW: 50.0 * seconds}, seconds, now)
        assert _rates(book, now) == {"lookup": pytest.approx(50.0, rel=0.01)}


@pytest.mark.parametrize("row", [ROW, DNS])
def test_a_new_edge_counts_in_full_at_once(row: str) -> None:
    """Smoothing that has just begun does not make demand look small: after control restarts, plans depend on it."""
    book = DemandBook()
    for second in range(3):
        book.take("one", {row: 50.0}, 1.0, float(second))
        assert list(_rates(book, float(second)).values()) == [pytest.approx(50.0)]
    book.take("two", {row: 1.0}, 1e-3, 2.0)
    assert sum(_rates(book, 2.0).values()) == pytest.approx(51.0, abs=0.5)


def test_edges_add_up_and_silence_is_not_zero() -> None:
    """An edge that stops reporting keeps its rates for a while; then it is forgotten, and nothing of it stays."""
    book = DemandBook()
    for second in range(60):
        book.take("one", {ROW: 10.0}, 1.0, float(second))
        book.take("two", {ROW: 30.0}, 1.0, float(second))
    assert _rates(book, 60.0) == {"lookup": pytest.approx(40.0, rel=0.01)}
    for second in range(60, 60 + int(KEPT) - 1):
        book.take("one", {ROW: 10.0}, 1.0, float(second))
    assert _rates(book, 60 + KEPT - 1) == {"lookup": pytest.approx(40.0, rel=0.01)}
    assert _rates(book, 60 + KEPT + 1) == {"lookup": pytest.approx(10.0, rel=0.01)}
    assert _rates(book, 60 + 3 * KEPT) == {}


@pytest.mark.drill
def test_what_was_reported_stays_what_it_was() -> None:
    """It is added up beside the event loop, where reports go on coming, edges are forgotten, and rows that nobody has go."""
    book = DemandBook()
    book.take("one", {ROW: 10.0}, 1.0, 0.0)
    reported = book.reported(0.0)
    before = reported.rates()

    def come_and_go() -> None:
        for second in range(1, 31):
            more = {ROW.replace("52.5", str(second * 1000 + number)): 1.0 for number in range(1000)}
            book.take("two", more, 1.0, float(second))
            book.take("one", {DNS: 5.0}, 1.0, float(second))
            book.forget("two")
        book.forget("one")

    assert held(come_and_go) < 5_000_000, "what nobody has any more is not kept for ever"
    assert reported.rates() == before
    assert len(before) == 1


def test_demand_that_ends_fades() -> None:
    """Reports without a row let its rate fall, and in the end it is gone."""
    book = DemandBook()
    for second in range(30):
        book.take("one", {ROW: 10.0}, 1.0, float(second))
    for second in range(30, 70):
        book.take("one", {}, 1.0, float(second))
    assert _rates(book, 70.0) == {}


@given(st.text(max_size=100))
def test_a_damaged_row_is_left_out(text: str) -> None:
    """What is no row raises ValueError where it is read, and changes nothing in the book."""
    book = DemandBook()
    book.take("one", {text: 1.0, ROW: 3.0}, 1.0, 0.0)
    assert Row(*ROW.split("\t")) in book.reported(0.0).rates()
    try:
        Row.parse(text)
    except ValueError:
        assert len(book.reported(0.0).rates()) == 1


def test_an_answer_in_dns_stands_for_what_regions_report() -> None:
    """Requests served beyond those asked for over HTTP are due to DNS; without reports an answer is one request."""
    book = DemandBook()
    for second in range(60):
        book.take("one", {ROW: 20.0, DNS: 10.0}, 1.0, float(second))
    rates = book.reported(60.0).rates()
    place = ("chat", "de")
    assert requests_per_answer(rates, {}, {}) == {place: 1.0}
    factor: dict[tuple[str, str], float] = {}
    for _ in range(100):
        factor = requests_per_answer(rates, {place: 520.0}, factor)
    assert factor == {place: pytest.approx(500 / rates[Row(*DNS.split("\t"))], rel=0.02)}
    assert requests_per_answer(rates, {place: 0.0}, {place: 1.0})[place] < 1.0


def test_a_silent_region_is_taken_for_the_others() -> None:
    """Where a region reports nothing, an answer stands for as much as in the service's other regions."""
    other = DNS.replace("\tde\t", "\tie\t", 1)
    book = DemandBook()
    for second in range(200):
        book.take("one", {DNS: 10.0, other: 10.0}, 1.0, float(second))
    found = requests_per_answer(book.reported(200.0).rates(), {("chat", "de"): 300.0}, {})
    assert found == {
        ("chat", "de"): pytest.approx(30.0, rel=0.01),
        ("chat", "ie"): pytest.approx(30.0, rel=0.01),
    }


def test_what_is_not_believed_is_left_out() -> None:
    """Edges of one token share what it is believed, row by row; all its claims stay to be read."""
    book = DemandBook()
    for edge, token, rate in (
        ("one", "fra", 50.0),
        ("two", "bad", 3e6),
        ("three", "bad", 1e6),
        ("four", "", 40.0),
    ):
        book.take(edge, {ROW: rate, DNS: rate}, 1.0, 0.0, token=token)
    reported = book.reported(0.0, Evidence({"fra": 100.0, "bad": 1.0}, 101.0, 0.0, 10.0))
    claims = reported.claims()
    assert claims == {"fra": pytest.approx(100.0), "bad": pytest.approx(8e6), "four": pytest.approx(80.0)}
    assert reported.excess() == {"bad": (pytest.approx(8e6), pytest.approx(10.0))}
    assert sum(reported.rates().values()) == pytest.approx(190.0)
    assert reported.rates(reported.excess()) == reported.rates()
    assert reported.decisions()["two"]["lookup"] == pytest.approx(3e6), "people see what it says"


def test_an_edge_goes_on_under_its_rotated_token() -> None:
    """What it says belongs to the token that it came with last."""
    book = DemandBook()
    book.take("one", {ROW: 10.0}, 1.0, 0.0, token="old")
    book.take("one", {ROW: 10.0}, 1.0, 1.0, token="new")
    assert book.reported(1.0).claims() == {"new": pytest.approx(10.0)}
