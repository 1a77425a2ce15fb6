"""An edge's own word and name, and a feed that refuses to send what edges would not accept."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from gtm.control.live import subscribers
from gtm.control.live.present import Current, Present
from gtm.control.live.subscribers import Subscribers
from gtm.core.model.state import EndpointHealth, HealthStatus, State
from gtm.feed.wire import StateMessage, decode
from gtm.runtime.edge.agent.agent import UNSAID, Veto, remember, remembered
from gtm.settings import EdgeSettings
from gtm.telemetry import EdgeMetrics

UP = {"u": EndpointHealth(HealthStatus.UP)}
DOWN = {"u": EndpointHealth(HealthStatus.DOWN)}


def test_an_edge_says_when_it_goes_by_its_own_probes(caplog: pytest.LogCaptureFixture) -> None:
    """In its metrics at once, in its log if it lasts, and again when it is over."""
    now = [0.0]
    metrics = EdgeMetrics()
    veto = Veto(metrics, lambda: now[0])
    own = {"a": UP, "b": UP}
    caplog.set_level(logging.WARNING)
    assert veto.health({"a": DOWN, "b": DOWN}, own, own) == own
    assert "gtm_edge_overruled_regions 2.0" in metrics.text()
    veto.tick()
    assert not caplog.messages
    now[0] += UNSAID
    veto.tick()
    veto.tick()
    assert ["a, b" in text for text in caplog.messages] == [True]
    assert veto.health({"a": DOWN, "b": UP}, own, own) == {"a": DOWN, "b": UP}
    assert "gtm_edge_overruled_regions 0.0" in metrics.text()
    assert caplog.messages[-1] == "going by the common verdict again"


def test_what_an_edge_saw_long_ago_overrules_nobody() -> None:
    """It goes by it only where the others say nothing."""
    veto = Veto(EdgeMetrics())
    assert veto.health({"a": DOWN, "b": DOWN}, {"a": UP, "b": UP, "c": UP}, {}) == {
        "a": DOWN,
        "b": DOWN,
        "c": UP,
    }
    assert not veto.regions


def test_an_edge_that_nobody_named_keeps_the_name_of_its_token(tmp_path: Path) -> None:
    """It has the name at the next start too; one that was given wins, and nonsense in the file is ignored."""
    unnamed = EdgeSettings(
        tmp_path, control_url="http://127.0.0.1:1", token="token", name="host", named=False
    )
    assert remembered(unnamed).name == "host"
    assert remember(unnamed, "fra-1").name == "fra-1"
    assert remembered(unnamed).name == "fra-1"
    assert (
        remembered(EdgeSettings(tmp_path, control_url="http://127.0.0.1:1", token="token", name="given")).name
        == "given"
    )
    assert remember(unnamed, "../x").name == "host"
    (tmp_path / "edge-name").write_text("a b\n")
    assert remembered(unnamed).name == "host"


def test_control_sends_nothing_that_edges_would_not_accept(monkeypatch: pytest.MonkeyPatch) -> None:
    """A State that is too large is not sent: the one before stays, also for edges that connect later, and status says so."""
    monkeypatch.setattr(subscribers, "MAX_LINE", 600)
    small, large = State(1), State(2, health={"r": {f"http://{n}/": EndpointHealth() for n in range(50)}})
    current = Current(Present(small))
    known = Subscribers(current, lambda: 0.0, lambda: 0.0)

    async def first() -> list[State]:
        found = map(decode, (await anext(aiter(known.stream("edge", 0)))).splitlines())
        return [one.state for one in found if isinstance(one, StateMessage)]

    assert asyncio.run(first()) == [small]
    current.become(Present(large))
    assert asyncio.run(first()) == [small]
    assert "the feed's state is" in known.refused["state"]
    current.become(Present(State(3)))
    assert asyncio.run(first()) == [State(3)]
    assert not known.refused
