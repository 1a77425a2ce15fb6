"""What was measured of round trips, as control hands it to the edges."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache
from ipaddress import ip_network
from typing import Any

from gtm.core.latency.doubt import Doubt, claim_of
from gtm.core.model.geometry import parse_square
from gtm.core.model.requests import Location

Row = dict[str, tuple[float, float]]
"""Region name → residual (measured less the geographic model's) in ms, and how many samples it is worth."""

ALONE_MS = 25.0
"""By how much all that is said `alone` moves an estimate at most."""


@dataclass(frozen=True, slots=True)
class LatencyTable:
    """Measured round trips, replaced whole. Two tables of the same version are equal.

    `mutual` holds round trips between regions in ms, by the names of who measured and who answered. The levels map a
    CIDR network, an operator in a country (`3320|DE`), a country (`DE`) and a square (`gtm.core.model.geometry.square_key`) to
    what was measured there. `processing_ms` is what a region itself takes on average (waiting and service time), by
    region and service; service "" stands for all others. `alone` names, by field, key and region, what one author alone said
    who is not the only one that can know it.

    Raises:
        ValueError: a key of `places` is no square.
    """

    version: int = 0
    mutual: dict[str, dict[str, float]] = field(default_factory=dict)
    networks: dict[str, Row] = field(default_factory=dict)
    asns: dict[str, Row] = field(default_factory=dict)
    countries: dict[str, Row] = field(default_factory=dict)
    places: dict[str, Row] = field(default_factory=dict)
    processing_ms: dict[str, dict[str, float]] = field(default_factory=dict)
    doubts: dict[str, Doubt] = field(default_factory=dict)
    alone: dict[str, dict[str, set[str]]] = field(default_factory=dict)

    def agreed(self) -> LatencyTable:
        """The same without what is said `alone`."""
        agreed: dict[str, Any] = {}
        for name, said in self.alone.items():
            rows = {
                key: {region: ms for region, ms in row.items() if region not in said.get(key, ())}
                for key, row in getattr(self, name).items()
            }
            agreed[name] = {key: row for key, row in rows.items() if row}
        return replace(self, alone={}, **agreed)

    def doubt(self, location: Location) -> Doubt | None:
        """The doubt about where a location's network is; None if it is believed.

        Of one narrower than a /24 or /48 it is that of the /24 or /48 around it, if it is of the same claim.
        """
        if not self.doubts or location.network is None:
            return None
        found = self.doubts.get(network_key(location.network))
        return found if found is not None and found.doubtful and found.claim == claim_of(location) else None

    def dubious(self, location: Location) -> bool:
        """Whether it is in doubt where a client is: for a subnet, where some part of it is. Overrides are believed."""
        if not self.doubts or location.source == "override":
            return False
        if not location.subnet:
            return self.doubt(location) is not None
        found = ((self.doubts.get(network_key(network)), claim) for network, claim in location.parts)
        return any(doubt is not None and doubt.doubtful and doubt.claim == claim for doubt, claim in found)

    def __post_init__(self) -> None:
        for key in self.places:
            parse_square(key)


EMPTY_TABLE = LatencyTable()


@lru_cache(maxsize=65_536)
def network_key(network: str) -> str:
    """The key of a client's network: it, or the /24 or /48 around one that is smaller and could be one person's.

    What is no network in CIDR notation stays as it is.
    """
    address, _, length = network.partition("/")
    widest = 48 if ":" in address else 24
    if not length.isdecimal() or int(length) <= widest:
        return network
    try:
        return str(ip_network(f"{address}/{widest}", strict=False))
    except ValueError:
        return network


def asn_key(location: Location) -> str | None:
    """The key of the client's operator in its country; None if either is unknown."""
    return f"{location.asn}|{location.country}" if location.asn and location.country else None
