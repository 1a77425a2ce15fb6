"""Who refers to a resource: the other way round of the references that a policy is compiled with. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from gtm.core.model.policy import Places, Policy, ResidencyRule
from gtm.core.model.services import Service


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
    for *found, target, named in _references(policy):
        referring.setdefault((target, named), []).append(Reference(*found))
    return referring


_Named = tuple[str, str, str, str, str]
"""Kind, name and path of who refers; kind and name of what it refers to."""


def _references(policy: Policy) -> Iterator[_Named]:
    for service in policy.services:
        yield from _of_service(service)
    for rule in policy.residency_rules:
        yield from _of_rule(rule)
    for spill in policy.spillover_rules:
        yield "spillover_rules", spill.name, "from_region", "regions", spill.from_region
        yield from _listed("spillover_rules", spill.name, "to_regions", "regions", spill.to_regions)
    for one in policy.jurisdictions:
        yield from _listed("jurisdictions", one.name, "members", "jurisdictions", one.members)


def _of_service(service: Service) -> Iterator[_Named]:
    for index, member in enumerate(service.members):
        yield "services", service.name, f"members[{index}].region", "regions", member.region
    if service.zone is not None:
        yield "services", service.name, "zone", "zones", service.zone
    for index, host in enumerate(service.names):
        if host.tenant is not None:
            yield "services", service.name, f"hostnames[{index}].tenant", "tenants", host.tenant
        if host.data_class is not None:
            yield "services", service.name, f"hostnames[{index}].data_class", "data_classes", host.data_class


def _of_rule(rule: ResidencyRule) -> Iterator[_Named]:
    match = rule.match
    for field, target, names in (
        ("services", "services", match.services),
        ("client_jurisdictions", "jurisdictions", match.client_jurisdictions),
        ("tenants", "tenants", match.tenants),
        ("tenant_jurisdictions", "jurisdictions", match.tenant_jurisdictions),
        ("data_classes", "data_classes", match.data_classes),
    ):
        yield from _listed("residency_rules", rule.name, f"match.{field}", target, names)
    for word, places in (("allow", rule.allow), ("deny", rule.deny)):
        yield from _of_places(rule.name, word, places)


def _of_places(rule: str, word: str, places: Places) -> Iterator[_Named]:
    yield from _listed("residency_rules", rule, f"{word}.regions", "regions", places.regions)
    for field, names in (
        ("jurisdictions", places.jurisdictions),
        ("operator_jurisdictions", places.operator_jurisdictions),
    ):
        yield from _listed("residency_rules", rule, f"{word}.{field}", "jurisdictions", names)


def _listed(kind: str, name: str, field: str, target: str, names: Iterable[str]) -> Iterator[_Named]:
    for index, one in enumerate(names):
        yield kind, name, f"{field}[{index}]", target, one
