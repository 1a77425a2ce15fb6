"""gdnsd: a zone file with DYNA and DYNC, and the plugins' configuration (https://github.com/gdnsd/gdnsd/tree/master/docs)."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import dns.exception
import dns.name
import dns.rdataset
import dns.rdatatype
import dns.transaction
import dns.zone

from gtm.documents.imports import vscf
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
from gtm.documents.imports.route53 import soa

_DYNAMIC = 65_280  # of private use (RFC 6895 §3.1): a stand-in, so that one parser reads the whole file
_LINE = re.compile(
    r"^(?P<head>\S*(?:\s+(?:IN|[0-9]+[smhdw]?(?:/[0-9]+[smhdw]?)?))*\s+)(?:DYNA|DYNC)\s+(?P<what>[^\s;]+)\s*(?:;.*)?$",
    re.IGNORECASE,
)
_ORIGINS = re.compile(r"(?<!\S)(?P<label>[^\s;\"]*?)@[ZF](?!\S)")
_DIRECTIVES = ("$TTL", "$ORIGIN")
_MAX_SET = 1000
"""Records of one name and type."""
_STEERING = {
    "geoip": "geo",
    "metafo": "failover",
    "weighted": "weighted",
    "multifo": "weighted",
    "simplefo": "failover",
    "static": "failover",
}


def read(text: str, zone: str, config: str | None = None) -> Source:
    """Read a zone file and, where it has dynamic names, the configuration.

    Args:
        text: the zone file.
        zone: its name.
        config: gdnsd's configuration; None: dynamic names are not taken over.

    Raises:
        ImportProblem: one of them cannot be read.
    """
    source = Source()
    plugins = vscf.load(config).get("plugins") if config is not None else None
    resources = plugins if isinstance(plugins, dict) else {}
    parsed = _parse(_prepared(bounded(text), zone, source.notes), zone)
    count = 0
    for name, node in parsed.nodes.items():
        for rdataset in node.rdatasets:
            count += 1
            if count > MAX_RECORDS:
                raise ImportProblem(f"more than {MAX_RECORDS} sets of records")
            full, ttl = name.derelativize(parsed.origin or dns.name.root).to_text(), int(rdataset.ttl)
            if rdataset.rdtype == _DYNAMIC:
                for rdata in rdataset:
                    what = rdata.to_wire() or b""
                    _dynamic(
                        full,
                        ttl,
                        what.decode("utf-8", "replace"),
                        resources,
                        source,
                        known=config is not None,
                    )
            elif rdataset.rdtype == dns.rdatatype.SOA:
                found = rdataset[0]
                times = (found.refresh, found.retry, found.expire, found.minimum)
                source.soa = soa(found.mname.to_text(), found.rname.to_text(), times)
            else:
                texts = tuple(rdata.to_text() for rdata in rdataset)
                source.plains.append(Plain(full, dns.rdatatype.to_text(rdataset.rdtype), ttl, texts))
    return source


def _prepared(text: str, zone: str, notes: list[str]) -> str:
    """The file in the words of RFC 1035 §5: dynamic records as ones of an unknown type (RFC 3597 §5)."""
    if "$generate" in text.lower():
        raise ImportProblem("`$GENERATE` is none of gdnsd's directives")
    lines = ["$TTL 86400"]  # gdnsd's default (zones_default_ttl), until the file says another
    for number, given in enumerate(text.split("\n"), 1):
        line = given.rstrip("\r")
        word = line.split(maxsplit=1)[0].upper() if line.strip() else ""
        if word.startswith("$ADDR_LIMIT"):
            notes.append(f"line {number}: `{word}` is not taken over: see `max_answers` of services")
            line = ""
        elif word.startswith("$") and word not in _DIRECTIVES:
            raise ImportProblem(f"line {number}: `{word[:50]}` is not followed: put the files together first")
        line = _ORIGINS.sub(rf"\g<label>{zone}.", line)
        found = _LINE.match(line)
        if found is not None:
            what = found["what"].encode("utf-8", "replace")
            head = re.sub(
                r"(\s[0-9]+[smhdw]?)/[0-9]+[smhdw]?(?=\s)", r"\1", found["head"], flags=re.IGNORECASE
            )
            line = f"{head}TYPE{_DYNAMIC} \\# {len(what)} {what.hex()}"
        lines.append(line)
    return "\n".join(lines) + "\n"


def _check_set(_: dns.transaction.Transaction, name: dns.name.Name, found: dns.rdataset.Rdataset) -> None:
    """Reject what dnspython would read in the square of its length.

    It copies a set for each record that comes to it, and all names that begin with a label of zero bytes have one hash.
    """
    if len(found) > _MAX_SET:
        raise ImportProblem(f"`{name}` has more than {_MAX_SET} records of one type")
    if name.labels and name.labels[0] and not name.labels[0].strip(b"\0"):
        raise ImportProblem(f"`{name}` begins with a label of zero bytes: leave it out")


def _parse(text: str, zone: str) -> dns.zone.Zone:
    try:
        parsed: dns.zone.Zone = dns.zone.from_text(
            text,
            origin=zone,
            relativize=False,
            check_origin=False,
            allow_include=False,
            transaction_setup=lambda transaction: transaction.check_put_rdataset(_check_set),
        )
    except (dns.exception.DNSException, ValueError, KeyError) as error:
        said = re.sub(
            r"<string>:(\d+): ", lambda found: f"about line {max(1, int(found[1]) - 2)}: ", str(error)
        )
        raise ImportProblem(f"no zone file: {said or type(error).__name__}") from error
    return parsed


def _dynamic(
    name: str, ttl: int, what: str, plugins: Mapping[str, Any], source: Source, *, known: bool
) -> None:
    plugin, _, resource = what.partition("!")
    where = f"{name} {what}"
    if not known:
        source.notes.append(f"{where}: not taken over: give gdnsd's configuration with --config")
        return
    settings = plugins.get(plugin)
    resource, _, forced = resource.partition("/")
    if plugin not in _STEERING or not isinstance(settings, dict) or forced:
        why = (
            f"a forced datacenter (`/{forced}`)"
            if forced
            else f"there is no plugin `{plugin}` that is known here"
        )
        source.notes.append(f"{where}: not taken over: {why}")
        return
    nested = settings.get("resources") if plugin in ("geoip", "metafo") else settings
    found = nested.get(resource) if isinstance(nested, dict) else None
    if found is None:
        source.notes.append(f"{where}: not taken over: the configuration has no resource `{resource}`")
        return
    if plugin in ("geoip", "metafo"):
        pools, separate = tuple(_datacenters(where, settings, found, source.notes)), False
    else:
        flat = list(_flat(where, plugin, found, source.notes))
        pools, separate = paired(flat, ordered=_STEERING[plugin] == "failover")
    if isinstance(found, dict) and "service_types" in found:
        types = found["service_types"]
        said = types if isinstance(types, str) else ", ".join(str(item) for item in types)
        source.notes.append(
            f"{where}: its checks (service_types {said}) are not taken over: give the regions a `probe`"
        )
    source.steered.append(Steered(name, ttl, _STEERING[plugin], pools, (f"gdnsd: {what}",), separate))


def _datacenters(where: str, settings: Mapping[str, Any], resource: Any, notes: list[str]) -> Iterator[Pool]:
    """A resource of `geoip` or `metafo`: what each datacenter answers, in the order of failover."""
    resource = resource if isinstance(resource, dict) else {}
    maps = settings.get("maps")
    chosen = maps.get(str(resource.get("map"))) if isinstance(maps, dict) else None
    chosen = chosen if isinstance(chosen, dict) else {}
    order = chosen.get("datacenters", resource.get("datacenters"))
    coordinates = chosen.get("auto_dc_coords")
    coordinates = coordinates if isinstance(coordinates, dict) else {}
    answers = resource.get("dcmap")
    answers = answers if isinstance(answers, dict) else {}
    if isinstance(chosen.get("map"), dict) or chosen.get("nets"):
        notes.append(
            f"{where}: which countries and networks get which datacenter is not taken over: gtm takes the nearest region. "
            "Where law or contract says it, write residency_rules"
        )
    labels = [str(item) for item in (order if isinstance(order, list) else [order] if order else answers)]
    for label in labels:
        if label not in answers:
            notes.append(f"{where}: datacenter `{label}` is not taken over: `dcmap` says nothing of it")
            continue
        lat, lon = _place(coordinates.get(label))
        addresses = list(_answers(where, label, answers[label], notes))
        yield _pool(label, addresses, lat=lat, lon=lon, hints=(f"gdnsd's datacenter {label}",))


def _place(value: Any) -> tuple[float, float] | tuple[None, None]:
    try:
        lat, lon = (float(item) for item in value)
    except (TypeError, ValueError):
        return None, None
    return (lat, lon) if -90 <= lat <= 90 and -180 <= lon <= 180 else (None, None)


def _flat(where: str, plugin: str, resource: Any, notes: list[str]) -> Iterator[Pool]:
    """A resource of the plugins that know no places: each of its answers by itself, so that each can be steered."""
    what = where.rpartition("!")[2]
    groups = [("", resource)]
    if isinstance(resource, dict):
        kinds = [key for key in ("addrs_v4", "addrs_v6", "cnames") if key in resource]
        # Without names, the first of one family is not the first of the other.
        groups = [(f"-{kind}" if len(kinds) > 1 else "", resource[kind]) for kind in kinds] or groups
    for kind, group in groups:
        items: Iterable[tuple[str, Any]]
        if isinstance(group, dict):
            items = ((str(key), value) for key, value in group.items())
        else:
            values = group if isinstance(group, list) else [group]
            items = [(f"{what}{kind}-{number}", value) for number, value in enumerate(values, 1)]
        for label, value in items:
            if label in _SETTINGS:
                continue
            weight, answer = 1.0, value
            if plugin == "weighted" and isinstance(value, list) and len(value) == 2:
                answer, weight = value[0], _weight(value[1])
            if plugin == "weighted" and isinstance(value, dict):
                notes.append(f"{where}: the weights inside of `{label}` are not taken over")
                answer = [item[0] if isinstance(item, list) and item else item for item in value.values()]
            yield _pool(
                label, list(_answers(where, label, answer, notes)), weight=weight, hints=(f"gdnsd's {label}",)
            )


_SETTINGS = frozenset({"service_types", "up_thresh", "multi", "ignore_health"})


def _weight(value: Any) -> float:
    return float(value) if isinstance(value, str) and re.fullmatch(r"[0-9]{1,6}", value) else 1.0


def _answers(where: str, label: str, value: Any, notes: list[str]) -> Iterator[str]:
    """The addresses and names in an answer; what refers to another plugin is told."""
    if isinstance(value, dict):
        for key, item in value.items():
            if key not in _SETTINGS and key != "plugin":
                yield from _answers(where, label, item, notes)
    elif isinstance(value, list):
        for item in value:
            yield from _answers(where, label, item, notes)
    elif str(value).startswith(("%", "!")):
        notes.append(f"{where}: `{label}` refers to `{value}`, which is not taken over")
    else:
        yield str(value)


def _pool(label: str, answers: list[str], **known: Any) -> Pool:
    families: dict[str, list[str]] = {"ipv4": [], "ipv6": [], "cnames": []}
    for answer in answers:
        try:
            family = f"ipv{ipaddress.ip_address(answer).version}"
        except ValueError:
            family = "cnames"
        families[family].append(answer)
    answered: dict[str, Any] = {family: tuple(items) for family, items in families.items()}
    return Pool(label, **answered, **known)
