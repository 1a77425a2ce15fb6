"""Estimates of network round-trip time: what other modules need of it (docs/latency.md).

`Estimator` answers from a `LatencyTable`; samples become that table by way of `SampleAggregator` at the edges and
`Aggregates` in control.
"""

from __future__ import annotations

from gtm.core.geometry import EARTH_RADIUS_KM, great_circle_km
from gtm.core.model import Location
from gtm.core.rtt_aggregates import Aggregates, Settings, Sum
from gtm.core.rtt_estimator import Estimator
from gtm.core.rtt_levels import Source
from gtm.core.rtt_model import NetworkPath
from gtm.core.rtt_samples import Delta, Level, Sample, SampleAggregator, SampleKind, Verdict
from gtm.core.rtt_table import EMPTY_TABLE, LatencyTable

__all__ = [
    "EARTH_RADIUS_KM",
    "EMPTY_TABLE",
    "Aggregates",
    "Delta",
    "Estimator",
    "LatencyTable",
    "Level",
    "NetworkPath",
    "Sample",
    "SampleAggregator",
    "SampleKind",
    "Settings",
    "Source",
    "Sum",
    "Verdict",
    "great_circle_km",
    "network_path",
]

# Least absolute deviations over the great circles of 14,998 directed pairs of 123 cities (WonderNetwork city pings,
# November 2018).
BASE_MS = 16.0
MS_PER_KM = 0.0175


def network_path(location: Location, lat: float, lon: float) -> NetworkPath | None:
    """The way from a client to a point in degrees by its great circle alone; None if the client is nowhere known."""
    if location.lat is None or location.lon is None:
        return None
    distance = great_circle_km(location.lat, location.lon, lat, lon)
    return NetworkPath(distance, BASE_MS + MS_PER_KM * distance)
