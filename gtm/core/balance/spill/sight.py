"""Whether a balancer is the first that sees a request of its region: what it earns of its home's shares follows from that.

A share is of the home's requests, each counted once (`gtm.core.quota.earned`): where an edge has answered it, the edge has
counted it, and hands on what it could not save. How a balancer knows:

    a handoff for one request       an edge saw it
    a carried request's handoff     an edge saw it, and each that comes with the same
    a look-up's handoff             an edge saw the first request with it; those that follow nobody
    a handoff of a balancer's       a balancer saw it, pushed or sent on
    none, by a service's host name  nobody: DNS gave the address
    none, of a service that signs   nobody: edges give every request one
    none otherwise                  nobody can tell: a redirect of a service that does not sign looks like this
    one that is not believed        nobody can tell
"""

from __future__ import annotations

from collections.abc import Callable

from gtm.core.handoff.claims import Claims
from gtm.core.handoff.verdict import Reuse, Verdict
from gtm.core.model.services import Handoff
from gtm.core.quota.earned import Sight

_OF_LOOKUPS = {Reuse.NEW: Sight.HANDED, Reuse.USED: Sight.FIRST, Reuse.FULL: Sight.SEEN}


def sight(verdict: Verdict, *, named: bool, used: Callable[[Claims], Reuse]) -> Sight:
    """How a request came to the balancer of its home.

    Args:
        verdict: what became of it, with a routing.
        named: it came by a host name of its service.
        used: notes that a look-up's handoff came, and says whether it did before.
    """
    claims, routing = verdict.believed, verdict.routing
    if claims is None:
        signs = routing is not None and routing.ranking.group.service.service.handoff is Handoff.SIGN
        return Sight.FIRST if (named or signs) and not verdict.flaws else Sight.SEEN
    if claims.hop or claims.carried:
        return Sight.SEEN
    return Sight.HANDED if claims.once else _OF_LOOKUPS[used(claims)]
