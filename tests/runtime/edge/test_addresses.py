"""Verdicts on addresses on their way through an edge: with control, without it, and in a worker without its agent."""

from __future__ import annotations

from gtm.core.model.state import EndpointHealth, HealthStatus, State
from gtm.feed.wire import StateMessage
from gtm.runtime.edge.agent.agent import Agreed, Veto
from gtm.runtime.edge.line import PulseMessage
from gtm.runtime.edge.worker.worker import FROZEN, Tenure
from gtm.telemetry import EdgeMetrics

UP, DOWN = HealthStatus.UP, HealthStatus.DOWN
KEY = "192.0.2.1 http://eu.test"


def _table(status: HealthStatus, *regions: str) -> dict[str, dict[str, dict[str, EndpointHealth]]]:
    return {"ipv4": {region: {KEY: EndpointHealth(status)} for region in regions or ("eu",)}, "ipv6": {}}


def _agreed() -> Agreed:
    return Agreed(Veto(EdgeMetrics(list)), lambda: 100.0)


def test_an_edge_goes_by_the_votes_and_alone_by_itself() -> None:
    """As for endpoints: the common verdict with control, the edge's own without it."""
    agreed = _agreed()
    own = _table(UP, "eu", "us", "ap")
    agreed.heard(StateMessage(State(5, addresses=_table(DOWN))))
    agreed.connected = True
    found = agreed.state({}, {}, "edge", addresses=own, recent_addresses=own)
    assert [found.addresses["ipv4"][name][KEY].status for name in ("eu", "us")] == [DOWN, UP]
    agreed.lost()
    assert agreed.state({}, {}, "edge", addresses=own, recent_addresses=own).addresses == own


def test_votes_that_would_empty_a_family_are_overruled_and_told() -> None:
    """Most of what the edge sees up itself stays, and the regions are among those that it reports as overruled."""
    veto = Veto(EdgeMetrics(list))
    agreed = Agreed(veto, lambda: 100.0)
    own = _table(UP, "eu", "us")
    agreed.heard(StateMessage(State(5, addresses=_table(DOWN, "eu", "us"))))
    agreed.connected = True
    found = agreed.state({}, {}, "edge", addresses=own, recent_addresses=own)
    assert found.addresses["ipv4"] == own["ipv4"]
    assert veto.regions == {"eu", "us"}


def test_a_worker_alone_goes_by_its_own_probes_of_addresses() -> None:
    """After the time in which what was told stays."""
    now = [0.0]
    tenure = Tenure(lambda: now[0], able=True)
    tenure.told = State(5, addresses=_table(UP))
    tenure.heard(PulseMessage(alone=True))
    tenure.ended()
    now[0] = FROZEN
    assert tenure.state({}, _table(DOWN)).addresses == _table(UP)
    now[0] = FROZEN + 1
    assert tenure.state({}, _table(DOWN)).addresses == _table(DOWN)
