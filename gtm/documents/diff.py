"""What changes between two policies. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from gtm.core.model.kinds import KINDS
from gtm.core.model.policy import Policy
from gtm.documents.schema import to_document


class Action(StrEnum):
    """The change that is made to a resource."""

    CREATED = "created"
    UPDATED = "updated"
    DELETED = "deleted"


@dataclass(frozen=True, slots=True)
class FieldChange:
    """A field that differs: its path (`probe.interval`), and both values as JSON. Lists are compared as a whole."""

    path: str
    before: Any
    after: Any


@dataclass(frozen=True, slots=True)
class ResourceChange:
    """A resource that differs; `fields` only where it is in both policies."""

    kind: str
    name: str
    action: Action
    fields: tuple[FieldChange, ...] = ()


def diff_policies(before: Policy, after: Policy) -> tuple[ResourceChange, ...]:
    """Everything that differs, by kind in the order of `Policy`, then by name. The order of resources means nothing."""
    changes: list[ResourceChange] = []
    for kind in KINDS:
        old = {item.name: item for item in getattr(before, kind)}
        new = {item.name: item for item in getattr(after, kind)}
        for name in sorted(old.keys() | new.keys()):
            if name not in old:
                changes.append(ResourceChange(kind, name, Action.CREATED))
            elif name not in new:
                changes.append(ResourceChange(kind, name, Action.DELETED))
            elif old[name] != new[name]:
                fields = tuple(_fields("", to_document(old[name]), to_document(new[name])))
                changes.append(ResourceChange(kind, name, Action.UPDATED, fields))
    return tuple(changes)


def summary(changes: tuple[ResourceChange, ...]) -> dict[str, dict[str, int]]:
    """Kind → action → how many; what did not change is left out."""
    counted = Counter((change.kind, change.action) for change in changes)
    result: dict[str, dict[str, int]] = {}
    for (kind, action), number in counted.items():
        result.setdefault(kind, {})[action.value] = number
    return result


def _fields(path: str, before: Any, after: Any) -> Iterator[FieldChange]:
    if isinstance(before, dict) and isinstance(after, dict):
        for key in (*before, *(key for key in after if key not in before)):
            inner = f"{path}.{key}" if path else key
            yield from _fields(inner, before.get(key), after.get(key))
    elif before != after:
        yield FieldChange(path, before, after)
