"""The kinds of resource that a policy consists of, as they are called in documents, tables and URLs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

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

_PLACES = {"regions": "regions", "jurisdictions": "jurisdictions", "operator_jurisdictions": "jurisdictions"}
REFERENCES: Mapping[str, Mapping[str, Any]] = {
    "services": {
        "members": {"region": "regions"},
        "zone": "zones",
        "hostnames": {"tenant": "tenants", "data_class": "data_classes"},
    },
    "residency_rules": {
        "match": {
            "services": "services",
            "tenants": "tenants",
            "data_classes": "data_classes",
            "client_jurisdictions": "jurisdictions",
            "tenant_jurisdictions": "jurisdictions",
        },
        "allow": _PLACES,
        "deny": _PLACES,
    },
    "spillover_rules": {"from_region": "regions", "to_regions": "regions"},
    "jurisdictions": {"members": "jurisdictions", "terms": {"member": "jurisdictions"}},
}
"""Kind → field → the kind of the resource that it names; of an object, or of each object in a list, its fields again."""


def references(value: Any, fields: Any, where: str = "") -> Iterator[tuple[str, str, str]]:
    """What a resource names, by its fields in `REFERENCES`: the path of each name within it, the kind named, and the name."""
    if isinstance(value, tuple):
        for index, item in enumerate(value):
            yield from references(item, fields, f"{where}[{index}]")
    elif isinstance(fields, str):
        if value is not None:
            yield where, fields, value
    elif not isinstance(value, str):  # as which a host name is written that states nothing
        for field, within in fields.items():
            yield from references(getattr(value, field), within, f"{where}.{field}" if where else field)


def label(kind: str) -> str:
    """A kind in the singular, for messages (`residency_rules` → `residency rule`)."""
    singular = {"data_classes": "data class"}.get(kind, kind.removesuffix("s"))
    return singular.replace("_", " ")
