"""Whether a region's alias leads a client out of the fence, because it is a name of the policy's own.

Whoever asks for a service and is answered by an alias asks for that name next, which another service may decide, by its own rules: those
that keep the first one's clients from regions may not concern it. So an alias is given only where the rules of all services that
it leads to keep this client within the fence of the one asked for, and where it ends at records, no address of theirs is that of regions outside
alone. Addresses that no region has are the operator's word, as an alias for a name elsewhere is; `gtm check` tells of them (`led_out`).
"""

from __future__ import annotations

from gtm.core.decision.options import Option
from gtm.core.decision.ranking import Ranking
from gtm.core.decision.router import Router
from gtm.core.model.outcomes import Outcome, Reason
from gtm.core.model.requests import Location
from gtm.core.policy.snapshot import bits
from gtm.dns.protocol import wire
from gtm.dns.zone.content import Content, answered_alias
from gtm.dns.zone.static import MAX_ALIASES, Alias, static_content
from gtm.dns.zone.zones import Host, Names, wire_name

MAX_TTL = 86_400
"""Seconds: the longest TTL that policies give."""

LED_OUT = Option(-1, None, Outcome.REFUSED_RESIDENCY, Reason.FENCE_UNUSABLE)
"""How a request ends whose alias leads out of the fence."""


def within(
    router: Router, names: Names, ranking: Ranking, option: Option, location: Location
) -> tuple[Option, int | None]:
    """The option, or `LED_OUT` if the answer would be an alias that leads out of the fence; and how long that is known, if less than for ever.

    It holds for as many seconds as what the services say holds that the alias leads to.

    Args:
        router: what decides.
        names: those of its policy.
        ranking: of the request.
        option: how it ends.
        location: where the client is.
    """
    if ranking.group.service.service.name not in names.aliasing or option.outcome is not Outcome.SERVED:
        return option, None
    alias = answered_alias(router.view, ranking.group.service.service, option)
    if alias is None:
        return option, None
    law = -1
    for matched in ranking.within.matched:
        if matched.compiled.enforced:
            law &= matched.compiled.allowed
    until = _inside(router, names, law, alias, location)
    return (option, until) if until is not None else (LED_OUT, None)


def _inside(router: Router, names: Names, law: int, alias: str, location: Location) -> int | None:
    """For how many seconds nothing that an alias may lead to sends this client to a region that is not in a mask; None: it may.

    A resolver follows so many aliases at the most; who leads on to more services than that is not followed to the end, and leads out.
    """
    view, most = router.view, MAX_TTL
    regions = view.snapshot.regions
    ahead, seen, hosts = [alias], {alias}, set[Host]()
    while ahead:
        name = wire_name(ahead.pop())
        found = static_content(names, name, wire.A)
        host = found.host if isinstance(found, Alias) else found
        if isinstance(host, Content):
            other = static_content(names, name, wire.AAAA)
            records = (*host.records, *(other.records if isinstance(other, Content) else ()))
            if any(not names.owners.get(record.rdata, law) & law for record in records):
                return None
            continue
        if host in hosts:
            continue
        hosts.add(host)
        group = router.routing(host.request(location, wire.CNAME)).ranking.group  # whatever the family
        if group.allowed & ~law or len(hosts) > MAX_ALIASES:
            return None
        most = min(most, view.ttl_of(group.service))
        for number in bits(group.allowed):
            for endpoint in regions[number].endpoints:
                if endpoint.cname is not None and endpoint.cname not in seen:
                    seen.add(endpoint.cname)
                    ahead.append(endpoint.cname)
    return most
