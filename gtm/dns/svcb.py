"""The data of HTTPS records (RFC 9460) that services answer with."""

from __future__ import annotations

from collections.abc import Iterable
from socket import AF_INET, AF_INET6, inet_pton
from urllib.parse import urlsplit

from gtm.core.model import Endpoint, HttpsRecord

_ALPN, _PORT, _IPV4_HINT, _IPV6_HINT = 1, 3, 4, 6
"""SvcParamKeys (RFC 9460 §14.3.2)."""
_DEFAULT_PORT = 443

BARE = b"\0\1\0"
"""ServiceMode with this name as its own target and no parameters: nothing but that https is spoken here."""


def alias_data(target: bytes) -> bytes:
    """AliasMode (RFC 9460 §2.4.2), which can stand where no CNAME can: at a zone's apex."""
    return b"\0\0" + target


def https_data(
    record: HttpsRecord, endpoints: Iterable[Endpoint], ipv4: tuple[str, ...], ipv6: tuple[str, ...]
) -> tuple[bytes, ...]:
    """ServiceMode records for the endpoints of a region, one for each port.

    Args:
        record: what the service says of all its regions.
        endpoints: those with addresses are meant.
        ipv4: the region's, to hint at.
        ipv6: likewise.
    """
    ports: dict[int, set[str]] = {}
    for endpoint in endpoints:
        if endpoint.ipv4 or endpoint.ipv6:
            port = urlsplit(endpoint.url).port or _DEFAULT_PORT
            ports.setdefault(port, set()).update(endpoint.ipv4, endpoint.ipv6)
    return tuple(
        _service_mode(
            record.alpn,
            port,
            [address for address in ipv4 if address in known],
            [address for address in ipv6 if address in known],
        )
        for port, known in ports.items()
    )


def _service_mode(alpn: Iterable[str], port: int, ipv4: Iterable[str], ipv6: Iterable[str]) -> bytes:
    values = {
        _ALPN: b"".join(bytes((len(name),)) + name.encode() for name in alpn),
        _PORT: b"" if port == _DEFAULT_PORT else port.to_bytes(2, "big"),
        _IPV4_HINT: b"".join(inet_pton(AF_INET, address) for address in ipv4),
        _IPV6_HINT: b"".join(inet_pton(AF_INET6, address) for address in ipv6),
    }
    # In ascending order of keys (RFC 9460 §2.2), and none that is empty.
    return BARE + b"".join(
        key.to_bytes(2, "big") + len(value).to_bytes(2, "big") + value
        for key, value in values.items()
        if value
    )
