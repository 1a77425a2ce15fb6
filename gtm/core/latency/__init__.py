"""Estimates of network round-trip time: what other modules need of it (docs/latency.md).

`Estimator` answers from a `LatencyTable`; samples become that table by way of `SampleAggregator` at the edges and
`Aggregates` in control.
"""

from __future__ import annotations

from gtm.core.latency.aggregates import Aggregates, Settings, Sum
from gtm.core.latency.doubt import Disputed, Doubt, Doubts, DoubtSettings, Vote, Witness
from gtm.core.latency.estimator import Estimator
from gtm.core.latency.geographic import NetworkPath
from gtm.core.latency.samples import Delta, Interval, Level, Sample, SampleAggregator, SampleMethod, Verdict
from gtm.core.latency.squares import Source
from gtm.core.latency.table import EMPTY_TABLE, LatencyTable
from gtm.core.model.geometry import EARTH_RADIUS_KM, great_circle_km

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
    "SampleMethod",
    "Settings",
    "Source",
    "Sum",
    "Verdict",
    "Vote",
    "Witness",
    "great_circle_km",
]
