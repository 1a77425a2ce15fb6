"""What the fuzzer found worth keeping, replayed."""

from __future__ import annotations

from pathlib import Path

from .check import check

CORPUS = sorted((Path(__file__).parent / "corpus").iterdir())


def test_corpus() -> None:
    """Every packet of the corpus is answered the same both ways, and its reply can be read."""
    for path in CORPUS:
        check(path.read_bytes())


def test_the_corpus_is_small() -> None:
    """The corpus is a hundred files and 200 kB at most."""
    assert 0 < len(CORPUS) <= 100
    assert sum(path.stat().st_size for path in CORPUS) <= 200_000
