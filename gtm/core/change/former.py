"""What a change takes away and brings back, of that which keeps its rules (docs/simulate.md, "What is gone")."""

from __future__ import annotations

from dataclasses import dataclass

from gtm.core.change.leads import Leads, LeadsOf, leading, refusals_of, servers_of, targets_of
from gtm.core.model.names import WILDCARD, ancestors
from gtm.core.model.policy import Policy, RuleMode
from gtm.core.model.regions import Region
from gtm.core.policy.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Moves:
    """What goes and comes.

    Attributes:
        names: host names, and aliases that lead to some, that a service decided and none decides any more.
        services: that are deleted.
        targets: addresses and names of endpoints that no region has any more, each with a region that had it.
        names_back: names that a service decides again or, where that is released, that lead anywhere.
        services_back: services that are there again.
        targets_back: targets that some region has again.
    """

    names: frozenset[str] = frozenset()
    services: frozenset[str] = frozenset()
    targets: tuple[tuple[str, Region], ...] = ()
    names_back: frozenset[str] = frozenset()
    services_back: frozenset[str] = frozenset()
    targets_back: frozenset[str] = frozenset()


def moves(
    before: Snapshot, after: Snapshot, leads: LeadsOf, remembered: frozenset[str], *, released: bool
) -> Moves:
    """What a change takes away and brings back.

    Args:
        before: the old policy.
        after: the new one.
        leads: tells what a policy's names lead to.
        remembered: names that are gone before the change already.
        released: somebody who may has let out what the change opens.
    """
    if leading(before) == leading(after):
        return Moves()
    old, new = leads(before), leads(after)
    bound = any(rule.mode is RuleMode.ENFORCE for rule in before.policy.residency_rules)
    names, services = set[str](), set[str]()
    if bound:
        for name in {*before.hostnames, *old.names}:
            led = new.at(name)
            if old.at(name).services and not led.services and not (released and led.targets):
                names.add(name)
        services = set(before.services.keys() - after.services.keys())
    back = set()
    for name in remembered:
        led = new.at(name)
        if led.services or (released and led.targets):
            back.add(name)
    kept = {target for region in after.regions for target in targets_of(region)}
    return Moves(
        names=frozenset(names),
        services=frozenset(services),
        targets=tuple(
            (target, region)
            for region in before.regions
            for target in sorted(targets_of(region))
            if target not in kept
        ),
        names_back=frozenset(back),
        services_back=frozenset(after.services),
        targets_back=frozenset(kept),
    )


def led_to(snapshot: Snapshot, leads: Leads) -> frozenset[str]:
    """All targets that a policy's regions, names and refusals lead to."""
    found = {target for region in snapshot.regions for target in targets_of(region)}
    for name in leads.names:
        found |= leads.at(name).targets
    for item in snapshot.services.values():
        found |= refusals_of(item.service.refusal)
    return frozenset(found)


def may_be_back(name: str, before: Policy, after: Snapshot) -> bool:
    """Whether a change leaves anything at a name that is gone, or below it, or a wildcard above it, or gives its zone to others."""
    own = name.removeprefix(WILDCARD)
    existing = after.existing
    if own in existing or any(f"{WILDCARD}{above}" in existing for above in ancestors(own)):
        return True
    zones = {zone.name: zone for zone in before.zones}
    return servers_of(zones, own) != servers_of(after.zones, own)
