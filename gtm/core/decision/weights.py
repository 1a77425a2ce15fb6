"""Which part of a ranking class's requests each eligible region takes: by steering or plan, then slow start.

Everything here maps region numbers to shares above 0 that sum to 1 (but for canaries, which take theirs first), in order of
preference, and names eligible regions only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import inf

from gtm.core.decision.ranking import RankingClass
from gtm.core.decision.view import Basis, Spill, View
from gtm.core.model.services import PLANNED, Steering
from gtm.core.model.state import ClassPlan
from gtm.core.policy.snapshot import bits
from gtm.core.quota.names import QuotaName, QuotaText

Shares = dict[int, float]

_NOTHING = 1e-9


def shares_of(view: View, group: RankingClass, order: Sequence[int]) -> tuple[Shares, ClassPlan | None]:
    """The shares of a class, and the plan they follow (None: there is none for it).

    Args:
        view: the state of the world.
        group: the class.
        order: its eligible regions in order of preference, at least one.
    """
    plan = None
    shares = None
    if group.service.service.steering in PLANNED:
        plan = view.state.plan.classes.get(group.key)
        if plan is not None:
            shares = _planned(view, plan, order)
        elif view.state.plan.prices:
            shares = {_cheapest(view, group, order): 1.0}
    if shares is None:
        return ramped(steered(group, order), view.ramps, order), plan
    # A plan ramps already: by the capacity it sees, and by its bounded steps.
    return shares, plan


def canaries_of(view: View, group: RankingClass) -> Shares:
    """The shares of a class's canaries that take clients now, those in slow start by as much as they have ramped up."""
    within = group.eligible(view.up_for(group.family))
    return {
        number: share * view.ramps.get(number, 1.0)
        for number, share in group.service.canaries.items()
        if within >> number & 1 and share > 0
    }


def steered(group: RankingClass, order: Sequence[int]) -> Shares:
    """The shares that the service's steering alone gives."""
    if group.service.service.steering is not Steering.WEIGHTED:
        return {order[0]: 1.0}
    weights = group.service.weights
    total = sum(weights[number] for number in order)
    if total <= 0:
        return {number: 1 / len(order) for number in order}
    shares = {number: weights[number] / total for number in order}
    return {number: share for number, share in shares.items() if share > 0}


def _planned(view: View, plan: ClassPlan, order: Sequence[int]) -> Shares | None:
    """The plan's weights among the eligible; a failed region's part goes to the others in proportion.

    None if nothing of the plan is left: an outage that the next plan will know.
    """
    regions = view.snapshot.regions
    weights = {number: plan.weights.get(regions[number].name, 0.0) for number in order}
    total = sum(weights.values())
    if total <= _NOTHING:
        return None
    return {number: weight / total for number, weight in weights.items() if weight > 0}


def _cheapest(view: View, group: RankingClass, order: Sequence[int]) -> int:
    """Where a request of a class that the plan does not know adds least: what the way there adds, and the region's price.

    The price is the planner's dual value: the latency that others would lose to one more request there.
    """
    prices, regions = view.state.plan.prices, view.snapshot.regions
    home = order[0]
    best, least = home, inf
    for number, added in added_ms(view.basis, group, order).items():
        if number != home and quotas_of(view, group, home, number) is None:
            continue
        cost = added + prices.get(regions[number].name, 0.0)
        if cost < least:
            best, least = number, cost
    return best


def added_ms(basis: Basis, group: RankingClass, order: Sequence[int]) -> dict[int, float]:
    """What a region takes longer than the home region, in ms, for a client who stands where the home region does.

    Clients of one class differ in their latencies. What they have in common is their order, and this is known of the class alone: so it
    is the same whoever came first. By latency, none is below that of one before it.

    Args:
        basis: policy and latency table.
        group: the class; where nobody knew where its clients are, the place in the order stands for ms.
        order: some of its regions in order of preference, the home region first.
    """
    if not group.located or not order:
        return {number: float(place) for place, number in enumerate(order)}
    home, service = order[0], group.service.service
    between, processing = basis.estimator.between[home], basis.processing.get(service.name, {})
    base = processing.get(home, 0.0)
    found, last = {home: 0.0}, 0.0
    for number in order[1:]:
        added = max(0.0, between[number] + processing.get(number, 0.0) - base)
        last = found[number] = max(last, added) if service.steering is Steering.LATENCY else added
    return found


def ramped(shares: Shares, ramps: Mapping[int, float], order: Sequence[int]) -> Shares:
    """Shares with regions in slow start bounded by their ramp; the rest goes to the next in order of preference.

    If all are in slow start together there is nobody else: they share it in proportion.
    """
    if all(share <= ramps.get(number, 1.0) for number, share in shares.items()):
        return shares
    bounded = {number: min(share, ramps.get(number, 1.0)) for number, share in shares.items()}
    spare = 1 - sum(bounded.values())
    for number in order:
        if spare <= _NOTHING:
            break
        given = min(spare, ramps.get(number, 1.0) - bounded.get(number, 0.0))
        if given > 0:
            bounded[number] = bounded.get(number, 0.0) + given
            spare -= given
    total = sum(bounded.values())
    return {number: bounded[number] / total for number in order if bounded.get(number, 0.0) > 0}


def explorable(view: View, group: RankingClass, order: Sequence[int], shares: Shares) -> tuple[int, ...]:
    """The regions that exploring requests may go to: eligible, open to spillover from home, neither ramping nor full."""
    prices, regions = view.state.plan.prices, view.snapshot.regions
    return tuple(
        number
        for number in order
        if shares.get(number, 0.0) < 1
        and number not in view.ramps
        and prices.get(regions[number].name, 0.0) <= 0
        and (number == order[0] or quotas_of(view, group, order[0], number) is not None)
    )


def quotas_of(view: View, group: RankingClass, home: int, number: int) -> tuple[QuotaText, ...] | None:
    """The quotas that a request counts against when it goes from its home region to another.

    None if no spillover rule leads there although the home region has some: then it may not.
    """
    basis = view.basis
    rules = basis.spillover.get(home)
    bounded = _bounded(view, number)
    if rules is None:
        return bounded
    leading = [
        rule
        for rule in rules
        if rule.to >> number & 1
        and (rule.max_added_latency_ms is None or group.near[home, rule.name] >> number & 1)
    ]
    return (*_of_rules(leading), *bounded) if leading else None


def quotas_by_plan(view: View, group: RankingClass, home: int, number: int) -> tuple[QuotaText, ...]:
    """As `quotas_of`, where the plan sends requests: what a planned request counts against is never nothing.

    The planner judged the latency of all the class's clients, here it is known of some: where they differ, and where no
    rule leads by what is known here, the request counts against every rule that names the region.
    """
    quotas = quotas_of(view, group, home, number)
    if quotas is not None:
        return quotas
    basis = view.basis
    named = (rule for rule in basis.spillover.get(home, ()) if rule.to >> number & 1)
    return (*_of_rules(named), *_bounded(view, number))


def earned_at(view: View, home: int) -> tuple[tuple[QuotaText, float], ...]:
    """What each request whose home is a region earns of the rules' shares of its demand: tokens by quota."""
    return tuple(
        (QuotaName(rule.name, share=True).text, rule.share)
        for rule in view.basis.spillover.get(home, ())
        if rule.share
    )


def left_at_home(view: View, home: int, shares: Mapping[int, float]) -> tuple[tuple[QuotaText, float], ...]:
    """What a request by DNS that arrives at its home earns: what the plan's answers leave of the rules' shares.

    Of `share` tokens that a request of the class is worth, those that the plan sends away by cached answers have used theirs,
    which is known in the mean only. What is left is earned by those that stay.

    Args:
        view: the state of the world.
        home: the class's home.
        shares: the parts of the regions in the answers.
    """
    stays, found = shares.get(home, 0.0), []
    if stays <= _NOTHING:
        return ()
    for rule in view.basis.spillover.get(home, ()):
        if rule.share:
            away = sum(share for number, share in shares.items() if number != home and rule.to >> number & 1)
            worth = min(rule.share, (rule.share - away) / stays)
            if worth > 0:
                found.append((QuotaName(rule.name, share=True).text, worth))
    return tuple(found)


def _of_rules(rules: Iterable[Spill]) -> Iterable[QuotaText]:
    return (quota for rule in rules for quota in rule.quotas)


def _bounded(view: View, number: int) -> tuple[QuotaText, ...]:
    """The quota of what a region takes of others' demand, if it limits that."""
    if not view.basis.bounded >> number & 1:
        return ()
    return (QuotaName(view.snapshot.regions[number].name, into=True).text,)


def staying(view: View, group: RankingClass, within: int, shares: Shares) -> Shares:
    """The shares of clients with affinity: those of a draining home region leave it step by step.

    Args:
        view: the state of the world.
        group: the class.
        within: mask of the regions that may serve if draining did not matter (inside the fence, healthy, with models).
        shares: of everybody else.
    """
    draining = [number for number in bits(within) if number in view.drains]
    if not draining:
        return shares
    eligible = sum(1 << number for number in shares) | sum(1 << number for number in draining)
    order = [number for number in group.order if eligible >> number & 1]
    before = steered(group, order)
    staying_on = {number: before[number] * view.drains[number] for number in draining if number in before}
    rest = 1 - sum(staying_on.values())
    return {**staying_on, **{number: share * rest for number, share in shares.items() if share * rest > 0}}
