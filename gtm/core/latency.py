"""Estimates of network round-trip time: what other modules need of it (docs/latency.md).

`Estimator` answers from a `LatencyTable`; samples become that table by way of `SampleAggregator` at the edges and
`Aggregates` in control.
"""

from __future__ import annotations

from gtm.core.model.geometry import EARTH_RADIUS_KM, great_circle_km
from gtm.core.rtt_aggregates import Aggregates, Settings, Sum
from gtm.core.rtt_doubt import Disputed, Doubt, Doubts, DoubtSettings, Vote, Witness
from gtm.core.rtt_estimator import Estimator
from gtm.core.rtt_levels import Source
from gtm.core.rtt_model import NetworkPath
from gtm.core.rtt_samples import Delta, Interval, Level, Sample, SampleAggregator, SampleKind, Verdict
from gtm.core.rtt_table import EMPTY_TABLE, LatencyTable

__all__ = [
    "EARTH_RADIUS_KM",
    "EMPTY_TABLE",
    "Aggregates",
    "Delta",
    "Disputed",
    "Doubt",
    "DoubtSettings",
    "Doubts",
    "Estimator",
    "Interval",
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
    "Vote",
    "Witness",
    "great_circle_km",
]
