"""The name server on the demo world: one process, one UDP socket, as a worker runs it."""

from __future__ import annotations

import random
import sys

from bench_view import router

from gtm.dns.answer import Answerer
from gtm.dns.server import DnsServer
from gtm.geoip.reader import Locator
from gtm.telemetry import Counts

answerer = Answerer(router(), Locator().locate, Counts())


def respond(packet: bytes, client: str, tcp: bool) -> bytes | None:
    """As the worker's."""
    return answerer.answer(packet, client, tcp=tcp, draw=random.random())


server = DnsServer([("127.0.0.1", int(sys.argv[1]))], respond, reuse_port=True)
server.bind()
server.serve()
