"""Answers without addresses, which another region would have had.

A and AAAA of a service are one decision (`families: together`): both are what the region chosen has. Where it has none of a
family, the answer is empty, and resolvers keep that for everyone behind them (RFC 2308 §5, RFC 7871 §7.4).
"""

from __future__ import annotations

from collections.abc import Iterator

from gtm.core.findings.coverage import client_fences, rules_binding, statements
from gtm.core.model.problems import Problem
from gtm.core.model.references import some
from gtm.core.model.regions import AddressFamily, Region
from gtm.core.model.services import Families
from gtm.core.policy.snapshot import CompiledService, Snapshot, bits

CODES = {AddressFamily.IPV4: "empty_a", AddressFamily.IPV6: "empty_aaaa"}
"""What is found of each family. Without A a name is gone for most clients, without AAAA it is slower for some."""


def family_findings(snapshot: Snapshot, now: float) -> Iterator[Problem]:
    """Members of services in DNS that can be chosen and then answer A, or AAAA, with nothing.

    Args:
        snapshot: the policy.
        now: POSIX seconds.

    Yields:
        `empty_a` and `empty_aaaa`: a service, its members of which a usable endpoint can lack such an address, and others that
        have some and may serve the same clients.
    """
    for name, service in snapshot.services.items():
        if not service.service.hostnames or service.service.families is Families.SEPARATE:
            continue
        for family in AddressFamily:
            empty, instead = _pair(snapshot, service, family, now)
            if not empty:
                continue
            other = "IPv6" if family is AddressFamily.IPV4 else "IPv4"
            text = (
                f"{family.rrtype} is empty where the region chosen is {some(snapshot.names(empty), 'regions')}, while "
                f"{some(snapshot.names(instead), 'regions')} could answer it: one decision stands for both families. Give each of "
                f"its endpoints with {other} addresses `{family}` addresses too, or let A and AAAA be decided by themselves "
                "(`families: separate`)"
            )
            yield Problem(f"services.{name}.members", CODES[family], text)


def _pair(snapshot: Snapshot, service: CompiledService, family: AddressFamily, now: float) -> tuple[int, int]:
    """The members that can answer a family with nothing, and those that could in the place of some; 0 where there is none."""
    model = service.service.model
    able = [number for number in service.members if model is None or model in snapshot.regions[number].models]
    lacking = sum(1 << number for number in able if can_be_empty(snapshot.regions[number], family))
    having = sum(
        1 << number
        for number in able
        if any(endpoint.addresses(family) for endpoint in snapshot.regions[number].endpoints)
    )
    if not lacking or not having:
        return 0, 0
    empty = instead = 0
    for host in statements(service.service):
        fences = client_fences(rules_binding(service, host, now), len(snapshot.regions))
        for fence in set(fences.values()):
            for number in bits(fence & lacking):
                others = fence & having & ~(1 << number)
                if others:
                    empty |= 1 << number
                    instead |= others
    return empty, instead


def can_be_empty(region: Region, family: AddressFamily) -> bool:
    """Whether some usable endpoints of a region, alone, have addresses and none of a family: any of them may be the last one up."""
    return any(
        (endpoint.ipv4 or endpoint.ipv6) and not endpoint.addresses(family) for endpoint in region.endpoints
    )
