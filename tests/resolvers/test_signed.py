"""What validators make of signed answers: delv (BIND's), Unbound, Knot Resolver and PowerDNS Recursor."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import dns.dnssec
import dns.flags
import dns.name
import dns.rcode
import dns.rdatatype
import pytest

from gtm.core.signing.keys import Keys
from gtm.dns.zone.dnssec import ZoneSigner
from tests.dns.serving import BoundServer, running
from tests.dns.world import addresses
from tests.dns.zone.signing import SIGNED_ZONES, keys, signing, trusted
from tests.ports import free_port
from tests.resolvers.harness import PATIENCE, RESOLVER, Resolver, program, validating_unbound
from tests.resolvers.harness import unbound as plain_unbound
from tests.tools import tool

pytestmark = pytest.mark.drill

ZONE = "demo.test"
APEX = dns.name.from_text(ZONE)
GERMAN, AMERICAN, JAPANESE = "10.1.0.1", "10.2.0.1", "10.8.0.1"

Start = Callable[[Path, "Served"], AbstractContextManager[Resolver]]


@dataclass(slots=True)
class Served:
    """A gtm that signs, on a port of 127.0.0.1. It takes all clients to be at `client`."""

    keys: Keys
    port: int = 0
    client: str = AMERICAN

    @property
    def key(self) -> str:
        """The zone's key-signing key, as in a zone file."""
        return next(item.to_text() for item in trusted(self.keys)[APEX] if item.flags == 257)

    @property
    def anchor(self) -> str:
        """Its DS record, as in a zone file."""
        key = next(item for item in trusted(self.keys)[APEX] if item.flags == 257)
        return f"{ZONE}. IN DS {dns.dnssec.make_ds(APEX, key, 'SHA256').to_text()}"


@contextmanager
def serving(known: Keys) -> Iterator[Served]:
    """Gtm with keys, until the end."""
    answerer = signing(signer=ZoneSigner(known, time.time))
    made = Served(known)

    def respond(packet: bytes, client: str, tcp: bool) -> bytes | None:
        return answerer.answer(packet, made.client, tcp=tcp, draw=0.5)

    with running(BoundServer([("127.0.0.1", 0)], respond)) as server:
        made.port = server.addresses[0][1]
        yield made


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    """A gtm that signs demo.test, but not sub.demo.test."""
    with serving(keys(now=time.time())) as made:
        yield made


# --- delv --------------------------------------------------------------------------------------------------------


def delv(served: Served, directory: Path, name: str, rdtype: str, *, key: str = "") -> str:
    """What delv prints; without a cache, so that each question is a new client's."""
    anchor = directory / "anchor"
    flags, protocol, algorithm, *data = (key or served.key).split()
    anchor.write_text(
        f'trust-anchors {{ {ZONE}. static-key {flags} {protocol} {algorithm} "{"".join(data)}"; }};\n'
    )
    command = [tool("delv"), "@127.0.0.1", "-p", str(served.port), "-a", str(anchor), f"+root={ZONE}"]
    done = subprocess.run(
        [*command, name, rdtype], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    return done.stdout + done.stderr


POSITIVE = [
    *(("chat.demo.test", rdtype) for rdtype in ("A", "TXT", "NSEC")),
    *(("demo.test", rdtype) for rdtype in ("SOA", "NS", "DNSKEY", "CDS", "CDNSKEY")),
    *(("mixed.demo.test", "MX"), ("_dns._udp.demo.test", "SRV"), ("ns1.demo.test", "AAAA")),
    *(("tls.demo.test", "HTTPS"), ("new.demo.test", "TYPE65280"), ("lab.demo.test", "DS")),
    *(("y.any.demo.test", "MX"), ("z.y.any.demo.test", "TXT"), ("w.wild.demo.test", "A")),
    *(("to-to-www.demo.test", "A"), ("y.alias-any.demo.test", "A"), ("big.demo.test", "A")),
]
NEGATIVE = [
    *(("chat.demo.test", "MX"), ("v4.demo.test", "AAAA"), ("demo.test", "MX"), ("y.any.demo.test", "A")),
    *(
        ("nope.demo.test", "A"),
        ("a.nope.demo.test", "AAAA"),
        ("deep.demo.test", "A"),
        ("_udp.demo.test", "A"),
    ),
    *(("sub.demo.test", "DS"), ("plain.cuts.demo.test", "DS"), ("one.demo.test", "A")),
    *(("w.wild.demo.test", "MX"), ("*.demo.test", "A")),
]


@pytest.mark.rfc("4035", "5.3", "validators take the signatures for good")
@pytest.mark.parametrize(("name", "rdtype"), POSITIVE)
def test_delv_validates_answers(served: Served, tmp_path: Path, name: str, rdtype: str) -> None:
    """BIND's validator takes each kind of answer for fully validated."""
    output = delv(served, tmp_path, name, rdtype)
    assert "; fully validated" in output, output
    assert "unsigned" not in output


@pytest.mark.rfc("4035", "5.4", "validators take the proofs for good")
@pytest.mark.rfc("9824", "3", "validators that know nothing of NXNAME take the proofs for good")
@pytest.mark.parametrize(("name", "rdtype"), NEGATIVE)
def test_delv_validates_proofs(served: Served, tmp_path: Path, name: str, rdtype: str) -> None:
    """BIND's validator takes each kind of denial for fully validated."""
    output = delv(served, tmp_path, name, rdtype)
    assert "fully validated" in output, output
    assert "resolution failed: ncache" in output, output
    assert "unsigned" not in output, output


@pytest.mark.parametrize(
    ("client", "expected"), [(GERMAN, "192.0.2.1"), (AMERICAN, "192.0.2.4"), (JAPANESE, "LB.Example.net")]
)
def test_delv_validates_the_answers_of_every_region(tmp_path: Path, client: str, expected: str) -> None:
    """Clients of each region get what is theirs, an alias among them, signed."""
    with serving(keys(now=time.time())) as made:
        made.client = client
        output = delv(made, tmp_path, "web.demo.test", "CNAME" if client == JAPANESE else "A")
    assert "; fully validated" in output, output
    assert expected.lower() in output.lower()


def test_delv_takes_a_zone_without_keys_for_unsigned(served: Served, tmp_path: Path) -> None:
    """The parent's proof makes sub.demo.test an unsigned zone, not a forged one."""
    assert "; unsigned answer" in delv(served, tmp_path, "sub.demo.test", "SOA")


def test_delv_finds_another_key_out(served: Served, tmp_path: Path) -> None:
    """The check can fail: with another key as the anchor nothing validates."""
    other = Served(keys(number=2)).key
    for name in ("chat.demo.test", "nope.demo.test"):
        output = delv(served, tmp_path, name, "A", key=other)
        assert "resolution failed" in output
        assert "validated" not in output


# --- resolvers ---------------------------------------------------------------------------------------------------


def unbound(directory: Path, served: Served) -> AbstractContextManager[Resolver]:
    """Unbound, which by default answers from proofs where it can (RFC 8198)."""
    return validating_unbound(directory, ZONE, served.anchor, served.port)


_KNOT = """\
net.listen('127.0.0.1', {port}, {{ kind = 'dns' }})
net.ipv6 = false
net.outgoing_v4('{source}')
cache.open(10 * MB, 'lmdb://{directory}/cache')
trust_anchors.remove('.')
trust_anchors.add('{anchor}')
policy.add(policy.suffix(policy.FORWARD('127.0.0.1@{authority}'), {{todname('{zone}.')}}))
"""


@contextmanager
def knot(directory: Path, served: Served) -> Iterator[Resolver]:
    """Knot Resolver, which answers from proofs where it can (RFC 8198)."""
    command, port, config = tool("kresd"), free_port(), directory / "kresd.conf"
    config.write_text(
        _KNOT.format(
            port=port,
            source=RESOLVER,
            directory=directory,
            anchor=served.anchor,
            authority=served.port,
            zone=ZONE,
        )
    )
    with program([command, "-n", "-q", "-c", str(config), str(directory)], directory, port) as resolver:
        yield resolver


_RECURSOR = """\
local-address=127.0.0.1
local-port={port}
query-local-address={source}
socket-dir={directory}
config-dir={directory}
allow-from=127.0.0.0/8
dont-query=
forward-zones={zone}=127.0.0.1:{authority}
lua-config-file={directory}/anchor.lua
dnssec=validate
threads=1
daemon=no
disable-syslog=yes
write-pid=no
"""


@contextmanager
def powerdns(directory: Path, served: Served) -> Iterator[Resolver]:
    """PowerDNS Recursor, which answers from proofs where it can (RFC 8198)."""
    command, port = tool("pdns_recursor"), free_port()
    data = served.anchor.partition(" DS ")[2]
    (directory / "anchor.lua").write_text(f'clearTA()\naddTA("{ZONE}", "{data}")\n')
    (directory / "recursor.conf").write_text(
        _RECURSOR.format(port=port, source=RESOLVER, directory=directory, authority=served.port, zone=ZONE)
    )
    with program([command, f"--config-dir={directory}"], directory, port) as resolver:
        yield resolver


@contextmanager
def subnets(directory: Path, served: Served) -> Iterator[Resolver]:
    """Unbound that tells gtm what its clients say of their networks, keeps answers by them, and validates."""
    server = f"""\
  module-config: "subnetcache validator iterator"
  send-client-subnet: 127.0.0.1
  max-client-subnet-ipv4: 24
  client-subnet-always-forward: yes
  trust-anchor: "{served.anchor}"
"""
    with plain_unbound(directory, served.port, zone=ZONE, server=server) as resolver:
        yield resolver


VALIDATORS = pytest.mark.parametrize("start", [unbound, knot, powerdns])


@VALIDATORS
def test_resolvers_validate(start: Start, served: Served, tmp_path: Path) -> None:
    """Each kind of answer and denial is authentic to a resolver that trusts the zone's key."""
    with start(tmp_path, served) as resolver:
        for name, rdtype in (*POSITIVE, *NEGATIVE):
            message = resolver.ask(name, rdtype, dnssec=True)
            about = f"{name} {rdtype}:\n{message}"
            assert message.rcode() in (dns.rcode.NOERROR, dns.rcode.NXDOMAIN), about
            assert message.flags & dns.flags.AD, about
            data = [rrset for rrset in message.answer if rrset.rdtype == dns.rdatatype.from_text(rdtype)]
            assert bool(data) is ((name, rdtype) in POSITIVE), about


@pytest.mark.rfc("8198", "5.3", "a resolver that answers from proofs keeps no type from those who have it")
@VALIDATORS
def test_resolvers_deny_nobody_else(start: Start, tmp_path: Path) -> None:
    """One client's denials, kept by a resolver, hide nothing from the next: its other types, and names beside it."""
    with serving(keys(now=time.time())) as made, start(tmp_path, made) as resolver:
        for name in ("v4", "web", "chat", "nope", "deep"):
            for rdtype in ("MX", "SRV", "CAA", "AAAA"):
                resolver.ask(f"{name}.demo.test", rdtype, dnssec=True)
        for name in ("v4", "web", "chat", "half", "a.b.deep", "w.wild", "mail"):
            rdtype = "MX" if name == "mail" else "A"
            message = resolver.ask(f"{name}.demo.test", rdtype, dnssec=True)
            assert message.flags & dns.flags.AD
            assert addresses(message)


@pytest.mark.rfc("7871", "9", "answers by client subnet validate")
def test_answers_by_network_validate(served: Served, tmp_path: Path) -> None:
    """Behind one cache, clients of each network get what is theirs, authentic, and so are the denials between."""
    with subnets(tmp_path, served) as resolver:
        for _ in range(2):
            for subnet, expected in (("10.1.2.0/24", "192.0.2.1"), ("10.2.3.0/24", "192.0.2.4")):
                assert resolver.ask("web.demo.test", "MX", subnet=subnet, dnssec=True).flags & dns.flags.AD
                message = resolver.ask("web.demo.test", subnet=subnet, dnssec=True)
                assert message.flags & dns.flags.AD, message
                assert expected in addresses(message)


@VALIDATORS
def test_unsigned_zones_inside_signed_ones(start: Start, served: Served, tmp_path: Path) -> None:
    """What sub.demo.test answers is not signed, and taken."""
    with start(tmp_path, served) as resolver:
        message = resolver.ask("sub.demo.test", "SOA", dnssec=True)
        assert message.rcode() == dns.rcode.NOERROR
        assert message.answer
        assert not message.flags & dns.flags.AD


@VALIDATORS
def test_signed_zones_inside_signed_ones(start: Start, tmp_path: Path) -> None:
    """A zone with keys inside another needs no anchor of its own: the outer one has its DS records."""
    known = keys((*SIGNED_ZONES, "sub.demo.test"), now=time.time())
    with serving(known) as made, start(tmp_path, made) as resolver:
        for name, rdtype in (("sub.demo.test", "SOA"), ("sub.demo.test", "DS"), ("nope.sub.demo.test", "A")):
            message = resolver.ask(name, rdtype, dnssec=True)
            assert message.flags & dns.flags.AD, message
            assert message.rcode() in (dns.rcode.NOERROR, dns.rcode.NXDOMAIN)


@VALIDATORS
def test_resolvers_find_another_key_out(start: Start, served: Served, tmp_path: Path) -> None:
    """The check can fail: a resolver that trusts another key refuses every answer."""
    other = Served(keys(number=2), port=served.port)
    with start(tmp_path, other) as resolver:
        for name, rdtype in (("chat.demo.test", "A"), ("nope.demo.test", "A"), ("demo.test", "DNSKEY")):
            assert resolver.ask(name, rdtype).rcode() == dns.rcode.SERVFAIL


@pytest.mark.rfc("4035", "4.3", "bogus answers are refused")
@VALIDATORS
def test_resolvers_refuse_signatures_of_the_past(start: Start, tmp_path: Path) -> None:
    """The check can fail: an edge whose clock stands still is found out when its signatures have expired."""
    known = keys(now=time.time())
    answerer = signing(signer=ZoneSigner(known, lambda: time.time() - 4 * 86400))
    with running(
        BoundServer(
            [("127.0.0.1", 0)], lambda packet, _, tcp: answerer.answer(packet, AMERICAN, tcp=tcp, draw=0.5)
        )
    ) as server:
        made = Served(known, server.addresses[0][1])
        with start(tmp_path, made) as resolver:
            assert resolver.ask("demo.test", "DNSKEY").rcode() == dns.rcode.NOERROR
            assert resolver.ask("chat.demo.test", "A").rcode() == dns.rcode.SERVFAIL
