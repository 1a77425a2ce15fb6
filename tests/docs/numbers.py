"""Numbers in the tables of pages, and the constants that they are."""

from __future__ import annotations

import re
from importlib import import_module

_WORDS = {"two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10}
_UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "ms": 1e-3}
_NUMBER = re.compile(rf"(?<![\w/.-])(?:(\d[\d,]*)|({'|'.join(_WORDS)}))\b(?: ({'|'.join(_UNITS)})\b)?")


def plain(cell: str) -> str:
    """Its text, without where links lead."""
    return re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", cell.strip())


def numbers(text: str) -> list[float]:
    """All that stand in a text, in bytes and seconds."""
    return sorted(
        (float(digits.replace(",", "")) if digits else _WORDS[word]) * _UNITS.get(unit, 1)
        for digits, word, unit in _NUMBER.findall(text)
    )


def value(one: float | str) -> float:
    """A constant by where it stands, or a number."""
    if not isinstance(one, str):
        return one
    module, _, name = one.rpartition(".")
    found: float = getattr(import_module(f"gtm.{module}"), name)
    return found
