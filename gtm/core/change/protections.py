"""Safety rules that hold at any traffic, told in words: `fence` and `deletion`."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import replace

from gtm.core.change.leads import NOTHING_FORMER, OUTSIDE, Former, Leads, LeadsOf, Owners, spelled, targets_of
from gtm.core.change.openings import UNNAMED, Opening, openings
from gtm.core.change.safety import Breach, SafetyRule
from gtm.core.model.countries import COUNTRIES
from gtm.core.model.kinds import KINDS, label
from gtm.core.model.names import closest
from gtm.core.model.policy import Policy
from gtm.core.model.problems import Problem
from gtm.core.model.references import some, utc
from gtm.core.model.services import RefusalAddress
from gtm.core.policy.snapshot import Snapshot

MOST_DELETED = 10
"""Resources that a change may delete, of all kinds together."""
MOST_DELETED_SHARE = 1 / 3
"""Part of a kind that a change may delete, where it deletes more than one."""
_TOLD = 5
"""How many rules are told apart; of the others there is a count."""


def opened(
    before: Snapshot, after: Snapshot, now: float, leads: LeadsOf, former: Former = NOTHING_FORMER
) -> tuple[Breach, ...]:
    """Rule 5: a breach for each of the first few rules that no longer keep all that they kept, and one for the others.

    Args:
        before: the policy in force.
        after: the same with the change.
        now: POSIX seconds.
        leads: tells what a policy's names lead to.
        former: what is gone, and keeps its rules.
    """
    made = openings(before, after, now, leads=leads, former=former)
    found = [_breach(len(one.services), _sentence(one)) for one in made.found[:_TOLD]]
    if len(made.found) > _TOLD:
        rest = made.found[_TOLD:]
        services = len({name for one in rest for name in one.services})
        names = some([f"`{one.rule}`" for one in rest], "rules")
        kept = "1 service" if services == 1 else f"{services} services"
        text = f"{len(rest)} more rules would no longer keep {kept} from regions: {names}"
        found.append(_breach(services, text))
    unknown = made.unknown or {}
    if unknown:
        names = some([f"`{name}`" for name in unknown], "rules")
        why = next(iter(unknown.values()))
        found.append(
            _breach(len(unknown), f"what the change opens cannot be told of rule {names}: {why}", "rules")
        )
    found += [
        _breach(1, f"what was gone and comes back cannot be compared: {why}", "revisions")
        for why in former.untold
    ]
    return tuple(found)


def led_out(snapshot: Snapshot, now: float, leads: LeadsOf) -> Iterator[Problem]:
    """A finding for each rule from whose fence something of the policy leads out: `led_out`.

    It is what would be refused as an opening if it were new: records, endpoints, and refusal addresses that are a region's. Refusal addresses
    of nobody's are what they are for.

    Args:
        snapshot: the policy.
        now: POSIX seconds.
        leads: tells what a policy's names lead to.
    """
    for one in openings(_leading_nowhere(snapshot), snapshot, now, leads=leads).found:
        text = f"rule `{one.rule}` does not keep {_kept(one)}"
        yield Problem(f"residency_rules.{one.rule}", "led_out", text)
        yield from _led_by_aliases(snapshot, one, leads(snapshot))


def _led_by_aliases(snapshot: Snapshot, one: Opening, leads: Leads) -> Iterator[Problem]:
    """Which regions' `cname` leads out of a rule's fence, because it is a name of the policy's own."""
    services = [name for name in one.services if name != UNNAMED]
    rules = [
        rule for name in services for rule in snapshot.services[name].rules if rule.rule.name == one.rule
    ]
    for name, _ in one.shared:
        number = snapshot.region_numbers[name]
        for index, endpoint in enumerate(snapshot.regions[number].endpoints):
            if endpoint.cname is None or closest(snapshot.zones, endpoint.cname) is None:
                continue
            led = leads.at(endpoint.cname)
            reached = Owners(snapshot, snapshot, NOTHING_FORMER).places(led.targets) - {OUTSIDE}
            deciding = sorted({asked.service for asked in led.services})
            reached |= {
                member.region for asked in deciding for member in snapshot.services[asked].service.members
            }
            out = [
                f"`{place}`"
                for place in sorted(reached)
                if any(not rule.allowed >> snapshot.region_numbers[place] & 1 for rule in rules)
            ]
            if out:
                by = (
                    f", by service {some([f'`{asked}`' for asked in deciding], 'services')}"
                    if deciding
                    else ""
                )
                text = (
                    f"alias `{endpoint.cname}` leads to {some(out, 'regions')}{by}: rule `{one.rule}` keeps {_services(one)} "
                    "from there, and not those who follow the alias. Give the endpoint addresses, or a name that leads to what the "
                    "rule allows"
                )
                yield Problem(f"regions.{name}.endpoints[{index}].cname", "led_out", text)


def _leading_nowhere(snapshot: Snapshot) -> Snapshot:
    """The same policy without what leads somewhere whatever its rules say."""
    owned = {target for region in snapshot.regions for target in targets_of(region)}
    services = {
        name: replace(item, service=replace(item.service, refusal=_unowned(item.service.refusal, owned)))
        for name, item in snapshot.services.items()
    }
    zones = tuple(replace(zone, records=()) for zone in snapshot.policy.zones)
    regions = tuple(replace(region, endpoints=()) for region in snapshot.regions)
    return replace(snapshot, policy=replace(snapshot.policy, zones=zones), regions=regions, services=services)


def _unowned(refusal: RefusalAddress, owned: Container[str]) -> RefusalAddress:
    ipv4, ipv6 = (
        tuple(one for one in family if not any(spelling in owned for spelling in spelled(one)))
        for family in (refusal.ipv4, refusal.ipv6)
    )
    return RefusalAddress(ipv4, ipv6)


def deletions(before: Policy, after: Policy) -> tuple[Breach, ...]:
    """Rule 6: a breach if a zone, more than 10 resources, or more than one and a third of a kind would be deleted."""
    gone: dict[str, list[str]] = {}
    too_many: list[str] = []
    for kind in KINDS:
        left = {item.name for item in getattr(after, kind)}
        held = [item.name for item in getattr(before, kind)]
        lost = [name for name in held if name not in left]
        if lost:
            gone[kind] = lost
        if len(lost) > 1 and len(lost) > MOST_DELETED_SHARE * len(held):
            too_many.append(f"{len(lost)} of {len(held)} {_plural(kind)}")
    total = sum(map(len, gone.values()))
    zones = gone.get("zones", [])
    if not (zones or too_many or total > MOST_DELETED):
        return ()
    parts = [
        f"{len(names)} {label(kind) if len(names) == 1 else _plural(kind)}" for kind, names in gone.items()
    ]
    detail = "; ".join(
        filter(
            None,
            (
                f"among them {'zone' if len(zones) == 1 else 'zones'} {some([f'`{name}`' for name in zones], 'zones')}"
                if zones
                else "",
                f"that is {' and '.join(too_many)}" if too_many else "",
            ),
        )
    )
    text = f"this would delete {_and(parts)}{f' ({detail})' if detail else ''}"
    limit = 0 if zones or too_many else MOST_DELETED
    return (Breach(SafetyRule.DELETION, text, float(total), float(limit), "resources"),)


def _breach(value: int, text: str, unit: str = "services") -> Breach:
    return Breach(SafetyRule.FENCE, text, float(value), 0.0, unit)


def _sentence(one: Opening) -> str:
    """Who may be served where, now that a rule no longer says otherwise."""
    fate = {
        "deleted": " (deleted)",
        "changed": " (changed)",
        "kept": " (the same, but what it is about has changed)",
    }
    return f"rule `{one.rule}`{fate[one.fate]} would no longer keep {_kept(one)}"


def _kept(one: Opening) -> str:
    return f"{_services(one)}, for {_clients(one)}{_stating(one)}, from {_places(one)}{_when(one)}{_why(one)}"


def _why(one: Opening) -> str:
    """How requests would get there, where no rule lets them."""
    parts = (
        ["records, refusal addresses or name servers lead there, whatever the rules say"] if one.led else []
    )
    for region, places in one.shared:
        known = [f"`{name}`" for name in places if name != OUTSIDE]
        shown = [some(known, "regions")] if known else []
        shown += ["something outside of the policy"] if OUTSIDE in places else []
        parts.append(f"endpoints of `{region}` are, or lead to, those of {_and(shown)}")
    return f" ({'; '.join(parts)})" if parts else ""


def _services(one: Opening) -> str:
    named = [f"`{name}`" for name in one.services if name != UNNAMED]
    parts = [f"service{'' if len(named) == 1 else 's'} {some(named, 'services')}"] if named else []
    if one.hosts:
        names = some([f"`{name}`" for name in one.hosts], "names")
        parts[0] += f", asked for by host name{'' if len(one.hosts) == 1 else 's'} {names}"
    if UNNAMED in one.services:
        parts.append("services to come")
    return _and(parts)


def _clients(one: Opening) -> str:
    known = [code for code in one.countries if code is not None]
    unknown = len(known) < len(one.countries)
    if len(known) == len(COUNTRIES):
        text = "any client" if unknown else "any client of known location"
    elif known:
        text = f"clients in {some(known, 'countries')}{' and of unknown location' if unknown else ''}"
    elif unknown:
        text = "clients of unknown location"
    else:
        return "client subnets that are too wide to look at"
    return (
        text if one.certain else f"{text} who are located roughly or in doubt, or behind anonymising networks"
    )


def _stating(one: Opening) -> str:
    """What requests have to state to get out, where those do not that state nothing."""
    stated = (("tenant", one.tenants), ("data class", one.classes))
    parts = [
        f"{what} {some([f'`{name}`' for name in names if name is not None], 'more')}"
        for what, names in stated
        if None not in names
    ]
    return f" that state {' and '.join(parts)}" if parts else ""


def _places(one: Opening) -> str:
    parts = [some([f"`{name}`" for name in one.regions], "regions")] if one.regions else []
    if one.stand:
        parts.append(f"regions to come in {_countries(one.stand)}")
    if one.run:
        parts.append(f"regions to come that are run from {_countries(one.run)}")
    parts += one.edges
    parts += ["whatever stands outside of the policy"] if one.outside else []
    return _and(parts)


def _countries(codes: Sequence[str]) -> str:
    return some(codes, "countries")


def _when(one: Opening) -> str:
    since = f" from {utc(one.starts)} on" if one.later else ""
    return since + (f" until {utc(one.ends)}" if one.bounded else "")


def _plural(kind: str) -> str:
    return kind.replace("_", " ")


def _and(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
