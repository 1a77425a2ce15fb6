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
from gtm.documents.imports.parts import MAX_RECORDS, ImportProblem, Plain, Pool, Source, Steered
from gtm.documents.records import RecordError, check_sets, record_type
from gtm.documents.resources import RecordSetDocument

MAX_DATA = 100
"""Records of an entry in a policy, and pools of a name that is steered."""
MAX_STEERED = 1_000
MAX_ADDRESSES = 32
_MAX_TTL = 86_400
_FAMILIES = {"A": "ipv4", "AAAA": "ipv6"}


@dataclass(frozen=True, slots=True)
class Draft:
    """What was made of a source. `zone` and `services` are documents; a region is named and has what its pool has."""

    zone: dict[str, Any]
    regions: tuple[tuple[str, Pool], ...]
    services: tuple[tuple[dict[str, Any], Steered], ...]
    notes: tuple[str, ...]


def draft(zone: str, source: Source) -> Draft:
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
    notes = list(source.notes)
    regions: dict[str, Pool] = {}
    services: list[tuple[dict[str, Any], Steered]] = []
    steered, plains = _both_families(zone, source)
    for item in steered:
        made = _service(zone, item, regions, {service["name"] for service, _ in services}, notes)
        if made is not None:
            services.append((made, item))
    hosts = {name for service, _ in services for name in service["hostnames"]}
    records = list(_records(zone, plains, hosts, notes))
    document: dict[str, Any] = {"name": zone}
    for key, value in source.soa.items():
        if isinstance(value, int) or _is_host(value):
            document[key] = value
        else:
            notes.append(f"{zone} SOA: `{value}` is not taken over: no host name")
    _name_servers(zone, document, records, notes)
    document["records"] = [record for record in records if record["data"]]
    return Draft(document, tuple(regions.items()), tuple(services), tuple(notes))


def _both_families(zone: str, source: Source) -> tuple[list[Steered], list[Plain]]:
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
        pool = Pool(label, hints=(f"{plain.rdtype} for everyone",), **answers)
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
    try:
        full = dns.name.from_text(name, origin).canonicalize()
        if not full.is_subdomain(origin):
            raise ValueError(f"not in the zone `{zone}`")
        return full.relativize(origin).to_text()
    except (dns.exception.DNSException, UnicodeError) as error:
        raise ValueError(f"no name: {error}") from error


def _ttl(where: str, ttl: int | None, notes: list[str]) -> int | None:
    if ttl is None or 1 <= ttl <= _MAX_TTL:
        return ttl
    kept = min(max(ttl, 1), _MAX_TTL)
    notes.append(f"{where}: its TTL of {ttl} s became {kept} s (TTLs are 1 to {_MAX_TTL} s)")
    return kept


def _records(
    zone: str, plains: Iterable[Plain], hosts: set[str], notes: list[str]
) -> Iterable[dict[str, Any]]:
    ttls: dict[tuple[str, str], int | None] = {}
    for plain in plains:
        where = f"{plain.name} {plain.rdtype}"
        try:
            name, rdtype = _relative(zone, plain.name), record_type(plain.rdtype)
            data = _canonical(rdtype, plain.data)
            check_sets([RecordSet(name, rdtype, data)], zone)
        except ValueError as error:  # a RecordError is one
            notes.append(f"{where}: not taken over: {error}")
            continue
        full = zone if name == "@" else f"{name}.{zone}"
        if full in hosts and rdtype in ("A", "AAAA", "CNAME"):
            notes.append(f"{where}: not taken over: the name is a service's, which answers {rdtype} itself")
            continue
        ttl = ttls.setdefault((name, rdtype), _ttl(where, plain.ttl, notes))
        for start in range(0, len(data), MAX_DATA):
            record: dict[str, Any] = {"name": name, "type": rdtype, "data": data[start : start + MAX_DATA]}
            if ttl is not None:
                record["ttl"] = ttl
            try:
                RecordSetDocument.model_validate(record)
            except ValidationError as error:
                notes.append(f"{where}: not taken over: {error.errors()[0]['msg']}")
                continue
            yield {**record, "data": list(record["data"])}


def _canonical(rdtype: str, data: Iterable[str]) -> tuple[str, ...]:
    """Data in ASCII, with absolute names, each once."""
    found: dict[str, None] = {}
    for text in data:
        try:
            rdata = dns.rdata.from_text(
                dns.rdataclass.IN, rdtype, text, origin=dns.name.root, relativize=False
            )
            found[rdata.to_text()] = None
        except (dns.exception.DNSException, ValueError, UnicodeError) as error:
            raise RecordError(f"`{text[:200]}` is no data of {rdtype} records: {error}") from error
    if not found:
        raise RecordError("it has no data")
    return tuple(found)


def _name_servers(
    zone: str, document: dict[str, Any], records: list[dict[str, Any]], notes: list[str]
) -> None:
    """Move the NS records of the apex, and the addresses of those inside the zone, to where a policy has them."""
    servers = []
    for record in [item for item in records if item["name"] == "@" and item["type"] == "NS"]:
        records.remove(record)
        document["ttl"] = record.get("ttl", 3600)
        names = [text.removesuffix(".").lower() for text in record["data"]]
        servers += [name for name in names if _is_host(name)]
        notes += [
            f"{zone} NS: `{name}` is not taken over: no host name" for name in names if not _is_host(name)
        ]
    if not servers:
        return
    entries = []
    for name in dict.fromkeys(servers):
        entry: dict[str, Any] = {"name": name}
        for kind, family in (("A", "ipv4"), ("AAAA", "ipv6")):
            for record in [item for item in records if item["type"] == kind]:
                inside = name.endswith(f".{zone}") and record["name"] == name.removesuffix(f".{zone}")
                if inside and len(record["data"]) <= 16:
                    entry[family] = record["data"]
                    records.remove(record)
        entries.append(entry)
    document["name_servers"] = entries[:32]
    document.setdefault("primary_ns", entries[0]["name"])
    notes.append(
        f"{zone} NS: the name servers of now ({', '.join(entry['name'] for entry in entries[:4])}) are in the policy; "
        "put your edges there before you delegate the zone to them"
    )


def _service(
    zone: str, item: Steered, regions: dict[str, Pool], taken: set[str], notes: list[str]
) -> dict[str, Any] | None:
    try:
        relative = _relative(zone, item.name)
    except ValueError as error:
        notes.append(f"{item.name}: not taken over: {error}")
        return None
    host = zone if relative == "@" else f"{relative}.{zone}"
    if not re.fullmatch(HOSTNAME_PATTERN, host.removeprefix("*.")) or not item.pools:
        notes.append(f"{host}: not taken over: it is no host name that a service can have, or has no answers")
        return None
    name = _free(_slug(relative if relative != "@" else zone), taken)
    members: dict[str, float] = {}
    for pool in item.pools[:MAX_DATA]:
        members.setdefault(_region(name, _checked(host, pool, notes), regions), pool.weight)
    notes += [
        f"{host}: pool `{pool.label}` and what follows is not taken over" for pool in item.pools[100:101]
    ]
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


def _checked(host: str, pool: Pool, notes: list[str]) -> Pool:
    """The pool with the addresses that are some, at most as many as an endpoint can have."""
    where = f"{host}, `{pool.label}`"
    names = []
    for text in pool.cnames:
        name = text.removesuffix(".").lower()
        if _is_host(name):
            names.append(name)
        else:
            notes.append(f"{where}: `{text}` is not taken over: no host name")
    ipv4 = _addresses(where, pool.ipv4, IPv4Address, notes)
    ipv6 = _addresses(where, pool.ipv6, IPv6Address, notes)
    notes += [f"{where}: `{name}` is not taken over: only one alias can be answered" for name in names[1:]]
    return replace(pool, ipv4=ipv4, ipv6=ipv6, cnames=tuple(names[:1]))


def _addresses(
    where: str, texts: Iterable[str], kind: type[IPv4Address | IPv6Address], notes: list[str]
) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for text in texts:
        try:
            address = kind(text)
        except ValueError:
            notes.append(f"{where}: `{text}` is not taken over: no address")
            continue
        if "%" in text or len(found) >= MAX_ADDRESSES:
            notes.append(
                f"{where}: `{text}` is not taken over: an endpoint has {MAX_ADDRESSES} addresses at most"
            )
            continue
        found[str(address)] = None
    return tuple(found)


def _region(service: str, pool: Pool, regions: dict[str, Pool]) -> str:
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


def _facts(pool: Pool) -> tuple[object, ...]:
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
