"""Admission follows its page in random worlds: everything that a data plane may do, in any order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.core.balance.admission.pair import SLOTS, Pair, world
from tests.core.strategies import quick
from tests.effort import examples


@quick(120)
@given(st.data(), st.integers(1, 30))
def test_admission_follows_its_page(data: st.DataObject, steps: int) -> None:
    """Short walks, which shrink to what matters."""

    def choose(options: Sequence[Any]) -> Any:
        return data.draw(st.sampled_from(options))

    pair = Pair(world(choose), choose(SLOTS))
    for _ in range(steps):
        pair.step(choose)
    pair.end()


def test_admission_follows_its_page_for_long() -> None:
    """Long walks, on which everything that can be said is said."""
    seen: Counter[str] = Counter()
    for seed in range(examples(720)):
        choose = Random(seed).choice
        pair = Pair(world(choose), choose(SLOTS))
        for _ in range(120):
            pair.step(choose)
        pair.end()
        seen += pair.seen
    rare = {name: count for name, count in seen.items() if count < 10}
    assert not rare
    assert len(seen) == 14, seen
