"""The edge's HTTP application on the demo world, served as a worker serves it: `python tests/bench/edge_app.py PORT`."""

from __future__ import annotations

import asyncio
import sys

import uvicorn
from bench_view import holder

from gtm.edge.app import EdgeApp, EdgeOptions
from gtm.geoip.reader import Locator
from gtm.runtime.http import PatientProtocol, PatientServer
from gtm.telemetry import Counts

app = EdgeApp(holder(), Locator().locate, EdgeOptions(open_lookups=True), Counts(), lambda: "")


def main() -> None:
    """Serve until killed."""
    config = uvicorn.Config(
        app,
        port=int(sys.argv[1]),
        http=PatientProtocol,
        log_config=None,
        access_log=False,
        lifespan="off",
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=75,
    )
    asyncio.run(PatientServer(config, started=lambda: None).serve())


if __name__ == "__main__":
    main()
