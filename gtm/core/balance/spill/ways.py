"""Where the requests of a ranking class may be sent instead of where the plan sends them."""

from __future__ import annotations

from gtm.core.balance.spill.edge import Way
from gtm.core.decision.ranking import RankingClass, ranked
from gtm.core.decision.view import View
from gtm.core.decision.weights import added_ms, quotas_by_plan, quotas_of
from gtm.core.model.affinity import key_hash
from gtm.core.model.outcomes import FenceError
from gtm.core.model.services import PLANNED, Affinity
from gtm.core.quota.names import QuotaText


def ways(view: View, group: RankingClass, sender: str) -> tuple[Way, ...]:
    """A class's ways in one View, the least latency first; to be made once for both, as a Choice is.

    These are its eligible regions (inside the fence, with the models, taking new clients, up) that are not in slow start and
    that spillover rules lead to from its home. None where the plan steers nothing: a service that follows weights or an order means
    these, one with affinity means its region, and an edge outside a rule answers nothing.

    Args:
        view: the state of the world.
        group: the class.
        sender: the name of the edge's worker, or of the balancer.

    Raises:
        FenceError: a region is outside the fence (a bug in gtm).
    """
    service = group.service.service
    if group.outside or service.steering not in PLANNED or service.affinity is not Affinity.NONE:
        return ()
    order = ranked(group.service, group.order, group.eligible(view.up_for(group.family)))
    added = added_ms(view.basis, group, order)
    found = []
    for number in order:
        region = view.snapshot.regions[number].name
        if not group.allowed >> number & 1:
            raise FenceError(f"region {region} is outside the fence")
        quotas = () if number == order[0] else quotas_of(view, group, order[0], number)
        if quotas is None or number in view.ramps:
            continue
        found.append(Way(number, added[number], quotas, key_hash(f"{sender}\n{region}")))
    return tuple(sorted(found, key=lambda way: way.added_ms))


def counted_at(
    view: View, group: RankingClass, every: tuple[Way, ...], here: int | None
) -> frozenset[QuotaText]:
    """The quotas that a class's requests count against where they are: paid by who sent them, or used by the plan's DNS answers.

    Args:
        view: the state of the world.
        group: the class.
        every: its ways.
        here: the number of the region that they are in; None: the policy does not have it.
    """
    home = next(iter(ranked(group.service, group.order, group.eligible(view.up_for(group.family)))), None)
    if not every or home is None or here is None or here == home:
        return frozenset()
    return frozenset(quotas_by_plan(view, group, home, here))


def owed(quotas: tuple[QuotaText, ...], counted: frozenset[QuotaText]) -> tuple[QuotaText, ...]:
    """What is to be paid for the way to another region by a request that counts against some quotas already."""
    return tuple(quota for quota in quotas if quota not in counted)
