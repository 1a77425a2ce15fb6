"""The answers of zones, against a model of them that follows RFC 1034 §4.3.2 label by label."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import dns.name
import dns.rdatatype
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from gtm.core.model.policy import Policy
from gtm.core.model.services import NameServer, RecordSet, Zone
from gtm.core.policy.compile import compile_policy
from gtm.dns.protocol import wire
from gtm.dns.zone.content import Content
from gtm.dns.zone.static import MAX_ALIASES, static_content
from gtm.dns.zone.zones import build_names, wire_name
from tests.core.strategies import quick

LABELS = st.sampled_from(["a", "b", "*"])
NAMES = st.lists(LABELS, min_size=1, max_size=3).map(".".join)
DATA = {"A": "192.0.2.1", "TXT": "x", "NS": "ns.example.net.", "DS": "1 13 2 " + "ab" * 32}
ZONE = "x.test"


@dataclass(frozen=True)
class Said:
    """What an answer says: its code, the names and types of its records, and of its authority section."""

    rcode: int
    answer: tuple[tuple[str, str], ...]
    authority: tuple[tuple[str, str], ...] = ()


@st.composite
def zones(draw: st.DrawFn) -> dict[str, dict[str, str]]:
    """A zone that compiles: name → type → data."""
    found: dict[str, dict[str, str]] = {}
    for name in draw(st.lists(NAMES, max_size=6, unique=True)):
        kind = draw(st.sampled_from(["data", "data", "alias", "cut"]))
        if kind == "alias":
            target = draw(NAMES | st.sampled_from(["away.example.net.", "@"]))
            found[name] = {"CNAME": target}
        elif kind == "cut" and not name.startswith("*"):
            found[name] = {"NS": DATA["NS"]} | ({"DS": DATA["DS"]} if draw(st.booleans()) else {})
        else:
            found[name] = {
                rdtype: DATA[rdtype] for rdtype in draw(st.sampled_from(["A", "TXT", "A TXT"])).split()
            }
    cuts = [name for name, sets in found.items() if "NS" in sets]
    return {name: sets for name, sets in found.items() if not any(name.endswith(f".{cut}") for cut in cuts)}


def model(zone: dict[str, dict[str, str]], name: str, rdtype: str, followed: int = 0) -> Said:
    """The answer to a question about a name relative to the zone (`""`: its apex)."""
    existing = {""} | {
        ".".join(labels[at:])
        for labels in (written.split(".") for written in zone)
        for at in range(len(labels))
    }
    sets = zone | {"": {"SOA": "", "NS": ""}}
    at = ""
    for label in reversed(name.split(".") if name else []):
        below = f"{label}.{at}" if at else label
        if below not in existing:
            break
        at = below
        if "NS" in sets.get(at, {}) and not (at == name and rdtype == "DS"):
            return Said(0, (), tuple((at, kind) for kind in ("NS", "DS") if kind in sets[at]))
    source = at if at == name else f"*.{at}" if at else "*"
    if at != name and source not in existing:
        return Said(wire.NXDOMAIN, (), (("", "SOA"),))
    here = sets.get(source, {})
    if rdtype in here:
        return Said(0, ((name, rdtype),))
    if "CNAME" not in here:
        return Said(0, (), (("", "SOA"),))
    return Said(0, ()) if followed == MAX_ALIASES else _alias(zone, name, rdtype, here["CNAME"], followed)


def _alias(zone: dict[str, dict[str, str]], name: str, rdtype: str, target: str, followed: int) -> Said:
    own = ((name, "CNAME"),)
    if target.endswith("."):
        return Said(0, own)
    rest = model(zone, "" if target == "@" else target, rdtype, followed + 1)
    referral = bool(rest.authority) and rest.authority[0][1] == "NS"  # the alias stands alone then
    return Said(rest.rcode, own + rest.answer, () if referral else rest.authority)


def _relative(name: bytes | None, asked: str) -> str:
    if name is None:
        return asked
    text = dns.name.from_wire(name, 0)[0].to_text(omit_final_dot=True)
    return "" if text == ZONE else text.removesuffix(f".{ZONE}")


def _said(content: Content, asked: str) -> Said:
    return Said(
        content.rcode,
        tuple((_relative(each.owner, asked), dns.rdatatype.to_text(each.rdtype)) for each in content.records),
        tuple(
            (_relative(each.owner, asked), dns.rdatatype.to_text(each.rdtype)) for each in content.authority
        ),
    )


@pytest.mark.rfc("1034", "4.3.2", "the algorithm, held to a model of it on random zones")
@pytest.mark.rfc("4592", "3.3", "wildcards in that algorithm, likewise")
@given(zones(), NAMES)
@quick(300)
def test_zones_answer_as_the_model(zone: dict[str, dict[str, str]], name: str) -> None:
    """Records, wildcards, aliases, delegations and denials: each answer is the model's, but for loops, which fail."""
    records = tuple(
        RecordSet(owner, kind, (data,)) for owner, sets in zone.items() for kind, data in sets.items()
    )
    servers = (NameServer("ns.example.net"),)
    policy = Policy(zones=(Zone(ZONE, "ns.example.net", "h.example.net", servers, records=records),))
    names = build_names(compile_policy(policy, ()))
    around = {name, "", *zone, *(f"a.{each}" for each in zone), *(each.replace("*", "b") for each in zone)}
    for asked, rdtype in product(sorted(around), ("A", "TXT", "CNAME", "DS", "NS", "MX")):
        owner = wire_name(f"{asked}.{ZONE}" if asked else ZONE)
        found = static_content(names, owner, dns.rdatatype.from_text(rdtype))
        assert isinstance(found, Content)
        expected = model(zone, asked, rdtype)
        event(f"{found.rcode} {len(expected.answer)} records, {[kind for _, kind in expected.authority]}")
        if found.rcode == wire.SERVFAIL:
            owners = [name for name, _ in expected.answer]
            assert len(set(owners)) < len(owners)
        else:
            assert _said(found, asked) == expected
