"""Domain names as policies write them, and which of them exist.

Names here are host names: lower case, without the dot at the end, and without escapes.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # which is made of what is named
    from gtm.core.model.policy import Policy

WILDCARD = "*."
"""What a wildcard's name begins with (RFC 4592 §2.1.1)."""


def absolute(name: str, zone: str) -> str:
    """A name as in a zone file (RFC 1035 §5.1): relative to the zone unless a dot ends it; `@` is the zone itself."""
    name = name.lower()
    if name == "@":
        return zone
    return name[:-1] if name.endswith(".") else f"{name}.{zone}"


def ancestors(name: str) -> Iterator[str]:
    """A name and each name above it, but for the root."""
    while name:
        yield name
        name = name.partition(".")[2]


def closest(known: Container[str], name: str) -> str | None:
    """The closest of some names that is a name itself or above it."""
    return next((above for above in ancestors(name) if above in known), None)


def existing_names(policy: Policy) -> frozenset[str]:
    """Every name that the policy's zones hold, and every one between it and its zone's apex (RFC 8020 §2).

    Those between are empty non-terminals: names without records. Name servers exist even while no address of theirs is
    known, and so does a zone's apex in the zone around it.
    """
    zones = {zone.name for zone in policy.zones}
    found = set(zones)
    for name in _written(policy):
        if closest(zones, name) is None:
            continue
        for above in ancestors(name):
            if above in found:
                break
            found.add(above)
    return frozenset(found)


def _written(policy: Policy) -> Iterator[str]:
    for service in policy.services:
        yield from (host.name for host in service.names)
    for zone in policy.zones:
        yield zone.name.partition(".")[
            2
        ]  # what is right above a zone lies in the zone around it, if there is one
        yield from [server.name for server in zone.name_servers] or [zone.primary_ns]
        for record in zone.sets:
            yield absolute(record.name, zone.name)


def host_name(host: bytes) -> str:
    """A Host header's name in lower case, without port and trailing dot (RFC 9110 §7.2)."""
    text = host.decode("latin-1").strip().lower()
    name, colon, port = text.rpartition(":")
    if colon and (port.isdecimal() or not port):
        text = name
    return text.removesuffix(".")
