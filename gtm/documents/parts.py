"""Parts of a policy: what changes, put into the whole that it changes. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime
from hashlib import blake2b
from itertools import chain
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from gtm.core.model.kinds import KINDS
from gtm.core.model.policy import Policy
from gtm.documents import fields as f
from gtm.documents.resources import MAX_RESOURCES, Document
from gtm.documents.schema import PolicyDocument

KindName = Literal[
    "regions",
    "zones",
    "services",
    "residency_rules",
    "spillover_rules",
    "jurisdictions",
    "tenants",
    "data_classes",
]


class ResourceName(Document):
    """A resource of the policy."""

    kind: KindName
    name: Annotated[f.HostName | f.JurisdictionName, Field(max_length=253)]


_DERIVED = re.compile(r'("[0-9]+)-[0-9a-f]{16}(?=")')


def derived_tag(tag: str, shown: bytes) -> str:
    """The entity tag of what is shown of a resource together with what it takes from elsewhere: other resources, the date, gtm's own data.

    Conditions on writes read it as the resource's own tag: nothing but what the resource itself says can be lost.
    """
    return f'{tag[:-1]}-{blake2b(shown, digest_size=8).hexdigest()}"'


def own_tag(tag: str) -> str:
    """The tag of the resource itself, from one of `derived_tag`; any other tag as it is."""
    return _DERIVED.sub(r"\1", tag)


class Held(ResourceName):
    """A resource as somebody has read it."""

    tag: Annotated[
        str, Field(max_length=60, pattern='^("[0-9]+(-[0-9a-f]{16})?")?$'), AfterValidator(own_tag)
    ]
    """Its entity tag; empty: there was none."""


class DraftDocument(Document):
    """A whole policy, or a part of one."""

    policy: PolicyDocument
    partial: f.Flag = False
    """Whether resources that the policy does not hold stay as they are; otherwise they are deleted."""
    delete: Annotated[tuple[ResourceName, ...], Field(max_length=MAX_RESOURCES)] = ()
    """What is deleted although the policy is partial."""

    def within(self, policy: Policy, now: datetime | None = None) -> Policy:
        """The whole policy that the draft makes of the one in force."""
        wanted = self.policy.to_core(policy, now)
        if not self.partial:
            return wanted
        return merged(policy, wanted, {(one.kind, one.name) for one in self.delete})


def merged(policy: Policy, part: Policy, deleted: Iterable[tuple[str, str]] = ()) -> Policy:
    """A policy with the resources of a part in place of its own of the same names, and without those that are deleted."""
    gone = set(deleted)
    return Policy(**{kind: _items(kind, policy, part, gone) for kind in KINDS})


def _items(kind: str, policy: Policy, part: Policy, gone: set[tuple[str, str]]) -> tuple[Any, ...]:
    # In the place of the old ones, so that regions keep their numbers. A name that the part has twice stays there twice: the
    # compiler says so.
    new: dict[str, list[Any]] = {}
    for item in getattr(part, kind):
        new.setdefault(item.name, []).append(item)
    kept = [
        one
        for item in getattr(policy, kind)
        for one in new.pop(item.name, () if (kind, item.name) in gone else (item,))
    ]
    return (*kept, *chain.from_iterable(new.values()))
