"""Readers of documents: what is said to control, between gtm's own servers, by other systems and in files; and what they may cost (`costs`)."""

from __future__ import annotations

import io
import tempfile
from pathlib import Path

from gtm.adapters.exposition import read_samples
from gtm.balancer.config import of_urls
from gtm.cli.servers.checks import count
from gtm.core.demand.traffic import TrafficBuilder
from gtm.core.model.requests import Location
from gtm.documents import yamls
from gtm.documents.imports import gdnsd, octodns, route53
from gtm.documents.traffic_csv import read_csv
from gtm.feed import wire as feed
from gtm.geoip.overrides import load_overrides
from gtm.nesting import loads, read
from tests.drills.costs import Reader, RefusedError

_JSON = [
    b"[],",
    b"[",
    b"]",
    b"{",
    b"}",
    b'"',
    b'"a%d":',
    b"1,",
    b"1e9,",
    b'"\\u00e9",',
    b"null,",
    b"\\",
    b'"a":',
    b"[1],",
    b'{"a":1},',
]
_YAML = [
    b"- ", b"a%d: 1\n", b"- &a [1]\n", b"- *a\n", b"- {<<: *a}\n", b"[", b"]", b"{", b"}", b'"', b"'", b"\n", b"? ", b": ", b"  ", b"#", b"x",
    b"--- 1\n", b"|\n", b"!!str ", b"- [1, 2]\n", b"- {a%d: x}\n", b"\\x41", b"%d",
]  # fmt: skip


_PATHS = of_urls(("http://127.0.0.1",)).carried()
_OVERRIDES = Path(tempfile.gettempdir()) / "gtm-cost-overrides.yaml"


def _overridden(text: bytes) -> object:
    _OVERRIDES.write_bytes(text)
    try:
        return load_overrides(_OVERRIDES)
    finally:
        _OVERRIDES.unlink()


def _logged(text: bytes) -> None:
    lines = io.BytesIO(text)
    found = count(iter(lambda: lines.readline(1 << 16), b""), _PATHS)
    if not found.carried and not found.refused:
        raise RefusedError


def _recorded(text: bytes) -> object:
    lines = text.decode("latin-1").splitlines(keepends=True)
    return read_csv("a.csv", lines, TrafficBuilder(60.0), lambda _: Location(), {})


READERS: tuple[Reader, ...] = (
    Reader(
        "JSON of requests",
        read,
        _JSON,
        steps=2.0,
        peak=120.0,
        begin=b"[",
        end=b"1]",
        worst=[b"[],", b'{"a":1},'],
    ),
    Reader(
        "JSON of other kinds",
        loads,
        _JSON,
        steps=2.0,
        peak=120.0,
        begin=b"[",
        end=b"1]",
        worst=[b"[],", b'{"a":1},'],
    ),
    Reader(
        "YAML of policies",
        yamls.load,
        [b"- x\n", *_YAML],
        steps=60.0,
        peak=600.0,
        begin=b"a: &a {k: 1}\nb:\n",
        worst=[b"- {<<: *a}\n", b"- *a\n", b"\n- - - - - "],
    ),
    Reader(
        "feed messages",
        feed.decode,
        [
            b'"r%d":{"http://e%d":{"status":"up"}},',
            b'"r%d":{},',
            b'"r":{"http://e%d":{"status":"up","since":1.0,"detail":"x"}},',
            b'"r%d":{"http://e%d":{"status":"up","other":[[1]]}},',
            b" ",
            *_JSON,
        ],
        steps=4.0,
        peak=120.0,
        begin=b'{"type":"state","body":{"keep_plan":false,"state":{"epoch":1,"health":{',
        end=b'"z":{}}}}}',
    ),
    Reader(
        "metrics pages",
        lambda text: read_samples(text.decode("latin-1")),
        [
            b"a 1\n",
            b"a",
            b"a%d 1\n",
            b'a{b="c"} 1\n',
            b"{",
            b"}",
            b'"',
            b"\\",
            b",",
            b"#",
            b" ",
            b"\n",
            b'b="c",',
            b"# HELP a b\n",
            b"1e9",
        ],
        steps=40.0,
        peak=200.0,
        worst=[b"a 1\n"],
    ),
    Reader(
        "recorded traffic (CSV)",
        _recorded,
        [b"chat,DE,1\n", b"chat,FR,%d\n", b"s%d,DE,1\n", b",", b'"', b"\n", b"1", b"x"],
        steps=60.0,
        peak=300.0,
        begin=b"service,country,count\n",
    ),
    Reader(
        "gdnsd's configuration",
        lambda text: gdnsd.load_vscf(text.decode("latin-1")),
        [
            b"a%d => 1\n",
            b"{",
            b"}",
            b"a = [1, 2]\n",
            b"a%d = { b = [1, 2], c => d }\n",
            b'"x"',
            b'"',
            b"\\",
            b"#",
            b"$",
            b"\n",
            b" ",
            b"[",
            b"]",
            b"a",
        ],
        steps=60.0,
        peak=260.0,
        worst=[b"a"],
    ),
    Reader(
        "gdnsd's zone files",
        lambda text: gdnsd.read(text.decode("latin-1"), "demo.test"),
        [
            b"a%d A 192.0.2.1\n",
            b"a%d 300 IN DYNA geoip!web\n",
            b"a A 192.0.%d.1\n",
            b'a TXT "x%d"\n',
            b"a 300/60 DYNC weighted!w%d\n",
            b"a%d@Z A 192.0.2.1\n",
            b"$TTL 60\n",
            b"$ADDR_LIMIT_V4 3\n",
            b"; x\n",
            b"   ",
            b" 1 1",
            b"\n",
            b"a.b.c.d.e.f.g.h%d MX 10 m\n",
            b"( ",
            b") ",
        ],
        steps=200.0,
        peak=500.0,
        begin=b"@ SOA ns1 hostmaster ( 1 2 3 4 5 )\n@ NS ns1\n",
    ),
    Reader(
        "octoDNS's zone files",
        lambda text: octodns.read(text.decode("latin-1")),
        [
            b"a%d: {type: A, value: 192.0.2.1}\n",
            b"b%d: {type: TXT, values: [x, y]}\n",
            b"c%d: [{type: A, value: 192.0.2.1}, {type: MX, values: [{preference: 1, exchange: a}]}]\n",
            b"d%d: {type: A, geo: {NA: [192.0.2.1], NA-US: [192.0.2.2]}, values: [192.0.2.3]}\n",
            b"e%d: {type: A, dynamic: {pools: {p: {values: [{value: 192.0.2.1}]}}, rules: [{pool: p}]}, value: 192.0.2.1}\n",
            b"f%d: {type: ALIAS, value: x}\n",
            b"g%d: {octodns: {cloudflare: {}, healthcheck: {protocol: HTTP}}, type: A, geo: {}, value: 192.0.2.1}\n",
        ],
        steps=200.0,
        peak=700.0,
    ),
    Reader(
        "octoDNS's zone files, one name's pools",
        lambda text: octodns.read(text.decode("latin-1")),
        [
            b"    p%d: {values: [{value: 192.0.2.1}]}\n",
            b"    p%d: {fallback: p0, values: []}\n",
            b"    q%d: {}\n",
        ],
        steps=200.0,
        peak=700.0,
        begin=b"a:\n  type: A\n  value: 192.0.2.1\n  dynamic:\n   rules: [{pool: p0}]\n   pools:\n",
    ),
    Reader(
        "octoDNS's zone files, one name's rules",
        lambda text: octodns.read(text.decode("latin-1")),
        [
            b"   - {pool: p, geos: [NA, EU]}\n",
            b"   - {pool: p%d}\n",
            b"   - {pool: p, subnets: [192.0.2.0/24]}\n",
        ],
        steps=200.0,
        peak=700.0,
        begin=b"a:\n  type: A\n  value: 192.0.2.1\n  dynamic:\n   pools: {p: {}, p0: {fallback: p1}, p1: {}}\n   rules:\n",
    ),
    Reader(
        "Route 53's sets of records",
        lambda text: route53.read(text.decode("latin-1")),
        [
            b'{"Name":"a%d","Type":"A","TTL":60,"ResourceRecords":[{"Value":"192.0.2.1"}]},',
            b'{"Name":"a","Type":"A","SetIdentifier":"x","Weight":1,"ResourceRecords":[{"Value":"192.0.2.1"}]},',
            b'{"Name":"a","Type":"A","SetIdentifier":"x%d","Region":"r%d","ResourceRecords":[{"Value":"192.0.2.1"}]},',
            b'{"Name":"a","Type":"A","SetIdentifier":"x","Region":"r%d"},',
            b'{"Name":"a","Type":"A","SetIdentifier":"x%d","Region":"r%d"},',
            b'{"Name":"a","Type":"A","AliasTarget":{"DNSName":"b%d"}},',
            b'{"Name":"\\\\052","Type":"A"},',
            b"{},",
        ],
        steps=30.0,
        peak=300.0,
        begin=b'{"ResourceRecordSets":[',
        end=b"{}]}",
    ),
    Reader(
        "access logs, for `--check-paths`",
        _logged,
        [
            b'{"path":"/v1/chat/completions","method":"POST"}\n',
            b'"GET /a%d HTTP/1.1" 200 \n',
            b'{"path":"/a%d","method":"GET","model":"m"}\n',
            b'"GET ',
            b"/a/.",
            b"%%2",
            b' HTTP/1.1" 200 ',
            b"\n",
            b'"A',
            b"{",
            b" ",
        ],
        steps=20.0,
        peak=60.0,
    ),
    Reader(
        "overrides of locations",
        _overridden,
        [
            b"- {network: 2001:db8:%d::/48, country: FR, lat: 1, lon: 1}\n",
            b"- {network: 10.%d.0.0/32, country: DE}\n",
            b"- &a {network: 10.0.0.0/8, country: DE}\n",
            b"- *a\n",
            b"- {<<: *a}\n",
            b"- [",
            b"]\n",
            b"- x\n",
            b"- {network: 10.0.0.0/8, country: DE, asn: 1, asn: 1}\n",
        ],
        steps=60.0,
        peak=600.0,
        begin=b"overrides:\n- {network: 1.0.0.0/8, country: DE}\n",
    ),
)
