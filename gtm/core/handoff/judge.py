"""What a balancer makes of one request (docs/handoff.md, "What a balancer makes of it").

Theory. A request has two places: where its client is by what the balancer sees, and where the edge saw it. Either may be wrong
(a proxy, a stale answer, a network changed on the way), and of two readings the strictest holds, so the fence F is the
intersection of both. A bit mask each, found by the rankings that every decision goes through:

    seen      Request(service, where the client is,      tenant, data class) ─▶ Ranking ─▶ allowed ─┐
    claimed   Request(service, where the handoff's is,   tenant, data class) ─▶ Ranking ─▶ allowed ─┴─▶ F

Statements (tenant, data class) can open a fence, for rules about others no longer match. So they come from what the balancer
has verified itself; a handoff adds them only for the network that it was given to.

A balancer that pushes a request carries it, so its peer sees the balancer's address. That is nobody's place, and says nothing of the
law: in its stead the handoff says what network the balancer saw (`pushed`), beside the place that an edge saw (`client`), which
stays on its way. Statements are those that the balancer found. So the peer judges by the same two places, by its own View.

An edge that carries a request says the same of it, but that it is the first that saw the client: both places are one.

Invariants, whatever arrives:
  1. `SERVE` only if this region is in F; `region` and `reach` only name regions in F.
  2. F with a handoff is a subset of F without it and with the same statements. With none believed, F is that of what is seen.
  3. `reach` is this region alone after one hop, or where the edge's fence is not known to be ours.

Example. A rule keeps German clients in fra. An edge handed a client of 192.0.2.0/24 (Germany) to fra, the link is opened in dub,
over a proxy in Ireland: seen alone would allow both, claimed allows fra. dub answers 421, fra.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from gtm.core.decision.choice import choice, pick
from gtm.core.decision.decide import Routing
from gtm.core.decision.ranking import Ranking, narrowed
from gtm.core.decision.router import Router
from gtm.core.decision.view import Window
from gtm.core.handoff.claims import CARRY_LASTS, Claims, client_network, hash_of, lifetime, network_address
from gtm.core.handoff.verdict import Code, Flaw, Presented, Reuse, Seen, Verdict, priority_of
from gtm.core.model.outcomes import UnknownNameError
from gtm.core.model.requests import Request
from gtm.core.policy.snapshot import Snapshot

SKEW = 30
"""Seconds by which an issuer's clock may be ahead."""

Used = Callable[[Claims], Reuse]
"""Notes that a handoff for one request is used, and says whether it was before."""

_OF_MEMORY = {Reuse.NEW: None, Reuse.USED: Flaw.REPLAYED, Reuse.FULL: Flaw.UNPROVEN}
_UNKNOWN = {
    "service": Code.UNKNOWN_SERVICE,
    "tenant": Code.UNKNOWN_TENANT,
    "data class": Code.UNKNOWN_DATA_CLASS,
    "model": Code.UNKNOWN_MODEL,
}


def judge(
    router: Router,
    region: str,
    window: Window,
    *,
    seen: Seen,
    presented: Presented | Flaw | None,
    used: Used,
    draw: float = 0.0,
) -> Verdict:
    """What becomes of one request at the balancer of a region.

    Args:
        router: the balancer's own, of a View without an edge's place.
        region: the balancer's.
        window: the time it is (a View may be older).
        seen: what it finds out by itself.
        presented: the handoff, or what was wrong with it before it could be read; None: there is none.
        used: asked at most once, of a handoff for one request that is believed otherwise.
        draw: uniform in [0, 1): which region a request is sent on to, where several share such clients.
    """

    def check(claims: Claims) -> Flaw | None:
        return (
            _flaw_of_time(window, claims) if claims.region == region else Flaw.WRONG_REGION
        ) or _flaw_of_names(router.view.snapshot, seen, claims)

    carried = isinstance(presented, Presented) and presented.claims.carried
    if seen.service is None and not carried:
        # Who carries says for which service; a client does not choose another than the file's.
        seen = replace(seen, service=seen.otherwise)
    claims, flaws = _believed(presented, used, check)
    if claims is not None and claims.carried and isinstance(presented, Presented):
        seen = replace(seen, client=network_address(claims.pushed or ""), location=presented.pushed)
    service = seen.service or (claims.service if claims is not None else seen.otherwise)
    if service is None:
        return Verdict(Code.UNKNOWN_SERVICE, flaws=flaws)
    request = _stated(router.view.snapshot, service, seen, claims)
    if claims is not None and not _near(seen, claims):
        flaws = (*flaws, Flaw.ELSEWHERE)
    try:
        routing = router.routing(request, seen.client)
    except UnknownNameError as error:
        return Verdict(_UNKNOWN[error.kind], flaws=flaws, believed=claims)
    agreed = True
    if claims is not None and isinstance(presented, Presented):
        claimed = router.routing(request._replace(location=presented.location)).ranking
        routing = _narrowed(router, routing, claimed)
        agreed = claims.fence == _hash_by_own_view(router, presented, routing)
        if not agreed:
            flaws = (*flaws, Flaw.FENCE_DIFFERS)
    return _ended(routing, region, claims, flaws, agreed=agreed, draw=draw)


def onward(
    verdict: Verdict,
    region: str,
    window: Window,
    *,
    issuer: str,
    nonce: str,
    client: bytes,
    push: bool = False,
) -> Claims | None:
    """What a balancer says of a request that it sends on: pushes, or answers 421.

    Args:
        verdict: what became of it here.
        region: where it goes.
        window: the time it is.
        issuer: the balancer's name.
        nonce: random text that no other handoff has.
        client: the client's address, in network order, empty where it is unknown.
        push: this balancer carries the request there itself.

    Returns:
        None where nothing may go there: the region is outside, it was sent on before, or the answer may not be kept for a
        second.
    """
    routing, before = verdict.routing, verdict.believed
    if routing is None or (before is not None and before.hop):
        return None
    snapshot = routing.view.snapshot
    number = snapshot.region_numbers.get(region)
    within = verdict.reach if verdict.code is Code.SERVE else verdict.allowed
    if number is None or not within >> number & 1:
        return None
    issued, expires = lifetime(routing, window)
    if before is not None:
        expires = min(expires, before.expires)
    if push:
        expires = min(expires, issued + CARRY_LASTS)
    if expires <= issued:
        return None
    request = routing.request
    return Claims(
        issuer=issuer,
        region=region,
        service=request.service,
        issued=issued,
        expires=expires,
        nonce=nonce,
        fence=hash_of(snapshot, verdict.allowed),
        revision=snapshot.revision,
        tenant=request.tenant,
        data_class=request.data_class,
        model=request.model,
        priority=routing.ranking.group.priority,
        # The place that an edge saw stays on its way; the next balancer sees the client's own.
        client=client_network(client) if before is None else before.client,
        hop=1,
        once=True,
        pushed=client_network(client) if push else None,
    )


def _believed(
    presented: Presented | Flaw | None, used: Used, check: Callable[[Claims], Flaw | None]
) -> tuple[Claims | None, tuple[Flaw, ...]]:
    """The claims that count, and why those that came do not."""
    if presented is None:
        return None, ()
    if isinstance(presented, Flaw):
        return None, (presented,)
    claims = presented.claims
    flaw = check(claims)
    if flaw is None and claims.once:
        flaw = _OF_MEMORY[used(claims)]
    return (claims, ()) if flaw is None else (None, (flaw,))


def _flaw_of_time(window: Window, claims: Claims) -> Flaw | None:
    if claims.expires <= window.latest:
        return Flaw.EXPIRED
    if claims.issued > window.latest + SKEW:
        return Flaw.EARLY
    return Flaw.TOO_LONG if claims.expires - claims.issued > claims.longest else None


def _flaw_of_names(snapshot: Snapshot, seen: Seen, claims: Claims) -> Flaw | None:
    if not _known(snapshot, claims):
        return Flaw.UNKNOWN_NAME
    statements = (
        (seen.service, claims.service),
        (seen.tenant, claims.tenant),
        (seen.data_class, claims.data_class),
    )
    differ = any(own is not None and said is not None and own != said for own, said in statements)
    return Flaw.MISMATCH if differ else None


def _known(snapshot: Snapshot, claims: Claims) -> bool:
    """Whether the policy here has all that a handoff names."""
    return (
        claims.service in snapshot.services
        and (claims.tenant is None or claims.tenant in snapshot.tenants)
        and (claims.data_class is None or claims.data_class in snapshot.data_classes)
        and (claims.model is None or claims.model in snapshot.models)
    )


def _near(seen: Seen, claims: Claims) -> bool:
    """Whether the client is in the network that the handoff was given to; or its issuer found what it states, and carries it."""
    return claims.carried or (bool(claims.client) and client_network(seen.client) == claims.client)


def _stated(snapshot: Snapshot, service: str, seen: Seen, claims: Claims | None) -> Request:
    """The request as the balancer sees it, with what a handoff states of it where that counts."""
    if claims is not None and not _near(seen, claims):
        claims = None
    known = snapshot.services.get(service)
    own = None if known is None else known.service.priority
    priority = None if own is None else priority_of(own, seen.priority, seen.grant, claims)
    if priority is own:
        priority = None  # remembered as those that state none
    if claims is None:
        return Request(
            service, seen.location, seen.tenant, seen.data_class, seen.model, seen.affinity, priority
        )
    return Request(
        service,
        seen.location,
        seen.tenant or claims.tenant,
        seen.data_class or claims.data_class,
        seen.model or claims.model,
        seen.affinity,
        priority,
    )


def _narrowed(router: Router, routing: Routing, claimed: Ranking) -> Routing:
    """A request's way inside a second fence as well."""
    ranking = narrowed(router.view.snapshot, routing.ranking, claimed.within)
    if ranking.group is routing.ranking.group:
        return routing._replace(ranking=ranking)
    return routing._replace(ranking=ranking, choice=choice(router.view, ranking.group))


def _hash_by_own_view(router: Router, presented: Presented, routing: Routing) -> str:
    """The hash of the fence that this View has for just what a handoff says; of a push, for all that this request goes by."""
    claims = presented.claims
    if claims.is_push:
        return hash_of(router.view.snapshot, routing.ranking.group.allowed)
    said = Request(claims.service, presented.location, claims.tenant, claims.data_class)
    return hash_of(router.view.snapshot, router.ranker.ranking(said).within.allowed)


def _ended(
    routing: Routing,
    region: str,
    claims: Claims | None,
    flaws: tuple[Flaw, ...],
    *,
    agreed: bool,
    draw: float,
) -> Verdict:
    view, group = routing.view, routing.ranking.group
    allowed = group.allowed
    number = view.snapshot.region_numbers.get(region)
    here = 0 if number is None else allowed & group.capable & 1 << number
    again = claims is not None and claims.hop > 0
    if here:
        reach = here if again or not agreed else allowed & group.capable
        return Verdict(Code.SERVE, None, None, allowed, reach, flaws, claims, routing)
    option = pick(routing.choice, routing.request, draw, lambda _: False, sheds=False)
    endpoint = routing.endpoint(option)
    if endpoint is None:
        return Verdict(Code(option.reason.value), None, None, allowed, 0, flaws, claims, routing)
    if again:
        return Verdict(Code.WRONG_REGION_AGAIN, None, None, allowed, 0, flaws, claims, routing)
    return Verdict(Code.WRONG_REGION, option.region, endpoint, allowed, 0, flaws, claims, routing)
