"""Who refers to a resource: the other way round of the references that a policy is compiled with. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gtm.core.model.kinds import REFERENCES, references
from gtm.core.model.policy import Policy


@dataclass(frozen=True, slots=True)
class Reference:
    """A resource that names another, and where: `path` is within it (`members[0].region`)."""

    kind: str
    name: str
    path: str
    """The place of the reference in the document: `members[0].region`."""


Referrers = Mapping[tuple[str, str], Sequence[Reference]]
"""Kind and name of a resource → all references to it, in the policy's order; each resource once for each field that names it."""


def referrers(policy: Policy) -> Referrers:
    """Of all resources that something refers to."""
    referring: dict[tuple[str, str], list[Reference]] = {}
    for kind, fields in REFERENCES.items():
        # A term names one of the members once more.
        named = {field: target for field, target in fields.items() if field != "terms"}
        for item in getattr(policy, kind):
            for path, target, name in references(item, named):
                referring.setdefault((target, name), []).append(Reference(kind, item.name, path))
    return referring
