"""What docs/handoff.md says of a balancer's judgement, told slowly: names and sets, and the fence of `tests/core/reference.py`.

It shares no code with `gtm.core.handoff` but the values.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from ipaddress import IPv4Address, IPv4Network

from gtm.core.handoff.claims import Claims
from gtm.core.model.requests import Location, Request
from gtm.core.model.services import OnUnusable
from tests.core.reference import Atlas, Reference


@dataclass(frozen=True)
class Case:
    """A request at a balancer. `used`: a handoff for one request was used before; None: the memory is full."""

    here: str
    address: IPv4Address | None
    service: str | None
    tenant: str | None
    data_class: str | None
    model: str | None
    claims: Claims | None
    used: bool | None = False


@dataclass(frozen=True)
class Expected:
    """What the page says of it: an answer, where it may go at all, be pushed or be sent on, and what is told of the handoff."""

    code: str
    fence: frozenset[str] = frozenset()
    pushed: frozenset[str] = frozenset()
    sent: frozenset[str] = frozenset()
    told: frozenset[str] = frozenset()


class Map:
    """Where addresses are, remembered: an atlas is read slowly."""

    def __init__(self, atlas: Atlas) -> None:
        self.at = cache(atlas.at)
        self.parts = cache(atlas.parts)


def _near(address: IPv4Address | None, claims: Claims) -> bool:
    """Whether the client is in the network that a handoff was given to."""
    return address is not None and claims.client != "" and address in IPv4Network(claims.client)


class Page:
    """docs/handoff.md for one balancer: the policy that it has in a state, and where addresses are."""

    def __init__(self, world: Reference, where: Map) -> None:
        self.world, self.map = world, where
        self.services = {service.name for service in world.policy.services}
        self.tenants = {tenant.name for tenant in world.policy.tenants}
        self.data_classes = {item.name for item in world.policy.data_classes}
        self.models = {model for region in world.policy.regions for model in region.models}

    def said_by(self, network: str, request: Request) -> set[str]:
        """The fence for clients of a network; of unknown place if it is empty."""
        if not network:
            return self.world.fence(request._replace(location=Location()))
        return self.world.fence(request, self.map.parts(IPv4Network(network)))

    def seen_at(self, address: IPv4Address | None, request: Request) -> set[str]:
        """The fence for the client as the balancer sees it."""
        location = Location() if address is None else self.map.at(address)
        return self.world.fence(request._replace(location=location))

    def seen(self, case: Case, claims: Claims | None, request: Request) -> set[str]:
        """The fence for the client as this balancer sees it, or as the one saw it that carries the request here."""
        if claims is not None and claims.pushed is not None:
            return self.said_by(claims.pushed, request)
        return self.seen_at(case.address, request)

    def wrong(self, case: Case, claims: Claims) -> str | None:
        """The first line of the table that holds of a handoff (those of keys and form aside)."""
        latest = self.world.window.latest
        lines = {
            "handoff_wrong_region": claims.region != case.here,
            "handoff_expired": claims.expires <= latest,
            "handoff_early": claims.issued - latest > 30,
            "handoff_too_long": claims.expires - claims.issued > (60 * 60 if claims.pushed is None else 60),
            "handoff_unknown_name": claims.service not in self.services
            or claims.tenant not in {None, *self.tenants}
            or claims.data_class not in {None, *self.data_classes}
            or claims.model not in {None, *self.models},
            "handoff_mismatch": case.service not in {None, claims.service}
            or len({case.tenant, claims.tenant} - {None}) > 1
            or len({case.data_class, claims.data_class} - {None}) > 1,
            "handoff_replayed": claims.once and case.used is True,
            "handoff_unproven": claims.once and case.used is None,
        }
        return next((code for code, holds in lines.items() if holds), None)

    def answer(self, case: Case) -> Expected:
        """What becomes of a request."""
        claims, told = case.claims, set()
        if claims is not None:
            wrong = self.wrong(case, claims)
            if wrong is not None:
                claims, told = None, {wrong}
        service = case.service or (claims.service if claims else None)
        if service not in self.services:
            return Expected("unknown_service", told=frozenset(told))
        tenant, data_class, model = case.tenant, case.data_class, case.model
        # Who carries a request found what it states, and is nobody's place: the client's is in the handoff.
        carried = claims is not None and claims.pushed is not None
        if claims is not None:
            if carried or _near(case.address, claims):
                tenant, data_class = tenant or claims.tenant, data_class or claims.data_class
                model = model or claims.model
            else:
                told.add("handoff_elsewhere")
        for what, name, known in (
            ("tenant", tenant, self.tenants),
            ("data_class", data_class, self.data_classes),
            ("model", model, self.models),
        ):
            if name is not None and name not in known:
                return Expected(f"unknown_{what}", told=frozenset(told))
        request = Request(service, Location(), tenant, data_class, model)
        fence = self.seen(case, claims, request)
        agreed = True
        if claims is not None:
            fence &= self.said_by(claims.client, request)
            said = Request(claims.service, Location(), claims.tenant, claims.data_class)
            push = carried and claims.hop == 1
            names = "\n".join(sorted(fence if push else self.said_by(claims.client, said)))
            agreed = claims.fence == sha256(names.encode()).hexdigest()[:16]
            if not agreed:
                told.add("handoff_fence_differs")
        hopped = claims is not None and claims.hop == 1
        return self.of_fence(case.here, request, fence, told, hopped=hopped, agreed=agreed)

    def of_fence(
        self, here: str, request: Request, fence: set[str], told: set[str], *, hopped: bool, agreed: bool
    ) -> Expected:
        """The last table of the page."""
        wanted = {self.world.service(request).model, request.model} - {None}
        having = {region.name for region in self.world.members(request) if wanted <= set(region.models)}
        inside, said = fence & having, frozenset(told)
        if not fence:
            return Expected("fence_empty", told=said)
        if here in inside:
            pushed = {here} if hopped or not agreed else inside
            return Expected("serve", frozenset(fence), frozenset(pushed), told=said)
        usable = self.world.usable(request)
        able = usable & inside
        if not able and self.world.service(request).on_unusable is OnUnusable.IGNORE_HEALTH:
            able = self.world.willing(request) & inside
        if able and hopped:
            return Expected("wrong_region_again", frozenset(fence), told=said)
        if able:
            return Expected("wrong_region", frozenset(fence), sent=frozenset(able), told=said)
        code = "fence_unusable" if usable else "none_usable"
        return Expected(code, frozenset(fence), told=said)
