"""Policy → Snapshot: check what the parts of a policy say of each other, and resolve every reference.

Law: a policy compiles completely or not at all, and then every problem is listed with its path. Single fields
(ranges, patterns) are checked where documents become values; here it is names, references and meaning.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import inf, isfinite
from types import MappingProxyType

from gtm.core.model.countries import COUNTRIES
from gtm.core.model.kinds import KINDS
from gtm.core.model.names import WILDCARD, existing_names
from gtm.core.model.policy import Jurisdiction, Policy, SpilloverRule
from gtm.core.model.problems import PolicyError
from gtm.core.model.references import Checks
from gtm.core.model.regions import AddressFamily, AdminState, Endpoint, Region, https_port
from gtm.core.model.services import Families, HostName, Service
from gtm.core.policy.jurisdictions import resolve
from gtm.core.policy.rules import RuleCompiler, RulePeriods
from gtm.core.policy.snapshot import CompiledService, Snapshot, Timed
from gtm.core.policy.zone_checks import check_zones

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
        self.checks = Checks()
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
        check_zones(self.policy, self.checks)
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
