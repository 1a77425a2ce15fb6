"""Zones and steering of other systems, imported: what is taken over answers the same, and nothing is dropped in silence."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import dns.message
import dns.name
import dns.rdatatype
import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from gtm.documents import yamls
from gtm.documents.folders import check_references, load_folder, read_folder
from gtm.documents.imports import gdnsd, octodns, route53
from gtm.documents.imports.parts import ImportedPool, ImportedZone, ImportProblem, joined, paired
from gtm.documents.imports.policy import ImportedDraft, draft, zone_name
from gtm.documents.imports.render import files
from tests.dns.world import answerer, query

ZONE = "example.com"

OCTODNS = r"""
'':
  - {type: NS, values: [ns1.example.com., ns2.other.net.]}
  - {type: MX, ttl: 300, values: [{preference: 10, exchange: mail.example.com.}, {priority: 20, value: mail2.example.com.}]}
  - {type: TXT, values: [v=spf1 -all, "with \\; and \" and é"]}
  - {type: CAA, value: {flags: 0, tag: issue, value: letsencrypt.org}}
  - {type: ALIAS, value: lb.example.net.}
ns1: {type: A, value: 192.0.2.53}
mail: {type: A, values: [192.0.2.5, 192.0.2.6]}
_sip._tcp: {type: SRV, value: {priority: 1, weight: 2, port: 5060, target: mail.example.com.}}
docs: {type: CNAME, ttl: 0, value: mail.example.com.}
'*.dev': {type: A, value: 192.0.2.44}
geo: {type: A, geo: {NA-US: [192.0.2.1], EU: [192.0.2.2]}, values: [192.0.2.3]}
www:
  - type: A
    ttl: 60
    octodns: {healthcheck: {host: www.example.com, path: /up, protocol: HTTPS, port: 443}}
    values: [192.0.2.9]
    dynamic:
      pools:
        us: {fallback: eu, values: [{value: 192.0.2.1, weight: 2}, {value: 192.0.2.11}]}
        eu: {values: [{value: 192.0.2.2}]}
        spare: {values: [{value: 192.0.2.7}]}
      rules: [{geos: [NA], pool: us}, {pool: eu}]
  - type: AAAA
    ttl: 60
    dynamic:
      pools: {us: {values: [{value: "2001:db8::1"}]}}
      rules: [{pool: us}]
"""

ROUTE53 = json.dumps(
    {
        "ResourceRecordSets": [
            {"Name": "example.com.", "Type": "SOA", "TTL": 900}
            | {"ResourceRecords": [{"Value": "ns-1.awsdns.org. host.amazon.com. 1 7200 900 1209600 86400"}]},
            {
                "Name": "example.com.",
                "Type": "NS",
                "TTL": 3600,
                "ResourceRecords": [{"Value": "ns-1.awsdns.org."}],
            },
            {"Name": "example.com.", "Type": "A", "AliasTarget": {"DNSName": "lb.amazonaws.com."}},
            {"Name": "cdn.example.com.", "Type": "A", "AliasTarget": {"DNSName": "d1.cloudfront.net."}},
            {"Name": "cdn.example.com.", "Type": "AAAA", "AliasTarget": {"DNSName": "d1.cloudfront.net."}},
            {"Name": "\\052.dev.example.com.", "Type": "CNAME", "TTL": 300}
            | {"ResourceRecords": [{"Value": "mail.example.com"}]},
            {
                "Name": "txt.example.com.",
                "Type": "TXT",
                "TTL": 300,
                "ResourceRecords": [{"Value": '"a\\344"'}],
            },
            *(
                {"Name": f"{name}.example.com.", "Type": "A", "TTL": 60, "SetIdentifier": label, **how}
                | {"ResourceRecords": [{"Value": value}]}
                for name, label, value, how in (
                    ("latency", "eu", "192.0.2.1", {"Region": "eu-central-1", "HealthCheckId": "x"}),
                    ("latency", "us", "192.0.2.2", {"Region": "us-east-1"}),
                    ("weighted", "blue", "192.0.2.3", {"Weight": 10}),
                    ("weighted", "green", "192.0.2.4", {"Weight": 0}),
                    ("failover", "second", "192.0.2.5", {"Failover": "SECONDARY"}),
                    ("failover", "first", "192.0.2.6", {"Failover": "PRIMARY"}),
                    ("geo", "germany", "192.0.2.7", {"GeoLocation": {"CountryCode": "DE"}}),
                    ("geo", "rest", "192.0.2.8", {"GeoLocation": {"CountryCode": "*"}}),
                )
            ),
        ]
    }
)

GDNSD = """
$TTL 86400
@       SOA ns1 hostmaster (
        1 7200 30M 3D 900 )
@       NS ns1
ns1     A 192.0.2.53
www 300/30 DYNA geoip!prod_www ; comment
api     DYNA weighted!api
        TXT "beside it"
fo      DYNC simplefo!cn
mail.@Z A 192.0.2.5
txt TXT "has ; semicolon" "two"
$ADDR_LIMIT_V4 3
nope    DYNA other!thing
"""

CONFIG = """
options => { listen => [ 127.0.0.1, ::1 ] } # where
service_types => { web => { plugin => http_status, port => 80, url_path => "/a\\"b" } }
plugins => {
  geoip => {
    maps => { prod => {
      datacenters => [ us, eu ],
      auto_dc_coords => { us => [ 38.9, -77 ], eu => [ 50.1, 8.7 ] },
      map => { EU => [ eu, us ], default => [ us, eu ] },
    } }
    resources => {
      prod_www => { map => prod, service_types => web, dcmap => { us => 192.0.2.1, eu => [ 192.0.2.2, 2001:db8::2 ] } }
    }
  }
  weighted => { api => { lb1 => [ 192.0.2.10, 90 ], lb2 => [ 192.0.2.11, 10 ] } }
  simplefo => { cn => { primary => a.example.net., secondary => b.example.net. } }
}
"""


def _written(folder: Path, made: ImportedDraft, **replaced: str) -> Path:
    """The folder of a draft; `replaced` are files with other texts, empty for none at all."""
    for name, text in (
        files(made, "a test") | {f"{key}.yaml": text for key, text in replaced.items()}
    ).items():
        if text:
            (folder / name).write_text(text)
    return folder


SOURCES = {
    "octodns": (lambda: octodns.read(OCTODNS)),
    "route53": (lambda: route53.read(ROUTE53)),
    "gdnsd": (lambda: gdnsd.read(GDNSD, ZONE, CONFIG)),
}
PLAIN = {
    "octodns": {
        ("example.com", "MX"): {"10 mail.example.com.", "20 mail2.example.com."},
        ("example.com", "TXT"): {'"v=spf1 -all"', '"with ; and \\" and \\195\\169"'},
        ("example.com", "CAA"): {'0 issue "letsencrypt.org"'},
        ("example.com", "NS"): {"ns1.example.com.", "ns2.other.net."},
        ("ns1.example.com", "A"): {"192.0.2.53"},
        ("mail.example.com", "A"): {"192.0.2.5", "192.0.2.6"},
        ("_sip._tcp.example.com", "SRV"): {"1 2 5060 mail.example.com."},
        ("docs.example.com", "CNAME"): {"mail.example.com."},
        ("any.dev.example.com", "A"): {"192.0.2.44"},
    },
    "route53": {
        ("example.com", "NS"): {"ns-1.awsdns.org."},
        ("cdn.example.com", "CNAME"): {"d1.cloudfront.net."},
        ("any.dev.example.com", "CNAME"): {"mail.example.com."},
        ("txt.example.com", "TXT"): {'"a\\228"'},
    },
    "gdnsd": {
        ("example.com", "NS"): {"ns1.example.com."},
        ("ns1.example.com", "A"): {"192.0.2.53"},
        ("mail.example.com", "A"): {"192.0.2.5"},
        ("txt.example.com", "TXT"): {'"has ; semicolon" "two"'},
        ("api.example.com", "TXT"): {'"beside it"'},
    },
}
"""What each source says to everyone, read by hand."""


@pytest.mark.parametrize("kind", SOURCES)
def test_zones_answer_what_they_answered(kind: str, tmp_path: Path) -> None:
    """What is the same for everyone is answered by gtm's DNS as the source says, name by name."""
    made = draft(ZONE, SOURCES[kind]())
    zones = files(made, "a test")["zones.yaml"].replace(
        "    # hostmaster:", "    hostmaster: host.example.com #"
    )
    (tmp_path / "zones.yaml").write_text(zones)
    server = answerer(policy=load_folder(tmp_path))
    for (name, rdtype), data in PLAIN[kind].items():
        reply = server.answer(query(name, rdtype), "10.0.0.1", tcp=True, draw=0.5)
        assert reply is not None
        message = dns.message.from_wire(reply)
        wanted = dns.rdatatype.from_text(rdtype)
        found = {rdata.to_text() for rrset in message.answer for rdata in rrset if rrset.rdtype == wanted}
        assert found == data, (name, rdtype)


@pytest.mark.parametrize("kind", SOURCES)
def test_what_is_not_known_is_asked_for(kind: str, tmp_path: Path) -> None:
    """A fresh import fails the check, for nothing but the facts that the source does not have; each is one problem."""
    made = draft(ZONE, SOURCES[kind]())
    problems = read_folder(_written(tmp_path, made)).problems
    assert {problem.code for problem in problems} == {"missing"}
    asked = {problem.path.rpartition(".")[2] for problem in problems}
    assert asked == {"country", "lat", "lon", "url"} | ({"hostmaster"} if kind == "octodns" else set())
    known = sum(pool.lat is not None for _, pool in made.regions)
    assert len(problems) == 4 * len(made.regions) - 2 * known + (kind == "octodns")


def _services(made: ImportedDraft) -> dict[str, tuple[str, list[dict[str, Any]]]]:
    return {item["name"]: (item["steering"], item["members"]) for item, _ in made.services}


def test_pools_of_octodns() -> None:
    """Rules and fallbacks give the order, both families are one region, the health check is a probe."""
    made = draft(ZONE, octodns.read(OCTODNS))
    assert _services(made) == {
        "geo": ("geo", [{"region": "na-us"}, {"region": "eu"}, {"region": "default"}]),
        "www": ("geo", [{"region": "us"}, {"region": "eu"}]),
    }
    regions = dict(made.regions)
    assert (regions["us"].ipv4, regions["us"].ipv6) == (("192.0.2.1", "192.0.2.11"), ("2001:db8::1",))
    assert regions["us"].probe == {"type": "https", "port": 443, "path": "/up", "host": "www.example.com"}
    said = "\n".join(note.said("zone") for note in made.notes)
    for what in ("ALIAS", "`spare`", "`us`: the weights in the pool", "192.0.2.9", "TTL of 0 s"):
        assert what in said


def test_sets_of_route53() -> None:
    """Each routing policy has its steering: weights stay, the primary is first, aliases that DNS cannot tell are said."""
    made = draft(ZONE, route53.read(ROUTE53))
    assert _services(made) == {
        "latency": ("latency", [{"region": "eu"}, {"region": "us"}]),
        "weighted": ("weighted", [{"region": "blue", "weight": 10.0}, {"region": "green", "weight": 0.0}]),
        "failover": ("failover", [{"region": "first"}, {"region": "second"}]),
        "geo": ("geo", [{"region": "germany"}, {"region": "rest"}]),
    }
    said = "\n".join(note.said("zone") for note in made.notes)
    for what in (
        "example.com. A (for lb.amazonaws.com.): not taken over: an alias",
        "health check",
        "residency_rules",
        "cdn.example.com.",
    ):
        assert what in said


def test_resources_of_gdnsd() -> None:
    """Datacenters with their coordinates, weights, the order of failover, a shorter TTL's longer half."""
    made = draft(ZONE, gdnsd.read(GDNSD, ZONE, CONFIG))
    assert _services(made) == {
        "www": ("geo", [{"region": "us"}, {"region": "eu"}]),
        "api": ("weighted", [{"region": "lb1", "weight": 90.0}, {"region": "lb2", "weight": 10.0}]),
        "fo": ("failover", [{"region": "primary"}, {"region": "secondary"}]),
    }
    regions = dict(made.regions)
    assert (regions["eu"].lat, regions["eu"].lon) == (50.1, 8.7)
    assert (regions["eu"].ipv4, regions["eu"].ipv6) == (("192.0.2.2",), ("2001:db8::2",))
    assert regions["primary"].cnames == ("a.example.net",)
    assert made.services[0][0]["ttl"] == 300
    said = "\n".join(note.said("zone") for note in made.notes)
    for what in ("$ADDR_LIMIT_V4", "countries and networks", "service_types web", "other!thing"):
        assert what in said
    assert any("--config" in note.why for note in gdnsd.read(GDNSD, ZONE).notes)


@pytest.mark.parametrize("kind", SOURCES)
def test_filled_in_it_is_a_policy(kind: str, tmp_path: Path) -> None:
    """With what the comments ask for, and a refusal address, the folder is sound, and its services are compiled."""
    texts = files(draft(ZONE, SOURCES[kind]()), "a test")
    regions = texts["regions.yaml"].replace("# country:", "country: DE #").replace("# lat:", "lat: 50 #")
    for number in range(regions.count("# url:")):
        regions = regions.replace("# url:", f'url: "https://r{number}.example.net" #', 1)
    texts["regions.yaml"] = regions.replace("# lon:", "lon: 8 #")
    texts["zones.yaml"] = texts["zones.yaml"].replace("# hostmaster:", "hostmaster: host.example.com #")
    texts["services.yaml"] = texts["services.yaml"].replace(
        "# refusal:", 'refusal: {ipv4: [192.0.2.99], ipv6: ["2001:db8::99"]} #'
    )
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    problems, snapshot = check_references(read_folder(tmp_path))
    assert problems == []
    assert snapshot is not None
    assert snapshot.services


def test_broken_files_are_problems() -> None:
    """What cannot be read is one problem that says where."""
    for text, where in (("a: [", "line"), ("- a", "mapping"), ("a: 1\na: 2", "twice")):
        with pytest.raises(ImportProblem, match=where):
            octodns.read(text)
    for text in ("{", "[]", '{"ResourceRecordSets": 1}', "[" * 100_000):
        with pytest.raises(ImportProblem):
            route53.read(text)
    for text in ("$INCLUDE /etc/passwd", "$GENERATE 1-9999999999 a$ A 192.0.2.1", "www A nonsense", "a A"):
        with pytest.raises(ImportProblem):
            gdnsd.read(text, ZONE)
    for text in (
        "a => ",
        "a => [ b",
        "a => { b => c",
        "=> b",
        'a => "b',
        "a => b }",
        "$include{x}",
        "a => " + "[" * 99,
    ):
        with pytest.raises(ImportProblem):
            gdnsd.load_vscf(text)
    with pytest.raises(ImportProblem, match="name of a zone"):
        zone_name("no zone")


def _sound(source: ImportedZone) -> None:
    """Whatever was read becomes files that the policy's own reader understands, text for text."""
    made = draft(ZONE, source)
    texts = files(made, "a test")
    (zones,) = yamls.load(texts["zones.yaml"])
    assert [record["data"] for record in zones["zones"][0].get("records", [])] == [
        record["data"] for record in made.zone["records"]
    ]
    if made.services:
        (services,) = yamls.load(texts["services.yaml"])
        assert [item["name"] for item in services["services"]] == [item["name"] for item, _ in made.services]
        (regions,) = yamls.load(texts["regions.yaml"])
        assert [item["name"] for item in regions["regions"]] == [name for name, _ in made.regions]


_WORDS = st.one_of(
    st.sampled_from(
        [
            "A",
            "AAAA",
            "CNAME",
            "TXT",
            "MX",
            "NS",
            "192.0.2.1",
            "2001:db8::1",
            "a.example.com.",
            "*",
            "@",
            "",
            "www",
            "\\;",
        ]
    ),
    st.integers(-5, 2**40),
    st.booleans(),
    st.none(),
    st.text(max_size=12),
)
_OCTODNS_KEYS = st.sampled_from(
    [
        "type",
        "ttl",
        "value",
        "values",
        "dynamic",
        "pools",
        "rules",
        "pool",
        "geos",
        "fallback",
        "geo",
        "octodns",
        "healthcheck",
        "preference",
        "exchange",
        "us",
        "port",
    ]
)
_ROUTE53_KEYS = st.sampled_from(
    [
        "Name",
        "Type",
        "TTL",
        "ResourceRecords",
        "Value",
        "SetIdentifier",
        "Weight",
        "Region",
        "Failover",
        "GeoLocation",
        "AliasTarget",
        "DNSName",
    ]
)


def _trees(keys: st.SearchStrategy[str]) -> st.SearchStrategy[Any]:
    return st.recursive(
        _WORDS,
        lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(keys, inner, max_size=6)),
        max_leaves=15,
    )


_MAPPED = st.dictionaries(_OCTODNS_KEYS, _trees(_OCTODNS_KEYS), max_size=6)


@given(
    st.dictionaries(
        st.one_of(st.sampled_from(["", "www", "*.a", "_x"]), st.text(max_size=8)),
        _MAPPED.flatmap(
            lambda tree: st.sampled_from(["A", "CNAME", "TXT", "MX"]).map(lambda kind: {**tree, "type": kind})
        ),
        max_size=3,
    )
)
@example({"a": {"type": "A", "dynamic": {"pools": {"a": {"fallback": "a"}}, "rules": [{"pool": "a"}]}}})
def test_no_octodns_file_breaks_the_reader(tree: dict[str, Any]) -> None:
    """Whatever stands in a field: an import, or a problem."""
    try:
        source = octodns.read(yaml.safe_dump(tree, allow_unicode=True))
    except ImportProblem:
        return
    _sound(source)


_SET = st.fixed_dictionaries(
    {
        "Name": st.sampled_from(
            ["www.example.com.", "example.com.", "\\052.example.com", "x.test.", "\\377."]
        ),
        "Type": st.sampled_from(["A", "AAAA", "CNAME", "TXT", "SOA", "nonsense"]),
    },
    optional={
        "TTL": _WORDS,
        "SetIdentifier": _WORDS,
        "Weight": _WORDS,
        "Region": _WORDS,
        "Failover": _WORDS,
        "GeoLocation": _trees(_ROUTE53_KEYS),
        "AliasTarget": st.one_of(_WORDS, st.fixed_dictionaries({"DNSName": _WORDS})),
        "ResourceRecords": st.one_of(
            _trees(_ROUTE53_KEYS), st.lists(st.fixed_dictionaries({"Value": _WORDS}), max_size=3)
        ),
    },
)


@given(
    st.one_of(
        _trees(_ROUTE53_KEYS), st.fixed_dictionaries({"ResourceRecordSets": st.lists(_SET, max_size=4)})
    )
)
def test_no_route53_file_breaks_the_reader(tree: Any) -> None:
    """Whatever stands in a field: an import, or a problem."""
    try:
        source = route53.read(json.dumps(tree))
    except ImportProblem:
        return
    _sound(source)


_PIECES = st.sampled_from(
    [
        "=>",
        "{",
        "}",
        "[",
        "]",
        ",",
        '"',
        "\\",
        "#",
        "\n",
        " ",
        "geoip",
        "weighted",
        "resources",
        "maps",
        "dcmap",
        "lb",
    ]
)
_LINES = st.one_of(st.sampled_from([*GDNSD.splitlines(), *CONFIG.splitlines()]), st.text(max_size=20))


@given(st.lists(st.one_of(_PIECES, st.text(max_size=4)), max_size=30).map("".join))
def test_no_configuration_breaks_the_reader(text: str) -> None:
    """Any text is a mapping, or a problem."""
    try:
        assert isinstance(gdnsd.load_vscf(text), dict)
    except ImportProblem:
        return


@given(st.lists(_LINES, max_size=12).map("\n".join), st.lists(_LINES, max_size=12).map("\n".join))
def test_no_zone_file_breaks_the_reader(zone: str, config: str) -> None:
    """Any lines, known ones among them, with the whole configuration or a torn one: an import, or a problem."""
    for settings in (CONFIG, config):
        try:
            source = gdnsd.read(zone, ZONE, settings)
        except ImportProblem:
            continue
        _sound(source)


@given(
    st.recursive(
        st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    [
                        "maps",
                        "resources",
                        "m",
                        "map",
                        "datacenters",
                        "auto_dc_coords",
                        "a",
                        "b",
                        "dcmap",
                        "service_types",
                        "addrs_v4",
                    ]
                ),
                inner,
                max_size=4,
            )
        ),
        max_leaves=20,
    )
)
def test_no_plugin_settings_break_the_reader(tree: Any) -> None:
    """Settings of any shape behind a name: an import with notes."""

    def text(value: Any) -> str:
        if isinstance(value, dict):
            return "{" + ", ".join(f"{key} => {text(item)}" for key, item in value.items()) + "}"
        if isinstance(value, list):
            return "[" + ", ".join(map(text, value)) + "]"
        return '"' + "".join(char if char.isalnum() else f"\\{ord(char) % 256:03d}" for char in value) + '"'

    for plugin in ("geoip", "metafo", "weighted", "multifo", "simplefo", "static"):
        nested = f"{{ maps => {text(tree)}, resources => {{ a => {text(tree)} }}, a => {text(tree)} }}"
        _sound(gdnsd.read(f"www DYNA {plugin}!a", ZONE, f"plugins => {{ {plugin} => {nested} }}"))


def test_what_is_too_much_is_refused() -> None:
    """Files, sets of records and steered names have bounds."""
    with pytest.raises(ImportProblem, match="MiB"):
        gdnsd.load_vscf("a" * (10 * 1024 * 1024 + 1))
    (steered,) = octodns.read("a: {type: A, geo: {EU: [192.0.2.1]}, values: [192.0.2.2]}").steered
    with pytest.raises(ImportProblem, match="steered"):
        draft(ZONE, ImportedZone(steered=[replace(steered, name=f"n{number}") for number in range(1_001)]))


def test_a_steered_name_keeps_its_other_family() -> None:
    """Of a name that is steered for one family, addresses of the other are a pool beside: the same for everyone."""
    made = draft(
        ZONE, gdnsd.read("www DYNA weighted!api\n    60 AAAA 2001:db8::1\n    TXT x\n", ZONE, CONFIG)
    )
    assert [(record["name"], record["type"]) for record in made.zone["records"]] == [("www", "TXT")]
    ((service, _),) = made.services
    assert (service["families"], service["ttl"]) == ("separate", 60)
    regions = dict(made.regions)
    assert [regions[item["region"]].ipv6 for item in service["members"]] == [(), (), ("2001:db8::1",)]
    made = draft(ZONE, gdnsd.read("www DYNA weighted!api\n    TXT x\n", ZONE, CONFIG))
    assert made.services[0][0]["ttl"] == 86_400  # gdnsd's default, where the file says none
    assert "families" not in made.services[0][0]


def _pools(four: str, six: str) -> list[ImportedPool]:
    """Pools of both types, `label:weight` each."""
    return [
        ImportedPool(label, weight=float(weight or 1), **{family: (address + label,)})  # type: ignore[arg-type]
        for text, family, address in ((four, "ipv4", "4"), (six, "ipv6", "6"))
        for label, _, weight in (item.partition(":") for item in text.split())
    ]


@pytest.mark.parametrize(
    ("four", "six", "ordered", "regions", "separate"),
    [
        ("a b", "a b", True, "a:46 b:46", False),
        ("a b", "b a", False, "a:46 b:46", False),
        ("a b", "b a", True, "a-ipv4:4 b-ipv4:4 b-ipv6:6 a-ipv6:6", True),
        ("a b", "", True, "a:4 b:4", False),
        ("a b", "a", True, "a:46 b:4", True),
        ("a b c", "x a y c", True, "x:6 a:46 b:4 y:6 c:46", True),
        ("a:90 b:10", "a:90 b:10", False, "a:46 b:46", False),
        ("a:90 b:10", "a:10 b:90", False, "a-ipv4:4 b-ipv4:4 a-ipv6:6 b-ipv6:6", True),
        ("a4 b4", "a6 b6", True, "a4:4 b4:4 a6:6 b6:6", True),
    ],
)
def test_pools_of_two_families(four: str, six: str, ordered: bool, regions: str, separate: bool) -> None:
    """Where A and AAAA agree they are one region; where they differ each keeps its own pools, weights and order."""
    made, apart = paired(_pools(four, six), ordered=ordered)
    told = [f"{pool.label}:{'4' * bool(pool.ipv4)}{'6' * bool(pool.ipv6)}" for pool in made]
    assert (" ".join(told), apart) == (regions, separate)


@given(
    st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from([1.0, 2.0])), unique_by=lambda item: item[0]),
    st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from([1.0, 2.0])), unique_by=lambda item: item[0]),
    st.booleans(),
)
def test_no_pool_of_a_family_is_lost(
    four: list[tuple[str, float]], six: list[tuple[str, float]], ordered: bool
) -> None:
    """Each family has the addresses that it had, with their weights, and where that decides in their order."""
    asked = [ImportedPool(label, ipv4=(label,), weight=weight) for label, weight in four]
    asked += [ImportedPool(label, ipv6=(label,), weight=weight) for label, weight in six]
    made, separate = paired(asked, ordered=ordered)
    for family, given_ in (("ipv4", four), ("ipv6", six)):
        kept = [(getattr(pool, family)[0], pool.weight) for pool in made if getattr(pool, family)]
        assert kept == given_ if ordered else sorted(kept) == sorted(given_)
    one_each = all(bool(pool.ipv4) == bool(pool.ipv6) for pool in made)
    assert separate is (bool(four and six) and not one_each)
    assert len({pool.label for pool in made}) == len(made)


def test_pools_of_two_families_in_every_source() -> None:
    """Sets of A and AAAA that share a name and differ become a service with two pools, whatever the source."""
    sets = [
        {
            "Name": "w.example.com.",
            "Type": kind,
            "SetIdentifier": f"{label}-{kind}",
            "Weight": weight,
            "TTL": 60,
        }
        | {"ResourceRecords": [{"Value": value}]}
        for kind, label, weight, value in (
            ("A", "blue", 90, "192.0.2.1"),
            ("A", "green", 10, "192.0.2.2"),
            ("AAAA", "blue", 90, "2001:db8::1"),
            ("AAAA", "green", 10, "2001:db8::2"),
        )
    ]
    dynamic = "{{type: {kind}, dynamic: {{pools: {{{pool}: {{values: [{{value: '{value}'}}]}}}}, rules: [{{pool: {pool}}}]}}}}"
    yaml = "w: [{}, {}]".format(
        dynamic.format(kind="A", pool="four", value="192.0.2.1"),
        dynamic.format(kind="AAAA", pool="six", value="2001:db8::1"),
    )
    config = "plugins => { weighted => { w => { addrs_v4 => { a => [ 192.0.2.1, 9 ] }, addrs_v6 => { b => [ 2001:db8::1, 9 ] } } } }"
    for source in (
        route53.read(json.dumps({"ResourceRecordSets": sets})),
        octodns.read(yaml),
        gdnsd.read("w DYNA weighted!w\n", ZONE, config),
    ):
        made = draft(ZONE, source)
        ((service, _),) = made.services
        assert service["families"] == "separate"
        regions = dict(made.regions)
        members = [regions[item["region"]] for item in service["members"]]
        assert all(bool(pool.ipv4) != bool(pool.ipv6) for pool in members)


def test_pools_are_one_region_only_if_they_answer_alike() -> None:
    """Pools of one label are one region where they answer the same, and two where they do not."""
    text = "{n}: {{type: A, geo: {{EU: [{eu}]}}, values: [192.0.2.9]}}\n"
    pairs = (("a", "192.0.2.1"), ("b", "192.0.2.1"), ("c", "192.0.2.2"))
    made = draft(ZONE, octodns.read("".join(text.format(n=name, eu=address) for name, address in pairs)))
    members = {item["name"]: item["members"][0]["region"] for item, _ in made.services}
    assert members == {"a": "eu", "b": "eu", "c": "eu-c"}
    assert dict(made.regions)["eu-c"].ipv4 == ("192.0.2.2",)


def test_name_servers_keep_their_ttl() -> None:
    """The zone's TTL is that of its NS records, which is what it is for in a policy."""
    made = draft(ZONE, octodns.read("'': {type: NS, ttl: 1234, values: [ns1.example.net.]}"))
    assert made.zone["ttl"] == 1_234


def test_what_dnspython_reads_in_the_square_of_its_length_is_refused() -> None:
    """Sets of thousands of records, and names of zero bytes; many sets and many labels are read."""
    head = "@ SOA ns1 hostmaster ( 1 2 3 4 5 )\n@ NS ns1\n"
    many = "".join(f"a A 10.0.{number >> 8}.{number & 255}\n" for number in range(1001))
    with pytest.raises(ImportProblem, match="more than 1000 records of one type"):
        gdnsd.read(head + many, "demo.test")
    assert len(gdnsd.read(head + many[: many.rindex("a A")], "demo.test").plains[-1].data) == 1000
    for name in ("\\000", "\\000\\000.\\000"):
        with pytest.raises(ImportProblem, match="a label of zero bytes"):
            gdnsd.read(f"{head}{name} A 192.0.2.1\n", "demo.test")
    assert gdnsd.read(f'{head}a\\000 TXT "\\000"\n', "demo.test").plains


def test_sets_of_one_label_are_joined_once() -> None:
    """Of Route 53 and octoDNS: answers and hints of all, in their order."""
    made = joined(
        [
            ImportedPool("a", ("192.0.2.1",), hints=("x",)),
            ImportedPool("b", cnames=("c.",)),
            ImportedPool("a", ("192.0.2.2",), ("2001:db8::1",), hints=("x", "y"), probe={"type": "tcp"}),
        ]
    )
    assert made == (
        ImportedPool(
            "a", ("192.0.2.1", "192.0.2.2"), ("2001:db8::1",), hints=("x", "y"), probe={"type": "tcp"}
        ),
        ImportedPool("b", cnames=("c.",)),
    )
