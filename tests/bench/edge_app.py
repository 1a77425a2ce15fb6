"""The edge's HTTP application on the demo world, for uvicorn."""

from __future__ import annotations

from bench_view import holder

from gtm.edge.app import EdgeApp, EdgeOptions
from gtm.geoip.reader import Locator
from gtm.telemetry import Counts

app = EdgeApp(holder(), Locator().locate, EdgeOptions(open_lookups=True), Counts(), lambda: "")
