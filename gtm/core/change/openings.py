"""What a change of policy opens: who may be served where from then on, and might not before.

The services, regions, tenants and data classes of the new policy are judged by the old rules – with the jurisdictions of
then, and regions and tenants as they were, as far as they were there – and by the new ones, at this moment and at each
later one at which a rule changes by itself. What the new rules permit and the old ones did not is an opening. So adding a
region where the rules allow one opens nothing, and neither does a new service.

Beside its regions and services, a policy is judged for those to come: regions by where they may stand and by who may run
them, services that no rule names. Else a rule could be taken off first, and what it forbade be added after.

A name keeps its rules: if it moves to another service, or states another tenant or data class, requests by it are
judged by the rules of the service before, with what the name stated then. A name that nothing answered before, not even a
wildcard, has no such requests. A new service is judged by the rules that named a deleted one with a member in common: it is
taken to be that one's new name.

What clients are led to without a decision (`gtm.core.change.leads`) is judged likewise: records at such a name or below a
host name, refusal addresses, name servers, and endpoints that are those of other places. What is gone keeps its rules until it is
answered again: then the change is judged by the policy that was the last to have it, too.

Law: what cannot be told apart counts as opened.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from math import inf

from gtm.core.change.boxes import (
    Bounded,
    Box,
    Budget,
    OutOfBudget,
    Wall,
    around,
    covers,
    overlap,
    uncovered,
    within,
)
from gtm.core.change.ground import ChangedWay, Ground, LocationKinds, TooManyFacts
from gtm.core.change.leads import (
    NOTHING_FORMER,
    Decider,
    Former,
    Leads,
    LeadsOf,
    Owners,
    Shared,
    binding,
    given_back,
    leading,
    refusals_of,
    servers_of,
    taken_over,
)
from gtm.core.model.names import WILDCARD, ancestors, closest
from gtm.core.model.policy import Match, Places, Policy, ResidencyRule, RuleMode
from gtm.core.model.regions import AdminState
from gtm.core.policy.snapshot import Snapshot, bits

MOST_STEPS = 4_000_000
"""After so many comparisons the search ends: a few seconds."""
MOST_WAYS = 50_000
"""Most ways of requests, from a service before to a service after, that are looked at."""
_FEW = 20
"""A wall about more services is looked at whatever the service."""

_PORT = "_8443._https"
"""Stands for where browsers ask of any port, and for any name below another one."""
UNNAMED = ""
"""Stands for a service that no rule names."""

KNOWN_FIELDS: Mapping[type, frozenset[str]] = {
    ResidencyRule: frozenset(
        (
            "name",
            "match",
            "allow",
            "deny",
            "mode",
            "on_unknown_location",
            "on_anonymous",
            "on_doubtful_location",
            "max_accuracy_km",
            "legal_basis",
            "effective_from",
            "effective_until",
            "acknowledge_empty_fence",
            "edges",
            "max_policy_age",
        )
    ),
    Match: frozenset(
        (
            "services",
            "client_countries",
            "client_jurisdictions",
            "tenants",
            "data_classes",
            "tenant_jurisdictions",
        )
    ),
    Places: frozenset(("jurisdictions", "regions", "operator_jurisdictions")),
}
"""The fields of rules that this comparison understands. A rule that differs in any other counts as opened."""


@dataclass(frozen=True, slots=True)
class Opening:
    """What the rule `rule` kept from some requests, and nothing keeps from them any more.

    `services` (`""`: services to come), to whom requests come by `hosts` (empty: however they come), `regions`, and for regions to come the countries where they may `stand` and from
    which they may be `run`; `edges` says in words what edges may handle it beside. `outside`: places outside of the policy, too. `led`:
    records or refusal addresses lead there, whatever rules say; `shared` are regions whose endpoints lead to other places, and these. `countries` are the clients' (None: unknown; none: only of subnets too wide); `certain`: not only of those who are located
    badly, in doubt or behind anonymising networks. `tenants` and `classes` have None for requests that state none. From the POSIX
    time `starts` (`later`: not yet now) until `ends`, at the widest. `fate`: what became of the rule, `deleted`, `changed`
    or `kept`.
    """

    rule: str
    fate: str
    services: tuple[str, ...]
    hosts: tuple[str, ...]
    regions: tuple[str, ...]
    stand: tuple[str, ...]
    run: tuple[str, ...]
    edges: tuple[str, ...]
    outside: bool
    led: bool
    shared: tuple[tuple[str, tuple[str, ...]], ...]
    countries: tuple[str | None, ...]
    certain: bool
    tenants: tuple[str | None, ...]
    classes: tuple[str | None, ...]
    starts: float
    ends: float
    later: bool

    @property
    def bounded(self) -> bool:
        """Whether it ends by itself."""
        return self.ends < inf


@dataclass(frozen=True, slots=True)
class Openings:
    """All of it: by old rule in the order written, and the rules of which nobody can tell, with why."""

    found: tuple[Opening, ...] = ()
    unknown: Mapping[str, str] | None = None

    @property
    def any(self) -> bool:
        """Whether the change opens something, or may."""
        return bool(self.found or self.unknown)


def openings(
    before: Snapshot,
    after: Snapshot,
    now: float,
    *,
    leads: LeadsOf,
    former: Former = NOTHING_FORMER,
    steps: int = MOST_STEPS,
) -> Openings:
    """Compare what two policies forbid.

    Args:
        before: the policy in force.
        after: the same with the change.
        now: POSIX seconds; what was only before that does not matter.
        leads: tells what a policy's names lead to.
        former: what is gone, and keeps its rules.
        steps: how many comparisons may be made.
    """
    if law(before) == law(after) or not (former.revisions or binding(before)):
        return Openings()
    changed = _Changed(before, after, leads)
    owners = Owners(before, after, former)
    budget = Budget(steps)
    shared = taken_over(before, after, owners, changed.old, changed.new) if changed.leads else {}
    found, unknown = _compared(
        changed, owners, partial(changed.all_ways, owners), shared, now=now, budget=budget
    )
    for snapshot, names, services, targets in former.revisions if changed.leads else ():
        past = _Changed(snapshot, after, leads)
        theirs = Owners(snapshot, after, NOTHING_FORMER)
        again = given_back(before, after, theirs, targets)
        for had, ways_of, others, alone in (
            (owners, partial(past.ways_back, changed, names, services, owners), {}, False),
            (theirs, partial(past.ways_to, changed, targets, theirs, decided=bool(again)), again, True),
        ):
            more, untold = _compared(past, had, ways_of, others, now=now, budget=budget, only_shared=alone)
            found += more
            unknown = untold | unknown
    return Openings(tuple(found), unknown)


def law(snapshot: Snapshot) -> object:
    """All that walls are made from: two policies of the same law have the same, and a change between them opens nothing.

    Of regions it is all but whether they are drained or disabled, of services their names, whom they refuse to and where they are.
    """
    regions = [
        replace(region, admin_state=AdminState.ACTIVE, draining_since=None) for region in snapshot.regions
    ]
    policy = snapshot.policy
    rules = policy.residency_rules, policy.tenants, policy.data_classes, snapshot.jurisdictions
    return regions, rules, leading(snapshot)


def _compared(
    changed: _Changed,
    owners: Owners,
    ways_of: Callable[[], Mapping[ChangedWay, list[str]]],
    shared: Shared,
    *,
    now: float,
    budget: Budget,
    only_shared: bool = False,
) -> tuple[list[Opening], dict[str, str]]:
    """What a change opens on some ways, and the rules of which nobody can tell, with why.

    `shared` are regions whose endpoints lead to other places as well; with `only_shared` decisions for no others are compared.
    """
    before, after = changed.before, changed.after
    rules_before = binding(before)
    rules = {rule.name: rule for rule in after.policy.residency_rules}
    doubtful = dict(_not_understood(before.policy, rules))
    why = "the rules tell more services or locations apart than can be compared"
    try:
        ways = ways_of()
        if not (rules_before and ways):
            return [], {}
        ground = _ground(changed, owners, ways, shared, now)
        old = _bounded(ground, before, after, after, 0)
        new = _bounded(ground, after, before, after, 1)
        facts = LocationKinds.of((*old.rules, *new.rules))
    except TooManyFacts:
        return [], {rule.name: why for rule in rules_before}
    search = _Search([*new.walls(facts), *new.refused(facts)], budget)
    compared = ground.decided
    if only_shared:
        compared = ground.led_to({region for regions in shared.values() for region in regions})
    opened: dict[str, Wall] = {}

    def opens(name: str, part: Wall) -> None:
        opened[name] = around(opened.get(name, part), part)

    for name, (box, closed) in old.walls(facts):
        for places, ways_there in ground.leading.items():
            if closed & places and box.services & ways_there:
                opens(name, (box._replace(services=box.services & ways_there), closed & places))
        wall = box._replace(services=box.services & ground.deciding), closed & compared
        try:
            # What is within all that is told of the rule already would tell nothing new.
            if wall[0].services and wall[1] and (name not in opened or not within(wall, opened[name])):
                for part in search.missing(wall):
                    opens(name, part)
        except OutOfBudget:
            doubtful[name] = "too many rules differ to compare them all"
    told = _Teller(ground, facts, before, rules, tuple(ways.values()))
    order = [rule.name for rule in before.policy.residency_rules]
    found = [told.opening(name, opened[name]) for name in order if name in opened]
    return found, {name: doubtful[name] for name in order if name in doubtful}


def _not_understood(before: Policy, rules: Mapping[str, ResidencyRule]) -> Iterator[tuple[str, str]]:
    """Enforced rules that differ in something that is not compared here."""
    for rule in before.residency_rules:
        other = rules.get(rule.name, ResidencyRule(rule.name))
        for path, one, two in (
            ("", rule, other),
            ("match.", rule.match, other.match),
            ("allow.", rule.allow, other.allow),
            ("deny.", rule.deny, other.deny),
        ):
            for field in fields(one):
                unknown = field.name not in KNOWN_FIELDS[type(one)]
                if (
                    unknown
                    and rule.mode is RuleMode.ENFORCE
                    and getattr(one, field.name) != getattr(two, field.name)
                ):
                    yield rule.name, f"what a different `{path}{field.name}` opens is not known"


def _bounded(ground: Ground, one: Snapshot, other: Snapshot, after: Snapshot, side: int) -> Bounded:
    """A policy's rules, about what there is in either: as the policy itself describes it, as far as it does."""
    regions = {region.name: region for region in one.regions}
    tenants = {tenant.name: tenant for tenant in (*other.policy.tenants, *one.policy.tenants)}
    policy = replace(one.policy, tenants=tuple(tenants.values()))
    seen = [regions.get(region.name, region) for region in after.regions]
    return Bounded(ground, policy, seen, one.jurisdictions, side)


def _ground(
    changed: _Changed,
    owners: Owners,
    ways: Mapping[ChangedWay, list[str]],
    shared: Shared,
    now: float,
) -> Ground:
    before, after = changed.before, changed.after
    old, new = before.policy, after.policy
    tenants = {tenant.name for policy in (old, new) for tenant in policy.tenants}
    classes = {item.name for policy in (old, new) for item in policy.data_classes}
    stated = {rule.max_policy_age for policy in (old, new) for rule in policy.residency_rules}
    ages = (*sorted(age for age in stated if age is not None), inf)
    regions = sorted(before.region_numbers.keys() | after.region_numbers.keys())
    return Ground(
        ways=tuple(ways),
        tenants=(None, *sorted(tenants)),
        classes=(None, *sorted(classes)),
        regions=after.regions,
        edge_regions=tuple(regions),
        ages=ages,
        now=now,
        others=tuple(owners.others.values()),
        shared=shared,
    )


class _Changed:
    """A change, and how requests come in it.

    Args:
        before: the old policy.
        after: the new one.
        leads_of: tells what a policy's names lead to.
    """

    def __init__(self, before: Snapshot, after: Snapshot, leads_of: LeadsOf) -> None:
        self.before = before
        self.after = after
        self.leads = leading(before) != leading(after)
        """Whether names or endpoints may lead somewhere else than before."""
        self._leads_of = leads_of

    @cached_property
    def old(self) -> Leads:
        """What names lead to by the old policy."""
        return self._leads_of(self.before)

    @cached_property
    def new(self) -> Leads:
        """What names lead to by the new policy."""
        return self._leads_of(self.after)

    def all_ways(self, owners: Owners) -> dict[ChangedWay, list[str]]:
        """How requests may come, with the names by which alone they do; none: by others, too. None: there are too many."""
        ways = _Ways()
        for pair in _same_services(self.before, self.after):
            ways.add(ChangedWay(pair))
        names = (
            {
                *self._hosts_changed(),
                *self.old.names,
                *self.new.names,
                *self._bound(),
                *self.handed_over(),
            }
            if self.leads
            else set()
        )
        for name in sorted(names):
            self._named(ways, owners, name)
        for name in sorted(self.unblocked if self.leads else ()):
            self._named(ways, owners, f"{_PORT}.{name}", name)
        return ways.found

    def ways_to(
        self, changed: _Changed, targets: frozenset[str], owners: Owners, *, decided: bool
    ) -> dict[ChangedWay, list[str]]:
        """How requests come to targets that this change's old policy was the last to have, and another change has lead somewhere again."""
        ways = _Ways()
        if decided:
            for name in sorted(self.after.services.keys() & self.before.services.keys()):
                ways.add(ChangedWay((name, name)))
        for name in sorted({*self.after.hostnames, *self.new.names} if targets else ()):
            given = changed.given(name) & targets
            for was in (self.old.at(name).services or self._around(name)) if given else ():
                ways.add(_led(was, owners.places(given)), name)
        return ways.found

    def given(self, name: str) -> frozenset[str]:
        """The targets that a name leads to, and did not before: by records, and where its services refuse."""
        old, new = self.old.at(name), self.new.at(name)
        found = set(new.targets - old.targets)
        for asked in new.services:
            found |= refusals_of(self.after.services[asked.service].service.refusal)
        for was in old.services:
            found -= refusals_of(self.before.services[was.service].service.refusal)
        return frozenset(found)

    def _bound(self) -> Iterator[str]:
        """Where browsers ask of a port of a host name (RFC 9460 §2.3), if a wildcard may answer there that is not as it was."""
        changed = [name.removeprefix(WILDCARD) for name in self._hosts_changed() if name.startswith(WILDCARD)]
        for name in self.before.hostnames if changed else ():
            below = any(name == above or name.endswith(f".{above}") for above in changed)
            if below and not name.startswith(WILDCARD):
                yield f"{_PORT}.{name}"

    def handed_over(self) -> Iterator[str]:
        """Zones that come, go, or get other name servers, and the host names in them."""
        old, new = self.before.zones, self.after.zones
        changed = {
            name
            for name in old.keys() | new.keys()
            if name not in old or name not in new or servers_of(old, name) != servers_of(new, name)
        }
        yield from changed
        for name in self.before.hostnames if changed else ():
            if {closest(zones, name.removeprefix(WILDCARD)) for zones in (old, new)} & changed:
                yield name

    @cached_property
    def unblocked(self) -> frozenset[str]:
        """Names that exist no more: wildcards may stand for them, and what is below, from now on (RFC 4592 §2.2.1)."""
        if not any(name.startswith(WILDCARD) for name in self.after.existing):
            return frozenset()
        return self.before.existing - self.after.existing

    def _hosts_changed(self) -> Iterator[str]:
        """The host names that are not what they were. With records of their own they are among the names that lead somewhere."""
        old, new = self.before, self.after
        stay = {name for name in old.services.keys() & new.services.keys() if not self._refused(name, name)}
        for name in old.hostnames.keys() | new.hostnames.keys():
            service = old.hostnames.get(name)
            moved = service not in stay or service != new.hostnames.get(name)
            if moved or old.stated.get(name) != new.stated.get(name):
                yield name

    def ways_back(
        self, changed: _Changed, names: frozenset[str], services: frozenset[str], owners: Owners
    ) -> dict[ChangedWay, list[str]]:
        """How requests come by what this change's old policy was the last to have, where another change (`changed`) brings it back."""
        ways = _Ways()
        for name in sorted(services & self.after.services.keys() - changed.before.services.keys()):
            ways.add(ChangedWay((name, name)))
        asked = (*names, *self.after.hostnames, *self.new.names, *changed.handed_over())
        answered = {name: name for name in asked}
        answered |= {f"{_PORT}.{gone}": gone for gone in changed.unblocked}
        for name, told in sorted(answered.items()):
            is_back = name in names or any(above in names for above in _above(name))
            if is_back and changed.old.at(name) != self.new.at(name):
                self._named(ways, owners, name, told)
        return ways.found

    def _named(self, ways: _Ways, owners: Owners, name: str, told: str = "") -> None:
        """How requests by a name of DNS come, if it was answered, and is; `told`: the name to tell of in its place."""
        told = told or name
        old, new = self.old.at(name), self.new.at(name)
        if new.servers != old.servers:
            places = owners.standing(new.servers, old.servers)
            for was in (old.services or self._around(name)) if places else ():
                ways.add(_led(was, places), told)
        if not (new.services or new.targets):
            return
        # Below the name that browsers were led to there is nobody's name: it is where they ask for that one.
        for was in old.services or (self._around(name) if name.startswith("_") else ()):
            for asked in new.services:
                way = ChangedWay(
                    (was.service, asked.service),
                    (was.tenant, asked.tenant),
                    (was.data_class, asked.data_class),
                )
                # What came to the same service by a name that stated the same comes by its name, too.
                if was != asked:
                    ways.add(way, told)
                refused = self._refused(was.service, asked.service)
                if refused:
                    ways.add(_led(was, owners.places(refused)), told)
        targets = new.targets - old.targets
        if targets:
            for was in old.services or self._around(name):
                ways.add(_led(was, owners.places(targets)), told)

    def _around(self, name: str) -> Collection[Decider]:
        """What decided at the closest name above one at which something did, wildcards right below that included.

        What begins with `_` is asked by those who mean the name below which it stands (RFC 8552 §1.1), not by a wildcard's.
        """
        for above in (*_meant(name), *_above(name)):
            found = self.old.at(above).services
            if found:
                return found
        return ()

    def _refused(self, was: str, service: str) -> frozenset[str]:
        """Where a service sends those whom it refuses, and another one did not before."""
        old, new = self.before.services[was].service, self.after.services[service].service
        return refusals_of(new.refusal) - refusals_of(old.refusal)


class _Ways:
    """How requests come, each with the names by which alone they do; none: by others, too."""

    def __init__(self) -> None:
        self.found: dict[ChangedWay, list[str]] = {}

    def add(self, way: ChangedWay, name: str | None = None) -> None:
        """Take one.

        Raises:
            TooManyFacts: there are too many.
        """
        names = self.found.get(way)
        if names is None:
            self.found[way] = [] if name is None else [name]
            if len(self.found) > MOST_WAYS:
                raise TooManyFacts
        elif name is None:
            names.clear()
        elif names and name not in names:
            names.append(name)


def _led(was: Decider, places: frozenset[str]) -> ChangedWay:
    """Requests that came to a service, and are led to places."""
    return ChangedWay((was.service, was.service), (was.tenant,) * 2, (was.data_class,) * 2, places)


def _meant(name: str) -> Iterator[str]:
    """The name below which one that begins with `_` stands."""
    meant = name
    while meant.startswith("_"):
        meant = meant.partition(".")[2]
    if meant != name:
        yield meant


def _above(name: str) -> Iterator[str]:
    """The names above one, each with the wildcard right below it first, closest first."""
    own = name.removeprefix(WILDCARD)
    if own != name:
        yield own
    for above in ancestors(own):
        if above != own:
            yield f"{WILDCARD}{above}"
            yield above


def _same_services(before: Snapshot, after: Snapshot) -> Iterator[tuple[str, str]]:
    """Each service after the change, with itself, and with those before it whose new name it may be.

    Raises:
        TooManyFacts: there are too many to look at.
    """
    yield UNNAMED, UNNAMED
    for name in after.services:
        yield name, name
    named = {name for rule in before.policy.residency_rules for name in rule.match.services}
    gone = [before.services[name] for name in sorted(named & before.services.keys() - after.services.keys())]
    members = [(item.service.name, {member.region for member in item.service.members}) for item in gone]
    for name in after.services.keys() - before.services.keys():
        own = {member.region for member in after.services[name].service.members}
        for count, (other, theirs) in enumerate(members):
            if count > MOST_WAYS:
                raise TooManyFacts
            if own & theirs:
                yield other, name


class _Search:
    """Finds what of the old walls the new ones do not close.

    Args:
        walls: the new ones, with the rules that they come from.
        budget: for all comparisons.
    """

    def __init__(self, walls: Sequence[tuple[str, Wall]], budget: Budget) -> None:
        self._closed: dict[Box, int] = {}
        for _, (box, mask) in walls:
            self._closed[box] = self._closed.get(box, 0) | mask
        self._budget = budget
        self._wide: list[Wall] = []
        self._naming: dict[int, list[Wall]] = {}
        for wall in self._closed.items():
            services = wall[0].services
            if services.bit_count() > _FEW:
                self._wide.append(wall)
                continue
            for number in bits(services):
                self._naming.setdefault(number, []).append(wall)

    def missing(self, wall: Wall) -> Iterator[Wall]:
        """The parts of an old wall that no new one closes.

        Raises:
            OutOfBudget: nobody can tell within the steps given.
        """
        box, closed = wall
        left = closed & ~self._closed.get(box, 0)
        if not left:
            return
        near: list[Wall] = []
        for other in self._candidates(box):
            if other[1] & left and overlap(box, other[0]):
                near.append(other)
                if covers(other[0], box):
                    left &= ~other[1]
        if left:
            yield from uncovered(box, left, near, self._budget)

    def _candidates(self, box: Box) -> Iterable[Wall]:
        """The new walls about a service of a box's, all of those if they are many."""
        if box.services.bit_count() > _FEW:
            found: Collection[Wall] = self._closed.items()
        else:
            named = {wall[0]: wall for number in bits(box.services) for wall in self._naming.get(number, ())}
            found = (*self._wide, *named.values())
        self._budget.spend(len(found))
        return found


class _Teller:
    """Names what masks stand for."""

    def __init__(
        self,
        ground: Ground,
        facts: LocationKinds,
        before: Snapshot,
        rules: Mapping[str, ResidencyRule],
        hosts: Sequence[Sequence[str]],
    ) -> None:
        self._ground = ground
        self._facts = facts
        self._old = {rule.name: rule for rule in before.policy.residency_rules}
        self._new = rules
        self._hosts = hosts

    def opening(self, name: str, opened: Wall) -> Opening:
        """What a rule kept: `opened` is around all parts of it that nothing closes now."""
        box, places = opened
        regions, stand, run = self._ground.named(places)
        ways = list(bits(box.services))
        hosts = [self._hosts[number] for number in ways]
        countries, certain = self._facts.countries(box.facts)
        now = self._new.get(name)
        shared = self._ground.shared.get(name, {})
        return Opening(
            rule=name,
            fate="deleted" if now is None else "kept" if now == self._old[name] else "changed",
            services=tuple(dict.fromkeys(self._ground.ways[number].service[1] for number in ways)),
            hosts=tuple(sorted(name for names in hosts for name in names)) if all(hosts) else (),
            regions=tuple(regions),
            stand=tuple(stand),
            run=tuple(run),
            edges=tuple(self._ground.edges(places)),
            outside=bool(places >> self._ground.outside & 1),
            led=any(self._ground.ways[number].led is not None for number in ways),
            shared=tuple((region, tuple(sorted(shared[region]))) for region in regions if shared.get(region)),
            countries=countries,
            certain=certain,
            tenants=_named(self._ground.tenants, box.tenants),
            classes=_named(self._ground.classes, box.classes),
            starts=box.starts,
            ends=box.ends,
            later=box.starts > self._ground.now,
        )


def _named(names: Sequence[str | None], mask: int) -> tuple[str | None, ...]:
    return tuple(name for number, name in enumerate(names) if mask >> number & 1)
