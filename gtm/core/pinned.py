"""Which services DNS keeps inside a fence that concerns some tenants or data classes only.

DNS states neither, and what is not said counts as a match: one customer's rule then holds for everyone who asks DNS.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gtm.core.coverage import client_words, concerned
from gtm.core.problems import Problem
from gtm.core.references import some
from gtm.core.snapshot import CompiledRule, CompiledService, Snapshot


def pinned(snapshot: Snapshot, now: float) -> Iterator[Problem]:
    """Services whose host names are answered, for everyone, as a rule for some tenants or data classes asks.

    Args:
        snapshot: the policy.
        now: POSIX seconds.

    Yields:
        `dns_pinned`: a service, the rules, which regions DNS can still answer with, and what to do. Of rules about
        clients in different countries, each such set is told by itself.
    """
    for name, service in snapshot.services.items():
        if not service.service.hostnames:
            continue
        alike: dict[tuple[str, ...], list[CompiledRule]] = {}
        for rule in _scoped(service, now):
            alike.setdefault(tuple(sorted(concerned(rule))), []).append(rule)
        for clients, rules in alike.items():
            text = _sentence(snapshot, service, clients, rules)
            yield Problem(f"services.{name}.hostnames", "dns_pinned", text)


def _scoped(service: CompiledService, now: float) -> Iterator[CompiledRule]:
    """The rules in force that concern some tenants or data classes, and take regions from the service."""
    for rule in service.rules:
        about_some = rule.tenants is not None or rule.data_classes is not None
        if about_some and rule.enforced and rule.starts <= now < rule.ends and service.mask & ~rule.allowed:
            yield rule


def _sentence(
    snapshot: Snapshot, service: CompiledService, clients: tuple[str, ...], rules: Iterable[CompiledRule]
) -> str:
    left = service.mask
    names, unstated = [], set()
    for rule in rules:
        left &= rule.allowed
        names.append(f"`{rule.rule.name}`")
        unstated |= {"tenant"} if rule.tenants is not None else set()
        unstated |= {"data class"} if rule.data_classes is not None else set()
    cause = f"rule{'s' * (len(names) > 1)} {some(names, 'rules')}"
    regions = some(snapshot.names(left), "regions") if left else "no region"
    return (
        f"DNS states no {' and no '.join(sorted(unstated, reverse=True))}: by residency {cause} it answers "
        f"{client_words(clients)} with {regions} alone, of {service.mask.bit_count()} regions; give those who are meant "
        "a service with host names of its own, and name that service under `match`"
    )
