"""The edge's HTTP application on the demo world, served as a worker serves it: `python tests/bench/edge_app.py PORT [behind]`.

`behind`: this machine's proxies are the operator's, and the edge signs, by a key that is published.
"""

from __future__ import annotations

import sys

from bench_view import current_view

from gtm.core.handoff.keys import PublicKey, PublicKeys, key_text
from gtm.feed.wire import HandoffKeysMessage
from gtm.geoip.reader import Locator
from gtm.handoff.jwt import made
from gtm.http.answers.routes import EdgeHandoffs
from gtm.http.app import EdgeApp, EdgeOptions
from gtm.runtime.process.http import PatientServer, server_config
from gtm.settings import LOOPBACK
from gtm.telemetry import Counts


def edge(*, behind: bool) -> EdgeApp:
    """The application."""
    current, handoffs = current_view(), None
    if behind:
        key = made()
        text = key_text(key.public)
        current.apply(HandoffKeysMessage(PublicKeys((PublicKey("edge", text),), 1)))
        handoffs = EdgeHandoffs(current)
        handoffs.use("edge", key, (text,))
    options = EdgeOptions(open_lookups=True, trusted_proxies=LOOPBACK if behind else ())
    return EdgeApp(current, Locator().locate, options, Counts(), lambda: "", handoffs=handoffs)


def main() -> None:
    """Serve until killed."""
    app = edge(behind="behind" in sys.argv[2:])
    config = server_config(
        app,
        grace=3,
        lifespan=False,
        answer=app.answer_head,
        trusted=LOOPBACK if "behind" in sys.argv[2:] else (),
    )
    config.port = int(sys.argv[1])
    PatientServer(config, started=lambda: None).run_on(None)


if __name__ == "__main__":
    main()
