"""Sources as trees, for tests that look at what code asks and names."""

from __future__ import annotations

import ast
from contextlib import suppress
from pathlib import Path


def parsed(path: Path) -> ast.Module:
    """A file's tree.

    CPython 3.11 counts how deep it is in a tree for all threads together (python/cpython#106905): where another one makes a tree at
    the same moment, or the collector comes in between, it raises a SystemError that says nothing of the file. So that is tried again.
    """
    text = path.read_text()
    for _ in range(5):
        with suppress(SystemError):
            return ast.parse(text, str(path))
    return ast.parse(text, str(path))
