"""gtm as an authoritative server on loopback, real resolvers in front of it, and clients of several networks.

Every address of 127.0.0.0/8 is this machine's own: a client of a network binds an address of it, and gtm's overrides say
where that network is.
"""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import dns.edns
import dns.exception
import dns.message
import dns.query

from gtm.core.decision.router import Router
from gtm.dns.answer.answerer import Answerer
from gtm.dns.protocol.cookies import ServerCookies
from gtm.dns.protocol.options import ServerOptions
from gtm.geoip.reader import Locator
from gtm.telemetry import Counts
from tests import worlds
from tests.dns.serving import BoundServer, running
from tests.dns.world import BIG, POLICY, router
from tests.ports import free_port
from tests.tools import tool

PATIENCE = 60.0
"""Seconds after which waiting for something is a failure. Never a bound on speed."""

GERMAN, GERMAN_TOO, AMERICAN, AMERICAN_TOO, JAPANESE, NOWHERE = (
    "127.1.1.1",
    "127.1.200.1",
    "127.2.1.1",
    "127.2.200.1",
    "127.3.1.1",
    "127.9.1.1",
)
"""Clients: the first two of one network, the next two of another, and one each of a third and of none that is known."""
RESOLVER = "127.2.0.53"
"""Where resolvers send from, if they can be told: the US."""

OVERRIDES = """\
overrides:
  - {network: 127.1.0.0/16, country: DE, lat: 50.1, lon: 8.7}
  - {network: 127.2.0.0/16, country: US, lat: 39.0, lon: -77.5}
  - {network: 127.3.0.0/16, country: JP, lat: 35.7, lon: 139.7}
  - {network: "2001:db8:1::/48", country: DE, lat: 50.1, lon: 8.7}
  - {network: "2001:db8:2::/48", country: US, lat: 39.0, lon: -77.5}
"""


OPTIONS = ServerOptions(b"fra-1", b"gtm", 10.0, ServerCookies(bytes(16)))
"""What gtm says of itself here."""

MANY = 90
"""Addresses of `big.demo.test` here: more than fit in a datagram, and no more than BIND keeps of a set (100)."""


def world(*down: str) -> Router:
    """The tests' world, with the regions `down` down, and answers that no cache lets go of during a test."""
    end = replace(BIG.endpoints[0], ipv4=BIG.endpoints[0].ipv4[:MANY])
    policy = worlds.changed(POLICY, "regions", "big", endpoints=(end,))
    zones = tuple(replace(zone, minimum=3600) for zone in POLICY.zones)
    services = tuple(replace(service, ttl=3600) for service in POLICY.services)
    return router(*down, policy=replace(policy, zones=zones, services=services))


@dataclass(slots=True)
class Authority:
    """A running gtm DNS: its port, what it counts, and what it was asked.

    `asked` are the questions: name, and client subnet or None. `cookies` are clients' addresses and COOKIE options.
    """

    port: int
    counts: Counts
    asked: list[tuple[str, str | None]] = field(default_factory=list)
    cookies: list[tuple[str, bytes]] = field(default_factory=list)
    counted: Counter[str] = field(default_factory=Counter)

    def queries(self, rdtype: str = "A") -> int:
        """How many questions of a type gtm has answered, by its counters."""
        self.counted.update({key: int(number) for key, number in self.counts.take().items()})
        found = ((key.split("\t"), number) for key, number in self.counted.items())
        return sum(number for key, number in found if key[0] == "gtm_dns_queries_total" and key[2] == rdtype)

    def subnets(self, name: str) -> list[str | None]:
        """The client subnets of the questions for a name, in any case of its letters."""
        return [subnet for asked, subnet in self.asked if asked.lower() == name]


@contextlib.contextmanager
def authority(directory: Path, *down: str) -> Iterator[Authority]:
    """Gtm with this module's world and networks, the regions `down` being down."""
    overrides = directory / "overrides.yaml"
    overrides.write_text(OVERRIDES)
    locator = Locator(overrides=overrides)
    counts = Counts()
    answerer = Answerer(world(*down), locator.locate, counts, options=OPTIONS)
    made = Authority(0, counts)
    draws = iter(range(1_000_000))

    def respond(packet: bytes, client: str, tcp: bool) -> bytes | None:
        with contextlib.suppress(dns.exception.DNSException):
            message = dns.message.from_wire(packet)
            made.asked.append((message.question[0].name.to_text(omit_final_dot=True), _subnet(message)))
            made.cookies += [(client, item.to_wire() or b"") for item in message.options if item.otype == 10]
        return answerer.answer(packet, client, tcp=tcp, draw=next(draws) * 0.618034 % 1.0)

    with running(BoundServer([("127.0.0.1", 0)], respond)) as server:
        made.port = server.addresses[0][1]
        yield made
    locator.close()


def _subnet(message: dns.message.Message) -> str | None:
    return next(
        (f"{item.address}/{item.srclen}" for item in message.options if isinstance(item, dns.edns.ECSOption)),
        None,
    )


@dataclass(frozen=True, slots=True)
class Resolver:
    """A running resolver on 127.0.0.1."""

    port: int

    def ask(
        self,
        name: str,
        rdtype: str = "A",
        *,
        client: str = "127.0.0.1",
        subnet: str | None = None,
        dnssec: bool = False,
    ) -> dns.message.Message:
        """Ask it as a client at an address, with a client subnet or without; over TCP where the answer is truncated."""
        options = []
        if subnet is not None:
            address, _, length = subnet.partition("/")
            options = [dns.edns.ECSOption(address, int(length))]
        query = dns.message.make_query(
            name, rdtype, use_edns=0, options=options, want_dnssec=dnssec, payload=1232
        )
        reply, _ = dns.query.udp_with_fallback(query, "127.0.0.1", PATIENCE, self.port, source=client)
        return reply


@contextlib.contextmanager
def program(command: list[str], directory: Path, port: int) -> Iterator[Resolver]:
    """A resolver that runs until the end, ready to answer; its output is in `directory/log`."""
    log = directory / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=directory, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
        )
    try:
        _wait(process, port, log)
        yield Resolver(port)
    finally:
        process.terminate()
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    """Until it answers anything at all over both transports."""
    deadline = time.monotonic() + PATIENCE
    question = dns.message.make_query("version.bind", "TXT", "CH")  # which resolvers answer themselves
    while time.monotonic() < deadline:
        if process.poll() is not None:
            break
        with contextlib.suppress(OSError, dns.exception.DNSException, EOFError):
            dns.query.udp(question, "127.0.0.1", 0.5, port)
            dns.query.tcp(question, "127.0.0.1", 0.5, port)
            return
        time.sleep(0.05)
    raise AssertionError(f"{process.args!r} does not answer:\n{log.read_text(errors='replace')}")


_UNBOUND = """\
server:
  directory: "{directory}"
  chroot: ""
  username: ""
  pidfile: ""
  use-syslog: no
  logfile: ""
  do-daemonize: no
  num-threads: 1
  interface: 127.0.0.1
  port: {port}
  do-ip6: no
  outgoing-interface: {source}
  access-control: 127.0.0.0/8 allow
  do-not-query-localhost: no
  local-zone: "test." nodefault
{server}
remote-control:
  control-enable: no
stub-zone:
  name: "{zone}"
  stub-addr: 127.0.0.1@{authority}
"""


@contextlib.contextmanager
def unbound(
    directory: Path, authority_port: int, *, zone: str = "test", source: str = RESOLVER, server: str = ""
) -> Iterator[Resolver]:
    """Unbound for one zone.

    Args:
        directory: where its files live.
        authority_port: of the zone's server on 127.0.0.1.
        zone: what it asks there.
        source: the address it asks from.
        server: more lines of its `server:` clause; without a `module-config` it neither validates nor sends subnets.
    """
    command = tool("unbound")
    port = free_port()
    if "module-config" not in server:
        server += '  module-config: "iterator"\n'
    config = directory / "unbound.conf"
    config.write_text(
        _UNBOUND.format(
            directory=directory,
            port=port,
            source=source,
            server=server,
            zone=zone,
            authority=authority_port,
        )
    )
    with program([command, "-d", "-p", "-c", str(config)], directory, port) as running_one:
        yield running_one


@contextlib.contextmanager
def subnet_unbound(directory: Path, authority_port: int) -> Iterator[Resolver]:
    """Unbound that tells gtm its clients' networks, /24 at most, and believes what clients say of theirs."""
    server = """\
  module-config: "subnetcache iterator"
  send-client-subnet: 127.0.0.1
  max-client-subnet-ipv4: 24
  client-subnet-always-forward: yes
"""
    with unbound(directory, authority_port, server=server) as resolver:
        yield resolver


@contextlib.contextmanager
def validating_unbound(directory: Path, zone: str, anchor: str, authority_port: int) -> Iterator[Resolver]:
    """Unbound that validates a zone.

    Args:
        directory: where its files live.
        zone: the zone's name.
        anchor: its DS or DNSKEY record, as a zone file has it (`example.test. IN DS …`).
        authority_port: of the zone's server on 127.0.0.1.
    """
    server = f"""\
  module-config: "validator iterator"
  trust-anchor: "{anchor}"
  val-log-level: 2
"""
    with unbound(directory, authority_port, zone=zone, server=server) as resolver:
        yield resolver


_NAMED = """\
options {{
  directory "{directory}";
  pid-file none;
  session-keyfile "{directory}/session.key";
  listen-on port {port} {{ 127.0.0.1; }};
  listen-on-v6 {{ none; }};
  query-source address {source};
  allow-query {{ 127.0.0.0/8; }};
  recursion yes;
  dnssec-validation no;
  empty-zones-enable no;
}};
controls {{ }};
zone "test" {{ type forward; forward only; forwarders {{ 127.0.0.1 port {authority}; }}; }};
"""


@contextlib.contextmanager
def bind(directory: Path, authority_port: int, *, source: str = RESOLVER) -> Iterator[Resolver]:
    """BIND 9, whose open version sends no client subnets: gtm sees its address alone."""
    command = tool("named")
    port = free_port()
    config = directory / "named.conf"
    config.write_text(_NAMED.format(directory=directory, port=port, source=source, authority=authority_port))
    with program([command, "-g", "-n", "1", "-c", str(config)], directory, port) as resolver:
        yield resolver


_RECURSOR = """\
local-address=127.0.0.1
local-port={port}
query-local-address={source}
socket-dir={directory}
config-dir={directory}
allow-from=127.0.0.0/8
dont-query=
forward-zones=test=127.0.0.1:{authority}
edns-subnet-allow-list=127.0.0.1
ecs-add-for=0.0.0.0/0,::/0
ecs-ipv4-bits=24
ecs-ipv4-cache-bits=24
use-incoming-edns-subnet=yes
dnssec=off
threads=1
daemon=no
disable-syslog=yes
write-pid=no
"""


@contextlib.contextmanager
def powerdns(directory: Path, authority_port: int) -> Iterator[Resolver]:
    """PowerDNS Recursor that tells gtm its clients' networks, /24 at most, and believes what clients say of theirs."""
    command = tool("pdns_recursor")
    port = free_port()
    (directory / "recursor.conf").write_text(
        _RECURSOR.format(directory=directory, port=port, source=RESOLVER, authority=authority_port)
    )
    with program([command, f"--config-dir={directory}"], directory, port) as resolver:
        yield resolver


_KNOT = """\
net.listen('127.0.0.1', {port}, {{ kind = 'dns' }})
net.ipv6 = false
net.outgoing_v4('{source}')
cache.open(10 * MB, 'lmdb://{directory}/cache')
trust_anchors.remove('.')
policy.add(policy.suffix(policy.STUB('127.0.0.1@{authority}'), {{todname('test.')}}))
"""


@contextlib.contextmanager
def knot(directory: Path, authority_port: int, *, source: str = RESOLVER) -> Iterator[Resolver]:
    """Knot Resolver, which sends no client subnets."""
    command = tool("kresd")
    port = free_port()
    config = directory / "kresd.conf"
    config.write_text(_KNOT.format(directory=directory, port=port, source=source, authority=authority_port))
    with program([command, "-n", "-q", "-c", str(config), str(directory)], directory, port) as resolver:
        yield resolver
