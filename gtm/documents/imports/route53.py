"""Route 53: what `aws route53 list-resource-record-sets` prints (API reference, ResourceRecordSet)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import dns.exception
import dns.name

from gtm.documents.imports.parts import (
    MAX_RECORDS,
    ImportedPool,
    ImportedZone,
    ImportProblem,
    Notes,
    Plain,
    Steered,
    bounded,
    paired,
)
from gtm.nesting import NestingError, TwiceError, loads

_STEERABLE = ("A", "AAAA", "CNAME")
_STEERING = {
    "Failover": "failover",
    "GeoLocation": "geo",
    "Weight": "weighted",
    "MultiValueAnswer": "weighted",
    "Region": "latency",
    "GeoProximityLocation": "latency",
    "CidrRoutingConfig": "latency",
}
"""Member of a set that says its routing policy → the policy's word. All sets of a name and type have the same (API reference)."""
_OTHERS = {
    "GeoProximityLocation": "not taken over: geoproximity and its bias became `steering: latency`",
    "CidrRoutingConfig": "not taken over: steering by the client's network; see docs/geoip.md, overrides",
}
_SET = {"Name", "Type", "TTL", "SetIdentifier", "HealthCheckId", "AliasTarget", "ResourceRecords", *_STEERING}
_ALIAS = {"HostedZoneId", "DNSName", "EvaluateTargetHealth"}
_DOCUMENT = {
    "ResourceRecordSets",
    "IsTruncated",
    "MaxItems",
    "NextToken",
    "NextRecordName",
    "NextRecordType",
    "NextRecordIdentifier",
}
_MAX_WEIGHT = 1_000_000
_TOKEN = re.compile(r'"(?:[^"\\]++|\\.)*+"|[{}\[\],]|[^\s"{}\[\],]++')


def read(text: str) -> ImportedZone:
    """Read the sets of records of a hosted zone.

    Raises:
        ImportProblem: it is no JSON with a list `ResourceRecordSets`, or has too many.
    """
    try:
        document = loads(bounded(text))
    except (NestingError, TwiceError) as error:
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
    source = ImportedZone()
    steered: dict[str, list[_Set]] = {}
    aliases: dict[str, list[_Set]] = {}
    names: dict[str, list[str]] = {}
    _whole(document, source.notes)
    for number, (item, line) in enumerate(zip(sets, _lines(text), strict=False)):
        source.notes.line = line
        if not isinstance(item, dict) or not all(isinstance(item.get(key), str) for key in ("Name", "Type")):
            source.notes.lost(f"ResourceRecordSets[{number}]", "not taken over: it has no Name and Type")
            continue
        name = _name(item["Name"])
        names.setdefault(name, []).append(item["Type"])
        _sort(name, _Set(line, item), source, steered, aliases)
    for name, items in aliases.items():
        source.notes.line = items[0].line
        _alias(name, items, source, alone=len(names[name]) == len(items))
    source.steered += [_steered(name, items, source.notes) for name, items in steered.items()]
    return source


class _Set(NamedTuple):
    line: int
    item: Mapping[str, Any]


def _whole(document: Mapping[str, Any], notes: Notes) -> None:
    """Say so where a file is one page of several (API reference, ListResourceRecordSets; AWS CLI, `--max-items`)."""
    if document.get("IsTruncated") not in (None, False) or any(
        document.get(key) is not None for key in _DOCUMENT if "Next" in key
    ):
        after = " ".join(
            str(document[key])
            for key in ("NextRecordName", "NextRecordType", "NextRecordIdentifier")
            if document.get(key)
        )
        notes.lost(
            f"the zone goes on at {after}" if after else "the zone goes on",
            "the file is truncated: more records of the zone are missing. Export all pages: without --no-paginate and --max-items",
        )
    notes.unknown("the file", document, _DOCUMENT)


def _lines(text: str) -> Iterator[int]:
    """The line on which each set begins, of a text that is JSON: the members of the list at the top."""
    depth, line, at, fresh, key = 0, 1, 0, False, ""
    inside = False
    for found in _TOKEN.finditer(text):
        part = found[0]
        line, at = line + text.count("\n", at, found.start()), found.start()
        if inside and depth == 2 and fresh and part not in "],":
            yield line
            fresh = False
        if part in ("{", "["):
            depth += 1
            if depth == 2 and part == "[" and key == '"ResourceRecordSets"':
                inside = fresh = True
        elif part in ("}", "]"):
            depth -= 1
            inside = inside and depth >= 2
        elif part == ",":
            fresh = depth == 2
        elif depth == 1 and part.startswith('"'):
            key = part


def _decimal(text: str) -> str:
    r"""Octets in decimal, as zone files have them (RFC 1035 §5.1), which Route 53 writes in octal (`\052` is `*`)."""
    return re.sub(
        r"\\(?:([0-3][0-7]{2})|.)",
        lambda found: found[0] if found[1] is None else f"\\{int(found[1], 8):03d}",
        text,
        flags=re.DOTALL,
    )


def _name(text: str) -> str:
    plain = _decimal(text)
    try:
        return dns.name.from_text(plain).to_text()
    except (dns.exception.DNSException, UnicodeError):  # what is told of it, who takes it into a policy
        return plain


def _sort(
    name: str,
    found: _Set,
    source: ImportedZone,
    steered: dict[str, list[_Set]],
    aliases: dict[str, list[_Set]],
) -> None:
    item, notes = found.item, source.notes
    rdtype = item["Type"]
    where = f"{name} {rdtype}"
    if item.get("SetIdentifier") is not None:
        where = f"{where} `{item['SetIdentifier']}`"
    notes.unknown(where, item, _SET)
    alias = item.get("AliasTarget")
    if isinstance(alias, dict):
        notes.unknown(where, alias, _ALIAS)
        if alias.get("EvaluateTargetHealth"):
            notes.lost(where, "EvaluateTargetHealth is not taken over: whether its target works is not asked")
    if item.get("SetIdentifier") is not None:
        if rdtype in _STEERABLE:
            steered.setdefault(name, []).append(found)
        else:
            notes.lost(where, "not taken over: only addresses and aliases are steered")
        return
    for key in _STEERING:
        if item.get(key) is not None:
            notes.lost(
                f"{where} `{key}`", "not taken over: a set without SetIdentifier is answered to everyone"
            )
    if item.get("HealthCheckId"):
        notes.lost(where, "its health check is not taken over: it is not in the file")
    if alias is not None:
        aliases.setdefault(name, []).append(found)
        return
    values = tuple(_values(where, item, notes))
    if rdtype == "SOA":
        _soa(values, item, source)
        return
    source.plains.append(Plain(name, rdtype, _ttl(where, item, notes), values, found.line))


def _soa(values: Sequence[str], item: Mapping[str, Any], source: ImportedZone) -> None:
    parts = next(iter(values), "").split()
    if len(parts) != 7 or not all(part.isascii() and part.isdigit() and len(part) < 11 for part in parts[2:]):
        source.notes.lost("SOA", "not taken over: it cannot be read")
        return
    source.take_soa(_ttl("SOA", item, source.notes), parts[0], parts[1], [int(part) for part in parts[2:]])


def _ttl(where: str, item: Mapping[str, Any], notes: Notes) -> int | None:
    ttl = item.get("TTL")
    if isinstance(ttl, int) and not isinstance(ttl, bool):
        return ttl
    if ttl is not None:
        notes.lost(f"{where} (TTL {str(ttl)[:50]})", "its TTL is not taken over: it is no whole number")
    return None


def _values(where: str, item: Mapping[str, Any], notes: Notes) -> Iterator[str]:
    records = item.get("ResourceRecords")
    for record in records if isinstance(records, list) else () if records is None else (records,):
        if isinstance(record, dict) and isinstance(record.get("Value"), str):
            notes.unknown(where, record, ("Value",))
            yield _decimal(record["Value"])
        else:
            notes.lost(where, "a record is not taken over: it has no `Value`")


def _target(item: Mapping[str, Any]) -> str | None:
    alias = item.get("AliasTarget")
    target = alias.get("DNSName") if isinstance(alias, dict) else None
    return target if isinstance(target, str) else None


def _alias(name: str, found: list[_Set], source: ImportedZone, *, alone: bool) -> None:
    """An alias of a name that has nothing else is a CNAME; no other alias can be told in DNS."""
    items = [one.item for one in found]
    targets = {(_target(item) or "").lower() for item in items}
    kinds = ", ".join(sorted({str(item["Type"]) for item in items}))
    if len(targets) == 1 and "" not in targets and alone and set(kinds.split(", ")) <= set(_STEERABLE):
        (target,) = targets
        data = (target if target.endswith(".") else f"{target}.",)
        source.plains.append(Plain(name, "CNAME", None, data, found[0].line))
        source.notes.reworded(
            f"{name} {kinds}",
            "the alias became a CNAME, for every type and with the zone's TTL; not at a zone's apex",
        )
        return
    source.notes.lost(
        f"{name} {kinds} (for {', '.join(sorted(targets)) or 'nothing'})",
        "not taken over: an alias beside other records. Make the name a service's, whose regions have addresses",
    )


def _steered(name: str, sets: list[_Set], notes: Notes) -> Steered:
    line = notes.line = sets[0].line
    items = [one.item for one in sets]
    kinds = {key for item in items for key in _STEERING if item.get(key) is not None}
    steering = next((word for key, word in _STEERING.items() if key in kinds), "latency")
    if len({_STEERING[key] for key in kinds}) > 1 or not kinds:
        how = ", ".join(sorted(kinds)) or "none"
        notes.lost(
            f"{name} ({how})",
            f"its routing policy is not taken over: one for all its types is needed; it has `{steering}`",
        )
    if steering == "failover":
        sets = sorted(sets, key=lambda one: one.item.get("Failover") != "PRIMARY")
    weights = _weights(name, items, notes) if "Weight" in kinds else {}
    _told_apart(name, sets, weights, notes, ordered=steering == "failover")
    pools, separate = paired(
        [_pool(name, one, weights, notes) for one in sets], ordered=steering == "failover"
    )
    notes.line = line
    if steering == "geo":
        notes.nearest(name, "set")
    ttls = {ttl for one in sets if (ttl := _ttl(name, one.item, notes)) is not None}
    notes.several_ttls(name, ttls, "sets")
    return Steered(name, min(ttls, default=None), steering, pools, line=line, separate=separate)


_Weights = dict[tuple[str, str], float]
"""Type and identifier of a set → its weight."""


def _told_apart(name: str, sets: Sequence[_Set], weights: _Weights, notes: Notes, *, ordered: bool) -> None:
    """Say where an alias answers both types alike, and the file has them differ: by labels, weights or order."""
    found: dict[str, list[tuple[str, float]]] = {"A": [], "AAAA": []}
    for one in sets:
        label = str(one.item["SetIdentifier"])
        found.setdefault(one.item["Type"], []).append((label, weights.get((one.item["Type"], label), 1.0)))
    four, six = ((each if ordered else sorted(each)) for each in (found["A"], found["AAAA"]))
    if four and six and four != six and any(_target(one.item) is not None for one in sets):
        for label, weight in six:
            if (label, weight) not in four or ordered:
                notes.lost(
                    f"{name} AAAA `{label}` (weight {weight:g})",
                    "that AAAA is steered otherwise than A is not taken over: an alias answers both, by the weights and order of A",
                )


def _weights(name: str, items: Sequence[Mapping[str, Any]], notes: Notes) -> _Weights:
    """The weight of each set. If all of a type have 0, they are all alike (developer guide, weighted routing)."""
    found: _Weights = {}
    for item in items:
        label, weight = str(item["SetIdentifier"]), item.get("Weight")
        known = isinstance(weight, int) and not isinstance(weight, bool) and 0 <= weight <= _MAX_WEIGHT
        if not known or weight is None:
            notes.lost(
                f"{name} `{label}` ({str(weight)[:50]})",
                "its weight is not taken over: it is no number from 0 on",
            )
        found[item["Type"], label] = float(weight) if known and weight is not None else 1.0
    for rdtype in dict.fromkeys(kind for kind, _ in found):
        if not any(value for (kind, _), value in found.items() if kind == rdtype):
            notes.reworded(
                f"{name} {rdtype}",
                "all its weights are 0, which Route 53 takes for equal ones: they became 1",
            )
            found |= {key: 1.0 for key in found if key[0] == rdtype}
    return found


def _pool(name: str, found: _Set, weights: _Weights, notes: Notes) -> ImportedPool:
    item, notes.line = found.item, found.line
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
    for key, why in _OTHERS.items():
        if item.get(key) is not None:
            notes.lost(f"{where} ({json.dumps(item[key])[:200]})", why)
    if item.get("MultiValueAnswer"):
        notes.lost(
            where,
            "several values at once are not taken over: each set became a region, and an answer has one region's addresses",
        )
    if item.get("HealthCheckId"):
        notes.lost(
            where, "its health check is not taken over: it is not in the file. Give the region a `probe`"
        )
    values, target = tuple(_values(where, item, notes)), _target(item)
    if target is not None:
        notes.reworded(where, "an alias became a CNAME, for every type")
    answers = {"A": "ipv4", "AAAA": "ipv6"}.get(rdtype, "cnames")
    answered = {"cnames": (target,)} if target is not None else {answers: values}
    return ImportedPool(label, weight=weights.get((rdtype, label), 1.0), hints=tuple(hints), **answered)
