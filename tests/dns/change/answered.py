"""What a change of policy lets be answered that the law of before forbids, told slowly.

Written from docs/simulate.md ("What names lead to", "What is gone"). What is answered comes from the name server's own parts, as
`Answerer` joins them: for a class of clients, with one region up at a time and with none, each answer followed to its end as a
resolver and a client would. What is permitted comes from `tests.core.reference`. Nothing of `gtm.core.change` is used here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache, cached_property
from ipaddress import ip_address
from typing import NamedTuple
from urllib.parse import urlsplit

import dns.rdata
import dns.rdataclass
import dns.rdatatype

from gtm.core.decision.router import Ranker, Router
from gtm.core.decision.view import View, Window, build_basis, build_view
from gtm.core.latency.estimator import Estimator
from gtm.core.latency.table import EMPTY_TABLE
from gtm.core.model.policy import Policy, RuleMode
from gtm.core.model.regions import Endpoint, Region
from gtm.core.model.requests import Location, Request
from gtm.core.model.services import NameServer
from gtm.core.model.state import State
from gtm.core.policy.compile import compile_policy
from gtm.core.policy.snapshot import Snapshot
from gtm.dns.answer.answerer import Answerer
from gtm.dns.protocol import wire
from gtm.dns.zone.content import Content, Record, host_content
from gtm.dns.zone.static import NOT_AUTHORITATIVE, Alias, static_content
from gtm.dns.zone.zones import Host, wire_name
from gtm.telemetry import Counts
from tests import worlds
from tests.core.reference import Reference

NOW = 150.0
DATES = (200.0, 400.0)
"""At which rules of the worlds begin and end."""
MOMENTS = (NOW, *(at + 50 for at in DATES))
"""One in each time in which the law stays the same."""
SVCB = int(dns.rdatatype.SVCB)
TYPES = (wire.A, wire.AAAA, wire.HTTPS, SVCB, wire.SRV, wire.CNAME)
CLIENTS = (
    Location("DE", source="geoip", accuracy_km=20.0),
    Location("US", source="geoip", accuracy_km=20.0),
    Location("JP", source="geoip", accuracy_km=20.0),
    Location(),
    Location("US", source="geoip", accuracy_km=20.0, anonymous=True),
    Location("US", source="geoip", accuracy_km=900.0),
    Location("US", source="geoip", accuracy_km=20.0, doubtful=True),
    Location("JP", source="override"),
)
"""A client of each class that rules tell apart."""
NOBODY = "nobody-s"
"""A label that no name of the worlds has, so that names with it are those that a wildcard stands for."""
NOWHERE = frozenset({"0.0.0.0", "::"})


class Asked(NamedTuple):
    """A service that decides, and what the host name states."""

    service: str
    tenant: str | None = None
    data_class: str | None = None


class Way(NamedTuple):
    """How a target is come to: by decisions one after the other (None: a refusal), the last of which has it itself (`own`)."""

    chosen: tuple[str | None, ...]
    own: str | None


Reached = Mapping[str, frozenset[Way]]
"""Targets (addresses, names outside of the zones, referrals) → the ways there."""


def address(text: str) -> str:
    """An address in its one form: one of IPv6 that stands for one of IPv4 (RFC 4291 §2.5.5.2) leads there."""
    found = ip_address(text)
    return str(getattr(found, "ipv4_mapped", None) or found)


def targets_of(endpoint: Endpoint) -> Iterator[str]:
    """What an endpoint is reached by: addresses, and names in lower case."""
    yield from map(address, (*endpoint.ipv4, *endpoint.ipv6))
    if endpoint.cname is not None:
        yield endpoint.cname.lower().rstrip(".")
    host = urlsplit(endpoint.url).hostname
    if host is not None:
        try:
            yield address(host)
        except ValueError:
            yield host.rstrip(".")


def owners(policy: Policy) -> dict[str, list[str]]:
    """Target → the regions that have it."""
    found: dict[str, list[str]] = {}
    for region in policy.regions:
        for target in {target for endpoint in region.endpoints for target in targets_of(endpoint)}:
            found.setdefault(target, []).append(region.name)
    return found


def text_of(name: bytes) -> str:
    """A wire-form name as text."""
    labels = []
    while name[0]:
        labels.append(name[1 : 1 + name[0]].decode("ascii").lower())
        name = name[1 + name[0] :]
    return ".".join(labels)


@cache
def read(rdtype: int, rdata: bytes) -> tuple[tuple[str, ...], str | None]:
    """The targets that data of a record has of its own, and the name that it leads to (empty: its own)."""
    if rdtype in (wire.A, wire.AAAA):
        return (address(str(ip_address(rdata))),), None
    if rdtype == wire.CNAME:
        return (), text_of(rdata)
    if rdtype == wire.SRV:
        return (), text_of(rdata[6:])
    if rdtype in (wire.HTTPS, SVCB):
        data = dns.rdata.from_wire(dns.rdataclass.IN, rdtype, rdata, 0, len(rdata))
        hints = tuple(
            address(hint)
            for key in (4, 6)
            if (value := data.params.get(key)) is not None
            for hint in value.addresses
        )
        return hints, data.target.to_text(omit_final_dot=True).lower().removeprefix("@").removesuffix(".")
    return (), None


class Answers:
    """All that a policy answers, at a moment."""

    def __init__(self, policy: Policy, snapshot: Snapshot, at: float) -> None:
        self.policy, self.at = policy, at
        self.snapshot = snapshot
        self.decided = cache(self._decided)
        self.reached = cache(self._reached)
        self.served = cache(self._served)
        self.fixed = cache(self._fixed)
        self.led = cache(self._led)
        self.owners = owners(policy)

    @cached_property
    def routers(self) -> dict[str | None, Router]:
        """Of the same policy: with one region up alone, and with none."""
        window = Window(self.at, self.at)
        names = [region.name for region in self.policy.regions]
        states = {
            name: State(1, health=worlds.health(self.policy.regions, set(names) - {name}))
            for name in (*names, None)
        }
        basis = build_basis(self.snapshot, Estimator(self.snapshot.regions, EMPTY_TABLE), window)
        ranker = Ranker(basis)
        return {name: Router(build_view(basis, state, window), ranker) for name, state in states.items()}

    @cached_property
    def answerer(self) -> Answerer:
        """What answers, while nothing is up."""
        return Answerer(self.routers[None], lambda _: Location(), Counts())

    def _decided(self, name: str) -> Asked | None:
        """The service that decides what a name answers: by itself, by a wildcard, or at the end of its aliases."""
        found = static_content(self.answerer.names, wire_name(name), wire.A)
        host = found.host if isinstance(found, Alias) else found
        return Asked(host.service, host.tenant, host.data_class) if isinstance(host, Host) else None

    def theirs(self, name: str, seen: tuple[str, ...] = ()) -> list[Asked]:
        """The services whose name it is: that which decides there, or those that its records lead to."""
        asked = self.decided(name)
        if asked is not None or name in seen:
            return [] if asked is None else [asked]
        return [one for onward in self.fixed(name)[2] for one in self.theirs(onward, (*seen, name))]

    def servers(self, name: str) -> tuple[NameServer, ...]:
        """The name servers of the zone that a name is in."""
        zones = [
            zone for zone in self.policy.zones if f".{name.removeprefix('*.')}".endswith(f".{zone.name}")
        ]
        if not zones:
            return ()
        zone = max(zones, key=lambda each: len(each.name))
        return zone.name_servers or (NameServer(zone.primary_ns),)

    def answered(self, name: str) -> bool:
        """Whether anything leads anywhere from there, for anybody."""
        return any(self.reached(name, client) for client in CLIENTS)

    def _fixed(self, name: str) -> tuple[tuple[Host, ...], tuple[str, ...], tuple[str, ...]]:
        """What a name answers one question after the other: by decisions, targets, and names to ask on at."""
        hosts: dict[tuple[str, bool], Host] = {}
        targets: list[str] = []
        further: list[str] = []
        for rdtype in TYPES:
            found = static_content(self.answerer.names, wire_name(name), rdtype)
            if found is NOT_AUTHORITATIVE:
                return (), (name,), ()
            if isinstance(found, Alias):
                further.append(text_of(found.name))
            elif isinstance(found, Host):
                hosts[found.service, found.apex] = found
            else:
                self._note(name, found, targets, further)
        return tuple(hosts.values()), tuple(dict.fromkeys(targets)), tuple(dict.fromkeys(further))

    @staticmethod
    def _note(name: str, content: Content, targets: list[str], further: list[str]) -> None:
        if content.delegation is not None:
            targets += [f"referral to {text_of(server)}" for server in content.delegation.servers.data]
            return
        end = name
        for record in content.records:
            here, onward = read(record.rdtype, record.rdata)
            targets += here
            if record.rdtype == wire.CNAME:
                end = onward or ""
            elif onward:
                further.append(onward)
        if end != name and content.records[-1].rdtype == wire.CNAME:
            further.append(end)

    def _served(
        self, service: str, region: str | None, apex: bool
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """What a host name says of a region (None: what it says to those it refuses): targets, and names to ask on at."""
        router = self.routers[region]
        view: View = router.view
        host = next(
            each
            for each in self.answerer.names.hosts.values()
            if each.service == service and each.apex == apex
        )
        targets: list[str] = []
        further: list[str] = []
        for option in self._options[service, region]:
            for rdtype in TYPES:
                content = host_content(view, host, rdtype, option)
                self._note("", content, targets, further)
            if region is not None:
                for endpoint in view.endpoints[option.number]:
                    name = urlsplit(endpoint.url).hostname or ""
                    try:
                        targets.append(address(name))
                    except ValueError:
                        further.append(name)
        return tuple(dict.fromkeys(targets)), tuple(dict.fromkeys(further))

    @cached_property
    def _options(self) -> dict[tuple[str, str | None], list]:
        return {}

    @cached_property
    def _picked(self) -> dict[tuple, frozenset[str | None]]:
        return {}

    def chosen(self, asked: Asked, client: Location) -> frozenset[str | None]:
        """The regions that a service may choose for a client, one up alone; None: a refusal."""
        key = (asked, client)
        if key not in self._picked:
            found = set()
            for router in self.routers.values():
                option = router.routing(Request(asked.service, client, *asked[1:])).pick(0.5, sheds=False)
                found.add(option.region)
                self._options.setdefault((asked.service, option.region), [option])
            self._picked[key] = frozenset(found)
        return self._picked[key]

    def _reached(self, name: str, client: Location) -> Reached:
        found: dict[str, set[Way]] = {}
        self._follow(name, client, (), (), found)
        return {target: frozenset(ways) for target, ways in found.items() if target not in NOWHERE}

    def _led(self, region: str, client: Location) -> frozenset[str]:
        """All that a region's endpoints lead to."""
        found: dict[str, set[Way]] = {target: set() for target in self._has.get(region, ())}
        for target in list(found):
            if not target[0].isdigit() and ":" not in target:
                self._follow(target, client, (), (region,), found)
        return frozenset(found)

    def _follow(
        self,
        name: str,
        client: Location,
        seen: tuple[str, ...],
        way: tuple[str | None, ...],
        found: dict[str, set[Way]],
    ) -> None:
        if name in seen:
            return
        hosts, targets, further = self.fixed(name)
        for target in targets:
            # A name outside of the zones that a region has chosen to be reached by is its own.
            last = way[-1] if way else None
            own = last if last is not None and target == name and target in self._has[last] else None
            found.setdefault(target, set()).add(Way(way, own))
        for onward in further:
            self._follow(onward, client, (*seen, name), way, found)
        for host in hosts:
            asked = Asked(host.service, host.tenant, host.data_class)
            for region in self.chosen(asked, client):
                here, onwards = self.served(host.service, region, host.apex)
                then = (*way, region)
                for target in here:
                    found.setdefault(target, set()).add(Way(then, region))
                for onward in onwards:
                    self._follow(onward, client, (*seen, name), then, found)

    @cached_property
    def _has(self) -> dict[str, frozenset[str]]:
        return {
            region.name: frozenset(target for endpoint in region.endpoints for target in targets_of(endpoint))
            for region in self.policy.regions
        }


class Fence:
    """The law of a policy, for regions as they were by it."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.rules = [rule for rule in policy.residency_rules if rule.mode is RuleMode.ENFORCE]
        self.references: dict[tuple[Region, ...], Reference] = {}
        self.kept: dict[tuple, tuple[str, ...]] = {}
        self.known = {region.name: region for region in policy.regions}

    def keeping(self, asked: Asked, client: Location, place: Region | None, at: float) -> tuple[str, ...]:
        """The rules that keep a client of a service from a place; None: one that nobody knows."""
        if not self.rules:
            return ()
        key = (asked, client, place, at)
        found = self.kept.get(key)
        if found is None:
            found = self.kept[key] = tuple(self._keeping(asked, client, place, at))
        return found

    def _keeping(self, asked: Asked, client: Location, place: Region | None, at: float) -> Iterator[str]:
        more = () if place is None or place in self.policy.regions else (place,)
        reference = self.references.get(more)
        if reference is None:
            others = tuple(
                region for region in self.policy.regions if place is None or region.name != place.name
            )
            law = replace(self.policy, regions=(*others, *more) if more else self.policy.regions)
            reference = self.references[more] = Reference(law, worlds.SHIPPED, State(0), Window(at, at))
        request, moment = Request(asked.service, client, *asked[1:]), datetime.fromtimestamp(at, UTC)
        for rule in self.rules:
            if reference.concerns(rule, request, moment) and (
                place is None or not reference.permits(rule, place, moment)
            ):
                yield rule.name


@dataclass(frozen=True)
class Law:
    """Whose law a name is under: a policy's, as its service was asked there; and what the name led to by it.

    `below`: the name lies below one that was decided, so that what services decide there is free.
    """

    side: Side
    asked: Asked
    name: str | None = None
    below: bool = False


class Side:
    """One policy: its answers at each moment, and its law."""

    def __init__(self, policy: Policy, snapshot: Snapshot | None = None) -> None:
        self.policy = policy
        self.snapshot = compile_policy(policy, worlds.SHIPPED) if snapshot is None else snapshot
        self.fence = Fence(policy)
        self.answers = cache(lambda at: Answers(policy, self.snapshot, at))
        self.owners = owners(policy)
        self.regions = {region.name: region for region in policy.regions}
        dates = {at for rule in policy.residency_rules for at in (rule.effective_from, rule.effective_until)}
        self.dated = bool(dates - {None})


class Complaint(NamedTuple):
    """An answer that was not given before, and the rules of before that forbid it."""

    name: str
    client: Location
    target: str
    rules: tuple[str, ...]


@dataclass
class Memory:
    """What is gone and keeps its rules: names with their law, and targets with the regions that had them last."""

    names: dict[str, Law] = field(default_factory=dict)
    targets: dict[str, tuple[Region, ...]] = field(default_factory=dict)

    def after(self, before: Side, after: Side, universe: Sequence[str]) -> Memory:
        """What is remembered after a change that opened nothing."""
        names, targets = dict(self.names), dict(self.targets)
        old, new = before.answers(NOW), after.answers(NOW)
        for name in universe:
            asked = old.decided(name)
            if new.decided(name) is not None:
                names.pop(name, None)
            elif asked is not None and before.fence.rules:
                names[name] = Law(before, asked, name)
        for target, had in before.owners.items():
            if target not in after.owners:
                targets[target] = tuple(before.regions[region] for region in had)
        return Memory(names, {target: had for target, had in targets.items() if target not in after.owners})


def above(name: str) -> Iterator[str]:
    """The names above a name."""
    while name := name.partition(".")[2]:
        yield name


def laws(name: str, before: Side, memory: Memory) -> list[Law]:
    """Those that answers at a name are judged by."""
    answers = before.answers(NOW)
    found = []
    if answers.decided(name) is None and name in memory.names:
        found.append(memory.names[name])
    if theirs := answers.theirs(name):
        return [*found, *(Law(before, asked, name) for asked in theirs)]
    meant = next(each for each in (name, *above(name)) if not each.startswith("_"))
    closest = [meant] if meant != name else []  # whoever asks for a port of a name means that name
    for higher in above(name):
        # A wildcard is closer than the name above it.
        closest += [f"{NOBODY}.{higher}"] if f"*.{higher}" in before.snapshot.existing else []
        closest.append(higher)
    for each in closest:
        if theirs := answers.theirs(each):
            return [*found, *(Law(before, asked, name, below=True) for asked in theirs)]
        if each in memory.names and not found:
            return [replace(memory.names[each], name=name, below=True)]
    return found


def opened(
    before: Side,
    after: Side,
    universe: Iterable[str],
    memory: Memory | None = None,
    between: Sequence[Side] = (),
) -> Iterator[Complaint]:
    """What the law of before forbids and is answered now, for each name and class of clients.

    With policies `between`, names that lie below others are left out: they are free to be a service's in between, and so are
    that one's then.
    """
    memory = Memory() if memory is None else memory
    moments = MOMENTS if before.dated or after.dated or memory.names else (NOW,)
    for name in universe:
        for law in laws(name, before, memory):
            if not law.side.fence.rules or (between and law.below):
                continue
            for at in moments:
                old = (
                    [before.answers(at), law.side.answers(at)]
                    if law.side is not before
                    else [before.answers(at)]
                )
                new = after.answers(at)
                strangers = list(_strangers(law, name, old, new, before, after, memory))
                for client in CLIENTS:
                    for target, place in strangers:
                        if rules := law.side.fence.keeping(law.asked, client, place, at):
                            yield Complaint(name, client, target, rules)
                    known = [side.reached(name, client) for side in old]
                    chains = {way.chosen for one in known for ways in one.values() for way in ways}
                    for target, found in new.reached(name, client).items():
                        if any(target in one for one in known):  # what it led to before opens nothing new
                            continue
                        # Nor does what a region that it led to, by the same decisions, says that it is reached by.
                        ways = [
                            way._replace(chosen=())
                            if not law.below and way.own is not None and way.chosen in chains
                            else way
                            for way in found
                        ]
                        if rules := forbidden(law, client, at, target, ways, before, after, memory, between):
                            yield Complaint(name, client, target, rules)


def _strangers(  # noqa: PLR0917 - what changed, and who is known
    law: Law, name: str, old: Iterable[Answers], new: Answers, before: Side, after: Side, memory: Memory
) -> Iterator[tuple[str, Region | None]]:
    """The name servers that answer for a name, and did not, by the names and addresses that are new, and where each stands."""
    known = {text for answers in old for server in answers.servers(name) for text in _texts(server)}
    for server in new.servers(name):
        fresh = [text for text in _texts(server) if text not in known]
        regions = {
            region
            for text in fresh
            for region in (
                *(before.regions[each] for each in before.owners.get(text, ())),
                *memory.targets.get(text, ()),
                *(after.regions[each] for each in after.owners.get(text, ()) if text not in before.owners),
            )
        }
        if not fresh:
            continue
        declared = Region(
            "a name server", 0.0, 0.0, server.country or "", (), operator_country=server.operator_country
        )
        for place in regions or {None if server.country is None else declared}:
            described = place if place is None else law.side.regions.get(place.name, place)
            yield server.name, described


def _texts(server: NameServer) -> Iterator[str]:
    yield server.name
    yield from map(address, (*server.ipv4, *server.ipv6))


def forbidden(  # noqa: PLR0917 - an answer, and what it is judged by
    law: Law,
    client: Location,
    at: float,
    target: str,
    ways: Iterable[Way],
    before: Side,
    after: Side,
    memory: Memory,
    between: Sequence[Side],
) -> tuple[str, ...]:
    """The rules that forbid a target to a client by some way there."""

    def described(region: str) -> Region:
        if any(region not in side.regions for side in between):
            # It was gone in between: it is another one, that no rule of before names.
            return replace(after.regions.get(region) or before.regions[region], name=f"{region} again")
        for side in (law.side, before, after):
            if region in side.regions:
                return side.regions[region]
        raise AssertionError(region)

    keeping = law.side.fence.keeping
    found: tuple[str, ...] = ()
    for way in ways:
        if law.below and way.chosen:
            continue
        had = next(
            (
                number
                for number, region in enumerate(way.chosen, 1)
                if region is not None and target in before.answers(at).led(region, client)
            ),
            None,
        )
        # What a region's endpoints led to before is that region.
        chosen = way.chosen[:had]
        places: set[Region | None] = {described(region) for region in chosen if region is not None}
        if had is None:
            # Whose it was first: that another region says it has it, too, moves no machine.
            had_by = before.owners.get(target)
            others = {described(region) for region in had_by or ()} or set(memory.targets.get(target, ()))
            others = others or {described(region) for region in after.owners.get(target, ())}
            if between and len(others) > 1:
                # Shared from the first: the one that the law permits may be what has it now, by another name.
                others = {min(others, key=lambda region: len(keeping(law.asked, client, region, at)))}
            places |= {region for region in others if region.name.removesuffix(" again") != way.own}
            if way.own is None and not others:
                places.add(None)
        for place in places:
            found += keeping(law.asked, client, place, at)
    return tuple(dict.fromkeys(found))


def told(complaint: Complaint) -> str:
    """A complaint in words."""
    where = complaint.client
    return f"{complaint.name} → {complaint.target} for {where.country} {where.source}: {', '.join(complaint.rules)}"


__all__ = ["CLIENTS", "NOW", "Answers", "Complaint", "Law", "Memory", "Record", "Side", "opened", "told"]
