"""A worker without its agent, against a readable model of what docs/operations.md says of it."""

from __future__ import annotations

import socket
import threading
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gtm.core.model.state import NO_PLAN, ClassPlan, EndpointHealth, HealthStatus, Plan, State
from gtm.documents.jurisdictions import shipped_jurisdictions
from gtm.feed.wire import SnapshotMessage, StateMessage
from gtm.runtime.edge.line import PulseMessage
from gtm.runtime.edge.worker.worker import FROZEN, SILENCE, OwnProbes, Tenure
from gtm.settings import LOOPBACK
from tests.patience import PATIENCE
from tests.system.harness import eventually
from tests.system.lone import policy

UP, DOWN, UNKNOWN = (
    EndpointHealth(status) for status in (HealthStatus.UP, HealthStatus.DOWN, HealthStatus.UNKNOWN)
)
PLAN = Plan(1.0, {"class": ClassPlan({"de": 1.0})})
VERDICTS = st.sampled_from([UP, DOWN, UNKNOWN])
TABLES = st.dictionaries(
    st.sampled_from(["de", "ie", "us"]),
    st.dictionaries(st.sampled_from(["http://a", "http://b"]), VERDICTS),
    max_size=3,
)


@dataclass
class Told:
    """The model: what a worker was told and when, on a clock of its own."""

    able: bool
    now: float = 1000.0
    heard: float = 1000.0
    pulse: PulseMessage = field(default_factory=lambda: PulseMessage(alone=False))
    gone: float | None = None

    def alone_for(self) -> float:
        """Without an agent that is there and has spoken within `SILENCE` seconds.

        Counted from its last word, however it ended: one that hung first, and was killed then, gives no time back.
        """
        if self.gone is not None:
            return max(self.now - self.heard, 1e-3)
        silent = self.now - self.heard
        return silent if self.pulse.alone and silent > SILENCE else 0.0

    def health(
        self, region: str, url: str, state: State, own: dict[str, dict[str, EndpointHealth]]
    ) -> EndpointHealth:
        """Of one endpoint: as it was last known; after `FROZEN` seconds what own probes found, where they found anything."""
        known = state.health.get(region, {}).get(url, UNKNOWN)
        seen = own.get(region, {}).get(url, UNKNOWN)
        return seen if self.alone_for() > FROZEN and seen.status is not HealthStatus.UNKNOWN else known


STEPS = st.one_of(
    st.floats(0.01, 400.0).map(lambda seconds: ("pass", seconds)),
    st.builds(
        lambda alone, left: ("pulse", PulseMessage(alone, left, "fra-1")), st.booleans(), st.floats(0, 300)
    ),
    st.just(("heard", StateMessage(State(1)))),
    TABLES.map(lambda table: ("state", State(7, "", table, PLAN))),
)


@given(
    able=st.booleans(),
    steps=st.lists(STEPS, max_size=12),
    ends=st.booleans(),
    after=st.floats(0.01, 700.0),
    own=TABLES,
)
def test_a_worker_goes_by_what_is_written(
    able: bool,
    steps: list[tuple[str, object]],
    ends: bool,
    after: float,
    own: dict[str, dict[str, EndpointHealth]],
) -> None:
    """Whether it goes on, since when it is alone, and each endpoint's health and the plan it then goes by."""
    told = Told(able)
    tenure = Tenure(lambda: told.now, able=able)
    for kind, what in steps:
        if kind == "pass":
            assert isinstance(what, float)
            told.now += what
            continue
        if isinstance(what, State):
            tenure.told = what
        tenure.heard(what)
        told.heard = told.now
        if isinstance(what, PulseMessage):
            told.pulse = what
    if ends:
        assert tenure.ended() is (able and told.pulse.alone)
        assert tenure.gone.is_set()
        told.gone = told.now
    told.now += after
    assert tenure.alone_for == told.alone_for()
    state = tenure.state(own)
    last = tenure.told
    for region in {*last.health, *own}:
        for url in {*last.health.get(region, {}), *own.get(region, {})}:
            found = state.health.get(region, {}).get(url, UNKNOWN)
            assert found == told.health(region, url, last, own), (region, url)
    followed = not told.alone_for() or told.alone_for() <= told.pulse.plan_left
    assert state.plan == (last.plan if followed else NO_PLAN)
    assert state.epoch == last.epoch
    if told.alone_for() <= FROZEN:
        assert replace(state, plan=last.plan) == last
    else:
        assert state.vantage == told.pulse.edge


def test_own_probes_see_what_happens_and_end() -> None:
    """A region that dies while nobody else probes is found out; the probes' thread leaves nothing behind."""
    before = threading.active_count()
    probes = OwnProbes(LOOPBACK)
    with socket.create_server(("127.0.0.1", 0), backlog=128) as region:
        port = region.getsockname()[1]
        probes.start(SnapshotMessage.of(1, 1.0, policy(port), shipped_jurisdictions()).compiled())

        def is_(status: HealthStatus) -> bool:
            found = probes.health.get("eu", {}).get(f"http://127.0.0.1:{port}")
            return found is not None and found.status is status

        eventually(lambda: is_(HealthStatus.UP), "it is up")
    eventually(lambda: is_(HealthStatus.DOWN), "it is down")
    probes.stop()
    assert probes.health == {}
    eventually(lambda: threading.active_count() <= before + 1, "the thread has ended")


def test_own_probes_that_hang_hold_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopping them waits for no name server: the thread that does it also counts, and keeps the limits of DNS."""
    asked, go_on, resolved = threading.Event(), threading.Event(), threading.Event()

    def resolve(*_: object, **__: object) -> list[object]:
        asked.set()
        go_on.wait(PATIENCE)
        resolved.set()
        raise socket.gaierror

    before = threading.active_count()
    probes = OwnProbes(LOOPBACK)
    with monkeypatch.context() as patched:
        patched.setattr(socket, "getaddrinfo", resolve)
        probes.start(SnapshotMessage.of(1, 1.0, policy(1), shipped_jurisdictions()).compiled())
        assert asked.wait(PATIENCE)
        probes.stop()
        assert not resolved.is_set()
        assert probes.health == {}
        go_on.set()
        eventually(lambda: threading.active_count() <= before + 1, "the thread has ended")
    assert probes.health == {}


def test_certificates_that_are_gone_declare_nothing_dead(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A file that cannot be read any more says nothing about regions: health stays as it was last known."""
    before = threading.active_count()
    probes = OwnProbes(LOOPBACK, tmp_path / "gone.pem")
    probes.start(SnapshotMessage.of(1, 1.0, policy(1), shipped_jurisdictions()).compiled())
    eventually(lambda: "stays as it was last known" in caplog.text, "it is said")
    eventually(lambda: threading.active_count() <= before, "the thread has ended")
    assert probes.health == {}
