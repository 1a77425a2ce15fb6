"""A whole policy as a document, and documents ↔ core values.

Those of single kinds are in `gtm.documents.resources` and `gtm.documents.resources`.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Self, TypeVar, get_args

import msgspec
from pydantic import Field

from gtm.core.model.kinds import KINDS, Resource
from gtm.core.model.policy import Policy
from gtm.core.model.regions import Region
from gtm.core.model.services import Zone
from gtm.documents.resources import (
    MAX_RESOURCES,
    DataClassDocument,
    Document,
    JurisdictionDocument,
    RegionDocument,
    ResidencyRuleDocument,
    ResourceDocument,
    ServiceDocument,
    SpilloverRuleDocument,
    TenantDocument,
    ZoneDocument,
)

D = TypeVar("D")
_List = Annotated[tuple[D, ...], Field(max_length=MAX_RESOURCES)]


class PolicyDocument(Document):
    """A whole policy: a list of documents for each kind of resource."""

    regions: _List[RegionDocument] = ()
    zones: _List[ZoneDocument] = ()
    services: _List[ServiceDocument] = ()
    residency_rules: _List[ResidencyRuleDocument] = ()
    spillover_rules: _List[SpilloverRuleDocument] = ()
    jurisdictions: _List[JurisdictionDocument] = ()
    tenants: _List[TenantDocument] = ()
    data_classes: _List[DataClassDocument] = ()

    @classmethod
    def of(cls, policy: Policy) -> Self:
        """The document of a policy, admin states and challenges included.

        Raises:
            ValidationError: the policy holds what no document may.
        """
        return cls.model_validate(msgspec.to_builtins(policy))

    def to_core(self, before: Policy | None = None, now: datetime | None = None) -> Policy:
        """The core value; regions without an admin state and zones without challenges keep those of `before`, and drains begin `now`."""
        known: dict[type, dict[str, Region | Zone]] = {}
        if before is not None:
            known[Region] = {region.name: region for region in before.regions}
            known[Zone] = {zone.name: zone for zone in before.zones}
        return Policy(
            **{
                kind: tuple(
                    item.to_core(core, known.get(core, {}).get(item.name), now)
                    for item in getattr(self, kind)
                )
                for kind, core in KINDS.items()
            }
        )


DOCUMENTS: dict[str, type[ResourceDocument[Any]]] = {
    kind: get_args(field.annotation)[0] for kind, field in PolicyDocument.model_fields.items()
}
"""Kind → its document, in the order of `gtm.core.model.kinds.KINDS`."""


def to_document(value: Resource) -> dict[str, Any]:
    """A core value as a JSON object that its document accepts."""
    document: dict[str, Any] = msgspec.to_builtins(value)
    return document


def concise_policy(policy: Policy, *, admin_states: bool = False) -> dict[str, list[dict[str, Any]]]:
    """A policy as `PolicyDocument` accepts it, without what is the default anyway: for people to read and edit."""
    document = PolicyDocument.model_validate(export_policy(policy, admin_states=admin_states))
    concise: dict[str, list[dict[str, Any]]] = document.model_dump(mode="json", exclude_defaults=True)
    return concise


def export_policy(policy: Policy, *, admin_states: bool = False) -> dict[str, list[dict[str, Any]]]:
    """A policy as a JSON object that `PolicyDocument` accepts.

    Args:
        policy: what to export.
        admin_states: whether regions carry theirs, and zones their challenges. A policy kept in version control should not:
            applied again, it would undo a drain made since, and delete what a certificate authority is about to ask for.
    """
    exported: dict[str, list[dict[str, Any]]] = msgspec.to_builtins(policy)
    if not admin_states:
        for region in exported["regions"]:
            del region["admin_state"], region["draining_since"]
        for zone in exported["zones"]:
            del zone["challenges"]
    return exported
