"""The kinds of resource that a policy consists of, as they are called in documents, tables and URLs."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from gtm.core.model.policy import DataClass, Jurisdiction, ResidencyRule, SpilloverRule, Tenant
from gtm.core.model.regions import Region
from gtm.core.model.services import Service, Zone

Resource = Region | Zone | Service | ResidencyRule | SpilloverRule | Jurisdiction | Tenant | DataClass

KINDS: Mapping[str, type[Resource]] = MappingProxyType(
    {
        "regions": Region,
        "zones": Zone,
        "services": Service,
        "residency_rules": ResidencyRule,
        "spillover_rules": SpilloverRule,
        "jurisdictions": Jurisdiction,
        "tenants": Tenant,
        "data_classes": DataClass,
    }
)
"""Kind → its value. The kinds are the fields of `gtm.core.model.policy.Policy`, in its order."""


def label(kind: str) -> str:
    """A kind in the singular, for messages (`residency_rules` → `residency rule`)."""
    singular = {"data_classes": "data class"}.get(kind, kind.removesuffix("s"))
    return singular.replace("_", " ")
