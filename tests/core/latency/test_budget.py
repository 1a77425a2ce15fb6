"""How much a source may say of a region in a longer time."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from gtm.core.latency.samples import SourceBudget

_SPENDING = st.lists(
    st.tuples(st.sampled_from("abcd"), st.sampled_from("xy"), st.floats(0, 50, allow_nan=False)), max_size=80
)


@given(_SPENDING, st.integers(1, 3), st.integers(1, 4))
def test_no_window_exceeds_the_budget(spending: list[tuple[str, str, float]], most: int, limit: int) -> None:
    """In each window a source has at most its samples of a region, and only so many are remembered."""
    budget = SourceBudget(most, 10.0, limit)
    spent: Counter[tuple[float, str, str]] = Counter()
    for source, region, now in sorted(spending, key=lambda one: one[2]):
        if budget.spend(source, region, now):
            spent[now // 10.0, source, region] += 1
    assert all(count <= most for count in spent.values())
    windows = Counter(window for window, _, _ in spent)
    assert all(pairs <= limit for pairs in windows.values())


def test_a_new_window_is_a_new_budget() -> None:
    """What is spent comes back, and sources that found no room find some."""
    budget = SourceBudget(1, 10.0, 1)
    assert budget.spend("a", "x", 1.0)
    assert not budget.spend("a", "x", 2.0)
    assert not budget.spend("b", "x", 9.9)
    assert budget.spend("b", "x", 10.0)
