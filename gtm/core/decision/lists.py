"""Where requests of one kind may go, as a list for proxies that choose by themselves: regions, shares, endpoints.

Law: a list names only regions that a decision could answer for such a request. Each is made an `Option` by `Maker.served`, which
checks the fence again, and the choice is the one that decisions are picked from.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from gtm.core.decision.decide import Routing
from gtm.core.decision.options import Maker, serving
from gtm.core.decision.ranking import ranked
from gtm.core.model.lists import ListedRegion
from gtm.core.model.outcomes import Reason
from gtm.core.model.regions import Endpoint
from gtm.core.model.requests import ANYWHERE, Location

EVERYWHERE = Location(source="mixed", spans=ANYWHERE)
"""Clients of all places together: every rule about clients' places concerns them, so that their fence is the intersection of all."""


def listed(routing: Routing) -> tuple[ListedRegion, ...]:
    """The regions that requests of a kind may be sent to now, in order of preference; none where all are refused."""
    view, group, chosen = routing.view, routing.ranking.group, routing.choice
    maker = Maker(view, group)
    taking = ranked(group.service, group.order, chosen.eligible)
    ignored = chosen.options[0].reason is Reason.HEALTH_IGNORED
    reason = Reason.HEALTH_IGNORED if ignored else Reason.FAILOVER_ORDER
    found = []
    for number in group.order:
        if not chosen.eligible >> number & 1:
            continue
        option = maker.served(number, reason)
        endpoints = serving(view, option)
        given = endpoints if ignored else tuple(_answering(endpoints, view.answered[number]))
        share = chosen.shares.get(number, 0.0)
        found.append(ListedRegion(option.region or "", share, share <= 0 and number not in taking, given))
    return tuple(found)


def _answering(endpoints: Iterable[Endpoint], answered: Iterable[Endpoint]) -> Iterable[Endpoint]:
    """Endpoints with those of their addresses that are up; without any, where all of them are down and the URL is up all the same."""
    left = {endpoint.url: endpoint for endpoint in answered}
    for endpoint in endpoints:
        yield left.get(endpoint.url) or replace(endpoint, ipv4=(), ipv6=())
