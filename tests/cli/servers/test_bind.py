"""Where servers are told to listen."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gtm.cli.common.exits import CommandError, Exit
from gtm.cli.servers.declared import Given
from gtm.settings import Address, EdgeSettings
from tests.cli.conftest import Gtm


def settings(**given: object) -> EdgeSettings:
    """An edge's, of these options."""
    return Given(given).settings(EdgeSettings, control_url="", token="", name="")


def dns_addresses(given: list[str], port: int) -> tuple[Address, ...]:
    """Where an edge's DNS listens that is told of these addresses, and of a port for all."""
    return settings(dns_bind=given, dns_port=port, bind=["192.0.2.254"]).dns_addresses


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("192.0.2.1", ("192.0.2.1", 53)),
        ("192.0.2.1:5353", ("192.0.2.1", 5353)),
        ("2001:db8::1", ("2001:db8::1", 53)),
        ("[2001:db8::1]", ("2001:db8::1", 53)),
        ("[2001:db8::1]:0", ("2001:db8::1", 0)),
        ("::", ("::", 53)),
    ],
)
def test_an_address_for_dns_may_have_a_port(text: str, wanted: tuple[str, int]) -> None:
    """IPv4 and IPv6, with a port of their own or the common one."""
    assert dns_addresses([text], 53) == (wanted,)


def test_several_addresses() -> None:
    """Options given again, and commas, mean the same."""
    assert settings(bind=["192.0.2.1,::1", "192.0.2.2"]).bind == ("192.0.2.1", "::1", "192.0.2.2")
    assert dns_addresses(["192.0.2.1, ::1", "192.0.2.2:54"], 53) == (
        ("192.0.2.1", 53),
        ("::1", 53),
        ("192.0.2.2", 54),
    )
    assert dns_addresses([], 53) == (("192.0.2.254", 53),)


@pytest.mark.parametrize(
    "text", ["localhost", "192.0.2.1:", "192.0.2.1:x", "192.0.2.1:65536", "[::1", "[::1]53"]
)
def test_what_is_no_address_is_said(text: str) -> None:
    """Anything else is refused with the text that was given."""
    with pytest.raises(CommandError, match="--dns-bind") as raised:
        dns_addresses([text], 53)
    assert f"`{text}`" in str(raised.value)


@given(st.text(max_size=40))
def test_any_text_is_addresses_or_refused(text: str) -> None:
    """No text does anything else than name addresses or be refused."""
    try:
        found = dns_addresses([text], 53)
    except CommandError:
        return
    assert all(0 <= port <= 65535 for _, port in found)


def test_edge_as_a_user_that_is_not_there(bare: Gtm) -> None:
    """An unknown user is named before anything is bound."""
    done = bare("edge", "--user", "no-such-user", "--edge-port", "0", "--dns-port", "0", GTM_TOKEN="t")
    assert done.code == Exit.CANNOT_RUN
    assert "no user `no-such-user`" in " ".join(done.err.split())


def test_addresses_from_the_environment(bare: Gtm) -> None:
    """Variables hold addresses as options do."""
    for variable, option in (("GTM_BIND", "--bind"), ("GTM_DNS_BIND", "--dns-bind")):
        done = bare("edge", GTM_TOKEN="t", **{variable: "192.0.2.1,nowhere"})
        assert done.code == Exit.BAD_INPUT
        assert f"{option}: `nowhere`" in done.err
