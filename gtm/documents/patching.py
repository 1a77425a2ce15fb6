"""JSON Merge Patch (RFC 7396): some members of a document, written over those that it has. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MEDIA_TYPE = "application/merge-patch+json"


def patched(document: Any, patch: Mapping[str, Any], *, keep_nulls: bool = False) -> dict[str, Any]:
    """A document with a patch in it: null takes a member away, objects are merged, all else (lists too) takes the member's place.

    `keep_nulls`: null stays as a value, so that a member of which nobody knows is still there to be found.

    >>> patched({"a": 1, "b": {"c": 2, "d": 3}, "e": [4, 5]}, {"a": None, "b": {"c": 6}, "e": [7]})
    {'b': {'c': 6, 'd': 3}, 'e': [7]}
    """
    made = dict(document) if isinstance(document, Mapping) else {}
    for name, value in patch.items():
        if isinstance(value, Mapping):
            made[name] = patched(made.get(name), value, keep_nulls=keep_nulls)
        elif value is None and not keep_nulls:
            made.pop(name, None)
        else:
            made[name] = value
    return made
