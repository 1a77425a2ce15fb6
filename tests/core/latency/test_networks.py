"""No network that could be one person's is a key of round trips."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gtm.control.lead.latency import delta_problem
from gtm.core.latency.estimator import Estimator
from gtm.core.latency.samples import Level, RoundTripSample, SampleAggregator
from gtm.core.latency.table import LatencyTable, network_key
from gtm.core.model.requests import Location
from tests import worlds

REGION = worlds.region("eu", at="de")
BERLIN = Location("DE", None, "EU", 52.5, 13.4, 3320, "81.2.69.142/32", 32, "override")

networks = st.builds(
    lambda number, length: IPv4Network((number, length), strict=False),
    st.integers(0, 2**32 - 1),
    st.integers(0, 32),
) | st.builds(
    lambda number, length: IPv6Network((number, length), strict=False),
    st.integers(0, 2**128 - 1),
    st.integers(0, 128),
)


@given(networks)
def test_keys_are_networks_of_many(network: IPv4Network | IPv6Network) -> None:
    """The network itself, or the /24 or /48 that it lies in; the key of a key is that key."""
    most = 24 if network.version == 4 else 48
    key = ip_network(network_key(str(network)))
    assert key == (network if network.prefixlen <= most else network.supernet(new_prefix=most))
    assert network_key(str(key)) == str(key)


@pytest.mark.parametrize("text", ["", "net-3", "/", "a/99", ":/99", "1.2.3.4", "1.2.3.4/x", "1.2.3/32"])
def test_what_is_no_network_stays(text: str) -> None:
    """Whatever a location says."""
    assert network_key(text) == text


def test_samples_of_one_address_leave_as_a_network_of_many() -> None:
    """Of a client whose location holds for its address alone, the /24 is told, and found again."""
    aggregator = SampleAggregator([REGION])
    aggregator.add(RoundTripSample(BERLIN, "eu", 40.0, 1.0, "source"))
    keys = {delta.key for delta in aggregator.take().deltas if delta.level is Level.NETWORK}
    assert keys == {"81.2.69.0/24"}
    table = LatencyTable(1, networks={"81.2.69.0/24": {"eu": (30.0, 1000.0)}})
    measured = Estimator([REGION], table).paths(BERLIN, [0])
    plain = Estimator([REGION], LatencyTable()).paths(BERLIN, [0])
    assert measured != plain
    whole = BERLIN._replace(network="81.2.69.0/24", prefix_length=24)
    assert measured == Estimator([REGION], table).paths(whole, [0])


@pytest.mark.parametrize(
    ("key", "fine"),
    [
        ("81.2.69.0/24", True),
        ("81.0.0.0/8", True),
        ("2001:db8::/48", True),
        ("81.2.69.142/32", False),
        ("81.2.69.0/25", False),
        ("2001:db8::1/128", False),
        ("2001:db8::/49", False),
        ("81.2.69.142", False),
        (str(IPv4Address("81.2.69.142")), False),
        (str(IPv6Address("2001:db8::1")), False),
        ("somebody", False),
        ("81.2.69.1/24", False),
    ],
)
def test_control_refuses_reports_of_smaller_ones(key: str, fine: bool) -> None:
    """And of what is no network at all."""
    aggregator = SampleAggregator([REGION])
    aggregator.add(RoundTripSample(BERLIN, "eu", 40.0, 1.0, "source"))
    (delta,) = (delta for delta in aggregator.take().deltas if delta.level is Level.NETWORK)
    assert (delta_problem(delta._replace(key=key)) is None) is fine
