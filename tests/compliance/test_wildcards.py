"""The example of RFC 4592 §2.2.1, answer by answer."""

from __future__ import annotations

import dns.flags
import dns.rcode
import pytest

from gtm.core.model.policy import Policy
from gtm.core.model.services import NameServer, RecordSet, Zone
from gtm.dns.answer.answerer import Answerer
from gtm.telemetry import Counts
from tests.dns.world import addresses, both, locate, query, router

ZONE = Zone(
    "example",
    "ns.example.com",
    "hostmaster.example.com",
    (NameServer("ns.example.com"), NameServer("ns.example.net")),
    records=(
        RecordSet("*", "TXT", ('"this is a wildcard"',)),
        RecordSet("*", "MX", ("10 host1",)),
        RecordSet("sub.*", "TXT", ('"this is not a wildcard"',)),
        RecordSet("host1", "A", ("192.0.2.1",)),
        RecordSet("_ssh._tcp.host1", "SRV", ("0 0 22 host1",)),
        RecordSet("_ssh._tcp.host2", "SRV", ("0 0 22 host2",)),
        RecordSet("subdel", "NS", ("ns.example.com.", "ns.example.net.")),
    ),
)
SERVER = Answerer(router(policy=Policy(zones=(ZONE,))), locate, Counts())


@pytest.mark.rfc("4592", "2.2.1", "the synthesized answers of its example")
@pytest.mark.parametrize(
    ("name", "rdtype", "expected"),
    [
        ("host3.example", "MX", ["10 host1.example."]),
        ("host3.example", "A", []),
        ("foo.bar.example", "TXT", ['"this is a wildcard"']),
        ("ghost.host3.example", "MX", ["10 host1.example."]),
    ],
)
def test_synthesized(name: str, rdtype: str, expected: list[str]) -> None:
    """What does not exist is answered from the wildcard, in its own name; a type that is not there is NODATA."""
    reply = both(SERVER, query(name, rdtype))
    assert (reply.rcode(), addresses(reply)) == (dns.rcode.NOERROR, expected)
    assert [rrset.name.to_text() for rrset in reply.answer] == [f"{name}."][: len(expected)]
    assert bool(reply.authority) is not bool(expected)


@pytest.mark.rfc("4592", "2.2.1", "the answers of its example that no wildcard gives")
@pytest.mark.parametrize(
    ("name", "rdtype", "rcode"),
    [
        ("host1.example", "MX", dns.rcode.NOERROR),  # exists
        ("sub.*.example", "MX", dns.rcode.NOERROR),  # exists
        ("_tcp.host1.example", "TXT", dns.rcode.NOERROR),  # an empty non-terminal
        ("host2.example", "MX", dns.rcode.NOERROR),  # likewise
        ("_telnet._tcp.host1.example", "SRV", dns.rcode.NXDOMAIN),  # _tcp.host1 is the closest encloser
        ("ghost.*.example", "MX", dns.rcode.NXDOMAIN),  # *.example is
    ],
)
def test_not_synthesized(name: str, rdtype: str, rcode: int) -> None:
    """What exists, and what has a closer encloser than the wildcard's parent, is denied with the zone's SOA."""
    reply = both(SERVER, query(name, rdtype))
    assert (reply.rcode(), reply.answer) == (rcode, [])
    assert [rrset.name.to_text() for rrset in reply.authority] == ["example."]


@pytest.mark.rfc("4592", "2.2.1", "names below a delegation are referred to it, whatever wildcards there are")
def test_delegations_come_first() -> None:
    """The zone cut ends the wildcard's reach."""
    reply = both(SERVER, query("host.subdel.example", "A"))
    assert (reply.rcode(), reply.answer) == (dns.rcode.NOERROR, [])
    assert not reply.flags & dns.flags.AA
    assert [rrset.name.to_text() for rrset in reply.authority] == ["subdel.example."]


@pytest.mark.rfc(
    "4592", "2.1.1", "an asterisk elsewhere than in front, or beside others in a label, is only a character"
)
@pytest.mark.rfc(
    "4592", "2.3", "the wildcard's own name, and a name with an asterisk in it, match as they are"
)
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("*.example", ['"this is a wildcard"']),
        ("sub.*.example", ['"this is not a wildcard"']),
        ("a*.example", ['"this is a wildcard"']),
    ],
)
def test_asterisks(name: str, expected: list[str]) -> None:
    """Asked by name, a wildcard is a name."""
    assert addresses(both(SERVER, query(name, "TXT"))) == expected
