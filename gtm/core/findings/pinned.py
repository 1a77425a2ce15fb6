"""Which services DNS keeps inside a fence that concerns some tenants or data classes only.

DNS states neither, unless the host name does, and what is not said counts as a match: one customer's rule then holds for
everyone who asks DNS.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from gtm.core.findings.coverage import client_words, concerned, may_concern
from gtm.core.model.problems import Problem
from gtm.core.model.references import some
from gtm.core.model.services import HostName
from gtm.core.policy.snapshot import CompiledRule, CompiledService, Snapshot


@dataclass(slots=True)
class _Pin:
    """Rules that hold for the same clients of some host names, and what these names do not state."""

    rules: dict[str, int] = field(default_factory=dict)
    hosts: dict[str, None] = field(default_factory=dict)
    unstated: dict[str, None] = field(default_factory=dict)


def pinned(snapshot: Snapshot, now: float) -> Iterator[Problem]:
    """Services whose host names are answered, for everyone, as a rule for some tenants or data classes asks.

    Args:
        snapshot: the policy.
        now: POSIX seconds.

    Yields:
        `dns_pinned`: a service, the rules, the host names, which regions DNS can still answer with, and what to do. Of
        rules about clients in different countries, each such set is told by itself.
    """
    for name, service in snapshot.services.items():
        pins: dict[tuple[str, ...], _Pin] = {}
        for host in service.service.names:
            for rule, unstated in _pinning(service, host, now):
                pin = pins.setdefault(tuple(sorted(concerned(rule))), _Pin())
                pin.rules[rule.rule.name] = pin.rules.get(rule.rule.name, -1) & rule.allowed
                pin.hosts[host.name] = None
                pin.unstated.update(dict.fromkeys(unstated))
        for clients, pin in pins.items():
            text = _sentence(snapshot, service, clients, pin)
            yield Problem(f"services.{name}.hostnames", "dns_pinned", text)


def _pinning(
    service: CompiledService, host: HostName, now: float
) -> Iterator[tuple[CompiledRule, list[str]]]:
    """The rules in force that hold for all who ask by a name for want of a statement, and the statements wanted."""
    for rule in service.rules:
        if rule.tenants is rule.data_classes is None or not rule.enforced or not service.mask & ~rule.allowed:
            continue
        wanted = (("tenant", rule.tenants, host.tenant), ("data class", rule.data_classes, host.data_class))
        unstated = [what for what, about, said in wanted if about is not None and said is None]
        if unstated and rule.starts <= now < rule.ends and may_concern(rule, host):
            yield rule, unstated


def _sentence(snapshot: Snapshot, service: CompiledService, clients: tuple[str, ...], pin: _Pin) -> str:
    left = service.mask
    for allowed in pin.rules.values():
        left &= allowed
    names = [f"`{name}`" for name in pin.rules]
    cause = f"rule{'s' * (len(names) > 1)} {some(names, 'rules')}"
    regions = some(snapshot.names(left), "regions") if left else "no region"
    asked = some([f"`{host}`" for host in pin.hosts], "names")
    return (
        f"DNS states no {' and no '.join(sorted(pin.unstated, reverse=True))}: by residency {cause} it answers, for {asked}, "
        f"{client_words(clients)} with {regions} alone, of {service.mask.bit_count()} regions; give "
        "those who are meant host names of their own, and state under `hostnames` whose requests come by each"
    )
