"""The demo world, all up, as a current View: what the benchmarked servers answer from."""

from __future__ import annotations

import time

from gtm.core.decision.router import Router
from gtm.core.model.state import EndpointHealth, HealthStatus, State
from gtm.demo.policy import demo_policy
from gtm.documents.jurisdictions import shipped_jurisdictions
from gtm.feed.current import CurrentView
from gtm.feed.wire import SnapshotMessage, StateMessage


def current_view() -> CurrentView:
    """One with a View of it."""
    policy = demo_policy()
    made = CurrentView(time.time)
    made.apply(SnapshotMessage.of(1, time.time(), policy, shipped_jurisdictions()))
    health = {
        region.name: {endpoint.url: EndpointHealth(HealthStatus.UP) for endpoint in region.endpoints}
        for region in policy.regions
    }
    made.apply(StateMessage(State(1, "", health)))
    return made


def router() -> Router:
    """The current View's router."""
    found = current_view().router
    assert found is not None
    return found
