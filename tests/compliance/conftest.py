"""A server on a real socket for the checks of public testers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gtm.dns.server import DnsServer
from tests.dns.test_server import respond, running


@pytest.fixture(scope="package")
def port() -> Iterator[int]:
    """The port of a server of the tests' world on 127.0.0.1."""
    with running(DnsServer([("127.0.0.1", 0)], respond)) as server:
        yield server.addresses[0][1]
