"""Policy → Snapshot: check what the parts of a policy say of each other, and resolve every reference.

Law: a policy compiles completely or not at all, and then every problem is listed with its path. Single fields
(ranges, patterns) are checked where documents become values; here it is names, references and meaning.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from datetime import datetime
from math import inf
from types import MappingProxyType

from gtm.core.countries import COUNTRIES
from gtm.core.jurisdictions import Membership, resolve
from gtm.core.kinds import KINDS
from gtm.core.model import (
    AdminState,
    Endpoint,
    Jurisdiction,
    Places,
    Policy,
    Region,
    ResidencyRule,
    RuleMode,
    Service,
    SpilloverRule,
)
from gtm.core.problems import PolicyError, Problem
from gtm.core.snapshot import CompiledRule, CompiledService, Snapshot, bits


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
        self.problems: list[Problem] = []
        self.warnings: list[str] = []
        self.jurisdictions: Membership = {}
        self.numbers = {region.name: number for number, region in enumerate(policy.regions)}
        self.services = frozenset(service.name for service in policy.services)
        self.tenants = frozenset(tenant.name for tenant in policy.tenants)
        self.data_classes = frozenset(item.name for item in policy.data_classes)
        self.zones = frozenset(zone.name for zone in policy.zones)
        self.in_country: dict[str, int] = {}
        for number, region in enumerate(policy.regions):
            self.in_country[region.country] = self.in_country.get(region.country, 0) | 1 << number

    def run(self) -> Snapshot:
        self.jurisdictions, problems = resolve(self.shipped, self.policy.jurisdictions)
        self.problems += problems
        self._check_names()
        self._check_regions()
        self._check_zones()
        for service in self.policy.services:
            self._check_service(service)
        rules = [self._compile_rule(rule) for rule in self.policy.residency_rules]
        concerning = self._rules_by_service(rules)
        services = {
            item.name: self._compile_service(item, concerning[item.name]) for item in self.policy.services
        }
        for spillover in self.policy.spillover_rules:
            self._check_spillover(spillover)
        if self.problems:
            raise PolicyError(self.problems)
        return Snapshot(
            revision=self.revision,
            policy=self.policy,
            jurisdictions=self.jurisdictions,
            regions=self.policy.regions,
            region_numbers=MappingProxyType(self.numbers),
            services=MappingProxyType(services),
            hostnames=MappingProxyType(
                {host: service.name for service in self.policy.services for host in service.hostnames}
            ),
            zones=MappingProxyType({zone.name: zone for zone in self.policy.zones}),
            tenants=self.tenants,
            data_classes=self.data_classes,
            models=frozenset(model for region in self.policy.regions for model in region.models),
            active=sum(
                1 << number
                for number, region in enumerate(self.policy.regions)
                if region.admin_state is AdminState.ACTIVE
            ),
            boundaries=tuple(
                sorted({moment for rule in rules for moment in (rule.starts, rule.ends)} - {-inf, inf})
            ),
            warnings=tuple(self.warnings),
        )

    def _problem(self, path: str, code: str, message: str) -> None:
        self.problems.append(Problem(path, code, message))

    def _check_names(self) -> None:
        """Two resources of a kind never share a name."""
        for kind in KINDS:
            seen: set[str] = set()
            for item in getattr(self.policy, kind):
                if item.name in seen:
                    self._problem(f"{kind}.{item.name}", "duplicate", f"`{item.name}` is defined twice")
                seen.add(item.name)

    def _references(
        self, path: str, names: Sequence[str], known: Container[str], what: str, field: str = ""
    ) -> None:
        """Every name exists, and none is listed twice; `field` is the part of each item that holds the name."""
        for index, name in enumerate(names):
            if name not in known:
                self._problem(f"{path}[{index}]{field}", "unknown_reference", f"there is no {what} `{name}`")
        self._listed_once(path, names, field)

    def _listed_once(self, path: str, names: Sequence[str], field: str) -> None:
        if len(set(names)) == len(names):
            return
        seen: set[str] = set()
        for index, name in enumerate(names):
            if name in seen:
                self._problem(f"{path}[{index}]{field}", "duplicate", f"`{name}` is listed twice")
            seen.add(name)

    def _check_regions(self) -> None:
        for region in self.policy.regions:
            path = f"regions.{region.name}"
            if region.country not in COUNTRIES:
                message = f"`{region.country}` is not a country code (ISO 3166-1 alpha-2)"
                self._problem(f"{path}.country", "unknown_reference", message)
            self._listed_once(f"{path}.endpoints", [endpoint.url for endpoint in region.endpoints], ".url")
            if region.probe.timeout > region.probe.interval:
                message = f"must not exceed the interval ({region.probe.interval:g} s): probes never overlap"
                self._problem(f"{path}.probe.timeout", "out_of_range", message)

    def _check_hostnames(self) -> dict[str, str]:
        """Every host name lies in its service's zone, and belongs to one service only: host name → service."""
        owners: dict[str, str] = {}
        for service in self.policy.services:
            path = f"services.{service.name}"
            if service.zone is not None and service.zone not in self.zones:
                self._problem(f"{path}.zone", "unknown_reference", f"there is no zone `{service.zone}`")
            if service.hostnames and service.zone is None:
                message = "a service with host names needs the zone they lie in"
                self._problem(f"{path}.zone", "missing", message)
            for index, host in enumerate(service.hostnames):
                where = f"{path}.hostnames[{index}]"
                if host in owners:
                    self._problem(where, "duplicate", f"`{host}` already belongs to service `{owners[host]}`")
                owners.setdefault(host, service.name)
                nearest = self._zone_of(host)
                if service.zone is None or service.zone not in self.zones or nearest == service.zone:
                    continue
                message = f"`{host}` is not inside the zone `{service.zone}`"
                if _inside(host, service.zone):
                    message = f"`{host}` lies in the zone `{nearest}`, which is cut out of `{service.zone}`"
                self._problem(where, "outside_zone", message)
        return owners

    def _check_zones(self) -> None:
        owners = self._check_hostnames()
        for zone in self.policy.zones:
            if not zone.name_servers and self._zone_of(zone.primary_ns) and zone.primary_ns not in owners:
                self.warnings.append(
                    f"zones.{zone.name}: `{zone.primary_ns}` stands for the NS records, but has no address in any "
                    "zone here; list it in `name_servers` with its addresses"
                )
            for index, server in enumerate(zone.name_servers):
                path = f"zones.{zone.name}.name_servers[{index}]"
                addressed = bool(server.ipv4 or server.ipv6)
                if addressed and server.name in owners:
                    message = f"`{server.name}` is a host name of service `{owners[server.name]}`: it answers with that"
                    self._problem(path, "overlap", message)
                elif addressed and self._zone_of(server.name) is None:
                    message = f"`{server.name}` is in no zone here, so its addresses would never be given"
                    self._problem(path, "outside_zone", message)
                elif not addressed and server.name not in owners and self._zone_of(server.name) is not None:
                    message = f"`{server.name}` lies in a zone of this policy, so it needs its addresses here"
                    self._problem(path, "missing", message)

    def _zone_of(self, name: str) -> str | None:
        """The closest zone that a name lies in."""
        above = name
        while above and above not in self.zones:
            above = above.partition(".")[2]
        return above or None

    def _check_service(self, service: Service) -> None:
        path = f"services.{service.name}"
        names = [item.region for item in service.members]
        self._references(f"{path}.members", names, self.numbers, "region", ".region")
        if not service.members:
            self._problem(f"{path}.members", "missing", "a service needs at least one member region")
        regions = [
            self.policy.regions[self.numbers[m.region]] for m in service.members if m.region in self.numbers
        ]
        wanted = service.model
        if wanted is not None and regions and not any(wanted in region.models for region in regions):
            message = f"no member region serves the model `{wanted}`"
            self._problem(f"{path}.model", "unknown_reference", message)
        if service.hostnames:
            self._check_dns(service, regions)
            self._check_refusal(service, [endpoint for region in regions for endpoint in region.endpoints])

    def _check_dns(self, service: Service, regions: Sequence[Region]) -> None:
        """Every member has something to answer DNS with; at a zone's apex no CNAME can stand (RFC 1034 §3.6.2)."""
        apex = service.zone in service.hostnames
        for index, region in enumerate(regions):
            path = f"services.{service.name}.members[{index}].region"
            if any(endpoint.ipv4 or endpoint.ipv6 for endpoint in region.endpoints):
                continue
            if not any(endpoint.cname for endpoint in region.endpoints):
                message = f"`{region.name}` has neither an address nor a CNAME to answer DNS with"
                self._problem(path, "missing", message)
            elif apex:
                message = (
                    f"`{region.name}` has only a CNAME, which cannot stand at the apex of `{service.zone}`"
                )
                self._problem(path, "missing", message)

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
                self._problem(f"{path}.refusal.{family}", "missing", message)
            if any(answered) and not all(answered):
                self.warnings.append(
                    f"{path}: only some member regions have {family} addresses; resolvers may cache the others' "
                    "empty answers for everyone behind them (RFC 7871 §7.4)"
                )

    def _places(self, path: str, places: Places) -> tuple[int, bool]:
        """The mask of regions in some places, and whether any place is named at all."""
        self._references(f"{path}.regions", places.regions, self.numbers, "region")
        self._references(
            f"{path}.jurisdictions", places.jurisdictions, self.jurisdictions, "country or jurisdiction"
        )
        mask = 0
        for name in places.regions:
            if name in self.numbers:
                mask |= 1 << self.numbers[name]
        for country in self._countries(places.jurisdictions):
            mask |= self.in_country.get(country, 0)
        return mask, bool(places.regions or places.jurisdictions)

    def _countries(self, names: Iterable[str]) -> frozenset[str]:
        return frozenset[str]().union(*(self.jurisdictions.get(name, frozenset()) for name in names))

    def _compile_rule(self, rule: ResidencyRule) -> CompiledRule:
        path = f"residency_rules.{rule.name}"
        match = rule.match
        for field, known, what in (
            ("services", self.services, "service"),
            ("tenants", self.tenants, "tenant"),
            ("data_classes", self.data_classes, "data class"),
            ("client_jurisdictions", self.jurisdictions, "country or jurisdiction"),
            ("client_countries", COUNTRIES, "country"),
        ):
            self._references(f"{path}.match.{field}", getattr(match, field), known, what)
        allowed, any_allowed = self._places(f"{path}.allow", rule.allow)
        denied, any_denied = self._places(f"{path}.deny", rule.deny)
        if not any_allowed and not any_denied:
            self._problem(path, "missing", "a rule needs `allow` or `deny`: this one restricts nothing")
        both = sorted(set(rule.allow.regions) & set(rule.deny.regions))
        both += sorted(set(rule.allow.jurisdictions) & set(rule.deny.jurisdictions))
        for name in both:
            self._problem(f"{path}.deny", "overlap", f"`{name}` is both allowed and denied")
        starts = self._moment(f"{path}.effective_from", rule.effective_from, -inf)
        ends = self._moment(f"{path}.effective_until", rule.effective_until, inf)
        if starts >= ends:
            message = "must be later than `effective_from`: the rule would never be in force"
            self._problem(f"{path}.effective_until", "out_of_range", message)
        everywhere = (1 << len(self.policy.regions)) - 1
        scoped = bool(match.client_countries or match.client_jurisdictions)
        clients = frozenset(match.client_countries) | self._countries(match.client_jurisdictions)
        return CompiledRule(
            rule=rule,
            enforced=rule.mode is RuleMode.ENFORCE,
            countries=clients if scoped else None,
            tenants=frozenset(match.tenants) or None,
            data_classes=frozenset(match.data_classes) or None,
            allowed=(allowed if any_allowed else everywhere) & ~denied,
            starts=starts,
            ends=ends,
        )

    def _moment(self, path: str, moment: datetime | None, default: float) -> float:
        """POSIX seconds. Without an offset every machine would read it in its own time zone."""
        if moment is None:
            return default
        if moment.utcoffset() is None:
            message = f"`{moment.isoformat()}` needs a UTC offset, as in `{moment.isoformat()}Z`"
            self._problem(path, "missing", message)
            return default
        return moment.timestamp()

    def _rules_by_service(self, rules: Iterable[CompiledRule]) -> dict[str, list[CompiledRule]]:
        """Service → the rules that may concern it, in the order written."""
        concerning: dict[str, list[CompiledRule]] = {name: [] for name in self.services}
        for rule in rules:
            for name in frozenset(rule.rule.match.services or self.services):
                if name in concerning:
                    concerning[name].append(rule)
        return concerning

    def _compile_service(self, service: Service, rules: Sequence[CompiledRule]) -> CompiledService:
        weights = {self.numbers[m.region]: m.weight for m in service.members if m.region in self.numbers}
        mask = sum(1 << number for number in weights)
        for rule in rules:
            self._check_fence(service, mask, rule)
        self._check_common_fence(service, mask, rules)
        return CompiledService(service, tuple(weights), MappingProxyType(weights), mask, tuple(rules))

    def _check_fence(self, service: Service, members: int, rule: CompiledRule) -> None:
        """A binding rule that leaves a service nowhere to go is a mistake unless its author says otherwise."""
        if not rule.enforced or not members or rule.allowed & members:
            return
        names = ", ".join(self.policy.regions[number].name for number in bits(members))
        text = f"none of the members of service `{service.name}` ({names}) is allowed"
        if rule.rule.acknowledge_empty_fence:
            self.warnings.append(f"residency_rules.{rule.rule.name}: {text}; acknowledged")
            return
        self._problem(
            f"residency_rules.{rule.rule.name}",
            "empty_fence",
            f"{text}: every matching request would be refused; set `acknowledge_empty_fence: true` if this is meant",
        )

    def _check_common_fence(self, service: Service, members: int, rules: Sequence[CompiledRule]) -> None:
        """The rules that concern every request must leave a region together, not only each on its own."""
        binding = [
            rule
            for rule in rules
            if rule.enforced
            and rule.allowed & members
            and rule.countries is rule.tenants is rule.data_classes is None
            and not rule.rule.acknowledge_empty_fence
        ]
        common = members
        for rule in binding:
            common &= rule.allowed
        if members and not common:
            names = ", ".join(f"`{rule.rule.name}`" for rule in binding)
            message = f"the rules {names} concern every request and leave no region together"
            self._problem(f"services.{service.name}", "empty_fence", message)

    def _check_spillover(self, rule: SpilloverRule) -> None:
        path = f"spillover_rules.{rule.name}"
        if rule.from_region not in self.numbers:
            message = f"there is no region `{rule.from_region}`"
            self._problem(f"{path}.from_region", "unknown_reference", message)
        self._references(f"{path}.to_regions", rule.to_regions, self.numbers, "region")
        if rule.from_region in rule.to_regions:
            self._problem(f"{path}.to_regions", "overlap", f"`{rule.from_region}` cannot spill to itself")
        if not rule.to_regions:
            self._problem(
                f"{path}.to_regions", "missing", "a spillover rule needs at least one region to spill to"
            )


def _inside(name: str, zone: str) -> bool:
    return name == zone or name.endswith(f".{zone}")
