"""octoDNS: a zone's YAML, with `geo` and `dynamic` (https://octodns.readthedocs.io/en/stable/records.html)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import yaml
from pydantic import ValidationError

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
    quoted,
)
from gtm.documents.records import RecordError
from gtm.documents.resources import ProbeDocument
from gtm.yaml_nodes import BaseLoader, YamlError, read_nodes

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
    "URI": (("priority",), ("weight",), ("target",)),
    "LOC": (
        *(("lat_degrees",), ("lat_minutes",), ("lat_seconds",), ("lat_direction",)),
        *(("long_degrees",), ("long_minutes",), ("long_seconds",), ("long_direction",)),
        *(("altitude",), ("size",), ("precision_horz",), ("precision_vert",)),
    ),
    **dict.fromkeys(("SVCB", "HTTPS"), (("svcpriority",), ("targetname",), ("svcparams",))),
}
"""Fields of a value in the order of the record's data, each with its older name."""
_QUOTED = frozenset(
    {("CAA", "value"), ("NAPTR", "flags"), ("NAPTR", "service"), ("NAPTR", "regexp"), ("URI", "target")}
)
_QUOTES = re.compile(r'\\.|"', re.DOTALL)
"""What is escaped, as octoDNS takes it, and quotation marks that are not."""
_METRES = frozenset({"altitude", "size", "precision_horz", "precision_vert"})
_OF_OLD = {"flags": "key_tag", "protocol": "algorithm", "algorithm": "digest_type", "public_key": "digest"}
"""A DS record's fields as octoDNS called them, with what they mean; it knows them by `flags` or `public_key`."""
_DEFAULTS: Mapping[tuple[str, str], Any] = {
    ("CAA", "flags"): 0,
    **{("TLSA", field): 0 for field in ("certificate_usage", "selector", "matching_type")},
    **{(kind, "svcparams"): {} for kind in ("SVCB", "HTTPS")},
}
_TEXTS = frozenset({"TXT", "SPF"})
_ADDRESSES = ("A", "AAAA")
_STEERABLE = ("A", "AAAA", "CNAME")
_RECORD = frozenset({"type", "ttl", "value", "values", "dynamic", "geo", "octodns"})
_DEFAULT_TTL = 3600
_MAX_CHAIN = 100
_MAX_NUMBER = 30
"""Characters of a number: reading one takes the square of its length."""


class _Loader(BaseLoader):  # type: ignore[misc]  # which of two it is, PyYAML says
    """YAML 1.1, by which octoDNS reads: `1e3` is text, `010` is 8, `yes` is true."""


def _number(loader: Any, node: yaml.ScalarNode) -> Any:
    if len(node.value) > _MAX_NUMBER:
        raise yaml.constructor.ConstructorError(None, None, "number too long", node.start_mark)
    kind = "float" if node.tag.endswith("float") else "int"
    return getattr(loader, f"construct_yaml_{kind}")(node)


for _kind in ("int", "float"):
    _Loader.add_constructor(f"tag:yaml.org,2002:{_kind}", _number)


def read(text: str) -> ImportedZone:
    """Read a zone's file.

    Raises:
        ImportProblem: it is no YAML, or no mapping of names to records.
    """
    try:
        documents = read_nodes(bounded(text), _entries, _Loader)
    except YamlError as error:
        raise ImportProblem(f"not YAML as octoDNS has it: {error}") from error
    source = ImportedZone()
    steered: dict[str, dict[str, Mapping[str, Any]]] = {}
    lines: dict[str, int] = {}
    count = 0
    for entries in documents:
        if entries is None:
            raise ImportProblem("an octoDNS zone is a mapping of names to records")
        for name, record, line in entries:
            count += 1
            if count > MAX_RECORDS:
                raise ImportProblem(f"more than {MAX_RECORDS} sets of records")
            source.notes.line = line
            lines.setdefault(name, line)
            _record(name, record, source, steered)
    for name, kinds in steered.items():
        source.notes.line = lines[name]
        source.steered.append(_steered(name, kinds, source.notes, lines[name]))
    return source


def _entries(loader: Any, node: yaml.Node) -> list[tuple[str, Any, int]] | None:
    """Records with their names and lines; None: no mapping of names."""
    document = loader.construct_document(node)
    if not isinstance(document, dict) or not isinstance(node, yaml.MappingNode):
        return None
    if len(document) != len(node.value):
        raise yaml.constructor.ConstructorError(
            None,
            None,
            "two names are one to YAML 1.1 (`yes` and `on`, `10` and `1_0`): put them in quotes",
            node.start_mark,
        )
    found = []
    for (key, value), (at, below) in zip(document.items(), node.value, strict=True):
        # octoDNS makes text of any key: `null` is the name none, `yes` is true, and only '' is the apex.
        name = str(key).lower() or "@"
        if isinstance(value, list) and isinstance(below, yaml.SequenceNode):
            lines = [part.start_mark.line + 1 for part in below.value]
            found += [(name, one, line) for one, line in zip(value, lines, strict=True)]
        else:
            found.append((name, value, at.start_mark.line + 1))
    return found


def _record(
    name: str, record: Any, source: ImportedZone, steered: dict[str, dict[str, Mapping[str, Any]]]
) -> None:
    rdtype = str(record.get("type", "")).upper() if isinstance(record, dict) else ""
    where, notes = f"{name} {rdtype}".strip(), source.notes
    if not rdtype:
        notes.lost(where, "not taken over: it is no record with a `type`")
        return
    notes.unknown(where, {str(key): value for key, value in record.items()}, _RECORD)
    is_steered = bool(record.get("dynamic") or record.get("geo")) and rdtype in _STEERABLE
    _settings(where, record.get("octodns"), notes, is_steered=is_steered)
    if record.get("values") is not None and record.get("value") is not None:
        notes.lost(where, "its `value` is not taken over: octoDNS reads `values` where both are there")
    try:
        ttl = _ttl(record)
    except RecordError as error:
        notes.lost(where, f"not taken over: {error}")
        return
    if "ttl" not in record:
        notes.reworded(
            where,
            f"it has no `ttl`: {_DEFAULT_TTL} s was taken, octoDNS's default_ttl unless its configuration has another",
        )
    if is_steered:
        if rdtype in steered.setdefault(name, {}):
            notes.lost(where, "not taken over: the name has this type before")
        steered[name].setdefault(rdtype, record)
        return
    if record.get("dynamic") or record.get("geo"):
        notes.lost(where, "its steering is not taken over: only addresses and aliases are steered")
    if rdtype == "ALIAS":
        notes.lost(
            where,
            "not taken over: there is no ALIAS. Make the name a service's, whose regions have addresses",
        )
        return
    data = []
    for value in _values(record):
        try:
            data.append(_data(rdtype, value))
            if isinstance(value, dict) and rdtype in _FIELDS:
                known = {name for names in _FIELDS[rdtype] for name in names} | (
                    _OF_OLD.keys() if rdtype == "DS" else set()
                )
                notes.unknown(where, {str(key): one for key, one in value.items()}, known)
        except RecordError as error:
            notes.lost(where, f"not taken over: {error}")
    if data or not _values(record):
        source.plains.append(Plain(name, rdtype, ttl, tuple(data), notes.line))


_SETTINGS = {
    "lenient": "octoDNS checked it less strictly: so does nothing here",
    "ignored": "octoDNS left it to the provider, whose record may be another: it is taken over as the file has it",
    "included": "octoDNS gave it to some providers alone",
    "excluded": "octoDNS kept it from some providers",
}


def _settings(where: str, settings: Any, notes: Notes, *, is_steered: bool) -> None:
    if settings is not None and not isinstance(settings, dict):
        notes.lost(where, "its `octodns` is not taken over: it is no mapping")
    for key in settings if isinstance(settings, dict) else ():
        if key == "lenient":
            notes.reworded(where, _SETTINGS["lenient"])
        elif key != "healthcheck":
            notes.lost(
                f"{where} `{key}`", _SETTINGS.get(str(key), "octoDNS's own setting means nothing here")
            )
        elif not is_steered:
            notes.lost(where, "its healthcheck is not taken over: the name is not steered")


def _ttl(record: Mapping[str, Any]) -> int:
    """The TTL in seconds, as octoDNS makes a number of it.

    Raises:
        RecordError: it is none.
    """
    ttl = record.get("ttl", _DEFAULT_TTL)
    if isinstance(ttl, bool) or not isinstance(ttl, (int, str)) or len(str(ttl)) > _MAX_NUMBER:
        raise RecordError("its `ttl` is no whole number")
    try:
        return int(ttl)
    except ValueError as error:
        raise RecordError("its `ttl` is no whole number") from error


def _values(record: Mapping[str, Any]) -> list[Any]:
    values = record["values"] if record.get("values") is not None else record.get("value")
    return values if isinstance(values, list) else [] if values is None else [values]


def _data(rdtype: str, value: Any) -> str:
    """A value in presentation form, as octoDNS's `to_rdata_text` has it.

    Raises:
        RecordError: it is not one of its type.
    """
    fields = _FIELDS.get(rdtype)
    if fields is None:
        text = _plain(value)
        if rdtype not in _TEXTS:
            return text
        # octoDNS takes strings in quotes for one text, and escapes semicolons in its files.
        text = text[1:-1] if text.startswith('"') else text
        return quoted(text.replace('" "', "").replace("\\;", ";"))
    if rdtype == "DS" and isinstance(value, dict) and not {"flags", "public_key"}.isdisjoint(value):
        value = {_OF_OLD.get(key, key): one for key, one in value.items()}
    if not isinstance(value, dict):
        raise RecordError(f"a mapping with {', '.join(names[0] for names in fields)} is expected")
    parts = []
    for names in fields:
        found = next((value[name] for name in names if name in value), _DEFAULTS.get((rdtype, names[0])))
        if names[0] == "svcparams":
            parts += _parameters(found)
            continue
        if found is None or isinstance(found, (dict, list, bool)):
            raise RecordError(f"`{names[0]}` is missing")
        text = str(found) or "."
        if (rdtype, names[0]) in _QUOTED:
            text = f'"{_QUOTES.sub(_escaped, str(found))}"'
        elif any(char.isspace() for char in text):
            raise RecordError(f"`{names[0]}` has a space")
        parts.append(f"{text}m" if rdtype == "LOC" and names[0] in _METRES else text)
    return " ".join(parts)


def _escaped(found: re.Match[str]) -> str:
    return '\\"' if found[0] == '"' else found[0]


def _plain(value: Any) -> str:
    """A value that is one text.

    Raises:
        RecordError: it is none.
    """
    if isinstance(value, (dict, list)):
        raise RecordError("a text is expected, and its value has fields")
    if not isinstance(value, str):
        raise RecordError(
            f"octoDNS reads its value as `{str(value)[:100]}`, which is no text: put it in quotes"
        )
    return value


def _parameters(found: Any) -> list[str]:
    """Parameters of an SVCB or HTTPS record in presentation form (RFC 9460 §2.1).

    Raises:
        RecordError: they are none.
    """
    if not isinstance(found, dict):
        raise RecordError("`svcparams` is no mapping")
    parts = []
    for key, value in found.items():
        several = value if isinstance(value, list) else [value]
        if value is None or (key == "no-default-alpn" and value in (True, "")):
            parts.append(str(key))
        elif any(isinstance(one, (dict, list, bool)) or one is None for one in several):
            raise RecordError(f"`svcparams` `{key}` is no text")
        else:
            parts.append(f'{key}="{",".join(map(str, several))}"')
    return parts


def _steered(name: str, kinds: Mapping[str, Mapping[str, Any]], notes: Notes, line: int) -> Steered:
    """One service of a name's steered types."""
    pools: list[ImportedPool] = []
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
        notes.nearest(name, "pool")
    ttls = {_ttl(record) for record in kinds.values()}
    notes.several_ttls(name, ttls, "types")
    joint, separate = paired(pools, ordered=steering == "failover")
    return Steered(name, min(ttls), steering, joint, tuple(hints), line, separate)


def _answers(rdtype: str, texts: Sequence[str]) -> dict[str, Any]:
    return {{"A": "ipv4", "AAAA": "ipv6"}.get(rdtype, "cnames"): tuple(texts)}


def _geo(where: str, rdtype: str, record: Mapping[str, Any], notes: Notes) -> Iterator[ImportedPool]:
    """`geo`: a list of values by continent, country and province (`NA-US-CA`), and the default in `values`."""
    probe = _probe(where, record, notes)
    geo = record.get("geo")
    items = geo.items() if isinstance(geo, dict) else ()
    if not isinstance(geo, dict):
        notes.lost(where, "its steering is not taken over: `geo` and `dynamic` are mappings")
    for code, values in items:
        texts = [str(value) for value in (values if isinstance(values, list) else [values])]
        yield ImportedPool(
            str(code),
            **_answers(rdtype, texts),
            hints=(f"octoDNS answered clients of {code} so",),
            probe=probe,
        )
    texts = [str(value) for value in _values(record)]
    hint = "octoDNS answered so where nothing else was said"
    yield ImportedPool("default", **_answers(rdtype, texts), hints=(hint,), probe=probe)


def _dynamic(where: str, rdtype: str, record: Mapping[str, Any], notes: Notes) -> Iterator[ImportedPool]:
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
    notes.unknown(f"{where} `dynamic`", dynamic, ("pools", "rules"))
    for label in pools:
        if label not in order:
            notes.lost(f"{where}, `{label}`", "the pool is not taken over: no rule leads to it")
    for rule in rules:
        notes.unknown(f"{where}, a rule", rule, ("pool", "geos", "subnets"))
        if str(rule.get("pool")) not in pools:
            notes.lost(f"{where}, `{rule.get('pool')}`", "a rule is not taken over: there is no such pool")
    if len(rules) > 1 and any(isinstance(pool, dict) and pool.get("fallback") for pool in pools.values()):
        notes.lost(
            where,
            "which pool follows which is not taken over for each rule: there is one order for all clients",
        )
    for label in order:
        texts, weights = [], set()
        pool = pools[label] if isinstance(pools[label], dict) else {}
        at = f"{where}, `{label}`"
        notes.unknown(at, pool, ("fallback", "values"))
        for value in _list(pool.get("values")):
            if not isinstance(value, dict) or not isinstance(value.get("value"), str):
                notes.lost(at, "a value of the pool is not taken over: it has no `value` that is text")
                continue
            notes.unknown(at, value, ("value", "weight", "status"))
            status = value.get("status", "obey")
            if status == "down":
                notes.lost(
                    f"{at}: {value['value']}", "not taken over: `status: down`, and octoDNS never answers it"
                )
                continue
            if status != "obey":
                notes.lost(
                    f"{at}: {value['value']} (status {status})",
                    "its `status` is not taken over: probes decide",
                )
            texts.append(value["value"])
            weights.add(str(value.get("weight", 1)))
        if len(weights) > 1:
            notes.lost(at, "the weights in the pool are not taken over: a region's addresses count alike")
        yield ImportedPool(
            label,
            **_answers(rdtype, texts),
            hints=tuple(_places(by_pool.get(label, ()))),
            probe=_probe(where, record, notes),
        )
    values = [str(value) for value in _values(record)]
    if values:
        notes.lost(f"{where} ({', '.join(values[:4])})", "the default is not taken over: the pools answer")


def _places(rules: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for rule in rules:
        codes = ", ".join(str(code) for code in _list(rule.get("geos")))
        yield f"octoDNS answered {f'clients of {codes}' if codes else 'all other clients'} so"


def _rules(where: str, dynamic: Mapping[str, Any], notes: Notes) -> Iterator[str]:
    for rule in _list(dynamic.get("rules")):
        if not isinstance(rule, dict):
            continue
        subnets = ", ".join(str(item) for item in _list(rule.get("subnets"))[:8])
        if subnets:
            notes.lost(
                f"{where} ({subnets})", "its rule for subnets is not taken over: see docs/geoip.md, overrides"
            )
        codes = ", ".join(str(code) for code in _list(rule.get("geos")))
        yield f"octoDNS: {codes or 'everyone else'} to {rule.get('pool')}"


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _probe(where: str, record: Mapping[str, Any], notes: Notes) -> dict[str, Any] | None:
    """`octodns.healthcheck`, whose defaults are HTTPS, port 443 and `/_dns`."""
    settings = record.get("octodns")
    check = settings.get("healthcheck") if isinstance(settings, dict) else None
    if not isinstance(check, dict):
        return None
    notes.unknown(f"{where} healthcheck", check, ("protocol", "port", "path", "host"))
    kind = str(check.get("protocol", "HTTPS")).lower()
    probe: dict[str, Any] = {"type": kind, "port": check.get("port", 443)}
    if kind != "tcp":
        probe["path"] = check.get("path", "/_dns")
        if check.get("host") is not None:
            probe["host"] = check["host"]
    try:
        ProbeDocument.model_validate(probe)
    except ValidationError as error:
        notes.lost(where, f"its healthcheck is not taken over: {error.errors()[0]['msg']}")
        return None
    return probe
