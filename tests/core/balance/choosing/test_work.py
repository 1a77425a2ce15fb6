"""What requests cost: learned by class, corrected while they run, in bounded memory."""

from __future__ import annotations

from math import inf, isfinite, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gtm.core.balance.work import FIRST_GUESS_S, AskedWork, Costs
from tests.core.strategies import quick
from tests.memory import held

seconds = st.floats(allow_nan=True, allow_infinity=True)
asked = st.builds(
    AskedWork, st.sampled_from(("a", "b")), st.integers(-5, 10**9), st.none() | st.integers(-5, 10**9)
)


@quick(200)
@given(st.lists(st.tuples(asked, seconds), max_size=40), asked, st.floats(0, 1e6))
def test_estimates_are_finite_and_not_negative(
    learned: list[tuple[AskedWork, float]], wanted: AskedWork, age: float
) -> None:
    """Whatever was learned."""
    costs = Costs()
    for one, took in learned:
        costs.learn(one, took)
    assert isfinite(costs.expected(wanted))
    assert costs.expected(wanted) >= 0
    assert costs.left(wanted, age) >= 0


@quick(100)
@given(st.lists(st.sampled_from((0.01, 0.1, 1.0, 10.0, 100.0)), min_size=1, max_size=60))
def test_what_is_left_is_the_mean_of_those_that_took_longer(durations: list[float]) -> None:
    """The model: the conditional mean. All are of one class, so that class, model and total agree."""
    costs, one = Costs(), AskedWork("a", 100, 10)
    for took in durations:
        costs.learn(one, took)
    assert costs.expected(one) == pytest.approx(sum(durations) / len(durations))
    for age in (0.03, 0.3, 3.0, 30.0):
        longer = [took - age for took in durations if took > age]
        if longer:
            assert costs.left(one, age) == pytest.approx(sum(longer) / len(longer))


def test_a_request_as_old_as_the_short_ones_is_not_one_of_them() -> None:
    """Those of about its age count as done: what is left is of those that take clearly longer."""
    costs, one = Costs(), AskedWork("a", 100, 10)
    for took in (0.2, 0.2, 12.0):
        costs.learn(one, took)
    assert costs.left(one, 0.21) == pytest.approx(12.0 - 0.21)


def test_nothing_learned_is_a_guess() -> None:
    """And what is no duration teaches nothing."""
    costs = Costs()
    for bad in (nan, inf, -1.0):
        costs.learn(AskedWork("a"), bad)
    assert costs.expected(AskedWork("a")) == FIRST_GUESS_S
    assert len(costs) == 0


def test_classes_are_told_apart() -> None:
    """By model, input and max_tokens; a class that has seen nothing leans on its model."""
    costs = Costs()
    for _ in range(500):
        costs.learn(AskedWork("a", 100, 16), 0.2)
        costs.learn(AskedWork("a", 100, 3000), 12.0)
        costs.learn(AskedWork("b", 100, 16), 3.0)
        costs.learn(AskedWork("b", 100_000, 16), 6.0)
    assert costs.expected(AskedWork("a", 100, 16)) == pytest.approx(0.2, abs=0.2)
    assert costs.expected(AskedWork("a", 100, 4000)) == pytest.approx(12.0, abs=0.5)
    assert costs.expected(AskedWork("b", 100, 16)) == pytest.approx(3.0, abs=0.2)
    assert costs.expected(AskedWork("b", 100_000, 16)) == pytest.approx(6.0, abs=0.2)
    assert costs.expected(AskedWork("a", 9, None)) == pytest.approx(6.1, abs=0.3)


def test_a_class_that_has_seen_little_is_believed_little() -> None:
    """One odd request does not make a class: it weighs one beside eight of the model's."""
    costs = Costs()
    for _ in range(200):
        costs.learn(AskedWork("a", 100, 16), 1.0)
    costs.learn(AskedWork("a", 100_000, 16), 91.0)
    assert 5 < costs.expected(AskedWork("a", 100_000, 16)) < 15


def test_old_requests_fade() -> None:
    """A model that becomes twice as slow is known as such after a few thousand requests."""
    costs, one = Costs(), AskedWork("a", 100, 16)
    for took in (1.0, 2.0):
        for _ in range(5000):
            costs.learn(one, took)
    assert costs.expected(one) == pytest.approx(2.0, abs=0.02)


def test_names_that_clients_invent_fill_no_memory() -> None:
    """The least recently used class goes first."""
    costs = Costs(classes=10)
    for number in range(1000):
        costs.learn(AskedWork("kept", 1, 1), 5.0)
        costs.learn(AskedWork(f"m{number}", number), 1.0)
    assert len(costs) == 10
    assert costs.expected(AskedWork("kept", 1, 1)) == pytest.approx(5.0, abs=0.1)


_ASKED = st.builds(
    AskedWork,
    st.sampled_from(("", "a", "b", "c")),
    st.sampled_from((0, 10, 900)),
    st.sampled_from((None, 64)),
)


@quick(200)
@given(st.lists(st.tuples(_ASKED, st.none() | st.floats(0.0, 100.0)), max_size=60), st.integers(1, 6))
def test_what_is_expected_is_what_is_left_at_first(
    steps: list[tuple[AskedWork, float | None]], classes: int
) -> None:
    """Whatever was asked before, and however much was learned since. None: somebody only asks."""
    costs = Costs(classes)
    seen: list[AskedWork] = []
    for asked, took in steps:
        seen.append(asked)
        if took is not None:
            costs.learn(asked, took)
        for one in seen:
            assert costs.expected(one) == costs.left(one, 0.0)


def test_the_first_requests_count_at_once() -> None:
    """Fifteen of them; later ones in steps of sixteen."""
    costs, asked = Costs(), AskedWork("a", 10, 10)
    for number in range(1, 16):
        costs.learn(asked, float(number))
        assert costs.expected(asked) == pytest.approx((1 + number) / 2)


def test_a_class_counts_anew_when_it_has_learned_enough() -> None:
    """However many all have learned together: the sixteenth of `a` is the nineteenth of all."""
    costs, a, b = Costs(), AskedWork("a", 10, 10), AskedWork("b", 10, 10)
    for wanted, times in ((a, 15), (b, 3)):
        for _ in range(times):
            costs.learn(wanted, 1.0)
    assert costs.expected(a) == pytest.approx(1.0)
    costs.learn(a, 100.0)
    assert costs.expected(a) > 3.0


def test_questions_fill_no_memory() -> None:
    """Of what nobody ever learns."""
    costs = Costs()

    def ask() -> None:
        for number in range(30_000):
            costs.expected(AskedWork("a", number, None))

    assert held(ask) < 500_000


def test_what_is_learned_counts_at_once() -> None:
    """Nothing of before is remembered: each request that ends changes what is expected of the next, and of those that run."""
    costs, asked = Costs(), AskedWork("m", 100)
    for _ in range(200):
        costs.learn(asked, 1.0)
    for _ in range(40):
        before = costs.expected(asked), costs.left(asked, 2.0)
        costs.learn(asked, 60.0)
        assert costs.expected(asked) > before[0]
        assert costs.left(asked, 2.0) >= before[1]
    assert costs.left(asked, 2.0) > 50.0
