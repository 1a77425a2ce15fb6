"""`gtm import` beside the systems that it reads from: same questions, same answers, or a line in the report.

    python -m tests.drills.imports [FILES [FOLDER]]

FILES of each kind are made (default 40); FOLDER may hold public ones, named as their zones: `octodns/ZONE.yaml`, `zonefile/ZONE`,
and `gdnsd/*/ZONE`, zone files without plugins. Oracles: octoDNS's own provider, a running gdnsd, named-compilezone, and for Route 53
a model written from its developer guide.
"""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
import tempfile
import venv
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dns.exception
import dns.message
import dns.name
import dns.query
import dns.rdata
import dns.rdataclass
import dns.rdatatype
import dns.zone
import yaml

from gtm.documents.folders import load_folder
from gtm.documents.imports import gdnsd, octodns, route53
from gtm.documents.imports.parts import ImportedZone, ImportProblem
from gtm.documents.imports.policy import ImportedDraft, draft
from gtm.documents.imports.render import files
from tests import ports, tools
from tests.dns.world import answerer, query

ZONE = "example.com"
OCTODNS = "octodns==1.22.0"
OWN = Path(__file__).parent.parent.parent / "build" / "octodns"
"""octoDNS's environment: it is none of gtm's requirements."""

Answer = tuple[int, frozenset[bytes]]
"""A TTL and data in canonical wire form (RFC 4034 §6.2)."""
Answers = dict[tuple[str, str], Answer]


@dataclass
class Tally:
    """What was compared. `silent`: differences that no note tells."""

    counts: Counter[str] = field(default_factory=Counter)
    silent: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        words = ("files", "refused", "records", "questions", "reported", "silent")
        return ", ".join(f"{self.counts[word]} {word}" for word in words)


def wire(rdtype: str, text: str) -> bytes:
    """Data in canonical wire form."""
    return dns.rdata.from_text("IN", rdtype, text, origin=dns.name.root, relativize=False).to_digestable()


def compare(where: str, made: ImportedDraft, expected: Answers, tally: Tally) -> None:
    """Ask gtm's name server what another answers, and count what differs; a difference has to be in a note."""
    ask = _asker(made)
    steered = {name for service, _ in made.services for name in service["hostnames"]}
    for (name, rdtype), answer in expected.items():
        tally.counts["records"] += len(answer[1])
        if name.removesuffix(".") in steered and rdtype in ("A", "AAAA", "CNAME"):
            continue
        tally.counts["questions"] += 1
        found = ask(name, rdtype)
        if found == answer:
            continue
        if _is_told(made, name, rdtype, ttl_alone=found[1] == answer[1]):
            tally.counts["reported"] += 1
        else:
            tally.counts["silent"] += 1
            tally.silent.append(f"{where}: {name} {rdtype}: expected {answer}, found {found}")


def _asker(made: ImportedDraft) -> Any:
    """What asks gtm's name server, which has the zone of a draft."""
    with tempfile.TemporaryDirectory() as folder:
        zones = files(made, "a drill")["zones.yaml"]
        zones = re.sub("    # (hostmaster|primary_ns):", r"    \1: host.example.com #", zones)
        Path(folder, "zones.yaml").write_text(zones)
        server = answerer(policy=load_folder(Path(folder)))

    def ask(name: str, rdtype: str) -> Answer:
        asked = name if not name.startswith("*.") else f"any{name[1:]}"
        reply = server.answer(
            query(asked, rdtype if rdtype != "NXDOMAIN" else "A"), "10.0.0.1", tcp=True, draw=0.5
        )
        assert reply is not None
        return read(dns.message.from_wire(reply), rdtype)

    return ask


def read(message: dns.message.Message, rdtype: str) -> Answer:
    """An answer's TTL and data of a type; of NXDOMAIN and delegations what says so."""
    section = (
        message.authority
        if rdtype == "NXDOMAIN" or (rdtype == "NS" and not message.answer)
        else message.answer
    )
    wanted = dns.rdatatype.from_text("SOA" if rdtype == "NXDOMAIN" else rdtype)
    for rrset in section:
        if rrset.rdtype == wanted:
            data = (
                frozenset() if rdtype == "NXDOMAIN" else frozenset(rdata.to_digestable() for rdata in rrset)
            )
            return rrset.ttl, data
    return 0, frozenset()


def _is_told(made: ImportedDraft, name: str, rdtype: str, *, ttl_alone: bool) -> bool:
    """Whether a note tells of a difference: of data that something is lost, of a TTL that it is another."""
    zone = made.zone["name"]
    short = name.removesuffix(".").removesuffix(zone).removesuffix(".") or "@"
    unicode = dns.name.from_text(short, None).to_unicode()
    names = {each.lower() for each in (name, name.removesuffix("."), short, unicode)}
    for note in made.notes:
        words = re.findall(r"[^\s,;`()]+", note.what)
        if rdtype == "NXDOMAIN" and words[0] in ("SOA", zone) and {"negative", "minimum"} & set(words):
            return True
        here = names & {word.lower() for word in words} and (rdtype in words or "ALIAS" in words)
        if here and (note.lost or (ttl_alone and "TTL" in note.what)):
            return True
    return False


def read_all(kind: str, text: str, zone: str, config: str | None = None) -> ImportedDraft:
    """A draft of a file.

    Raises:
        ImportProblem: it is refused.
    """
    read_one = {
        "octodns": lambda: octodns.read(text),
        "route53": lambda: route53.read(text),
        "zonefile": lambda: gdnsd.read_plain(text, zone),
        "gdnsd": lambda: gdnsd.read(text, zone, config),
    }[kind]
    source: ImportedZone = read_one()
    return draft(zone, source)


# Zone files, beside named-compilezone.


def _strings(rng: random.Random) -> str:
    """A text as TXT records have them: semicolons, escapes, `@Z`, and long ones."""
    piece = rng.choice(
        [
            "v=spf1 -all",
            "a;b",
            r"say \"hi\"",
            r"\195\169",
            "a @Z b",
            "é",
            "x" * 255,
            "",
            r"back\\slash",
            "1e3",
        ]
    )
    return f'"{piece}"'


def zone_file(rng: random.Random, *, of_gdnsd: bool) -> str:
    """A zone file: defaults from several places, relative names, parentheses."""
    lines = []
    if rng.random() < 0.5:
        lines.append(f"$TTL {rng.choice(['300', '1h', '2d', '86400'])}")
    ttl = rng.choice(["", "300", "900", "1d"]) if of_gdnsd or lines else rng.choice(["", "900", "1d"])
    minimum = rng.choice([5, 60, 900, 3600, 10800, 86400, 90000])
    lines += [
        f"@ {ttl} SOA ns1 hostmaster ( 7 7200",
        f" 30M 3D {minimum} ) ; negative",
        "@ NS ns1",
        "  NS ns2.example.net.",
    ]
    lines.append(f"ns1 {rng.choice(['', '60'])} A 192.0.2.53")
    for number in range(rng.randrange(3, 25)):
        name = rng.choice(
            [
                f"h{number}",
                f"h{number}.sub",
                f"H{number}",
                f"_x{number}",
                f"*.w{number}",
                f"h{number}.example.com.",
            ]
        )
        ttl = rng.choice(["", "", "60", "1", "1h", "172800", "2w"])
        kind = rng.choice(["A", "AAAA", "TXT", "TXT", "MX", "CNAME", "SRV", "CAA", "NAPTR", "PTR"])
        data = {
            "A": "192.0.2.1",
            "AAAA": "2001:db8::1",
            "TXT": " ".join(_strings(rng) for _ in range(rng.randrange(1, 3))),
            "MX": f"10 {rng.choice(['mail', 'mail.example.net.'])}",
            "CNAME": rng.choice(["ns1", "@", "h0.example.net."]),
            "SRV": "1 2 53 h0",
            "CAA": '0 issue "a; b=c"',
            "NAPTR": '1 2 "S" "x" "!^.*$!sip:a!" .',
            "PTR": "h0",
        }[kind]
        if kind == "TXT" and of_gdnsd and rng.random() < 0.3:
            data = f'"{rng.choice(["y", "é", chr(92) + "001", "ab"]) * rng.randrange(100, 700)}"'
        if rng.random() < 0.1:
            lines.append(rng.choice(["$ORIGIN deep.example.com.", "$ORIGIN example.com.", "$TTL 7200"]))
        lines.append(f"{name} {ttl} {kind} {data}")
        if kind in ("A", "TXT") and rng.random() < 0.3:
            lines.append(
                f"  {rng.choice(['', '5', '600'])} {kind} {'192.0.2.2' if kind == 'A' else _strings(rng)}"
            )
    if not of_gdnsd and rng.random() < 0.3:
        lines.append("elsewhere.example.org. 60 A 192.0.2.9")
    return "\n".join(lines) + "\n"


def compiled(text: str, zone: str) -> Answers | None:
    """What named-compilezone makes of a zone file; None: it refuses."""
    command = [
        tools.tool("named-compilezone"),
        "-k",
        "ignore",
        "-i",
        "none",
        "-n",
        "ignore",
        "-s",
        "full",
        "-q",
        "-o",
        "-",
        zone,
        "/dev/stdin",
    ]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if done.returncode:
        return None
    parsed = dns.zone.from_text(done.stdout, origin=zone, relativize=False, check_origin=False)
    answers: Answers = {}
    for name, rdataset in parsed.iterate_rdatasets():
        rdtype = dns.rdatatype.to_text(rdataset.rdtype)
        if rdtype == "SOA":
            answers[f"none-such.{zone}.", "NXDOMAIN"] = min(rdataset.ttl, rdataset[0].minimum), frozenset()
        else:
            answers[name.to_text(), rdtype] = (
                rdataset.ttl,
                frozenset(rdata.to_digestable() for rdata in rdataset),
            )
    return answers


# octoDNS, beside its own provider.

_SCALARS = (
    *(
        "6135e11976",
        "0899123456",
        "1e3",
        "0x10",
        "0o17",
        "017",
        "yes",
        "off",
        "null",
        "~",
        "12:30:45",
        "1_000",
        "2001-01-02",
        ".5",
        "1.0",
    ),
    *(
        "v=spf1 -all",
        r"'a\;b'",
        """'"quoted" "two"'""",
        """'say "hi"'""",
        r"'back\slash'",
        "'60'",
        "abc",
        "NO",
        "é",
        "''",
    ),
)

_KEYS = tuple(text for text in _SCALARS if not set(text) & set(" :'"))
_TEXTS = (*_SCALARS[:3], "0o17", "v=spf1", *_SCALARS[-9:-3], "abc", "'60'")


def octodns_file(rng: random.Random) -> str:
    """A file of scalars that YAML 1.1 and 1.2 read in several ways."""
    lines = ["---", "'': {type: NS, ttl: 600, values: [ns1.example.net., ns2.example.net.]}"]
    names: set[str] = set()
    for number in range(rng.randrange(2, 20)):
        name = rng.choice([*_KEYS, *(f"h{number}" for _ in range(10)), f"'*.w{number}'", f"H{number}.Sub"])
        known = str(yaml.safe_load(name)).lower()
        if known in names:
            continue
        names.add(known)
        kind = rng.choice(
            [
                "A",
                "TXT",
                "TXT",
                "TXT",
                "CNAME",
                "MX",
                "CAA",
                "LOC",
                "HTTPS",
                "URI",
                "SRV",
                "AAAA",
                "OPENPGPKEY",
                "SSHFP",
            ]
        )
        value = {
            "A": lambda: rng.choice(["192.0.2.1", "'192.0.2.2'"]),
            "AAAA": lambda: rng.choice(["2001:db8::1", "'2001:DB8:0::2'"]),
            "TXT": lambda: rng.choice(_TEXTS if rng.random() < 0.97 else _SCALARS),
            "CNAME": lambda: rng.choice(["a.example.net.", "Bücher.example.net.", "no-dot.example.net"]),
            "MX": lambda: (
                f"{{preference: {rng.choice(['10', '010', chr(39) + '5' + chr(39)])}, exchange: mail.example.com.}}"
            ),
            "CAA": lambda: r"{flags: 0, tag: issue, value: 'a; b=c'}",
            "LOC": lambda: (
                "{lat_degrees: 31, lat_minutes: 58, lat_seconds: 52.1, lat_direction: S, long_degrees: 115, long_minutes: 49, "
                "long_seconds: 11.7, long_direction: E, altitude: 20, size: 10, precision_horz: 10, precision_vert: 2}"
            ),
            "HTTPS": lambda: (
                "{svcpriority: 1, targetname: ., svcparams: {alpn: [h2, h3], port: 8443, ipv4hint: [192.0.2.1]}}"
            ),
            "URI": lambda: "{priority: 1, weight: 2, target: 'https://a.example/b;c'}",
            "SRV": lambda: "{priority: 1, weight: 2, port: 53, target: a.example.net.}",
            "OPENPGPKEY": lambda: "AwEAAaz/tAm8yTn4Mfeh5eyI96WSVexTBAvkMgJzkKTOiW1vkIbzxeF3",
            "SSHFP": lambda: (
                "{algorithm: 4, fingerprint_type: 2, fingerprint: '0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef'}"
            ),
        }[kind]
        ttl = rng.choice(
            ["", "ttl: 60, ", "ttl: '90', ", "ttl: 1_000, ", "ttl: 1:00, ", "ttl: 010, ", "ttl: 172800, "]
        )
        several = (
            f"values: [{', '.join(value() for _ in range(2))}]"
            if kind in ("A", "TXT") and rng.random() < 0.4
            else f"value: {value()}"
        )
        lines.append(f"{name}: {{type: {kind}, {ttl}{several}}}")
    return "\n".join(lines) + "\n"


def octodns_python() -> str:
    """The Python of octoDNS's own environment, which is made if it is not there."""
    python = os.environ.get("OCTODNS_PYTHON") or str(OWN / "bin" / "python")
    if not Path(python).exists():
        import pytest

        venv.create(OWN, with_pip=True)
        done = subprocess.run(
            [python, "-m", "pip", "-q", "install", OCTODNS], capture_output=True, text=True, check=False
        )
        if done.returncode:
            subprocess.run(["rm", "-r", str(OWN)], check=True)
            pytest.skip(f"{OCTODNS} cannot be installed: {done.stderr[-300:]}")
    return python


class OctoDNS:
    """octoDNS's provider, which waits for files of one zone."""

    def __init__(self, zone: str) -> None:
        script = Path(__file__).with_name("octodns_provider.py")
        self._process = subprocess.Popen(
            [octodns_python(), "-W", "ignore", script, zone],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=script.parent,
        )

    def records(self, path: Path) -> Any:
        """The records in a file, or why octoDNS refuses it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{path}\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def close(self) -> None:
        """End it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def answers_of_octodns(records: list[tuple[str, str, int, list[str], bool]], zone: str) -> Answers:
    """What records of octoDNS's are answered, those that are steered and those that DNS has no word for left out."""
    answers: Answers = {}
    for name, rdtype, ttl, data, steered in records:
        if steered or rdtype in ("ALIAS", "URLFWD"):
            continue
        try:
            answers[name, rdtype] = ttl, frozenset(wire(rdtype, text) for text in data)
        except (dns.exception.DNSException, ValueError):
            answers[name, rdtype] = ttl, frozenset()
    return answers


# Route 53, beside a model of its developer guide.


def route53_file(rng: random.Random) -> dict[str, Any]:
    """A zone as `aws route53 list-resource-record-sets` prints it."""

    def record(name: str, kind: str, *values: str, **more: Any) -> dict[str, Any]:
        return {
            "Name": f"{name}example.com.",
            "Type": kind,
            "TTL": rng.choice([60, 300, 900, 172_800]),
            "ResourceRecords": [{"Value": value} for value in values],
            **more,
        }

    sets = [
        record(
            "", "SOA", f"ns-1.awsdns.org. host.amazon.com. 1 7200 900 1209600 {rng.choice([60, 900, 86_400])}"
        ),
        record("", "NS", "ns-1.awsdns.org.", "ns-2.awsdns.org."),
    ]
    for number in range(rng.randrange(2, 15)):
        kind = rng.choice(["A", "TXT", "TXT", "MX", "CAA"])
        value = {
            "A": "192.0.2.1",
            "TXT": rng.choice(
                [r'"a\344"', r'"say \"hi\""', '"one" "two"', r'"\134052"', r'"a;b"', r'"tab\011"', r'"\\052"']
            ),
            "MX": "10 mail.example.com",
            "CAA": '0 issue "a;b"',
        }[kind]
        sets.append(
            record(
                rng.choice([f"h{number}.", f"\\052.w{number}.", f"\\137x{number}.", f"a\\100b{number}."]),
                kind,
                value,
            )
        )
    for number in range(rng.randrange(4)):
        weights = rng.choice([(0, 0), (1, 0), (1, 3), (255, 1), (0, 0, 5)])
        sets += [
            record(f"s{number}.", "A", f"192.0.2.{10 + at}", Weight=weight, SetIdentifier=f"set {at}", TTL=60)
            for at, weight in enumerate(weights)
        ]
    return {"ResourceRecordSets": sets, "IsTruncated": False, "MaxItems": "300"}


def _octets(text: str) -> str:
    """A text with Route 53's escapes as one with those of RFC 1035 §5.1, octet by octet."""
    made, at = "", 0
    while at < len(text):
        if text[at] == "\\" and text[at + 1 : at + 4].isdigit():
            made, at = f"{made}\\{int(text[at + 1 : at + 4], 8):03d}", at + 4
        elif text[at] == "\\":
            made, at = made + text[at : at + 2], at + 2
        else:
            made, at = made + text[at], at + 1
    return made


def answers_of_route53(document: Mapping[str, Any]) -> tuple[Answers, dict[str, dict[str, float]]]:
    """What Route 53 answers to everyone, and of weighted names the part of each address."""
    answers: Answers = {}
    weights: dict[str, dict[str, float]] = {}
    for item in document["ResourceRecordSets"]:
        values = [_octets(record["Value"]) for record in item["ResourceRecords"]]
        if "Weight" in item:
            weights.setdefault(item["Name"], {})[values[0]] = item["Weight"]
        elif item["Type"] == "SOA":
            answers["none-such.example.com.", "NXDOMAIN"] = (
                min(item["TTL"], int(values[0].split()[-1])),
                frozenset(),
            )
        else:
            name = dns.name.from_text(_octets(item["Name"])).to_text()
            answers[name, item["Type"]] = (
                item["TTL"],
                frozenset(wire(item["Type"], value) for value in values),
            )
    for parts in weights.values():
        total = sum(parts.values())
        for address in parts:
            parts[address] = parts[address] / total if total else 1 / len(parts)
    return answers, weights


def compare_weights(
    where: str, made: ImportedDraft, weights: Mapping[str, Mapping[str, float]], tally: Tally
) -> None:
    """Hold the members' weights of each service against the part that each address has."""
    regions = dict(made.regions)
    found = {}
    for service, _ in made.services:
        total = sum(member["weight"] for member in service["members"])
        parts: Counter[str] = Counter()
        for member in service["members"]:
            parts[regions[member["region"]].ipv4[0]] += member["weight"] / total if total else 0
        found[f"{service['hostnames'][0]}."] = dict(parts)
    for name, parts_of in weights.items():
        tally.counts["questions"] += 1
        tally.counts["records"] += len(parts_of)
        if found.get(name) != dict(parts_of):
            tally.counts["silent"] += 1
            tally.silent.append(f"{where}: {name}: expected {parts_of}, found {found.get(name)}")


# gdnsd, beside one that runs.

CONFIG = """
weighted => {
  w => { lb1 => [ 192.0.2.11, 60 ], lb2 => [ 192.0.2.12, 40 ] }
  g => { one => { a => [ 192.0.2.13, 30 ], b => [ 192.0.2.14, 30 ] }, two => { c => [ 192.0.2.15, 40 ] } }
  c => { x => [ www.example.net., 50 ], y => [ www2.example.net., 50 ] }
}
multifo => { m => { addrs_v4 => [ 192.0.2.21, 192.0.2.22 ], addrs_v6 => [ 2001:db8::21 ] }, l => [ 192.0.2.23, 192.0.2.24 ] }
simplefo => { s => { primary => 192.0.2.31, secondary => 192.0.2.32 } }
metafo => { resources => { f => { datacenters => [ a, b ], dcmap => { a => 192.0.2.41, b => %weighted!w } } } }
static => { t => 192.0.2.51 }
geoip => {
  maps => { o => { datacenters => [ d2, d1 ] }, m => { datacenters => [ d1, d2 ], nets => { 198.51.100.0/24 => [ d2, d1 ] } } }
  resources => {
    plain => { map => m, dcmap => { d1 => [ 192.0.2.61, 192.0.2.62 ], d2 => 192.0.2.63 } }
    nest => { map => m, plugin => weighted, dcmap => { d1 => { a => [ 192.0.2.64, 50 ], b => [ 192.0.2.65, 50 ] }, d2 => 192.0.2.66 } }
    inner => { map => m, dcmap => { d1 => { plugin => metafo, datacenters => [ x, y ], dcmap => { x => 192.0.2.67, y => 192.0.2.68 } }, d2 => %static!t } }
    flat => { map => o, dcmap => { d1 => 192.0.2.70, d2 => 192.0.2.71 } }
    refer => { map => m, dcmap => { d1 => %multifo!l, d2 => 192.0.2.69 } }
  }
}
"""
_RESOURCES = (
    *("weighted!w", "weighted!g", "multifo!m", "multifo!l", "simplefo!s", "metafo!f", "static!t"),
    *(
        "geoip!plain",
        "geoip!nest",
        "geoip!inner",
        "geoip!refer",
        "geoip!plain/d2",
        "geoip!flat",
        "metafo!f/a",
    ),
)
_CHOSEN = ("weighted!w", "weighted!g")
_TIMES = 60
"""How often a name is asked of which one of several is answered: none has less than three tenths."""


class Gdnsd:
    """A gdnsd that serves zone files of a folder."""

    def __init__(
        self, folder: Path, texts: Mapping[str, str], plugins: str = CONFIG, options: str = ""
    ) -> None:
        for name in ("zones", "run", "state"):
            (folder / name).mkdir()
        for zone, text in texts.items():
            (folder / "zones" / zone).write_text(text)
        self.port = ports.free_port()
        self.config = f"options => {{ listen => 127.0.0.1:{self.port}, run_dir = {folder}/run, state_dir = {folder}/state {options} }}\nplugins => {{ {plugins} }}\n"
        (folder / "config").write_text(self.config)
        command = [tools.tool("gdnsd"), "-c", str(folder)]
        self.said = subprocess.run([*command, "checkconf"], capture_output=True, text=True, check=False)
        self._process = subprocess.Popen([*command, "start"], stderr=subprocess.PIPE, text=True)
        assert self._process.stderr is not None
        for line in self._process.stderr:
            if "DNS listeners started" in line:
                break

    def ask(self, name: str, rdtype: str) -> dns.message.Message:
        """A reply over TCP."""
        return dns.query.tcp(dns.message.make_query(name, rdtype), "127.0.0.1", port=self.port, timeout=10)

    def close(self) -> None:
        """End it."""
        self._process.terminate()
        self._process.wait()
        assert self._process.stderr is not None
        self._process.stderr.close()


def gdnsd_file(rng: random.Random, zone: str) -> str:
    """A zone file with dynamic names."""
    text = zone_file(rng, of_gdnsd=True).replace("example.com.", f"{zone}.")
    lines = ["$ORIGIN @Z"]
    for number, what in enumerate(rng.sample(_RESOURCES, rng.randrange(3, len(_RESOURCES)))):
        lines.append(f"dyn{number} {rng.choice(['', '300', '300/30'])} DYNA {what}")
    if rng.random() < 0.5:
        lines.append("dync DYNC weighted!c")
    return text + "\n".join(lines) + "\n"


def compare_with_gdnsd(
    where: str, made: ImportedDraft, names: Iterator[tuple[str, str]], server: Gdnsd, tally: Tally
) -> None:
    """Ask both the same; of steered names, whether each address that gdnsd answers is a pool's, and all of the pools' are answered."""
    zone = made.zone["name"]
    expected: Answers = {}
    for name, rdtype in names:
        asked = name if not name.startswith("*.") else f"any{name[1:]}"
        expected[name, rdtype] = read(server.ask(asked, rdtype), rdtype)
    nothing = f"none-such.{zone}."
    expected[nothing, "NXDOMAIN"] = read(server.ask(nothing, "A"), "NXDOMAIN")
    compare(where, made, expected, tally)
    regions = dict(made.regions)
    for service, steered in made.services:
        what = next((hint.removeprefix("gdnsd: ") for hint in steered.hints), "")
        pools = [regions[member["region"]] for member in service["members"]]
        asked = [
            server.ask(f"{service['hostnames'][0]}.", "A") for _ in range(_TIMES if what in _CHOSEN else 20)
        ]
        found = {rdata.to_text() for reply in asked for rrset in reply.answer for rdata in rrset}
        chosen = pools if service["steering"] == "weighted" else pools[:1]
        wanted = {one for pool in chosen for one in (*pool.ipv4, *(f"{name}." for name in pool.cnames))}
        tally.counts["questions"] += 1
        tally.counts["records"] += len(wanted)
        inside = any(service["hostnames"][0] in note.what and "inside" in note.why for note in made.notes)
        if found == wanted and not inside:
            continue
        if inside and found and found <= wanted:
            tally.counts["reported"] += found != wanted
            continue
        tally.counts["silent"] += 1
        tally.silent.append(
            f"{where}: {service['hostnames'][0]} {what}: expected {sorted(found)}, found {sorted(wanted)}"
        )


def names_in(made: ImportedDraft) -> Iterator[tuple[str, str]]:
    """The questions to which a draft's zone has answers."""
    zone = made.zone["name"]
    for record in made.zone["records"]:
        name = f"{zone}." if record["name"] == "@" else f"{record['name']}.{zone}."
        yield name, record["type"]
    yield f"{zone}.", "NS"


# All of it.


def run_zone_files(count: int, tally: Tally, public: list[Path]) -> None:
    """Zone files beside named-compilezone."""
    texts = [
        (f"zone file {number}", ZONE, zone_file(random.Random(number), of_gdnsd=False))
        for number in range(count)
    ]
    texts += [
        (str(path), path.name.removesuffix(".").removesuffix(".tst"), path.read_text()) for path in public
    ]
    for where, zone, text in texts:
        expected = compiled(text, zone)
        _one(where, "zonefile", text, expected, tally, zone=zone)


def _one(
    where: str, kind: str, text: str, expected: Answers | None, tally: Tally, *, zone: str = ZONE
) -> ImportedDraft | None:
    """Compare what is made of a file; `expected` is None where its own system refuses it."""
    tally.counts["files"] += 1
    try:
        made = read_all(kind, text, zone)
    except ImportProblem:
        made = None
    if made is None or expected is None:
        tally.counts["refused"] += 1
        return None
    compare(where, made, expected, tally)
    return made


def run_octodns(count: int, tally: Tally, public: list[Path]) -> None:
    """Files beside octoDNS's provider."""
    with tempfile.TemporaryDirectory() as folder:
        made = []
        for number in range(count):
            path = Path(folder, f"{number}.yaml")
            path.write_text(octodns_file(random.Random(number)))
            made.append((path, ZONE))
        made += [(path, path.name.removesuffix(".yaml")) for path in public]
        for zone in dict.fromkeys(zone for _, zone in made):
            provider = OctoDNS(zone)
            for path, of in made:
                if of != zone:
                    continue
                records = provider.records(path)
                expected = None if isinstance(records, str) else answers_of_octodns(records, zone)
                _one(str(path), "octodns", path.read_text(), expected, tally, zone=zone)
            provider.close()


def run_route53(count: int, tally: Tally) -> None:
    """Files beside the model."""
    for number in range(count):
        document = route53_file(random.Random(number))
        expected, weights = answers_of_route53(document)
        made = _one(f"Route 53 {number}", "route53", json.dumps(document, indent=1), expected, tally)
        if made is not None:
            compare_weights(f"Route 53 {number}", made, weights, tally)


def run_gdnsd(count: int, tally: Tally, public: list[Path]) -> None:
    """Files beside a gdnsd that has a zone of each; public ones, each beside one of its own."""
    texts = {
        f"z{number}.test": gdnsd_file(random.Random(number), f"z{number}.test") for number in range(count)
    }
    for several in (texts, *({path.name: path.read_text()} for path in public)):
        with tempfile.TemporaryDirectory() as folder:
            server = Gdnsd(Path(folder), several)
            try:
                for zone, text in several.items():
                    tally.counts["files"] += 1
                    made = read_all("gdnsd", text, zone, server.config)
                    compare_with_gdnsd(f"gdnsd {zone}", made, names_in(made), server, tally)
            finally:
                server.close()


def main(arguments: list[str]) -> int:
    """Print what was compared by kind."""
    count = int(arguments[0]) if arguments else 40
    folder = Path(arguments[1]) if len(arguments) > 1 else None
    public = {
        kind: sorted(folder.glob(f"{kind}/*")) if folder else []
        for kind in ("octodns", "zonefile", "gdnsd/*")
    }
    silent = 0
    for kind, run in {
        "zone files": lambda tally: run_zone_files(count, tally, public["zonefile"]),
        "octoDNS": lambda tally: run_octodns(count, tally, public["octodns"]),
        "Route 53": lambda tally: run_route53(count, tally),
        "gdnsd": lambda tally: run_gdnsd(count, tally, public["gdnsd/*"]),
    }.items():
        tally = Tally()
        run(tally)
        print(f"{kind}: {tally}", flush=True)
        print("\n".join(tally.silent[:20]))
        silent += len(tally.silent)
    return int(silent > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
