"""Whether an edge carries a request, or sends its client to the region: the law of edges that read what they carry.

Theory. An edge that redirects sees a request's head. One that carries it reads the whole of it, so it is a place of processing, as
a region is: it stands inside the fence of each enforced rule that concerns the request, or it does not carry. A rule's `edges`
has no part in that: it says which edges may answer at all.

    may the edge answer?     no  ─▶ 421, as of every answer (`gtm.core.decision.choice`, law 4)
          │ yes
    may a region serve it?   no  ─▶ 451, 503, 429, as of every answer
          │ yes
    is the service carried,  no  ─▶ 307 to the region
    and the edge inside?
          │ yes
        carried

Laws:
  1. An edge of unknown country is inside no rule that looks at places (`gtm.core.policy.edges`).
  2. A rule in monitor mode binds nobody.
  3. Where two periods of a rule may be in force, since the clock stepped back, both count.
  4. The region is the same as of a redirect. Another one is asked only where that one fails, and inside the same fence: it is
     what the same choice would be if the fence left out the region that failed (`without`).
"""

from __future__ import annotations

from dataclasses import replace

from gtm.core.decision.choice import Choice, choice
from gtm.core.decision.decide import Routing
from gtm.core.decision.fence import Fence
from gtm.core.decision.view import Basis
from gtm.core.model.services import HttpAnswer


def carries(routing: Routing) -> bool:
    """Whether the edge that the request's View belongs to carries it, if a region serves it."""
    asked = routing.ranking.group.service.service.answer is HttpAnswer.CARRY
    return asked and may_carry(routing.view.basis, routing.ranking.within)


def may_carry(basis: Basis, within: Fence) -> bool:
    """Whether the law lets the edge read a request: it stands inside the fence of every enforced rule that concerns it.

    Args:
        basis: with the edge's place; without one nobody carries.
        within: the rules that concern the request.
    """
    if basis.edge is None:
        return False
    return not any(match.compiled.rule.name in basis.uncarried for match in within.matched)


def without(routing: Routing, failed: int) -> Choice:
    """The choice that a request's class would have if the fence left some of its regions, a mask, out too: also where health is ignored."""
    group = routing.ranking.group
    return choice(routing.view, replace(group, allowed=group.allowed & ~failed))
