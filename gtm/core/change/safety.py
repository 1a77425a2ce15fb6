"""Whether a change of policy is safe to make now: six rules, each refusing with its numbers.

After Route 53 ARC's safety rules, which refuse to turn off what the rest could not carry.

  1. `reach`: no kind of client that has a usable region of a service now is left without one.
  2. `capacity`: no more of the present demand than now lacks capacity, and a total that suffices does not fall short.
  3. `moved`: no more than a set share of the present demand leaves the region that serves it, all at once. Of a demand
     below 5 requests/s no share says much, and any may move. What a tightened fence itself sends away is not counted: to
     keep the law may not be harder than to break it (docs/decisions/0017-opening-a-fence.md).
  4. `dnssec`: no zone loses its signatures while its parent may have its DS record; validators would refuse all of it.

  5. `fence`: nobody may be served from then on where the rules forbade it (`gtm.core.change.openings`).
  6. `deletion`: no zone is deleted, and not many resources at once (`gtm.core.change.protections`).

Rule 1 needs health; without any, nothing has a usable region now, and nothing can be lost. Rules 2 and 3 need demand. Rules 4 to 6 need nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from gtm.core.decision.ranking import alike_services
from gtm.core.decision.router import Router
from gtm.core.decision.view import View
from gtm.core.demand.traffic import TrafficSample
from gtm.core.model.countries import COUNTRIES
from gtm.core.model.policy import Policy
from gtm.core.model.regions import AddressFamily
from gtm.core.model.requests import Location, Request
from gtm.core.signing.keys import Keys, trusted_zones
from gtm.core.simulate.compare import Comparison, compare
from gtm.core.simulate.project import Projection
from gtm.core.simulate.scenario import Ranked, SimulatedWorld

LEAST_DEMAND = 5.0
"""Requests per second from which on rule 3 applies: a few test requests are not what it is for."""
_NOTICEABLE = 1e-3
"""Shortfalls grow by more than this part of the demand, or the planner's rounding would count."""


class SafetyRule(StrEnum):
    """The code by which a refusal names its rule."""

    REACH = "reach"
    CAPACITY = "capacity"
    MOVED = "moved"
    DNSSEC = "dnssec"
    FENCE = "fence"
    DELETION = "deletion"


PROTECTED = frozenset((SafetyRule.FENCE, SafetyRule.DELETION))
"""The rules that only a `fence-admin` may overrule."""


@dataclass(frozen=True, slots=True)
class Breach:
    """A rule that a change breaks: in words, and by how much. `value` exceeds `limit`, both in `unit`."""

    rule: SafetyRule
    message: str
    value: float
    limit: float
    unit: str


@dataclass(frozen=True, slots=True)
class SafetyVerdict:
    """What the rules say of a change. `moved` and `short` are the numbers that rules 2 and 3 looked at, None without demand."""

    breaches: tuple[Breach, ...] = ()
    """Empty: it is safe."""
    unchecked: tuple[str, ...] = ()
    """Rules that could not be applied, and why."""
    moved: float | None = None
    """The share of the present requests that would leave their region; null: no demand is known."""
    moved_by_law: float | None = field(default=None, kw_only=True)
    """The part of it whose fence is tightened: it is not held against the change."""
    short: tuple[float, float] | None = None
    """Requests per second without capacity, before and after."""
    fingerprint: str | None = None
    """What the change goes by for those who have to approve of it; null: nobody has to."""
    may_force: bool = True
    """Whether whoever asks may overrule the rules that it breaks, by giving a reason."""

    @property
    def safe(self) -> bool:
        """Whether no rule is broken. What is unchecked does not count against a change."""
        return not self.breaches


def judge(
    before: SimulatedWorld, after: SimulatedWorld, demand: Mapping[str, float], *, max_moved: float
) -> SafetyVerdict:
    """Apply the rules to a change.

    Args:
        before: the policy in force, with the health of now.
        after: the same with the change.
        demand: demand cell → requests per second now; empty where nothing is known.
        max_moved: the share (0–1) that may move at once.

    Raises:
        PlanError: the planner could not solve it.
    """
    if not before.view.up:
        nothing = "no endpoint is known to be up, so nobody is served whom a change could harm"
        return SafetyVerdict(unchecked=(f"reach, capacity and moved: {nothing}",))
    breaches = list(reach(before.view, after.view))
    if not demand:
        return SafetyVerdict(tuple(breaches), ("capacity and moved: no demand is known",))
    unchecked = []
    present = Ranked(before, demand)
    changed = Ranked(after, demand, present)
    made = compare(present, changed, TrafficSample(demand, 1.0))
    breaches += _capacity(made, before, after, changed)
    lawful = _moved_by_law(made, changed)
    if made.before.rate >= LEAST_DEMAND:
        breaches += _moved(made, lawful, max_moved)
    else:
        unchecked.append(
            f"moved: the present demand of {made.before.rate:.2g} requests/s is below {LEAST_DEMAND:g}"
        )
    short = made.before.short, made.after.short
    return SafetyVerdict(tuple(breaches), tuple(unchecked), made.displaced, short, moved_by_law=lawful)


def unsigned(before: Policy, after: Policy, keys: Keys) -> tuple[Breach, ...]:
    """Rule 4: a breach for each zone that stays, but loses signatures that validators may ask for.

    Args:
        before: the policy in force.
        after: the same with the change.
        keys: what edges sign with.
    """
    signed = {zone.name for zone in before.zones if zone.dnssec} & trusted_zones(keys)
    return tuple(
        Breach(
            SafetyRule.DNSSEC,
            f"zone `{zone.name}` would lose its signatures, and validating resolvers would refuse all of it, if its "
            f"parent has its DS record still: run `gtm dnssec withdraw {zone.name}` first",
            1.0,
            0.0,
            "zones",
        )
        for zone in after.zones
        if zone.name in signed and not zone.dnssec
    )


# --- rule 1 ---

_Group = tuple[str | None, tuple[str, ...]]
"""One name that stands for all that rules treat alike, and those."""


def reach(before: View, after: View) -> Iterator[Breach]:
    """A breach for each kind of request that some clients of a service of both policies lose."""
    old, new = Router(before), Router(after)
    lost_regions = before.snapshot.active & ~after.snapshot.active
    for family in (None, *AddressFamily):
        lost_regions |= before.up_for(family) & ~after.up_for(family)
    untouched = alike_services(before.basis, after.basis, lost_regions)
    for name in before.snapshot.services:
        if name not in after.snapshot.services:
            continue  # deleting a service is what its operator asked for; what demand it has, rule 3 counts
        if name in untouched:
            continue  # each of its members is as usable as before, for the same requests
        lost: dict[str, set[str]] = {}
        for request, countries in _requests(before, after, name):
            if _served(old, request) and not _served(new, request):
                lost.setdefault(_asking(request), set()).update(countries)
        everybody = lost.get("", set())
        for who, places in lost.items():
            if who and places <= everybody:
                continue  # those who state nothing have lost it, too
            where = "every country" if places >= COUNTRIES else _listed(sorted(places))
            message = (
                f"service `{name}` would have no usable region for clients in {where}{who}; it has one now"
            )
            yield Breach(SafetyRule.REACH, message, float(len(places)), 0.0, "countries")


def _requests(before: View, after: View, service: str) -> Iterator[tuple[Request, tuple[str, ...]]]:
    """A request of every kind that the rules of a service tell apart, and the countries it stands for."""
    rules = (*before.rules[service], *after.rules[service])
    old, new = before.snapshot, after.snapshot
    places = groups(COUNTRIES, [rule.countries for rule in rules])
    tenants = groups(old.tenants & new.tenants, [rule.tenants for rule in rules])
    classes = groups(old.data_classes & new.data_classes, [rule.data_classes for rule in rules])
    pools = (
        None,
        *(family for family in old.services[service].pools if family in new.services[service].pools),
    )
    serving = [frozenset(region.models) for region in (*old.regions, *new.regions)]
    models = groups(old.models & new.models, serving)
    for country, countries in [(None, ("unknown places",)), *places]:
        location = Location(country=country, source="cell", accuracy_km=0.0)
        for tenant, _ in [(None, ()), *tenants]:
            for data_class, _ in [(None, ()), *classes]:
                for model, _ in [(None, ()), *models]:
                    asked = Request(service, location, tenant, data_class, model)
                    yield from ((asked._replace(family=family), countries) for family in pools)


def groups(names: frozenset[str], scopes: Sequence[frozenset[str] | None]) -> list[_Group]:
    """The names, those together that are in the same scopes."""
    scoped: dict[str, list[int]] = {name: [] for name in sorted(names)}
    for number, scope in enumerate(dict.fromkeys(scopes)):
        for name in scope or ():
            if name in scoped:
                scoped[name].append(number)
    found: dict[tuple[int, ...], list[str]] = {}
    for name, numbers in scoped.items():
        found.setdefault(tuple(numbers), []).append(name)
    return [(group[0], tuple(group)) for group in found.values()]


def _served(router: Router, request: Request) -> bool:
    """Whether some region takes such new clients."""
    group = router.ranker.fresh(
        request
    ).group  # each kind is asked for once: no memory but what services share
    return bool(router.choices[group].eligible)


def _asking(request: Request) -> str:
    stated = (("tenant", request.tenant), ("data class", request.data_class), ("model", request.model))
    parts = [f"{what} `{name}`" for what, name in stated if name is not None]
    family = "" if request.family is None else f" that ask for {request.family.rrtype} records"
    return family + (f" that state {', '.join(parts)}" if parts else "")


def _listed(names: list[str], most: int = 8) -> str:
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


# --- rules 2 and 3 ---


def _capacity(
    made: Comparison, before: SimulatedWorld, after: SimulatedWorld, ranked: Ranked
) -> Iterator[Breach]:
    rate = made.before.rate
    short, grown = made.before.short, made.after.short
    if grown > short + _NOTICEABLE * rate:
        sets = "".join(f"; {text}" for text in _short_sets(made, ranked))
        message = (
            f"the usable capacity would be {grown:.4g} requests/s short of the present demand of {rate:.4g} "
            f"({short:.4g} now){sets}"
        )
        yield Breach(SafetyRule.CAPACITY, message, grown, short, "requests/s")
    was, would = _slots(made.before, before), _slots(made.after, after)
    if was is not None and would is not None and would[1] < would[0] and was[1] >= was[0]:
        message = (
            f"all regions together would have {would[1]:.4g} usable slots, and the present demand takes {would[0]:.4g} "
            f"({was[1]:.4g} now)"
        )
        yield Breach(SafetyRule.CAPACITY, message, would[0], would[1], "slots")


def _short_sets(made: Comparison, ranked: Ranked, most: int = 3) -> list[str]:
    """The sets of regions that are short of capacity for the demand that may go to any of them, worst first."""
    view = ranked.world.view
    demand: dict[int, float] = {}
    missing: dict[int, float] = {}
    for cell, ranking in ranked.rankings.items():
        group = ranking.group
        within = group.eligible(view.up_for(group.family))
        rate = made.sample.counts[cell] / made.sample.seconds
        demand[within] = demand.get(within, 0.0) + rate
        missing[within] = missing.get(within, 0.0) + rate * (1 - sum(made.after.cells[cell].values()))
    worst = sorted((mask for mask in missing if mask), key=lambda mask: -missing[mask])[:most]
    return [
        f"{_listed(list(view.snapshot.names(mask)))}: {missing[mask]:.4g} of {demand[mask]:.4g} requests/s refused"
        for mask in worst
        if missing[mask] > _NOTICEABLE * made.before.rate
    ]


def _slots(projection: Projection, world: SimulatedWorld) -> tuple[float, float] | None:
    """The slots that the demand takes, and those usable in all regions together; None where a bound is not known."""
    usable = [supply.slots for supply in world.supply.values()]
    used = [room.used_slots for room in projection.room.values()]
    if None in usable or None in used:
        return None
    served = sum(projection.served.values())
    taken = sum(slots for slots in used if slots is not None)
    refused = projection.short - sum(projection.queued.values())
    per_request = taken / served if served > 0 else 0.0
    return taken + refused * per_request, sum(slots for slots in usable if slots is not None)


def _moved(made: Comparison, lawful: float, most: float) -> Iterator[Breach]:
    moved = made.displaced - lawful
    if moved > most:
        besides = f" (beside {lawful:.1%} whose fence is tightened, which are not counted)" if lawful else ""
        message = (
            f"{moved:.1%} of the present requests would leave the region that serves them at once; the most "
            f"allowed is {most:.0%}{besides}"
        )
        yield Breach(SafetyRule.MOVED, message, moved, most, "share")


def _moved_by_law(made: Comparison, ranked: Ranked) -> float:
    """The share of the demand that leaves members which the fence no longer lets serve it."""
    snapshot = ranked.world.view.snapshot
    sent = 0.0
    for cell, count in made.sample.counts.items():
        ranking = ranked.rankings.get(cell)
        if ranking is None:
            continue
        forbidden = ranking.group.service.mask & ~ranking.group.allowed
        shares = made.after.cells[cell]
        for name, share in made.before.cells[cell].items():
            number = snapshot.region_numbers.get(name)
            if number is not None and forbidden >> number & 1:
                sent += count * max(0.0, share - shares.get(name, 0.0))
    total = sum(made.sample.counts.values())
    return min(made.displaced, sent / total) if total > 0 else 0.0
