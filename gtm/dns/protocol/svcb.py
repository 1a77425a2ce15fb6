"""The data of HTTPS records (RFC 9460) that services answer with."""

from __future__ import annotations

from collections.abc import Iterable
from socket import AF_INET, AF_INET6, inet_pton

from gtm.core.model.regions import Endpoint, https_port
from gtm.core.model.services import HttpsRecord

_ALPN, _PORT, _IPV4_HINT, _IPV6_HINT = 1, 3, 4, 6
"""SvcParamKeys (RFC 9460 §14.3.2)."""
_DEFAULT_PORT = 443

BARE = b"\0\1\0"
"""ServiceMode with this name as its own target and no parameters: nothing but that https is spoken here."""


def alias_data(target: bytes) -> bytes:
    """AliasMode (RFC 9460 §2.4.2), which can stand where no CNAME can: at a zone's apex."""
    return b"\0\0" + target


def https_data(
    record: HttpsRecord, endpoints: Iterable[Endpoint], ipv4: Iterable[str], ipv6: Iterable[str]
) -> bytes:
    """ServiceMode, with a region's port and addresses.

    Args:
        record: what the service says of all its regions.
        endpoints: the region's. Those with addresses have one port, which compiling a policy sees to.
        ipv4: the region's, to hint at.
        ipv6: likewise.
    """
    port = next(https_port(endpoint) for endpoint in endpoints if endpoint.ipv4 or endpoint.ipv6)
    values = {
        _ALPN: b"".join(bytes((len(name),)) + name.encode() for name in record.alpn),
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
