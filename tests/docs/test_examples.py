"""The documents' examples, run against a demo system; those of the README stand in test_readme.py."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.blocks import Block, difference, runnable
from tests.docs.reader import works
from tests.system.harness import System, system

DOCUMENTS = (
    "docs/api.md",
    "docs/concepts.md",
    "docs/dns.md",
    "docs/cli.md",
    "docs/simulate.md",
    "docs/dnssec.md",
    "docs/lists.md",
    "docs/carry.md",
)
BLOCKS = [block for document in DOCUMENTS for block in runnable(document)]


def test_examples_are_found() -> None:
    """The documents hold examples, so that a change of their marks is not taken for success."""
    assert {block.document for block in BLOCKS} >= {"docs/api.md", "docs/cli.md"}


def test_differences_are_found() -> None:
    """A wrong document is told from a right one, whatever differs from run to run."""
    assert difference('{"a":1,…"revision":7}', '{"a":1,"b":2,"revision":12}\n') is None
    assert difference("region   eu-west", "region eu-west\n") is None
    assert difference("eu-west", "eu-central") is not None
    assert difference("eu-west", "eu-west\nand more") is not None


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    """A demo system for the examples of all these documents."""
    with system(tmp_path_factory.mktemp("docs") / "data", "--demo") as running:
        yield running


@pytest.mark.system
@pytest.mark.drill
@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_example(tmp_path: Path, demo: System, block: Block) -> None:
    """An example works as its document shows it."""
    works(block, demo, tmp_path)
