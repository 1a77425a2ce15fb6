"""docs/security.md names the test that holds each claim's bound: each is there, and runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT

PAGE = (ROOT / "docs/security.md").read_text()
TABLES = [
    [
        [cell.strip() for cell in line.strip("|\n").split("|")]
        for line in part.splitlines()
        if not set(line) <= set("|-")
    ]
    for part in re.findall(r"(?:^\|.*\n)+", PAGE, re.MULTILINE)
]
"""Every table, each a head and rows."""
LEDGERS = [table for table in TABLES if table[0][-1] == "test"]
CLAIMS = [row for table in LEDGERS for row in table[1:]]
_TESTS = Path(ROOT, "tests")


def test_every_claim_has_its_bound_and_its_test() -> None:
    """No cell is empty, and each row has as many as its head."""
    assert len(CLAIMS) > 30
    assert all(len(row) == len(table[0]) for table in LEDGERS for row in table)
    assert all(all(row) for row in CLAIMS)


@pytest.fixture(scope="module")
def known() -> set[str]:
    """The names of all tests and of all files with tests."""
    found = set()
    for path in _TESTS.rglob("test_*.py"):
        found.add(path.stem)
        found.update(re.findall(r"^(?:async )?def (test_\w+)", path.read_text(), re.MULTILINE))
    return found


@pytest.mark.parametrize("row", CLAIMS, ids=lambda row: row[0][:40])
def test_its_test_exists(row: list[str], known: set[str]) -> None:
    """By name: of a function, or of a file."""
    assert row[-1].strip("`") in known
