"""What is legal in zones, host names and regions' aliases, and yet probably not meant: names that lead nowhere, or elsewhere than was meant."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping

import dns.exception
import dns.name
import dns.rdata
import dns.rdataclass

from gtm.core.model.names import WILDCARD, absolute, ancestors, closest
from gtm.core.model.problems import Problem
from gtm.core.model.references import some
from gtm.core.model.services import Zone
from gtm.core.policy.snapshot import Snapshot
from gtm.dns.zone.leads import NameEnd, NameRoute, ZoneLeads
from gtm.dns.zone.mail import mail_findings, text_findings

# --- Names that a wildcard no longer answers for, because something stands at them or below (RFC 4592 §2.2.1, §2.2.2). ---


ADDRESSES = "addresses"
"""What A, AAAA and CNAME records give, and a service: whoever has one of them at a name means that name to be another."""

_GIVEN = dict.fromkeys(("A", "AAAA", "CNAME"), ADDRESSES)


def blocked(snapshot: Snapshot) -> Iterator[Problem]:
    """A finding `wildcard_blocked` for each wildcard that gave names something which they have no more, nor of their own.

    What has addresses of its own, is delegated, or is no name of a host (an underscore begins one of its labels) is meant so.
    """
    found: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for name, wildcard, lost in blocked_names(snapshot):
        found.setdefault((wildcard, lost), []).append(f"`{name}`")
    for (wildcard, lost), names in found.items():
        text = (
            f"`{wildcard}` gives no {' and no '.join(lost)} to {some(names, 'names')}, nor to what lies below: a name that has records, or "
            "others below it, is answered by what it has itself, or with nothing (NODATA; RFC 4592 §2.2.1). Write what it shall "
            f"have there, or {_moved(snapshot, wildcard)}"
        )
        yield Problem(_path(snapshot, wildcard), "wildcard_blocked", text)


def blocked_names(snapshot: Snapshot) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Each such name, the wildcard that would answer if nothing stood at the name or below, and what it would give, sorted."""
    here = _Written(snapshot)
    if not here.wildcards:
        return
    for name in sorted(snapshot.existing):
        encloser = here.encloser(name)
        wildcard = f"{WILDCARD}{encloser}"
        if encloser is None or wildcard not in here.wildcards or closest(here.cuts, name) is not None:
            continue
        below = name.removesuffix(f".{encloser}").split(".")
        if any(label.startswith(("*", "_")) for label in below):
            continue
        lost = here.given.get(wildcard, set()) - here.given.get(name, set())
        if lost and name not in here.aliases:
            yield name, wildcard, tuple(sorted(lost))


class _Written:
    """What is written at names: what each gives, and how many written names lie at or below each that exists."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._zones = snapshot.zones
        self.given: dict[str, set[str]] = {name: {ADDRESSES} for name in snapshot.hostnames}
        self.aliases: set[str] = set()
        self.cuts: set[str] = set()
        written = {*snapshot.hostnames, *snapshot.zones}
        for zone in snapshot.policy.zones:
            # What is right above a zone exists in the zone around it, if there is one.
            written.add(zone.name.partition(".")[2])
            written.update(server.name for server in zone.name_servers)
            if not zone.name_servers:
                written.add(zone.primary_ns)
            for server in zone.name_servers:
                self.given.setdefault(server.name, set()).add(ADDRESSES)
            for record in zone.records:
                name = absolute(record.name, zone.name)
                written.add(name)
                self.given.setdefault(name, set()).add(_GIVEN.get(record.type, record.type))
                if record.type == "CNAME":
                    self.aliases.add(name)
                elif record.type == "NS":
                    self.cuts.add(name)
        self.wildcards = {name for name in written if name.startswith(WILDCARD)}
        self._written = written
        self._within = (
            Counter(above for name in written for above in ancestors(name)) if self.wildcards else Counter()
        )

    def encloser(self, name: str) -> str | None:
        """The closest name above one of a zone that exists whatever stands at it or below; None for a zone's own name."""
        if name in self._zones:
            return None
        _, *above = ancestors(name)
        return next(
            (one for one in above if one in self._zones or self._within[one] > self._within[name]), None
        )


def _path(snapshot: Snapshot, wildcard: str) -> str:
    service = snapshot.hostnames.get(wildcard)
    if service is not None:
        return f"services.{service}.hostnames"
    zone = snapshot.zones[closest(snapshot.zones, wildcard) or ""]
    index = next(at for at, one in enumerate(zone.records) if absolute(one.name, zone.name) == wildcard)
    return f"zones.{zone.name}.records[{index}]"


def _moved(snapshot: Snapshot, wildcard: str) -> str:
    service = snapshot.hostnames.get(wildcard)
    return (
        "move what stands there" if service is None else f"list it in the `hostnames` of service `{service}`"
    )


# --- What is legal in zones, host names and regions' aliases, and yet probably not meant: names that lead nowhere, or elsewhere than was meant. ---


_NAMING = frozenset(
    ["AFSDB", "CNAME", "HTTPS", "KX", "LP", "MX", "NAPTR", "NS", "PTR", "PX", "RP", "RT", "SRV", "SVCB"]
)
"""Types whose data hold names that zone files may write relative to the zone."""
_CONNECTED = frozenset(["AFSDB", "HTTPS", "KX", "MX", "NS", "RT", "SRV", "SVCB"])
"""Those of them whose names are connected to, and so need an address."""
_CANONICAL = {"MX": "RFC 2181 §10.3", "NS": "RFC 2181 §10.3", "SRV": "RFC 2782"}
"""Those whose names must be no aliases, and what says so."""
_HOSTS = _CONNECTED | {"CNAME"}
"""Those whose names are of hosts, or lead to one."""
_ADDRESS = re.compile(r"[0-9]{1,3}(?:\.[0-9]{1,3}){3}\.?")
_NO_HOST = re.compile(r"[^a-z0-9_.-]")
_CHALLENGE = "_acme-challenge"
"""The first label of names at which ACME clients write (RFC 8555 §8.4)."""
_ABSOLUTE = "names in this field are absolute, with or without a dot at the end"


def zone_findings(snapshot: Snapshot, leads: ZoneLeads) -> Iterator[Problem]:
    """Everything about names that their authors may want to look at again.

    Args:
        snapshot: the policy.
        leads: what its names lead to.

    Yields:
        `dangling`: a name of ours that does not exist. `relative`: a name that looks as if an absolute one was meant, or the
        other way round. `single_label`: a name in the root. `no_address`: a name of ours that is connected to, and has no
        address. `alias_target`: an alias where none may be. `alias_loop`: aliases that lead to each other. `no_glue`: a
        delegation to servers inside it without any address. `no_name`: data that hold an address, or another thing, where a name is
        meant. And those of `gtm.dns.zone.findings`, `gtm.dns.zone.mail` and `gtm.dns.zone.mail`.
    """
    yield from blocked(snapshot)
    names = _Names(snapshot, leads)
    for zone in snapshot.policy.zones:
        yield from names.of_zone(zone)
        yield from text_findings(zone)
        yield from mail_findings(snapshot, leads, zone)
    for path, cname in region_aliases(snapshot):
        yield from names.of_field(path, cname)
        yield from names.of_alias(path, cname)
    yield from region_loops(snapshot, leads)


def region_aliases(snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    """The path and the name of each alias that a region may be answered by."""
    for region in snapshot.regions:
        for index, endpoint in enumerate(region.endpoints):
            if endpoint.cname is not None:
                yield f"regions.{region.name}.endpoints[{index}].cname", endpoint.cname


def region_loops(snapshot: Snapshot, leads: ZoneLeads) -> Iterator[Problem]:
    """An `alias_loop` for each region's `cname` that may lead a service's clients back to it, over others too, or into a loop of records.

    These are errors of a new policy (`gtm.documents.plausibility.errors`). Linear in the regions and in the members of the services that such aliases lead to.
    """
    for path, cname in region_aliases(snapshot):
        if leads.route(cname).end is NameEnd.LOOP:
            text = f"`{cname}` is an alias in a loop, and answered by SERVFAIL; let it lead to a name that has an address"
            yield Problem(path, "alias_loop", text)
    led = [
        (region.name, f"regions.{region.name}.endpoints[{index}].cname", endpoint.cname, host.service)
        for region in snapshot.regions
        for index, endpoint in enumerate(region.endpoints)
        # An endpoint with addresses is never answered by its alias, and no alias stands at a zone's apex.
        if endpoint.cname is not None and not (endpoint.ipv4 or endpoint.ipv6)
        if closest(snapshot.zones, endpoint.cname) is not None
        if (host := leads.route(endpoint.cname).host) is not None and not host.apex
    ]
    having: dict[str, set[str]] = {}
    for name in {service for *_, service in led}:
        for member in snapshot.services[name].service.members:
            having.setdefault(member.region, set()).add(name)
    targets: dict[str, set[str]] = {service: set() for *_, service in led}
    for region, _, _, service in led:
        for name in having.get(region, ()):
            targets[name].add(service)
    circles = _circles(targets)
    for region, path, cname, service in led:
        if service in circles and not circles.isdisjoint(having.get(region, ())):
            text = (
                f"`{cname}` is answered by service `{service}`, which leads here again: clients get an alias for itself, and no "
                "address. Give the endpoint addresses, or a name that leads to no service with this region"
            )
            yield Problem(path, "alias_loop", text)


def _circles(targets: Mapping[str, set[str]]) -> frozenset[str]:
    """The nodes of a graph that lie on circles or between them: what is left once those that nothing leads on from, or to, are gone."""
    left = frozenset(targets)
    for edges in (targets, _turned(targets)):
        counts = {node: len(edges[node] & left) for node in left}
        back = _turned(edges)
        ends = [node for node in left if not counts[node]]
        gone = set(ends)
        while ends:
            for node in back[ends.pop()] & left:
                counts[node] -= 1
                if not counts[node] and node not in gone:
                    gone.add(node)
                    ends.append(node)
        left -= gone
    return left


def _turned(edges: Mapping[str, set[str]]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {node: set() for node in edges}
    for node, following in edges.items():
        for other in following:
            found[other].add(node)
    return found


class _Names:
    """Finds what names that are written somewhere lead to, and tells what is not as it should be."""

    def __init__(self, snapshot: Snapshot, leads: ZoneLeads) -> None:
        self._snapshot = snapshot
        self._leads = leads
        self._addressed = set(snapshot.hostnames)
        self._aliased = {
            region.name
            for region in snapshot.regions
            if any(one.cname is not None and not (one.ipv4 or one.ipv6) for one in region.endpoints)
        }
        for zone in snapshot.policy.zones:
            self._addressed.update(server.name for server in zone.name_servers)
            self._addressed.update(
                absolute(record.name, zone.name) for record in zone.records if record.type in ("A", "AAAA")
            )

    def of_zone(self, zone: Zone) -> Iterator[Problem]:
        """What a zone's own fields and its records name."""
        yield from self.of_field(f"zones.{zone.name}.primary_ns", zone.primary_ns)
        if self._leads.route(zone.primary_ns).end is NameEnd.MISSING:
            text = f"`{zone.primary_ns}` does not exist: it is no name of `name_servers`, and has no records"
            yield Problem(f"zones.{zone.name}.primary_ns", "dangling", text)
        yield from self.of_field(f"zones.{zone.name}.hostmaster", zone.hostmaster)
        for index, server in enumerate(zone.name_servers):
            yield from self.of_field(f"zones.{zone.name}.name_servers[{index}].name", server.name)
        for index, record in enumerate(zone.records):
            path, bare = f"zones.{zone.name}.records[{index}]", []
            yield from self._owner(path, zone, record.name)
            for text in record.data if record.type in _NAMING else ():
                for name in _named(record.type, text):
                    yield from self._of_record(path, zone, record.type, text, name)
                    if record.type == "NS" and self._bare(
                        absolute(record.name, zone.name), absolute(name, zone.name)
                    ):
                        bare.append(f"`{absolute(name, zone.name)}`")
            if bare:
                text = f"nobody can find {some(bare, 'servers')}: give their addresses (glue) here"
                yield Problem(path, "no_glue", text)
            if (
                record.type == "CNAME"
                and self._leads.route(absolute(record.name, zone.name)).end is NameEnd.LOOP
            ):
                yield Problem(path, "alias_loop", "the alias leads into a loop, and is answered by SERVFAIL")

    def of_field(self, path: str, name: str) -> Iterator[Problem]:
        """A field that holds an absolute name: one label alone, or what is a name of ours with the zone's behind it."""
        if closest(self._snapshot.zones, name) is not None:
            return
        if _ADDRESS.fullmatch(name):
            text = f"`{name}` is an address, and a name belongs here: give a name that address, by an A record, and write the name"
            yield Problem(path, "no_name", text)
            return
        meant = [zone for zone in self._snapshot.zones if f"{name}.{zone}" in self._snapshot.existing]
        hint = f"; write `{name}.{meant[0]}` if that is meant" if meant else "; write the whole name"
        if "." not in name:
            text = f"`{name}.` is a name right below the root, where nobody's servers are: {_ABSOLUTE}{hint}"
            yield Problem(path, "single_label", text)
        elif meant:
            yield Problem(path, "relative", f"`{name}.` is no name of this policy's zones: {_ABSOLUTE}{hint}")

    def of_alias(self, path: str, cname: str) -> Iterator[Problem]:
        """A region's alias for a name of ours, which clients look up in turn."""
        if closest(self._snapshot.zones, cname) is None:
            return
        route = self._leads.route(cname)
        if route.end is NameEnd.MISSING:
            text = f"`{_last(cname, route)}` does not exist: clients that get the alias find nothing (NXDOMAIN); write its records, or another name"
            yield Problem(path, "dangling", text)
        elif route.end is NameEnd.EMPTY:
            text = f"`{_last(cname, route)}` has no address: clients that get the alias find none (NODATA); write its records, or another name"
            yield Problem(path, "no_address", text)

    @staticmethod
    def _owner(path: str, zone: Zone, name: str) -> Iterator[Problem]:
        """A record's own name that ends with the zone's, without a dot behind it."""
        if closest((zone.name,), name.lower()) is not None:
            short = name[: -len(zone.name)].removesuffix(".") or "@"
            text = (
                f"the record stands at `{absolute(name, zone.name)}`: names of records are relative to the zone without a dot at the end; "
                f"write `{short}`, or `{name}.`"
            )
            yield Problem(path, "relative", text)

    def _bare(self, cut: str, server: str) -> bool:
        """Whether nobody can find a name server of a delegation: it lies in it, and no address of it is here."""
        return closest((cut,), server) is not None and server not in self._addressed

    def _of_record(self, path: str, zone: Zone, rdtype: str, data: str, name: str) -> Iterator[Problem]:
        """A name in a record's data, as it is written there."""
        target = absolute(name, zone.name)
        said = f"`{rdtype} {data}`"
        wrong = self._no_name(rdtype, name, target)
        if wrong is not None:
            yield Problem(path, "no_name", f"{said} needs the name of a host, and {wrong}")
            return
        if "." not in target:
            yield Problem(
                path,
                "single_label",
                f"{said} leads to `{target}.`, right below the root, where nobody's servers are",
            )
        if closest(self._snapshot.zones, target) is None:
            return
        whole = not name.endswith(".") and "." in name
        hint = (
            f"; a dot at the end makes a name absolute: `{name}.`"
            if whole
            else "; write its records, or another name"
        )
        route = self._leads.route(target)
        if route.end is NameEnd.MISSING and _last(target, route).startswith(f"{_CHALLENGE}."):
            return  # challenges come and go by themselves
        if route.end is NameEnd.MISSING:
            text = f"`{_last(target, route)}` does not exist, so {said} leads nowhere (NXDOMAIN){hint}"
            yield Problem(path, "dangling", text)
            return
        if whole and target not in self._snapshot.existing and self._looks_whole(name, target):
            text = f"{said} leads to `{target}`, for which a wildcard answers{hint}"
            yield Problem(path, "relative", text)
        if rdtype in _CONNECTED and route.end is NameEnd.EMPTY:
            text = f"`{_last(target, route)}` has no address, so nobody can connect by {said} (NODATA){hint}"
            yield Problem(path, "no_address", text)
        if rdtype in _CANONICAL and self._alias(route):
            text = (
                f"{said} leads to an alias, which {rdtype} records must not ({_CANONICAL[rdtype]}), and some do not follow: "
                f"name `{route.aliases[-1]}` itself"
                if route.aliases
                else f"{said} leads to a name that service `{self._service(route)}` may answer with an alias, which {rdtype} records must "
                f"not lead to ({_CANONICAL[rdtype]}): name one that has addresses"
            )
            yield Problem(path, "alias_target", text)

    def _no_name(self, rdtype: str, name: str, target: str) -> str | None:
        """What stands where the name of a host is meant; None: such a name, or one that exists."""
        if rdtype not in _HOSTS or target in self._snapshot.existing:
            return None
        if _ADDRESS.fullmatch(name):
            return f"`{name.removesuffix('.')}` is an address: give a name that address, by an A record, and write the name"
        wrong = "".join(dict.fromkeys(_NO_HOST.findall(name)))
        if not wrong or name == "@" or closest(("arpa",), target) is not None:  # RFC 2317 has others in names
            return None
        return f"`{name}` has `{wrong}`, which no host's name has: write the name alone, without a scheme, port or path"

    def _looks_whole(self, name: str, target: str) -> bool:
        """Whether a relative name looks like an absolute one: by a zone's name at its end, or since only the zone's own wildcard has it."""
        if closest(self._snapshot.zones, name) is not None:
            return True
        return closest(self._snapshot.existing, target) in self._snapshot.zones

    def _alias(self, route: NameRoute) -> bool:
        """Whether an answer has, or may have, an alias."""
        if route.aliases:
            return True
        if route.host is None or route.host.apex:
            return False
        members = self._snapshot.services[route.host.service].service.members
        return any(member.region in self._aliased for member in members)

    @staticmethod
    def _service(route: NameRoute) -> str:
        return "" if route.host is None else route.host.service


def _last(name: str, route: NameRoute) -> str:
    return route.aliases[-1] if route.aliases else name


def _named(rdtype: str, text: str) -> Iterator[str]:
    """The names in a record's data as they are written: relative without a dot at the end. Not the root, which stands for none."""
    try:
        rdata = dns.rdata.from_text(dns.rdataclass.IN, rdtype, text, relativize=False)
    except (dns.exception.DNSException, ValueError):
        return  # what cannot be read is told elsewhere
    for field in dict.fromkeys(
        slot for kind in type(rdata).__mro__ for slot in getattr(kind, "__slots__", ())
    ):
        name = getattr(rdata, field, None)
        if isinstance(name, dns.name.Name) and name != dns.name.root:
            yield "@" if name == dns.name.empty else name.to_text().lower()
