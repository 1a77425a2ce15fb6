"""Whether a request that came over loopback is meant for this machine.

What is open to this machine alone is open to every page that a browser here shows, for a page can let its own name lead to 127.0.0.1
(DNS rebinding), and is then of the same origin as what answers there. But its requests carry its name as their Host, and no page can change
that (Fetch, "forbidden request-header").

Law: what is open only because it is asked over loopback answers no Host that is neither a loopback address, `localhost`, nor a name that
configuration or policy knows.
"""

from __future__ import annotations

import socket
from urllib.parse import urlsplit

from gtm.core.model.names import host_name
from gtm.core.policy.snapshot import Snapshot
from gtm.geoip.client import peer_address

_LOCALHOST = "localhost"


def own_names(*places: str | None) -> frozenset[str]:
    """The names and addresses that a server is known by: its machine's, and those of its configuration.

    Args:
        places: addresses and URLs; None: there is none.
    """
    found = {socket.gethostname()}
    for place in places:
        if place:
            found.add((urlsplit(place).hostname or "") if "//" in place else place)
    return frozenset(name.lower().removesuffix(".") for name in found if name)


def foreign(peer: str | None, host: bytes, known: frozenset[str], snapshot: Snapshot | None) -> str:
    """Say what is wrong with a request that comes over loopback for another machine; nothing: it is meant for this one, or comes otherwise.

    Args:
        peer: the socket's peer.
        host: the Host header; empty: there is none, so that no browser sent it.
        known: see `own_names`.
        snapshot: the policy in force.
    """
    address = peer_address(peer)
    if address is None or not address.is_loopback:
        return ""
    name = host_name(host)
    if not name or name in known or name == _LOCALHOST or name.endswith(f".{_LOCALHOST}"):  # RFC 6761 §6.3
        return ""
    asked = peer_address(name.removeprefix("[").removesuffix("]"))
    if asked is not None and (asked.is_loopback or str(asked) in known):
        return ""
    if snapshot is not None and snapshot.host_of(name) is not None:
        return ""
    return (
        f"what this machine alone may ask was asked for the host `{name[:255]}`, which is none of its names: ask 127.0.0.1, [::1] or "
        "localhost, or show a token"
    )
