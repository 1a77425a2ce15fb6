"""What zones, their records and the services' host names say of each other, checked while a policy compiles."""

from __future__ import annotations

from dataclasses import dataclass, field

from gtm.core.model.names import WILDCARD, absolute, ancestors, closest
from gtm.core.model.policy import Policy
from gtm.core.model.references import PolicyChecks
from gtm.core.model.services import RecordSet, Service, Zone

_ADDRESSES = frozenset({"A", "AAAA"})
_OF_CUTS = frozenset({"NS", "DS"})
_MAX_NAME = 253
"""Characters of a name without escapes: 255 octets in wire form (RFC 1035 §2.3.4)."""


@dataclass(slots=True)
class _Set:
    """The records of one name and type, written in one entry of a zone or in several."""

    path: str
    ttl: int
    data: list[str]


@dataclass(slots=True)
class _Content:
    """What the records of a zone are: absolute name → type → set, and the delegations with their servers' names."""

    zone: Zone
    sets: dict[str, dict[str, _Set]] = field(default_factory=dict)
    cuts: dict[str, frozenset[str]] = field(default_factory=dict)


class ZoneChecks:
    """One check of host names, name servers and records against each other.

    Args:
        policy: all of it.
        checks: where problems and warnings are noted.
    """

    def __init__(self, policy: Policy, checks: PolicyChecks) -> None:
        self.policy = policy
        self.checks = checks
        self.zones = frozenset(zone.name for zone in policy.zones)
        self.owners: dict[str, Service] = {}
        self.cuts: dict[str, frozenset[str]] = {}
        self.addressed: set[str] = set()
        self.servers = frozenset(server.name for zone in policy.zones for server in zone.name_servers)

    def run(self) -> None:
        """Note every problem."""
        contents = [self._read(zone) for zone in self.policy.zones]
        for content in contents:
            self.cuts |= content.cuts
            self.addressed.update(name for name, sets in content.sets.items() if _ADDRESSES & sets.keys())
        self._check_hostnames()
        for content in contents:
            self._check_servers(content)
            for name, sets in content.sets.items():
                self._check_name(content, name, sets)

    def _read(self, zone: Zone) -> _Content:
        """Take the records of a zone that lie in it, and note what is wrong with each alone."""
        content = _Content(zone)
        for index, record in enumerate(zone.sets):
            own = len(zone.records)
            path = f"zones.{zone.name}." + (
                f"records[{index}]" if index < own else f"challenges[{index - own}]"
            )
            name = absolute(record.name, zone.name)
            if not self._placed(zone, record, name, path):
                continue
            ttl = zone.ttl if record.ttl is None else record.ttl
            known = content.sets.setdefault(name, {}).setdefault(record.type, _Set(path, ttl, []))
            if known.ttl != ttl:
                message = f"the {record.type} records of `{name}` need one TTL (RFC 2181 §5.2), not {known.ttl} and {ttl}"
                self.checks.problem(path, "overlap", message)
            known.data += record.data
        content.cuts = {
            name: frozenset(absolute(server, zone.name) for server in sets["NS"].data)
            for name, sets in content.sets.items()
            if "NS" in sets and name != zone.name
        }
        return content

    def _placed(self, zone: Zone, record: RecordSet, name: str, path: str) -> bool:
        """Whether a record lies in its zone."""
        if len(name) > _MAX_NAME:
            message = f"`{name}` is longer than {_MAX_NAME} characters"
            self.checks.problem(f"{path}.name", "out_of_range", message)
            return False
        if not _inside(name, zone.name):
            message = f"`{name}` is not inside the zone `{zone.name}`"
            self.checks.problem(f"{path}.name", "outside_zone", message)
            return False
        nearest = closest(self.zones, name)
        if nearest != zone.name and not (record.type == "DS" and name == nearest):
            message = f"`{name}` lies in the zone `{nearest}`, which is cut out of `{zone.name}`"
            self.checks.problem(f"{path}.name", "outside_zone", message)
            return False
        return True

    def _check_hostnames(self) -> None:
        """Every host name lies in its service's zone, and belongs to one service only."""
        for service in self.policy.services:
            path = f"services.{service.name}"
            if service.zone is not None and service.zone not in self.zones:
                self.checks.problem(f"{path}.zone", "unknown_reference", f"there is no zone `{service.zone}`")
            if service.hostnames and service.zone is None:
                message = "a service with host names needs the zone they lie in"
                self.checks.problem(f"{path}.zone", "missing", message)
            names = [item.name for item in service.names]
            for index, host in enumerate(names):
                where = f"{path}.hostnames[{index}]"
                owner = self.owners.setdefault(host, service)
                if owner is not service or host in names[:index]:
                    self._taken(host, where, service, owner)
                self._check_hostname(service, host, where)

    def _taken(self, host: str, where: str, service: Service, owner: Service) -> None:
        """A host name of two services: both are named, since which of them came later is not known here."""
        if owner is service:
            self.checks.problem(where, "duplicate", f"`{host}` is listed twice")
            return
        place = [item.name for item in owner.names].index(host)
        first = f"services.{owner.name}.hostnames[{place}]"
        for path, other in ((first, service), (where, owner)):
            message = f"`{host}` is a host name of service `{other.name}` too: it can belong to one only"
            self.checks.problem(path, "duplicate", message)

    def _check_hostname(self, service: Service, host: str, where: str) -> None:
        nearest = closest(self.zones, host)
        if service.zone is not None and service.zone in self.zones and nearest != service.zone:
            message = f"`{host}` is not inside the zone `{service.zone}`"
            if _inside(host, service.zone):
                message = f"`{host}` lies in the zone `{nearest}`, which is cut out of `{service.zone}`"
            self.checks.problem(where, "outside_zone", message)
        cut = self._cut_above(host)
        if cut is not None:
            message = f"`{host}` lies in `{cut}`, which is delegated to other name servers"
            self.checks.problem(where, "outside_zone", message)

    def _cut_above(self, name: str) -> str | None:
        """The delegation that a name lies in, if it lies in one of its zone's."""
        for above in ancestors(name):
            if above in self.zones:
                return None
            if above in self.cuts:
                return above
        return None

    def _check_servers(self, content: _Content) -> None:
        zone = content.zone
        if (
            not zone.name_servers
            and closest(self.zones, zone.primary_ns)
            and not self._addressed(zone.primary_ns)
        ):
            self.checks.warnings.append(
                f"zones.{zone.name}: `{zone.primary_ns}` stands for the NS records, but has no address in any "
                "zone here; list it in `name_servers` with its addresses"
            )
        for index, server in enumerate(zone.name_servers):
            path = f"zones.{zone.name}.name_servers[{index}]"
            given = bool(server.ipv4 or server.ipv6)
            known = self._addressed(server.name)
            if given and server.name in self.owners:
                service = self.owners[server.name].name
                message = f"`{server.name}` is a host name of service `{service}`: it answers with that"
                self.checks.problem(path, "overlap", message)
            elif given and known:
                message = f"`{server.name}` has its addresses among the records of a zone: give them once"
                self.checks.problem(path, "overlap", message)
            elif given and closest(self.zones, server.name) is None:
                message = f"`{server.name}` is in no zone here, so its addresses would never be given"
                self.checks.problem(path, "outside_zone", message)
            elif not given and not known and closest(self.zones, server.name) is not None:
                message = f"`{server.name}` lies in a zone of this policy, so it needs its addresses here"
                self.checks.problem(path, "missing", message)

    def _addressed(self, name: str) -> bool:
        """Whether a name has addresses from a service or from records."""
        return name in self.owners or name in self.addressed

    def _check_name(self, content: _Content, name: str, sets: dict[str, _Set]) -> None:
        """What the records of one name are beside each other, and beside what else is there."""
        zone, first = content.zone, next(iter(sets.values()))
        cut = next((above for above in reversed([*ancestors(name)]) if above in content.cuts), None)
        if name == zone.name and "NS" in sets:
            message = "the zone's own NS records are its `name_servers`"
            self.checks.problem(sets["NS"].path, "overlap", message)
        elif name.startswith(WILDCARD) and (wrong := _OF_CUTS & sets.keys()):
            message = f"`{name}` cannot be delegated: a wildcard stands for no zone (RFC 4592 §4.2)"
            self.checks.problem(sets[min(wrong)].path, "overlap", message)
        elif cut is not None:
            self._check_delegated(content, cut, name, sets)
        elif "DS" in sets and name not in self.zones:
            message = f"`{name}` has DS records, but no NS records that delegate it (RFC 4035 §2.4)"
            self.checks.problem(sets["DS"].path, "missing", message)
        if "CNAME" in sets:
            self._check_alias(zone, name, sets)
        if name in self.owners:
            self._check_beside_service(self.owners[name], name, sets)
        if name in self.servers and "CNAME" in sets:
            message = f"`{name}` is a name server, which no alias can be (RFC 2181 §10.3)"
            self.checks.problem(first.path, "overlap", message)

    def _check_delegated(self, content: _Content, cut: str, name: str, sets: dict[str, _Set]) -> None:
        """At a delegation stand NS and DS, and below it the addresses of its servers (RFC 1034 §4.2.1)."""
        allowed = _OF_CUTS if name == cut else frozenset()
        if name in content.cuts[cut]:
            allowed |= _ADDRESSES
        for rdtype in sets.keys() - allowed:
            message = f"`{name}` lies in `{cut}`, which is delegated: only the addresses of its name servers stand here"
            self.checks.problem(sets[rdtype].path, "outside_zone", message)

    def _check_alias(self, zone: Zone, name: str, sets: dict[str, _Set]) -> None:
        path = sets["CNAME"].path
        if name == zone.name:
            message = "no CNAME can stand at a zone's apex, beside SOA and NS (RFC 1034 §3.6.2)"
            self.checks.problem(path, "overlap", message)
        elif len(sets) > 1:
            others = ", ".join(sorted(sets.keys() - {"CNAME"}))
            message = f"`{name}` has a CNAME, beside which nothing else can stand (RFC 2181 §10.1): {others}"
            self.checks.problem(path, "overlap", message)
        if len(sets["CNAME"].data) > 1:
            message = (
                f"`{name}` has {len(sets['CNAME'].data)} CNAME records, and one name has one (RFC 2181 §10.1)"
            )
            self.checks.problem(path, "overlap", message)

    def _check_beside_service(self, service: Service, name: str, sets: dict[str, _Set]) -> None:
        """Beside what a service answers stand records of other types, unless it may answer with an alias."""
        taken = _ADDRESSES | {"CNAME"} | ({"HTTPS"} if service.https_record is not None else set())
        members = {member.region for member in service.members}
        alias = name != service.zone and any(
            endpoint.cname is not None
            for region in self.policy.regions
            if region.name in members
            for endpoint in region.endpoints
        )
        for rdtype, found in sets.items():
            if rdtype in taken:
                message = (
                    f"`{name}` is a host name of service `{service.name}`, which answers {rdtype} itself"
                )
                self.checks.problem(found.path, "overlap", message)
            elif alias:
                message = (
                    f"`{name}` is a host name of service `{service.name}`, which may answer with a region's CNAME: "
                    "nothing else can stand beside that (RFC 2181 §10.1)"
                )
                self.checks.problem(found.path, "overlap", message)


def _inside(name: str, zone: str) -> bool:
    return name == zone or name.endswith(f".{zone}")
