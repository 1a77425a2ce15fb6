"""What dig, kdig, drill, delv, host and dnspython make of gtm's answers."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator

import dns.edns
import dns.flags
import dns.message
import dns.query
import dns.rcode
import dns.resolver
import pytest

from tests.dns.world import addresses, errors_of, subnet_of
from tests.resolvers.harness import AMERICAN, GERMAN, MANY, PATIENCE, Authority, authority
from tests.tools import tool

pytestmark = pytest.mark.drill

EUROPE = {"192.0.2.1", "192.0.2.2"}
COMPLAINTS = re.compile(r"malformed|mismatch|warn|error:|bad cookie|;; Got bad|extra bytes", re.IGNORECASE)
"""What clients print where an answer is not well-formed or not what they asked."""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Authority]:
    """Gtm on 127.0.0.1."""
    with authority(tmp_path_factory.mktemp("clients")) as made:
        yield made


def run(program: str, *arguments: str, code: int = 0) -> str:
    """What a program prints, without complaints about the answer."""
    done = subprocess.run(
        [tool(program), *arguments], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    output = done.stdout + done.stderr
    assert done.returncode == code, output
    assert not COMPLAINTS.search(output), output
    return output


def dig(served: Authority, *arguments: str, code: int = 0) -> str:
    """What dig prints of gtm's answer."""
    common = ("@127.0.0.1", "-p", str(served.port), "+norecurse", "+tries=1", f"+timeout={PATIENCE:.0f}")
    return run("dig", *common, *arguments, code=code)


def kdig(served: Authority, *arguments: str) -> str:
    """What kdig prints."""
    common = ("@127.0.0.1", "-p", str(served.port), "+norecurse", "+retry=0", f"+timeout={PATIENCE:.0f}")
    return run("kdig", *common, *arguments)


def drill(served: Authority, *arguments: str) -> str:
    """What drill prints."""
    return run("drill", "-p", str(served.port), "-o", "rd", *arguments)


def host(served: Authority, *arguments: str, code: int = 0) -> str:
    """What host prints."""
    return run("host", "-p", str(served.port), "-r", *arguments, "127.0.0.1", code=code)


def delv(served: Authority, *arguments: str) -> str:
    """What delv prints of answers that it does not validate."""
    return run("delv", "@127.0.0.1", "-p", str(served.port), "-i", "+noroot", *arguments)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["chat.demo.test", "+short", "-b", GERMAN], "192.0.2.1\n"),
        (["chat.demo.test", "+short", "-b", AMERICAN], "192.0.2.4\n"),
        (["chat.demo.test", "+short", "+tcp", "-b", AMERICAN], "192.0.2.4\n"),
        (["chat.demo.test", "AAAA", "+short", "-b", GERMAN], "2001:db8::1\n"),
        (["chat.demo.test", "+subnet=127.2.7.0/24"], "; CLIENT-SUBNET: 127.2.7.0/24/16\n"),
        (["chat.demo.test", "+subnet=127.1.0.0/16", "+tcp"], "; CLIENT-SUBNET: 127.1.0.0/16/16\n"),
        (["chat.demo.test", "+subnet=2001:db8::/32"], "; CLIENT-SUBNET: 2001:db8::/32/"),
        (["chat.demo.test", "+subnet=0"], "; CLIENT-SUBNET: 0.0.0.0/0/0\n"),
        (["chat.demo.test", "+nsid"], '("fra-1")'),
        (["chat.demo.test", "+cookie"], "(good)"),
        (["chat.demo.test", "+nocookie"], "udp: 1232\n;; QUESTION"),
        (["chat.demo.test", "+keepalive", "+tcp"], "; TCP KEEPALIVE: 10.0 secs"),
        (["chat.demo.test", "+noedns"], "status: NOERROR"),
        (["chat.demo.test", "+dnssec"], "flags: do; udp: 1232"),
        (["chat.demo.test", "+padding=128"], "status: NOERROR"),
        (["cHaT.dEmO.tEsT"], ";cHaT.dEmO.tEsT."),
        (["chat.demo.test", "TXT", "+short", "-b", GERMAN], '"region=eu"'),
        (["chat.demo.test", "ANY", "+short", "+notcp"], '"RFC8482" ""\n'),
        (["chat.demo.test", "HTTPS"], "status: NOERROR"),
        (["demo.test", "SOA", "+short"], "ns1.demo.test. hostmaster.demo.test. 7 7200 900 1209600 3600\n"),
        (["demo.test", "NS", "+short"], "ns2.example.net.\n"),
        (["alias.demo.test", "+short"], "lb.example.net.\n"),
        (["nope.demo.test"], "status: NXDOMAIN"),
        (["example.com"], "EDE: 20 (Not Authoritative)"),
        (["big.demo.test", "+notcp", "+ignore"], "flags: qr aa tc"),
        (["big.demo.test"], f"ANSWER: {MANY},"),
        (["id.server", "CH", "TXT", "+short"], '"fra-1"\n'),
        (
            ["tls.demo.test", "HTTPS", "+short"],
            '1 . alpn="h2,h3" port=8443 ipv4hint=192.0.2.',
        ),
        (["x.wild.demo.test", "+short", "-b", AMERICAN], "192.0.2.4\n"),
        (["mail.demo.test", "MX", "+short"], "10 mx1.demo.test.\n"),
        (["_dns._udp.demo.test", "SRV", "+short"], "0 5 53 ns1.demo.test.\n"),
        (["svc.demo.test", "SVCB", "+short"], '1 www.demo.test. alpn="dot" port=853\n'),
        (["new.demo.test", "TYPE65280", "+short"], "\\# 3 010203\n"),
        (["apex.test", "CAA", "+short"], '0 issue "ca.example.net"\n'),
        (["to-to-www.demo.test", "+short"], "To-WWW.demo.test.\nwww.demo.test.\n192.0.2.10"),
        (["x.lab.demo.test"], "AUTHORITY: 3"),
        (["chat.demo.test", "+edns=1", "+noednsnegotiation"], "status: BADVERS"),
        (["chat.demo.test", "+ednsopt=100", "+ednsflags=0x80"], "status: NOERROR"),
        (["chat.demo.test", "+opcode=4"], "status: NOTIMP"),
        (["demo.test", "AXFR"], "; Transfer failed."),
    ],
)
def test_dig(served: Authority, arguments: list[str], expected: str) -> None:
    """Dig (BIND 9) reads each answer as meant."""
    assert expected in dig(served, *arguments)


def test_dig_returns_its_cookie(served: Authority) -> None:
    """A server cookie that dig returns is taken."""
    found = re.search(r"COOKIE: ([0-9a-f]+) \(good\)", dig(served, "chat.demo.test", "+cookie"))
    assert found is not None
    assert found[1] in dig(served, "chat.demo.test", f"+cookie={found[1]}")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["chat.demo.test", "+short", "-b", GERMAN], "192.0.2.1\n"),
        (["chat.demo.test", "+tcp", "+short", "-b", AMERICAN], "192.0.2.4\n"),
        (["chat.demo.test", "+subnet=127.1.7.0/24"], ";; CLIENT-SUBNET: 127.1.7.0/24/16\n"),
        (["chat.demo.test", "+nsid"], '"fra-1"'),
        (["chat.demo.test", "+cookie"], ";; COOKIE: "),
        (["chat.demo.test", "+ednsopt=100"], "status: NOERROR"),
        (["chat.demo.test", "TYPE65280"], "status: NOERROR"),
        (["chat.demo.test", "TXT", "+short"], '"outcome=served"'),
        (["chat.demo.test", "ANY"], '"RFC8482" ""'),
        (["nope.demo.test"], "status: NXDOMAIN"),
        (["example.com", "+edns"], "EDE: 20 (Not Authoritative)"),
        (["big.demo.test", "+tcp"], f"ANSWER: {MANY};"),
        (["demo.test", "NS", "+dnssec"], "flags: do"),
        (["tls.demo.test", "HTTPS", "+short"], "1 . alpn=h2,h3 port=8443 ipv4hint="),
        (["_443._tcp.www.demo.test", "TLSA", "+short"], "3 1 1 ABAB"),
        (["x.any.demo.test", "TXT", "+short"], '"any"\n'),
        (["x.lab.demo.test"], "AUTHORITY: 3;"),
    ],
)
def test_kdig(served: Authority, arguments: list[str], expected: str) -> None:
    """Kdig (Knot DNS) reads each answer as meant."""
    assert expected in kdig(served, *arguments)


def test_kdig_reads_json(served: Authority) -> None:
    """As kdig takes it apart, an SOA is whole."""
    found = json.loads(kdig(served, "+json", "demo.test", "SOA", "+tcp"))
    (record,) = found["answerRRs"]
    assert (found["RCODE"], found["AA"], found["RA"]) == (0, 1, 0)
    assert record["rdataSOA"].split()[2] == "7"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["@127.0.0.1", "chat.demo.test", "A"], "192.0.2."),
        (["-t", "@127.0.0.1", "v4.demo.test", "A"], "192.0.2.4"),
        (["-D", "@127.0.0.1", "chat.demo.test", "AAAA"], "EDNS: version 0; flags: do ; udp: 1232"),
        (["@127.0.0.1", "demo.test", "SOA"], "ns1.demo.test. hostmaster.demo.test. 7 "),
        (["@127.0.0.1", "chat.demo.test", "TXT"], '"outcome=served"'),
        (["@127.0.0.1", "nope.demo.test", "A"], "rcode: NXDOMAIN"),
        (["@127.0.0.1", "chat.demo.test", "ANY"], "RFC8482"),
        (["-t", "@127.0.0.1", "big.demo.test", "A"], f"ANSWER: {MANY},"),
    ],
)
def test_drill(served: Authority, arguments: list[str], expected: str) -> None:
    """Drill (ldns) reads each answer as meant."""
    assert expected in drill(served, *arguments)


@pytest.mark.parametrize(
    ("arguments", "code", "expected"),
    [
        (["v4.demo.test"], 0, "v4.demo.test has address 192.0.2.4\n"),
        (["chat.demo.test"], 0, "has address 192.0.2."),
        (["-T", "-t", "TXT", "chat.demo.test"], 0, 'descriptive text "service=chat"'),
        (["-t", "SOA", "demo.test"], 0, "demo.test has SOA record ns1.demo.test. hostmaster.demo.test. 7 "),
        (["-t", "NS", "demo.test"], 0, "demo.test name server ns1.demo.test.\n"),
        (["-t", "ANY", "demo.test"], 0, 'demo.test host information "RFC8482" ""\n'),
        (["-t", "A", "big.demo.test"], 0, "big.demo.test has address 198.51.100.90\n"),
        (["-t", "MX", "chat.demo.test"], 0, "chat.demo.test has no MX record\n"),
        (["nope.demo.test"], 1, "not found: 3(NXDOMAIN)\n"),
    ],
)
def test_host(served: Authority, arguments: list[str], code: int, expected: str) -> None:
    """Host (BIND 9) reads each answer as meant."""
    assert expected in host(served, *arguments, code=code)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["v4.demo.test", "A"], "192.0.2.4"),
        (["v4.demo.test", "AAAA"], "negative response"),
        (["nope.demo.test", "A"], "ncache nxdomain"),
        (["demo.test", "SOA"], "ns1.demo.test. hostmaster.demo.test. 7 "),
        (["big.demo.test", "A"], "198.51.100.90"),
    ],
)
def test_delv(served: Authority, arguments: list[str], expected: str) -> None:
    """Delv, which resolves with BIND's own library, reads each answer as meant."""
    assert expected in delv(served, *arguments)


def test_dnspython(served: Authority) -> None:
    """Both transports of dnspython, with client subnet, identifier and cookie at once."""
    options = [
        dns.edns.ECSOption("127.1.7.0", 24),
        dns.edns.GenericOption(dns.edns.OptionType.NSID, b""),
        dns.edns.CookieOption(bytes(range(8)), b""),
    ]
    query = dns.message.make_query("ChAt.demo.test", "A", use_edns=0, options=options, want_dnssec=True)
    for ask in (dns.query.udp, dns.query.tcp):
        reply = ask(query, "127.0.0.1", PATIENCE, served.port)
        assert set(addresses(reply)) == EUROPE
        assert subnet_of(reply) == ("127.1.7.0", 24, 16)
        assert errors_of(reply) == []
        assert reply.ednsflags & dns.flags.DO
        said = {int(option.otype): option.to_wire() or b"" for option in reply.options}
        assert said[3] == b"fra-1"
        assert said[10][:8] == bytes(range(8))
        assert len(said[10]) == 24


def test_dnspython_s_resolver(served: Authority) -> None:
    """A stub that falls back to TCP, and tells denial from absence."""
    stub = dns.resolver.Resolver(configure=False)
    stub.nameservers, stub.port, stub.lifetime = ["127.0.0.1"], served.port, PATIENCE
    assert len(stub.resolve("big.demo.test", "A")) == MANY
    with pytest.raises(dns.resolver.NXDOMAIN):
        stub.resolve("nope.demo.test", "A")
    with pytest.raises(dns.resolver.NoAnswer):
        stub.resolve("v4.demo.test", "AAAA")
