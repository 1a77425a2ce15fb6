from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gtm.geoip.address import from_packed, network_text, parse_address
from gtm.geoip.reader import Locator

ALPHABET = st.sampled_from("0123456789abcdefABCDEF.:%/ \x00-é１")


@pytest.fixture(scope="module")
def locator() -> Locator:
    """The shipped database."""
    return Locator()


@pytest.mark.parametrize(
    "text",
    [
        "",
        " 1.2.3.4",
        "1.2.3",
        "01.2.3.4",
        "1.2.3.4/32",
        "1.2.3.256",
        "0x7f.1",
        "16909060",
        "fe80::1%eth0",
        "::ffff:01.2.3.4",
        "1.2.3.4\n",
        "1.2.3.4\x00",
        ":::",
        "12345::",
        "１.2.3.4",
        "[::1]",
    ],
)
def test_bad_text(locator: Locator, text: str) -> None:
    """Text that is no plain address is a ValueError that shows it, from the locator as from the parser."""
    with pytest.raises(ValueError, match=r"is not an IPv4 or IPv6 address|has a scope id"):
        parse_address(text)
    with pytest.raises(ValueError, match=r"is not an IPv4 or IPv6 address|has a scope id"):
        locator.locate(text)


def test_long_text_is_shown_in_part() -> None:
    """An error doesn't repeat a megabyte, nor control characters."""
    with pytest.raises(ValueError) as caught:
        parse_address("\x1b[2J" + "9" * 1_000_000)
    assert len(str(caught.value)) < 150
    assert str(caught.value).isprintable()


@given(st.text(max_size=60) | st.text(ALPHABET, max_size=45))
def test_any_text(locator: Locator, text: str) -> None:
    """No text raises anything but ValueError, and none is accepted that `ipaddress` refuses."""
    try:
        location = locator.locate(text)
    except ValueError:
        return
    ip_address(text)
    assert location.network is not None


@given(st.binary(max_size=20))
def test_any_bytes(locator: Locator, packed: bytes) -> None:
    """4 and 16 bytes are addresses; any other number is a ValueError."""
    if len(packed) in (4, 16):
        assert locator.locate(packed) == locator.locate(str(from_packed(packed)))
    else:
        with pytest.raises(ValueError, match=f"4 or 16 bytes, not {len(packed)}"):
            locator.locate(packed)


@given(st.integers(0, 2**32 - 1))
def test_mapped(number: int) -> None:
    """An IPv4-mapped IPv6 address is the IPv4 address inside it."""
    address = IPv4Address(number)
    assert parse_address(f"::ffff:{address}") == address
    assert from_packed(IPv6Address(0xFFFF << 32 | number).packed) == address


@given(st.integers(0, 2**128 - 1))
def test_network_text(number: int) -> None:
    """Networks are written as `ipaddress` reads them."""
    assert parse_address(network_text(number, 128, 128)[:-4]) == parse_address(str(IPv6Address(number)))
