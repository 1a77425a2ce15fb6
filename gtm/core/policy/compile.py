"""Policy → Snapshot: check what the parts of a policy say of each other, and resolve every reference.

Law: a policy compiles completely or not at all, and then every problem is listed with its path. Single fields
(ranges, patterns) are checked where documents become values; here it is names, references and meaning.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from math import inf, isfinite
from types import MappingProxyType

from gtm.core.model.countries import COUNTRIES
from gtm.core.model.kinds import KINDS, REFERENCES
from gtm.core.model.names import WILDCARD, existing_names
from gtm.core.model.policy import (
    EdgeScope,
    Jurisdiction,
    Places,
    Policy,
    ResidencyRule,
    RuleMode,
    SpilloverRule,
)
from gtm.core.model.problems import PolicyError
from gtm.core.model.references import PolicyChecks, some, utc
from gtm.core.model.regions import AddressFamily, AdminState, Endpoint, Region, https_port
from gtm.core.model.services import Families, HostName, HttpAnswer, Service
from gtm.core.policy.jurisdictions import (
    MAX_PERIODS,
    Membership,
    Periods,
    countries_at,
    joined,
    posix_seconds,
    resolve,
)
from gtm.core.policy.snapshot import CompiledRule, CompiledService, Snapshot, Timed, bits
from gtm.core.policy.zone_checks import ZoneChecks

_MAX_RECORDS = 100
_Moments = tuple[float, ...]


def compile_policy(policy: Policy, shipped: Iterable[Jurisdiction], *, revision: int = 0) -> Snapshot:
    """Compile a policy.

    Args:
        policy: everything operators wrote.
        shipped: the jurisdictions that come with gtm.
        revision: the number the result goes by.

    Raises:
        PolicyError: with every problem found. Nothing is returned for a policy that is wrong in part.
    """
    return _Compiler(policy, shipped, revision).run()


class _Compiler:
    """The state of one compilation: the names known and the problems found so far."""

    def __init__(self, policy: Policy, shipped: Iterable[Jurisdiction], revision: int) -> None:
        self.policy = policy
        self.shipped = shipped
        self.revision = revision
        self.checks = PolicyChecks()
        self.numbers = {region.name: number for number, region in enumerate(policy.regions)}
        self.tenants = frozenset(tenant.name for tenant in policy.tenants)
        self.data_classes = frozenset(item.name for item in policy.data_classes)

    def run(self) -> Snapshot:
        membership, problems = resolve(self.shipped, self.policy.jurisdictions)
        self.checks.problems += problems
        self._check_names()
        self._check_regions()
        for tenant in self.policy.tenants:
            self._check_country(f"tenants.{tenant.name}.country", tenant.country)
        ZoneChecks(self.policy, self.checks).run()
        for service in self.policy.services:
            self._check_service(service)
        compiler = RuleCompiler(self.policy, membership, self.checks)
        rules = [compiler.compile(rule) for rule in self.policy.residency_rules]
        concerning = self._rules_by_service(rules)
        services = {
            item.name: self._compile_service(item, concerning[item.name], compiler)
            for item in self.policy.services
        }
        for spillover in self.policy.spillover_rules:
            self._check_spillover(spillover)
        if self.checks.problems:
            raise PolicyError(self.checks.problems)
        return Snapshot(
            revision=self.revision,
            policy=self.policy,
            jurisdictions=membership,
            regions=self.policy.regions,
            region_numbers=MappingProxyType(self.numbers),
            services=MappingProxyType(services),
            hostnames=MappingProxyType(
                {host.name: service.name for service in self.policy.services for host in service.names}
            ),
            stated=MappingProxyType(
                {
                    host.name: host
                    for service in self.policy.services
                    for host in service.names
                    if host != HostName(host.name)
                }
            ),
            existing=existing_names(self.policy),
            wildcards=any(
                host.name.startswith(WILDCARD) for service in self.policy.services for host in service.names
            ),
            zones=MappingProxyType({zone.name: zone for zone in self.policy.zones}),
            carried=compiler.carried,
            tenants=self.tenants,
            data_classes=self.data_classes,
            models=frozenset(model for region in self.policy.regions for model in region.models),
            active=sum(
                1 << number
                for number, region in enumerate(self.policy.regions)
                if region.admin_state is AdminState.ACTIVE
            ),
            beginnings=_ascending(rule.starts for periods in rules for rule in periods),
            endings=_ascending(rule.ends for periods in rules for rule in periods),
            policy_ages=_ascending(
                age for rule in self.policy.residency_rules if (age := rule.max_policy_age) is not None
            ),
            timed=_timed(self.policy.services, concerning),
            warnings=tuple(self.checks.warnings),
        )

    def _check_names(self) -> None:
        """Two resources of a kind never share a name."""
        for kind in KINDS:
            seen: set[str] = set()
            for item in getattr(self.policy, kind):
                if item.name in seen:
                    self.checks.problem(f"{kind}.{item.name}", "duplicate", f"`{item.name}` is defined twice")
                seen.add(item.name)

    def _check_country(self, path: str, country: str | None) -> None:
        if country is not None and country not in COUNTRIES:
            message = f"`{country}` is not a country code (ISO 3166-1 alpha-2)"
            self.checks.problem(path, "unknown_reference", message)

    def _check_regions(self) -> None:
        for region in self.policy.regions:
            path = f"regions.{region.name}"
            self._check_country(f"{path}.country", region.country)
            self._check_country(f"{path}.operator_country", region.operator_country)
            self.checks.listed_once(
                f"{path}.endpoints", [endpoint.url for endpoint in region.endpoints], ".url"
            )
            if region.probe.timeout > region.probe.interval:
                message = f"must not exceed the interval ({region.probe.interval:g} s): probes never overlap"
                self.checks.problem(f"{path}.probe.timeout", "out_of_range", message)

    def _check_service(self, service: Service) -> None:
        path = f"services.{service.name}"
        names = [item.region for item in service.members]
        self.checks.references(f"{path}.members", names, self.numbers, "region", ".region")
        if not service.members:
            self.checks.problem(f"{path}.members", "missing", "a service needs at least one member region")
        self._check_shares(path, service)
        regions = [
            self.policy.regions[self.numbers[m.region]] for m in service.members if m.region in self.numbers
        ]
        wanted = service.model
        if wanted is not None and regions and not any(wanted in region.models for region in regions):
            message = f"no member region serves the model `{wanted}`"
            self.checks.problem(f"{path}.model", "unknown_reference", message)
        self._check_statements(service)
        if service.hostnames:
            self._check_dns(service, regions)
            self._check_refusal(service, [endpoint for region in regions for endpoint in region.endpoints])
        if service.https_record is not None:
            self._check_https(service, regions)

    def _check_shares(self, path: str, service: Service) -> None:
        """Canaries leave something to the others, and there are others."""
        shares = [member.share for member in service.members if member.share is not None]
        if not shares:
            return
        if len(shares) == len(service.members):
            message = "every member has a `share`: one without must be there, for all other clients"
            self.checks.problem(f"{path}.members", "missing", message)
        elif sum(shares) > 1:
            message = f"the members' shares add up to {sum(shares):g}; together they can be 1 at most"
            self.checks.problem(f"{path}.members", "out_of_range", message)
        for index, member in enumerate(service.members):
            if member.share is not None and member.weight != 1.0:
                message = (
                    "says nothing beside `share`, which alone decides what goes there: leave one of them out"
                )
                self.checks.problem(f"{path}.members[{index}].weight", "overlap", message)

    def _check_statements(self, service: Service) -> None:
        """What host names state exists: a misspelt tenant would match no rule."""
        for index, host in enumerate(service.names):
            for field, said, known in (
                ("tenant", host.tenant, self.tenants),
                ("data_class", host.data_class, self.data_classes),
            ):
                if said is not None and said not in known:
                    message = f"there is no {field.replace('_', ' ')} `{said}`"
                    path = f"services.{service.name}.hostnames[{index}].{field}"
                    self.checks.problem(path, "unknown_reference", message)

    def _check_dns(self, service: Service, regions: Sequence[Region]) -> None:
        """Every member has something to answer DNS with; at a zone's apex no CNAME can stand (RFC 1034 §3.6.2)."""
        apex = any(host.name == service.zone for host in service.names)
        for index, region in enumerate(regions):
            path = f"services.{service.name}.members[{index}].region"
            aliases = [endpoint.cname for endpoint in region.endpoints if endpoint.cname is not None]
            if service.families is Families.SEPARATE and aliases:
                message = (
                    f"`{region.name}` may answer with an alias (`{aliases[0]}`), which answers A and AAAA alike: with "
                    "`families: separate` its endpoints have addresses only; leave out their `cname`, or `families`"
                )
                self.checks.problem(path, "overlap", message)
            if any(endpoint.ipv4 or endpoint.ipv6 for endpoint in region.endpoints):
                self._check_count(service, region, path)
                continue
            if not any(endpoint.cname for endpoint in region.endpoints):
                message = f"`{region.name}` has neither an address nor a CNAME to answer DNS with"
                self.checks.problem(path, "missing", message)
            elif apex:
                message = (
                    f"`{region.name}` has only a CNAME, which cannot stand at the apex of `{service.zone}`"
                )
                self.checks.problem(path, "missing", message)

    def _check_count(self, service: Service, region: Region, path: str) -> None:
        """BIND 9 (`max-records-per-type`, since 9.18.28) keeps no longer sets, and answers SERVFAIL instead."""
        for family in ("ipv4", "ipv6"):
            count = len({address for endpoint in region.endpoints for address in getattr(endpoint, family)})
            if service.max_answers is None and count > _MAX_RECORDS:
                self.checks.warnings.append(
                    f"{path}: `{region.name}` has {count} {family} addresses; behind resolvers that keep at most "
                    f"{_MAX_RECORDS} of a name (BIND 9) it cannot be reached: set the service's `max_answers`"
                )

    def _check_https(self, service: Service, regions: Sequence[Region]) -> None:
        """Clients that see an HTTPS record ask for nothing but https any more (RFC 9460 §9.5), at its port."""
        path = f"services.{service.name}"
        if not service.hostnames:
            message = "a service without host names has no place for an HTTPS record"
            self.checks.problem(f"{path}.https_record", "missing", message)
        known: int | None = None
        for index, region in enumerate(regions):
            where = f"{path}.members[{index}].region"
            plain = [item.url for item in region.endpoints if not item.url.startswith("https:")]
            ports = {https_port(item) for item in region.endpoints if item.ipv4 or item.ipv6}
            known = known or min(ports, default=None)
            if plain:
                message = (
                    f"`{region.name}` has an endpoint without https (`{plain[0]}`), and clients that see the service's "
                    "HTTPS record use nothing else (RFC 9460 §9.5)"
                )
                self.checks.problem(where, "overlap", message)
            elif ports - {known}:
                message = (
                    f"`{region.name}` has endpoints at other ports ({', '.join(map(str, sorted(ports)))}) than the first "
                    "member has: clients take the port from the HTTPS record and the address from another answer"
                )
                self.checks.problem(where, "overlap", message)

    def _check_refusal(self, service: Service, endpoints: Sequence[Endpoint]) -> None:
        """A DNS refusal must have an address to give in every family that the service answers in."""
        path = f"services.{service.name}"
        aliases = [endpoint.cname is not None for endpoint in endpoints]
        for family, addresses, refusal in (
            ("ipv4", [bool(endpoint.ipv4) for endpoint in endpoints], service.refusal.ipv4),
            ("ipv6", [bool(endpoint.ipv6) for endpoint in endpoints], service.refusal.ipv6),
        ):
            # A CNAME may lead to either family.
            answered = [one or alias for one, alias in zip(addresses, aliases, strict=True)]
            if any(answered) and not refusal:
                message = (
                    f"the members answer over {family}, so a refusal needs an {family} address of yours that tells "
                    "clients why (DNS never refuses by NXDOMAIN or an empty answer)"
                )
                self.checks.problem(f"{path}.refusal.{family}", "missing", message)

    def _rules_by_service(self, rules: Iterable[RulePeriods]) -> dict[str, list[RulePeriods]]:
        """Service → the rules that may concern it, in the order written."""
        concerning: dict[str, list[RulePeriods]] = {service.name: [] for service in self.policy.services}
        for periods in rules:
            for name in frozenset(periods[0].rule.match.services or concerning):
                if name in concerning:
                    concerning[name].append(periods)
        return concerning

    def _compile_service(
        self, service: Service, rules: Sequence[RulePeriods], compiler: RuleCompiler
    ) -> CompiledService:
        known = [member for member in service.members if member.region in self.numbers]
        weights = {self.numbers[m.region]: m.weight if m.share is None else 0.0 for m in known}
        canaries = {self.numbers[m.region]: m.share for m in known if m.share is not None}
        mask = sum(1 << number for number in weights)
        compiler.check_fences(service, mask, rules)
        return CompiledService(
            service,
            tuple(weights),
            MappingProxyType(weights),
            mask,
            tuple(period for periods in rules for period in periods),
            MappingProxyType(canaries),
            MappingProxyType(self._pools(service, weights)),
        )

    def _pools(self, service: Service, members: Iterable[int]) -> dict[AddressFamily, int]:
        """The members with addresses of each family that some have, where the service has a pool for each."""
        if service.families is Families.TOGETHER:
            return {}
        pools = {
            family: sum(
                1 << number
                for number in members
                if any(item.addresses(family) for item in self.policy.regions[number].endpoints)
            )
            for family in AddressFamily
        }
        return {family: mask for family, mask in pools.items() if mask}

    def _check_spillover(self, rule: SpilloverRule) -> None:
        path = f"spillover_rules.{rule.name}"
        if rule.from_region not in self.numbers:
            message = f"there is no region `{rule.from_region}`"
            self.checks.problem(f"{path}.from_region", "unknown_reference", message)
        self.checks.references(f"{path}.to_regions", rule.to_regions, self.numbers, "region")
        if rule.from_region in rule.to_regions:
            self.checks.problem(
                f"{path}.to_regions", "overlap", f"`{rule.from_region}` cannot spill to itself"
            )
        if not rule.to_regions:
            self.checks.problem(
                f"{path}.to_regions", "missing", "a spillover rule needs at least one region to spill to"
            )


def _timed(services: Iterable[Service], concerning: Mapping[str, Sequence[RulePeriods]]) -> tuple[Timed, ...]:
    """The services that some enforced rule binds for a time only, by the times at which that changes."""
    passing: dict[int, bool] = {}  # most rules concern many services, and most hold for good

    def passes(periods: RulePeriods) -> bool:
        found = passing.get(id(periods))
        if found is None:
            first, last = periods[0], periods[-1]
            # A rule without dates of its own has several periods where a membership that it names begins or ends.
            dated = len(periods) > 1 or first.starts > -inf or last.ends < inf
            dated = dated or first.rule.max_policy_age is not None
            found = passing[id(periods)] = first.enforced and dated
        return found

    groups: dict[tuple[_Moments, _Moments, _Moments], list[tuple[str, int]]] = {}
    for service in services:
        every = [period for periods in concerning[service.name] if passes(periods) for period in periods]
        if every:
            key = (
                _ascending(period.starts for period in every),
                _ascending(period.ends for period in every),
                _ascending(age for period in every if (age := period.rule.max_policy_age) is not None),
            )
            groups.setdefault(key, []).append((service.name, service.ttl))
    return tuple(
        Timed(*key, tuple(found), 1 << (max(ttl for _, ttl in found) - 1).bit_length())
        for key, found in groups.items()
    )


def _ascending(moments: Iterable[float]) -> _Moments:
    """The finite ones, each once."""
    return tuple(sorted({moment for moment in moments if isfinite(moment)}))


# --- Residency rules → masks of regions and sets of countries, one for each period in which these stay the same.
#
# A rule changes by itself when a jurisdiction it names does: an adequacy decision lapses, and with it what the rule
# allows. Each such period is a `CompiledRule` of its own, that begins and ends as if the operator had written its dates.


_Countries = frozenset[str] | None
_Places = tuple[_Countries, _Countries]
_Effect = tuple[_Countries, frozenset[str] | None, int, _Places]
"""Of a rule at a moment: its clients' countries, its tenants, the regions allowed, and where edges are inside."""
RulePeriods = tuple[CompiledRule, ...]
"""A rule, compiled for each of its periods in order."""


class RuleCompiler:
    """Compiles the residency rules of one policy.

    Args:
        policy: the policy.
        membership: what every jurisdiction covers.
        checks: where problems and warnings go.
    """

    def __init__(self, policy: Policy, membership: Membership, checks: PolicyChecks) -> None:
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
        self.carried = frozenset(item.name for item in policy.services if item.answer is HttpAnswer.CARRY)
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
        of_edges = bool(self.carried) or rule.edges is EdgeScope.IN_FENCE
        found: list[tuple[float, _Effect]] = []
        for moment in moments:
            clients = self._countries(match.client_jurisdictions, moment)
            if match.client_countries:
                clients = clients.union(match.client_countries)
            effect = (
                clients if scoped else None,
                self._tenants(rule, moment),
                self._allowed(rule, moment),
                self._edges(rule, moment) if of_edges else (None, None),
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
                edge_countries=standing,
                edge_operators=operators,
            )
            for (moment, (countries, tenants, allowed, (standing, operators))), end in zip(
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

    def _edges(self, rule: ResidencyRule, moment: float) -> _Places:
        """The countries in which whoever stands is inside the rule, and those where whoever runs it may be established, at a moment; of these None: anywhere."""
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
