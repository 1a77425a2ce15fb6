"""Where requests of one kind may go, as a list for proxies that choose by themselves: regions, shares, endpoints.

Law: a list names only regions that a decision could answer for such a request. Each is made an `Option` by `Maker.served`, which
checks the fence again, and the choice is the one that decisions are picked from.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from math import inf

from gtm.core.decision.decide import Routing
from gtm.core.decision.options import Maker, serving
from gtm.core.decision.ranking import ranked
from gtm.core.decision.view import View
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


def holds_for(view: View, service: str) -> float:
    """For how many seconds a list may be gone by while nobody says anything newer; infinite if no rule of the service bounds that.

    It ends when a rule, or the period of one, begins to restrict, and when the policy is older than a rule accepts.
    """
    window = view.window
    enforced = [rule for rule in view.snapshot.services[service].rules if rule.enforced]
    begins = [rule.starts - window.latest for rule in enforced if rule.starts > window.latest]
    ages = [
        rule.rule.max_policy_age - window.age
        for rule in enforced
        if rule.rule.max_policy_age is not None and rule.ends > window.now
    ]
    return max(0.0, min([*begins, *ages], default=inf))
