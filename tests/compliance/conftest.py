"""A server on a real socket for the checks of public testers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gtm.dns.answer.answerer import Answerer
from gtm.dns.zone.dnssec import ZoneSigner
from gtm.telemetry import Counts
from tests.dns.serving import BoundServer, running
from tests.dns.world import locate, router
from tests.dns.zone.signing import NOW, keys
from tests.resolvers.harness import OPTIONS


@pytest.fixture(scope="package", params=["plain", "signed"])
def port(request: pytest.FixtureRequest) -> Iterator[int]:
    """The port of a server of the tests' world on 127.0.0.1, with an identifier, cookies and all; then one that signs."""
    signer = ZoneSigner(keys(), lambda: NOW) if request.param == "signed" else None
    answerer = Answerer(router(), locate, Counts(), options=OPTIONS, signer=signer)

    def respond(packet: bytes, client: str, tcp: bool) -> bytes | None:
        return answerer.answer(packet, client, tcp=tcp, draw=0.5)

    with running(BoundServer([("127.0.0.1", 0)], respond)) as server:
        yield server.addresses[0][1]
