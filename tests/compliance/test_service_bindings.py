"""HTTPS records of services (RFC 9460)."""

from __future__ import annotations

from dataclasses import replace

import dns.rcode
import dns.rdtypes.svcbbase as svcb
import pytest

from gtm.core.model.services import HttpsRecord
from gtm.dns.answer.answerer import Answerer
from gtm.telemetry import Counts
from tests.dns.world import (
    ALWAYS_DOWN,
    POLICY,
    SECURE,
    addresses,
    answerer,
    both,
    errors_of,
    locate,
    query,
    router,
    service,
    subnet_of,
)

DE, US, JP = "10.1.2.0/24", "10.2.3.0/24", "10.8.3.0/24"
SERVICES = (
    service("chat", "eu ie us", https_record=HttpsRecord(("h2", "h3"))),
    service("plain", "eu us"),
    service("tls", "tls", https_record=HttpsRecord(("h2",))),
    service("few", "half", max_answers=3, https_record=HttpsRecord(())),
    service("jp", "jp", https_record=HttpsRecord(("h2",))),
    service(
        "apex", "alias-only", hostnames=("alias.test",), zone="alias.test", https_record=HttpsRecord(("h2",))
    ),
)


def server(*down: str) -> Answerer:
    """The tests' world over https, with services that have HTTPS records."""
    always = (url.replace("http:", "https:") for url in ALWAYS_DOWN)
    return Answerer(
        router(*down, *always, policy=replace(POLICY, regions=SECURE, services=SERVICES)), locate, Counts()
    )


def bindings(name: str, subnet: str = DE, *down: str) -> list[svcb.SVCBBase]:
    """The HTTPS records of a name."""
    return [
        item for rrset in both(server(*down), query(name, "HTTPS", subnet=subnet)).answer for item in rrset
    ]


@pytest.mark.rfc("9460", "2.4.3", "ServiceMode: a priority above 0, and `.` for the name itself")
@pytest.mark.rfc("9460", "7.1", "alpn lists the protocols that the service states")
def test_service_mode() -> None:
    """A service's record is for its own name, and says what the service says."""
    (found,) = bindings("chat.demo.test")
    assert (found.priority, found.target.to_text()) == (1, ".")
    assert found.params[svcb.ParamKey.ALPN].to_text() == '"h2,h3"'
    (bare,) = bindings("few.demo.test")
    assert svcb.ParamKey.ALPN not in bare.params


@pytest.mark.rfc("9460", "7.3", "hints are addresses that A and AAAA of the name would give the same client")
@pytest.mark.parametrize(("subnet", "down"), [(DE, ()), (US, ()), (DE, ("https://eu-2",)), (DE, ("eu",))])
def test_hints(subnet: str, down: tuple[str, ...]) -> None:
    """What is hinted at is inside the fence, and up: the addresses of the decision's region and of no other."""
    one = server(*down)
    (found,) = bindings("chat.demo.test", subnet, *down)
    for rdtype, key in (("A", svcb.ParamKey.IPV4HINT), ("AAAA", svcb.ParamKey.IPV6HINT)):
        given = found.params.get(key)
        hinted = set() if given is None else set(given.addresses)
        assert hinted == set(addresses(both(one, query("chat.demo.test", rdtype, subnet=subnet))))


@pytest.mark.rfc("9460", "2.2", "parameters are in ascending order of their keys, each once and none empty")
@pytest.mark.rfc("9460", "7.2", "a port is stated where it is not the scheme's own")
def test_parameters_are_canonical() -> None:
    """The wire form is strictly ordered."""
    found = bindings("tls.demo.test")
    assert sorted(
        item.params[svcb.ParamKey.PORT].port for item in found if svcb.ParamKey.PORT in item.params
    ) == [8443]
    assert len(found) == 1
    for item in (*found, *bindings("chat.demo.test"), *bindings("few.demo.test")):
        wire = item.to_wire()
        at, keys = 2 + len(item.target.to_wire()), []
        while at < len(wire):
            key, length = (int.from_bytes(wire[at + step : at + step + 2], "big") for step in (0, 2))
            assert length
            keys.append(key)
            at += 4 + length
        assert keys == sorted(set(keys))


@pytest.mark.rfc(
    "9460", "2.4.2", "AliasMode stands where no CNAME can: at an apex, with priority 0 and no parameters"
)
def test_alias_mode() -> None:
    """A region with an alias only answers with a CNAME, or at an apex with an HTTPS alias."""
    (found,) = bindings("alias.test")
    assert (found.priority, found.target.to_text(), dict(found.params)) == (0, "lb.example.net.", {})
    reply = both(server(), query("jp.demo.test", "HTTPS", subnet=JP))
    assert [rrset.rdtype.name for rrset in reply.answer] == ["CNAME"]


@pytest.mark.rfc("9460", "2.4.1", "a name's HTTPS records are all of one mode, for everyone")
@pytest.mark.rfc("7871", "7.4", "a name with HTTPS records has them for every client, refused ones included")
@pytest.mark.parametrize("down", [(), ("eu", "ie"), ("eu", "ie", "us")])
def test_refused_clients_learn_of_no_region(down: tuple[str, ...]) -> None:
    """A client that is refused gets a record without any hint, with the reason; others get theirs."""
    for subnet in (DE, US):
        refused = bool(down) and (subnet == DE or "us" in down)
        reply = both(server(*down), query("chat.demo.test", "HTTPS", subnet=subnet))
        (found,) = (item for rrset in reply.answer for item in rrset)
        assert found.priority == 1
        assert (dict(found.params) == {}) is refused
        assert bool(errors_of(reply)) is refused
        assert subnet_of(reply) is not None


@pytest.mark.rfc("9460", "3", "a service without HTTPS records is NODATA for that type")
def test_services_without() -> None:
    """Nothing is said of HTTPS that the operator has not said."""
    reply = both(server(), query("plain.demo.test", "HTTPS", subnet=DE))
    assert (reply.rcode(), reply.answer, len(reply.authority)) == (dns.rcode.NOERROR, [], 1)
    assert both(answerer(), query("chat.demo.test", "HTTPS")).answer == []


@pytest.mark.rfc(
    "9460", "4.1", "an HTTPS answer is tailored like the addresses: with the scope of the client's network"
)
def test_scope() -> None:
    """Hints are for the network that they are made for."""
    for rdtype in ("HTTPS", "A"):
        assert subnet_of(both(server(), query("chat.demo.test", rdtype, subnet=DE))) == ("10.1.2.0", 24, 16)
