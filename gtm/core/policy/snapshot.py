"""One compiled policy revision, in the shape that decisions read.

Sets of regions are bit masks: region number i of `Snapshot.regions` is bit i. Intersections of fences are then one
operation each, and a mask is a fit key for dictionaries.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import inf

from gtm.core.model.names import WILDCARD, closest
from gtm.core.model.policy import EdgeScope, Policy, ResidencyRule
from gtm.core.model.regions import AddressFamily, Region
from gtm.core.model.services import HostName, Service, Zone
from gtm.core.policy.jurisdictions import Membership


@dataclass(frozen=True, slots=True)
class CompiledRule:
    """A residency rule, or a period of one, with its references resolved. None in a dimension: everybody matches there.

    `tenants` are those named and those established in the jurisdictions named, with those of unknown establishment;
    `established` has every tenant's country where the rule looks at it. `allowed` is the mask of regions the rule permits;
    `starts` and `ends` are POSIX times in seconds. A rule whose jurisdictions change by date has a period for each time
    between (`gtm.core.policy.compile`). `outdated`: it allows nothing, because the policy is older than it accepts.

    `edge_countries` are those in which an edge stands inside the rule, `edge_operators` those in which its operator may be established
    for that; None: anywhere, known or not. Both are None where nobody asks: the rule does not bind edges, and no service is carried.
    """

    rule: ResidencyRule
    enforced: bool
    countries: frozenset[str] | None
    tenants: frozenset[str] | None
    data_classes: frozenset[str] | None
    allowed: int
    starts: float = -inf
    ends: float = inf
    established: Mapping[str, str | None] = field(default_factory=dict, hash=False)
    edge_countries: frozenset[str] | None = None
    edge_operators: frozenset[str] | None = None
    outdated: bool = False

    @property
    def binds_edges(self) -> bool:
        """Whether only edges that stand inside the rule may handle what it concerns, whether they carry it or not."""
        return self.rule.edges is EdgeScope.IN_FENCE


@dataclass(frozen=True, slots=True)
class Timed:
    """Services whose binding rules change at the same times.

    `beginnings` and `endings` (POSIX seconds) are those of their rules, `policy_ages` (seconds) the ages of policies that
    some of them accept, all ascending. `services` are names with TTLs; no TTL exceeds `enough`, a power of two.
    """

    beginnings: tuple[float, ...]
    endings: tuple[float, ...]
    policy_ages: tuple[float, ...]
    services: tuple[tuple[str, int], ...]
    enough: int


@dataclass(frozen=True, slots=True)
class CompiledService:
    """A service with its members as region numbers, in the order written, and the rules that may concern it.

    `weights` are 0 for canaries, which stand in as other members of weight 0 do; `canaries` are their shares.
    `pools`, where its families are separate, has the mask of the members with addresses of each family; a family of
    which no member has any is not in it, nobody can be sent anywhere by it.
    """

    service: Service
    members: tuple[int, ...]
    weights: Mapping[int, float]
    mask: int
    rules: tuple[CompiledRule, ...]
    canaries: Mapping[int, float] = field(default_factory=dict)
    pools: Mapping[AddressFamily, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A policy that compiled. Immutable; everything derived from it may be kept as long as it is current."""

    revision: int
    policy: Policy
    jurisdictions: Membership
    regions: tuple[Region, ...]
    region_numbers: Mapping[str, int]
    services: Mapping[str, CompiledService]
    hostnames: Mapping[str, str]
    """Lower-case host name without the trailing dot, wildcards (`*.example.com`) included → name of its service."""
    stated: Mapping[str, HostName]
    """Those of them that state a tenant or data class."""
    existing: frozenset[str]
    """Every name of the policy's zones, written likewise."""
    wildcards: bool
    """Whether any host name is a wildcard."""
    zones: Mapping[str, Zone]
    carried: frozenset[str]
    """The services whose requests edges carry, as far as the law lets them."""
    tenants: frozenset[str]
    data_classes: frozenset[str]
    models: frozenset[str]
    """Every model that some region serves."""
    active: int
    """Mask of the regions whose admin state lets them take new clients."""
    beginnings: tuple[float, ...] = ()
    """The moments (POSIX seconds) at which some rule comes into force, ascending."""
    endings: tuple[float, ...] = ()
    """The moments at which some rule comes out of force, likewise."""
    policy_ages: tuple[float, ...] = ()
    """The ages (seconds) that some rule accepts of the policy at the most, ascending."""
    timed: tuple[Timed, ...] = ()
    """The services that some rule binds for a time only."""
    warnings: tuple[str, ...] = ()

    def host_of(self, hostname: str) -> HostName | None:
        """The host name of a service that answers for a name, itself or a wildcard, with what it states.

        A wildcard stands for the names below its own that do not exist, unless something between exists (RFC 4592
        §3.3.1: only the wildcard right below the closest encloser counts).
        """
        name = hostname
        if name not in self.hostnames and self.wildcards and name not in self.existing:
            name = f"{WILDCARD}{closest(self.existing, hostname) or ''}"
        if name not in self.hostnames:
            return None
        return self.stated.get(name) or HostName(name)

    def names(self, mask: int) -> tuple[str, ...]:
        """The regions in a mask, by number."""
        return tuple(self.regions[number].name for number in bits(mask))


def bits(mask: int) -> Iterator[int]:
    """The numbers of the bits set, ascending."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low
