"""IPv6 addresses that stand for IPv4 addresses, by the examples of the RFCs."""

from __future__ import annotations

from ipaddress import IPv4Address, ip_address

import pytest

from gtm.core.model.addresses import host_port, led_to


@pytest.mark.parametrize(
    ("address", "leads_to"),
    [
        ("192.0.2.33", set()),
        ("2001:db8::33", set()),
        ("::ffff:192.0.2.33", {"192.0.2.33"}),
        ("64:ff9b::192.0.2.33", {"192.0.2.33"}),  # RFC 6052 §2.4
        ("2002:c000:221::1", {"192.0.2.33"}),  # RFC 3056 §2
        ("2001:0:4136:e378:8000:63bf:3fff:fdd2", {"65.54.227.120", "192.0.2.45"}),  # RFC 4380 §4
        ("2001:db8::5efe:192.0.2.33", {"192.0.2.33"}),  # RFC 5214 §6.1
    ],
)
def test_what_an_address_leads_to(address: str, leads_to: set[str]) -> None:
    """Translators' and tunnels' forms, and no others."""
    assert set(led_to(ip_address(address))) == set(map(IPv4Address, leads_to))


def test_a_prefix_of_ones_own_may_have_any_length() -> None:
    """RFC 6052 §2.2: the address stands behind 48, 56, 64 or 96 bits, without the ninth octet."""
    assert IPv4Address("192.0.2.33") in set(led_to(ip_address("64:ff9b:1:c000:2:2100::")))


def test_a_host_and_its_port() -> None:
    """IPv6 addresses stand in brackets."""
    assert (host_port("a.example", 80), host_port("::1", 80)) == ("a.example:80", "[::1]:80")
