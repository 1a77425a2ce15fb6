"""Who is asking: the client's address, from the socket or from trusted proxies' headers.

Laws:
  1. A header counts only if the socket's peer is a trusted proxy. Anybody can write headers.
  2. The list is walked from the right, where the nearest proxy wrote: the first address that is not a trusted proxy's
     is the client. What stands further left, the client may have made up.
  3. Never guess: a proxy that does not say for whom it asks, what cannot be read on the way, and headers that contradict
     each other make the client unknown. An unknown client gets the strictest fence.
  4. A trusted proxy is never the client: what is told of it says nothing of who is behind it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from socket import AF_INET, inet_ntop, inet_pton
from typing import NamedTuple

from gtm.geoip.address import Address, parse_address, plain_address
from gtm.settings import Network

_MAX_HEADER = 8192
_IPV4_PORT = re.compile(r"([0-9.]+):[0-9]{1,5}", re.ASCII)
_BRACKETED = re.compile(r"\[([0-9A-Fa-f:.]+)\](?::[0-9]{1,5})?", re.ASCII)
# RFC 7239 §4, with RFC 9110 §5.6.2 and §5.6.4 for tokens and quoted strings.
_WORD = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_SPACES = re.compile(r"[ \t]+")
_PAIR = re.compile(rf'[ \t]*({_WORD})=({_WORD}|"(?:[^"\\]|\\.)*")[ \t]*')


def _address(text: str) -> Address | None:
    try:
        return parse_address(text)
    except ValueError:
        return None


@lru_cache(maxsize=4096)
def peer_address(text: str | None) -> Address | None:
    """A socket's peer; a link-local address may carry its zone."""
    return None if text is None else _address(text.partition("%")[0])


class ClientAddress(
    NamedTuple
):  # a tenth of the time of `ipaddress`'s values, of which a look-up needs no more than this
    """Whom a request is about: an address in network order (4 or 16 bytes), and as answers write it."""

    packed: bytes
    text: str

    @classmethod
    def of(cls, address: Address | None) -> ClientAddress | None:
        """The client at an address; None if it is unknown."""
        return None if address is None else cls(address.packed, str(address))

    @classmethod
    def plain(cls, text: str) -> ClientAddress:
        """The client at an address in one of the plain notations (`gtm.geoip.address.plain_address`).

        Raises:
            ValueError: the text is no address, or one in another notation.
        """
        if ":" in text:
            address = plain_address(text)
            return cls(address.packed, str(address))
        try:
            packed = inet_pton(AF_INET, text)
        except OSError:
            raise ValueError(f"`{text[:64]}` is no address") from None
        return tuple.__new__(cls, (packed, inet_ntop(AF_INET, packed)))


def is_in(peer: str | None, networks: Sequence[Network]) -> bool:
    """Whether a socket's peer is in one of these networks; not if it has none."""
    if not networks:
        return False
    address = peer_address(peer)
    return address is not None and any(address in network for network in networks)


class ClientFinder:
    """Finds the client behind a request.

    Args:
        trusted: the networks of the operator's own proxies.
    """

    def __init__(self, trusted: Sequence[Network]) -> None:
        self._trusted = tuple(trusted)
        # Asked of each request, and of few peers.
        self.trusts: Callable[[str | None], bool] = lru_cache(maxsize=4096)(
            lambda peer: is_in(peer, self._trusted)
        )
        """Whether a socket's peer is a trusted proxy."""

    def find(
        self, peer: str | None, x_forwarded_for: bytes | None, forwarded: bytes | None
    ) -> Address | None:
        """The client's address, None if it is unknown.

        Args:
            peer: the socket's peer, None if it has none.
            x_forwarded_for: the header's lines joined by commas, None if absent or the peer is not trusted.
            forwarded: likewise (RFC 7239). With both headers, both must name the same client.
        """
        direct = peer_address(peer)
        if direct is None or not self._is_proxy(direct):
            return direct
        found = set()
        if x_forwarded_for is not None:
            found.add(self._walk(_x_forwarded_for(x_forwarded_for)))
        if forwarded is not None:
            found.add(self._walk(_forwarded(forwarded)))
        return found.pop() if len(found) == 1 else None

    def _is_proxy(self, address: Address) -> bool:
        return any(address in network for network in self._trusted)

    def _walk(self, hops: list[Address | None] | None) -> Address | None:
        """The first from the right that is not a trusted proxy, if there is one."""
        for hop in reversed(hops or ()):
            if hop is None or not self._is_proxy(hop):
                return hop
        return None


def _x_forwarded_for(value: bytes) -> list[Address | None] | None:
    """The hops, oldest first; None for one that cannot be read, or for all if the header is far too long."""
    if len(value) > _MAX_HEADER:
        return None
    return [_node(part) for part in map(str.strip, value.decode("latin-1").split(",")) if part]


def _forwarded(value: bytes) -> list[Address | None] | None:
    """The `for` parameters of RFC 7239, oldest first, None for one that is hidden, missing or malformed.

    None for all if the header does not parse: quotes may then hide where elements end.
    """
    if len(value) > _MAX_HEADER:
        return None
    hops: list[Address | None] = []
    text = value.decode("latin-1")
    position = 0
    element: dict[str, str] = {}
    while True:
        pair = _PAIR.match(text, position)
        if pair is not None:
            name = pair[1].lower()
            if name in element:
                return None
            element[name] = pair[2]
            position = pair.end()
        elif (spaces := _SPACES.match(text, position)) is not None:
            position = spaces.end()  # all at once: each would be looked at again for each before it
            continue
        end = text[position : position + 1]
        if end == ";" and element:
            position += 1
            continue
        if end not in (",", ""):
            return None
        if element:  # RFC 9110 §5.6.1.2: empty list elements are ignored
            hops.append(_for(element))
            element = {}
        if not end:
            return hops
        position += 1


def _for(element: dict[str, str]) -> Address | None:
    node = element.get("for")
    if node is None:
        return None
    if node.startswith('"'):
        node = re.sub(r"\\(.)", r"\1", node[1:-1])
    return _node(node)


def _node(text: str) -> Address | None:
    """An address with or without port, IPv6 with or without brackets."""
    match = _BRACKETED.fullmatch(text) or _IPV4_PORT.fullmatch(text)
    return _address(match[1] if match else text)
