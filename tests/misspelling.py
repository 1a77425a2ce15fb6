"""Every field of every kind of resource, written wrong: for tests that whatever reads a policy says so."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from tests.release.terraform_spec import KINDS, LEFT_OUT, spec

Tree = dict[str, Any]
"""Field → its own fields, empty if it has none."""


def misspelt(field: str) -> tuple[str, str]:
    """Two ways to write a field wrong: a letter too much, and two letters in the wrong order."""
    first = next(place for place in range(len(field) - 1) if field[place] != field[place + 1])
    swapped = field[:first] + field[first + 1] + field[first] + field[first + 2 :]
    return field + field[-1], swapped


def fields(attribute: Mapping[str, Any]) -> Tree:
    """The fields of a kind or of an attribute, as the API has them."""
    found = attribute.get("attributes") or (attribute.get("element") or {}).get("attributes") or []
    return {field["name"]: fields(field) for field in found}


def objects(tree: Tree, above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], list[str]]]:
    """Each object in a tree of fields: the way to it, and its fields."""
    yield above, list(tree)
    for name, inner in tree.items():
        if inner:
            yield from objects(inner, (*above, name))


@cache
def wrong_documents() -> list[tuple[str, dict[str, Any], list[tuple[str, str]]]]:
    """For each object of each kind a document in which all fields of that object are written wrong.

    Returns:
        The kind (`services`), the document, and of each wrong field its path in the document (`members[0].wieght`) with the field that was meant.
    """
    found = []
    for kind in spec()["kinds"]:
        lists = {path for path, one in _attributes(kind) if one["type"] in {"list", "set"}}
        for way, names in objects(fields(kind)):
            document: Any = {wrong: 1 for name in names for wrong in misspelt(name)}
            for depth in range(len(way) - 1, -1, -1):
                listed = way[: depth + 1] in lists
                document = {way[depth]: [document] if listed else document}
            steps = [name + "[0]" * (way[: depth + 1] in lists) + "." for depth, name in enumerate(way)]
            wrong = [("".join(steps) + one, name) for name in names for one in misspelt(name)]
            found.append((kind["field"], document, wrong))
    assert {kind for kind, _, _ in found} == set(KINDS)
    assert LEFT_OUT.keys() == {"region.admin_state", "region.draining_since", "zone.challenges"}
    return found


def _attributes(
    attribute: Mapping[str, Any], above: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Mapping[str, Any]]]:
    inner = attribute.get("attributes") or (attribute.get("element") or {}).get("attributes") or []
    for one in inner:
        yield (*above, one["name"]), one
        yield from _attributes(one, (*above, one["name"]))
