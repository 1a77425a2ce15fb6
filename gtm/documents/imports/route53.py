"""Route 53: what `aws route53 list-resource-record-sets` prints (API reference, ResourceRecordSet)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from gtm.documents.imports.parts import (
    MAX_RECORDS,
    ImportProblem,
    Plain,
    Pool,
    Source,
    Steered,
    bounded,
    paired,
)
from gtm.nesting import NestingError, shallow

_STEERABLE = ("A", "AAAA", "CNAME")
_OTHERS = {
    "GeoProximityLocation": "geoproximity became `steering: latency`",
    "CidrRoutingConfig": "steering by the client's network is not taken over: see docs/geoip.md, overrides",
}
_MAX_WEIGHT = 1_000_000


def read(text: str) -> Source:
    """Read the sets of records of a hosted zone.

    Raises:
        ImportProblem: it is no JSON with a list `ResourceRecordSets`, or has too many.
    """
    try:
        document = msgspec.json.decode(shallow(bounded(text).encode("utf-8", "replace")))
    except NestingError as error:
        raise ImportProblem(str(error)) from error
    except ValueError as error:
        raise ImportProblem(f"not JSON: {error}") from error
    sets = document.get("ResourceRecordSets") if isinstance(document, dict) else None
    if not isinstance(sets, list):
        raise ImportProblem(
            "no list `ResourceRecordSets`: give what `aws route53 list-resource-record-sets` prints"
        )
    if len(sets) > MAX_RECORDS:
        raise ImportProblem(f"more than {MAX_RECORDS} sets of records")
    source = Source()
    steered: dict[str, list[Mapping[str, Any]]] = {}
    aliases: dict[str, list[Mapping[str, Any]]] = {}
    names: dict[str, list[str]] = {}
    for number, item in enumerate(sets):
        if not isinstance(item, dict) or not all(isinstance(item.get(key), str) for key in ("Name", "Type")):
            source.notes.append(f"ResourceRecordSets[{number}]: not taken over: it has no Name and Type")
            continue
        name = _name(item["Name"])
        names.setdefault(name, []).append(item["Type"])
        _sort(name, item, source, steered, aliases)
    for name, items in aliases.items():
        _alias(name, items, source, alone=len(names[name]) == len(items))
    source.steered += [_steered(name, items, source.notes) for name, items in steered.items()]
    return source


def _name(text: str) -> str:
    r"""A name without Route 53's octal escapes (`\052` is `*`)."""
    plain = re.sub(r"\\([0-3][0-7]{2})", lambda found: chr(int(found[1], 8)), text)
    return plain if plain.endswith(".") else f"{plain}."


def _sort(
    name: str,
    item: Mapping[str, Any],
    source: Source,
    steered: dict[str, list[Mapping[str, Any]]],
    aliases: dict[str, list[Mapping[str, Any]]],
) -> None:
    rdtype = item["Type"]
    where = f"{name} {rdtype}"
    if item.get("SetIdentifier") is not None:
        if rdtype in _STEERABLE:
            steered.setdefault(name, []).append(item)
        else:
            source.notes.append(
                f"{where} `{item['SetIdentifier']}`: not taken over: only addresses and aliases are steered"
            )
        return
    if item.get("AliasTarget") is not None:
        aliases.setdefault(name, []).append(item)
        return
    if rdtype == "SOA":
        _soa(item, source)
        return
    if item.get("HealthCheckId"):
        source.notes.append(f"{where}: its health check is not taken over: it is not in the file")
    source.plains.append(Plain(name, rdtype, _ttl(item), tuple(_values(item))))


def _soa(item: Mapping[str, Any], source: Source) -> None:
    parts = next(iter(_values(item)), "").split()
    if len(parts) != 7 or not all(part.isascii() and part.isdigit() and len(part) < 11 for part in parts[2:]):
        source.notes.append("SOA: not taken over: it cannot be read")
        return
    source.soa = soa(parts[0], parts[1], [int(part) for part in parts[3:]])


def soa(primary: str, mailbox: str, numbers: Sequence[int]) -> dict[str, Any]:
    """The fields of a zone that an SOA says, within what a policy allows.

    Args:
        primary: its MNAME.
        mailbox: its RNAME.
        numbers: REFRESH, RETRY, EXPIRE and MINIMUM, in seconds.
    """
    *times, minimum = numbers
    return {
        "primary_ns": primary.removesuffix(".").lower(),
        "hostmaster": mailbox.removesuffix(".").lower(),
        **{
            key: min(max(value, 1), 2**31 - 1)
            for key, value in zip(("refresh", "retry", "expire"), times, strict=True)
        },
        "minimum": min(max(minimum, 1), 86_400),
    }


def _ttl(item: Mapping[str, Any]) -> int | None:
    ttl = item.get("TTL")
    return ttl if isinstance(ttl, int) and not isinstance(ttl, bool) else None


def _values(item: Mapping[str, Any]) -> Iterator[str]:
    records = item.get("ResourceRecords")
    for record in records if isinstance(records, list) else ():
        if isinstance(record, dict) and isinstance(record.get("Value"), str):
            # As in names, Route 53 writes octets in octal; zone files have them in decimal (RFC 1035 §5.1).
            yield re.sub(r"\\([0-3][0-7]{2})", lambda found: f"\\{int(found[1], 8):03d}", record["Value"])


def _target(item: Mapping[str, Any]) -> str | None:
    alias = item.get("AliasTarget")
    target = alias.get("DNSName") if isinstance(alias, dict) else None
    return target if isinstance(target, str) else None


def _alias(name: str, items: list[Mapping[str, Any]], source: Source, *, alone: bool) -> None:
    """An alias of all addresses of a name that has nothing else is a CNAME; no other alias can be told in DNS."""
    targets = {(_target(item) or "").lower() for item in items}
    kinds = ", ".join(sorted({str(item["Type"]) for item in items}))
    if len(targets) == 1 and "" not in targets and alone and set(kinds.split(", ")) <= {"A", "AAAA"}:
        (target,) = targets
        source.plains.append(Plain(name, "CNAME", None, (target if target.endswith(".") else f"{target}.",)))
        source.notes.append(
            f"{name} {kinds}: the alias for {target} became a CNAME, for every type; not at a zone's apex"
        )
        return
    source.notes.append(
        f"{name} {kinds}: not taken over: an alias for {', '.join(sorted(targets)) or 'nothing'} beside other records. "
        "Make the name a service's, whose regions have addresses"
    )


def _steered(name: str, items: list[Mapping[str, Any]], notes: list[str]) -> Steered:
    steering = _steering(items)
    kinds = sorted({item["Type"] for item in items})
    if steering == "failover":
        items = sorted(items, key=lambda item: item.get("Failover") != "PRIMARY")
    pools, separate = paired([_pool(name, item, notes) for item in items], ordered=steering == "failover")
    by_type = {kind: _steering([item for item in items if item["Type"] == kind]) for kind in kinds}
    if len(set(by_type.values())) > 1:
        said = ", ".join(f"{kind} by {how}" for kind, how in by_type.items())
        notes.append(f"{name}: its types are steered differently ({said}): all became `steering: {steering}`")
    if steering == "geo":
        notes.append(
            f"{name}: which clients get which set became `steering: geo`: the nearest region. Where law or contract says "
            "it, write residency_rules"
        )
    ttls = [ttl for ttl in map(_ttl, items) if ttl is not None]
    return Steered(name, min(ttls, default=None), steering, pools, separate=separate)


def _steering(items: list[Mapping[str, Any]]) -> str:
    """The policy's word for a name's routing policy: all of its sets have the same (API reference)."""
    for key, steering in (("Failover", "failover"), ("GeoLocation", "geo"), ("Weight", "weighted")):
        if any(item.get(key) is not None for item in items):
            return steering
    multi = any(item.get("MultiValueAnswer") for item in items)
    return "weighted" if multi else "latency"


def _pool(name: str, item: Mapping[str, Any], notes: list[str]) -> Pool:
    rdtype, label = item["Type"], str(item["SetIdentifier"])
    where = f"{name} {rdtype} `{label}`"
    hints = []
    if isinstance(item.get("Region"), str):
        hints.append(f"Route 53 measured latency to {item['Region']}")
    if isinstance(item.get("GeoLocation"), dict):
        place = ", ".join(f"{key} {value}" for key, value in sorted(item["GeoLocation"].items()))
        hints.append(f"Route 53 answered clients of {place} so")
    if item.get("Failover") is not None:
        hints.append(f"Route 53's {item['Failover']}")
    notes += [f"{where}: {why}" for key, why in _OTHERS.items() if item.get(key) is not None]
    if item.get("MultiValueAnswer"):
        notes.append(
            f"{where}: of several values each became a region; one answer then has one region's addresses"
        )
    if item.get("HealthCheckId"):
        notes.append(
            f"{where}: its health check is not taken over: it is not in the file. Give the region a `probe`"
        )
    values, target = tuple(_values(item)), _target(item)
    weight = item.get("Weight")
    known = isinstance(weight, int) and not isinstance(weight, bool) and 0 <= weight <= _MAX_WEIGHT
    answers = {"A": "ipv4", "AAAA": "ipv6"}.get(rdtype, "cnames")
    found = {"cnames": (target,)} if target is not None else {answers: values}
    return Pool(
        label, weight=float(weight) if known and weight is not None else 1.0, hints=tuple(hints), **found
    )
