"""Residency rules → masks of regions and sets of countries, one for each period in which these stay the same.

A rule changes by itself when a jurisdiction it names does: an adequacy decision lapses, and with it what the rule
allows. Each such period is a `CompiledRule` of its own, that begins and ends as if the operator had written its dates.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from math import inf

from gtm.core.model.countries import COUNTRIES
from gtm.core.model.kinds import REFERENCES
from gtm.core.model.policy import EdgeScope, Places, Policy, ResidencyRule, RuleMode
from gtm.core.model.references import Checks, some, utc
from gtm.core.model.services import Service
from gtm.core.policy.jurisdictions import (
    MAX_PERIODS,
    Membership,
    Periods,
    countries_at,
    joined,
    posix_seconds,
)
from gtm.core.policy.snapshot import CompiledRule, bits

_Countries = frozenset[str] | None
_Effect = tuple[_Countries, frozenset[str] | None, int, tuple[_Countries, _Countries]]
"""Of a rule at a moment: its clients' countries, its tenants, the regions allowed, and what it asks of edges."""
RulePeriods = tuple[CompiledRule, ...]
"""A rule, compiled for each of its periods in order."""


class RuleCompiler:
    """Compiles the residency rules of one policy.

    Args:
        policy: the policy.
        membership: what every jurisdiction covers.
        checks: where problems and warnings go.
    """

    def __init__(self, policy: Policy, membership: Membership, checks: Checks) -> None:
        self._regions = policy.regions
        self._membership = membership
        self._checks = checks
        self._numbers = {region.name: number for number, region in enumerate(policy.regions)}
        self._known: Mapping[str, tuple[Container[str], str]] = {
            "regions": (self._numbers, "region"),
            "services": (frozenset(item.name for item in policy.services), "service"),
            "tenants": (frozenset(item.name for item in policy.tenants), "tenant"),
            "data_classes": (frozenset(item.name for item in policy.data_classes), "data class"),
            "jurisdictions": (membership, "country or jurisdiction"),
        }
        self._everywhere = (1 << len(policy.regions)) - 1
        self._standing_in: dict[str, int] = {}
        self._operated_from: dict[str | None, int] = {}
        for number, region in enumerate(policy.regions):
            bit = 1 << number
            self._standing_in[region.country] = self._standing_in.get(region.country, 0) | bit
            operator = region.operator_country
            self._operated_from[operator] = self._operated_from.get(operator, 0) | bit
        self._established = {tenant.name: tenant.country for tenant in policy.tenants}
        self._joined: dict[tuple[str, ...], Periods] = {}

    def compile(self, rule: ResidencyRule) -> RulePeriods:
        """Check a rule and resolve its references; one that is wrong yields something, to go on with."""
        path = f"residency_rules.{rule.name}"
        self._check(path, rule)
        starts = posix_seconds(f"{path}.effective_from", rule.effective_from, -inf, self._checks.problems)
        ends = posix_seconds(f"{path}.effective_until", rule.effective_until, inf, self._checks.problems)
        if starts >= ends:
            message = "must be later than `effective_from`: the rule would never be in force"
            self._checks.problem(f"{path}.effective_until", "out_of_range", message)
        moments = self._moments(rule, starts, ends)
        if len(moments) > MAX_PERIODS:
            message = f"the jurisdictions it names change {len(moments) - 1} times; the most accepted is {MAX_PERIODS - 1}"
            self._checks.problem(path, "out_of_range", message)
            moments = moments[:MAX_PERIODS]
        return self._periods(rule, moments, ends)

    def check_fences(self, service: Service, members: int, rules: Sequence[RulePeriods]) -> None:
        """A binding rule, or those that concern every request together, must leave a service some region.

        Args:
            service: the service.
            members: mask of its regions.
            rules: those that may concern it.
        """
        always = []
        for periods in rules:
            first = periods[0]
            if not first.enforced:
                continue
            if len(periods) > 1 or not first.allowed & members:
                self._check_fence(service, members, periods)
            if first.countries is first.tenants is first.data_classes is None:
                always.append(periods)
        self._check_common_fence(service, members, always)

    def _check(self, path: str, rule: ResidencyRule) -> None:
        checks, allow, deny = self._checks, rule.allow, rule.deny
        for part, fields in REFERENCES["residency_rules"].items():
            for field, kind in fields.items():
                names = getattr(getattr(rule, part), field)
                checks.references(f"{path}.{part}.{field}", names, *self._known[kind])
        countries = rule.match.client_countries
        checks.references(f"{path}.match.client_countries", countries, COUNTRIES, "country")
        if allow == deny == Places():
            checks.problem(path, "missing", "a rule needs `allow` or `deny`: this one restricts nothing")
        for field in REFERENCES["residency_rules"]["allow"]:
            for name in sorted(set(getattr(allow, field)) & set(getattr(deny, field))):
                checks.problem(f"{path}.deny", "overlap", f"`{name}` is both allowed and denied")

    def _moments(self, rule: ResidencyRule, starts: float, ends: float) -> list[float]:
        """When the rule's periods begin, ascending."""
        named = (
            rule.match.client_jurisdictions,
            rule.match.tenant_jurisdictions,
            *(places.jurisdictions for places in (rule.allow, rule.deny)),
            *(places.operator_jurisdictions for places in (rule.allow, rule.deny)),
        )
        changes = {moment for names in named for moment, _ in self._covered(names)}
        return [starts, *sorted(moment for moment in changes if starts < moment < ends)]

    def _periods(self, rule: ResidencyRule, moments: Sequence[float], ends: float) -> RulePeriods:
        match = rule.match
        scoped = bool(match.client_countries or match.client_jurisdictions)
        found: list[tuple[float, _Effect]] = []
        for moment in moments:
            clients = self._countries(match.client_jurisdictions, moment)
            if match.client_countries:
                clients = clients.union(match.client_countries)
            effect = (
                clients if scoped else None,
                self._tenants(rule, moment),
                self._allowed(rule, moment),
                self._edges(rule, moment),
            )
            if not found or found[-1][1] != effect:
                found.append((moment, effect))
        until = [moment for moment, _ in found[1:]] + [ends]
        return tuple(
            CompiledRule(
                rule=rule,
                enforced=rule.mode is RuleMode.ENFORCE,
                countries=countries,
                tenants=tenants,
                data_classes=frozenset(match.data_classes) or None,
                allowed=allowed,
                starts=moment,
                ends=end,
                established=self._established if match.tenant_jurisdictions else {},
                edge_countries=places,
                edge_operators=operators,
            )
            for (moment, (countries, tenants, allowed, (places, operators))), end in zip(
                found, until, strict=True
            )
        )

    def _tenants(self, rule: ResidencyRule, moment: float) -> frozenset[str] | None:
        """The tenants a rule is about at a moment: those it names, and those that may be established where it says."""
        named, places = rule.match.tenants, rule.match.tenant_jurisdictions
        if not places:
            return frozenset(named) or None
        covered = self._countries(places, moment)
        return frozenset(named).union(
            name for name, country in self._established.items() if country is None or country in covered
        )

    def _allowed(self, rule: ResidencyRule, moment: float) -> int:
        """The mask of regions that a rule lets serve at a moment."""
        allow, deny = rule.allow, rule.deny
        allowed = self._everywhere
        if allow.regions or allow.jurisdictions:
            allowed &= self._places(allow, moment)
        if allow.operator_jurisdictions:
            allowed &= self._mask(self._operated_from, allow.operator_jurisdictions, moment)
        if deny.operator_jurisdictions:
            # Whoever it is that nobody named may be one of those denied.
            allowed &= ~self._operated_from.get(None, 0)
            allowed &= ~self._mask(self._operated_from, deny.operator_jurisdictions, moment)
        return allowed & ~self._places(deny, moment)

    def _edges(self, rule: ResidencyRule, moment: float) -> tuple[_Countries, _Countries]:
        """The countries where edges may stand, and those where their operators may be established, at a moment."""
        if rule.edges is EdgeScope.ANYWHERE:
            return None, None
        allow, deny = rule.allow, rule.deny
        places, operators = frozenset(COUNTRIES), None
        if allow.regions or allow.jurisdictions:
            named = (self._regions[self._numbers[name]] for name in allow.regions if name in self._numbers)
            places = self._countries(allow.jurisdictions, moment).union(region.country for region in named)
        if allow.operator_jurisdictions or deny.operator_jurisdictions:
            operators = frozenset(COUNTRIES)
            if allow.operator_jurisdictions:
                operators = self._countries(allow.operator_jurisdictions, moment)
            operators -= self._countries(deny.operator_jurisdictions, moment)
        return places - self._countries(deny.jurisdictions, moment), operators

    def _places(self, places: Places, moment: float) -> int:
        mask = self._mask(self._standing_in, places.jurisdictions, moment)
        for name in places.regions:
            if name in self._numbers:
                mask |= 1 << self._numbers[name]
        return mask

    def _mask(
        self, regions: Mapping[str, int] | Mapping[str | None, int], names: tuple[str, ...], moment: float
    ) -> int:
        mask = 0
        for country in self._countries(names, moment):
            mask |= regions.get(country, 0)
        return mask

    def _countries(self, names: tuple[str, ...], moment: float) -> frozenset[str]:
        """The countries that some jurisdictions cover at a moment."""
        return countries_at(self._covered(names), moment) if names else frozenset()

    def _covered(self, names: tuple[str, ...]) -> Periods:
        """The countries that some jurisdictions cover. Policies name the same few over and over."""
        found = self._joined.get(names)
        if found is None:
            found = self._joined[names] = joined(self._membership, names)
        return found

    def _check_fence(self, service: Service, members: int, periods: RulePeriods) -> None:
        """A binding rule that leaves a service nowhere to go is a mistake unless its author says otherwise."""
        empty = [period for period in periods if not period.allowed & members]
        if not empty or not members:
            return
        rule = periods[0].rule
        path = f"residency_rules.{rule.name}"
        names = some([self._regions[number].name for number in bits(members)], "regions")
        text = f"none of the members of service `{service.name}` ({names}) is allowed"
        if len(empty) < len(periods):
            text += " " + " and ".join(map(_when, empty))
        if rule.acknowledge_empty_fence:
            self._checks.warn(path, f"{text}; acknowledged")
        elif len(empty) < len(periods):
            self._checks.warn(path, f"{text}: every matching request will be refused then")
        else:
            message = f"{text}: every matching request would be refused; set `acknowledge_empty_fence: true` if this is meant"
            self._checks.problem(path, "empty_fence", message)

    def _check_common_fence(self, service: Service, members: int, always: Sequence[RulePeriods]) -> None:
        """The rules that concern every request must leave a region together, not only each on its own."""
        common, binding = members, []
        for periods in always:
            ever = 0
            for period in periods:
                ever |= period.allowed
            rule = periods[0].rule
            if ever & members and not rule.acknowledge_empty_fence:
                common &= ever
                binding.append(rule)
        if members and not common:
            names = [f"`{rule.name}`" for rule in binding]
            message = f"the rules {some(names, 'rules')} concern every request and leave no region together"
            self._checks.problem(f"services.{service.name}", "empty_fence", message)


def _when(period: CompiledRule) -> str:
    """The time of a period, in words."""
    since, until = (utc(moment) if abs(moment) < inf else "" for moment in (period.starts, period.ends))
    if not since:
        return f"until {until}"
    return f"from {since} until {until}" if until else f"from {since} on"
