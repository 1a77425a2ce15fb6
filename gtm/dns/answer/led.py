"""Whether a region's alias leads a client out of the fence, because it is a name of the policy's own.

Whoever asks for a service and is answered by an alias asks for that name next, which another service may decide, by its own rules: those
that keep the first one's clients from regions may not concern it. So an alias is given only where the rules of all services that
it leads to keep this client within the fence of the one asked for, and where it ends at records, no address of theirs is that of regions outside
alone. Addresses that no region has are the operator's word, as an alias for a name elsewhere is; `gtm check` tells of them (`led_out`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from gtm.core.decision.options import Option
from gtm.core.decision.ranking import Ranking, RankingClass
from gtm.core.decision.router import Ranker, Router
from gtm.core.decision.view import View
from gtm.core.model.outcomes import Outcome, Reason
from gtm.core.model.requests import Location
from gtm.core.policy.snapshot import bits
from gtm.dns.protocol import wire
from gtm.dns.zone.content import Content, answered_alias
from gtm.dns.zone.static import MAX_ALIASES, Alias, static_content
from gtm.dns.zone.zones import Host, Names, wire_name

LED_OUT = Option(-1, None, Outcome.REFUSED_RESIDENCY, Reason.FENCE_UNUSABLE)
"""How a request ends whose alias leads out of the fence."""
_LED_OUT_TEXT = "the alias of the region chosen leads to regions that residency rules forbid for this client"

Leads = tuple[tuple[str, tuple[str, ...] | None], ...]
"""Aliases, each with the services that it may lead to; None: it may lead out of the fence."""


def leads(ranker: Ranker, names: Names, ranking: Ranking, location: Location) -> Leads:
    """Where each alias of the regions inside a request's fence leads; nothing is said of those for names elsewhere.

    It depends on the client's place and on no health, so it holds as long as the Ranker.

    Args:
        ranker: what decides where clients may go.
        names: those of its policy.
        ranking: of the request.
        location: where the client is.
    """
    group = ranking.group
    if group.service.service.name not in names.aliasing:
        return ()
    regions = ranker.basis.snapshot.regions
    aliases = dict.fromkeys(
        endpoint.cname
        for number in bits(group.allowed)
        for endpoint in regions[number].endpoints
        if endpoint.cname is not None
    )
    return tuple(_leads(ranker, names, ranking, aliases, location))


def led(
    router: Router, names: Names, ranking: Ranking, option: Option, location: Location
) -> tuple[Option, int | None]:
    """As `within`, for a question of which nothing is known yet: nothing but the alias that it would get is followed.

    Args:
        router: what decides.
        names: those of its policy.
        ranking: of the request.
        option: how it ends.
        location: where the client is.
    """
    service = ranking.group.service.service
    if service.name not in names.aliasing or option.outcome is not Outcome.SERVED:
        return option, None
    alias = answered_alias(router.view, service, option)
    known = () if alias is None else tuple(_leads(router.ranker, names, ranking, (alias,), location))
    return within(router.view, ranking.group, known, option)


def _leads(
    ranker: Ranker, names: Names, ranking: Ranking, aliases: Iterable[str], location: Location
) -> Iterator[tuple[str, tuple[str, ...] | None]]:
    law = -1
    for matched in ranking.within.matched:
        if matched.compiled.enforced:
            law &= matched.compiled.allowed
    for alias in aliases:
        if names.zone_of(wire_name(alias)) is not None:
            yield alias, _inside(ranker, names, law, alias, location)


def within(view: View, group: RankingClass, known: Leads, option: Option) -> tuple[Option, int | None]:
    """The option, or `LED_OUT` if the answer would be an alias that leads out of the fence; and how long that is known, if less than for ever.

    It holds for as many seconds as what the services say holds that the alias leads to.

    Args:
        view: what the option was made from.
        group: the request's class.
        known: of the request.
        option: how it ends.
    """
    if not known or option.outcome is not Outcome.SERVED:
        return option, None
    alias = answered_alias(view, group.service.service, option)
    for name, services in known:
        if name == alias:
            if services is None:
                return LED_OUT, None
            ttls = (view.ttl_of(view.snapshot.services[service]) for service in services)
            return option, min(ttls, default=None)
    return option, None


def ended(content: Content, option: Option, most: int | None) -> Content:
    """An answer, given what `within` found: it says that an alias leads out, and is kept for no more than so many seconds."""
    if option is LED_OUT and content.error is not None:
        return replace(content, error=replace(content.error, text=_LED_OUT_TEXT))
    if most is None:
        return content
    return replace(content, records=tuple(replace(one, ttl=min(one.ttl, most)) for one in content.records))


def _inside(ranker: Ranker, names: Names, law: int, alias: str, location: Location) -> tuple[str, ...] | None:
    """The services that an alias may lead to, if none of them sends this client to a region that is not in a mask; None: one may.

    A resolver follows so many aliases at the most; who leads on to more services than that is not followed to the end, and leads out.
    """
    regions = ranker.basis.snapshot.regions
    ahead, seen, hosts = [alias], {alias}, dict[Host, None]()
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
        hosts[host] = None
        group = ranker.ranking(host.request(location, wire.CNAME)).group  # whatever the family
        if group.allowed & ~law or len(hosts) > MAX_ALIASES:
            return None
        for number in bits(group.allowed):
            for endpoint in regions[number].endpoints:
                if endpoint.cname is not None and endpoint.cname not in seen:
                    seen.add(endpoint.cname)
                    ahead.append(endpoint.cname)
    return tuple(host.service for host in hosts)
