"""The commands of the Makefile are there: make takes a name without a recipe for done."""

from __future__ import annotations

import re
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent


def test_every_command_does_something() -> None:
    """Those that are declared, and those that `.ci/run` calls."""
    text = (CHECKOUT / "Makefile").read_text()
    declared = set(re.search(r"^\.PHONY: (.*)$", text, re.MULTILINE)[1].split())  # type: ignore[index]
    called = set(re.findall(r"^make (\S+)", (CHECKOUT / ".ci" / "run").read_text(), re.MULTILINE))
    assert called <= declared
    assert declared == set(re.findall(r"^([a-z][a-z-]*):.*\n\t", text, re.MULTILINE))
