"""What a request's kind amounts to, whatever the health of regions and the plan: fence, order of preference, class.

Law: a Ranking depends on its Basis (policy, rules in force, latency table) and on the request, and on nothing that
changes by the second. So it is found once per kind of request and Basis; a new State touches ranking classes only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from hashlib import blake2b
from math import inf
from typing import NamedTuple, assert_never

from gtm.core.decision.fence import Fence, fence
from gtm.core.decision.view import Basis
from gtm.core.demand.cells import cell_of, with_service
from gtm.core.demand.rows import ClassKey
from gtm.core.latency.geographic import NetworkPath
from gtm.core.memory import Memory
from gtm.core.model.outcomes import UnknownNameError
from gtm.core.model.regions import AddressFamily
from gtm.core.model.requests import Request
from gtm.core.model.services import Priority, Steering
from gtm.core.policy.snapshot import CompiledService, Snapshot, bits

ANY_HEALTH = -1
"""The mask of healthy regions where health is not to be looked at: every region."""

ORDER_DEPTH = 4
"""How many regions of the order of preference tell ranking classes apart for the planner. With all of them, 50 regions
would make as many classes as there are places on a map; beyond the fourth, latencies are averaged."""


@dataclass(frozen=True, slots=True, eq=False)
class RankingClass:
    """Requests of one service that may go to the same regions and prefer them in the same order.

    All of it follows from what tells classes apart (`ClassIdentity`), never from the client that was met first. `key` names the class the
    same way everywhere and across revisions. `allowed` is the fence's mask, `capable` that of the members with the models and the family asked for,
    `willing` that of those of them that take new clients. `order` holds all members. `located`: there was something to rank by.
    `outside`: the edge stands outside of a rule that concerns them and binds edges. `family` is that of the addresses asked for, where
    the service has a pool for each (None: all members are its pool): who has none of it is not `capable`. `near` has, for a home region and each of its
    spillover rules that bounds the added latency, the mask of the members which are within that bound.
    """

    key: str
    service: CompiledService
    priority: Priority
    allowed: int
    capable: int
    willing: int
    order: tuple[int, ...]
    located: bool
    outside: bool
    near: Mapping[tuple[int, str], int]
    family: AddressFamily | None = None

    def eligible(self, up: int) -> int:
        """Mask of the regions that a new client may be sent to: inside the fence, with the models, taking new clients, and up.

        Args:
            up: mask of the regions that are healthy (`View.up_for` its family), or `ANY_HEALTH`.
        """
        return self.allowed & self.willing & up

    def usable(self, up: int) -> int:
        """Mask of the regions that would be eligible if there were no fence. It tells why a request is refused, and is nowhere to send one."""
        return self.willing & up

    def keeping(self, up: int) -> int:
        """Mask of the regions that known clients may stay with: the eligible ones, and those that take no new clients (draining ones)."""
        return self.allowed & self.capable & up


@dataclass(frozen=True, slots=True, eq=False)
class Ranking:
    """One kind of request: its class, the rules that matched, the way to each member, and its demand cell.

    `request` is what it was made from: of a memory's ranking all that requests of its kind have in common.
    """

    group: RankingClass
    within: Fence
    paths: Mapping[int, NetworkPath]
    request: Request
    cell: str


class ClassIdentity(NamedTuple):
    """What tells the ranking classes of one policy apart, and all that one is made of; as there, `near` as pairs."""

    service: str
    priority: Priority
    allowed: int
    capable: int
    order: tuple[int, ...]
    located: bool
    outside: bool
    near: tuple[tuple[tuple[int, str], int], ...]
    family: AddressFamily | None = None


Classes = Mapping[ClassIdentity, RankingClass]
"""The ranking classes of one policy: a `Memory` of `class_of`."""
MOST_CLASSES = 65_536
"""Classes that are remembered of one policy."""


def classes_of(snapshot: Snapshot, most: int = MOST_CLASSES) -> Classes:
    """A policy's classes, each made when it is first asked for."""
    return Memory(partial(class_of, snapshot), most)


def rank(basis: Basis, request: Request, classes: Classes) -> Ranking:
    """Rank one kind of request.

    Args:
        basis: policy, rules in force, latency table.
        request: its affinity is not looked at.
        classes: of the policy.

    Raises:
        UnknownNameError: the service, tenant, data class or model is not in the policy.
    """
    snapshot = basis.snapshot
    service = snapshot.services.get(request.service)
    if service is None:
        raise UnknownNameError("service", request.service)
    _check_names(snapshot, request)
    if request.family is not None and request.family not in service.pools:
        request = request._replace(family=None)  # what is the same for everyone is planned together
    placed = basis.estimator.placed(request.location)
    if placed is not request.location:
        request = request._replace(location=placed)
    within = fence(basis.rules[request.service], service.mask, request)
    paths = basis.estimator.paths(request.location, service.members)
    processing = basis.processing.get(request.service, {})
    latency = {number: path.estimate_ms + processing.get(number, 0.0) for number, path in paths.items()}
    order = _order(service, paths, latency)
    capable = _capable(snapshot, service, request)
    priority = request.priority or service.service.priority
    outside = bool(basis.outside) and any(
        match.compiled.rule.name in basis.outside for match in within.matched
    )
    near = _near(basis, order, latency)
    # As `ClassIdentity(…)`, in half of the time.
    located, family = bool(latency), request.family
    told = request.service, priority, within.allowed, capable, order, located, outside, near, family
    group = classes[tuple.__new__(ClassIdentity, told)]
    return Ranking(group, within, paths, request, cell_of(request, priority))


def families(basis: Basis) -> dict[str, str]:
    """Services with the first of their family: those of one have members, weights, pools, steering, models and rules in common.

    Requests that differ in nothing but such a service are ranked alike.
    """
    firsts: dict[object, str] = {}
    found: dict[str, str] = {}
    for name, compiled in basis.snapshot.services.items():
        service = compiled.service
        likeness = (
            compiled.members,
            tuple(sorted(compiled.weights.items())),
            tuple(sorted(compiled.canaries.items())),
            tuple(sorted(compiled.pools.items())),
            service.steering,
            service.model,
            service.priority,
            tuple(map(id, basis.rules[name])),
            tuple(sorted(basis.processing.get(name, {}).items())),
        )
        found[name] = firsts.setdefault(likeness, name)
    return found


def alike_services(one: Basis, other: Basis, touched: int) -> frozenset[str]:
    """The services of which two Bases say the same, and that have no member among the regions `touched` (a mask).

    With the regions whose admin state differs touched, these are ranked alike: it is all that `rank` reads. None, if the two
    tell regions, names that requests may state, or round trips apart.
    """
    old, new = one.snapshot, other.snapshot
    if (
        _seen_of(old) != _seen_of(new)
        or one.estimator.table is not other.estimator.table
        or (one.outside, one.uncarried) != (other.outside, other.uncarried)
    ):
        return frozenset()
    return frozenset(
        name
        for name, service in old.services.items()
        if not service.mask & touched
        and service == new.services.get(name)
        and one.rules[name] == other.rules[name]
        and one.processing.get(name) == other.processing.get(name)
        and all(one.near.get(number) == other.near.get(number) for number in service.members)
    )


def _seen_of(snapshot: Snapshot) -> object:
    """What rankings of all services rest on."""
    regions = [(region.name, region.lat, region.lon, region.models) for region in snapshot.regions]
    return regions, snapshot.tenants, snapshot.data_classes, snapshot.models


def alike(ranking: Ranking, service: str, classes: Classes) -> Ranking:
    """The ranking of the same request of another service of the same family.

    Args:
        ranking: of the one service.
        service: the other one.
        classes: of the policy.
    """
    group = ranking.group
    near = tuple(group.near.items())
    told = (service, group.priority, group.allowed, group.capable, group.order, group.located, group.outside)
    same = classes[ClassIdentity(*told, near, group.family)]
    cell = with_service(ranking.cell, service)
    request = ranking.request._replace(service=service)
    return Ranking(same, ranking.within, ranking.paths, request, cell)


def narrowed(snapshot: Snapshot, ranking: Ranking, within: Fence) -> Ranking:
    """The ranking of a request that a second fence concerns as well: what both allow, and the rules of both.

    Args:
        snapshot: what `ranking` was made from.
        ranking: of the request.
        within: the other fence, of the same service.
    """
    group, first = ranking.group, ranking.within
    rules = {id(match.compiled): match for match in (*within.matched, *first.matched)}
    both = Fence(first.allowed & within.allowed, tuple(rules.values()))
    if both.allowed == group.allowed:
        return replace(ranking, within=both)
    allowed = both.allowed & group.willing
    key = class_key(snapshot, group.service, group.priority, group.order, allowed, group.family)
    return replace(ranking, group=replace(group, key=key, allowed=both.allowed), within=both)


def class_of(snapshot: Snapshot, identity: ClassIdentity) -> RankingClass:
    """The class of a policy that this tells apart."""
    service = snapshot.services[identity.service]
    willing = identity.capable & snapshot.active
    allowed, family = identity.allowed & willing, identity.family
    key = class_key(snapshot, service, identity.priority, identity.order, allowed, family)
    return RankingClass(
        key,
        service,
        identity.priority,
        identity.allowed,
        identity.capable,
        willing,
        identity.order,
        identity.located,
        identity.outside,
        dict(identity.near),
        identity.family,
    )


def _near(
    basis: Basis, order: tuple[int, ...], latency: Mapping[int, float]
) -> tuple[tuple[tuple[int, str], int], ...]:
    """For each member as a home, and each of its rules that bounds the added latency: the members within the bound."""
    if not basis.near:
        return ()
    found = []
    for home in order:
        for rule in basis.near.get(home, ()):
            least, bound = latency.get(home, 0.0), rule.max_added_latency_ms or 0.0
            mask = sum(
                1 << number
                for number in order
                if rule.to >> number & 1 and latency.get(number, 0.0) - least <= bound
            )
            found.append(((home, rule.name), mask))
    return tuple(found)


def ranked(service: CompiledService, order: tuple[int, ...], eligible: int) -> tuple[int, ...]:
    """The eligible regions in order of preference.

    Members of weight 0 stand in only when no other is eligible, and canaries only when not even these are.
    """
    found = [number for number in order if eligible >> number & 1]
    with_weight = tuple(number for number in found if service.weights[number] > 0)
    if with_weight:
        return with_weight
    return tuple(number for number in found if number not in service.canaries) or tuple(found)


def class_key(  # noqa: PLR0917 - all that a class is told apart by
    snapshot: Snapshot,
    service: CompiledService,
    priority: Priority,
    order: tuple[int, ...],
    allowed: int,
    family: AddressFamily | None = None,
) -> str:
    """The name of a ranking class: service, priority, the first regions in order, and a hash of all that are allowed, and of its family.

    Pools of a family each may have the same members, of which they lose others: so each is planned by itself.

    Names and not numbers, so that a class is the same in every revision that does not change it. Members of weight 0 are
    in the hash: where the others fail, they tell who can still be served.
    """
    names = [snapshot.regions[number].name for number in ranked(service, order, allowed)]
    every = sorted(snapshot.regions[number].name for number in order if allowed >> number & 1)
    if family is not None:
        every.append(f"\n{family}")  # no region is named so
    digest = blake2b("\n".join(every).encode(), digest_size=4).hexdigest()
    return ClassKey(service.service.name, priority.value, tuple(names[:ORDER_DEPTH]), digest).text


def _check_names(snapshot: Snapshot, request: Request) -> None:
    if request.tenant is not None and request.tenant not in snapshot.tenants:
        raise UnknownNameError("tenant", request.tenant)
    if request.data_class is not None and request.data_class not in snapshot.data_classes:
        raise UnknownNameError("data class", request.data_class)
    if request.model is not None and request.model not in snapshot.models:
        raise UnknownNameError("model", request.model)


def _capable(snapshot: Snapshot, service: CompiledService, request: Request) -> int:
    """The members that serve every model asked for, by the service and by the request, and have the family asked for."""
    pool = service.mask if request.family is None else service.pools[request.family]
    wanted = {name for name in (service.service.model, request.model) if name is not None}
    if not wanted:
        return pool
    regions = snapshot.regions
    return sum(1 << number for number in bits(pool) if wanted.issubset(regions[number].models))


def _order(
    service: CompiledService, paths: Mapping[int, NetworkPath], latency: Mapping[int, float]
) -> tuple[int, ...]:
    """The members in the order of preference. Members of weight 0 come last, whatever the steering."""
    position = {number: index for index, number in enumerate(service.members)}
    keys: Mapping[int, float]
    match service.service.steering:
        case Steering.WEIGHTED:
            keys = {number: -weight for number, weight in service.weights.items()}
        case Steering.FAILOVER:
            keys = {}
        case Steering.GEO:
            keys = {number: path.distance_km for number, path in paths.items()}
        case Steering.LATENCY:
            keys = latency
        case other:
            assert_never(other)

    def rank_of(number: int) -> tuple[bool, float, int]:
        # A member that nothing is known of comes after those that are measured, never before.
        return service.weights[number] == 0, keys.get(number, inf), position[number]

    return tuple(sorted(service.members, key=rank_of))
