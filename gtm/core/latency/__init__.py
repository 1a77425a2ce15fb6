"""Estimates of network round-trip time: what other modules need of it (docs/latency.md).

`Estimator` answers from a `LatencyTable`; samples become that table by way of `SampleAggregator` at the edges and
`Aggregates` in control.
"""
