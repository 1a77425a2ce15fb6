"""The levels of knowledge in an estimate, and how far each is believed."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum


class Source(StrEnum):
    """The finest level of knowledge in an estimate."""

    MODEL = "model"
    REGIONS = "regions"
    """The regions' mutual round trips."""
    COUNTRY = "country"
    NEARBY = "nearby"
    """Measured in places near the client's."""
    PLACE = "place"
    """Measured in the client's own square."""
    ASN = "asn"
    """Measured with clients of the same operator in the same country."""
    NETWORK = "network"


@dataclass(frozen=True, slots=True)
class Trust:
    """How far a level's samples count: n of them correct a coarser estimate by the share reach × n / (n + pseudo)."""

    pseudo: float
    reach: float

    def gain(self, samples: float) -> float:
        """The share (0–1) of the way from the coarser estimate to what so many samples say."""
        return self.reach * samples / (samples + self.pseudo)


# A country and an operator span places that differ, so that no number of samples is believed of all their clients.
COUNTRY_TRUST = Trust(pseudo=10.0, reach=0.5)
ASN_TRUST = Trust(pseudo=5.0, reach=0.5)
PLACE_TRUST = Trust(pseudo=1.0, reach=1.0)
NETWORK_TRUST = Trust(pseudo=1.0, reach=1.0)


def offset(gains: Collection[tuple[float, float]]) -> float:
    """The offset common to several regions, from (gain, residual) of each; shrunk as by one region without any."""
    return sum(gain * residual for gain, residual in gains) / (1 + sum(gain for gain, _ in gains))
