"""Three versions of a document: what it was, what somebody else made of it, and what somebody wants to make of it. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
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
_Three = tuple[Mapping[str, Any], Mapping[str, Any], Mapping[str, Any]]


def versions(was: _Document, theirs: _Document, yours: _Document) -> tuple[FieldVersions, ...]:
    """What differs among three versions of a document, by field; None: there is no such document.

    Objects are compared field by field where both versions have one. Where one of them has none, or something else, the field is
    compared as a whole: who takes an object away and who changes something in it want different things.
    """
    if theirs is None or yours is None:
        if theirs == yours:
            return ()
        return (FieldVersions(WHOLE, was, theirs, yours, was not in (theirs, yours)),)
    return tuple(_differences(was or {}, theirs, yours))


def _differences(
    was: Mapping[str, Any], theirs: Mapping[str, Any], yours: Mapping[str, Any], before: str = ""
) -> Iterator[FieldVersions]:
    for key in dict.fromkeys((*was, *theirs, *yours)):
        path = f"{before}.{key}" if before else key
        old, one, other = was.get(key), theirs.get(key), yours.get(key)
        if one == other:
            continue
        if objects := _objects(old, one, other):
            yield from _differences(*objects, path)
        else:
            yield FieldVersions(path, old, one, other, conflict=old not in (one, other))


def _objects(was: Any, theirs: Any, yours: Any) -> _Three | None:
    """Three versions of an object whose fields are compared; None: they are compared as a whole."""
    three = {} if was is None else was, theirs, yours
    return three if all(isinstance(one, Mapping) for one in three) else None


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
    return _merged(was or {}, theirs, yours, take_theirs)


def _merged(
    was: Mapping[str, Any],
    theirs: Mapping[str, Any],
    yours: Mapping[str, Any],
    taken: Collection[str],
    before: str = "",
) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for key in dict.fromkeys((*theirs, *yours)):
        path = f"{before}.{key}" if before else key
        old, one, other = was.get(key), theirs.get(key), yours.get(key)
        if one != other and (objects := _objects(old, one, other)):
            made[key] = _merged(*objects, taken, path)
            continue
        chosen = theirs if other in (one, old) or path in taken else yours
        if key in chosen:
            made[key] = chosen[key]
    return made
