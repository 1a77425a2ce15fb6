"""octoDNS: a zone's YAML, with `geo` and `dynamic` (https://octodns.readthedocs.io/en/stable/records.html)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from gtm.documents import yamls
from gtm.documents.imports.parts import (
    MAX_RECORDS,
    ImportProblem,
    Plain,
    Pool,
    Source,
    Steered,
    bounded,
    paired,
    quoted,
)
from gtm.documents.records import RecordError
from gtm.documents.resources import ProbeDocument

_FIELDS: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "MX": (("preference", "priority"), ("exchange", "value")),
    "SRV": (("priority",), ("weight",), ("port",), ("target",)),
    "CAA": (("flags",), ("tag",), ("value",)),
    "SSHFP": (("algorithm",), ("fingerprint_type",), ("fingerprint",)),
    "NAPTR": (("order",), ("preference",), ("flags",), ("service",), ("regexp",), ("replacement",)),
    "TLSA": (
        ("certificate_usage",),
        ("selector",),
        ("matching_type",),
        ("certificate_association_data",),
    ),
    "DS": (("key_tag",), ("algorithm",), ("digest_type",), ("digest",)),
}
"""Fields of a value in the order of the record's data, each with its older name."""
_QUOTED = frozenset({("CAA", "value"), ("NAPTR", "flags"), ("NAPTR", "service"), ("NAPTR", "regexp")})
_TEXTS = frozenset({"TXT", "SPF"})
_NAMES = frozenset({"CNAME", "DNAME", "NS", "PTR"})
_ADDRESSES = ("A", "AAAA")
_STEERABLE = ("A", "AAAA", "CNAME")
_DEFAULT_TTL = 3600
_MAX_CHAIN = 100


def read(text: str) -> Source:
    """Read a zone's file.

    Raises:
        ImportProblem: it is no YAML, or no mapping of names to records.
    """
    try:
        documents = yamls.load(bounded(text))
    except yamls.YamlError as error:
        raise ImportProblem(f"not YAML as octoDNS has it: {error}") from error
    source = Source()
    steered: dict[str, dict[str, Mapping[str, Any]]] = {}
    count = 0
    for document in documents:
        if not isinstance(document, dict):
            raise ImportProblem("an octoDNS zone is a mapping of names to records")
        for key, value in document.items():
            for record in value if isinstance(value, list) else [value]:
                count += 1
                if count > MAX_RECORDS:
                    raise ImportProblem(f"more than {MAX_RECORDS} sets of records")
                _record(str(key) if key not in (None, "") else "@", record, source, steered)
    for name, kinds in steered.items():
        source.steered.append(_steered(name, kinds, source.notes))
    return source


def _record(name: str, record: Any, source: Source, steered: dict[str, dict[str, Mapping[str, Any]]]) -> None:
    rdtype = str(record.get("type", "")).upper() if isinstance(record, dict) else ""
    where = f"{name} {rdtype}".strip()
    if not rdtype:
        source.notes.append(f"{where}: not taken over: it is no record with a `type`")
        return
    settings = record.get("octodns")
    if isinstance(settings, dict):
        said = sorted(str(key) for key in settings if key != "healthcheck")
        source.notes += [f"{where}: octoDNS's own setting `{key}` means nothing here" for key in said]
    if record.get("dynamic") or record.get("geo"):
        if rdtype in _STEERABLE:
            steered.setdefault(name, {})[rdtype] = record
            return
        source.notes.append(
            f"{where}: its steering is not taken over: only addresses and aliases are steered"
        )
    if rdtype == "ALIAS":
        source.notes.append(
            f"{where}: not taken over: there is no ALIAS. Make the name a service's, whose regions have addresses"
        )
        return
    values = _values(record)
    try:
        data = tuple(_data(rdtype, value) for value in values)
    except RecordError as error:
        source.notes.append(f"{where}: not taken over: {error}")
        return
    source.plains.append(Plain(name, rdtype, _ttl(record), data))


def _ttl(record: Mapping[str, Any]) -> int:
    ttl = record.get("ttl", _DEFAULT_TTL)
    return ttl if isinstance(ttl, int) and not isinstance(ttl, bool) else _DEFAULT_TTL


def _values(record: Mapping[str, Any]) -> list[Any]:
    values = record["values"] if record.get("values") is not None else record.get("value")
    return values if isinstance(values, list) else [] if values is None else [values]


def _data(rdtype: str, value: Any) -> str:
    """A value in presentation form.

    Raises:
        RecordError: it is not one of its type.
    """
    if rdtype in _TEXTS:
        if isinstance(value, (dict, list)):
            raise RecordError("a text is expected")
        return quoted(str(value).replace("\\;", ";"))  # octoDNS escapes semicolons in its files
    fields = _FIELDS.get(rdtype)
    if fields is None:
        if isinstance(value, (dict, list)):
            raise RecordError(f"its values have fields, which are not known for {rdtype}")
        return str(value)
    if not isinstance(value, dict):
        raise RecordError(f"a mapping with {', '.join(names[0] for names in fields)} is expected")
    parts = []
    for names in fields:
        found = next((value[name] for name in names if name in value), None)
        if found is None or isinstance(found, (dict, list)):
            raise RecordError(f"`{names[0]}` is missing")
        parts.append(quoted(str(found)) if (rdtype, names[0]) in _QUOTED else str(found) or ".")
    return " ".join(parts)


def _steered(name: str, kinds: Mapping[str, Mapping[str, Any]], notes: list[str]) -> Steered:
    """One service of a name's steered types."""
    pools: list[Pool] = []
    hints: dict[str, None] = {}
    for rdtype, record in kinds.items():
        where = f"{name} {rdtype}"
        made = _dynamic if isinstance(record.get("dynamic"), dict) else _geo
        pools += made(where, rdtype, record, notes)
        if made is _dynamic:
            hints |= dict.fromkeys(_rules(where, record["dynamic"], notes))
        if isinstance(record.get("geo"), dict) and made is _geo:
            hints["octoDNS answered by the client's place; gtm takes the nearest of the regions"] = None
    steering = (
        "geo" if any("geo" in str(record.get("dynamic", "geo")) for record in kinds.values()) else "failover"
    )
    if steering == "geo":
        notes.append(
            f"{name}: which clients get which pool became `steering: geo`: the nearest region. Where law or contract "
            "says it, write residency_rules"
        )
    ttl = min(_ttl(record) for record in kinds.values())
    joint, separate = paired(pools, ordered=steering == "failover")
    return Steered(name, ttl, steering, joint, tuple(hints), separate)


def _answers(rdtype: str, texts: Sequence[str]) -> dict[str, Any]:
    return {{"A": "ipv4", "AAAA": "ipv6"}.get(rdtype, "cnames"): tuple(texts)}


def _geo(where: str, rdtype: str, record: Mapping[str, Any], notes: list[str]) -> Iterator[Pool]:
    """`geo`: a list of values by continent, country and province (`NA-US-CA`), and the default in `values`."""
    probe = _probe(where, record, notes)
    geo = record.get("geo")
    items = geo.items() if isinstance(geo, dict) else ()
    if not isinstance(geo, dict):
        notes.append(f"{where}: its steering is not taken over: `geo` and `dynamic` are mappings")
    for code, values in items:
        texts = [str(value) for value in (values if isinstance(values, list) else [values])]
        yield Pool(
            str(code),
            **_answers(rdtype, texts),
            hints=(f"octoDNS answered clients of {code} so",),
            probe=probe,
        )
    texts = [str(value) for value in _values(record)]
    hint = "octoDNS answered so where nothing else was said"
    yield Pool("default", **_answers(rdtype, texts), hints=(hint,), probe=probe)


def _dynamic(where: str, rdtype: str, record: Mapping[str, Any], notes: list[str]) -> Iterator[Pool]:
    """`dynamic`: pools in the order in which rules and fallbacks name them, the last resort at the end."""
    dynamic = record["dynamic"]
    pools = dynamic.get("pools")
    pools = {str(key): pool for key, pool in pools.items()} if isinstance(pools, dict) else {}
    rules = [rule for rule in _list(dynamic.get("rules")) if isinstance(rule, dict)]
    order: dict[str, None] = {}
    by_pool: dict[str, list[Mapping[str, Any]]] = {}
    for rule in rules:
        label = str(rule.get("pool"))
        by_pool.setdefault(label, []).append(rule)
        while label in pools and label not in order and len(order) < _MAX_CHAIN:
            order[label] = None
            fallback = pools[label].get("fallback") if isinstance(pools[label], dict) else None
            label = str(fallback)
    notes += [
        f"{where}: pool `{label}` is not taken over: no rule leads to it"
        for label in pools
        if label not in order
    ]
    for label in order:
        texts, weights = [], set()
        for value in _list(pools[label].get("values")) if isinstance(pools[label], dict) else []:
            if not isinstance(value, dict) or isinstance(value.get("value"), (dict, list, type(None))):
                notes.append(f"{where}: a value of pool `{label}` is not taken over: it has no `value`")
                continue
            texts.append(str(value["value"]))
            weights.add(str(value.get("weight", 1)))
            if value.get("status", "obey") != "obey":
                notes.append(
                    f"{where}: `status: {value['status']}` of {texts[-1]} is not taken over: probes decide"
                )
        if len(weights) > 1:
            notes.append(
                f"{where}: the weights in pool `{label}` are not taken over: a region's addresses count alike"
            )
        yield Pool(
            label,
            **_answers(rdtype, texts),
            hints=tuple(_places(by_pool.get(label, ()))),
            probe=_probe(where, record, notes),
        )
    values = [str(value) for value in _values(record)]
    if values:
        notes.append(f"{where}: the default ({', '.join(values[:4])}) is not taken over: the pools answer")


def _places(rules: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for rule in rules:
        codes = ", ".join(str(code) for code in _list(rule.get("geos")))
        yield f"octoDNS answered {f'clients of {codes}' if codes else 'all other clients'} so"


def _rules(where: str, dynamic: Mapping[str, Any], notes: list[str]) -> Iterator[str]:
    for rule in _list(dynamic.get("rules")):
        if not isinstance(rule, dict):
            continue
        subnets = ", ".join(str(item) for item in _list(rule.get("subnets"))[:8])
        if subnets:
            notes.append(
                f"{where}: its rule for subnets ({subnets}) is not taken over: see docs/geoip.md, overrides"
            )
        codes = ", ".join(str(code) for code in _list(rule.get("geos")))
        yield f"octoDNS: {codes or 'everyone else'} to {rule.get('pool')}"


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _probe(where: str, record: Mapping[str, Any], notes: list[str]) -> dict[str, Any] | None:
    """`octodns.healthcheck`, whose defaults are HTTPS, port 443 and `/_dns`."""
    settings = record.get("octodns")
    check = settings.get("healthcheck") if isinstance(settings, dict) else None
    if not isinstance(check, dict):
        return None
    kind = str(check.get("protocol", "HTTPS")).lower()
    probe: dict[str, Any] = {"type": kind, "port": check.get("port", 443)}
    if kind != "tcp":
        probe["path"] = check.get("path", "/_dns")
        if check.get("host") is not None:
            probe["host"] = check["host"]
    try:
        ProbeDocument.model_validate(probe)
    except ValidationError as error:
        notes.append(f"{where}: its healthcheck is not taken over: {error.errors()[0]['msg']}")
        return None
    return probe
