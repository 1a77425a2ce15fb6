"""Three versions of a document: what it was, what somebody else made of it, and what somebody wants to make of it. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

WHOLE = ""
"""The path of a document as a whole: it was deleted, or is to be."""


@dataclass(frozen=True, slots=True)
class FieldVersions:
    """A field in which two versions differ: its path (`match.services`) and its values; None: the default, or nothing.

    `conflict`: both have changed it, and not alike. Lists are compared as a whole.
    """

    path: str
    was: Any
    theirs: Any
    yours: Any
    conflict: bool


_Document = Mapping[str, Any] | None


def versions(was: _Document, theirs: _Document, yours: _Document) -> tuple[FieldVersions, ...]:
    """What differs among three versions of a document, by field; None: there is no such document."""
    if theirs == yours:
        return ()
    if theirs is None or yours is None:
        conflict = was not in (theirs, yours)
        return (FieldVersions(WHOLE, was, theirs, yours, conflict),)
    old, left, right = _flat(was or {}), _flat(theirs), _flat(yours)
    return tuple(
        FieldVersions(path, before, one, other, conflict=one != other and before not in (one, other))
        for path in dict.fromkeys((*old, *left, *right))
        for before, one, other in ((old.get(path), left.get(path), right.get(path)),)
        if one != other
    )


def merge(
    was: _Document, theirs: _Document, yours: _Document, take_theirs: Collection[str] = ()
) -> _Document:
    """Both changes in one document; where both changed the same field it is yours, but for those named.

    Args:
        was: what both began from.
        theirs: what somebody else made of it.
        yours: what is wanted.
        take_theirs: paths at which theirs is taken; `WHOLE` for the document itself.
    """
    if theirs is None or yours is None:
        if WHOLE in take_theirs or (yours == was and theirs != was):
            return theirs
        return yours
    made = _flat(theirs)
    for one in versions(was, theirs, yours):
        value = one.theirs if one.path in take_theirs or one.yours == one.was else one.yours
        if value is None:
            made.pop(one.path, None)
        else:
            made[one.path] = value
    return _deep(made)


def _flat(document: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in document.items():
        path = f"{before}.{key}" if before else key
        if isinstance(value, Mapping):
            found |= _flat(value, path)
        elif value is not None:
            found[path] = value
    return found


def _deep(flat: Mapping[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for path, value in flat.items():
        *way, last = path.split(".")
        within = made
        for part in way:
            within = within.setdefault(part, {})
        within[last] = value
    return made
