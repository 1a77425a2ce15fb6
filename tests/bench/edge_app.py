"""The edge's HTTP application on the demo world, served as a worker serves it: `python tests/bench/edge_app.py PORT`."""

from __future__ import annotations

import sys

from bench_view import current_view

from gtm.geoip.reader import Locator
from gtm.http.app import EdgeApp, EdgeOptions
from gtm.runtime.process.http import PatientServer, server_config
from gtm.telemetry import Counts

app = EdgeApp(current_view(), Locator().locate, EdgeOptions(open_lookups=True), Counts(), lambda: "")


def main() -> None:
    """Serve until killed."""
    config = server_config(app, grace=3, lifespan=False, answer=app.answer_head, port=int(sys.argv[1]))
    PatientServer(config, started=lambda: None).run_on(None)


if __name__ == "__main__":
    main()
