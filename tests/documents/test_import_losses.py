"""The law of importers: each value of the source is in the policy with the same meaning, or in the report with its line."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gtm.documents.imports import gdnsd, octodns, route53
from gtm.documents.imports.parts import ImportedZone, ImportProblem, Note, report
from gtm.documents.imports.policy import ImportedDraft, draft
from tests.drills.imports import Tally, run_route53

ZONE = "example.com"
SOA = "@ 900 SOA ns1 hostmaster ( 1 7200 900 1209600 86400 )\n@ NS ns1.example.net.\n"


def _made(source: ImportedZone) -> ImportedDraft:
    return draft(ZONE, source)


def _records(made: ImportedDraft) -> dict[tuple[str, str], tuple[Any, list[str]]]:
    return {(item["name"], item["type"]): (item.get("ttl"), item["data"]) for item in made.zone["records"]}


def _lost(made: ImportedDraft) -> list[tuple[int, str]]:
    """Lines, and what is lost there."""
    return [(note.line, f"{note.what}: {note.why}") for note in made.notes if note.lost]


def _route53(*sets: dict[str, Any], **more: Any) -> str:
    return json.dumps({"ResourceRecordSets": list(sets), **more}, indent=1)


def _set(name: str, rdtype: str, *values: str, **more: Any) -> dict[str, Any]:
    records = [{"Value": value} for value in values]
    return {"Name": f"{name}example.com.", "Type": rdtype, "TTL": 60, "ResourceRecords": records, **more}


def test_route53_answers_as_its_guide_says() -> None:
    """Generated zones beside a model of the developer guide: escapes, negative TTL, weights, all of which may be 0."""
    tally = Tally()
    run_route53(6, tally)
    assert tally.silent == []
    assert tally.counts["questions"] > 50


def test_negative_answers_are_kept_as_long_as_they_were() -> None:
    """The lesser of the SOA's TTL and its MINIMUM (RFC 2308 §5), whichever it is, and the SOA's own TTL is told."""
    for ttl, minimum, kept in ((900, 86_400, 900), (86_400, 60, 60), (172_800, 172_800, 86_400)):
        soa = _set("", "SOA", f"ns-1.example.net. h.example.com. 7 7200 900 1209600 {minimum}", TTL=ttl)
        made = _made(route53.read(_route53(soa, _set("", "NS", "ns-1.example.net.", TTL=172_800))))
        assert made.zone["minimum"] == kept
        assert min(made.zone["ttl"], made.zone["minimum"]) == kept
    assert _made(gdnsd.read_plain(SOA, ZONE)).zone["minimum"] == 900


def test_defaults_of_ttls_are_those_of_who_serves_the_file() -> None:
    """BIND: the SOA's MINIMUM or the last TTL, where there is no $TTL; gdnsd: its option; octoDNS: 3600, which is told.

    As barnybug/cli53 issue 102, where an import gave all records without a TTL one of 0.
    """
    text = "@ SOA ns1 h ( 1 2 3 4 300 )\na A 192.0.2.1\nb 60 A 192.0.2.1\nc A 192.0.2.1\n"
    for given, read, wanted in (
        (text, gdnsd.read_plain, (300, 60, 300)),
        (text.replace("SOA", "900 SOA"), gdnsd.read_plain, (900, 60, 60)),
        (f"$TTL 1h\n{text}", gdnsd.read_plain, (3600, 60, 3600)),
        (text, gdnsd.read, (86_400, 60, 86_400)),
        (
            text,
            lambda one, zone: gdnsd.read(one, zone, "options => { zones_default_ttl => 120 }"),
            (120, 60, 120),
        ),
    ):
        records = _records(_made(read(given, ZONE)))
        assert tuple(records[name, "A"][0] for name in "abc") == wanted
    made = _made(octodns.read("a: {type: A, value: 192.0.2.1}"))
    assert _records(made)["a", "A"][0] == 3600
    assert any("default_ttl" in note.why and not note.lost for note in made.notes)


def test_ttls_are_those_that_are_answered() -> None:
    """Of gdnsd, its bounds on TTLs and negative answers; of a set with two TTLs the first, which for BIND was then stated last."""
    text = "@ 86400 SOA ns1 h ( 1 2 3 4 86400 )\na 1 A 192.0.2.1\n"
    made = _made(gdnsd.read(text, ZONE))
    assert (made.zone["minimum"], _records(made)["a", "A"][0]) == (10_800, 5)
    made = _made(gdnsd.read(text, ZONE, "options => { min_ttl => 9, max_ttl => 99, max_ncache_ttl => 60 }"))
    assert (made.zone["minimum"], _records(made)["a", "A"][0]) == (60, 9)
    assert {note.what for note in made.notes} >= {"a.example.com. A (TTL of 1 s)", "SOA (TTL of 86400 s)"}
    made = _made(gdnsd.read_plain(f"{SOA}a 60 A 192.0.2.1\na 300 A 192.0.2.2\nb A 192.0.2.3\n", ZONE))
    assert [_records(made)[name, "A"][0] for name in "ab"] == [60, 60]


def test_names_outside_of_the_zone_are_told() -> None:
    """They are passed over by dnspython without a word, and were by gtm.

    As PowerDNS/pdns issue 604, and desec-io/desec-stack pull request 601, whose users could not know what was skipped.
    """
    text = f"{SOA}$ORIGIN sub\nin A 192.0.2.1\nexample.org. A 192.0.2.2\n"
    for made in (_made(gdnsd.read(text, ZONE)), _made(gdnsd.read_plain(text, ZONE))):
        assert _lost(made) == [(5, "example.org. A: not taken over: not in the zone `example.com`")]
        assert ("in.sub", "A") in _records(made)


def test_a_file_that_is_one_page_of_several_says_so() -> None:
    """Both ways in which Route 53's API and the AWS command line say that there is more."""
    for more in (
        {"IsTruncated": True, "NextRecordName": "b.example.com."},
        {"NextToken": "eyJ"},
        {"IsTruncated": True},
    ):
        (found,) = _lost(_made(route53.read(_route53(_set("a.", "A", "192.0.2.1"), **more))))
        assert "truncated" in found[1]
    assert (
        _lost(_made(route53.read(_route53(_set("a.", "A", "192.0.2.1"), IsTruncated=False, MaxItems="100"))))
        == []
    )


def test_yaml_is_read_as_octodns_reads_it() -> None:
    """By YAML 1.1, in names and values; what is no text there is told with what it is."""
    text = "1e3: {type: A, ttl: '60', value: 192.0.2.1}\nnull: {type: A, ttl: 1_0, value: 192.0.2.2}\n0x10: {type: A, ttl: 1:00, value: 192.0.2.3}\n"
    texts = 'a: {type: TXT, ttl: 60, values: [6135e11976, 0899, 017, yes, \'"x" "y"\']}'
    made = _made(octodns.read(text + texts))
    assert _records(made) == {
        ("1e3", "A"): (60, ["192.0.2.1"]),
        ("none", "A"): (10, ["192.0.2.2"]),
        ("16", "A"): (60, ["192.0.2.3"]),
        ("a", "TXT"): (60, ['"6135e11976"', '"0899"', '"xy"']),
    }
    assert [line for line, _ in _lost(made)] == [4, 4]
    assert "`15`" in _lost(made)[0][1]
    with pytest.raises(ImportProblem, match="two names are one"):
        octodns.read("yes: {type: A, value: 192.0.2.1}\non: {type: A, value: 192.0.2.2}")
    with pytest.raises(ImportProblem, match="number too long"):
        octodns.read("a: {type: A, ttl: " + ":".join(["1"] * 20_000) + ", value: 192.0.2.1}")


def test_texts_of_gdnsd_go_over_lines() -> None:
    """As in gdnsd's own tests; what comes after keeps its line, and a quote that is missing is looked for in so many lines alone."""
    made = _made(gdnsd.read(f'{SOA}a TXT "x""y\n" ; "\nexample.org. A 192.0.2.1\n', ZONE))
    assert _records(made)["a", "TXT"][1] == [r'"x" "y\010"']
    assert [line for line, _ in _lost(made)] == [5]
    for number, refused in ((63, False), (64, True)):
        text = f'{SOA}a TXT "{chr(10) * number}"\n'
        if refused:
            with pytest.raises(ImportProblem, match=r"line 66: .* a quote missing"):
                gdnsd.read(text, ZONE)
        else:
            assert ("a", "TXT") in _records(_made(gdnsd.read(text, ZONE)))


def test_fields_of_octodns_have_their_older_names_and_defaults() -> None:
    """As octoDNS 1.22.0 reads them: a DS record's `algorithm` is another field where there is `flags`."""
    text = (
        "a: {type: DS, value: {flags: 5, protocol: 13, algorithm: 2, public_key: "
        + "AB" * 32
        + "}}\nb: {type: TLSA, value: {certificate_association_data: ab}}\n"
        "c: {type: SVCB, value: {svcpriority: 1, targetname: ., svcparams: {no-default-alpn: null, alpn: [h2, h3]}}}\n"
        "d: {type: LOC, value: {lat_degrees: 1}}\n"
    )
    made = _made(octodns.read(text))
    assert _records(made)["a", "DS"][1] == [f"5 13 2 {'ab' * 32}"]
    assert _records(made)["b", "TLSA"][1] == ["0 0 0 ab"]
    assert _records(made)["c", "SVCB"][1] == ['1 . alpn="h2,h3" no-default-alpn']
    assert _lost(made) == [(4, "d LOC: not taken over: `lat_minutes` is missing")]


def test_long_texts_of_gdnsd_are_split() -> None:
    """At 255 octets, also inside of a character; other texts, and what looks like `@Z` in them, stay as they are."""
    text = f'{SOA}a TXT "{"é" * 200}"\nb TXT "at @Z ; {"x" * 70}"\nc.@Z CNAME @Z\nd TXT {"y" * 300}\n'
    records = _records(_made(gdnsd.read(text, ZONE)))
    strings = records["a", "TXT"][1][0].split('" "')
    assert [len(one.strip('"')) // 4 for one in strings] == [255, 145]
    assert records["b", "TXT"][1] == [f'"at @Z ; {"x" * 70}"']
    assert records["c", "CNAME"][1] == ["example.com."]
    assert records["d", "TXT"][1] == [f'"{"y" * 255}" "{"y" * 45}"']
    with pytest.raises(ImportProblem, match="string too long"):
        gdnsd.read_plain(text, ZONE)


NESTED = """plugins => { weighted => { w => { a => { x => [ 192.0.2.1, 30 ], y => [ 192.0.2.2, 20 ] }, b => [ 192.0.2.3, 50 ] } }
  multifo => { m => [ 192.0.2.4, 192.0.2.5 ] }
  geoip => { maps => { m => { datacenters => [ d1, d2, d3 ] } } resources => {
    r => { map => m, plugin => weighted, dcmap => { d1 => { a => [ 192.0.2.11, 20 ] }, d2 => %multifo!m, d3 => %geoip!r } } } }
  metafo => { resources => { f => { datacenters => a, dcmap => {
    a => { plugin => simplefo, primary => 192.0.2.21, secondary => 192.0.2.22 }, lost => 192.0.2.23 } } } } }
"""


def test_plugins_inside_of_plugins_give_their_answers() -> None:
    """Weights and labels are no answers; how a plugin inside chooses is told; a circle of plugins ends."""
    made = _made(
        gdnsd.read(
            f"{SOA}w DYNA weighted!w\nm DYNA multifo!m\nr DYNA geoip!r\nf DYNA metafo!f\n", ZONE, NESTED
        )
    )
    members = {service["name"]: service["members"] for service, _ in made.services}
    assert members["w"] == [{"region": "a", "weight": 50.0}, {"region": "b", "weight": 50.0}]
    regions = dict(made.regions)
    assert [regions[member["region"]].ipv4 for member in members["m"]] == [("192.0.2.4", "192.0.2.5")]
    assert regions["d1"].ipv4 == ("192.0.2.11",)
    assert regions["d2"].ipv4 == ("192.0.2.4", "192.0.2.5")
    assert regions["a-f"].ipv4 == ("192.0.2.21", "192.0.2.22")
    assert all(not pool.cnames for pool in regions.values())
    said = "\n".join(text for _, text in _lost(made))
    for what in (
        "weights inside",
        "weights of the plugin",
        "order of the plugin",
        "inside of each other",
        "`lost`",
    ):
        assert what in said


def test_datacenters_that_are_forced_or_go_by_no_place() -> None:
    """One that is forced is answered alone; where a map knows no places, the first is answered, and not the nearest."""
    config = "plugins => { geoip => { maps => { m => { datacenters => [ b, a ] } } resources => { r => { map => m, dcmap => { a => 192.0.2.1, b => 192.0.2.2 } } } } }"
    made = _made(gdnsd.read(f"{SOA}x DYNA geoip!r\ny DYNA geoip!r/a\n", ZONE, config))
    assert [
        (service["steering"], [one["region"] for one in service["members"]]) for service, _ in made.services
    ] == [
        ("failover", ["b", "a"]),
        ("failover", ["a"]),
    ]
    assert _lost(made) == []
    for config_of_one in (config, "plugins => { static => { r => 192.0.2.1 } }"):
        plugin = "geoip" if config_of_one is config else "static"
        made = _made(gdnsd.read(f"{SOA}y DYNA {plugin}!r/c\n", ZONE, config_of_one))
        assert _lost(made)


def test_plugins_that_refer_to_each_other_end() -> None:
    """However many times each does it."""
    many = ", ".join(["%multifo!a"] * 50)
    with pytest.raises(ImportProblem, match="10000 answers"):
        gdnsd.read(f"{SOA}a DYNA multifo!a\n", ZONE, f"plugins => {{ multifo => {{ a => [ {many} ] }} }}")


UNKNOWN = {
    "octoDNS, a record": lambda: octodns.read("a: {type: A, value: 192.0.2.1, MINE: 1}"),
    "octoDNS, its settings": lambda: octodns.read("a: {type: A, value: 192.0.2.1, octodns: {MINE: {}}}"),
    "octoDNS, a value": lambda: octodns.read("a: {type: MX, value: {preference: 1, exchange: a., MINE: 1}}"),
    "octoDNS, pools": lambda: octodns.read(
        "a: {type: A, value: 192.0.2.1, dynamic: {pools: {p: {values: [{value: 192.0.2.1}], MINE: 1}}, rules: [{pool: p}]}}"
    ),
    "octoDNS, a pool's value": lambda: octodns.read(
        "a: {type: A, value: 192.0.2.1, dynamic: {pools: {p: {values: [{value: 192.0.2.1, MINE: 1}]}}, rules: [{pool: p}]}}"
    ),
    "octoDNS, rules": lambda: octodns.read(
        "a: {type: A, value: 192.0.2.1, dynamic: {pools: {p: {values: [{value: 192.0.2.1}]}}, rules: [{pool: p, MINE: 1}]}}"
    ),
    "octoDNS, health checks": lambda: octodns.read(
        "a: {type: A, value: 192.0.2.1, geo: {EU: [192.0.2.2]}, octodns: {healthcheck: {MINE: 1}}}"
    ),
    "Route 53, the file": lambda: route53.read(_route53(_set("a.", "A", "192.0.2.1"), MINE=1)),
    "Route 53, a set": lambda: route53.read(_route53(_set("a.", "A", "192.0.2.1", MINE=1))),
    "Route 53, an alias": lambda: route53.read(
        _route53({"Name": "a.example.com.", "Type": "A", "AliasTarget": {"DNSName": "b.", "MINE": 1}})
    ),
    "Route 53, a value": lambda: route53.read(
        _route53(
            {"Name": "a.example.com.", "Type": "A", "ResourceRecords": [{"Value": "192.0.2.1", "MINE": 1}]}
        )
    ),
    "gdnsd, a resource": lambda: gdnsd.read(
        "a DYNA geoip!r",
        ZONE,
        "plugins => { geoip => { resources => { r => { MINE => 1, dcmap => { d => 192.0.2.1 } } } } }",
    ),
    "gdnsd, a map": lambda: gdnsd.read(
        "a DYNA geoip!r",
        ZONE,
        "plugins => { geoip => { maps => { m => { MINE => 1 } } resources => { r => { map => m, dcmap => { d => 192.0.2.1 } } } } }",
    ),
}
"""Where a setting stands that nobody knows."""


@pytest.mark.parametrize("where", UNKNOWN)
def test_settings_that_nobody_knows_are_told(where: str) -> None:
    """Whatever a format will have, or has from somebody's extension."""
    assert any("MINE" in text for _, text in _lost(_made(UNKNOWN[where]())))


LOST = {
    "octoDNS, a value that is down": (
        lambda: octodns.read(
            "\na: {type: A, value: 192.0.2.1, dynamic: {pools: {p: {values: [{value: 192.0.2.1}, {value: 192.0.2.2, status: down}]}}, rules: [{pool: p}]}}"
        ),
        (2, "status: down"),
    ),
    "octoDNS, a rule of no pool": (
        lambda: octodns.read("\n\na: {type: A, value: 192.0.2.1, dynamic: {pools: {}, rules: [{pool: q}]}}"),
        (3, "no such pool"),
    ),
    "octoDNS, ignored": (
        lambda: octodns.read("a: {type: A, value: 192.0.2.1, octodns: {ignored: true}}"),
        (1, "left it to the provider"),
    ),
    "octoDNS, URLFWD": (lambda: octodns.read("a: {type: URLFWD, value: {path: /}}"), (1, "URLFWD")),
    "octoDNS, a comment": (lambda: octodns.read("a: {type: A, value: '192.0.2.1 ; x'}"), (1, "semicolon")),
    "octoDNS, a TTL": (
        lambda: octodns.read("a: {type: A, ttl: soon, value: 192.0.2.1}"),
        (1, "no whole number"),
    ),
    "octoDNS, a name of IDNA 2008": (
        lambda: octodns.read("a: {type: CNAME, value: straße.example.}"),
        (1, "xn--"),
    ),
    "octoDNS, below a delegation": (
        lambda: octodns.read(
            "a: {type: NS, value: ns.a.example.com.}\nns.a: {type: A, value: 192.0.2.1}\nb.a: {type: A, value: 192.0.2.1}"
        ),
        (0, "b.a.example.com A: not taken over: the name is delegated"),
    ),
    "Route 53, a target's health": (
        lambda: route53.read(
            _route53(
                {
                    "Name": "a.example.com.",
                    "Type": "A",
                    "AliasTarget": {"DNSName": "b.", "EvaluateTargetHealth": True},
                }
            )
        ),
        (3, "EvaluateTargetHealth"),
    ),
    "Route 53, geoproximity": (
        lambda: route53.read(
            _route53(
                _set(
                    "a.",
                    "A",
                    "192.0.2.1",
                    SetIdentifier="x",
                    GeoProximityLocation={"AWSRegion": "r", "Bias": 9},
                )
            )
        ),
        (3, '"Bias": 9'),
    ),
    "Route 53, several values": (
        lambda: route53.read(
            _route53(_set("a.", "A", "192.0.2.1", SetIdentifier="x", MultiValueAnswer=True))
        ),
        (3, "several values"),
    ),
    "gdnsd, checks of all of a plugin": (
        lambda: gdnsd.read(
            f"{SOA}a DYNA static!t\n",
            ZONE,
            "plugins => { static => { service_types => web, t => 192.0.2.1 } }",
        ),
        (3, "service_types web"),
    ),
    "gdnsd, a setting of all of a plugin": (
        lambda: gdnsd.read(
            f"{SOA}a DYNA geoip!r\n", ZONE, "plugins => { geoip => { mine => 1, resources => { r => {} } } }"
        ),
        (3, "`mine`"),
    ),
    "gdnsd, limits of addresses": (
        lambda: gdnsd.read(f"{SOA}$ADDR_LIMIT_V4 3\n", ZONE),
        (3, "$ADDR_LIMIT_V4 3"),
    ),
    "gdnsd, a second DYNA": (
        lambda: gdnsd.read(f"{SOA}a DYNA weighted!x\na DYNA weighted!y\n", ZONE),
        (3, "another DYNA"),
    ),
    "name servers": (
        lambda: gdnsd.read_plain(
            SOA + "".join(f"@ NS n{number}.example.net.\n" for number in range(33)), ZONE
        ),
        (0, "32 name servers at most"),
    ),
}
"""A value that no policy has → the line, and words of the note that says so."""


@pytest.mark.parametrize("what", LOST)
def test_what_a_policy_has_no_word_for_is_told(what: str) -> None:
    """With the line on which it stands."""
    read, (line, words) = LOST[what]
    found = _lost(_made(read()))
    assert any(at == line and words in text for at, text in found), found


def test_two_that_cannot_both_be_are_refused() -> None:
    """One of them was dropped without a word: a second alias, a key of a configuration, a member of an object."""
    for read in (gdnsd.read, gdnsd.read_plain):
        with pytest.raises(ImportProblem, match=r"line 4: .* second CNAME .* line 3"):
            read(f"{SOA}a CNAME b\na CNAME c\n", ZONE)
    with pytest.raises(ImportProblem, match="line 2: `a` is given twice"):
        gdnsd.load_vscf("a => 1\na => 2\n")
    with pytest.raises(ImportProblem, match="twice"):
        route53.read(
            '{"ResourceRecordSets": [{"Name": "a.example.com.", "Name": "b.example.com.", "Type": "A"}]}'
        )


def test_sets_that_are_there_twice_are_one() -> None:
    """Their records together, each once; another TTL is told."""
    made = _made(
        octodns.read(
            "a: [{type: A, ttl: 60, values: [192.0.2.1, 192.0.2.2]}, {type: A, ttl: 90, values: [192.0.2.2, 192.0.2.3]}]"
        )
    )
    assert _records(made) == {("a", "A"): (60, ["192.0.2.1", "192.0.2.2", "192.0.2.3"])}
    assert [note.what for note in made.notes] == ["a A (TTL of 90 s)"]


def test_weights_are_kept_whatever_becomes_of_labels() -> None:
    """Two sets with one address are one region with both weights; weights of 0 alone are equal, as Route 53 says.

    As barnybug/cli53 pull request 54, where a weight of 0 was none.
    """

    def weights(*given: tuple[str, str, int]) -> dict[str, float]:
        sets = [
            _set("a.", "A", address, SetIdentifier=label, Weight=weight) for label, address, weight in given
        ]
        ((service, _),) = _made(route53.read(_route53(*sets))).services
        return {member["region"]: member["weight"] for member in service["members"]}

    assert weights(("Blue", "192.0.2.1", 3), ("blue", "192.0.2.1", 4), ("x", "192.0.2.2", 0)) == {
        "blue": 7.0,
        "x": 0.0,
    }
    assert weights(("a", "192.0.2.1", 0), ("b", "192.0.2.2", 0)) == {"a": 1.0, "b": 1.0}


def _alias(name: str, rdtype: str, target: str, **more: Any) -> dict[str, Any]:
    found = {**_set(name, rdtype), "AliasTarget": {"HostedZoneId": "Z", "DNSName": target}, **more}
    return {key: value for key, value in found.items() if key not in ("TTL", "ResourceRecords")}


def test_quotation_marks_in_values_of_octodns() -> None:
    """kubernetes-sigs/external-dns#3979 and octodns/octodns#1447: of records with quoted fields, values with quotation marks were lost."""
    text = """
caa: {type: CAA, ttl: 60, value: {flags: 0, tag: iodef, value: 'mailto:"x y"@example.com'}}
uri: {type: URI, ttl: 60, value: {priority: 1, weight: 2, target: 'ftp://x/"y"'}}
naptr: {type: NAPTR, ttl: 60, value: {order: 1, preference: 2, flags: S, service: SIP, regexp: '!"(.*)"!sip:\\\\1@x!', replacement: .}}
"""
    made = _made(octodns.read(text))
    assert _lost(made) == []
    assert {name: data for (name, _), (_, data) in _records(made).items()} == {
        "caa": ['0 iodef "mailto:\\"x y\\"@example.com"'],
        "uri": ['1 2 "ftp://x/\\"y\\""'],
        "naptr": ['1 2 "S" "SIP" "!\\"(.*)\\"!sip:\\\\1@x!" .'],
    }


def test_aliases_of_both_families() -> None:
    """kubernetes-sigs/external-dns#5111 (each alias of A has one of AAAA beside it) and #6540 (an AAAA alias was taken for one of A).

    One target is one alias, and nothing is lost; where A and AAAA differ, or one of them has addresses, it is told.
    """
    pair = [("A", "lb.example.net."), ("AAAA", "LB.example.net.")]
    alike = [_alias("a.", rdtype, target, SetIdentifier="x", Weight=1) for rdtype, target in pair]
    made = _made(route53.read(_route53(*alike)))
    assert _lost(made) == []
    assert [pool.cnames for _, pool in made.regions] == [("lb.example.net",)]

    def told(*sets: dict[str, Any]) -> list[str]:
        return [why.partition(": ")[2] for _, why in _lost(_made(route53.read(_route53(*sets))))]

    apart = [
        _alias("a.", rdtype, target, SetIdentifier="x", Weight=at)
        for at, (rdtype, target) in enumerate(pair, 1)
    ]
    assert "otherwise than A" in " ".join(told(*apart))
    order = [
        _alias("a.", rdtype, f"{way}.example.net.", SetIdentifier=name, Failover=way.upper())
        for rdtype, names in (("A", "xy"), ("AAAA", "yx"))
        for name, way in zip(names, ("primary", "secondary"), strict=True)
    ]
    assert "otherwise than A" in " ".join(told(*order))
    beside = (_set("a.", "A", "192.0.2.1", SetIdentifier="x", Weight=1), alike[1])
    assert told(*beside) == [
        "`lb.example.net`: not taken over: a region that has addresses is not answered by an alias"
    ]


def test_an_alias_of_an_alias_is_one() -> None:
    """octodns/octodns#400 and DNSControl/dnscontrol#719 are about CNAMEs of Route 53; an alias of type CNAME was said to stand beside others."""
    made = _made(route53.read(_route53(_alias("k.", "CNAME", "j.example.com"))))
    assert _records(made)["k", "CNAME"] == (None, ["j.example.com."])
    assert _lost(made) == []


def test_escapes_of_route53_stay_what_they_are() -> None:
    r"""Octal where it is an escape, and not behind a backslash that is one itself; a dot inside of a label divides nothing."""
    made = _made(
        route53.read(
            _route53(_set("a.", "TXT", r'"\\052 \052 \" \303\251"'), _set(r"x\056y.", "A", "192.0.2.1"))
        )
    )
    assert _records(made)["a", "TXT"][1] == [r'"\\052 * \" \195\169"']
    assert _lost(made)[0][1].startswith("x\\.y.example.com. A: not taken over")


def test_addresses_of_name_servers_have_the_zones_ttl_and_say_so() -> None:
    """A policy has them at the zone's name servers."""
    made = _made(gdnsd.read_plain(SOA.replace("ns1.example.net.", "ns1") + "ns1 60 A 192.0.2.1\n", ZONE))
    assert made.zone["name_servers"] == [{"name": "ns1.example.com", "ipv4": ["192.0.2.1"]}]
    assert any(note.what == "ns1.example.com A (TTL of 60 s)" for note in made.notes)


def test_a_hundred_of_a_kind_are_one_line() -> None:
    """With how many there are and the first places, so that the one of another kind is seen."""
    notes = [Note(number, f"a{number} A", "it has no `ttl`", lost=False) for number in range(1, 101)]
    first, second = report([*notes, Note(7, "b A", "gone", lost=True)], "zone")
    assert first == "100 times: it has no `ttl` (zone:1: a1 A; zone:2: a2 A; zone:3: a3 A; and 97 more)"
    assert second == "zone:7: b A: gone"
