"""Addresses as text, as packed bytes and as numbers; the one place where their text is judged."""

from __future__ import annotations

from ipaddress import AddressValueError, IPv4Address, IPv6Address, ip_address
from socket import AF_INET, AF_INET6, inet_ntop, inet_pton

Address = IPv4Address | IPv6Address

_SHOWN = 64


def parse_address(text: str) -> Address:
    """Read an IP address; an IPv4-mapped IPv6 address (RFC 4291 §2.5.5.2) is the IPv4 address inside it.

    Raises:
        ValueError: the text is no address, has leading zeros in an IPv4 part, or a scope id (RFC 4007 §11).
    """
    try:
        # A third of the time of `ip_address`, which judges what this does not take.
        return plain_address(text)
    except ValueError:
        pass
    try:
        address = ip_address(text)
    except ValueError:
        raise ValueError(f"{_quoted(text)} is not an IPv4 or IPv6 address") from None
    return _plain(address, text)


def plain_address(text: str) -> Address:
    """As `parse_address`, but for the few ways of writing an address that take it longer.

    What it reads holds nothing but hexadecimal digits, dots and colons.

    Raises:
        ValueError: the text is no address, or one of those.
    """
    try:
        return from_packed(inet_pton(AF_INET6 if ":" in text else AF_INET, text))
    except OSError:
        raise ValueError(f"{_quoted(text)} is not a plain IPv4 or IPv6 address") from None


def from_packed(packed: bytes) -> Address:
    """Read an address in network byte order, 4 or 16 bytes, in the way of `parse_address`.

    Raises:
        ValueError: any other number of bytes.
    """
    try:
        address = IPv4Address(packed) if len(packed) == 4 else IPv6Address(packed)
    except AddressValueError:
        raise ValueError(f"a packed address has 4 or 16 bytes, not {len(packed)}") from None
    return _plain(address, "")


def normal(address: Address) -> Address:
    """Put an address in the form of `parse_address`.

    Raises:
        ValueError: it has a scope id.
    """
    return _plain(address, str(address))


def network_text(start: int, prefix_length: int, bits: int) -> str:
    """CIDR notation of a network of 32-bit or 128-bit addresses."""
    family = AF_INET if bits == 32 else AF_INET6
    return f"{inet_ntop(family, start.to_bytes(bits // 8, 'big'))}/{prefix_length}"


def _plain(address: Address, text: str) -> Address:
    if address.version == 4:
        return address
    if address.scope_id is not None:
        raise ValueError(f"{_quoted(text)} has a scope id; give the address without it")
    return address.ipv4_mapped or address


def _quoted(text: str) -> str:
    shown = text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
    return f"`{shown.encode('unicode_escape').decode('ascii')}`"
