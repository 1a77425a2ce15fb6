"""Two people who change a document, against what the documentation says of them: other fields are put together, the same field is asked about."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from gtm.documents.merging import merge, versions
from tests.effort import examples

Path = tuple[str, ...]
Edit = tuple[Path, Any]
"""A field and what it becomes; None: it is taken away, or set to nothing."""

leaves = st.one_of(
    st.integers(0, 3), st.booleans().map(str), st.lists(st.integers(0, 2), max_size=3), st.builds(dict)
)
documents: st.SearchStrategy[dict[str, Any]] = st.recursive(
    leaves, lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3), max_leaves=8
).map(lambda found: found if isinstance(found, dict) else {"a": found})


def paths(document: Mapping[str, Any], before: Path = ()) -> list[Path]:
    """Every field, objects and what is in them."""
    found = []
    for key, value in document.items():
        found.append((*before, key))
        if isinstance(value, Mapping):
            found += paths(value, (*before, key))
    return found


def edited(document: dict[str, Any], edits: list[Edit]) -> dict[str, Any]:
    """A document after edits. Where an edit's object is not there, there is nothing to edit."""
    made = deepcopy(document)
    for path, value in edits:
        within: Any = made
        for part in path[:-1]:
            within = within.get(part) if isinstance(within, dict) else None
        if not isinstance(within, dict):
            continue
        if value is None:
            within.pop(path[-1], None)
        else:
            within[path[-1]] = deepcopy(value)
    return made


def apart(one: Path, other: Path) -> bool:
    """Whether two edits are of different fields, none of which is in the other."""
    shared = min(len(one), len(other))
    return one[:shared] != other[:shared]


@st.composite
def two_editors(draw: st.DrawFn) -> tuple[dict[str, Any], list[Edit], list[Edit]]:
    """A document, and what two people do to it."""
    was = draw(documents)
    places = paths(was)
    new = [(*path, "d") for path in [(), *places]]
    edits = st.lists(st.tuples(st.sampled_from([*places, *new]), st.none() | documents | leaves), max_size=3)
    return was, draw(edits), draw(edits)


@settings(max_examples=examples(6000), deadline=None)
@given(two_editors())
def test_changes_of_other_fields_are_put_together(
    found: tuple[dict[str, Any], list[Edit], list[Edit]],
) -> None:
    """Nobody's change is lost, nothing comes back, nothing changes that nobody changed, and nobody is asked."""
    was, one, other = found
    theirs, yours = edited(was, one), edited(was, other)
    made, asked = merge(was, theirs, yours), [each for each in versions(was, theirs, yours) if each.conflict]
    if all(apart(first, second) for first, _ in one for second, _ in other):
        assert not asked
        assert made == edited(theirs, other)
    if not asked:
        assert made == merge(was, yours, theirs), "it does not matter who is first"


@settings(max_examples=examples(3000), deadline=None)
@given(documents, documents)
def test_one_editor(was: dict[str, Any], changed: dict[str, Any]) -> None:
    """What one person alone has changed is what becomes of it; who changes the same alike is not asked."""
    assert merge(was, changed, was) == changed
    assert merge(was, was, changed) == changed
    assert merge(was, changed, changed) == changed
    for theirs, yours in ((changed, was), (was, changed), (changed, changed)):
        assert not any(one.conflict for one in versions(was, theirs, yours))


@settings(max_examples=examples(3000), deadline=None)
@given(two_editors())
def test_what_is_chosen_is_taken(found: tuple[dict[str, Any], list[Edit], list[Edit]]) -> None:
    """Where both changed the same, all of theirs or all of yours at that place; elsewhere nothing is chosen."""
    was, one, other = found
    theirs, yours = edited(was, one), edited(was, other)
    asked = [each for each in versions(was, theirs, yours) if each.conflict]
    for taken, mine in (
        (merge(was, theirs, yours, [each.path for each in asked]), "theirs"),
        (merge(was, theirs, yours), "yours"),
    ):
        for each in asked:
            assert at(taken, each.path) == getattr(each, mine)


def at(document: Mapping[str, Any] | None, path: str) -> Any:
    """What stands at a path."""
    found: Any = document
    for part in path.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found
