"""Where balancers may say that others of their region reach them: those send datagrams there."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import ip_network

import pytest

from gtm.core.handoff.keys import key_text
from tests.api.conftest import Api
from tests.system.harness import eventually

REGION = "eu-central"
KEY = key_text(bytes(32))


def _say(world: Api, address: str) -> str:
    """Report an address; what control has to say of it."""
    told = world.balancer.post(
        "/v1/balancers/b1/report", json={"region": REGION, "handoff_keys": [KEY], "address": address}
    )
    assert told.status_code == 200
    notice: str = told.json()["notice"]
    return notice


def _told(world: Api) -> list[str]:
    """The addresses that followers are told."""
    return [one.address for one in world.server.app.state.context.replica.now.peers.peers]


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1:8088", "127.0.1.1:9000", "127.3.2.1:1"],
    ids=["the same", "an endpoint's", "this machine's"],
)
def test_an_address_of_its_own_is_told(world: Api, address: str) -> None:
    """That which it reports from, one of the region's endpoints, and what is of this very machine."""
    assert _say(world, address) == ""
    eventually(lambda: _told(world) == [address], "it is told")


@pytest.mark.parametrize(
    "address", ["192.0.2.7:53", "[2001:db8::7]:53", "[::ffff:192.0.2.7]:53", "169.254.169.254:80"]
)
def test_a_third_party_s_address_is_told_to_nobody(world: Api, address: str) -> None:
    """The balancer is told why; its keys and leases are taken in all the same."""
    notice = _say(world, address)
    assert "GTM_PEER_ALLOW" in notice
    assert "127.0.0.1" in notice
    replica = world.server.app.state.context.replica
    eventually(lambda: KEY in {key.x for key in replica.now.handoff_keys.keys}, "its key is published")
    assert _told(world) == []


def test_control_s_operator_may_allow_networks(world: Api) -> None:
    """Where a proxy stands before control, or addresses are translated."""
    state = world.server.app.state
    settings = replace(state.context.settings, peer_allow=(ip_network("192.0.2.0/28"),))
    state.context = replace(state.context, settings=settings)
    assert _say(world, "192.0.2.7:8088") == ""
    eventually(lambda: _told(world) == ["192.0.2.7:8088"], "it is told")
    assert _say(world, "192.0.2.77:8088")
    eventually(lambda: _told(world) == [], "of another nobody is told")
