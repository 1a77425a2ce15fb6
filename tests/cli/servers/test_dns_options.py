"""What an edge's DNS is told on the command line."""

from __future__ import annotations

from ipaddress import ip_network
from typing import Any

import pytest

from gtm.cli.common.exits import CommandError
from gtm.cli.servers.declared import Given
from gtm.settings import DnsSettings, EdgeSettings


def told(**given: Any) -> DnsSettings:
    """The settings from these options, and the defaults of the others."""
    options = Given({f"dns_{name}": value for name, value in given.items()})
    return options.settings(EdgeSettings, control_url="", token="", name="").dns


def test_defaults() -> None:
    """Without options, the settings are the defaults."""
    assert told() == DnsSettings()


def test_names() -> None:
    """A name replaces the edge's, and `none` stands for none, which an empty variable cannot."""
    assert told(nsid="fra-1").nsid == "fra-1"
    assert told(nsid="none").nsid == ""
    assert told(version="gtm 1.0").version == "gtm 1.0"


def test_exempt_networks() -> None:
    """Networks are listed with commas, and `none` exempts nobody."""
    assert told(rate_limit_exempt="192.0.2.0/24, 2001:db8::/32").rate_limit_exempt == (
        ip_network("192.0.2.0/24"),
        ip_network("2001:db8::/32"),
    )
    assert told(rate_limit_exempt="none").rate_limit_exempt == ()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"nsid": "x" * 256}, "--dns-nsid: at most 255 bytes"),
        ({"version": "ü" * 128}, "--dns-version: at most 255 bytes"),
        ({"rate_limit_exempt": "192.0.2.1/24"}, "--dns-rate-limit-exempt: .* has host bits set"),
    ],
)
def test_wrong_options(given: dict[str, str], words: str) -> None:
    """What cannot be is refused with the option's name."""
    with pytest.raises(CommandError, match=words):
        told(**given)
