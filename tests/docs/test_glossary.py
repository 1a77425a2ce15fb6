"""docs/glossary.md: each word once, and what it says of the code is there."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "glossary.md").read_text()
ROWS = re.findall(r"^\| (\*\*.+?) \| (.+) \| (?:`([\w.]+)`)? ?\|$", PAGE, re.MULTILINE)
NAMES = [name for _, _, name in ROWS if name]


def test_each_word_stands_once() -> None:
    """A word with two rows would have two meanings."""
    words = [word for head, _, _ in ROWS for word in re.findall(r"\*\*(.+?)\*\*", head)]
    assert len(ROWS) == len(re.findall(r"^\| \*\*", PAGE, re.MULTILINE)) >= 60
    assert sorted(set(words)) == sorted(words)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_named_is_there(name: str) -> None:
    """The page names classes: these are found."""
    module, _, of = name.rpartition(".")
    assert isinstance(getattr(importlib.import_module(f"gtm.{module}"), of), type)
