"""A source → a policy's documents, as far as they are known."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable
from dataclasses import dataclass, replace
from ipaddress import IPv4Address, IPv6Address
from typing import Any

import dns.exception
import dns.name
import dns.rdata
import dns.rdataclass
import dns.rdatatype
from pydantic import ValidationError

from gtm.core.model.services import RecordSet
from gtm.documents.fields import HOSTNAME_PATTERN
from gtm.documents.imports.parts import (
    MAX_RECORDS,
    MAX_TTL,
    ImportedPool,
    ImportedZone,
    ImportProblem,
    Note,
    Notes,
    Plain,
    Steered,
)
from gtm.documents.records import RecordError, check_sets, record_type
from gtm.documents.resources import RecordSetDocument

MAX_DATA = 100
"""Records of an entry in a policy, and pools of a name that is steered."""
MAX_STEERED = 1_000
MAX_ADDRESSES = 32
_FAMILIES = {"A": "ipv4", "AAAA": "ipv6"}
_IDNA_DIFFERS = frozenset("\u00df\u1e9e\u03c2\u200c\u200d")
"""Characters that make another name by IDNA 2003, as dnspython has it, than by 2008 (RFC 5894 §7.2)."""
_OTHER_NAME = "is another name by IDNA 2003 than by 2008: write it as xn--"
_NAMED = frozenset({"CNAME", "MX", "NS", "PTR", "SRV", "NAPTR", "SVCB", "HTTPS"})
MAX_NAME_SERVERS = 32


@dataclass(frozen=True, slots=True)
class ImportedDraft:
    """What was made of a source. `zone` and `services` are documents; a region is named and has what its pool has."""

    zone: dict[str, Any]
    regions: tuple[tuple[str, ImportedPool], ...]
    services: tuple[tuple[dict[str, Any], Steered], ...]
    notes: tuple[Note, ...]


def draft(zone: str, source: ImportedZone) -> ImportedDraft:
    """Make a policy of a source.

    Args:
        zone: its name, as `zone_name` gives it.
        source: what was read.

    Raises:
        ImportProblem: it holds more than a zone of a policy can.
    """
    if len(source.plains) > MAX_RECORDS:
        raise ImportProblem(f"more than {MAX_RECORDS} sets of records")
    if len(source.steered) > MAX_STEERED:
        raise ImportProblem(f"more than {MAX_STEERED} names that are steered")
    steered, plains = _both_families(zone, source)
    notes = Notes(source.notes)
    regions: dict[str, ImportedPool] = {}
    services: list[tuple[dict[str, Any], Steered]] = []
    for item in steered:
        notes.line = item.line
        made = _service(zone, item, regions, {service["name"] for service, _ in services}, notes)
        if made is not None:
            services.append((made, item))
    hosts = {name for service, _ in services for name in service["hostnames"]}
    records = _records(zone, plains, hosts, notes)
    notes.line = 0
    document: dict[str, Any] = {"name": zone}
    for key, value in source.soa.items():
        if isinstance(value, int) or _is_host(value):
            document[key] = value
        else:
            notes.lost(f"{zone} SOA {key} `{value}`", "not taken over: no host name")
    _name_servers(zone, document, records, notes)
    records = _above_cuts(zone, records, notes)
    _check_soa(zone, source.soa, document, notes)
    document["records"] = [record for record in records if record["data"]]
    return ImportedDraft(document, tuple(regions.items()), tuple(services), tuple(notes))


def _both_families(zone: str, source: ImportedZone) -> tuple[list[Steered], list[Plain]]:
    """The steered names, with addresses of the other family that a name has beside: one pool, the same for everyone.

    A service answers A and AAAA of its name, so that such records can stand nowhere else.
    """
    joint = dict(enumerate(source.steered))
    places = {_at(zone, item.name): number for number, item in reversed(joint.items())}
    plains: list[Plain] = []
    for plain in source.plains:
        family = _FAMILIES.get(plain.rdtype)
        number = places.get(_at(zone, plain.name)) if family is not None else None
        if family is None or number is None:
            plains.append(plain)
            continue
        item = joint[number]
        if not item.pools or any(pool.cnames or getattr(pool, family) for pool in item.pools):
            plains.append(plain)
            continue
        answers: dict[str, Any] = {family: plain.data}
        label = f"{item.pools[0].label}-{plain.rdtype}"
        pool = ImportedPool(label, hints=(f"{plain.rdtype} for everyone",), **answers)
        if item.ttl is not None and plain.ttl is not None and item.ttl != plain.ttl:
            source.notes.line = plain.line
            what = f"{plain.name} {plain.rdtype} (TTL of {plain.ttl} s)"
            source.notes.reworded(what, "the name is steered with another TTL: the shortest holds for all")
        ttls = [ttl for ttl in (item.ttl, plain.ttl) if ttl is not None]
        joint[number] = replace(item, ttl=min(ttls, default=None), pools=(*item.pools, pool), separate=True)
    return list(joint.values()), plains


def _at(zone: str, name: str) -> str:
    """A name relative to the zone; as it stands where it is none of it."""
    try:
        return _relative(zone, name)
    except ValueError:
        return name


def zone_name(text: str) -> str:
    """A zone's name as policies have it: lower-case, no dot at the end.

    Raises:
        ImportProblem: it is none.
    """
    name = text.removesuffix(".").lower()
    if not re.fullmatch(HOSTNAME_PATTERN, name) or len(name) > 253:
        raise ImportProblem(f"`{text}` is not the name of a zone, such as example.com")
    return name


def _is_host(name: str) -> bool:
    return len(name) <= 253 and re.fullmatch(HOSTNAME_PATTERN, name) is not None


def _relative(zone: str, name: str) -> str:
    """A name relative to the zone; `@` for its apex.

    Raises:
        ValueError: it is no name, or not in the zone.
    """
    origin = dns.name.from_text(zone)
    if not _IDNA_DIFFERS.isdisjoint(name):
        raise ValueError(f"`{name[:200]}` {_OTHER_NAME}")
    try:
        full = dns.name.from_text(name, origin).canonicalize()
        if not full.is_subdomain(origin):
            raise ValueError(f"not in the zone `{zone}`")
        return full.relativize(origin).to_text()
    except (dns.exception.DNSException, UnicodeError) as error:
        raise ValueError(f"no name: {error}") from error


def _ttl(where: str, ttl: int | None, notes: Notes) -> int | None:
    if ttl is None or 1 <= ttl <= MAX_TTL:
        return ttl
    kept = min(max(ttl, 1), MAX_TTL)
    notes.reworded(
        f"{where} (TTL of {ttl} s)", f"its TTL became the nearest that a policy has (1 to {MAX_TTL} s)"
    )
    return kept


def _records(zone: str, plains: Iterable[Plain], hosts: set[str], notes: Notes) -> list[dict[str, Any]]:
    found: dict[tuple[str, str], tuple[int | None, dict[str, None]]] = {}
    for plain in plains:
        notes.line = plain.line
        where = f"{plain.name} {plain.rdtype}"
        try:
            name, rdtype = _relative(zone, plain.name), record_type(plain.rdtype)
            data = _canonical(rdtype, plain.data)
            check_sets([RecordSet(name, rdtype, data)], zone)
            RecordSetDocument.model_validate({"name": name, "type": rdtype, "data": data[:MAX_DATA]})
        except ValidationError as error:
            (field, *_), why = error.errors()[0]["loc"], error.errors()[0]["msg"]
            if field == "name":
                why = "names of records have letters, digits, `-`, `_` and `/` alone"
            notes.lost(where, f"not taken over: {why}")
            continue
        except ValueError as error:  # a RecordError is one
            notes.lost(where, f"not taken over: {error}")
            continue
        full = zone if name == "@" else f"{name}.{zone}"
        if full in hosts and rdtype in ("A", "AAAA", "CNAME"):
            notes.lost(where, "not taken over: the name is a service's, which answers this type itself")
            continue
        ttl = _ttl(where, plain.ttl, notes)
        known, together = found.setdefault((name, rdtype), (ttl, {}))
        if known != ttl:
            notes.reworded(
                f"{where} (TTL of {ttl} s)",
                "the name has the type before with another TTL, which holds for all (RFC 2181 §5.2)",
            )
        together |= dict.fromkeys(data)
    return [
        {
            "name": name,
            "type": rdtype,
            "data": list(data)[start : start + MAX_DATA],
            **({} if ttl is None else {"ttl": ttl}),
        }
        for (name, rdtype), (ttl, data) in found.items()
        for start in range(0, len(data), MAX_DATA)
    ]


def _canonical(rdtype: str, data: Iterable[str]) -> tuple[str, ...]:
    """Data in ASCII, with absolute names, each once."""
    found = dict.fromkeys(_one_canonical(rdtype, text) for text in data)
    if not found:
        raise RecordError("it has no data")
    return tuple(found)


def _one_canonical(rdtype: str, text: str) -> str:
    if rdtype in _NAMED and not _IDNA_DIFFERS.isdisjoint(text):
        raise RecordError(f"`{text[:200]}` {_OTHER_NAME}")
    try:
        rdata = dns.rdata.from_text(dns.rdataclass.IN, rdtype, text, origin=dns.name.root, relativize=False)
    except (dns.exception.DNSException, ValueError, UnicodeError) as error:
        raise RecordError(f"`{text[:200]}` is no data of {rdtype} records: {error}") from error
    if rdata.rdcomment is not None:
        raise RecordError(f"`{text[:200]}` would end at the semicolon, where comments begin")
    return rdata.to_text()


def _above_cuts(zone: str, records: list[dict[str, Any]], notes: Notes) -> list[dict[str, Any]]:
    """The records without those that other zones hide, which are delegated: only addresses of their servers stand below (RFC 1034 §4.2.1)."""
    cuts: dict[str, set[str]] = {}
    for record in records:
        if record["type"] == "NS" and not record["name"].startswith("*"):
            cuts.setdefault(record["name"], set()).update(text.lower() for text in record["data"])
    kept = []
    for record in records:
        name = record["name"]
        labels = name.split(".")
        cut = next(
            (above for start in range(len(labels)) if (above := ".".join(labels[start:])) in cuts), None
        )
        glue = cut is not None and record["type"] in ("A", "AAAA") and f"{name}.{zone}." in cuts[cut]
        if cut is None or glue or (name == cut and record["type"] in ("NS", "DS")):
            kept.append(record)
        else:
            why = "not taken over: the name is delegated by NS records, and other servers answer for it"
            notes.lost(f"{name}.{zone} {record['type']}", why)
    return kept


def _name_servers(zone: str, document: dict[str, Any], records: list[dict[str, Any]], notes: Notes) -> None:
    """Move the NS records of the apex, and the addresses of those inside the zone, to where a policy has them."""
    servers = []
    for record in [item for item in records if item["name"] == "@" and item["type"] == "NS"]:
        records.remove(record)
        document["ttl"] = record.get("ttl", document.get("ttl", 3600))
        names = [text.removesuffix(".").lower() for text in record["data"]]
        servers += [name for name in names if _is_host(name)]
        for name in names:
            if not _is_host(name):
                notes.lost(f"{zone} NS `{name}`", "not taken over: no host name")
    if not servers:
        return
    entries = []
    for number, name in enumerate(dict.fromkeys(servers)):
        if number >= MAX_NAME_SERVERS:
            notes.lost(
                f"{zone} NS `{name}`", f"not taken over: a zone has {MAX_NAME_SERVERS} name servers at most"
            )
            continue
        entry: dict[str, Any] = {"name": name}
        for kind, family in (("A", "ipv4"), ("AAAA", "ipv6")):
            for record in [item for item in records if item["type"] == kind]:
                inside = name.endswith(f".{zone}") and record["name"] == name.removesuffix(f".{zone}")
                if inside and len(record["data"]) <= 16:
                    entry[family] = record["data"]
                    records.remove(record)
                    if record.get("ttl", document["ttl"]) != document["ttl"]:
                        why = "addresses of name servers have the TTL of the zone's NS records"
                        notes.reworded(f"{name} {kind} (TTL of {record['ttl']} s)", why)
        entries.append(entry)
    document["name_servers"] = entries
    document.setdefault("primary_ns", entries[0]["name"])
    notes.reworded(
        f"{zone} NS ({', '.join(entry['name'] for entry in entries[:4])})",
        "the name servers of now are in the policy; put your edges there before you delegate the zone to them",
    )


def _check_soa(zone: str, soa: dict[str, Any], document: dict[str, Any], notes: Notes) -> None:
    """Say what becomes of an SOA's own TTL, which a policy has in common with the NS records."""
    ttl = soa.get("ttl", document.get("ttl"))
    if ttl is not None and ttl != document["ttl"]:
        notes.reworded(f"{zone} SOA (TTL of {ttl} s)", "the SOA has the TTL of the NS records")
    if "minimum" in soa and document.get("ttl", 3600) < soa["minimum"]:
        why = "resolvers keep negative answers no longer than the NS records' TTL, which is the SOA's in a policy"
        notes.reworded(f"{zone} SOA (negative answers {soa['minimum']} s)", why)


def _service(
    zone: str, item: Steered, regions: dict[str, ImportedPool], taken: set[str], notes: Notes
) -> dict[str, Any] | None:
    try:
        relative = _relative(zone, item.name)
    except ValueError as error:
        notes.lost(item.name, f"not taken over: {error}")
        return None
    host = zone if relative == "@" else f"{relative}.{zone}"
    if not re.fullmatch(HOSTNAME_PATTERN, host.removeprefix("*.")) or not item.pools:
        notes.lost(host, "not taken over: it is no host name that a service can have, or has no answers")
        return None
    name = _free(_slug(relative if relative != "@" else zone), taken)
    members: dict[str, float] = {}
    for pool in item.pools[:MAX_DATA]:
        region = _region(name, _checked(host, pool, notes), regions)
        members[region] = members.get(region, 0.0) + pool.weight
    for pool in item.pools[MAX_DATA:]:
        notes.lost(f"{host}, `{pool.label}`", f"not taken over: a name has {MAX_DATA} pools at most")
    service: dict[str, Any] = {"name": name, "hostnames": [host], "zone": zone, "steering": item.steering}
    if item.separate:
        service["families"] = "separate"
    ttl = _ttl(host, item.ttl, notes)
    if ttl is not None:
        service["ttl"] = ttl
    weighted = item.steering == "weighted"
    service["members"] = [
        {"region": region, "weight": weight} if weighted else {"region": region}
        for region, weight in members.items()
    ]
    return service


def _checked(host: str, pool: ImportedPool, notes: Notes) -> ImportedPool:
    """The pool with the addresses that are some, at most as many as an endpoint can have."""
    where = f"{host}, `{pool.label}`"
    names = []
    for text in pool.cnames:
        name = text.removesuffix(".").lower()
        if _is_host(name):
            names.append(name)
        else:
            notes.lost(f"{where}: `{text}`", "not taken over: no host name")
    ipv4 = _addresses(where, pool.ipv4, IPv4Address, notes)
    ipv6 = _addresses(where, pool.ipv6, IPv6Address, notes)
    kept = 0 if ipv4 or ipv6 else 1
    for name in names[kept:]:
        why = (
            "only one alias can be answered"
            if kept
            else "a region that has addresses is not answered by an alias"
        )
        notes.lost(f"{where}: `{name}`", f"not taken over: {why}")
    return replace(pool, ipv4=ipv4, ipv6=ipv6, cnames=tuple(names[:kept]))


def _addresses(
    where: str, texts: Iterable[str], kind: type[IPv4Address | IPv6Address], notes: Notes
) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for text in texts:
        try:
            address = kind(text)
        except ValueError:
            notes.lost(f"{where}: `{text}`", "not taken over: no address")
            continue
        if "%" in text or len(found) >= MAX_ADDRESSES:
            notes.lost(
                f"{where}: `{text}`", f"not taken over: an endpoint has {MAX_ADDRESSES} addresses at most"
            )
            continue
        found[str(address)] = None
    return tuple(found)


def _region(service: str, pool: ImportedPool, regions: dict[str, ImportedPool]) -> str:
    """The region of a pool: one that is there with the same label and answers, or a new one."""
    wanted = ""
    for wanted in (_slug(pool.label), _slug(f"{pool.label}-{service}")):
        known = regions.setdefault(wanted, pool)
        if _facts(known) == _facts(pool) and (known.probe in (None, pool.probe) or pool.probe is None):
            hints = tuple(dict.fromkeys(known.hints + pool.hints))[:20]
            regions[wanted] = replace(known, probe=known.probe or pool.probe, hints=hints)
            return wanted
    name = _free(wanted, regions)
    regions[name] = pool
    return name


def _facts(pool: ImportedPool) -> tuple[object, ...]:
    """What two pools must have in common to be one region."""
    return pool.ipv4, pool.ipv6, pool.cnames, pool.lat, pool.lon


def _slug(text: str) -> str:
    """A name as policies have it, from any text."""
    slug = re.sub(r"[^a-z0-9]+", "-", text.lower().replace("*", "any")).strip("-")[:63].strip("-")
    return slug or "unnamed"


def _free(name: str, taken: Container[str]) -> str:
    number, free = 2, name
    while free in taken:
        free = f"{name[:56].rstrip('-')}-{number}"
        number += 1
    return free
