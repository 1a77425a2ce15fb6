"""A whole `gtm serve` behind Unbound: what clients are told by DNS is what the look-up says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.dns.world import addresses
from tests.resolvers.harness import (
    AMERICAN,
    AMERICAN_TOO,
    GERMAN,
    GERMAN_TOO,
    JAPANESE,
    OVERRIDES,
    subnet_unbound,
)
from tests.system.harness import System, eventually, system

pytestmark = pytest.mark.drill


def told(running: System, client: str) -> set[str]:
    """The addresses of the region that the look-up names for a client."""
    found = running.route(service="chat", client_ip=client).json()
    return set(found["endpoint"]["ipv4"]) if found.get("outcome") == "served" else set()


@pytest.mark.system
@pytest.mark.rfc("7871", "7.2.1", "a whole system answers clients behind a resolver by their own networks")
def test_clients_behind_a_resolver(tmp_path: Path) -> None:
    """Clients of one resolver are sent to the regions that their own networks are, as over HTTP."""
    overrides = tmp_path / "overrides.yaml"
    overrides.write_text(OVERRIDES)
    arguments = ("--demo", "--open-lookups", "--geoip-overrides", str(overrides))
    (tmp_path / "unbound").mkdir()
    with (
        system(tmp_path / "data", *arguments) as running,
        subnet_unbound(tmp_path / "unbound", running.dns_port) as resolver,
    ):
        eventually(
            lambda: all(told(running, client) for client in (GERMAN, AMERICAN, JAPANESE)), "all are served"
        )
        answers = {
            client: frozenset(addresses(resolver.ask("chat.demo.test", client=client)))
            for client in (GERMAN, AMERICAN, JAPANESE, GERMAN_TOO, AMERICAN_TOO)
        }
        for client, given in answers.items():
            assert given == told(running, client), client
        assert answers[GERMAN] == answers[GERMAN_TOO] != answers[AMERICAN]
        assert len(set(answers.values())) == 3
