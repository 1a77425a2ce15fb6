"""All ways in which one ranking class's requests can end in one View, and the pick among them.

Theory. A `Choice` is a distribution, made once for a class and a View; `pick` draws from it, for each request, in steps:

  1. Shedding: the part of the draws below the tenant's shed share is refused. The others are stretched to [0, 1) again:
     a uniform draw that is known to be at least s, less s and divided by 1 - s, is uniform once more. So one draw does
     for all steps, and the odds of every option are products.
  2. Canaries: a client of known key stands at a fixed place between 0 and 1, salted by the service's name, and the first
     `taken` of that line are theirs. Canaries come last among the options, so the draw of any other client, times
     1 - `taken`, falls among the rest in their proportions; one without a key draws among all.
  3. Affinity: a client of known key goes to the option with the lowest -ln(u) / weight, u its own uniform number for that
     region (weighted rendezvous hashing, `gtm.core.model.affinity`). Each wins in proportion to its weight, for the least
     of exponential variables of rates w1, w2, … is the i-th with odds wi / (w1 + w2 + …). A weight that grows takes
     clients from all others and moves none between these, so a plan that moves by steps moves few sessions, and a region
     that comes back finds its own clients again.
  4. Everybody else goes where the draw falls among the running sums of the weights.
  5. Quotas: what would leave home and cannot afford its tokens stays at home.

Laws:
  1. The fence is absolute. An `Option` that names a region is made in one place (`options.Maker.served`), from a mask that was
     intersected with the fence, and that place checks it again. Nothing here reads a fallback from elsewhere.
  2. Nothing usable inside the fence: the answer is a refusal that says why. If a usable region stands outside, the
     law is the reason (451); if nothing is usable anywhere, it is availability (503). A fence without any region is
     the law's doing whatever the health of the regions outside (451): to come back later would not help.
  3. Canaries take their share of clients first, always the same ones, whatever becomes of all others.
  4. Where the edge that answers stands outside of a rule that binds edges, it answers nothing that the rule concerns,
     whatever is usable.
  5. A quota that cannot be afforded bends the answer back to the home region, never out of the fence.

Example. Frankfurt serves 70 % of what is admitted, Dublin 30 %, and 10 % is shed: 0.1 to 0.73 is Frankfurt's (0.1 + 0.9 × 0.7).

>>> from gtm.core.model.requests import UNKNOWN_LOCATION, Location
>>> fra = Option(0, "fra", Outcome.SERVED, Reason.NEAREST)
>>> dub = Option(1, "dub", Outcome.SERVED, Reason.SPILLOVER, ("fra-to-dub",))
>>> shed = Option(-1, None, Outcome.REFUSED_OVERLOAD, Reason.SHED)
>>> drawn = Choice((fra, dub), (0.7, 0.3), (0.7, 1.0), Affinity.NONE, {0: 0.7, 1: 0.3}, 0b11,
...                home=fra, shed=0.1, shed_tenants={}, refused=shed)
>>> request = Request("chat", UNKNOWN_LOCATION)
>>> [pick(drawn, request, draw).region for draw in (0.05, 0.1, 0.72, 0.74, 0.99)]
[None, 'fra', 'fra', 'dub', 'dub']
>>> pick(drawn, request, 0.99, afford=lambda quotas: False).region  # no token of `fra-to-dub` is left
'fra'

With affinity it is the network that decides, whatever the draw. Of 1,000 networks some 300 stick to Dublin; when a step of
the plan gives it 40 %, some hundred follow, and none leaves.

>>> def sticking(to_fra, to_dub):
...     weights, hashes = (to_fra, to_dub), (key_hash("fra"), key_hash("dub"))
...     sticky = Choice((fra,), (1.0,), (1.0,), Affinity.CLIENT_NETWORK, {}, 0b11, keyed=True,
...                     sticky=(fra, dub), sticky_weights=weights, hashes=hashes)
...     networks = [f"10.{number // 256}.{number % 256}.0/24" for number in range(1000)]
...     asked = [Request("chat", Location(network=network)) for network in networks]
...     return {request.location.network for request in asked if pick(sticky, request, 0.5) is dub}
>>> before, after = sticking(0.7, 0.3), sticking(0.6, 0.4)
>>> len(before), len(after - before), len(before - after)
(316, 117, 0)

Sources: Thaler and Ravishankar, "Using name-based mappings to increase hit rates" (IEEE/ACM ToN 1998), rendezvous hashing;
Schindelhauer and Schomaker, "Weighted Distributed Hash Tables" (SPAA 2005), its weights; RFC 7725, 451 for what the law
forbids; docs/decisions/0007-quota-leases.md, quotas.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import assert_never

from gtm.core.decision.options import Afford, Maker, Option
from gtm.core.decision.ranking import ANY_HEALTH, RankingClass, ranked
from gtm.core.decision.view import View
from gtm.core.decision.weights import (
    Shares,
    canaries_of,
    earned_at,
    explorable,
    quotas_of,
    shares_of,
    staying,
)
from gtm.core.model.affinity import fraction, key_hash, rendezvous
from gtm.core.model.outcomes import Outcome, Reason
from gtm.core.model.requests import Request
from gtm.core.model.services import PLANNED, Affinity, OnOverload, OnUnusable, Steering
from gtm.core.model.state import ClassPlan
from gtm.core.quota.names import QuotaText


@dataclass(frozen=True, slots=True, eq=False)
class Canaries:
    """What a fixed share of clients is sent to. `bounds` are the running sums of the shares; `salt` tells whose they are."""

    options: tuple[Option, ...]
    shares: tuple[float, ...]
    bounds: tuple[float, ...]
    salt: int

    @property
    def taken(self) -> float:
        """The share of clients that they serve together."""
        return self.bounds[-1]

    def of(self, client: int) -> Option | None:
        """The one that serves a client (the hash of its key), if one does."""
        place = fraction(client, self.salt)
        return self.options[bisect_right(self.bounds, place)] if place < self.taken else None


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """All options of one ranking class in one View, and the odds of each.

    `options` with `weights` are what a draw picks from, `cumulative` the running sums of the weights divided by their
    total. `sticky`, with weights and hashes of its own, is what affinity picks from. `canaries` are the last of `options`,
    if there are some. `keyed`: it matters who the client is, where that is known, for one of the two. `home` serves what no quota can be
    afforded for. `shed` is the share refused for want of capacity, `shed_tenants` that of tenants where it differs;
    `refused` and `over_share` are the refusals. `shares` are the regions' parts before exploration; `eligible` is the
    mask they were made from. `at_home` is the number of the home region, -1 where there is none, and `earns` what each request that
    is seen earns of the rules that bound a share of that home's demand.
    """

    options: tuple[Option, ...]
    weights: tuple[float, ...]
    cumulative: tuple[float, ...]
    affinity: Affinity
    shares: Mapping[int, float]
    eligible: int
    sticky: tuple[Option, ...] = ()
    sticky_weights: tuple[float, ...] = ()
    hashes: tuple[int, ...] = ()
    canaries: Canaries | None = None
    keyed: bool = False
    home: Option | None = None
    shed: float = 0.0
    shed_tenants: Mapping[str, float] | None = None
    refused: Option | None = None
    over_share: Option | None = None
    at_home: int = -1
    earns: tuple[tuple[QuotaText, float], ...] = ()

    @property
    def alone(self) -> Option | None:
        """The only option, if every request that is neither refused nor short of a quota ends that way."""
        alone = len(self.options) == 1 and set(self.sticky) <= {self.options[0]}
        return self.options[0] if alone else None

    def shed_share(self, tenant: str | None) -> float:
        """The share of a tenant's requests that is refused for want of capacity."""
        if self.shed_tenants is None:
            return 0.0
        return self.shed if tenant is None else self.shed_tenants.get(tenant, self.shed)


def pick(
    chosen: Choice, request: Request, draw: float, afford: Afford | None = None, *, sheds: bool = True
) -> Option:
    """One of the options of a choice: the client's own by affinity, else by the draw.

    Args:
        chosen: the choice of the request's class.
        request: tenant, affinity key and network matter here.
        draw: uniform in [0, 1).
        afford: asked before a quota is used; None where quotas hold in the mean only (DNS).
        sheds: whether a part of the requests can be refused (DNS cannot: resolvers would share the refusal).
    """
    if sheds and chosen.shed_tenants is not None:
        share = chosen.shed_share(request.tenant)
        if draw < share:
            beyond = request.tenant is not None and share > chosen.shed + 1e-9
            refusal = chosen.over_share if beyond else chosen.refused
            assert refusal is not None  # noqa: S101 - made with `shed_tenants`
            return refusal
        draw = (draw - share) / (1 - share)  # uniform once more
    option = _drawn(chosen, request, draw)
    if option.quotas and afford is not None and chosen.home is not None and not afford(option.quotas):
        return chosen.home
    return option


def _drawn(chosen: Choice, request: Request, draw: float) -> Option:
    if chosen.keyed:
        key = request.affinity if chosen.affinity is Affinity.KEY else None
        if key is None:
            key = request.location.network
        if key is not None:
            client = key_hash(key)
            if chosen.canaries is not None:
                canary = chosen.canaries.of(client)
                if canary is not None:
                    return canary
                draw *= 1 - chosen.canaries.taken  # among the others, which come first
            if chosen.sticky:
                return chosen.sticky[rendezvous(client, chosen.hashes, chosen.sticky_weights)]
    options = chosen.options
    if len(options) == 1:
        return options[0]
    return options[min(bisect_right(chosen.cumulative, draw), len(options) - 1)]


def choice(view: View, group: RankingClass) -> Choice:
    """Everything about a class's requests that does not depend on their tenant, affinity or draw."""
    service = group.service.service
    if group.outside:
        refusal = Maker(view, group).refused(Outcome.REFUSED_EDGE, Reason.EDGE_OUTSIDE)
        return Choice((refusal,), (1.0,), (1.0,), Affinity.NONE, {}, 0)
    if group.family is None and view.whole != view.up and _suffice(group, view.whole, view.up):
        view = replace(view, up=view.whole)  # the others stand in only for want of these
    eligible, ignored = group.eligible(view.up_for(group.family)), False
    if not eligible and service.on_unusable is OnUnusable.IGNORE_HEALTH:
        eligible, ignored = group.eligible(ANY_HEALTH), True
    maker = Maker(view, group)
    order = ranked(group.service, group.order, eligible)
    if not order:
        return _leftovers(maker, usable_anywhere=bool(group.usable(view.up_for(group.family))))
    shares, plan = shares_of(view, group, order)
    main = Reason.HEALTH_IGNORED if ignored else _reason(group)
    home = order[0]
    options = [maker.share(number, home, main, plan) for number in shares]
    weights = list(shares.values())
    exploring = () if ignored or service.exploration <= 0 else explorable(view, group, order, shares)
    if exploring:
        weights = [weight * (1 - service.exploration) for weight in weights]
        for number in exploring:
            quotas = () if number == home else quotas_of(view, group, home, number) or ()
            options.append(maker.served(number, Reason.EXPLORATION, quotas))
            weights.append(service.exploration / len(exploring))
    canaries = None if ignored or not group.service.canaries else _canaries(maker, shares)
    told = shares
    if canaries is not None:
        left = 1 - canaries.taken
        options += canaries.options
        weights = [*(weight * left for weight in weights), *canaries.shares]
        told = {number: share * left for number, share in shares.items()}
        told |= {
            option.number: share for option, share in zip(canaries.options, canaries.shares, strict=True)
        }
    sticky, sticky_weights = _sticky(maker, shares, home, main, plan)
    if exploring and service.affinity is not Affinity.NONE and not sticky:
        sticky, sticky_weights = (options[0],), (1.0,)  # sessions do not explore
    sheds = plan is not None and service.on_overload is OnOverload.SHED and (plan.shed > 0 or plan.tenants)
    total = sum(weights)
    return Choice(
        options=tuple(options),
        weights=tuple(weights),
        cumulative=tuple(running / total for running in accumulate(weights)),
        affinity=service.affinity,
        shares=told,
        eligible=eligible,
        canaries=canaries,
        keyed=canaries is not None or bool(sticky),
        sticky=sticky,
        sticky_weights=sticky_weights,
        hashes=tuple(key_hash(option.region or "") for option in sticky),
        home=maker.served(home, Reason.QUOTA_EXHAUSTED) if any(item.quotas for item in options) else None,
        shed=plan.shed if plan is not None and sheds else 0.0,
        shed_tenants=plan.tenants if plan is not None and sheds else None,
        refused=maker.refused(Outcome.REFUSED_OVERLOAD, Reason.SHED) if sheds else None,
        over_share=maker.refused(Outcome.REFUSED_OVERLOAD, Reason.OVER_FAIR_SHARE) if sheds else None,
        at_home=home,
        earns=() if ignored or service.steering not in PLANNED else earned_at(view, home),
    )


def _suffice(group: RankingClass, some: int, every: int) -> bool:
    """Whether a class's clients may all be sent to some of the regions that are up: to a canary only where there is nothing else."""
    canaries = sum(1 << number for number in group.service.canaries)
    found = group.eligible(some)
    return bool(found & ~canaries) or (bool(found) and not group.eligible(every) & ~canaries)


def by_free_slots(view: View, group: RankingClass, number: int, quotas: tuple[QuotaText, ...]) -> Option:
    """How a request ends that an edge corrects (`gtm.core.balance.spill`): no option of any choice, and never picked.

    Args:
        view: the state of the world.
        group: the request's class.
        number: the region that takes it.
        quotas: those that it counts against there.

    Raises:
        FenceError: the region is outside the fence (a bug in gtm).
    """
    return Maker(view, group).served(number, Reason.FREE_SLOTS, quotas)


def _canaries(maker: Maker, shares: Shares) -> Canaries | None:
    """The canaries that take clients now, but for those that stand in for all others; None: there are none."""
    found = {
        number: share
        for number, share in canaries_of(maker.view, maker.group).items()
        if number not in shares
    }
    if not found:
        return None
    options = tuple(maker.served(number, Reason.CANARY) for number in found)
    salt = key_hash(f"canary {maker.group.service.service.name}")
    return Canaries(options, tuple(found.values()), tuple(accumulate(found.values())), salt)


def _leftovers(maker: Maker, *, usable_anywhere: bool) -> Choice:
    """No region takes new clients: a refusal, but for clients whose affinity keeps them on a draining region."""
    refusal = maker.refusal(usable_anywhere=usable_anywhere)
    sticky, weights = _sticky(maker, {}, -1, refusal.reason, None)
    if sticky:
        stay = min(1.0, sum(weights))
        sticky, weights = (*sticky, refusal), (*weights, 1 - stay)
        if weights[-1] <= 0:
            sticky, weights = sticky[:-1], weights[:-1]
    return Choice(
        options=(refusal,),
        weights=(1.0,),
        cumulative=(1.0,),
        affinity=maker.group.service.service.affinity,
        shares={},
        eligible=0,
        keyed=bool(sticky),
        sticky=sticky,
        sticky_weights=weights,
        hashes=tuple(key_hash(option.region or "") for option in sticky),
    )


def _sticky(
    maker: Maker, shares: Shares, home: int, main: Reason, plan: ClassPlan | None
) -> tuple[tuple[Option, ...], tuple[float, ...]]:
    """What affinity picks from, with weights; nothing where there is no choice to be made."""
    view, group = maker.view, maker.group
    if group.service.service.affinity is Affinity.NONE:
        return (), ()
    kept = staying(view, group, group.keeping(view.up_for(group.family)), shares)
    if len(kept) == 1 and kept.keys() == shares.keys():
        return (), ()
    options = []
    for number in kept:
        if number not in shares:
            options.append(maker.served(number, Reason.DRAINING_SESSION))
        elif main is Reason.HEALTH_IGNORED:
            options.append(maker.served(number, main))
        else:
            options.append(
                maker.served(number, Reason.AFFINITY, maker.share(number, home, main, plan).quotas)
            )
    return tuple(options), tuple(kept.values())


def _reason(group: RankingClass) -> Reason:
    """In one word, what decided among the eligible regions, affinity and plan aside."""
    match group.service.service.steering:
        case Steering.FAILOVER:
            return Reason.FAILOVER_ORDER
        case Steering.WEIGHTED:
            return Reason.WEIGHTED
        case Steering.GEO:
            return Reason.NEAREST if group.located else Reason.LOCATION_UNKNOWN
        case Steering.LATENCY:
            return Reason.LOWEST_LATENCY if group.located else Reason.LOCATION_UNKNOWN
        case other:
            assert_never(other)
