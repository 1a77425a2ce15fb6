"""Names that travel as text are read as what they were, whatever anybody calls anything."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gtm.core.demand.cells import Cell, cell_of, with_service
from gtm.core.demand.rows import LONGEST, ClassKey, Row, row_text
from gtm.core.model.joined import cut, join
from gtm.core.model.requests import Request
from gtm.core.model.services import Priority
from gtm.core.quota.names import QuotaName
from tests.core.strategies import locations

PIECES = [*"|>%:\t+?*,/ab\n25\u00e4", "%25", "%7C", "spill_in", "\0"]
HOSTILE = st.lists(st.sampled_from(PIECES), max_size=6).map("".join)
NAMED = HOSTILE.filter(bool)
CLASSES = st.builds(ClassKey, HOSTILE, HOSTILE, st.lists(NAMED, max_size=4).map(tuple), HOSTILE)


@given(st.sampled_from("|>:\t"), st.lists(HOSTILE, min_size=1, max_size=5))
def test_parts_come_back(separator: str, parts: list[str]) -> None:
    """Whatever is joined is cut into the same."""
    assert cut(separator, join(separator, parts)) == parts


@given(CLASSES)
def test_classes_come_back(key: ClassKey) -> None:
    """A ranking class's name says what it was made from."""
    assert ClassKey.parse(key.text) == key


@given(st.builds(QuotaName, HOSTILE, into=st.booleans()), st.builds(QuotaName, HOSTILE, into=st.booleans()))
def test_quotas_come_back(one: QuotaName, other: QuotaName) -> None:
    """No rule's name passes for what a region takes."""
    assert QuotaName.parse(one.text) == one
    assert (one.text == other.text) is (one == other)


@given(locations(), st.lists(st.none() | NAMED, min_size=3, max_size=3), NAMED, NAMED)
def test_cells_come_back(location: object, stated: list[str | None], service: str, other: str) -> None:
    """A cell read is the cell of its requests, and with another service it is the same cell of that one."""
    request = Request(service, location, *stated)  # type: ignore[arg-type]
    text = cell_of(request, Priority.BATCH)
    cell = Cell.parse(text)
    assert cell_of(cell.request, cell.priority) == text
    assert [cell.service, cell.tenant, cell.data_class, cell.model] == [service, *stated]
    moved = with_service(text, other)
    assert moved == cell_of(request._replace(service=other), Priority.BATCH)


@given(CLASSES, HOSTILE, HOSTILE)
def test_rows_come_back(key: ClassKey, service: str, cell: str) -> None:
    """A row of demand is the same from an edge's counter to the database, and its class can be told."""
    row = Row(service, "", "served", "dns", key.text, cell)
    assert Row.parse(row.text) == row
    assert ClassKey.parse(Row.parse(row.text).ranking_class) == key


def test_names_of_a_policy_travel_as_they_are() -> None:
    """The forms on the wire and in the database are those of ever."""
    key = ClassKey("chat", "real_time", ("fra", "dub"), "1f2e3d4c")
    assert key.text == "chat|real_time|fra>dub|1f2e3d4c"
    assert ClassKey("chat", "batch", (), "0").text == "chat|batch||0"
    assert QuotaName("to-dub").text == "to-dub"
    assert QuotaName("dub", into=True).text == "spill_in:dub"
    assert row_text("chat", "", "served", "dns", key.text, "c") == f"chat\t\tserved\tdns\t{key.text}\tc"


@pytest.mark.parametrize("text", ["", "a|b", "a|b|c|d|e"])
def test_what_is_no_class_is_refused(text: str) -> None:
    """An edge may send anything."""
    with pytest.raises(ValueError, match="no ranking class"):
        ClassKey.parse(text)


@pytest.mark.parametrize("text", ["", "a\tb", "\t" * 6, "x" * LONGEST + "\t" * 5])
def test_what_is_no_row_is_refused(text: str) -> None:
    """Likewise."""
    with pytest.raises(ValueError, match="not a row of demand"):
        Row.parse(text)
