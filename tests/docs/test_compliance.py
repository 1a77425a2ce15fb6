"""The page of DNS clauses against the tests' markers."""

from __future__ import annotations

import pytest

from tests.docs.compliance import PAGE, ROOT, Clause, MarkerError, Proof, collect, markers, page

SOURCE = '''
@pytest.mark.rfc("7871", "7.1.2", "first")
@pytest.mark.parametrize("x", [pytest.param(1, marks=pytest.mark.rfc("1034", "4", "second"))])
def test_it(x):
    """It holds."""
'''


def test_the_page_is_up_to_date() -> None:
    """The page says what the markers say."""
    assert PAGE.read_text() == page(collect(ROOT / "tests")), "`make docs` writes docs/dns-compliance.md anew"


def test_markers_are_found() -> None:
    """Markers on tests and on single parameters are clauses."""
    assert list(markers(SOURCE, "test_x.py")) == [
        (Clause("7871", "7.1.2", "first"), "test_it"),
        (Clause("1034", "4", "second"), "test_it"),
    ]


def test_clauses_are_in_order() -> None:
    """Rows are by RFC and section, as numbers; a clause that several tests hold names all."""
    proofs = [Proof("tests/a.py", "test_a"), Proof("tests/b.py", "test_b")]
    text = page(
        {
            Clause("7871", "7.2.10", "later"): proofs[:1],
            Clause("7871", "7.2.9", "sooner"): proofs,
            Clause("1035", "4.1.1", "first of all"): proofs[1:],
        }
    )
    rows = [line for line in text.splitlines() if "tests/" in line and line.startswith("| ")]
    assert rows == [
        "| 4.1.1 | first of all | [b](../tests/b.py) |",
        "| 7.2.9 | sooner | [a](../tests/a.py), [b](../tests/b.py) |",
        "| 7.2.10 | later | [a](../tests/a.py) |",
    ]


@pytest.mark.parametrize(
    ("marker", "said"),
    [
        ('"7871", "7.1.2"', "takes three strings"),
        ('"7871", "7.1.2", f"x"', "takes three strings"),
        ('"7871", "7.1.2", clause="x"', "takes three strings"),
        ('"99999", "1", "x"', "has no title"),
        ('"7871", "§7", "x"', "a section looks like"),
        ('"7871", "7", "x | y"', "is one line"),
        ('"7871", "7", ""', "is one line"),
    ],
)
def test_wrong_markers_are_named(marker: str, said: str) -> None:
    """A marker that says no clause is an error that says where it is."""
    with pytest.raises(MarkerError, match=rf"^test_x\.py:1: .*{said}"):
        list(markers(f"@{'pytest.mark.rfc'}({marker})\ndef test_x(): ...", "test_x.py"))


def test_markers_belong_on_tests() -> None:
    """A marker elsewhere would be lost, so it is an error."""
    with pytest.raises(MarkerError, match="belongs on a test function"):
        list(markers(f'pytestmark = {"pytest.mark.rfc"}("7871", "7", "x")', "test_x.py"))
