"""Who counts as one with whom: what `in_one_hand` says, by its definition and in its words."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gtm.core.model.access import ANYBODY, UNKNOWN_HANDS, Hands, HandsReason, Shared, in_one_hand

NAMES = st.sampled_from(["ann", "Ann", "bob", "carl", "a@x", "b@x", ANYBODY])
HANDS = st.builds(Hands, st.none() | NAMES, st.lists(NAMES, max_size=3).map(tuple))
ACCOUNTS = st.dictionaries(
    st.sampled_from(["ann", "a@x", "b@x"]),
    st.sets(st.sampled_from(["p#1", "p#2"]), min_size=1).map(frozenset),
)


@given(HANDS, HANDS, ACCOUNTS)
def test_one_hand_is_somebody_in_both(
    first: Hands, second: Hands, accounts: dict[str, frozenset[str]]
) -> None:
    """Just if somebody is in both, whatever they are called there, or nobody knows; and it is the same the other way round."""

    def people(hands: Hands) -> set[str]:
        found: set[str] = set()
        for name in (hands.owner, *hands.makers):
            found |= accounts.get((name or "*").lower(), {(name or "*").lower()})
        return found

    mine, theirs = people(first), people(second)
    expected = bool(mine & theirs) or "*" in mine | theirs
    assert (in_one_hand(first, second, accounts) is not None) is expected
    assert (in_one_hand(second, first, accounts) is not None) is expected


@given(HANDS, HANDS, ACCOUNTS, NAMES)
def test_more_hands_never_part(
    first: Hands, second: Hands, accounts: dict[str, frozenset[str]], more: str
) -> None:
    """Who is one stays so when another is added to either."""
    if in_one_hand(first, second, accounts) is not None:
        assert in_one_hand(first, Hands(second.owner, (*second.makers, more)), accounts) is not None


def test_why() -> None:
    """In the order in which it is said."""
    accounts = {"ann@old": frozenset({"p#1"}), "ann@new": frozenset({"p#1"})}
    ann = Hands("ann@new")
    cases = {
        (ann, Hands("ann@old", ("bob",))): Shared(HandsReason.OWNER, "ann@old"),
        (ann, Hands("ANN@old")): Shared(HandsReason.OWNER, "ANN@old"),
        (ann, Hands("bob", ("ann@old",))): Shared(HandsReason.FIRST_MADE_SECOND, "ann@old"),
        (Hands("bob", ("ann@old",)), ann): Shared(HandsReason.SECOND_MADE_FIRST, "ann@new"),
        (Hands("bob", ("ann@old",)), Hands("carl", ("ann@new",))): Shared(HandsReason.MAKER, "ann@new"),
        (UNKNOWN_HANDS, ann): Shared(HandsReason.UNKNOWN_FIRST, ANYBODY),
        (ann, Hands("bob", (ANYBODY,))): Shared(HandsReason.UNKNOWN_SECOND, ANYBODY),
        (ann, Hands("bob")): None,
    }
    for (first, second), said in cases.items():
        assert in_one_hand(first, second, accounts) == said
