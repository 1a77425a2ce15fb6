"""Zone files, of BIND and of gdnsd: the latter with DYNA and DYNC, and the plugins' configuration (https://github.com/gdnsd/gdnsd/tree/master/docs).

gdnsd's configuration is in a language of its own, vscf (https://github.com/gdnsd/gdnsd/blob/master/docs/vscf.pod).
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Mapping
from typing import Any

import dns.exception
import dns.name
import dns.rdataclass
import dns.rdataset
import dns.rdatatype
import dns.tokenizer
import dns.transaction
import dns.zone
import dns.zonefile

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
from gtm.nesting import DEEPER, MAX_DEPTH

_TOKEN = re.compile(
    r"""(?P<space>(?:\s++|\#[^\n]*+)+)
    |(?P<mark>=>|[={}\[\],;])
    |"(?P<quoted>(?:[^"\\]++|\\.)*)"
    |(?P<word>(?:[^\s"\\{}\[\],;=\#]++|\\.)+)""",
    re.VERBOSE | re.DOTALL,
)


def load_vscf(text: str) -> dict[str, Any]:
    """A configuration: texts, lists and mappings.

    Raises:
        ImportProblem: it cannot be read, or has a key twice in one mapping; the message names the line.
    """
    return _Reader(bounded(text)).top()


class _Reader:
    def __init__(self, text: str) -> None:
        self._tokens: list[tuple[str, str, int]] = []
        line, at = 1, 0
        while at < len(text):
            found = _TOKEN.match(text, at)
            if found is None or found.end() == at:
                raise ImportProblem(f"line {line}: `{text[at : at + 20]!r}` cannot be read")
            kind = found.lastgroup or "quoted"
            if kind != "space":
                value = found[kind]
                if kind != "mark":
                    value = re.sub(r"\\(\d{3}|.)", _plain, value, flags=re.DOTALL)
                self._tokens.append((kind, value, line))
            line += text.count("\n", at, found.end())
            at = found.end()
        self._next = 0

    def top(self) -> dict[str, Any]:
        """The whole text: a mapping, with or without its braces."""
        braced = self._mark() == "{"
        self._next += braced
        found = self._mapping("}" if braced else None, 0)
        if self._next < len(self._tokens):
            raise self._problem("something follows the end")
        return found

    def _mark(self) -> str | None:
        """The mark that comes next, if one does."""
        kind, value, _ = self._tokens[self._next] if self._next < len(self._tokens) else ("end", "", 0)
        return value if kind == "mark" else None

    def _problem(self, message: str) -> ImportProblem:
        line = self._tokens[min(self._next, len(self._tokens) - 1)][2] if self._tokens else 1
        return ImportProblem(f"line {line}: {message}")

    def _text(self) -> str:
        if self._next >= len(self._tokens) or self._tokens[self._next][0] == "mark":
            raise self._problem("a word is expected")
        self._next += 1
        return self._tokens[self._next - 1][1]

    def _mapping(self, end: str | None, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while self._next < len(self._tokens):
            mark = self._mark()
            if mark is not None and mark == end:
                self._next += 1
                return found
            if mark in (",", ";"):
                self._next += 1
                continue
            key = self._text()
            if key.startswith("$include"):
                raise self._problem("`$include` is not followed: put the files together first")
            if self._mark() not in ("=>", "="):
                raise self._problem(f"`=>` is expected after `{key[:50]}`")
            self._next += 1
            if key in found:
                raise self._problem(f"`{key[:50]}` is given twice")
            found[key] = self._value(depth + 1)
        if end is not None:
            raise self._problem(f"`{end}` is missing at the end")
        return found

    def _value(self, depth: int) -> Any:
        mark = self._mark()
        if mark in ("{", "[") and depth >= MAX_DEPTH:
            raise self._problem(DEEPER)
        if mark == "{":
            self._next += 1
            return self._mapping("}", depth)
        if mark != "[":
            return self._text()
        self._next += 1
        found = []
        while (mark := self._mark()) != "]":
            if mark in (",", ";"):
                self._next += 1
            elif self._next >= len(self._tokens):
                raise self._problem("`]` is missing at the end")
            else:
                found.append(self._value(depth + 1))
        self._next += 1
        return found


def _plain(found: re.Match[str]) -> str:
    """What an escape stands for: an octet in decimal, or the character itself."""
    text = found[1]
    return chr(int(text)) if text.isdigit() and len(text) == 3 and int(text) < 256 else text


_DYNAMIC = 65_280  # of private use (RFC 6895 §3.1): a stand-in, so that one parser reads the whole file
_LINE = re.compile(
    r"^(?P<head>\S*(?:\s+(?:IN|[0-9]+[smhdw]?(?:/[0-9]+[smhdw]?)?))*\s+)(?:DYNA|DYNC)\s+(?P<what>[^\s;]+)\s*(?:;.*)?$",
    re.IGNORECASE,
)
_WORD = re.compile(r'"(?P<text>(?:[^"\\]++|\\.)*+)"|(?P<rest>;.*)|(?P<word>(?:[^\s"();\\]++|\\.)++)')
_OCTET = re.compile(r"\\(?:[0-9]{3}|.)|.", re.DOTALL)
_DIRECTIVES = ("$TTL", "$ORIGIN")
_MAX_SET = 1000
"""Records of one name and type."""
_MAX_STRING = 255
"""Octets of one of a TXT record's strings (RFC 1035 §3.3.14)."""
_MAX_OPEN = 64
"""Lines of a text in quotes."""
_MAX_NESTED = 10
"""Plugins inside of plugins."""
_MAX_ANSWERS = 10_000
"""Of a name, those of plugins inside of plugins: each may refer to others many times."""
_STEERING = {
    "geoip": "geo",
    "metafo": "failover",
    "weighted": "weighted",
    "multifo": "failover",
    "simplefo": "failover",
    "static": "failover",
}
_OPTIONS = {"zones_default_ttl": 86_400, "min_ttl": 5, "max_ttl": 3_600_000, "max_ncache_ttl": 10_800}
"""gdnsd's options that decide about answers of zone files, and their defaults (gdnsd.config(5)), in seconds."""
_CHECKS = ("service_types", "up_thresh", "multi", "ignore_health")
_SETTINGS = frozenset({*_CHECKS, "plugin"})
_GROUPS = ("addrs_v4", "addrs_v6", "cnames")
_MAP = ("datacenters", "map", "nets", "auto_dc_coords", "geoip2_db", "geoip_db")


class _Plugins:
    """The configuration's plugins, and where what is not taken over of them is said."""

    def __init__(self, plugins: Any, notes: Notes) -> None:
        self.plugins: Mapping[str, Any] = plugins if isinstance(plugins, dict) else {}
        self.notes = notes
        self.left = _MAX_ANSWERS

    def resource(self, plugin: str, name: str) -> Any:
        """A resource's configuration; None: there is none."""
        settings = self.plugins.get(plugin)
        found = (
            settings.get("resources")
            if isinstance(settings, dict) and plugin in ("geoip", "metafo")
            else settings
        )
        return found.get(name) if isinstance(found, dict) and name not in _SETTINGS else None

    def say_settings(self, where: str, plugin: str, found: Any) -> None:
        """Say of what a plugin's settings say for all of its resources, and of a resource's own, that it is lost."""
        settings = self.plugins[plugin]
        if isinstance(settings, dict) and plugin in ("geoip", "metafo"):
            self.notes.unknown(
                f"{where}, its plugin", settings, ("maps", "resources", "undefined_datacenters_ok", *_CHECKS)
            )
        own = found if isinstance(found, dict) else {}
        common = settings if isinstance(settings, dict) else {}
        self.say_checks(where, {key: value for key, value in common.items() if key in _CHECKS} | own)

    def say_checks(self, where: str, found: Any) -> None:
        """Say of a resource's settings that they are lost."""
        for key in _CHECKS:
            if isinstance(found, dict) and key in found:
                value = found[key]
                said = value if isinstance(value, str) else ", ".join(map(str, value))
                why = "its checks are not taken over: give the regions a `probe`"
                self.notes.lost(
                    f"{where} ({key} {said})", why if key == "service_types" else f"`{key}` is not taken over"
                )


def read(text: str, zone: str, config: str | None = None) -> ImportedZone:
    """Read gdnsd's zone file and, where it has dynamic names, the configuration.

    Args:
        text: the zone file.
        zone: its name.
        config: gdnsd's configuration; None: dynamic names are not taken over.

    Raises:
        ImportProblem: one of them cannot be read.
    """
    source = ImportedZone()
    found = load_vscf(config) if config is not None else {}
    given = found.get("options")
    options = {key: _option(given, key, default) for key, default in _OPTIONS.items()}
    plugins = _Plugins(found.get("plugins"), source.notes) if config is not None else None
    if config is None and "$ttl" not in text.lower():
        why = f"records without a TTL have gdnsd's zones_default_ttl, {options['zones_default_ttl']} s; for BIND's own files say `zonefile`"
        source.notes.reworded("no configuration and no $TTL", why)
    lines = _prepared(bounded(text), zone, source.notes, options["zones_default_ttl"])
    _take(lines, zone, source, plugins, options)
    return source


def read_plain(text: str, zone: str) -> ImportedZone:
    """Read a zone file as BIND does (RFC 1035 §5, RFC 2308 §4).

    Args:
        text: the zone file.
        zone: its name.

    Raises:
        ImportProblem: it cannot be read.
    """
    source = ImportedZone()
    _take(_prepared(bounded(text), zone, source.notes, None), zone, source, None, None)
    return source


def _option(options: Any, key: str, default: int) -> int:
    value = options.get(key) if isinstance(options, dict) else None
    return int(value) if isinstance(value, str) and re.fullmatch("[0-9]{1,9}", value) else default


def _take(
    text: str, zone: str, source: ImportedZone, plugins: _Plugins | None, options: Mapping[str, int] | None
) -> None:
    apex = dns.name.from_text(zone)
    parsed, places = _parse(text, apex, source.notes)
    count = 0
    for name, node in parsed.nodes.items():
        for rdataset in node.rdatasets:
            count += 1
            if count > MAX_RECORDS:
                raise ImportProblem(f"more than {MAX_RECORDS} sets of records")
            full = name.to_text()
            source.notes.line, ttl = places[name, rdataset.rdtype]
            if options is not None and rdataset.rdtype != dns.rdatatype.SOA:
                ttl = _clamped(f"{full} {_type(rdataset.rdtype)}", ttl, options, source.notes)
            if rdataset.rdtype == _DYNAMIC:
                for number, rdata in enumerate(rdataset):
                    what = (rdata.to_wire() or b"").decode("utf-8", "replace")
                    if number:
                        source.notes.lost(
                            f"{full} {what}", "not taken over: the name has another DYNA or DYNC before"
                        )
                    else:
                        _dynamic(full, ttl, what, plugins, source)
            elif rdataset.rdtype == dns.rdatatype.SOA and name == apex:
                _soa(rdataset[0], ttl, options, source)
            else:
                texts = tuple(rdata.to_text() for rdata in rdataset)
                source.plains.append(Plain(full, _type(rdataset.rdtype), ttl, texts, source.notes.line))


def _type(rdtype: int) -> str:
    return "DYNA" if rdtype == _DYNAMIC else dns.rdatatype.to_text(dns.rdatatype.RdataType.make(rdtype))


def _clamped(where: str, ttl: int, options: Mapping[str, int], notes: Notes) -> int:
    kept = min(max(ttl, options["min_ttl"]), options["max_ttl"])
    if kept != ttl:
        notes.reworded(
            f"{where} (TTL of {ttl} s)",
            f"gdnsd answers TTLs from min_ttl ({options['min_ttl']} s) to max_ttl ({options['max_ttl']} s)",
        )
    return kept


def _soa(found: Any, ttl: int, options: Mapping[str, int] | None, source: ImportedZone) -> None:
    minimum = found.minimum
    if options is not None:
        ttl = _clamped("SOA", ttl, options, source.notes)
        kept = max(min(ttl, minimum, options["max_ncache_ttl"]), options["min_ttl"])
        if kept != min(ttl, minimum):
            what = f"SOA (negative answers {min(ttl, minimum)} s)"
            source.notes.reworded(
                what, f"gdnsd has them kept from min_ttl to max_ncache_ttl ({options['max_ncache_ttl']} s)"
            )
            ttl, minimum = max(ttl, kept), kept
    times = (found.serial, found.refresh, found.retry, found.expire, minimum)
    source.take_soa(ttl, found.mname.to_text(), found.rname.to_text(), times)


def _prepared(text: str, zone: str, notes: Notes, default_ttl: int | None) -> str:
    """The file in the words of RFC 1035 §5: dynamic records as ones of an unknown type (RFC 3597 §5).

    Two lines are put before the file's own. `default_ttl`: gdnsd's, in seconds; None: the file is none of gdnsd's.
    """
    of_gdnsd = default_ttl is not None
    if "$generate" in text.lower():
        raise ImportProblem("`$GENERATE` is not followed: write the records themselves")
    origin = f"{zone}."
    lines = [f"$ORIGIN {origin}", f"$TTL {default_ttl}" if of_gdnsd else ""]
    open_lines: list[str] = []
    for number, given in enumerate(text.split("\n"), 1):
        notes.line = number
        line = given.rstrip("\r")
        if of_gdnsd:  # whose strings go on over the end of a line
            open_lines.append(line)
            line = "\\010".join(open_lines)
            if '"' in _WORD.sub("", line):
                if len(open_lines) >= _MAX_OPEN:
                    raise ImportProblem(
                        f"line {number}: a text goes over more than {_MAX_OPEN} lines: is a quote missing?"
                    )
                lines.append("")
                continue
            open_lines = []
        words = line.split(maxsplit=2)
        word = words[0].upper() if words and not line[0].isspace() else ""
        if of_gdnsd and word.startswith("$ADDR_LIMIT"):
            notes.lost(" ".join(words[:2]), "not taken over: see `max_answers` of services")
            line = ""
        elif word.startswith("$") and word not in _DIRECTIVES:
            raise ImportProblem(f"line {number}: `{word[:50]}` is not followed: put the files together first")
        elif word == "$ORIGIN" and len(words) > 1:
            named = _expanded(words[1], zone) if of_gdnsd else words[1]
            origin = (
                named
                if named.endswith(".")
                else origin
                if named == "@"
                else f"{named}.{origin}".replace("..", ".")
            )
            line = f"$ORIGIN {origin} {' '.join(words[2:])}"
        if of_gdnsd:
            line = _WORD.sub(lambda found: _word(found, zone), line)
            dynamic = _LINE.match(line)
            line = line if dynamic is None else _stand_in(dynamic, notes)
        lines.append(line)
    return "\n".join([*lines, *open_lines]) + "\n"


def _expanded(word: str, zone: str) -> str:
    return f"{word[:-2]}{zone}." if word.endswith(("@Z", "@F")) else word


def _word(found: re.Match[str], zone: str) -> str:
    """A word or text of a line as RFC 1035 has it: without `@Z` and `@F`, and in strings of at most 255 octets.

    gdnsd splits longer texts by itself (wiki, GdnsdZonefile, "TXT data auto splitting").
    """
    if found["rest"] is not None:
        return found[0]
    word = found["word"]
    text = _expanded(word, zone) if word is not None else found["text"]
    if len(text) <= 63:  # octets may be four for each character
        return text if word is not None else found[0]
    units = [unit for found in _OCTET.findall(text) for unit in _octets(found)]
    quote = "" if word is not None else '"'
    return " ".join(
        f"{quote}{''.join(units[start : start + _MAX_STRING])}{quote}"
        for start in range(0, len(units), _MAX_STRING)
    )


def _octets(unit: str) -> list[str]:
    """A character or escape as one text for each octet, in decimal where it is none of ASCII's."""
    if unit.isascii():
        return [unit]
    return [f"\\{octet:03d}" for octet in unit.removeprefix("\\").encode("utf-8", "replace")]


def _stand_in(found: re.Match[str], notes: Notes) -> str:
    what = found["what"].encode("utf-8", "replace")
    head = re.sub(r"(\s[0-9]+[smhdw]?)/[0-9]+[smhdw]?(?=\s)", r"\1", found["head"], flags=re.IGNORECASE)
    if head != found["head"]:
        notes.reworded(
            " ".join(found["head"].split()),
            "the lower of its two TTLs, for times of change, is not taken over",
        )
    return f"{head}TYPE{_DYNAMIC} \\# {len(what)} {what.hex()}"


_Places = dict[tuple[dns.name.Name, int], tuple[int, int]]
"""Name and type → line and TTL of the first record."""


class _Anywhere(dns.zone.Zone):
    """A zone that takes in names outside of it, so that they can be told."""

    def __init__(self, apex: dns.name.Name) -> None:
        super().__init__(dns.name.root, relativize=False)
        self._apex = apex

    def origin_information(self) -> tuple[dns.name.Name | None, bool, dns.name.Name | None]:
        """The zone whose SOA is looked for, as dnspython asks for it."""
        return self._apex, False, self._apex


def _parse(text: str, apex: dns.name.Name, notes: Notes) -> tuple[dns.zone.Zone, _Places]:
    """Read a file whose first two lines are not its own, with names outside of the zone, too.

    Raises:
        ImportProblem: it is no zone file, or dnspython would read it in the square of its length: it copies a set for each
            record that comes to it, and all names that begin with a label of zero bytes have one hash.
    """
    places: _Places = {}
    tokens = dns.tokenizer.Tokenizer(text)

    def check(_: dns.transaction.Transaction, name: dns.name.Name, found: dns.rdataset.Rdataset) -> None:
        line = max(1, tokens.where()[1] - 3)
        if len(found) > _MAX_SET:
            raise ImportProblem(f"`{name}` has more than {_MAX_SET} records of one type")
        if name.labels and name.labels[0] and not name.labels[0].strip(b"\0"):
            raise ImportProblem(f"`{name}` begins with a label of zero bytes: leave it out")
        known, ttl = places.setdefault((name, found.rdtype), (line, int(found.ttl)))
        if dns.rdatatype.is_singleton(found.rdtype) and known != line:
            raise ImportProblem(
                f"line {line}: `{name}` has a second {_type(found.rdtype)} record; the first is on line {known}"
            )
        if found.rdtype == dns.rdatatype.SOA:
            # BIND takes the MINIMUM of an SOA without a TTL for a default, and else the last TTL (RFC 1035 §5.1).
            reader.rfc2308_ttl = reader.last_ttl_known
        reader.last_ttl = ttl  # of the set, as BIND counts what was stated last
        if int(found.ttl) != ttl:
            notes.line = line
            what = f"{name} {_type(found.rdtype)} (TTL of {int(found.ttl)} s)"
            notes.reworded(what, "the set has another TTL before, which holds for all of it (RFC 2181 §5.2)")

    parsed = _Anywhere(apex)
    try:
        with parsed.writer(True) as transaction:
            transaction.check_put_rdataset(check)
            reader = dns.zonefile.Reader(tokens, dns.rdataclass.IN, transaction)
            reader.zone_origin = dns.name.root  # what is not below it, a reader passes over in silence
            reader.read()
    except (dns.exception.DNSException, ValueError, KeyError) as error:
        said = re.sub(
            r"<string>:(\d+): ", lambda found: f"about line {max(1, int(found[1]) - 3)}: ", str(error)
        )
        raise ImportProblem(f"no zone file: {said or type(error).__name__}") from error
    return parsed, places


def _dynamic(name: str, ttl: int, what: str, plugins: _Plugins | None, source: ImportedZone) -> None:
    plugin, _, resource = what.partition("!")
    where, notes = f"{name} {what}", source.notes
    if plugins is None:
        notes.lost(where, "not taken over: give gdnsd's configuration with --config")
        return
    plugins.left = _MAX_ANSWERS
    resource, _, forced = resource.partition("/")
    if plugin not in _STEERING or plugin not in plugins.plugins:
        notes.lost(where, f"not taken over: there is no plugin `{plugin}` that is known here")
        return
    found = plugins.resource(plugin, resource)
    if found is None:
        notes.lost(where, f"not taken over: the configuration has no resource `{resource}`")
        return
    steering, separate = _STEERING[plugin], False
    if plugin in ("geoip", "metafo"):
        chosen = _map_of(plugin, found, plugins)
        if forced or not {"map", "nets", "auto_dc_coords"} & chosen.keys():
            steering = "failover"  # nothing of it goes by the client's place
        pools = tuple(_datacenters(where, found, {} if forced else chosen, plugins, forced))
    elif forced:
        notes.lost(where, "not taken over: only geoip and metafo have datacenters")
        return
    elif plugin == "multifo":
        pools = (
            _pool(
                resource,
                list(_answers(where, {"plugin": plugin, "all": found}, plugins)),
                hints=(f"gdnsd's {what}",),
            ),
        )
    else:
        pools, separate = paired(list(_flat(where, plugin, found, plugins)), ordered=steering == "failover")
    plugins.say_settings(where, plugin, found)
    source.steered.append(Steered(name, ttl, steering, pools, (f"gdnsd: {what}",), notes.line, separate))


def _map_of(plugin: str, resource: Any, plugins: _Plugins) -> Mapping[str, Any]:
    """The map by which a resource of `geoip` chooses; empty where there is none."""
    maps = plugins.plugins[plugin].get("maps") if plugin == "geoip" else None
    name = str(resource.get("map")) if isinstance(resource, dict) else ""
    found = maps.get(name) if isinstance(maps, dict) else None
    return found if isinstance(found, dict) else {}


def _datacenters(
    where: str, resource: Any, chosen: Mapping[str, Any], plugins: _Plugins, forced: str
) -> Iterator[ImportedPool]:
    """A resource of `geoip` or `metafo`: what each datacenter answers, in the order of failover; `forced`: of one alone, if any."""
    notes = plugins.notes
    resource = resource if isinstance(resource, dict) else {}
    order = chosen.get("datacenters", resource.get("datacenters"))
    coordinates = chosen.get("auto_dc_coords")
    coordinates = coordinates if isinstance(coordinates, dict) else {}
    answers = _by_datacenter(resource)
    notes.unknown(where, resource, ("map", "dcmap", "datacenters", *_SETTINGS))
    notes.unknown(f"{where}, its map", chosen, _MAP)
    if "map" in chosen or "nets" in chosen:
        why = (
            "which countries and networks get which datacenter is not taken over: gtm takes the nearest region. "
            "Where law or contract says it, write residency_rules"
        )
        notes.lost(where, why)
    if "geoip2_db" in chosen or "geoip_db" in chosen:
        notes.reworded(where, "gtm has a database of locations of its own")
    labels = [str(item) for item in (order if isinstance(order, list) else [order] if order else answers)]
    if forced:
        labels = [forced]
        answers = {label: answer for label, answer in answers.items() if label == forced}
    for label in dict.fromkeys((*labels, *answers)):
        if label not in answers:
            notes.lost(f"{where}, `{label}`", "the datacenter is not taken over: `dcmap` says nothing of it")
            continue
        if label not in labels:
            notes.lost(f"{where}, `{label}`", "not taken over: it is none of the map's datacenters")
            continue
        lat, lon = _place(coordinates.get(label))
        addresses = list(_answers(f"{where}, `{label}`", answers[label], plugins))
        yield _pool(label, addresses, lat=lat, lon=lon, hints=(f"gdnsd's datacenter {label}",))


def _by_datacenter(resource: Any) -> dict[str, Any]:
    """A resource's `dcmap`, whose plugins inside are the resource's where they name none."""
    found = resource.get("dcmap") if isinstance(resource, dict) else None
    own = {key: resource[key] for key in ("plugin",) if isinstance(resource, dict) and key in resource}
    answers = found.items() if isinstance(found, dict) else ()
    return {key: {**own, **answer} if isinstance(answer, dict) else answer for key, answer in answers}


def _place(value: Any) -> tuple[float, float] | tuple[None, None]:
    try:
        lat, lon = (float(item) for item in value)
    except (TypeError, ValueError):
        return None, None
    return (lat, lon) if -90 <= lat <= 90 and -180 <= lon <= 180 else (None, None)


def _groups(found: Any) -> list[Any]:
    """The groups of a resource by the kind of answers, or the resource itself."""
    if not isinstance(found, dict):
        return [found]
    return [found[key] for key in _GROUPS if key in found] or [found]


def _items(found: Any, name: str) -> list[tuple[str, Any]]:
    """The answers of a group by their labels."""
    if isinstance(found, dict):
        return [(str(key), value) for key, value in found.items() if key not in _SETTINGS]
    return [
        (f"{name}-{number}", value)
        for number, value in enumerate(found if isinstance(found, list) else [found], 1)
    ]


def _flat(where: str, plugin: str, resource: Any, plugins: _Plugins) -> Iterator[ImportedPool]:
    """A resource of the plugins that answer one of several: each by itself, so that each can be steered."""
    what = where.rpartition("!")[2]
    groups = _groups(resource)
    kinds = [key for key in _GROUPS if isinstance(resource, dict) and key in resource] or [""]
    for kind, group in zip(kinds, groups, strict=True):
        if group is not resource:
            plugins.say_checks(where, group)
        # Without names, the first of one family is not the first of the other.
        for label, value in _items(group, f"{what}-{kind}" if len(groups) > 1 else what):
            at = f"{where}, `{label}`"
            weight, answer = 1.0, value
            if plugin == "weighted":
                weighed = _weighed(at, value, plugins.notes)
                answer, weight = [one for one, _ in weighed], sum(many for _, many in weighed)
                if isinstance(value, dict):
                    plugins.say_checks(at, value)
                    if len(weighed) > 1:
                        plugins.notes.lost(
                            at, "the weights inside are not taken over: all of its addresses are answered"
                        )
            yield _pool(
                label, list(_answers(at, answer, plugins)), weight=weight, hints=(f"gdnsd's {label}",)
            )


def _weighed(at: str, value: Any, notes: Notes) -> list[tuple[Any, float]]:
    """The answers of an item of `weighted` with their weights: one, or those of a group."""
    if isinstance(value, dict):
        return [
            one for key, item in value.items() if key not in _SETTINGS for one in _weighed(at, item, notes)
        ]
    if (
        isinstance(value, list)
        and len(value) == 2
        and isinstance(value[1], str)
        and re.fullmatch("[0-9]{1,7}", value[1])
    ):
        return [(value[0], float(value[1]))]
    notes.lost(at, "not taken over: an address and its weight are expected")
    return []


def _answers(at: str, value: Any, plugins: _Plugins, depth: int = 0) -> Iterator[str]:
    """The addresses and names of an answer, which may be another plugin's; how that chooses among them is lost, and said.

    Raises:
        ImportProblem: there are more than can be.
    """
    notes = plugins.notes
    plugins.left -= 1
    if plugins.left < 0:
        raise ImportProblem(
            f"{at}: more than {_MAX_ANSWERS} answers of one name, by plugins inside of plugins"
        )
    if depth > _MAX_NESTED:
        notes.lost(at, f"not taken over: more than {_MAX_NESTED} plugins inside of each other")
    elif isinstance(value, list):
        for item in value:
            yield from _answers(at, item, plugins, depth + 1)
    elif isinstance(value, dict):
        yield from _nested(at, str(value.get("plugin", "multifo")), value, plugins, depth)
    elif str(value).startswith("%"):
        plugin, _, name = str(value)[1:].partition("!")
        found = plugins.resource(plugin, name)
        if found is None:
            notes.lost(f"{at}: `{value}`", "not taken over: the configuration has no such resource")
        else:
            yield from _nested(f"{at}, {value}", plugin, found, plugins, depth)
    elif str(value).startswith("!"):
        notes.lost(f"{at}: `{value}`", "what it refers to is not taken over")
    else:
        yield str(value)


_CHOOSES = {
    "weighted": "the weights of the plugin inside are not taken over: a region's addresses count alike",
    "simplefo": "the order of the plugin inside is not taken over: a region's addresses count alike",
    "metafo": "the order of the plugin inside is not taken over: a region's addresses count alike",
    "geoip": "the map of the plugin inside is not taken over: a region's addresses count alike",
}


def _nested(at: str, plugin: str, found: Any, plugins: _Plugins, depth: int) -> Iterator[str]:
    """All answers of a resource of a plugin that stands inside of another."""
    if plugin not in _STEERING:
        plugins.notes.lost(f"{at} ({plugin})", "not taken over: the plugin inside is none that is known here")
        return
    plugins.say_checks(at, found)
    if plugin in _CHOOSES:
        plugins.notes.lost(at, _CHOOSES[plugin])
    groups = [_by_datacenter(found)] if plugin in ("geoip", "metafo") else _groups(found)
    for group in groups:
        if group is not found:
            plugins.say_checks(at, group)
        for _, value in _items(group, at):
            if plugin == "weighted":
                for one, _ in _weighed(at, value, plugins.notes):
                    yield from _answers(at, one, plugins, depth + 1)
            else:
                yield from _answers(at, value, plugins, depth + 1)


def _pool(label: str, answers: list[str], **known: Any) -> ImportedPool:
    families: dict[str, list[str]] = {"ipv4": [], "ipv6": [], "cnames": []}
    for answer in answers:
        try:
            family = f"ipv{ipaddress.ip_address(answer).version}"
        except ValueError:
            family = "cnames"
        families[family].append(answer)
    answered: dict[str, Any] = {family: tuple(items) for family, items in families.items()}
    return ImportedPool(label, **answered, **known)
