"""The README's examples, run against a demo system of their own: a plan keeps what spillover moved until clients come again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.docs.blocks import Block, runnable
from tests.docs.reader import works
from tests.system.harness import System, system

LONDON = "81.2.69.142"
BLOCKS = tuple(runnable("README.md"))


def test_examples_are_found() -> None:
    """The README holds examples, so that a change of their marks is not taken for success."""
    assert BLOCKS


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    """A demo system for the README."""
    with system(tmp_path_factory.mktemp("readme") / "data", "--demo") as running:
        # Whoever types the first request as soon as gtm says that it is ready is answered: a new edge's key has to be known by then.
        first = httpx.get(f"{running.edge}/r/records/v1/models", headers={"X-Forwarded-For": LONDON})
        assert (first.status_code, first.headers.get("x-gtm-not-carried")) == (200, None), first.text
        yield running


@pytest.mark.system
@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_example(tmp_path: Path, demo: System, block: Block) -> None:
    """An example works as the README shows it."""
    works(block, demo, tmp_path)
